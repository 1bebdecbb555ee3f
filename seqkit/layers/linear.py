"""Attention in O(n): similarities that are products of features, so that what is read is summed once for all readers.

b batch · n tokens that read · m tokens that are read · h heads · g heads of keys and values · c channels · f features ·
t chunks · s tokens of one chunk
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from typing import ClassVar

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor

from seqkit.layers.mechanism import Mechanism, grouped
from seqkit.layers.reading import Reading

CHUNK = 64
"""Tokens of a causal chunk: inside it pairs are scored, between chunks sums are carried."""


class Sums:
    """What all tokens so far add up to, [b h f c+1]: features of keys times values, and times one. It never grows."""

    def __init__(self) -> None:
        self.sums: Tensor | None = None

    def select(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        if self.sums is not None:
            self.sums = self.sums.index_select(0, rows)


class FeatureAttention(Mechanism):
    """Token i reads token j with the weight f(q_i) g(k_j) / sum over all it may read (Katharopoulos et al. 2020, 3.2).

    Time and memory O(n f c), causal or not: equations 4 to 6 and 9 to 12, the causal sums carried from chunk to chunk.
    A step with a cache is O(f c), however much was read. Sums are kept in float32 at least.
    A token whose features meet none of what it may read (all zero or underflown) reads nothing: zero.
    """

    honours: ClassVar[frozenset[str]] = frozenset({"both ways", "causal", "source", "cache", "groups"})
    dense = False

    @abstractmethod
    def query_features(self, q: Tensor) -> Tensor:
        """[b h n f] >= 0, for a query up to a factor of its own."""

    @abstractmethod
    def key_features(self, k: Tensor) -> Tensor:
        """[b g m f] >= 0."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, reading: Reading, memory: Sums | None = None) -> Tensor:
        """[b h n c]."""
        with _precise(q):
            queries, keys = self._features(q, k, reading)
            values = F.pad(v.to(keys.dtype), [0, 1], value=1.0)  # the last column adds up the weights
            values = values.masked_fill(_hidden(v, reading), 0.0)
            if reading.causal:
                past = None if memory is None else memory.sums
                read, sums = _causal(queries, grouped(keys, q), grouped(values, q), past)
                if memory is not None:
                    memory.sums = sums
            else:
                sums = einsum(keys, values, "b g m f, b g m c -> b g f c")
                read = einsum(queries, grouped(sums, q), "b h n f, b h f c -> b h n c")
            return _share(read[..., :-1], read[..., -1:]).to(v.dtype)

    def weights(self, q: Tensor, k: Tensor, reading: Reading) -> Tensor:
        """[b h n m], in O(n m)."""
        with _precise(q):
            queries, keys = self._features(q, k, reading)
            scores = einsum(queries, grouped(keys, q), "b h n f, b h m f -> b h n m")
            if reading.causal:
                scores = scores.tril(k.shape[2] - q.shape[2])
            return _share(scores, scores.sum(dim=-1, keepdim=True)).to(q.dtype)

    def init_memory(self, max_tokens: int) -> Sums:
        """Sums: they hold any number of tokens."""
        return Sums()

    def _features(self, q: Tensor, k: Tensor, reading: Reading) -> tuple[Tensor, Tensor]:
        """Those of queries, and of keys, zero where there is padding."""
        q, k = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k))
        hidden = _hidden(k, reading)
        # twice: NaN in padding must reach neither the features nor their gradient
        keys = self.key_features(k.masked_fill(hidden, 0.0)).masked_fill(hidden, 0.0)
        return self.query_features(q), keys


class Linear(FeatureAttention):
    """Similarity as a product of features of queries and of keys (Katharopoulos et al. 2020), elu + 1 in their work.

    feature_map: [... c] to [... f], >= 0 everywhere.
    Rotation is refused: turned features may be negative, and RoFormer (Su et al. 2021, section 3.3) then gives up
    weights that sum to one.
    """

    def __init__(self, num_heads: int, channels: int, *, feature_map: Callable[[Tensor], Tensor] | None = None):
        super().__init__()
        self.feature_map = elu_plus_one if feature_map is None else feature_map

    def query_features(self, q: Tensor) -> Tensor:
        """[b h n f]."""
        return self.feature_map(q)

    def key_features(self, k: Tensor) -> Tensor:
        """[b g m f]."""
        return self.feature_map(k)


def elu_plus_one(x: Tensor) -> Tensor:
    """exp(x) below zero, x + 1 above (Katharopoulos et al. 2020, equation 7)."""
    # not F.elu: what it tells a compiler of its gradient's memory layout is not so (torch 2.11, backend aot_eager)
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def _causal(q: Tensor, k: Tensor, v: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
    """What each reads of itself and those before it, [b h n c], and the sums [b h f c] after the last.

    q, k: features [b h n f]. v: [b h n c]. past: sums before the first.
    """
    n = q.shape[2]
    size = min(CHUNK, n)
    q, k, v = (rearrange(F.pad(x, [0, 0, 0, -n % size]), "b h (t s) c -> b h t s c", s=size) for x in (q, k, v))
    added = einsum(k, v, "b h t s f, b h t s c -> b h t f c")
    if past is not None:
        added = torch.cat([rearrange(past, "b h f c -> b h 1 f c"), added], dim=2)
    until = added.cumsum(dim=2)
    before = F.pad(until, [0, 0, 0, 0, 1, 0])[:, :, :-1] if past is None else until
    scores = einsum(q, k, "b h t i f, b h t j f -> b h t i j").tril()
    read = einsum(scores, v, "b h t i j, b h t j c -> b h t i c")
    read = read + einsum(q, before[:, :, : q.shape[2]], "b h t s f, b h t f c -> b h t s c")
    return rearrange(read, "b h t s c -> b h (t s) c")[:, :, :n], until[:, :, -1]


def _hidden(k: Tensor, reading: Reading) -> Tensor:
    """True where keys [b g m c], the last that `reading` knows of, are padding: [b|1 1 m|1 1]."""
    if reading.read_valid is None:
        return torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=k.device)
    return rearrange(~reading.read_valid[:, -k.shape[2] :], "b m -> b 1 m 1")


def _share(read: Tensor, total: Tensor) -> Tensor:
    """read / total, and zero where nothing was read."""
    return read / total.masked_fill(total == 0, 1.0)


def _precise(x: Tensor) -> torch.autocast | nullcontext[None]:
    """No autocast inside: sums over thousands of tokens do not fit into eight bits."""
    device = x.device.type
    on = not x.is_meta and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if on else nullcontext()
