"""Number formats and compilation change nothing but the last digits: every mechanism with every position it honours."""

import copy
import itertools
import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from test_laws_matrix import BLOCKS, NORMS, POSITIONS, build, needed
from torch.autograd import gradcheck

from seqkit.contract import Embedded, Links
from seqkit.layers.experts import MixtureOfExperts
from seqkit.layers.mlp import MLP, ConvMLP, GatedMLP, ReLUSquared
from seqkit.layers.position import Sinusoidal, SinusoidalConcat
from seqkit.registry import find, parts

HASHED = {"LSH"}
"""What is read hangs on the sign of a sum, so a last digit may change it whole; its test compares the same pairs."""
CELLS = [
    (name, position, causal)
    for name, position, causal in itertools.product(sorted(parts("mechanism")), POSITIONS, (False, True))
    if name not in HASHED and needed(position, causal, "text") <= find("mechanism", name).load().honours
]


def texts(dim, lengths, linked):
    """Embedded texts of these lengths; linked: each token with the next, both ways."""
    b, n = len(lengths), max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    positions = torch.arange(n, dtype=torch.float32).expand(b, n)[..., None]
    links = None
    if linked:
        here = torch.cat([torch.arange(length - 1) + row * n for row, length in enumerate(lengths)])
        edges = torch.stack([torch.cat([here, here + 1]), torch.cat([here + 1, here])])
        links = Links(edges, torch.ones(edges.shape[1], dtype=torch.int64))
    return Embedded(torch.randn(b, n, dim) * valid[..., None], positions, valid, links)


def built(name, position, causal, turn):
    """A backbone whose weights are large enough that all its parts have a say."""
    torch.manual_seed(turn)
    block, norm = list(itertools.product(BLOCKS, NORMS))[turn % 6]
    backbone = build(name, position, causal, block, norm).eval()
    with torch.no_grad():
        for p in backbone.parameters():
            p += 0.1 * torch.randn_like(p)
    return backbone


def in_format(backbone, embedded, dtype):
    """What the same weights give when they, and the tokens, are numbers of that format."""
    moved = Embedded(embedded.hidden.to(dtype), embedded.positions, embedded.valid, embedded.links)
    with torch.no_grad():
        return copy.deepcopy(backbone).to(dtype)(moved).double()


each_cell = pytest.mark.parametrize(
    ("cell", "turn"), [(c, i) for i, c in enumerate(CELLS)], ids=["-".join(map(str, c)) for c in CELLS]
)


@each_cell
def test_float32_and_bfloat16_give_what_float64_gives(cell, turn):
    """The error's norm over the output's."""
    name, position, causal = cell
    backbone = built(name, position, causal, turn)
    embedded = texts(backbone.dim, [11, 7], linked=name == "Edgewise")
    exact = in_format(backbone, embedded, torch.float64)
    for dtype, error in ((torch.float32, 5e-6), (torch.bfloat16, 2e-2)):
        off = in_format(backbone, embedded, dtype) - exact
        assert off.norm() / exact.norm() <= error, dtype


def test_a_format_that_is_too_coarse_is_noticed():
    backbone = built("ScaledDotProduct", "none", True, 0)
    embedded = texts(backbone.dim, [11, 7], linked=False)
    exact = in_format(backbone, embedded, torch.float64)
    assert (in_format(backbone, embedded, torch.bfloat16) - exact).norm() / exact.norm() > 5e-6


# ── gradients ────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_cell
def test_gradients_are_those_of_finite_differences(cell, turn):
    name, position, causal = cell
    backbone = built(name, position, causal, turn).double()
    embedded = texts(backbone.dim, [5, 3], linked=name == "Edgewise")
    one = torch.zeros((), dtype=torch.float64, requires_grad=True)  # along one direction, so that it is soon done
    direction = torch.randn(embedded.hidden.shape, dtype=torch.float64)

    def along(t):
        return backbone(replace(embedded, hidden=embedded.hidden.double() + t * direction)).sin().sum()

    assert gradcheck(along, [one], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "part",
    [
        partial(MLP, 5),
        partial(MLP, 5, activation=ReLUSquared),
        partial(GatedMLP, 6),
        partial(ConvMLP, 5),
        partial(MixtureOfExperts, 6, num_experts=4, num_active=2),
        partial(Sinusoidal, 8, 2),
        partial(SinusoidalConcat, 6, 1, channels=4),
    ],
)
def test_gradients_of_other_parts_are_those_of_finite_differences(part):
    torch.manual_seed(0)
    part = part().double()
    width = next((m.in_features for m in part.modules() if isinstance(m, torch.nn.Linear)), None)
    width = width or getattr(part, "num_axes", None) or 5
    x = torch.randn(1, 3, width, dtype=torch.float64, requires_grad=True)
    assert gradcheck(part, [x])


# ── compilation ──────────────────────────────────────────────────────────────────────────────────────────────────────


# dynamo's own: it looks at the gradient of what a graph hands on to the next
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@each_cell
def test_a_compiled_backbone_gives_what_it_gives(cell, turn):
    """Traced as `torch.compile` does, forward and backward; the kernels stay torch's, which takes a second each."""
    _compiled_as_eager(*cell, turn, "aot_eager", 1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated", "ignore:Torchinductor does not support")
def test_kernels_of_inductor_give_what_torchs_give():
    if shutil.which("g++") is None:
        pytest.skip("inductor compiles C++, and there is no g++")
    _compiled_as_eager("ScaledDotProduct", "Rotary", True, 0, "inductor", 5e-6)


def _compiled_as_eager(name, position, causal, turn, backend, error):
    torch._dynamo.reset()
    backbone = built(name, position, causal, turn)
    embedded = texts(backbone.dim, [11, 7], linked=name == "Edgewise")
    results = []
    for run in (backbone, torch.compile(backbone, backend=backend)):
        hidden = embedded.hidden.clone().requires_grad_()
        out = run(replace(embedded, hidden=hidden))
        (gradient,) = torch.autograd.grad(out.sin().sum(), hidden)
        results += [(out, gradient)]
    for eager, compiled in zip(*results):
        assert (eager - compiled).norm() <= error * eager.norm()
