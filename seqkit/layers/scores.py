"""Other ways to score a key for a query; and the soft dictionary that they all are, written out.

b batch · n tokens that read · m tokens that are read · h heads · c channels of one head · d channels of a value
"""

from __future__ import annotations

from typing import Any

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from seqkit.layers.mechanism import Mechanism, as_bias, grouped, softmax
from seqkit.layers.reading import EVERYTHING, Reading


def look_up(query: Tensor, key: Tensor, value: Tensor, *, temperature: float, attend: Tensor | None = None) -> Tensor:
    """A soft dictionary, as plain as it can be written: what other code is checked against.

    query: [... n c], key: [... m c], value: [... m d]. attend: [... n m] bool, True = may be read; None: everything.
    Each query gets [... n d], the mean of the values weighed by exp(query . key / temperature); towards temperature 0
    that is the value of its best key, towards infinity the plain mean. Zeros where nothing may be read.
    Raises ValueError for a temperature that is not above 0.
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature} divides the scores; make it larger than 0")
    scores = einsum(query, key, "... n c, ... m c -> ... n m") / temperature
    if attend is not None:
        scores = scores.masked_fill(~attend, -torch.inf)
    return einsum(softmax(scores), value, "... n m, ... m d -> ... n d")


class _Scored(Mechanism):
    """Softmax of scores that are all written down: O(n m) memory for a head."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, reading: Reading, memory: Any = None) -> Tensor:
        """[b h n c]."""
        if memory is not None:
            k, v = memory.extend(k, v)
        return einsum(self.weights(q, k, reading), grouped(v, q), "b h n m, b h m c -> b h n c")


class Additive(_Scored):
    """A small network scores each pair: v . tanh(W query + U key) (Bahdanau et al. 2015, appendix A.1.2).

    W and U are the projections that every attention of ours has before its mechanism; here stands v, a vector for each
    head. Turning by position (Rotary) means nothing in a sum, so it is refused; a bias or embedded distances do.
    Costs O(h n m c) memory, c times that of dot products: for sentences, not for pages.
    """

    honours = EVERYTHING - {"rotation"}

    def __init__(self, num_heads: int, channels: int):
        super().__init__()
        self.weigh = nn.Parameter(torch.randn(num_heads, channels) * channels**-0.5)

    def weights(self, q: Tensor, k: Tensor, reading: Reading) -> Tensor:
        """[b h n m]."""
        pairs = rearrange(q, "b h n c -> b h n 1 c") + rearrange(grouped(k, q), "b h m c -> b h 1 m c")
        if reading.relative is not None:
            pairs = pairs + rearrange(reading.relative.to(q.dtype), "b n m c -> b 1 n m c")
        scores = einsum(self.weigh.to(q.dtype), pairs.tanh(), "h c, b h n m c -> b h n m")
        return softmax(scores + as_bias(q, k, reading))


class TopK(_Scored):
    """Each query reads the `k` best of its keys and no other (Zhao et al. 2019, Explicit Sparse Transformer, 3).

    Scores are scaled dot products. Only what may be read counts among the k; where that is less, all of it is read.
    Keys that tie with the k-th best, up to rounding, are read too: neither order nor padding decides. All scores are
    computed: this sharpens what is read and saves nothing, O(n m) memory for a head.
    Raises ValueError for k below 1.
    """

    honours = EVERYTHING

    def __init__(self, num_heads: int, channels: int, *, k: int):
        super().__init__()
        if k < 1:
            raise ValueError(f"k={k} keys to read leave nothing; make it at least 1")
        self.k = k

    def weights(self, q: Tensor, k: Tensor, reading: Reading) -> Tensor:
        """[b h n m], zero but for the best."""
        scores = einsum(q, grouped(k, q), "b h n c, b h m c -> b h n m")
        if reading.relative is not None:
            scores = scores + einsum(q, reading.relative.to(q.dtype), "b h n c, b n m c -> b h n m")
        scores = scores / q.shape[-1] ** 0.5 + as_bias(q, k, reading)
        if scores.shape[-1] > self.k:
            last = scores.topk(self.k, dim=-1).values[..., -1:]
            # a repeated token at a clipped distance ties but for rounding, which is not the same with a cache
            largest = scores.masked_fill(scores == -torch.inf, 0.0).abs().amax(dim=-1, keepdim=True)
            rounding = 8 * torch.finfo(scores.dtype).eps * largest
            scores = scores.masked_fill(scores < last - rounding, -torch.inf)
        return softmax(scores)
