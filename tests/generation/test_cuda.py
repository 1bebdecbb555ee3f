"""Generation on a GPU: graphs and kernels give what the modules give on the CPU, and kept ones see what has changed."""

import copy
import pickle

import pytest
import torch
from generating import RAGGED, columns, sources
from test_decoders import FIXED
from test_decoders import model_of as recurrent_model
from test_packed import logits_side_by_side, model_of, without_packing
from torch import nn
from torch.testing import assert_close

from seqkit.generation import BeamSearch, Sampling, generate, stream
from seqkit.generation.step_graph import StepGraph, triton_kernels

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GREEDY = Sampling(temperature=0)


@pytest.fixture
def num_captured(monkeypatch):
    captured, capture = [], StepGraph._capture
    monkeypatch.setattr(StepGraph, "_capture", lambda self: captured.append(self) or capture(self))
    return captured


KINDS = [
    "gpt_nano",
    "llama_nano",
    "recipe text/char-lm",
    "PaLM",
    "grouped, norm over all heads",
    "residuals",
    "experts",
]


@pytest.mark.parametrize("name", KINDS)
def test_a_graph_gives_the_logits_of_the_modules(name, num_captured):
    assert triton_kernels(torch.device("cuda")) is not None
    model = model_of(name).cuda()
    reordered = {4: [2, 0, 0, 1], 5: [3, 1, 1, 0], 9: [1, 2], 12: [1, 0, 1]}
    for context_length in (None, 7):
        settings = {"reordered": reordered, "context_length": context_length}
        for got, right in logits_side_by_side(model, without_packing(model), RAGGED, **settings):
            assert_close(got, right, rtol=1e-3, atol=1e-3)
    assert num_captured
    assert all(graph._graph is not None for graph in num_captured) or name == "experts"


@pytest.mark.parametrize("name", ["gpt_nano", "recipe text/char-lm"])
def test_half_precision_is_as_close_as_the_modules_are(name):
    model = model_of(name).cuda()
    low = copy.deepcopy(model).bfloat16()
    ours, modules = (
        max(float((got.float() - right).norm() / right.norm()) for got, right in logits_side_by_side(
            one, without_packing(model), RAGGED)) for one in (low, without_packing(low))
    )  # fmt: skip
    assert 0 < ours < 2 * modules < 0.5


@pytest.mark.parametrize(
    "strategy", [GREEDY, Sampling(seed=3), Sampling(seed=3, top_k=7, top_p=0.9), BeamSearch(3)]
)
def test_a_gpu_gives_the_ids_of_the_cpu(strategy):
    model = model_of("gpt_nano")
    on_cpu = generate(model, RAGGED, 40, strategy=strategy, stop=[1])
    on_gpu = generate(copy.deepcopy(model).cuda(), RAGGED, 40, strategy=strategy, stop=[1])
    assert all(a.equal(b.cpu()) for a, b in zip(on_cpu, on_gpu))


@pytest.mark.parametrize("name", FIXED)
def test_states_of_constant_shape_are_graphed(name, num_captured):
    model, settings = recurrent_model(name), {"sampling": Sampling(seed=3)}
    right = columns(model, RAGGED, 40, source=sources(name), use_cache=False, **settings)
    assert columns(model.cuda(), RAGGED, 40, source=sources(name), **settings).cpu().equal(right)
    assert [graph._graph is not None for graph in num_captured] == [True]


def test_a_graph_is_kept_and_reads_changed_weights(num_captured):
    model = model_of("recipe text/char-lm").cuda()
    first = columns(model, RAGGED, 40, sampling=GREEDY)
    assert first.equal(columns(model, RAGGED[::-1], 40, sampling=GREEDY).flip(0))
    assert len(num_captured) == 1
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.5)
    second = columns(model, RAGGED, 40, sampling=GREEDY)
    assert len(num_captured) == 1
    assert second.equal(columns(without_packing(model), RAGGED, 40, sampling=GREEDY))
    assert not second.equal(first)
    # a setting is not read again by a graph
    model.backbone.blocks[0].attention_residual.fixed_scale = 0.3
    assert columns(model, RAGGED, 40, sampling=GREEDY).equal(
        columns(without_packing(model), RAGGED, 40, sampling=GREEDY)
    )
    model.backbone.norm = nn.LayerNorm(24).cuda()
    model.head.linear.weight = nn.Parameter(torch.randn_like(model.head.linear.weight))
    assert columns(model, RAGGED, 40, sampling=GREEDY).equal(
        columns(without_packing(model), RAGGED, 40, sampling=GREEDY)
    )
    assert len(num_captured) == 3


def test_generations_at_the_same_time_do_not_share_buffers():
    model = model_of("gpt_nano").cuda()
    right = [columns(model, [prompt], 40, sampling=GREEDY) for prompt in RAGGED]
    streams = [stream(model, [prompt], 40, sampling=GREEDY) for prompt in RAGGED]
    for got, expected in zip(zip(*zip(*streams)), right):
        assert torch.stack(got, dim=1).equal(expected)


def test_a_copied_and_a_saved_model_have_no_graph():
    model = model_of("gpt_nano").cuda()
    right = columns(model, RAGGED, 40, sampling=GREEDY)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not vars(other)["_kept_decoders"]
        assert columns(other, RAGGED, 40, sampling=GREEDY).equal(right)
