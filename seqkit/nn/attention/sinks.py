"""Attention sinks: a logit of each head that joins the softmax over keys and has no value.

A head that has nothing to say then attends to its sink, instead of to the first tokens (Xiao et al. 2023).

b batch · n queries · m keys · h heads · g key/value heads · c channels of one head
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from einops import repeat
from torch import Tensor

Sinks = Literal["learned", "zero"]
"""learned: a logit of each head, 0 at first (gpt-oss); zero: 0 for ever (softmax plus one; Miller 2023)."""


def softmax_with_sinks(scores: Tensor, logits: Tensor) -> Tensor:
    """Softmax of scores [b h n m] over the last axis and the sink, without the sink: rows sum to less than 1."""
    b, _, n, _ = scores.shape
    sink = repeat(logits.to(scores.dtype), "h -> b h n 1", b=b, n=n)
    return torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1]


def attend_with_sinks(
    attend: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    *,
    logits: Tensor,
    is_causal: bool,
) -> Tensor:
    """Attention output [b h n c] of `attend(q, k, v, attn_mask)` with a first key of each head, the sink.

    logits: [h], those of the sinks times the temperature of `attend`.
    The sink's value is zero, and its score is the product of one more channel: the logit in queries, 1 in the sink,
    0 in keys. So torch's kernels stay fused, which a mask with a gradient prevents, and query heads that share a key
    have their own. A first query, dropped again, keeps the kernels' causal mask where it is.
    """
    b, _, n, c = q.shape
    logit = repeat(logits.to(q.dtype), "h -> b h n 1", b=b, n=n)
    sink = F.pad(k.new_ones(1), [c, 0])
    sink = repeat(sink, "c -> b g 1 c", b=b, g=k.shape[1])
    first = int(is_causal)
    if attn_mask is not None:
        attn_mask = F.pad(attn_mask, [1, 0], value=attn_mask.dtype == torch.bool)
    output = attend(
        F.pad(torch.cat([q, logit], dim=-1), [0, 0, first, 0]),
        torch.cat([sink, F.pad(k, [0, 1])], dim=2),
        F.pad(v, [0, 1, 1, 0]),
        attn_mask,
    )
    return output[:, :, first:, : v.shape[-1]]
