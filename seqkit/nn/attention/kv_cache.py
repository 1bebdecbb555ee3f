"""Caches that an attention layer, and a stack of layers, keep between decoding steps.

b batch · g key/value heads · m keys so far · n new keys · c channels of one head
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from seqkit.interfaces import Cache, Embedded
from seqkit.interfaces.batch import Padding
from seqkit.nn.attention.context import Past


def rows_of(state: Any, rows: Tensor) -> Any:
    """Selects examples of a state, which is a tensor [b …], a tuple of such, or None.

    rows: [b'] indices of the examples, in the order of the result.
    """
    if state is None:
        return None
    if isinstance(state, tuple):
        return tuple(rows_of(part, rows) for part in state)
    return state.index_select(0, rows)


class StateCache(Cache):
    """States of layers after the last real token of each example, for the layers to read and replace.

    num_states: number of states, such as one for each layer. states: list of them; each is a tensor [b …], a tuple of
    such, or None before the first token. `reorder` selects the same rows of every state.
    """

    def __init__(self, num_states: int):
        self.num_tokens = 0
        self.states: list[Any] = [None] * num_states

    def reorder(self, rows: Tensor) -> None:
        self.states = [rows_of(state, rows) for state in self.states]


class KVCache(Cache):
    """Keys and values of all tokens so far, in slots that are filled from the left."""

    def __init__(self, max_tokens: int):
        self.max_tokens = max_tokens
        self.num_tokens = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values [b g n c]; returns all so far, [b g m c].

        Raises ValueError if that is more than `max_tokens`.
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
        self.keys = rows_of(self.keys, rows)
        self.values = rows_of(self.values, rows)


class LayerCache:
    """Cache of one attention layer.

    self_attention: the cache of the attention mechanism. cross_attention: keys and values [b g m c] of the memory,
    computed once. convolution: the last inputs of the convolution before attention, if the layer has one.
    `valid` and the positions of the tokens so far are the same for all layers; `TransformerCache.past` keeps them.
    """

    def __init__(self, self_attention: Cache):
        self.self_attention = self_attention
        self.cross_attention: tuple[Tensor, Tensor] | None = None
        self.convolution: Tensor | None = None

    def reorder(self, rows: Tensor) -> None:
        self.self_attention.reorder(rows)
        self.cross_attention = rows_of(self.cross_attention, rows)
        self.convolution = rows_of(self.convolution, rows)


class TransformerCache(Cache):
    """Cache of a stack of attention layers.

    layers: one cache for each layer. past: `valid` and positions of the columns so far; None at the start. memory: the
    encoder's output that cross-attention reads, if there is one.
    """

    def __init__(self, layers: list[LayerCache]):
        self.num_tokens = 0
        self.layers = layers
        self.past: Past | None = None
        self.memory: Embedded | None = None

    def append(self, embedded: Embedded, *, keep: bool) -> None:
        """Add the columns of a forward pass. keep: whether a layer looks back at them; else they are only counted."""
        if keep:
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
    """Selects examples of an encoder's output, which has no adjacency.

    rows: [b'] indices of the examples, in the order of the result.
    """
    if memory is None:
        return None
    valid = memory.valid[rows]
    kept = Embedded(memory.hidden[rows], memory.positions[rows], valid)
    return kept.know(Padding(memory.is_padded, valid.numel()))


def encoder_output(embedded: Embedded, cache: Any) -> Embedded | None:
    """The encoder's output, or the embedded source if there is no encoder; None: neither is given.

    cache: keeps what the first step was given, which is then returned at all later steps; None: there is no cache.
    Raises ValueError if it is packed: tokens attend to all of their row's.
    """
    memory = embedded.source if embedded.memory is None else embedded.memory
    if memory is not None and memory.segments is not None:
        raise ValueError(
            "the source is packed, and a target attends to all of its row; give each source a row of its own"
        )
    if cache is None:
        return memory
    if cache.memory is None:
        cache.memory = memory
    kept: Embedded | None = cache.memory
    return kept
