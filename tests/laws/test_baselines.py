"""TCN, MeanPool, GIN, GCN and APPNP on accelerators and in other dtypes.

No step makes a device wait, dtypes and compilation change only the last digits, and FLOPs are the formulas'.
"""

from functools import partial

import pytest
import torch
from laws.test_devices import classes, looks_of_a_step
from laws.test_precision import output_in, texts

from seqkit.analysis.cost import describe_model
from seqkit.backbones import APPNP, GCN, GIN, TCN, MeanPool
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Masked, NextToken
from seqkit.testing import synthetic

DIM = 24
BUILDS = {
    "TCN": partial(TCN, DIM, depth=2),
    "TCN-causal": partial(TCN, DIM, depth=2, causal=True),
    "MeanPool": partial(MeanPool, DIM, depth=2),
    "MeanPool-causal": partial(MeanPool, DIM, depth=2, causal=True),
    "GIN": partial(GIN, DIM, depth=2),
    "GCN": partial(GCN, DIM, depth=2),
    "APPNP": partial(APPNP, DIM, depth=2),
    "GIN of the first edge type": partial(GIN, DIM, depth=2, max_edge_type=1),
}
EACH = pytest.mark.parametrize("name", BUILDS)


def perturbed(name, **settings):
    """Weights large enough that all components matter."""
    torch.manual_seed(0)
    backbone = BUILDS[name](**settings).eval()
    if backbone.supports_adjacency:
        backbone.add_edge_bias(2)
    with torch.no_grad():
        for p in backbone.parameters():
            p += 0.1 * torch.randn_like(p)
    return backbone


@EACH
def test_no_step_makes_a_device_wait(name):
    backbone = BUILDS[name]()
    spec, examples = synthetic()["graph" if backbone.supports_adjacency else "text"]
    objective = NextToken() if backbone.causal else Masked()
    assert (
        looks_of_a_step(
            Model(spec, backbone, objective), objective, TokenBatch.collate(examples), None
        )
        == []
    )


@EACH
def test_float32_and_bfloat16_agree_with_float64(name):
    backbone = perturbed(name)
    embedded = texts(DIM, [11, 7], with_edges=backbone.supports_adjacency)
    exact = output_in(backbone, embedded, torch.float64)
    for dtype, error in ((torch.float32, 2e-5), (torch.bfloat16, 2e-2)):
        off = output_in(backbone, embedded, dtype) - exact
        assert off.norm() / exact.norm() <= error, dtype


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["TCN", "MeanPool-causal", "GIN", "APPNP"])
def test_a_compiled_backbone_equals_the_eager_one(name):
    torch._dynamo.reset()
    backbone = perturbed(name, depth=1)  # each layer is traced anew, and alike
    embedded = texts(DIM, [11, 7], with_edges=backbone.supports_adjacency)
    results = []
    for run in (backbone, torch.compile(backbone, backend="aot_eager")):
        hidden = embedded.hidden.clone().requires_grad_()
        out = run(embedded.replace(hidden=hidden))
        (gradient,) = torch.autograd.grad(out.sin().sum(), hidden)
        results += [(out, gradient)]
    for eager, compiled in zip(*results):
        assert (eager - compiled).norm() <= 1e-5 * eager.norm()


@EACH
def test_a_model_made_on_meta_is_whole_once_its_weights_are_loaded(name):
    spec, examples = synthetic()["graph" if BUILDS[name]().supports_adjacency else "text"]
    batch, objective = TokenBatch.collate(examples), classes()
    torch.manual_seed(0)
    model = Model(spec, BUILDS[name](), objective).eval()
    with torch.device("meta"):
        empty = Model(spec, BUILDS[name](), objective)
    assert all(p.is_meta for p in empty.parameters())
    empty = empty.to_empty(device="cpu").eval()
    empty.load_state_dict(model.state_dict(), strict=True)
    torch.testing.assert_close(empty(batch), model(batch))


def flops(backbone, spec, objective, n=11):
    """Of the forward pass, without embedding and head."""
    head = 2 * n * DIM * (spec.vocab_size or spec.num_features)
    return (
        describe_model(Model(spec, backbone, objective), n).flops - head - (0 if spec.ids else head)
    )


def test_flops_are_the_formulas():
    n, text, graph = (
        11,
        TokenSpec(vocab_size=13),
        TokenSpec(num_features=3, num_axes=0, num_edge_types=2),
    )
    square = 2 * n * DIM**2
    assert flops(TCN(DIM, 3, kernel_size=5), text, Masked()) == 3 * 2 * 5 * square
    assert flops(MeanPool(DIM, 2, causal=True), text, NextToken()) == 2 * 2 * 8 * square + n * DIM
    assert flops(MeanPool(DIM, 2), text, Masked()) == 2 * 8 * (square + square // n) + n * DIM
    edges = 2 * (n - 1)  # of a path, both ways
    assert flops(GIN(DIM, 3), graph, Masked()) == 3 * (4 * square + edges * DIM)
    assert flops(GCN(DIM, 3), graph, Masked()) == square + 3 * edges * DIM
    assert flops(APPNP(DIM, 3, num_steps=7), graph, Masked()) == 3 * square + 7 * edges * DIM
