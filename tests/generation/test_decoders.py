"""Steps of modules on buffers of constant shape, as a CUDA graph needs them. Here they run on the CPU."""

from functools import partial

import pytest
import torch
from generating import RAGGED, TWO, VOCAB, columns, generating_model, sharpened, sources

from seqkit.backbones import S4D, TCN, Mamba, MeanPool
from seqkit.generation import BeamSearch, Sampling, decode, generate
from seqkit.generation.decoders import Decoder, ModuleStep
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken

GREEDY = Sampling(temperature=0)
STATES = {
    "TCN": partial(TCN, 24, 2, causal=True),
    "S4D": partial(S4D, 24, 2, causal=True),
    "Mamba": partial(Mamba, 24, 2, causal=True),
    "MeanPool": partial(MeanPool, 24, causal=True),
}
FIXED = ["LSTM", "GRU", "RNN", *STATES, "GRU, RNNDecoder"]


def model_of(name):
    torch.manual_seed(0)
    if name not in STATES:
        return generating_model(name)
    return sharpened(Model(TokenSpec(vocab_size=VOCAB), STATES[name](), NextToken()))


@pytest.fixture
def num_steps(monkeypatch):
    """Steps in buffers, which all models get."""
    steps, step = [], Decoder.__call__
    monkeypatch.setattr(decode, "find_decoder", lambda model, b, n: Decoder(ModuleStep(model)))
    monkeypatch.setattr(
        Decoder, "__call__", lambda self, *args: steps.append(self) or step(self, *args)
    )
    return steps


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("strategy", [GREEDY, Sampling(seed=3), BeamSearch(3)])
@pytest.mark.parametrize("context_length", [None, 7])
def test_buffers_change_no_id(name, strategy, context_length, num_steps):
    model = model_of(name)
    settings = {
        "strategy": strategy,
        "stop": [1],
        "source": sources(name),
        "context_length": context_length,
    }
    got = generate(model, RAGGED, 17, **settings)
    assert num_steps
    for ids, right in zip(got, generate(model, RAGGED, 17, use_cache=False, **settings)):
        assert ids.equal(right)


def test_buffers_are_filled_again_from_another_generation():
    """An encoder's output is part of the state, of another length too, or of another padding."""
    model, steps = model_of("GRU, RNNDecoder"), 17
    decoder = Decoder(ModuleStep(model))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "find_decoder", lambda model, b, n: decoder)
        given = [
            ([0, 1, 2], RAGGED),
            ([1, 2, 0], RAGGED),
            ([0, 0, 0], RAGGED),
            ([2, 1], RAGGED[:2]),
            ([0, 1, 2], RAGGED),
        ]
        for rows, prompts in given:
            settings = {"sampling": GREEDY, "source": sources("GRU, RNNDecoder", rows)}
            got = columns(model, prompts, steps, **settings)
            assert got.equal(columns(model, prompts, steps, use_cache=False, **settings))


def test_buffers_are_not_the_sources_own_tensors():
    """A decoder writes to its buffers when a sequence ends and when another generation begins."""
    name = "GRU, RNNDecoder"
    model, given = model_of(name), sources(name)
    decoder, before = Decoder(ModuleStep(model)), given.valid.clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "find_decoder", lambda model, b, n: decoder)
        for source in (given, sources(name, [2, 1, 0])):
            columns(model, RAGGED, 17, sampling=GREEDY, source=source)
    assert given.valid.equal(before)


@pytest.mark.parametrize(
    "name", ["Transformer", *sorted({*TWO} - {"GRU, RNNDecoder", "GRU, Bahdanau"})]
)
@pytest.mark.parametrize("context_length", [None, 7])
def test_a_cache_that_grows_is_left_to_the_modules(name, context_length, num_steps):
    model = generating_model(name)
    settings = {"sampling": GREEDY, "source": sources(name), "context_length": context_length}
    got = columns(model, RAGGED, 17, **settings)
    assert not num_steps
    assert got.equal(columns(model, RAGGED, 17, use_cache=False, **settings))


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_step_that_is_not_that_of_the_modules_is_left_to_them(
    is_wrong, num_steps, monkeypatch, caplog
):
    model, compute = model_of("GRU"), Decoder.__call__
    monkeypatch.setattr(Decoder, "is_proven", False)
    monkeypatch.setattr(
        Decoder, "__call__", lambda *args: compute(*args).flip(-1) if is_wrong else compute(*args)
    )
    got = generate(model, RAGGED, 17, strategy=GREEDY)
    assert len(num_steps) == (1 if is_wrong else 16)
    assert ("goes on by the modules" in caplog.text) == is_wrong
    for ids, right in zip(got, generate(model, RAGGED, 17, use_cache=False, strategy=GREEDY)):
        assert ids.equal(right)
