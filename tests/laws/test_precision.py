"""Dtypes and compilation change only the last digits, for every mechanism with every position that it supports."""

import copy
import itertools
import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from laws.combinations import BLOCKS, NORMS, POSITIONS, build, required, supports
from torch.autograd import gradcheck

from seqkit.interfaces import Adjacency, Embedded
from seqkit.nn.mlp import MLP, ConvMLP, GatedMLP, ReLUSquared
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.position.absolute import Sinusoidal, SinusoidalConcat
from seqkit.registry import components

HASHED = {"LSHAttention"}
"""Its buckets depend on the sign of a sum, so a last digit may change them; its own test compares the same pairs."""
CELLS = [
    (name, position, causal)
    for name, position, causal in itertools.product(sorted(components("mechanism")), POSITIONS, (False, True))
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
    moved = Embedded(embedded.hidden.to(dtype), embedded.positions, embedded.valid, embedded.adjacency)
    with torch.no_grad():
        return copy.deepcopy(backbone).to(dtype)(moved).double()


each_cell = pytest.mark.parametrize(
    ("cell", "index"), [(c, i) for i, c in enumerate(CELLS)], ids=["-".join(map(str, c)) for c in CELLS]
)


@each_cell
def test_float32_and_bfloat16_agree_with_float64(cell, index):
    """By the norm of the error over that of the output."""
    name, position, causal = cell
    backbone = perturbed(name, position, causal, index)
    embedded = texts(backbone.dim, [11, 7], with_edges=name == "EdgeAttention")
    exact = output_in(backbone, embedded, torch.float64)
    for dtype, error in ((torch.float32, 5e-6), (torch.bfloat16, 2e-2)):
        off = output_in(backbone, embedded, dtype) - exact
        assert off.norm() / exact.norm() <= error, dtype


def test_a_dtype_that_is_too_coarse_is_noticed():
    backbone = perturbed("ScaledDotProductAttention", "none", True, 0)
    embedded = texts(backbone.dim, [11, 7], with_edges=False)
    exact = output_in(backbone, embedded, torch.float64)
    assert (output_in(backbone, embedded, torch.bfloat16) - exact).norm() / exact.norm() > 5e-6


# ── gradients ────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_cell
def test_gradients_are_those_of_finite_differences(cell, index):
    name, position, causal = cell
    backbone = perturbed(name, position, causal, index).double()
    embedded = texts(backbone.dim, [5, 3], with_edges=name == "EdgeAttention")
    one = torch.zeros((), dtype=torch.float64, requires_grad=True)  # along one direction, which is fast
    direction = torch.randn(embedded.hidden.shape, dtype=torch.float64)

    def along(t):
        return backbone(replace(embedded, hidden=embedded.hidden.double() + t * direction)).sin().sum()

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


COMPILED, seen = [], {}
for index, (name, position, causal) in enumerate(CELLS):
    if name == "ScaledDotProductAttention":
        is_taken = position == "none" or list(POSITIONS).index(position) % 2 == causal
    else:
        is_taken = position == seen.setdefault(name, position)
    COMPILED += [((name, position, causal), index)] if is_taken else []
"""Torch's own kernel with every position, causal and bidirectional in turn, and every other mechanism in both ways.

What a position adds is made in the context, outside of the mechanism, and so is the mask of causality."""


# dynamo's own: it looks at the gradient of a tensor that one graph passes to the next
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(("cell", "index"), COMPILED, ids=["-".join(map(str, cell)) for cell, _ in COMPILED])
def test_a_compiled_backbone_equals_the_eager_one(cell, index):
    """Traced as by `torch.compile`, forward and backward, with torch's own kernels, which takes a second each."""
    _compiled_as_eager(*cell, index, "aot_eager", 1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated", "ignore:Torchinductor does not support")
def test_inductors_kernels_equal_torchs(tmp_path, monkeypatch):
    if shutil.which("g++") is None:
        pytest.skip("inductor compiles C++, and there is no g++")
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    if not pick_vec_isa():
        pytest.skip("inductor's C++ does not compile for a CPU without AVX2 (torch 2.11)")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # none that other processes write to
    _compiled_as_eager("ScaledDotProductAttention", "Rotary", True, 0, "inductor", 5e-6)


def _compiled_as_eager(name, position, causal, index, backend, error):
    torch._dynamo.reset()
    backbone = perturbed(name, position, causal, index, depth=1)  # each block is traced anew, and alike
    embedded = texts(backbone.dim, [11, 7], with_edges=name == "EdgeAttention")
    results = []
    for run in (backbone, torch.compile(backbone, backend=backend)):
        hidden = embedded.hidden.clone().requires_grad_()
        out = run(replace(embedded, hidden=hidden))
        (gradient,) = torch.autograd.grad(out.sin().sum(), hidden)
        results += [(out, gradient)]
    for eager, compiled in zip(*results):
        assert (eager - compiled).norm() <= error * eager.norm()
