"""State space backbones: what `S4D` and `Mamba` share, a stack of layers that carry a state from token to token.

b batch · n tokens · d width
"""

from __future__ import annotations

from typing import ClassVar

from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Backbone, Cache, Embedded


class StateSpaceCache(Cache):
    """The state of each layer after the last real token; a subclass says what it is, and reorders it."""

    def __init__(self, depth: int):
        self.num_tokens = 0


class StateSpace(Backbone):
    """Layers over the tokens in order, then a norm. A subclass makes `blocks` and `norm`, and names its cache.

    A block takes (x [b n d], valid or None, cache or None, its index in the cache).
    """

    is_recurrent = True
    cache_type: ClassVar[type[StateSpaceCache]]
    blocks: nn.ModuleList
    norm: nn.Module

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded. Raises ValueError for adjacency or segments."""
        name = type(self).__name__
        if embedded.adjacency is not None or embedded.segments is not None:
            raise ValueError(f"{name} does not support adjacency or segments; it runs over the tokens in order")
        if cache is not None and not isinstance(cache, self.cache_type):
            raise ValueError(f"{name} was given a {type(cache).__name__}; make its cache with init_cache")
        x, valid = embedded.hidden, embedded.valid if embedded.is_padded else None
        for index, block in enumerate(self.blocks):
            x = block(x, valid, cache, index)
        if cache is not None:
            cache.num_tokens += x.shape[1]
        hidden: Tensor = self.norm(x)
        return hidden if valid is None else hidden.masked_fill(~rearrange(valid, "b n -> b n 1"), 0.0)

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache. Raises ValueError if not causal: the other direction starts at the end."""
        if not self.causal:
            name = type(self).__name__
            raise ValueError(f"this {name} is bidirectional, so it has no cache; build it with causal=True")
        return self.cache_type(len(self.blocks))
