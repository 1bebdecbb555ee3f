"""Caches of attention layers, and of a stack of them, between decoding steps.

b batch · g key/value heads · m keys so far · n new keys · c channels of one head
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from seqkit.interfaces import Cache, Embedded
from seqkit.interfaces.batch import Padding
from seqkit.nn.attention.context import Past


class MechanismCache(ABC):
    """State of one attention mechanism between decoding steps: keys and values, or sums of them."""

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""


class KVCache(MechanismCache):
    """Keys and values of all tokens so far, in slots that are filled from the left."""

    def __init__(self, max_tokens: int):
        self.max_tokens = max_tokens
        self.num_tokens = 0
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
        start = self.num_tokens
        end = self.num_tokens + keys.shape[2]
        if end > self.max_tokens:
            raise ValueError(
                f"the cache holds at most {self.max_tokens} tokens, got {end}; make max_tokens larger"
            )
        self.keys[:, :, start:end] = keys
        self.values[:, :, start:end] = values
        self.num_tokens = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def reorder(self, rows: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = (
                self.keys.index_select(0, rows),
                self.values.index_select(0, rows),
            )


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


class TransformerCache(Cache):
    """Caches of the layers, the columns so far, None at the start, and the memory of cross-attention, if any."""

    def __init__(self, layers: list[LayerCache]):
        self.num_tokens = 0
        self.layers = layers
        self.past: Past | None = None
        self.memory: Embedded | None = None

    def append(self, embedded: Embedded) -> None:
        """Add the columns of a forward pass."""
        self.past = Past.with_columns(self.past, embedded)
        self.num_tokens += embedded.valid.shape[1]

    def reorder(self, rows: Tensor) -> None:
        for layer in self.layers:
            layer.reorder(rows)
        if self.past is not None:
            valid, positions, is_padded = self.past
            self.past = Past(valid[rows], positions[rows], is_padded)
        self.memory = reordered(self.memory, rows)


def reordered(memory: Embedded | None, rows: Tensor) -> Embedded | None:
    """An encoder's output, which has no adjacency, of these examples, [b'] indices, in this order."""
    if memory is None:
        return None
    valid = memory.valid[rows]
    kept = Embedded(memory.hidden[rows], memory.positions[rows], valid)
    return kept.know(Padding(memory.is_padded, valid.numel()))
