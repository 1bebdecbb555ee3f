"""Dtypes and compilation change only the last digits, for every mechanism with every position that it supports."""

import copy
import itertools
import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from laws.combinations import BLOCKS, DIM, HEADS, NORMS, POSITIONS, build, required, supports
from torch.autograd import gradcheck

from seqkit.backbones import Mamba, Transformer
from seqkit.interfaces import Adjacency, Embedded
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.convolution import CausalConvolution
from seqkit.nn.mlp import ConvMLP, GatedMLP, ReLUSquared
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.position.absolute import Sinusoidal, SinusoidalConcat
from seqkit.registry import components

HASHED = {"LSHAttention"}
"""Its buckets depend on the sign of a sum, so a last digit may change them; its own test compares the same pairs."""
CELLS = [
    (name, position, causal)
    for name, position, causal in itertools.product(
        sorted(components("mechanism")), POSITIONS, (False, True)
    )
    if name not in HASHED and required(position, causal, "text") in supports(name)
]


def texts(dim, lengths, with_edges):
    """Embedded texts of these lengths; with_edges: between each token and the next, both ways."""
    b, n = len(lengths), max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    positions = torch.arange(n, dtype=torch.float32).expand(b, n)[..., None]
    adjacency = None
    if with_edges:
        here = torch.cat([torch.arange(length - 1) + row * n for row, length in enumerate(lengths)])
        edge_index = torch.stack([torch.cat([here, here + 1]), torch.cat([here + 1, here])])
        adjacency = Adjacency(edge_index, torch.ones(edge_index.shape[1], dtype=torch.int64))
    return Embedded(torch.randn(b, n, dim) * valid[..., None], positions, valid, adjacency)


def perturbed(name, position, causal, index, depth=2):
    """A backbone whose weights are large enough that all its components matter."""
    torch.manual_seed(index)
    block, norm = list(itertools.product(BLOCKS, NORMS))[index % 6]
    backbone = build(name, position, causal, block, norm, depth=depth).eval()
    with torch.no_grad():
        for p in backbone.parameters():
            p += 0.1 * torch.randn_like(p)
    return backbone


def output_in(backbone, embedded, dtype):
    """The output with weights and embeddings of that dtype."""
    moved = Embedded(
        embedded.hidden.to(dtype), embedded.positions, embedded.valid, embedded.adjacency
    )
    with torch.no_grad():
        return copy.deepcopy(backbone).to(dtype)(moved).double()


each_cell = pytest.mark.parametrize(
    ("cell", "index"),
    [(c, i) for i, c in enumerate(CELLS)],
    ids=["-".join(map(str, c)) for c in CELLS],
)


@each_cell
def test_float32_and_bfloat16_agree_with_float64(cell, index):
    """By the norm of the error over that of the output."""
    name, position, causal = cell
    backbone = perturbed(name, position, causal, index)
    embedded = texts(backbone.dim, [11, 7], with_edges=name == "EdgeAttention")
    exact = output_in(backbone, embedded, torch.float64)
    for dtype, error in ((torch.float32, 2e-5), (torch.bfloat16, 2e-2)):
        off = output_in(backbone, embedded, dtype) - exact
        assert off.norm() / exact.norm() <= error, dtype


def test_a_dtype_that_is_too_coarse_is_noticed():
    backbone = perturbed("ScaledDotProductAttention", "none", True, 0)
    embedded = texts(backbone.dim, [11, 7], with_edges=False)
    exact = output_in(backbone, embedded, torch.float64)
    assert (output_in(backbone, embedded, torch.bfloat16) - exact).norm() / exact.norm() > 2e-5


# ── gradients ────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_cell
def test_gradients_are_those_of_finite_differences(cell, index):
    name, position, causal = cell
    backbone = perturbed(name, position, causal, index).double()
    embedded = texts(backbone.dim, [5, 3], with_edges=name == "EdgeAttention")
    # along one direction, which is fast
    one = torch.zeros((), dtype=torch.float64, requires_grad=True)
    direction = torch.randn(embedded.hidden.shape, dtype=torch.float64)

    def along(t):
        return (
            backbone(replace(embedded, hidden=embedded.hidden.double() + t * direction)).sin().sum()
        )

    assert gradcheck(along, [one], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "component",
    [
        partial(MLP, 5),
        partial(MLP, 5, activation=ReLUSquared),
        partial(GatedMLP, 6),
        partial(ConvMLP, 5),
        partial(MixtureOfExperts, 6, num_experts=4, top_k=2),
        partial(Sinusoidal, 8, 2),
        partial(SinusoidalConcat, 6, 1, channels=4),
    ],
)
def test_gradients_of_other_components_are_those_of_finite_differences(component):
    torch.manual_seed(0)
    module = component().double()
    width = next((m.in_features for m in module.modules() if isinstance(m, torch.nn.Linear)), None)
    width = width or getattr(module, "num_axes", None) or 5
    x = torch.randn(1, 3, width, dtype=torch.float64, requires_grad=True)
    assert gradcheck(module, [x])


# ── compilation ──────────────────────────────────────────────────────────────────────────────────────────────────────


POSITIONED = ["none", "Rotary", "ALiBi", "T5Bias"]
"""Positions of one stack, each in a layer of torch's own attention."""
OTHERS = ["AdditiveAttention", "LinearAttention", "LinformerAttention", "PerformerAttention"]
CAUSAL_OTHERS = [
    "AdditiveAttention",
    "TopKAttention",
    "LinearAttention",
    "PerformerAttention",
    "SlidingWindowAttention",
]
STACKS = {
    "positions-causal": (
        [("ScaledDotProductAttention", position) for position in POSITIONED[:3]],
        True,
    ),
    "positions-bidirectional": (
        [("ScaledDotProductAttention", position) for position in POSITIONED[3:]],
        False,
    ),
    "mechanisms-causal": ([(name, "none") for name in CAUSAL_OTHERS], True),
    "mechanisms-bidirectional": ([(name, "none") for name in OTHERS], False),
    "edges": ([("EdgeAttention", "none"), ("EdgeAttention", "Rotary")], True),
}
"""Layers that are compiled together, which costs less than a compilation each."""


def test_every_mechanism_and_position_is_compiled():
    layers = [layer for stack, _ in STACKS.values() for layer in stack]
    assert {name for name, _ in layers} == set(components("mechanism")) - HASHED
    assert {position for _, position in layers} == set(POSITIONS)


def compiled_stack(layers, causal):
    torch.manual_seed(1)
    singles = [
        build(name, position, causal, BLOCKS[0], NORMS[0], depth=1) for name, position in layers
    ]
    blocks = [lambda *_, block=single.blocks[0]: block for single in singles]
    positions = [single.positions[0] if single.positions else None for single in singles]
    stack = Transformer(
        DIM, len(layers), num_heads=HEADS, causal=causal, block=blocks, position=positions
    ).eval()
    with torch.no_grad():
        for p in stack.parameters():
            p += 0.1 * torch.randn_like(p)
    return stack


# dynamo's own: it looks at the gradient of a tensor that one graph passes to the next
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("stack", [pytest.param(name, marks=pytest.mark.slow) for name in STACKS])
def test_a_compiled_backbone_equals_the_eager_one(stack):
    """Traced as by `torch.compile`, forward and backward, with torch's own kernels."""
    assert_compiled_equals_eager(compiled_stack(*STACKS[stack]), 1e-5, with_edges=stack == "edges")


def outputs_with_cache(backbone, embedded, cuts):
    """Outputs of columns between the cuts, one call after the other."""
    cache, found = backbone.init_cache(16), []
    with torch.no_grad():
        for start, end in itertools.pairwise(cuts):
            columns = (
                x[:, start:end] for x in (embedded.hidden, embedded.positions, embedded.valid)
            )
            found.append(backbone(Embedded(*columns), cache=cache))
    return torch.cat(found, dim=1)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated",
    "ignore:The .grad attribute of a Tensor that is not a leaf",
)
@pytest.mark.parametrize(
    "backbone",
    [
        pytest.param(lambda: compiled_stack([("LinearAttention", "none")], True), id="linear", marks=pytest.mark.slow),
        pytest.param(lambda: compiled_stack([("ScaledDotProductAttention", "Rotary")], True), id="attention"),
        pytest.param(lambda: Transformer(
            DIM, 1, num_heads=HEADS, causal=True,
            block=partial(PreNormBlock, attention=partial(MultiHeadAttention, convolution=CausalConvolution)),
        ), id="convolution"),
        pytest.param(lambda: Mamba(DIM, 1, causal=True), id="Mamba", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_compiled_backbone_continues_from_a_cache(backbone):
    """In torch 2.11 `torch.compiler.is_exporting()` is true in `torch.compile`; an exported graph has no cache."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    backbone = backbone().eval()
    with torch.no_grad():  # what starts at zero or one, as a convolution, is as in a trained model
        for p in backbone.parameters():
            p += 0.1 * torch.randn_like(p)
    embedded, cuts = texts(DIM, [6, 6], with_edges=False), [0, 3, 4, 6]
    eager = outputs_with_cache(backbone, embedded, cuts)
    for block in getattr(backbone, "blocks", [backbone]):
        block.compile(dynamic=True, backend="eager")
    assert (outputs_with_cache(backbone, embedded, cuts) - eager).norm() <= 1e-5 * eager.norm()


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script_method` is deprecated", "ignore:Torchinductor does not support"
)
def test_inductors_kernels_equal_torchs(tmp_path, monkeypatch):
    if shutil.which("g++") is None:
        pytest.skip("inductor compiles C++, and there is no g++")
    from torch._inductor import config
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    # no trial compilation of each instruction set, no compiled headers for a few small kernels, and no other processes
    settings = {
        "cpp.simdlen": 256,
        "cpp.vec_isa_ok": True,
        "cpp_cache_precompile_headers": False,
        "compile_threads": 1,
    }
    with config.patch(settings):
        if not pick_vec_isa():
            pytest.skip("inductor's C++ does not compile for a CPU without AVX2 (torch 2.11)")
        # none that other processes write to
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        backbone = perturbed("ScaledDotProductAttention", "Rotary", True, 0, depth=1)
        torch._dynamo.reset()
        embedded = texts(backbone.dim, [11, 7], with_edges=False)
        with torch.no_grad():  # the kernels of the backward pass would take twice as long again
            eager, compiled = (run(embedded) for run in (backbone, torch.compile(backbone)))
        assert (eager - compiled).norm() <= 2e-5 * eager.norm()


def assert_compiled_equals_eager(backbone, error, *, with_edges):
    torch._dynamo.reset()
    embedded = texts(backbone.dim, [11, 7], with_edges=with_edges)
    results = []
    for run in (backbone, torch.compile(backbone, backend="aot_eager")):
        hidden = embedded.hidden.clone().requires_grad_()
        out = run(replace(embedded, hidden=hidden))
        (gradient,) = torch.autograd.grad(out.sin().sum(), hidden)
        results += [(out, gradient)]
    for eager, compiled in zip(*results):
        assert (eager - compiled).norm() <= error * eager.norm()
