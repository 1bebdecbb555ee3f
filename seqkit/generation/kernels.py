"""Triton kernels of a decoding step: attention of one new token over the filled slots, and a draw from logits.

b sequences · h heads · g key/value heads · c channels of one head · m slots · v vocabulary · j blocks of the vocabulary
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

IDS = 1024
"""Logits that a program reads at a time."""
TILE = 8192
"""Weights that a program reads at once."""
LOWEST = tl.constexpr(-1e30)
"""Score of a slot that is not read; finite, for differences of two to be a number."""


@triton.jit
def _attend(
    heads,
    past,
    positions,
    out,
    scale,
    m,
    h,
    g,
    C: tl.constexpr,
    WIDE: tl.constexpr,
    M: tl.constexpr,
):
    """One program for each sequence and query head; the first one of a key head writes its new key and value."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    shared = head // (h // g)
    c = tl.arange(0, WIDE)
    real = c < C
    position = tl.load(positions + row)
    new = heads + row * (h + 2 * g) * C + c
    q = tl.load(new + head * C, mask=real, other=0.0).to(tl.float32) * scale
    key = tl.load(new + (h + shared) * C, mask=real, other=0.0)
    value = tl.load(new + (h + g + shared) * C, mask=real, other=0.0)
    keys = past + (row * 2 * g + shared) * m * C
    values = keys + g * m * C
    if head % (h // g) == 0:
        tl.store(keys + position * C + c, key, mask=real)
        tl.store(values + position * C + c, value, mask=real)
    # each lane has a softmax of its own over the slots that it reads, so that lanes meet once, at the end
    tops = tl.full([M], LOWEST, tl.float32)
    totals = tl.zeros([M], tl.float32)
    mixed = tl.zeros([M, WIDE], tl.float32)
    for first in range(0, position, M):
        slots = first + tl.arange(0, M)
        filled = slots < position
        at = slots[:, None] * C + c[None, :]
        both = filled[:, None] & real[None, :]
        k = tl.load(keys + at, mask=both, other=0.0).to(tl.float32)
        v = tl.load(values + at, mask=both, other=0.0).to(tl.float32)
        scores = tl.where(filled, tl.sum(q[None, :] * k, 1), LOWEST)
        higher = tl.maximum(tops, scores)
        weights = tl.exp(scores - higher)
        kept = tl.exp(tops - higher)
        mixed = mixed * kept[:, None] + weights[:, None] * v
        totals = totals * kept + weights
        tops = higher
    score = tl.sum(q * key.to(tl.float32), 0)
    top = tl.maximum(tl.max(tops, 0), score)
    lanes = tl.exp(tops - top)
    weight = tl.exp(score - top)
    found = tl.sum(mixed * lanes[:, None], 0) + weight * value.to(tl.float32)
    total = tl.sum(totals * lanes, 0) + weight
    tl.store(out + (row * h + head) * C + c, (found / total).to(out.dtype.element_ty), mask=real)


def attend(heads: Tensor, past: Tensor, positions: Tensor, scale: float) -> Tensor:
    """Attention of a new token of each sequence over slots 0 to its position; writes its key and value there.

    heads: [b h+2g c], queries, keys and values of the new tokens. past: [b 2g m c], keys and values in slots.
    positions: [b] int64, < m.
    Returns [b h c]. Sums are in float32.
    """
    b, both, m, c = past.shape
    num_heads = heads.shape[1]
    g = both // 2
    h = num_heads - both
    out = heads.new_empty(b, h, c)
    heads = heads.contiguous()
    wide = triton.next_power_of_2(c)
    # few programs have more threads each (H200)
    is_small = b * h < 512
    slots = 128 if is_small else 64
    warps = 8 if is_small else 4
    _attend[b, h](
        heads, past, positions, out, scale, m, h, g, C=c, WIDE=wide, M=slots, num_warps=warps
    )
    return out


@triton.jit
def _sums(logits, tops, sums, temperature, v, j, V: tl.constexpr):
    """Largest logit of each block, and the sum of exp((logit - largest) / temperature)."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    i = block * V + tl.arange(0, V)
    x = tl.load(logits + row * v + i, mask=i < v, other=float("-inf")).to(tl.float32)
    top = tl.max(x, 0)
    weights = tl.where(x > float("-inf"), tl.exp((x - top) / temperature), 0.0)
    tl.store(tops + row * j + block, top)
    tl.store(sums + row * j + block, tl.sum(weights, 0))


@triton.jit
def _pick(logits, tops, sums, uniform, out, temperature, v, j, V: tl.constexpr, J: tl.constexpr):
    """The block in which the cumulative sum passes the level, then the id in it."""
    row = tl.program_id(0).to(tl.int64)
    blocks = tl.arange(0, J)
    known = blocks < j
    block_tops = tl.load(tops + row * j + blocks, mask=known, other=float("-inf"))
    top = tl.max(block_tops, 0)
    weights = tl.load(sums + row * j + blocks, mask=known, other=0.0)
    weights = tl.where(weights > 0, weights * tl.exp((block_tops - top) / temperature), 0.0)
    cumulative = tl.where(weights > 0, tl.cumsum(weights, 0), 0.0)
    level = tl.load(uniform + row).to(tl.float32) * tl.max(cumulative, 0)
    block = tl.min(tl.where(cumulative > level, blocks, J - 1), 0)
    before = tl.sum(tl.where(blocks == block, cumulative - weights, 0.0), 0)
    i = block * V + tl.arange(0, V)
    x = tl.load(logits + row * v + i, mask=i < v, other=float("-inf")).to(tl.float32)
    weights = tl.where(x > float("-inf"), tl.exp((x - top) / temperature), 0.0)
    above = (before + tl.cumsum(weights, 0) > level) & (weights > 0)
    # rounding may leave the sum of a block just below its level: then its last id with a weight
    last = tl.max(tl.where(weights > 0, i, 0), 0)
    tl.store(out + row, tl.minimum(tl.min(tl.where(above, i, v), 0), last).to(tl.int64))


def draw(logits: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """Ids [b] by inverse transform sampling from softmax(logits / temperature), logits [b v], uniform [b] in [0, 1).

    The first id whose cumulative probability is above the draw, as on a CPU, with sums in float32: first of blocks of
    ids, then of the ids in one block. An id of probability 0 is never drawn.
    """
    b, v = logits.shape
    j = triton.cdiv(v, IDS)
    tops, sums = (torch.empty(b, j, device=logits.device) for _ in range(2))
    out = torch.empty(b, dtype=torch.int64, device=logits.device)
    # the smallest quotient stays finite in float32
    logits = logits.contiguous()
    temperature = max(temperature, 1e-30)
    _sums[b, j](logits, tops, sums, temperature, v, j, V=IDS)
    _pick[b,](
        logits, tops, sums, uniform, out, temperature, v, j, V=IDS, J=triton.next_power_of_2(j)
    )
    return out


@triton.jit
def _add_norm(x, branch, weight, bias, total, out, d, eps, ADDS: tl.constexpr, CENTRES: tl.constexpr,
              HAS_BIAS: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDE)
    real = c < d
    at = row * d + c
    value = tl.load(x + at, mask=real, other=0.0).to(tl.float32)
    if ADDS:
        value += tl.load(branch + at, mask=real, other=0.0).to(tl.float32)
        value = value.to(total.dtype.element_ty)
        tl.store(total + at, value, mask=real)
        value = value.to(tl.float32)
    if CENTRES:
        value = tl.where(real, value - tl.sum(value, 0) / d, 0.0)
    value = (
        value
        * tl.rsqrt(tl.sum(value * value, 0) / d + eps)
        * tl.load(weight + c, mask=real, other=0.0).to(tl.float32)
    )
    if HAS_BIAS:
        value += tl.load(bias + c, mask=real, other=0.0).to(tl.float32)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=real)


def add_norm(
    x: Tensor, branch: Tensor | None, norm: nn.LayerNorm | nn.RMSNorm
) -> tuple[Tensor, Tensor]:
    """x + branch, and its norm, for x and branch [b d]; branch: None: zero."""
    b, d = x.shape
    bias = getattr(norm, "bias", None)
    eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    out = torch.empty_like(x)
    # what a flag says is not there is not read
    total = addend = x
    shift = norm.weight
    if branch is not None:
        total = torch.empty_like(x)
        addend = branch
    if bias is not None:
        shift = bias
    _add_norm[b,](
        x, addend, norm.weight, shift, total, out, d, eps,
        ADDS=branch is not None, CENTRES=isinstance(norm, nn.LayerNorm), HAS_BIAS=bias is not None,
        WIDE=triton.next_power_of_2(d),
    )  # fmt: skip
    return total, out


@triton.jit
def _linear(
    x,
    weight,
    bias,
    out,
    i,
    o,
    HAS_BIAS: tl.constexpr,
    B: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, WIDE)
    real = rows < o
    at = rows.to(tl.int64)[:, None] * i + k[None, :]
    tile = tl.load(weight + at, mask=real[:, None] & (k < i)[None, :], other=0.0).to(tl.float32)
    if HAS_BIAS:
        shift = tl.load(bias + rows, mask=real, other=0.0).to(tl.float32)
    else:
        shift = tl.zeros([ROWS], tl.float32)
    for b in tl.static_range(B):
        vector = tl.load(x + b * i + k, mask=k < i, other=0.0).to(tl.float32)
        y = tl.sum(tile * vector[None, :], 1) + shift
        tl.store(out + b * o + rows, y.to(out.dtype.element_ty), mask=real)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weight.T + bias for few x [b i], whose weight [o i] is read once, by many programs."""
    b, i = x.shape
    o = len(weight)
    width = triton.next_power_of_2(i)
    rows = max(1, TILE // width)
    out = x.new_empty(b, o)
    shift = weight if bias is None else bias  # not read if there is none
    _linear[triton.cdiv(o, rows),](
        x.contiguous(), weight, shift, out, i, o, HAS_BIAS=bias is not None, B=b, WIDE=width, ROWS=rows
    )  # fmt: skip
    return out
