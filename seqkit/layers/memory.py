"""What one layer keeps between the steps of a generation.

b batch · g heads of keys and values · m tokens so far · n new tokens · c channels of one head
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


class KeysValues:
    """Keys and values of all tokens so far, in slots filled from the left."""

    def __init__(self, max_tokens: int):
        self.max_tokens, self.num_tokens = max_tokens, 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values [b g n c] behind what is there; give all so far, [b g m c].

        Raises ValueError if there are not as many slots.
        """
        if self.keys is None or self.values is None:
            b, g, _, c = keys.shape
            self.keys = keys.new_empty(b, g, self.max_tokens, c)
            self.values = values.new_empty(b, g, self.max_tokens, values.shape[-1])
        start, end = self.num_tokens, self.num_tokens + keys.shape[2]
        if end > self.max_tokens:
            raise ValueError(
                f"the cache has room for {self.max_tokens} tokens and was given {end}; make it with a larger max_tokens"
            )
        self.keys[:, :, start:end], self.values[:, :, start:end] = keys, values
        self.num_tokens = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def select(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)


class LayerMemory:
    """own: the mechanism's (keys and values, or sums). source: keys and values [b g m c] of another sequence.

    tail: what a convolution keeps, its last inputs.
    """

    def __init__(self, own: Any):
        self.own = own
        self.source: tuple[Tensor, Tensor] | None = None
        self.tail: Tensor | None = None

    def select(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        self.own.select(rows)
        if self.source is not None:
            self.source = (self.source[0].index_select(0, rows), self.source[1].index_select(0, rows))
        if self.tail is not None:
            self.tail = self.tail.index_select(0, rows)
