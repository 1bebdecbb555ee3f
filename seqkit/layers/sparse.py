"""Attention in which each token reads few others: near ones, every so many-th, and some that all read.

b batch · n tokens that read · m tokens that are read · h heads · g heads of keys and values · c channels of one head
t blocks of i readers each · w what a block may read · s stride · u, y readers and read of one column of the stride
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, repeat
from torch import Tensor

from seqkit.layers.mechanism import Mechanism, grouped, softmax
from seqkit.layers.reading import Reading

SMALLEST_BLOCK = 32
"""Readers to a block at least: many smaller products cost more than the scores they save (docs/efficient.md)."""


class Window(Mechanism):
    """Token i reads j if |i - j| < size, or (i - j) mod stride = 0, or one of the two is a global token.

    size: how far a token sees, itself included: size - 1 tokens back, and as many ahead if both ways.
    stride: 0: none (Child et al. 2019, section 4.3, strided; both sets in one head, equation 8).
    num_global: the first tokens, which read all and are read by all (Beltagy et al. 2020, section 3.1); if causal, they
    read the past only. dropout: of weights, while training.
    Distances count tokens in their order, not positions; padding stands on the right, and with a cache anywhere.
    Time and memory O(n (size + n / stride + num_global)), linear in n for stride = 0; a step with a cache O(m).
    Raises ValueError for a size below 2, a stride of 1, a negative number, or a dropout outside [0, 1).
    """

    honours = frozenset({"both ways", "causal", "rotation", "cache", "groups"})
    dense = False

    def __init__(
        self,
        num_heads: int,
        channels: int,
        *,
        size: int,
        stride: int = 0,
        num_global: int = 0,
        dropout: float = 0.0,
    ):
        super().__init__()
        if size < 2:
            raise ValueError(f"size={size} counts the token itself, so it reads no other; make it 2 or more")
        if stride < 0 or stride == 1:
            raise ValueError(f"stride={stride}; make it 2 or more, or 0 for none (1 is every token: ScaledDotProduct)")
        if num_global < 0:
            raise ValueError(f"num_global={num_global} counts tokens; make it 0 or more")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout} is a share of weights; make it at least 0 and below 1")
        self.size, self.stride, self.num_global, self.dropout = size, stride, num_global, dropout
        self.scale = channels**-0.5

    def forward(self, q: Tensor, k: Tensor, v: Tensor, reading: Reading, memory: Any = None) -> Tensor:
        """[b h n c]."""
        if memory is not None:
            k, v = memory.extend(k, v)
        n = q.shape[2]
        if n != k.shape[2]:
            return self._attend(q, k, v, rearrange(self._readable(q, k, reading), "b n m -> b 1 n m"))
        real = _real(k, reading.read_valid)
        read = (self._with_stride if 0 < self.stride < n else self._in_blocks)(q, k, v, real, reading.causal)
        if self.num_global and not reading.causal:
            first = self._attend(q[:, :, : self.num_global], k, v, rearrange(real, "b m -> b 1 1 m"))
            read = torch.cat([first, read[:, :, self.num_global :]], dim=2)
        return read

    def weights(self, q: Tensor, k: Tensor, reading: Reading) -> Tensor:
        """[b h n m], without dropout; O(n m) memory."""
        scores = einsum(q, grouped(k, q), "b h n c, b h m c -> b h n m") * self.scale
        return softmax(scores.masked_fill(~rearrange(self._readable(q, k, reading), "b n m -> b 1 n m"), -torch.inf))

    def _readable(self, q: Tensor, k: Tensor, reading: Reading) -> Tensor:
        """Who may read whom, [b n m]; the readers are the last n of m. What was padding in between takes no place."""
        n, m = q.shape[2], k.shape[2]
        real = _real(k, reading.read_valid)
        column = torch.arange(m, device=k.device)
        place = real.cumsum(dim=1) - 1 if n < m else repeat(column, "m -> b m", b=len(real))
        back = rearrange(place[:, m - n :], "b n -> b n 1") - rearrange(place, "b m -> b 1 m")
        readable = back.abs() < self.size
        if self.stride:
            readable |= back % self.stride == 0
        if self.num_global:
            first = place < self.num_global
            readable |= rearrange(first, "b m -> b 1 m") | rearrange(first[:, m - n :], "b n -> b n 1")
        ahead = rearrange(column, "m -> 1 m") - rearrange(column[m - n :], "n -> n 1")
        if reading.causal:
            readable &= ahead <= 0
        return (readable & rearrange(real, "b m -> b 1 m")) | (ahead == 0)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, attend: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, attend, dropout, enable_gqa=q.shape[1] != k.shape[1])

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor, causal: bool) -> Tensor:
        """Windows and global tokens: readers by blocks, each with the stretch of keys that its windows cover."""
        n = q.shape[2]
        keys, values = self._stretch(k, causal), self._stretch(v, causal)
        read = self._attend(_blocks(q, self._size(n)), keys, values, self._near(real, causal))
        return _unblocked(read, len(q), n)

    def _with_stride(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor, causal: bool) -> Tensor:
        """As in blocks, and tokens that stand `stride` apart as columns of their own, all under one softmax."""
        n = q.shape[2]
        k, v, block = grouped(k, q), grouped(v, q), self._size(n)
        near = einsum(_blocks(q, block), self._stretch(k, causal), "bt h i c, bt h w c -> bt h i w") * self.scale
        near = _unblocked(near.masked_fill(~self._near(real, causal), -torch.inf), len(q), n)
        far = einsum(self._columns(q), self._columns(k), "b s h u c, b s h y c -> b s h u y") * self.scale
        far = self._rows(far.masked_fill(~self._far(real, causal), -torch.inf), n)
        weights = F.dropout(torch.cat([near, far], dim=-1).softmax(dim=-1), self.dropout, self.training)
        by_near, by_far = weights.split([near.shape[-1], far.shape[-1]], dim=-1)
        read = einsum(_blocks(by_near, block), self._stretch(v, causal), "bt h i w, bt h w c -> bt h i c")
        further = einsum(self._columns(by_far), self._columns(v), "b s h u y, b s h y c -> b s h u c")
        return _unblocked(read, len(q), n) + self._rows(further, n)

    def _size(self, n: int) -> int:
        """Readers to a block: with as many as the window holds, half of the scores made are used."""
        return min(max(self.size, SMALLEST_BLOCK), n)

    def _around(self, x: Tensor, causal: bool) -> Tensor:
        """Keys or values [b g n c] that the windows of each block of readers cover, [(b t) g w c]."""
        block, reach = self._size(x.shape[2]), min(self.size, x.shape[2]) - 1
        blocks = rearrange(F.pad(_filled(x, block), [0, 0, block, block]), "b g (t i) c -> b t g i c", i=block)
        before, own, after = blocks[:, :-2, :, block - reach :], blocks[:, 1:-1], blocks[:, 2:, :, :reach]
        return rearrange(
            torch.cat([before, own] if causal else [before, own, after], dim=3), "b t g w c -> (b t) g w c"
        )

    def _stretch(self, x: Tensor, causal: bool) -> Tensor:
        """All that a block of readers may read but for strides: global tokens, then those around it."""
        around = self._around(x, causal)
        if self.num_global == 0:
            return around
        first = repeat(x[:, :, : self.num_global], "b g w c -> (b t) g w c", t=len(around) // len(x))
        return torch.cat([first, around], dim=2)

    def _near(self, real: Tensor, causal: bool) -> Tensor:
        """Which of its stretch each reader may read, [(b t) 1 i w]. Each reads itself, so that no row is empty."""
        n, device = real.shape[1], real.device
        block, reach = self._size(n), min(self.size, n) - 1
        column = torch.arange(n, device=device)
        in_window = rearrange(column >= self.num_global, "n -> 1 1 n 1").expand(len(real), -1, -1, -1)
        readable = rearrange(real, "b n -> b 1 n 1")
        readable, in_window = (
            rearrange(self._around(x, causal), "bt 1 w 1 -> bt 1 1 w") for x in (readable, in_window)
        )
        ahead = torch.arange(readable.shape[-1], device=device) - reach
        ahead = ahead - rearrange(torch.arange(block, device=device), "i -> i 1")
        band = (ahead >= -reach) & (ahead <= (0 if causal else reach))
        near = ((band & readable) | (ahead == 0)) & in_window
        if self.num_global == 0:
            return near
        reader, first = rearrange(column, "n -> 1 1 n 1"), column[: self.num_global]
        given = rearrange(real[:, : self.num_global], "b w -> b 1 1 w") & ((first <= reader) | (not causal))
        return torch.cat([_blocks(given | (first == reader), block), near], dim=-1)

    def _far(self, real: Tensor, causal: bool) -> Tensor:
        """Which of its column each reader may read, [b s 1 u y]: what stands neither near nor first."""
        n = real.shape[1]
        candidates = real & (torch.arange(n, device=real.device) >= self.num_global)
        readable = rearrange(self._columns(rearrange(candidates, "b n -> b 1 n 1")), "b s 1 y 1 -> b s 1 1 y")
        place = torch.arange(readable.shape[-1], device=real.device) * self.stride
        back = rearrange(place, "u -> u 1") - place
        return readable & ((back if causal else back.abs()) >= self.size)

    def _columns(self, x: Tensor) -> Tensor:
        """[b h n c] as [b s h u c]: column s holds the tokens u * stride + s."""
        return rearrange(_filled(x, self.stride), "b h (u s) c -> b s h u c", s=self.stride)

    def _rows(self, x: Tensor, n: int) -> Tensor:
        return rearrange(x, "b s h u c -> b h (u s) c")[:, :, :n]


def _real(k: Tensor, valid: Tensor | None) -> Tensor:
    return torch.ones(k.shape[0], k.shape[2], dtype=torch.bool, device=k.device) if valid is None else valid


def _filled(x: Tensor, size: int) -> Tensor:
    """x [b h n c] with n filled up to a multiple of `size`."""
    return F.pad(x, [0, 0, 0, -x.shape[2] % size])


def _blocks(x: Tensor, size: int) -> Tensor:
    """[b h n c] as [(b t) h i c]."""
    return rearrange(_filled(x, size), "b h (t i) c -> (b t) h i c", i=size)


def _unblocked(x: Tensor, b: int, n: int) -> Tensor:
    return rearrange(x, "(b t) h i c -> b h (t i) c", b=b)[:, :, :n]
