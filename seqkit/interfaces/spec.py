"""The shape of tokens, by which an embedder is built, and how tokens of several parts are joined.

n tokens · k fields · f features · p position axes
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from einops import rearrange
from torch import Tensor, nn

from seqkit.errors import DataError, suggest
from seqkit.interfaces.batch import TokenBatch
from seqkit.interfaces.tokens import Adjacency, Tokens
from seqkit.raw import describe_tensor


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """Shape of a tokenizer's tokens: all that the embedding layer needs to be built.

    vocab_size: > 0: content is ids below it. num_features: > 0: content is vectors of that width. vocab_sizes: content
    is k ids a token, [n k], each below its own number: the fields of a MIDI event, the columns of a table, the
    codebooks of a codec; with num_features > 0, each token also has numbers, `Tokens.features`. Set exactly one of
    vocab_size, vocab_sizes, num_features and parts, or the middle two.
    num_axes: coordinates of a position: 1 for text, 2 for images, 0 for none. An encoding that splits its width between
    the axes, such as `Sinusoidal`, needs a width that is a multiple of 2 num_axes.
    num_edge_types: > 0: tokens come with an `Adjacency` of that many edge types; 0: every token may attend to every
    other.
    is_set: True: the order in which tokens come means nothing (points, the items of a basket), so a backbone that knows
    the order of columns is refused.
    number_places: by the first id of a token, the place of its w numbers among the num_features / w places, -1: it has
    none; `Tokens.features` is then [n w], so a row of many columns of numbers stays small. Empty: it is [n
    num_features].
    num_prefix_tokens: k > 0: every example begins with k tokens that have a learned vector each and no content of their
    own, such as ViT's class token. The first k of num_features are flags: 1 in the token of that number, else 0.
    embedder: `dim -> nn.Module` from content to [b n dim], in place of a lookup table or a linear layer (a
    convolutional stem).
    parts: name and spec of each part of joined tokens, in the order in which they stand, as pairs or as a mapping;
    content is then the number of a token's part, and num_axes and num_edge_types follow from the parts.
    Raises ValueError where the fields contradict each other.

    >>> text, image = TokenSpec(vocab_size=256), TokenSpec(num_features=48, num_axes=2)
    >>> TokenSpec(parts={"text": text, "image": image}).num_axes
    2
    """

    vocab_size: int = 0
    num_features: int = 0
    num_axes: int = 1
    num_edge_types: int = 0
    embedder: Callable[[int], nn.Module] | None = None
    vocab_sizes: tuple[int, ...] = ()
    is_set: bool = False
    parts: tuple[tuple[str, TokenSpec], ...] = ()
    num_prefix_tokens: int = 0
    number_places: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.parts:
            self._join_parts()
        object.__setattr__(self, "vocab_sizes", tuple(self.vocab_sizes))
        counts = [(f"vocab_sizes[{i}]", size, 1) for i, size in enumerate(self.vocab_sizes)]
        names = ("vocab_size", "num_features", "num_axes", "num_edge_types", "num_prefix_tokens")
        for name, value, least in [*counts, *((name, getattr(self, name), 0) for name in names)]:
            if type(value) is not int or value < least:
                raise ValueError(
                    f"TokenSpec.{name} is {value!r}; it counts, so make it an integer >= {least}"
                )
        object.__setattr__(self, "number_places", tuple(self.number_places))
        places = self.number_places
        num_places = max(places, default=0) + 1
        if places and (
            self.vocab_sizes[:1] != (len(places),)
            or min(places) < -1
            or num_places < 1
            or self.num_features < num_places
            or self.num_features % num_places
        ):
            raise ValueError(
                "number_places has a place, or -1, for each first id, and num_features as many numbers for each place"
            )
        if self.num_prefix_tokens and (
            self.is_categorical or self.num_features <= self.num_prefix_tokens
        ):
            raise ValueError(
                "num_prefix_tokens are flags that vectors begin with; add their number to num_features"
            )
        given = bool(self.vocab_size) + bool(self.vocab_sizes or self.num_features)
        if not self.parts and given != 1:
            sizes = ", ".join(
                f"{name}={getattr(self, name)}"
                for name in ("vocab_size", "vocab_sizes", "num_features")
            )
            raise ValueError(
                f"TokenSpec has {sizes}; content is one id a token, several ids, or vectors: set one"
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
    def is_joined(self) -> bool:
        """True: content is the number of a token's part; ids and vectors are those of the parts."""
        return bool(self.parts)

    def without_edges(self) -> TokenSpec:
        """The same tokens without an adjacency."""
        return replace(
            self,
            num_edge_types=0,
            parts=tuple((name, spec.without_edges()) for name, spec in self.parts),
        )

    def as_sequence(self) -> TokenSpec:
        """The same tokens, whose order means something."""
        return replace(
            self, is_set=False, parts=tuple((name, spec.as_sequence()) for name, spec in self.parts)
        )

    def part(self, name: str) -> TokenSpec:
        """Spec of that part. Raises ValueError, with the names that there are, for another one."""
        if name not in dict(self.parts):
            raise ValueError(
                f"there is no part {name!r}; {suggest(name, [known for known, _ in self.parts])}"
            )
        return dict(self.parts)[name]

    def join(self, runs: Sequence[tuple[str, Tokens]], *, runs_on: bool = False) -> Tokens:
        """Joined tokens of these runs of parts, name and tokens each, in this order.

        Positions: a run of one axis has its coordinate on every axis, so rotary positions with interleaved frequencies
        turn it as they turn text alone; a run of fewer axes than others has 0 on the first ones (an image beside a
        video is its first frame). runs_on: True: each run begins behind the largest position so far, as in M-RoPE (Wang
        et al. 2024, Qwen2-VL, section 2.1), and so do the positions of its own tokens. False: all begin at 0.
        Edge types of a part follow those of the parts before it.
        Raises DataError where there are no runs, ValueError for a part that is not there.
        """
        if not runs:
            raise DataError(
                f"the example has none of the parts {', '.join(name for name, _ in self.parts)}"
            )
        numbers = {name: i for i, (name, _) in enumerate(self.parts)}
        types = dict(
            zip(numbers, accumulate((spec.num_edge_types for _, spec in self.parts), initial=0))
        )
        none = Adjacency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
        content = []
        positions = []
        own = []
        edges = [none]  # a batch may have examples without their graphs
        column = 0
        offset = 0.0
        starts = [0]
        for name, tokens in runs:
            self.part(name)
            if runs_on and tokens.positions.shape[1]:
                tokens = replace(tokens, positions=tokens.positions + offset)
            places = _on_axes(tokens.positions, self.num_axes, offset)
            if runs_on and places.numel():
                offset = float(places.max()) + 1
            if (inner := tokens.adjacency) is not None:
                edges.append(replace(inner, edge_type=inner.edge_type + types[name]))
                starts.append(column)
            content.append(torch.full((len(tokens),), numbers[name]))
            positions.append(places)
            own.append((name, tokens))
            column += len(tokens)
        adjacency = Adjacency.join(edges, starts) if self.num_edge_types else None
        return Tokens(
            torch.cat(content), torch.cat(positions), adjacency, parts=tuple(own), runs_on=runs_on
        )

    @property
    def id_sizes(self) -> tuple[int, ...]:
        """Number of ids of each field of a token: one of plain ids, k of several, none of vectors."""
        return self.vocab_sizes or ((self.vocab_size,) if self.vocab_size else ())

    def ids_of(self, tokens: Tokens | TokenBatch) -> Tensor:
        """The ids of each token, [... n k] int64: of no field where content is vectors."""
        content = tokens.content
        if self.is_joined:
            return content[..., None]
        if self.vocab_sizes:
            return content
        if self.ids:
            return content[..., None]
        return content[..., :0].long()

    def numbers_of(self, tokens: Tokens | TokenBatch) -> Tensor:
        """The numbers of each token, [... n f] float: its vector, or what stands beside its ids, which may be none."""
        if not self.is_categorical and not self.is_joined:
            return tokens.content
        if tokens.features is None or not self.number_places:
            if tokens.features is None:
                return tokens.positions[..., :0]
            return tokens.features
        device = tokens.content.device
        place = torch.tensor(self.number_places, device=device)[tokens.content[..., 0]]
        num_places = self.num_features // self.num_given
        is_own = rearrange(place, "... -> ... 1 1") == rearrange(
            torch.arange(num_places, device=device), "p -> p 1"
        )
        spread = rearrange(tokens.features, "... w -> ... 1 w").where(is_own, 0.0)
        return rearrange(spread, "... p w -> ... (p w)")

    @property
    def num_given(self) -> int:
        """Width of `Tokens.features`, where tokens have ids."""
        return self.num_features // (max(self.number_places, default=0) + 1)

    def random(self, n: int, generator: torch.Generator | None = None) -> Tokens:
        """n tokens drawn at random, to measure or try a model: any ids, standard normal numbers, no edges.

        Positions count from 0; on several axes they fill a cube row by row, with as many steps on every axis.
        Joined tokens are as many of each part as possible, in the order of the parts.
        Raises DataError for tokens with an adjacency.
        """
        if self.parts:
            sizes = [(n + i) // len(self.parts) for i in reversed(range(len(self.parts)))]
            given = [
                (name, spec.random(size, generator))
                for (name, spec), size in zip(self.parts, sizes)
                if size
            ]
            return self.join(given)
        if self.num_edge_types:
            raise DataError(
                "these tokens have an adjacency, and random tokens have no edges; give a real example"
            )
        numbers = torch.randn(n, self.num_features, generator=generator)
        if k := self.num_prefix_tokens:
            numbers[:, :k] = torch.eye(n, k)
            numbers[:k, k:] = 0.0
        ids = [torch.randint(size, (n,), generator=generator) for size in self.id_sizes]
        side = math.ceil(round(n ** (1 / self.num_axes), 6)) if self.num_axes > 1 else n
        index = torch.arange(n)
        axes = [(index // side**axis % side).float() for axis in reversed(range(self.num_axes))]
        positions = torch.stack(axes, dim=-1) if axes else torch.zeros(n, 0)
        if not ids:
            return Tokens(numbers, positions)
        content = torch.stack(ids, dim=-1) if self.vocab_sizes else ids[0]
        return Tokens(
            content, positions, features=numbers[:, : self.num_given] if self.num_features else None
        )

    def check(self, tokens: Tokens) -> None:
        """Raise DataError if `tokens` differ from this spec in width, range of ids, axes or edge types."""
        adjacency = tokens.adjacency
        if self.is_joined:
            self._check_parts(tokens)
        elif tokens.parts:
            raise DataError("tokens have parts, and the spec has none")
        else:
            self._check_content(tokens)
        if tokens.positions.shape[1] != self.num_axes:
            raise DataError(
                f"positions have {tokens.positions.shape[1]} axes; the spec says {self.num_axes}"
            )
        if (adjacency is None) != (self.num_edge_types == 0):
            given = "without adjacency" if adjacency is None else "with an adjacency"
            raise DataError(
                f"tokens come {given}, but the spec has num_edge_types={self.num_edge_types}"
            )
        if (
            adjacency is not None
            and len(adjacency)
            and int(adjacency.edge_type.max()) > self.num_edge_types
        ):
            wrong = int(adjacency.edge_type.max())
            raise DataError(
                f"an edge has type {wrong}; the spec has edge types 1 to {self.num_edge_types}"
            )

    def _join_parts(self) -> None:
        """Make pairs of `parts`, and what follows from them. Raises ValueError for names that cannot be parts."""
        given = self.parts.items() if isinstance(self.parts, Mapping) else self.parts
        object.__setattr__(self, "parts", tuple((str(name), spec) for name, spec in given))
        for name, spec in self.parts:
            if not name.isidentifier() or hasattr(nn.ModuleDict(), name):
                raise ValueError(
                    f"{name!r} cannot be the name of a part; use letters, digits and _, such as {name}_1"
                )
            if spec.is_joined:
                raise ValueError(f"part {name} is joined itself; list its parts beside the others")
        specs = [spec for _, spec in self.parts]
        for name, value in (
            ("num_axes", max(spec.num_axes for spec in specs)),
            ("num_edge_types", sum(spec.num_edge_types for spec in specs)),
            ("is_set", any(spec.is_set for spec in specs)),
        ):
            object.__setattr__(self, name, value)

    def _check_parts(self, tokens: Tokens) -> None:
        names = [name for name, _ in self.parts]
        start = 0
        if not tokens.parts:
            raise DataError(f"tokens have no parts; the spec says {', '.join(names)}")
        for name, run in tokens.parts:
            if name not in names or bool(
                (tokens.content[start : start + len(run)] != names.index(name)).any()
            ):
                raise DataError(
                    f"tokens of part {name} are not where content says; make them with TokenSpec.join"
                )
            try:
                self.part(name).check(run)
            except DataError as error:
                raise DataError(f"part {name}: {error}") from None
            start += len(run)

    def _check_content(self, tokens: Tokens) -> None:
        content = tokens.content
        k = len(self.vocab_sizes)
        if k:
            shape = [len(tokens), k]
            wanted = f"{k} ids a token, [n {k}] int64"
        elif self.is_categorical:
            shape = [len(tokens)]
            wanted = "[n] int64 ids"
        else:
            shape = [len(tokens), self.num_features]
            wanted = f"float vectors [n {self.num_features}]"
        if list(content.shape) != shape or content.is_floating_point() == self.is_categorical:
            raise DataError(f"content is {describe_tensor(content)}; the spec says {wanted}")
        for i, size in enumerate(self.id_sizes):
            low, high = (int(x) for x in self.ids_of(tokens)[:, i].aminmax())
            if low < 0 or high >= size:
                wrong = high if high >= size else low
                where = f" in field {i}" if k else ""
                raise DataError(
                    f"content holds id {wrong}{where}, outside its vocabulary of {size}"
                )
        width = 0 if tokens.features is None else tokens.features.shape[1]
        expected = self.num_given if k else 0
        if width != expected:
            raise DataError(f"tokens have {width} features; the spec says {expected}")


def _on_axes(positions: Tensor, num_axes: int, offset: float) -> Tensor:
    """Positions [n p] of a run on the axes of joined tokens, [n num_axes]; without any, all at `offset`."""
    n, p = positions.shape
    if p == num_axes:
        return positions
    if p == 0:
        return torch.full((n, num_axes), offset)
    if p == 1:
        return positions.expand(n, num_axes)
    return torch.cat([torch.full((n, num_axes - p), offset), positions], dim=1)
