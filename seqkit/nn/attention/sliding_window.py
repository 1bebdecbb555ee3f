"""Sliding-window attention: each token attends to few others: near ones, every `stride`-th token, and global ones.

b batch · n queries · m keys · h heads · g key/value heads · c channels of one head
t blocks of i queries each · w keys of one block · s stride · u, y queries and keys of one column of the stride
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, repeat
from torch import Tensor

from seqkit.nn.attention.context import AttentionContext, AttentionFeature
from seqkit.nn.attention.mechanism import AttentionMechanism, bounded, check_positive, repeat_kv, softmax
from seqkit.nn.dropout import InheritedDropout
from seqkit.nn.recurrence import is_exporting

MIN_BLOCK_SIZE = 32
"""Queries to a block at least: many smaller products cost more than the scores they save (docs/efficient.md)."""


class SlidingWindowAttention(AttentionMechanism, InheritedDropout):
    """Token i attends to j if |i - j| < size, or (i - j) mod stride = 0, or one of the two is a global token.

    size: width of the window to one side, the token itself included: size - 1 tokens back; if bidirectional, as many
    ahead.
    stride: 0: none (strided attention; Child et al. 2019, section 4.3; both sets in one head, equation 8).
    num_global: the first tokens attend to all and are attended to by all (Beltagy et al. 2020, section 3.1); if causal,
    to the past only. dropout: dropout of attention weights; None: the backbone's.
    temperature: divides scores; None: sqrt(head_dim). softcap: scores are bounded by it, softcap * tanh(scores /
    softcap), before the mask (Gemma 2; Gemma team 2024, section 2); None: they are not.
    Distances count tokens in their order, not positions. Sequences are padded on the right; with a cache,
    padding may be anywhere.
    Time and memory O(n (size + n / stride + num_global)), linear in n for stride = 0; a step with a cache O(m).
    Raises ValueError for a size below 2, a stride of 1, a negative number, a temperature or a softcap that is not above
    0, or a dropout outside [0, 1).
    """

    supports = (
        AttentionFeature.BIDIRECTIONAL
        | AttentionFeature.CAUSAL
        | AttentionFeature.ROTARY
        | AttentionFeature.CACHE
        | AttentionFeature.GROUPED_QUERY
    )
    needs_mask = False

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
    ):
        super().__init__(dropout)
        if size < 2:
            raise ValueError(f"size={size} counts the token itself, so it attends to no other; make it 2 or more")
        if stride < 0 or stride == 1:
            raise ValueError(f"stride={stride}; make it 2 or more, or 0 for none (1: use ScaledDotProductAttention)")
        if num_global < 0:
            raise ValueError(f"num_global={num_global} counts tokens; make it 0 or more")
        check_positive(temperature=temperature, softcap=softcap)
        self.size, self.stride, self.num_global = size, stride, num_global
        self.temperature = head_dim**0.5 if temperature is None else temperature
        self.scale = head_dim**-0.5 if temperature is None else 1 / temperature
        self.softcap = softcap

    def forward(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: Any = None) -> Tensor:
        if cache is not None:
            k, v = cache.update(k, v)
        n = q.shape[2]
        if n != k.shape[2] or is_exporting():  # blocks depend on the length
            return self._attend(q, k, v, rearrange(self._dense_mask(q, k, context), "b n m -> b 1 n m"))
        valid = _key_valid(k, context)
        attend = self._attend_with_stride if 0 < self.stride < n else self._attend_by_blocks
        output = attend(q, k, v, valid, context.is_causal)
        if self.num_global and not context.is_causal:
            from_global = self._attend(q[:, :, : self.num_global], k, v, rearrange(valid, "b m -> b 1 1 m"))
            output = torch.cat([from_global, output[:, :, self.num_global :]], dim=2)
        return output

    def attention_weights(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """[b h n m], without dropout; O(n m) memory."""
        return self._dense_weights(q, k, rearrange(self._dense_mask(q, k, context), "b n m -> b 1 n m"))

    def _dense_weights(self, q: Tensor, k: Tensor, attn_mask: Tensor) -> Tensor:
        scores = bounded(einsum(q, repeat_kv(k, q), "b h n c, b h m c -> b h n m") * self.scale, self.softcap)
        return softmax(scores.masked_fill(~attn_mask, -torch.inf)).to(q.dtype)

    def _dense_mask(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """The attention mask [b n m], True = may attend; queries are the last n of m columns.

        With a cache, padding in between does not count in distances.
        """
        n, m = q.shape[2], k.shape[2]
        valid = _key_valid(k, context)
        column = torch.arange(m, device=k.device)
        index = valid.cumsum(dim=1) - 1 if n < m else repeat(column, "m -> b m", b=valid.shape[0])
        back = rearrange(index[:, m - n :], "b n -> b n 1") - rearrange(index, "b m -> b 1 m")
        attn_mask = back.abs() < self.size
        if self.stride:
            attn_mask |= back % self.stride == 0
        if self.num_global:
            is_global = index < self.num_global
            attn_mask |= rearrange(is_global, "b m -> b 1 m") | rearrange(is_global[:, m - n :], "b n -> b n 1")
        ahead = rearrange(column, "m -> 1 m") - rearrange(column[m - n :], "n -> n 1")
        if context.is_causal:
            attn_mask &= ahead <= 0
        return (attn_mask & rearrange(valid, "b m -> b 1 m")) | (ahead == 0)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor) -> Tensor:
        if self.softcap is not None:
            weights = F.dropout(self._dense_weights(q, k, attn_mask), self.dropout, self.training)
            return einsum(weights, repeat_kv(v, q), "b h n m, b h m c -> b h n c")
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask,
            self.dropout if self.training else 0.0,
            scale=1 / self.temperature,
            enable_gqa=q.shape[1] != k.shape[1],
        )

    def _attend_by_blocks(self, q: Tensor, k: Tensor, v: Tensor, valid: Tensor, causal: bool) -> Tensor:
        """Windows and global tokens: queries by blocks, each with the keys that its windows cover."""
        n = q.shape[2]
        keys, values = self._block_keys(k, causal), self._block_keys(v, causal)
        output = self._attend(_to_blocks(q, self._block_size(n)), keys, values, self._block_mask(valid, causal))
        return _from_blocks(output, len(q), n)

    def _attend_with_stride(self, q: Tensor, k: Tensor, v: Tensor, valid: Tensor, causal: bool) -> Tensor:
        """Attention by blocks and, under the same softmax, by columns: every `stride`-th token is in one."""
        n = q.shape[2]
        k, v, size = repeat_kv(k, q), repeat_kv(v, q), self._block_size(n)
        near = einsum(_to_blocks(q, size), self._block_keys(k, causal), "bt h i c, bt h w c -> bt h i w") * self.scale
        near = _from_blocks(
            bounded(near, self.softcap).masked_fill(~self._block_mask(valid, causal), -torch.inf), len(q), n
        )
        far = einsum(self._to_columns(q), self._to_columns(k), "b s h u c, b s h y c -> b s h u y") * self.scale
        far = self._from_columns(
            bounded(far, self.softcap).masked_fill(~self._column_mask(valid, causal), -torch.inf), n
        )
        weights = torch.cat([near, far], dim=-1).softmax(dim=-1).to(q.dtype)
        weights = F.dropout(weights, self.dropout, self.training)
        near, far = weights.split([near.shape[-1], far.shape[-1]], dim=-1)
        by_block = einsum(_to_blocks(near, size), self._block_keys(v, causal), "bt h i w, bt h w c -> bt h i c")
        by_column = einsum(self._to_columns(far), self._to_columns(v), "b s h u y, b s h y c -> b s h u c")
        return _from_blocks(by_block, len(q), n) + self._from_columns(by_column, n)

    def _block_size(self, n: int) -> int:
        """Queries to a block: with as many as the window holds, half of the scores made are used."""
        return min(max(self.size, MIN_BLOCK_SIZE), n)

    def _window_keys(self, x: Tensor, causal: bool) -> Tensor:
        """Keys or values [b g n c] that the windows of each block of queries cover, [(b t) g w c]."""
        size, max_distance = self._block_size(x.shape[2]), min(self.size, x.shape[2]) - 1
        blocks = rearrange(F.pad(_pad_to_multiple(x, size), [0, 0, size, size]), "b g (t i) c -> b t g i c", i=size)
        before, own, after = blocks[:, :-2, :, size - max_distance :], blocks[:, 1:-1], blocks[:, 2:, :, :max_distance]
        return rearrange(
            torch.cat([before, own] if causal else [before, own, after], dim=3), "b t g w c -> (b t) g w c"
        )

    def _block_keys(self, x: Tensor, causal: bool) -> Tensor:
        """Keys or values of a block of queries, without the strided: global tokens, then those of its windows."""
        windows = self._window_keys(x, causal)
        if self.num_global == 0:
            return windows
        global_keys = repeat(x[:, :, : self.num_global], "b g w c -> (b t) g w c", t=len(windows) // len(x))
        return torch.cat([global_keys, windows], dim=2)

    def _block_mask(self, valid: Tensor, causal: bool) -> Tensor:
        """Mask over the keys of each block, [(b t) 1 i w]. Each token attends to itself, so that no row is empty."""
        n, device = valid.shape[1], valid.device
        size, max_distance = self._block_size(n), min(self.size, n) - 1
        column = torch.arange(n, device=device)
        not_global = rearrange(column >= self.num_global, "n -> 1 1 n 1").expand(valid.shape[0], -1, -1, -1)
        window_valid, in_window = (
            rearrange(self._window_keys(x, causal), "bt 1 w 1 -> bt 1 1 w")
            for x in (rearrange(valid, "b n -> b 1 n 1"), not_global)
        )
        ahead = torch.arange(window_valid.shape[-1], device=device) - max_distance
        ahead = ahead - rearrange(torch.arange(size, device=device), "i -> i 1")
        band = (ahead >= -max_distance) & (ahead <= (0 if causal else max_distance))
        windows = ((band & window_valid) | (ahead == 0)) & in_window
        if self.num_global == 0:
            return windows
        query, key = rearrange(column, "n -> 1 1 n 1"), column[: self.num_global]
        to_global = rearrange(valid[:, : self.num_global], "b w -> b 1 1 w") & ((key <= query) | (not causal))
        return torch.cat([_to_blocks(to_global | (key == query), size), windows], dim=-1)

    def _column_mask(self, valid: Tensor, causal: bool) -> Tensor:
        """Mask over the keys of each column, [b s 1 u y]: those that are neither in the window nor global."""
        n = valid.shape[1]
        candidates = valid & (torch.arange(n, device=valid.device) >= self.num_global)
        column_valid = rearrange(self._to_columns(rearrange(candidates, "b n -> b 1 n 1")), "b s 1 y 1 -> b s 1 1 y")
        index = torch.arange(column_valid.shape[-1], device=valid.device) * self.stride
        back = rearrange(index, "u -> u 1") - index
        return column_valid & ((back if causal else back.abs()) >= self.size)

    def _to_columns(self, x: Tensor) -> Tensor:
        """[b h n c] as [b s h u c]: column s holds the tokens u * stride + s."""
        return rearrange(_pad_to_multiple(x, self.stride), "b h (u s) c -> b s h u c", s=self.stride)

    def _from_columns(self, x: Tensor, n: int) -> Tensor:
        return rearrange(x, "b s h u c -> b h (u s) c")[:, :, :n]


def _key_valid(k: Tensor, context: AttentionContext) -> Tensor:
    if context.key_valid is None:
        return torch.ones(k.shape[0], k.shape[2], dtype=torch.bool, device=k.device)
    return context.key_valid


def _pad_to_multiple(x: Tensor, size: int) -> Tensor:
    """x [b h n c] with n padded to a multiple of `size`."""
    return F.pad(x, [0, 0, 0, -x.shape[2] % size])


def _to_blocks(x: Tensor, size: int) -> Tensor:
    """[b h n c] as [(b t) h i c]."""
    return rearrange(_pad_to_multiple(x, size), "b h (t i) c -> (b t) h i c", i=size)


def _from_blocks(x: Tensor, b: int, n: int) -> Tensor:
    return rearrange(x, "(b t) h i c -> b h (t i) c", b=b)[:, :, :n]
