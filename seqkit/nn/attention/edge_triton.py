"""Attention along edges on CUDA, as two Triton kernels that hold no tensor of an edge's channels.

A program has one head of one target and goes over its edges, softmax as it goes (Milakov and Gimelshein 2018).

N targets · e edges · h heads · c channels of one head
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

EDGES = 16
"""Edges that a program takes at once."""


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, keep: Tensor | None, edge_index: Tensor) -> Tensor:
    """Sum of values over the edges to each target, weighted by their softmax of q k + bias, [N h c] in bias's dtype.

    q, k, v: [N h c]. bias: [e h], -inf where an edge is masked, which not all of a target are. keep: [e h], factors of
    the weights (dropout), or None. edge_index: [2 e], (source, target). Sums over edges from one source are in any
    order, in the backward pass.
    """
    target, order = edge_index[1].sort()
    starts = torch.searchsorted(target, torch.arange(len(q) + 1, device=q.device))
    output: Tensor = _Attend.apply(q, k, v, bias, keep, edge_index[0], order, starts)
    return output


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, keep: Tensor | None, *edges: Tensor) -> Tensor:
        q, k, v, bias = (x.contiguous() for x in (q, k, v, bias))
        n, h, c = q.shape
        output, lse = torch.empty_like(q, dtype=bias.dtype), bias.new_empty(n, h)
        given = q, k, v, bias, keep, *edges, output, lse
        _forward[(n, h)](*given, h, c, triton.next_power_of_2(c), EDGES, num_warps=1)
        ctx.save_for_backward(*given)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, *others = ctx.saved_tensors
        n, h, c = q.shape
        dq, dbias = torch.empty_like(q), torch.empty_like(bias)
        dk, dv = (torch.zeros_like(x, dtype=bias.dtype) for x in (k, v))
        given = q, k, v, bias, *others, gradient.contiguous(), dq, dk, dv, dbias
        _backward[(n, h)](*given, h, c, triton.next_power_of_2(c), EDGES, num_warps=1)
        return dq, dk.to(k.dtype), dv.to(v.dtype), dbias, None, None, None, None


@triton.jit
def _forward(
    q, k, v, bias, keep, source, order, starts, output, lse, h, c, C: tl.constexpr, E: tl.constexpr
):  # fmt: skip
    target, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = tl.arange(0, C)
    is_channel, own = channel < c, (target * h + head) * c + channel
    q_ = tl.load(q + own, is_channel, 0.0).to(bias.dtype.element_ty)
    start, end = tl.load(starts + target), tl.load(starts + target + 1)
    highest = tl.full([], -1e30, q_.dtype)  # finite, so that masked edges before the first other are no NaN
    total, summed = tl.zeros_like(highest), tl.zeros_like(q_)
    for at in range(start, end, E):
        place = at + tl.arange(0, E)
        is_edge = place < end
        edge = tl.load(order + place, is_edge, 0)
        from_ = (tl.load(source + edge, is_edge, 0) * h + head)[:, None] * c + channel[None, :]
        is_there = is_edge[:, None] & is_channel[None, :]
        k_ = tl.load(k + from_, is_there, 0.0).to(q_.dtype)
        v_ = tl.load(v + from_, is_there, 0.0).to(q_.dtype)
        score = tl.sum(k_ * q_[None, :], 1) + tl.load(bias + edge * h + head, is_edge, float("-inf"))
        before, highest = highest, tl.maximum(highest, tl.max(score, 0))
        weight, fade = tl.exp(score - highest), tl.exp(before - highest)
        total = total * fade + tl.sum(weight, 0)
        if keep is not None:
            weight *= tl.load(keep + edge * h + head, is_edge, 0.0)
        summed = summed * fade + tl.sum(weight[:, None] * v_, 0)
    tl.store(output + own, summed / total, is_channel)
    tl.store(lse + target * h + head, highest + tl.log(total))


@triton.jit
def _backward(
    q, k, v, bias, keep, source, order, starts, output, lse, gradient, dq, dk, dv, dbias, h, c,
    C: tl.constexpr, E: tl.constexpr
):  # fmt: skip
    target, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = tl.arange(0, C)
    is_channel, own = channel < c, (target * h + head) * c + channel
    q_ = tl.load(q + own, is_channel, 0.0).to(bias.dtype.element_ty)
    g = tl.load(gradient + own, is_channel, 0.0).to(q_.dtype)
    mean = tl.sum(g * tl.load(output + own, is_channel, 0.0), 0)
    lse_ = tl.load(lse + target * h + head)
    start, end = tl.load(starts + target), tl.load(starts + target + 1)
    dq_ = tl.zeros_like(q_)
    for at in range(start, end, E):
        place = at + tl.arange(0, E)
        is_edge = place < end
        edge = tl.load(order + place, is_edge, 0)
        from_ = (tl.load(source + edge, is_edge, 0) * h + head)[:, None] * c + channel[None, :]
        is_there = is_edge[:, None] & is_channel[None, :]
        k_ = tl.load(k + from_, is_there, 0.0).to(q_.dtype)
        v_ = tl.load(v + from_, is_there, 0.0).to(q_.dtype)
        score = tl.sum(k_ * q_[None, :], 1) + tl.load(bias + edge * h + head, is_edge, float("-inf"))
        weight, dweight = tl.exp(score - lse_), tl.sum(v_ * g[None, :], 1)
        kept = weight
        if keep is not None:
            factor = tl.load(keep + edge * h + head, is_edge, 0.0)
            kept, dweight = weight * factor, dweight * factor
        dscore = weight * (dweight - mean)
        dq_ += tl.sum(dscore[:, None] * k_, 0)
        tl.atomic_add(dk + from_, dscore[:, None] * q_[None, :], is_there, sem="relaxed")
        tl.atomic_add(dv + from_, kept[:, None] * g[None, :], is_there, sem="relaxed")
        tl.store(dbias + edge * h + head, dscore, is_edge)
    tl.store(dq + own, dq_, is_channel)
