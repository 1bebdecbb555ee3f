"""Linear attention is its formula, summed once: in chunks, in steps, around padding, between two sequences."""

import math
from functools import partial

import pytest
import torch
from einops import einsum
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.conformance import check_backbone
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.linear import CHUNK, Linear, Sums
from seqkit.layers.position import Rotary
from seqkit.layers.reading import Reading

CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["both-ways", "causal"])


def queries_keys_values(n, m, heads=3, groups=3, c=5, dtype=torch.float64):
    return (torch.randn(2, h, t, c, dtype=dtype) for h, t in ((heads, n), (groups, m), (groups, m)))


def written_out(q, k, v, valid, causal):
    """Katharopoulos et al. 2020, equations 4 and 9, pair by pair in Python; q [b h n c], k and v [b g m c]."""

    def feature(x):
        return x + 1 if x > 0 else math.exp(x)

    read = torch.zeros_like(q)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        g, total = h // (q.shape[1] // k.shape[1]), 0.0
        query = [feature(x) for x in q[b, h, i].tolist()]
        for j in range(k.shape[2]):
            if valid[b, j] and not (causal and j > i):
                similarity = sum(x * feature(y) for x, y in zip(query, k[b, g, j].tolist()))
                read[b, h, i] += similarity * v[b, g, j]
                total += similarity
        read[b, h, i] /= total
    return read


def reading(valid, causal, columns=None):
    return Reading(causal=causal, valid=valid if columns is None else valid[:, columns], read_valid=valid)


def some_valid(m):
    valid = torch.ones(2, m, dtype=torch.bool)
    valid[1, m - m // 3 :] = False
    return valid


@CAUSAL
@pytest.mark.parametrize("groups", [1, 3])
def test_linear_attention_equals_its_formula(causal, groups):
    q, k, v = queries_keys_values(7, 7, groups=groups)
    valid = some_valid(7)
    assert_close(Linear(3, 5)(q, k, v, reading(valid, causal)), written_out(q, k, v, valid, causal))


def test_another_sequence_is_read_as_the_formula_says():
    q, k, v = queries_keys_values(3, 7)
    valid = some_valid(7)
    right = written_out(q, k, v, valid, causal=False)
    assert_close(Linear(3, 5)(q, k, v, Reading(valid=torch.ones(2, 3, dtype=torch.bool), read_valid=valid)), right)


@CAUSAL
@pytest.mark.parametrize("n", [CHUNK - 1, CHUNK, 2 * CHUNK + 3])
def test_weights_times_values_are_what_is_read_over_any_number_of_chunks(causal, n):
    q, k, v = queries_keys_values(n, n)
    mechanism, who = Linear(3, 5), reading(some_valid(n), causal)
    weights = mechanism.weights(q, k, who)
    assert_close(mechanism(q, k, v, who), einsum(weights, v, "b h n m, b h m c -> b h n c"))
    assert_close(weights.sum(dim=-1), torch.ones(2, 3, n, dtype=torch.float64))
    assert weights.min() >= 0
    assert bool((weights.triu(1) == 0).all()) == causal


def test_pieces_with_padding_between_add_up_to_what_one_pass_gives():
    """Example 1 lacks the last two tokens of the first piece and the last of the third."""
    ends = [(0, 67), (67, 68), (68, 71), (71, 137)]
    valid = torch.ones(2, 137, dtype=torch.bool)
    valid[1, [65, 66, 70]] = False
    q, k, v = queries_keys_values(137, 137)
    mechanism, memory = Linear(3, 5), Linear(3, 5).init_memory(137)
    pieces = []
    for start, end in ends:
        who = Reading(causal=True, valid=valid[:, start:end], read_valid=valid[:, :end])
        pieces.append(mechanism(*(x[:, :, start:end] for x in (q, k, v)), who, memory))
        assert memory.sums.shape == (2, 3, 5, 6)
    assert_close(torch.cat(pieces, dim=2), mechanism(q, k, v, reading(valid, True)))


def test_rows_that_are_selected_keep_their_sums():
    memory = Sums()
    memory.select(torch.tensor([0]))
    memory.sums = torch.randn(3, 2, 5, 7)
    kept = memory.sums
    memory.select(torch.tensor([2, 0, 0, 1]))
    assert_close(memory.sums, kept[[2, 0, 0, 1]])


@CAUSAL
def test_nan_in_padding_changes_neither_what_is_read_nor_gradients(causal):
    valid = some_valid(7)
    found = []
    for filler in (0.0, torch.nan):
        torch.manual_seed(1)
        q, k, v = queries_keys_values(7, 7)
        k, v = (x.masked_fill(~valid[:, None, :, None], filler).requires_grad_() for x in (k, v))
        read = Linear(3, 5)(q, k, v, reading(valid, causal))
        found.append([read.detach(), *torch.autograd.grad(read.square().sum(), [k, v])])
    for clean, dirty in zip(*found):
        assert_close(dirty, clean)


@CAUSAL
def test_the_largest_tensor_grows_as_the_tokens(causal, largest_tensor):
    numbers = [largest_tensor(Linear(1, 4), n, causal) for n in (1024, 2048)]
    assert numbers[1] <= 2 * numbers[0] < 1024**2 / 4


@CAUSAL
def test_gradients_are_those_of_finite_differences(causal):
    q, k, v = (x.requires_grad_() for x in queries_keys_values(CHUNK + 1, CHUNK + 1, heads=1, groups=1, c=2))
    where = torch.randperm(q.numel())[:7]

    def few(part):
        return Linear(1, 2)(
            q.flatten().index_add(0, where, part).reshape(q.shape), k, v, reading(some_valid(65), causal)
        )

    assert torch.autograd.gradcheck(few, torch.zeros(7, dtype=torch.float64, requires_grad=True))
    small = [x.requires_grad_() for x in queries_keys_values(3, 3, heads=1, groups=1, c=2)]
    assert torch.autograd.gradcheck(lambda *x: Linear(1, 2)(*x, reading(some_valid(3), causal)), small)


@CAUSAL
@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 5e-6), (torch.bfloat16, 2**-8)])
def test_only_the_answer_is_rounded_over_many_chunks(causal, autocast, dtype, error):
    """bfloat16 has eight bits: nothing but the last rounding may cost one."""
    q, k, v = (x.to(dtype) for x in queries_keys_values(1021, 1021))
    right = Linear(3, 5)(q.double(), k.double(), v.double(), Reading(causal=causal))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        got = Linear(3, 5)(q, k, v, Reading(causal=causal))
    assert got.dtype == dtype
    assert_close(got.double(), right, rtol=error, atol=error / 10)


def test_a_feature_map_that_is_passed_in_is_used_and_may_leave_nothing_to_read():
    q, k, v = queries_keys_values(5, 5)
    squares = Linear(3, 5, feature_map=torch.square)
    right = einsum(q.square(), k.square(), "b h n c, b h m c -> b h n m")
    assert_close(squares.weights(q, k, Reading()), right / right.sum(dim=-1, keepdim=True))
    k = (-k.abs()).requires_grad_()
    read = Linear(3, 5, feature_map=torch.relu)(q, k, v, Reading(causal=True))
    assert not read.any()
    assert torch.autograd.grad(read.sum(), k)[0].isfinite().all()


@pytest.mark.parametrize("num_kv_heads", [1, 3])
def test_a_transformer_with_it_keeps_the_laws(num_kv_heads):
    attention = partial(Attention, mechanism=Linear, num_kv_heads=num_kv_heads)
    check_backbone(
        lambda dim, causal: Transformer(dim, 2, num_heads=3, causal=causal, block=partial(Block, attention=attention))
    )


def test_rotation_is_refused_when_a_backbone_is_built():
    block = partial(Block, attention=partial(Attention, mechanism=Linear))
    with pytest.raises(
        ValueError, match=r"Linear cannot turn queries and keys by position \(Rotary\); use the mechanism"
    ):
        Transformer(24, 1, block=block, position=Rotary())
