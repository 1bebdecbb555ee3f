"""Caches of attention layers between decoding steps.

b batch · g key/value heads · m keys so far · n new keys · c channels of one head
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class MechanismCache(ABC):
    """State of one attention mechanism between decoding steps: keys and values, or sums of them."""

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""


class KVCache(MechanismCache):
    """Keys and values of all tokens so far, in slots that are filled from the left."""

    def __init__(self, max_tokens: int):
        self.max_tokens, self.num_tokens = max_tokens, 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values [b g n c]; returns all so far, [b g m c].

        Raises ValueError if there are not as many slots.
        """
        if self.keys is None or self.values is None:
            b, g, _, c = keys.shape
            self.keys = keys.new_empty(b, g, self.max_tokens, c)
            self.values = values.new_empty(b, g, self.max_tokens, values.shape[-1])
        start, end = self.num_tokens, self.num_tokens + keys.shape[2]
        if end > self.max_tokens:
            raise ValueError(f"the cache holds at most {self.max_tokens} tokens, got {end}; make max_tokens larger")
        self.keys[:, :, start:end], self.values[:, :, start:end] = keys, values
        self.num_tokens = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def reorder(self, rows: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)


class LayerCache:
    """Cache of one attention layer.

    self_attention: the mechanism's own. cross_attention: keys and values [b g m c] of the memory, computed once.
    convolution: the last inputs of the convolution before attention, if the layer has one.
    Which columns are real (`valid`) and their positions are kept by the backbone's cache, once for all layers.
    """

    def __init__(self, self_attention: MechanismCache):
        self.self_attention = self_attention
        self.cross_attention: tuple[Tensor, Tensor] | None = None
        self.convolution: Tensor | None = None

    def reorder(self, rows: Tensor) -> None:
        self.self_attention.reorder(rows)
        if self.cross_attention is not None:
            keys, values = self.cross_attention
            self.cross_attention = keys.index_select(0, rows), values.index_select(0, rows)
        if self.convolution is not None:
            self.convolution = self.convolution.index_select(0, rows)
