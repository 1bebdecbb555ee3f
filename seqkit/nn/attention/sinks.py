"""Attention sinks: a logit of each head that joins the softmax over keys and has no value.

A head that has nothing to say then attends to its sink, instead of to the first tokens (Xiao et al. 2023).

b batch · n queries · m keys · h heads · g key/value heads · c channels of one head
"""

from __future__ import annotations

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


def with_sink(k: Tensor, v: Tensor, *, is_first: bool) -> tuple[Tensor, Tensor]:
    """Keys and values [b g m c] with one more channel, of zeros, for torch's kernels, which know no sinks.

    is_first: True: the sink comes before them, a key that is 1 in that channel and 0 else, and a value of zeros; False:
    they continue such keys and values, in a cache.
    """
    k = F.pad(k, [0, 1])
    v = F.pad(v, [0, 1])
    if not is_first:
        return k, v
    sink = F.pad(k.new_ones(1), [k.shape[-1] - 1, 0])
    sink = repeat(sink, "c -> b g 1 c", b=k.shape[0], g=k.shape[1])
    return torch.cat([sink, k], dim=2), F.pad(v, [0, 0, 1, 0])


def with_logits(q: Tensor, logits: Tensor, *, is_causal: bool) -> Tensor:
    """Queries [b h n c] with the logits [h] in one more channel, so that their products with the sink are these.

    So each query head has its own where heads share a key, and kernels stay fused, which a mask with a gradient
    prevents. is_causal: True: a first query keeps causal masks, which a first key would move, where they are.
    """
    b, _, n, _ = q.shape
    q = torch.cat([q, repeat(logits.to(q.dtype), "h -> b h n 1", b=b, n=n)], dim=-1)
    return F.pad(q, [0, 0, 1, 0]) if is_causal else q


def mask_with_sink(attn_mask: Tensor | None) -> Tensor | None:
    """The mask [... m] with a first key that all queries may attend to."""
    if attn_mask is None:
        return None
    return F.pad(attn_mask, [1, 0], value=attn_mask.dtype == torch.bool)
