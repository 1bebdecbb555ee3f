"""Generation: with a cache and without it the same; seeded; alone and in a batch the same; within the settings."""

import pytest
import torch

from seqkit.backbones import GRU, LSTM, Transformer
from seqkit.contract import TokenBatch, TokenSpec
from seqkit.generate import generate
from seqkit.layers.position import Learned, Rotary
from seqkit.model import Model
from seqkit.objectives import Classify, NextToken

VOCAB = 13
BACKBONES = {
    "Transformer": lambda: Transformer(24, 2, causal=True),
    "Transformer-rotary": lambda: Transformer(24, 2, causal=True, position=Rotary()),
    "LSTM": lambda: LSTM(24, causal=True),
    "GRU": lambda: GRU(24, causal=True),
}
RAGGED = [torch.tensor([3, 1, 4, 1, 5]), torch.tensor([2]), torch.tensor([7, 1, 8])]


def model(name="Transformer", **settings):
    m = Model(TokenSpec(vocab_size=VOCAB), BACKBONES[name](), NextToken(), **settings)
    for p in m.parameters():
        if p.ndim == 2:
            torch.nn.init.normal_(p, std=p.shape[1] ** -0.5)  # sharper than at the start, so that contexts tell
    torch.nn.init.normal_(m.head.linear.weight)
    return m.eval()


def run(m, prompts, steps, **settings):
    return torch.stack(list(generate(m, prompts, steps, **settings)), dim=1)


def likeliest(m, text):
    """The next id, from the text from its start; no cache, no batch."""
    batch = TokenBatch(text[None], torch.arange(float(len(text)))[None, :, None], torch.ones(1, len(text)).bool())
    with torch.no_grad():
        return m(batch)[0, -1].argmax()


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("context", [None, 6, 1])
@pytest.mark.parametrize("choice", [{"temperature": 0}, {"temperature": 1.3}, {"top_k": 3}])
def test_with_a_cache_and_without_it_the_same_is_written(name, context, choice):
    m = model(name)
    got = run(m, RAGGED, 17, context=context, **choice)
    assert got.shape == (3, 17)
    assert got.equal(run(m, RAGGED, 17, context=context, use_cache=False, **choice))
    assert len(got.unique()) > 1


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy_writes_the_likeliest_after_the_whole_text(name, use_cache):
    m = model(name)
    got = run(m, RAGGED, 7, temperature=0, use_cache=use_cache)
    for row, text in zip(got, RAGGED):
        for new in row:
            assert int(new) == int(likeliest(m, text))
            text = torch.cat([text, new[None]])


@pytest.mark.parametrize("prompt", [3, 6, 11])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_full_context_starts_afresh_from_its_last_half(prompt, use_cache):
    m = model(position=lambda dim, num_axes: Learned(dim, num_axes, sizes=[6]))  # would raise at a seventh position
    text = torch.arange(prompt) % VOCAB
    got = run(m, [text], 13, temperature=0, context=6, use_cache=use_cache)[0]
    window = text if prompt <= 6 else text[-3:]
    for new in got:
        window = window if len(window) <= 6 else window[-3:]
        assert int(new) == int(likeliest(m, window))
        window = torch.cat([window, new[None]])


@pytest.mark.parametrize("name", BACKBONES)
def test_a_prompt_is_continued_alike_alone_and_in_a_batch(name):
    m = model(name)
    together = run(m, RAGGED, 11, temperature=0)
    for row, prompt in zip(together, RAGGED):
        assert row.equal(run(m, [prompt], 11, temperature=0)[0])


def test_a_seed_repeats_and_another_differs_whatever_the_global_generator_does():
    m = model()
    first = run(m, RAGGED, 11, seed=3)
    torch.manual_seed(99)
    assert first.equal(run(m, RAGGED, 11, seed=3))
    assert not first.equal(run(m, RAGGED, 11, seed=4))


def test_only_the_k_likeliest_are_drawn_and_all_of_them():
    m, prompt = model(), torch.tensor([3, 1])
    batch = TokenBatch(prompt[None], torch.arange(2.0)[None, :, None], torch.ones(1, 2).bool())
    with torch.no_grad():
        likely = set(m(batch)[0, -1].topk(3).indices.tolist())
    drawn = run(m, [prompt] * 300, 1, top_k=3, temperature=5.0)
    assert set(drawn[:, 0].tolist()) == likely
    assert len(run(m, [prompt] * 300, 1, top_k=99, temperature=5.0).unique()) > 3
    assert run(m, RAGGED, 5, top_k=1).equal(run(m, RAGGED, 5, temperature=0))


def test_a_low_temperature_is_nearly_greedy():
    m = model()
    assert run(m, RAGGED, 5, temperature=1e-4).equal(run(m, RAGGED, 5, temperature=0))


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_off_meanwhile_and_the_mode_comes_back(training):
    m = model(dropout=0.5).train(training)
    steps = generate(m, RAGGED, 3, temperature=0)
    next(steps)
    assert not m.training
    list(steps)
    assert m.training == training
    steps = generate(m, RAGGED, 3)
    next(steps)
    steps.close()  # a reader who stops early
    assert m.training == training


@pytest.mark.parametrize(
    ("prompts", "settings", "message"),
    [
        ([], {}, "a prompt has no tokens"),
        ([torch.zeros(0).long()], {}, "a prompt has no tokens"),
        (RAGGED, {"temperature": -1}, "temperature=-1, top_k=None: they should be"),
        (RAGGED, {"temperature": float("nan")}, "temperature=nan"),
        (RAGGED, {"top_k": 0}, "top_k=0"),
        (RAGGED, {"context": 0}, "context=0"),
    ],
)
def test_what_cannot_be_generated_is_refused(prompts, settings, message):
    with pytest.raises(ValueError, match=message):
        next(generate(model(), prompts, 3, **settings))


def test_a_model_that_reads_both_ways_cannot_write():
    objective = Classify()
    objective.fit([0, 1], None)
    with pytest.raises(ValueError, match="generation needs a causal backbone over ids"):
        next(generate(Model(TokenSpec(vocab_size=VOCAB), LSTM(24), objective), RAGGED, 3))
