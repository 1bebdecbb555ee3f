"""Backbones that run over the columns of plain sequences: what RNNs, S4D, Mamba, TCN and MeanPool share.

b batch · n tokens · d width
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor, nn

from seqkit.interfaces import Backbone, Cache, Embedded
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.kv_cache import StateCache as StateCache
from seqkit.nn.block import Residual
from seqkit.nn.mixers.base import StateMixer
from seqkit.nn.padding import zero_padded
from seqkit.nn.segments import SegmentRows


class SequenceBackbone(Backbone):
    """Base class of backbones that support segments and no adjacency, and have a cache if they are causal.

    A subclass sets `dim` and `causal`, and writes `run` and `new_cache`, which are abstract. `forward` refuses what is
    not supported, gives `run` each packed sequence as a row of its own, so that no state goes from one to the next,
    makes padding zero, and counts `num_tokens` of the cache, so `run` writes the states alone.
    """

    supports_segments = True

    @abstractmethod
    def run(self, embedded: Embedded, cache: Any) -> Tensor:
        """Hidden states [b n d], of any value where padded. cache: as `new_cache` makes it, or None."""

    @abstractmethod
    def new_cache(self) -> Cache:
        """An empty cache, for any number of tokens."""

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded.

        Raises ValueError for adjacency, for segments with a cache, or for another cache.
        """
        name = type(self).__name__
        if embedded.adjacency is not None:
            raise ValueError(f"{name} does not support adjacency; it runs over the tokens in order")
        if embedded.segments is not None:
            if cache is not None:
                raise ValueError(
                    f"{name} has no cache of packed sequences; give each a row of its own"
                )
            rows = SegmentRows.of(embedded.segments, embedded.valid)
            return rows.map(lambda own: self.run(own.embedded(embedded), None))
        if cache is not None and not self._made(cache):
            owner = "" if cache.owner is None else f" of {cache.owner.__name__}"
            raise ValueError(
                f"{name} was given a {type(cache).__name__}{owner}; make its cache with init_cache"
            )
        hidden = self.run(embedded, cache)
        if cache is not None:
            cache.num_tokens += hidden.shape[1]
        if not embedded.is_padded:
            return hidden
        return zero_padded(hidden, embedded.valid)

    def _made(self, cache: Cache) -> bool:
        """Whether the cache is one of this network, as far as it says."""
        own = self.new_cache()
        has_its_size = len(getattr(cache, "states", ())) == len(getattr(own, "states", ()))
        return type(cache) is type(own) and cache.owner in (None, type(self)) and has_its_size

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache. Raises ValueError if not causal: later tokens would change earlier ones."""
        if not self.causal:
            raise ValueError(
                f"this {type(self).__name__} is not causal, so it has no cache; build it with causal=True"
            )
        cache = self.new_cache()
        if not isinstance(cache, Cache):
            raise ValueError(f"{type(self).__name__}.new_cache gives {cache!r}; return a Cache")
        cache.owner = type(self)
        return cache


class StateLayer(nn.Module):
    """x + dropout(mixer(norm(x))): a layer of a `LayerStack`."""

    def __init__(self, norm: nn.Module, mixer: StateMixer, dropout: float):
        super().__init__()
        self.norm = norm
        self.mixer = mixer
        self.residual = Residual(mixer.dim, dropout=dropout)

    def forward(
        self, x: Tensor, valid: Tensor | None, cache: StateCache | None, index: int
    ) -> Tensor:
        """x: [b n d]. valid: [b n] bool, True = real; None: all are. index: index of the layer in the cache."""
        normed = self.norm(x)
        if cache is None:
            y = self.mixer(normed, AttentionContext(query_valid=valid))
        else:
            if valid is not None:  # a norm's bias would make padding an input
                normed = zero_padded(normed, valid)
            y, cache.states[index] = self.mixer.step(normed, valid, cache.states[index])
        mixed: Tensor = self.residual(x, y)
        return mixed


class LayerStack(SequenceBackbone):
    """Layers that carry a state from token to token, then a norm. A subclass makes `blocks` and `norm`.

    A block takes (x [b n d], valid or None, cache or None, its index), and has `states_per_block` states in the cache.
    """

    is_recurrent = True
    # a norm stands before each layer of S4D and Mamba, and behind each convolution of TCN
    needs_unit_inputs = False
    states_per_block = 1
    blocks: nn.ModuleList
    norm: nn.Module

    def run(self, embedded: Embedded, cache: StateCache | None) -> Tensor:
        x = embedded.hidden
        valid = embedded.valid if embedded.is_padded else None
        for index, block in enumerate(self.blocks):
            x = block(x, valid, cache, index)
        hidden: Tensor = self.norm(x)
        return hidden

    def new_cache(self) -> StateCache:
        return StateCache(self.states_per_block * len(self.blocks))
