"""Linear attention, O(n): scores are products of features, so that keys and values are summed once for all queries.

b batch · n queries · m keys · h heads · g key/value heads · c channels of one head · f features
t chunks · s tokens of one chunk
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.kv_cache import StateCache
from seqkit.nn.attention.mechanism import SequenceAttention, repeat_kv
from seqkit.nn.precision import float32_or_more, no_autocast
from seqkit.nn.recurrence import is_exporting

CHUNK = 64
"""Tokens of a causal chunk: inside it every pair is scored, between chunks sums are carried."""


class FeatureMapAttention(SequenceAttention):
    """Attention weights f(q_i) g(k_j), divided by their sum over the unmasked keys (Katharopoulos et al. 2020, 3.2).

    Time and memory O(n f c), causal or not: equations 4 to 6 and 9 to 12, the causal sums carried from chunk to chunk.
    A step with a cache is O(f c), however long the past. Sums are kept in float32 at least.
    Where all weights of a query are zero (or underflow), its output is zero.
    """

    supports: ClassVar[AttentionFeature] = (
        AttentionFeature.BIDIRECTIONAL
        | AttentionFeature.CAUSAL
        | AttentionFeature.UNORDERED
        | AttentionFeature.CROSS_ATTENTION
        | AttentionFeature.CACHE
        | AttentionFeature.SEGMENTS
        | AttentionFeature.GROUPED_QUERY
    )

    @abstractmethod
    def query_features(self, q: Tensor) -> Tensor:
        """[b h n f] >= 0; each query may have a factor of its own, which its weights lose again."""

    @abstractmethod
    def key_features(self, k: Tensor) -> Tensor:
        """[b g m f] >= 0."""

    def run(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        context: AttentionContext,
        cache: StateCache | None = None,
    ) -> Tensor:
        with no_autocast(q):
            queries, keys = self._features(q, k, context)
            values = F.pad(v.to(keys.dtype), [0, 1], value=1.0)  # the last column sums the weights
            values = values.masked_fill(_padded(v, context), 0.0)
            if context.is_causal:
                past = None if cache is None else cache.states[0]
                output, sums = _causal(queries, repeat_kv(keys, q), repeat_kv(values, q), past)
                if cache is not None:
                    cache.states[0] = sums
            else:
                sums = einsum(keys, values, "b g m f, b g m c -> b g f c")
                output = einsum(queries, repeat_kv(sums, q), "b h n f, b h f c -> b h n c")
            return _normalized(output[..., :-1], output[..., -1:]).to(v.dtype)

    def weigh(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        with no_autocast(q):
            queries, keys = self._features(q, k, context)
            scores = einsum(queries, repeat_kv(keys, q), "b h n f, b h m f -> b h n m")
            if context.is_causal:
                scores = scores.tril(k.shape[2] - q.shape[2])
            return _normalized(scores, scores.sum(dim=-1, keepdim=True)).to(q.dtype)

    def init_cache(self, max_tokens: int) -> StateCache:
        """Its state, [b h f c+1]: sums over all tokens so far of keys' features times values, and times one."""
        return StateCache(1)

    def _features(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """Features of queries, and of keys, zero where there is padding."""
        q, k = (x.to(float32_or_more(x.dtype)) for x in (q, k))
        padded = _padded(k, context)
        # twice: NaN in padding must reach neither the features nor their gradient
        keys = self.key_features(k.masked_fill(padded, 0.0)).masked_fill(padded, 0.0)
        return self.query_features(q), keys


class LinearAttention(FeatureMapAttention):
    """Linear attention with one feature map for queries and keys (Katharopoulos et al. 2020).

    feature_map: [... c] to [... f], >= 0 everywhere; None: elu + 1, as in the paper.
    It does not support rotary positions: rotated features may be negative, and RoFormer (Su et al. 2021, section 3.3)
    then gives up weights that sum to one.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        feature_map: Callable[[Tensor], Tensor] | None = None,
    ):
        super().__init__()
        self.feature_map = elu_plus_one if feature_map is None else feature_map

    def query_features(self, q: Tensor) -> Tensor:
        return self.feature_map(q)

    def key_features(self, k: Tensor) -> Tensor:
        return self.feature_map(k)


def elu_plus_one(x: Tensor) -> Tensor:
    """exp(x) below zero, x + 1 above (Katharopoulos et al. 2020, equation 7)."""
    # not F.elu: compiled, its gradient has another memory layout than declared (torch 2.11, backend aot_eager)
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp()).contiguous()


def _causal(q: Tensor, k: Tensor, v: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
    """Causal sums of weighted values, not yet normalised, [b h n c], and the sums [b h f c] after the last token.

    q, k: features [b h n f]. v: [b h n c]. past: sums before the first.
    """
    n = q.shape[2]
    if is_exporting():  # every pair is scored: the number of chunks is no size of a graph
        return einsum(
            einsum(q, k, "b h i f, b h j f -> b h i j").tril(), v, "b h i j, b h j c -> b h i c"
        ), v
    size = min(CHUNK, n)
    q, k, v = (
        rearrange(F.pad(x, [0, 0, 0, -n % size]), "b h (t s) c -> b h t s c", s=size)
        for x in (q, k, v)
    )
    added = einsum(k, v, "b h t s f, b h t s c -> b h t f c")
    if past is not None:
        added = torch.cat([rearrange(past, "b h f c -> b h 1 f c"), added], dim=2)
    until = added.cumsum(dim=2)
    before = F.pad(until, [0, 0, 0, 0, 1, 0])[:, :, :-1] if past is None else until
    scores = einsum(q, k, "b h t i f, b h t j f -> b h t i j").tril()
    output = einsum(scores, v, "b h t i j, b h t j c -> b h t i c")
    output = output + einsum(q, before[:, :, : q.shape[2]], "b h t s f, b h t f c -> b h t s c")
    return rearrange(output, "b h t s c -> b h (t s) c")[:, :, :n], until[:, :, -1]


def _padded(k: Tensor, context: AttentionContext) -> Tensor:
    """True where keys [b g m c], the last columns of `context`, are padding: [b|1 1 m|1 1]."""
    if context.key_valid is None:
        return torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=k.device)
    return rearrange(~context.key_valid[:, -k.shape[2] :], "b m -> b 1 m 1")


def _normalized(x: Tensor, total: Tensor) -> Tensor:
    """x / total, and zero where the total is."""
    return x / total.masked_fill(total == 0, 1.0)
