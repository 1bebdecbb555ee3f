"""Sliding-window attention: each token attends to near tokens, to every `stride`-th token, and to global tokens.

b batch · n queries · m keys · h heads · g key/value heads · c channels of one head
t blocks of s queries each · w keys of one block
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.mask import Mask, causal_mask, dense, padding_mask
from seqkit.nn.attention.mechanism import SequenceAttention
from seqkit.nn.attention.multi_head import ScaledDotProductAttention
from seqkit.nn.attention.sinks import Sinks
from seqkit.nn.checks import check_at_least
from seqkit.nn.recurrence import is_exporting

MIN_BLOCK_SIZE = 32
"""Fewest queries of a block: many small products cost more than the scores they save (docs/efficient.md)."""


class SlidingWindowAttention(SequenceAttention):
    """Token i attends to j if |i - j| < size, or (i - j) mod stride = 0, or one of the two is a global token.

    size: tokens of the window on one side, the token itself included; a bidirectional window has two such sides.
    stride: distance between the far tokens that are attended to; 0: none (strided attention; Child et al. 2019, section
    4.3; near and far tokens in one head, equation 8).
    num_global: number of global tokens, the first ones; they attend to all, and all to them (Beltagy et al. 2020,
    section 3.1); if causal, to the past only. temperature, dropout, softcap, sinks: as in
    `ScaledDotProductAttention`.
    Distances count tokens, not positions. Sequences are padded on the right; with a cache, padding may be anywhere.
    Time and memory O(n (size + num_global)); a step with a cache O(m). With a stride all pairs are scored, O(n^2).
    Raises ValueError for a size below 2, a stride of 1, a negative number, a temperature or softcap of 0 or less, a
    dropout outside [0, 1), or other sinks.
    """

    supports = (
        AttentionFeature.BIDIRECTIONAL
        | AttentionFeature.CAUSAL
        | AttentionFeature.ROTARY
        | AttentionFeature.CACHE
        | AttentionFeature.SEGMENTS
        | AttentionFeature.GROUPED_QUERY
    )

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        size: int,
        stride: int = 0,
        num_global: int = 0,
        temperature: float | None = None,
        dropout: float | None = None,
        softcap: float | None = None,
        sinks: Sinks | None = None,
    ):
        super().__init__()
        check_at_least(2, size=size)  # the token itself is one
        if stride < 0 or stride == 1:
            raise ValueError(
                f"stride={stride}; make it 2 or more, or 0 for none (1: use ScaledDotProductAttention)"
            )
        check_at_least(0, num_global=num_global)
        self.size = size
        self.stride = stride
        self.num_global = num_global
        self.attend = ScaledDotProductAttention(
            num_heads,
            head_dim,
            temperature=temperature,
            dropout=dropout,
            softcap=softcap,
            sinks=sinks,
        )

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: Any = None
    ) -> Tensor:
        if cache is not None:
            k, v = cache.update(k, v)
        n = q.shape[2]
        m = k.shape[2]
        # a graph with blocks is of one length
        if is_exporting() or n != m or self.stride or n <= self.size:
            return self.attend(q, k, v, self._dense_context(q, k, context))
        output = self._by_blocks(q, k, v, context)
        if self.num_global and not context.is_causal:
            if context.key_valid is None:
                padding = []
            else:
                padding = [padding_mask(context.key_valid)]
            attn_mask = dense(padding, q.shape[0], 1, m, q.device) if padding else None
            from_global = self.attend(q[:, :, : self.num_global], k, v, AttentionContext(attn_mask))
            output = torch.cat([from_global, output[:, :, self.num_global :]], dim=2)
        return output

    def weigh(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """[b h n m], without dropout; O(n m) memory."""
        return self.attend.attention_weights(q, k, self._dense_context(q, k, context))

    def _dense_context(self, q: Tensor, k: Tensor, context: AttentionContext) -> AttentionContext:
        """The context for scoring every pair; queries are the last n of m columns."""
        n = q.shape[2]
        m = k.shape[2]
        # padding comes after all real queries
        if not is_exporting() and n == m <= self.size and context.is_causal:
            return AttentionContext(is_causal=True)
        return AttentionContext(
            dense([self._mask(context, is_continued=n < m)], q.shape[0], n, m, q.device)
        )

    def _mask(self, context: AttentionContext, *, is_continued: bool) -> Mask:
        """The mask of windows, strides and global tokens; each token attends to itself, so that no row is empty.

        is_continued: True: the keys are from a cache, and distances leave out the padding between them.
        """
        valid = context.key_valid

        def mask(b: Tensor, i: Tensor, j: Tensor) -> Tensor:
            query = i
            key = j
            if is_continued and valid is not None:
                place = valid.cumsum(dim=1) - 1
                query = place[b, i]
                key = place[b, j]
            near = (query - key).abs() < self.size
            if self.stride:
                near = near | ((query - key) % self.stride == 0)
            if self.num_global:
                near = near | (query < self.num_global) | (key < self.num_global)
            if context.is_causal:
                near = near & causal_mask(b, i, j)
            if valid is not None:
                near = near & padding_mask(valid)(b, i, j)
            return near | (i == j)

        return mask

    def _by_blocks(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> Tensor:
        """Attention by blocks of queries, each with the global keys and the keys of its windows."""
        b = q.shape[0]
        n = q.shape[2]
        device = q.device
        # a block as long as the window uses half of its scores
        s = min(max(self.size, MIN_BLOCK_SIZE), n)
        before = self.size - 1
        after = 0 if context.is_causal else self.size - 1
        num_global = min(self.num_global, n)
        starts = torch.arange(0, n, s, device=device)
        i = rearrange(starts, "t -> 1 t 1 1") + rearrange(
            torch.arange(s, device=device), "s -> 1 1 s 1"
        )
        windows = rearrange(starts, "t -> t 1") + torch.arange(-before, s + after, device=device)
        first = torch.arange(num_global, device=device).expand(len(windows), -1)
        j = rearrange(torch.cat([first, windows], dim=1), "t w -> 1 t 1 w")
        in_window = torch.arange(j.shape[-1], device=device) >= num_global
        # windows leave out the global keys, which come first
        counts = (j < n) & ((j >= num_global) | ~in_window)
        example = rearrange(torch.arange(b, device=device), "b -> b 1 1 1")
        last = n - 1
        attn_mask = (
            self._mask(context, is_continued=False)(example, i.clamp(max=last), j.clamp(0, last))
            & counts
        )
        attn_mask = rearrange(attn_mask.expand(b, -1, -1, -1), "b t s w -> (b t) 1 s w")

        def blocks(x: Tensor) -> Tensor:
            """Keys or values [b g n c] of each block, [(b t) g w c]."""
            padded = rearrange(F.pad(x, [0, 0, s, s + -n % s]), "b g (t s) c -> b t g s c", s=s)
            parts = [padded[:, :-2, :, s - before :], padded[:, 1:-1], padded[:, 2:, :, :after]]
            found = rearrange(
                torch.cat(parts if after else parts[:2], dim=3), "b t g w c -> (b t) g w c"
            )
            if num_global == 0:
                return found
            return torch.cat(
                [repeat(x[:, :, :num_global], "b g w c -> (b t) g w c", t=len(starts)), found],
                dim=2,
            )

        queries = rearrange(F.pad(q, [0, 0, 0, -n % s]), "b h (t s) c -> (b t) h s c", s=s)
        output = self.attend(queries, blocks(k), blocks(v), AttentionContext(attn_mask))
        return rearrange(output, "(b t) h s c -> b h (t s) c", b=b)[:, :, :n]
