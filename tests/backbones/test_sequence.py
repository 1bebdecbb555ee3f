"""S4D and Mamba in what they share: both directions, padding, a cache, precision, dropout, what is refused."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from seqkit.backbones import LSTM, S4D, TCN, Mamba, Transformer
from seqkit.interfaces import Adjacency, Embedded, TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken
from seqkit.training.optim import AdamW, Muon

BOTH = pytest.mark.parametrize("cls", [S4D, Mamba])


def embedded(lengths, dim):
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, dim, dtype=torch.float64).masked_fill(
        ~valid[..., None], 0.0
    )
    return Embedded(hidden, torch.zeros(len(lengths), n, 1), valid)


def packed(backbone, x, cache=None):
    return backbone(x.replace(segments=torch.zeros_like(x.valid, dtype=torch.int64)), cache)


def made(cls, *args, **settings):
    """A backbone in float64 whose norms add something, which padding must not take for an input."""
    backbone = cls(*args, **settings).double()
    for block in backbone.blocks:
        if getattr(block.norm, "bias", None) is not None:
            torch.nn.init.normal_(block.norm.bias)
    return backbone


@BOTH
@pytest.mark.parametrize("causal", [False, True])
def test_both_directions_run_over_real_tokens_only(cls, causal):
    backbone, x = made(cls, 6, 2, causal=causal), embedded([3, 7, 5], 6)
    got = backbone(x)
    for i, n in enumerate([3, 7, 5]):
        alone = Embedded(x.hidden[i, None, :n], x.positions[:1, :n], x.valid[i, None, :n])
        assert_close(got[i, :n], backbone(alone)[0])
        assert not got[i, n:].any()


@BOTH
def test_a_cache_continues_after_the_last_real_token(cls):
    backbone, x = made(cls, 6, 2, causal=True), embedded([3, 5, 1], 6)
    cache, more = backbone.init_cache(9), embedded([1, 2, 2], 6)
    backbone(x, cache)
    cache.reorder(torch.tensor([2, 0, 0]))
    got = backbone(more, cache)
    assert cache.num_tokens == 7
    for row, (i, n) in enumerate([(2, 1), (0, 3), (0, 3)]):
        length = int(more.valid[row].sum())
        whole = torch.cat([x.hidden[i, :n], more.hidden[row, :length]])[None]
        alone = Embedded(
            whole, torch.zeros(1, n + length, 1), torch.ones(1, n + length, dtype=torch.bool)
        )
        assert_close(got[row, :length], backbone(alone)[0, n:])


SEGMENTS = torch.tensor([[0, 0, 0, 0, 1, 2, 2], [0, 0, 0, 1, 1, 0, 0]])
EACH = pytest.mark.parametrize("cls", [LSTM, S4D, Mamba, TCN])


def packed_rows():
    return embedded([7, 5], 6).replace(segments=SEGMENTS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@EACH
def test_compiled_packed_rows_are_as_others(cls):
    backbone, x = cls(6, 1, causal=True).double(), embedded([4, 3], 6)
    # a graph holds each step, and four take half as long to trace as seven
    x = x.replace(segments=torch.tensor([[0, 0, 1, 1], [0, 1, 1, 0]]))
    leaf, direction = x.hidden.clone().requires_grad_(), torch.randn(2, 4, 6).double()

    def run(hidden):
        return backbone(x.replace(hidden=hidden))

    found = []
    for own in (run, torch.compile(run, backend="aot_eager")):
        hidden = own(leaf)
        wanted = [leaf, *backbone.parameters()]
        found.append((hidden, *torch.autograd.grad((hidden * direction).sum(), wanted)))
    assert_close(*found)


@EACH
def test_flops_of_packed_rows_are_counted_as_those_of_one_sequence_a_row(cls):
    with torch.device("meta"):
        backbone, whole = cls(6, 1, causal=True), embedded([7, 7], 6)
    whole = whole.replace(hidden=torch.empty(2, 7, 6, device="meta"))
    counts = []
    for x in (whole, whole.replace(segments=SEGMENTS.to("meta"))):
        with FlopCounterMode(display=False) as counter:
            assert backbone(x).shape == (2, 7, 6)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


@EACH
def test_a_graph_of_packed_rows_is_refused(cls):
    backbone, x = cls(6, 1, causal=True).double(), packed_rows()

    class Packed(torch.nn.Module):
        def forward(self, hidden, segments):
            return backbone(x.replace(hidden=hidden, segments=segments))

    with pytest.raises(ValueError, match="packed sequences is no graph for every length"):
        torch.export.export(Packed(), (x.hidden, SEGMENTS), strict=False)


@BOTH
@pytest.mark.parametrize("causal", [False, True])
def test_float32_and_bfloat16_agree_with_float64(cls, causal):
    backbone, x = cls(24, 2, causal=causal).double(), embedded([11, 7], 24)
    with torch.no_grad():
        exact = backbone(x)
        for dtype, error in ((torch.float32, 5e-6), (torch.bfloat16, 2e-2)):
            off = backbone.to(dtype)(x.replace(hidden=x.hidden.to(dtype))).double() - exact
            assert 0 < off.norm() / exact.norm() <= error, dtype


@BOTH
def test_dropout_acts_on_every_branch_while_training(cls):
    backbone, x = cls(6, 1, dropout=0.5).double(), embedded([5, 5], 6)
    assert not torch.equal(backbone(x), backbone(x))
    backbone.eval()
    assert_close(backbone(x), backbone(x))


@pytest.mark.parametrize(
    ("cls", "not_decayed", "not_orthogonalised"),
    [
        (
            S4D,
            ["log_dt", "log_decay", "frequency", "D"],
            ["log_dt", "log_decay", "frequency", "D", "C"],
        ),
        (
            Mamba,
            ["A_log", "D", "dt_proj.bias"],
            ["A_log", "D", "dt_proj.bias", "convolution.weight"],
        ),
    ],
)
def test_neither_decay_nor_muon_touches_what_is_no_matrix(cls, not_decayed, not_orthogonalised):
    model = Model(TokenSpec(vocab_size=7), cls(16, 1, causal=True), NextToken())
    (ssm,) = (block.mixer.ssm for block in model.backbone.blocks)
    for group in AdamW().build(model).param_groups:
        decayed = set(map(id, group["params"])) if group["weight_decay"] else set()
        assert not decayed & {id(ssm.get_parameter(name)) for name in not_decayed}
    matrices = Muon().build(model).param_groups[0]["params"]
    assert {p.ndim for p in matrices} == {2}
    assert not set(map(id, matrices)) & {id(ssm.get_parameter(name)) for name in not_orthogonalised}


ADJACENCY = Adjacency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))


@BOTH
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda cls, _: cls(6, dropout=1.0), r"dropout=1\.0"),
        (
            lambda cls, x: cls(6).double()(x.replace(adjacency=ADJACENCY)),
            "does not support adjacency",
        ),
        (
            lambda cls, x: packed(
                cls(6, causal=True).double(), x, cls(6, causal=True).init_cache(3)
            ),
            "no cache of packed sequences",
        ),
        (
            lambda cls, x: packed(cls(6).double(), x.replace(valid=torch.zeros_like(x.valid))),
            "no real token",
        ),
        (
            lambda cls, _: cls(6).init_cache(5),
            "this {name} is not causal",
        ),
        (
            lambda cls, x: cls(6, causal=True)(
                x, Transformer(6, 1, num_heads=1, causal=True).init_cache(3)
            ),
            "TransformerCache",
        ),
    ],
)
def test_what_neither_supports_is_refused(cls, call, message):
    with pytest.raises(ValueError, match=message.format(name=cls.__name__)):
        call(cls, embedded([3, 2], 6))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(S4D, 6, 0), "depth=0"),
        (partial(S4D, 6, num_states=5), "num_states=5"),
        (partial(S4D, 6, spectrum="log"), "spectrum"),
        (partial(Mamba, 6, 0), "depth=0"),
        (partial(Mamba, 6, kernel_size=1), "kernel_size=1"),
    ],
)
def test_arguments_of_one_of_them_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_cache_of_another_depth_is_refused():
    with pytest.raises(ValueError, match="make its cache with init_cache"):
        LSTM(8, 2, causal=True)(embedded([3], 8), LSTM(8, 3, causal=True).init_cache(3))


def test_the_cache_of_another_kind_of_network_is_refused():
    x = embedded([3], 8)
    tail = TCN(8, causal=True).init_cache(3)
    with pytest.raises(ValueError, match="StateCache of TCN"):
        LSTM(8, causal=True)(x, tail)
