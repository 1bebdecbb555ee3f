"""The shape of tokens, by which an embedder is built.

n tokens · k fields · f features · p position axes
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqkit.errors import DataError
from seqkit.interfaces.batch import TokenBatch
from seqkit.interfaces.tokens import Tokens
from seqkit.raw import describe_tensor


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """Shape of a tokenizer's tokens: all that the embedding layer needs to be built.

    vocab_size: > 0: content is ids below it. num_features: > 0: content is vectors of that width. vocab_sizes: content
    is k ids a token, [n k], each below its own number: the fields of a MIDI event, the columns of a table, the
    codebooks of a codec; with num_features > 0, each token also has numbers, `Tokens.features`. Set exactly one of
    vocab_size, vocab_sizes and num_features, or the last two.
    num_axes: coordinates of a position: 1 for text, 2 for images, 0 for none. An encoding that splits its width between
    the axes, such as `Sinusoidal`, needs a width that is a multiple of 2 num_axes.
    num_edge_types: > 0: tokens come with an `Adjacency` of that many edge types; 0: every token may attend to every
    other.
    is_set: True: the order in which tokens come means nothing (points, the items of a basket), so a backbone that knows
    the order of columns is refused.
    embedder: `dim -> nn.Module` from content to [b n dim], in place of a lookup table or a linear layer (a
    convolutional stem).
    Raises ValueError where the fields contradict each other.
    """

    vocab_size: int = 0
    num_features: int = 0
    num_axes: int = 1
    num_edge_types: int = 0
    embedder: Callable[[int], nn.Module] | None = None
    vocab_sizes: tuple[int, ...] = ()
    is_set: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "vocab_sizes", tuple(self.vocab_sizes))
        for i, size in enumerate(self.vocab_sizes):
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"TokenSpec.vocab_sizes[{i}] is {size!r}; it counts ids, so make it an integer >= 1")
        for name in ("vocab_size", "num_features", "num_axes", "num_edge_types"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"TokenSpec.{name} is {value!r}; it counts something, so make it an integer >= 0")
        if self.vocab_sizes and self.vocab_size:
            raise ValueError(
                f"TokenSpec has vocab_size={self.vocab_size} and vocab_sizes={list(self.vocab_sizes)}; give one id a "
                "token (vocab_size) or several (vocab_sizes)"
            )
        if not self.vocab_sizes and (self.vocab_size > 0) == (self.num_features > 0):
            raise ValueError(
                f"TokenSpec has vocab_size={self.vocab_size} and num_features={self.num_features}; "
                "content is either ids (vocab_size > 0) or vectors (num_features > 0): set exactly one, or "
                "vocab_sizes for ids with numbers beside them"
            )

    @property
    def ids(self) -> bool:
        """True: content is one int64 id a token, below `vocab_size`; False: float vectors, or several ids."""
        return self.vocab_size > 0

    @property
    def is_categorical(self) -> bool:
        """True: content is int64, one id a token or several; False: content is float vectors."""
        return self.vocab_size > 0 or bool(self.vocab_sizes)

    @property
    def id_sizes(self) -> tuple[int, ...]:
        """Number of ids of each field of a token: one of plain ids, k of several, none of vectors."""
        return self.vocab_sizes or ((self.vocab_size,) if self.vocab_size else ())

    def ids_of(self, tokens: Tokens | TokenBatch) -> Tensor:
        """The ids of each token, [... n k] int64: of no field where content is vectors."""
        content = tokens.content
        return content if self.vocab_sizes else content[..., None] if self.ids else content[..., :0].long()

    def numbers_of(self, tokens: Tokens | TokenBatch) -> Tensor:
        """The numbers of each token, [... n f] float: its vector, or what stands beside its ids, which may be none."""
        if not self.is_categorical:
            return tokens.content
        return tokens.positions[..., :0] if tokens.features is None else tokens.features

    def random(self, n: int, generator: torch.Generator | None = None) -> Tokens:
        """n tokens drawn at random, to measure or try a model: any ids, standard normal numbers, no edges.

        Positions count from 0; on several axes they fill a cube row by row, with as many steps on every axis.
        Raises DataError for tokens with an adjacency.
        """
        if self.num_edge_types:
            raise DataError("these tokens have an adjacency, and random tokens have no edges; give a real example")
        numbers = torch.randn(n, self.num_features, generator=generator)
        ids = [torch.randint(size, (n,), generator=generator) for size in self.id_sizes]
        side = math.ceil(round(n ** (1 / self.num_axes), 6)) if self.num_axes > 1 else n
        index = torch.arange(n)
        axes = [(index // side**axis % side).float() for axis in reversed(range(self.num_axes))]
        positions = torch.stack(axes, dim=-1) if axes else torch.zeros(n, 0)
        if not ids:
            return Tokens(numbers, positions)
        content = torch.stack(ids, dim=-1) if self.vocab_sizes else ids[0]
        return Tokens(content, positions, features=numbers if self.num_features else None)

    def check(self, tokens: Tokens) -> None:
        """Raise DataError if `tokens` differ from this spec in width, range of ids, axes or edge types."""
        content, adjacency = tokens.content, tokens.adjacency
        if self.vocab_sizes:
            self._check_fields(tokens)
        elif tokens.features is not None:
            raise DataError("tokens have features beside their content; the spec says vocab_sizes for such tokens")
        elif self.ids:
            if content.ndim != 1:
                raise DataError(f"content is [n f] vectors, but the tokenizer's spec says ids below {self.vocab_size}")
            if len(content) and (int(content.min()) < 0 or int(content.max()) >= self.vocab_size):
                wrong = int(content.max()) if int(content.max()) >= self.vocab_size else int(content.min())
                raise DataError(f"content holds id {wrong}, outside the vocabulary of {self.vocab_size}")
        elif content.ndim != 2 or content.shape[1] != self.num_features or not content.is_floating_point():
            raise DataError(
                f"content is {describe_tensor(content)}; the spec says float vectors [n {self.num_features}]"
            )
        if tokens.positions.shape[1] != self.num_axes:
            raise DataError(f"positions have {tokens.positions.shape[1]} axes; the spec says {self.num_axes}")
        if (adjacency is None) != (self.num_edge_types == 0):
            given = "without adjacency" if adjacency is None else "with an adjacency"
            raise DataError(f"tokens come {given}, but the spec has num_edge_types={self.num_edge_types}")
        if adjacency is not None and len(adjacency) and int(adjacency.edge_type.max()) > self.num_edge_types:
            wrong = int(adjacency.edge_type.max())
            raise DataError(f"an edge has type {wrong}; the spec has edge types 1 to {self.num_edge_types}")

    def _check_fields(self, tokens: Tokens) -> None:
        content, features = tokens.content, tokens.features
        if content.dtype != torch.int64 or content.ndim != 2 or content.shape[1] != len(self.vocab_sizes):
            k = len(self.vocab_sizes)
            raise DataError(f"content is {describe_tensor(content)}; the spec says {k} ids a token, [n {k}] int64")
        for field_index, (ids, size) in enumerate(zip(content.unbind(dim=1), self.vocab_sizes, strict=True)):
            low, high = int(ids.min()), int(ids.max())
            if low < 0 or high >= size:
                wrong = high if high >= size else low
                raise DataError(f"content holds id {wrong} in field {field_index}, outside its vocabulary of {size}")
        width = 0 if features is None else features.shape[1]
        if width != self.num_features:
            raise DataError(f"tokens have {width} features; the spec says {self.num_features}")
