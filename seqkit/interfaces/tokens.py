"""The data that flows: tokens of one example, of a batch, embedded; and the spec by which an embedder is built.

b batch · n tokens · k fields · f features · p position axes · e edges · d width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from seqkit.errors import DataError
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


@dataclass(frozen=True, slots=True)
class Adjacency:
    """Which token may attend to which, as a sparse list of edges. A pair without an edge is masked; every token attends
    to itself. An edge from a token to itself, a self-loop, gives that pair its type.

    edge_index: [2 e] int64, (source, target) as in PyG: the target attends to the source. An undirected edge is listed
    both ways, a pair once at most. In a `TokenBatch`, token t of example i has index i * n + t.
    edge_type: [e] int64 > 0: type of bond, number of hops, ...; type 0 is a token with itself where it has no
    self-loop.
    Raises ValueError on a wrong shape or dtype, or a type below 1.
    """

    edge_index: Tensor
    edge_type: Tensor

    def __post_init__(self) -> None:
        index, edge_type = self.edge_index, self.edge_type
        if index.ndim != 2 or index.shape[0] != 2 or index.dtype != torch.int64:
            raise ValueError(
                f"edge_index is {describe_tensor(index)}; give [2 e] int64, a column (source, target) per edge"
            )
        if edge_type.shape != index.shape[1:] or edge_type.dtype != torch.int64:
            raise ValueError(f"edge_type is {describe_tensor(edge_type)}; give [{index.shape[1]}] int64, one per edge")
        if len(edge_type) and may_read(edge_type) and int(edge_type.min()) < 1:
            raise ValueError(
                f"edge_type goes down to {int(edge_type.min())}; types start at 1 (0 is a token with itself)"
            )

    def __len__(self) -> int:
        return self.edge_type.shape[0]

    def to(self, *args: Any, **kwargs: Any) -> Adjacency:
        return Adjacency(self.edge_index.to(*args, **kwargs), self.edge_type.to(*args, **kwargs))

    def moved(self, edge_index: Tensor) -> Adjacency:
        """The same edges between other tokens, [2 e]; without those of which an end is below 0."""
        kept = (edge_index >= 0).all(dim=0)
        return Adjacency(edge_index[:, kept], self.edge_type[kept])


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one example, never padded.

    content: [n] int64 ids, [n k] int64 ids of k fields, or [n f] float vectors. positions: [n p] float, in the
    tokenizer's own unit (about one per token). adjacency: which token may attend to which; None: every token to every
    other. features: [n f] float numbers beside the ids of fields; None: there are none.
    Numbers of other precision (float64 as NumPy makes them, float16) become float32.
    Raises DataError where content or positions are empty, not finite or of another length, or an edge points outside.
    """

    content: Tensor
    positions: Tensor
    adjacency: Adjacency | None = None
    features: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("content", "positions", "features"):
            given = getattr(self, name)
            if given is None and name == "features":
                continue
            if not isinstance(given, Tensor):
                raise DataError(f"{name} is of type {type(given).__name__}; give a torch.Tensor")
            if given.is_floating_point() and given.dtype != torch.float32:
                object.__setattr__(self, name, given.float())
        ids = self.content.ndim in (1, 2) and self.content.dtype == torch.int64
        if not ids and not (self.content.ndim == 2 and self.content.is_floating_point()):
            raise DataError(
                f"content is {describe_tensor(self.content)}; "
                "give [n] int64 ids, [n k] int64 ids of k fields, or [n f] float vectors"
            )
        n = self.content.shape[0]
        if n == 0:
            raise DataError("content has no tokens; an example needs at least one")
        if self.positions.ndim != 2 or len(self.positions) != n or not self.positions.is_floating_point():
            raise DataError(f"positions are {describe_tensor(self.positions)}; give [{n} p] float, one row per token")
        if self.features is not None:
            self._check_features(self.features)
        if not ids:
            _finite("content", self.content)
        _finite("positions", self.positions)
        if self.adjacency is not None and len(self.adjacency):
            index = self.adjacency.edge_index
            low, high = int(index.min()), int(index.max())
            if low < 0 or high >= n:
                raise DataError(f"an edge names token {low if low < 0 else high}, but there are tokens 0 to {n - 1}")
            pairs = index[0] * n + index[1]
            if len(pairs.unique()) < len(pairs):
                raise DataError("two edges join the same (source, target) pair; merge their types into one")

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, those of the adjacency too; a field that is None has none.

        Batches, caches, windows and digests go by this list, so a new field is in all of them.
        """
        return _tensors(self)

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Tokens of what `tensors` gave."""
        rest: dict[str, Any] = dict(tensors)
        edges = [rest.pop(x.name) for x in fields(Adjacency) if x.name in rest]
        return cls(**rest, adjacency=Adjacency(*edges) if edges else None)

    @classmethod
    def join(cls, examples: Sequence[Tokens]) -> Self:
        """Tokens of several examples of one tokenizer, one after the other; an edge stays within its example."""
        given = [x.tensors() for x in examples]
        for tensors, start in zip(given, accumulate(map(len, examples), initial=0)):
            if "edge_index" in tensors:
                tensors["edge_index"] = tensors["edge_index"] + start
        axis = {"edge_index": 1}
        return cls.of({name: torch.cat([each[name] for each in given], axis.get(name, 0)) for name in given[0]})

    def at(self, kept: Tensor | slice) -> Tokens:
        """The tokens of these indices, [m] int64 without twins, in this order, with the edges among them."""
        index = torch.arange(len(self))[kept]
        new = {x.name: value[index] for x in fields(self) if isinstance(value := getattr(self, x.name), Tensor)}
        adjacency = self.adjacency
        if adjacency is not None:
            place = torch.full((len(self),), -1).scatter(0, index, torch.arange(len(index)))
            adjacency = adjacency.moved(place[adjacency.edge_index])
        return replace(self, adjacency=adjacency, **new)

    def append(
        self,
        content: Tensor,
        position: Tensor,
        features: Tensor | None = None,
        edges: Adjacency | None = None,
    ) -> Tokens:
        """The tokens and one more. content: an id, or [k] ids, or [f] numbers. position: [p]. features: [f] or None.
        edges: those that come with it, to or from any token."""
        one = Tokens(content[None], position[None], features=None if features is None else features[None])
        if self.adjacency is None and edges is None:
            return Tokens.join([self, one])
        both = Tokens.join([replace(self, adjacency=None), one])
        given = [x for x in (self.adjacency, edges) if x is not None]
        index = torch.cat([x.edge_index for x in given], dim=1)
        return replace(both, adjacency=Adjacency(index, torch.cat([x.edge_type for x in given])))

    def equals(self, other: Tokens) -> bool:
        """Whether both have the same tensors, NaN being equal to NaN."""
        ours, theirs = self.tensors(), other.tensors()
        return ours.keys() == theirs.keys() and all(_equal(x, theirs[name]) for name, x in ours.items())

    def first(self, n: int) -> Tokens:
        """The first n tokens; all where there are no more. Raises DataError where the others cannot be left out."""
        if len(self) <= n:
            return self
        if self.adjacency is not None or self.positions.shape[1] > 1:
            why = "edges" if self.adjacency is not None else "positions on several axes"
            raise DataError(f"{len(self):,} tokens with {why} cannot be cut to {n:,}; leave --data.max_tokens out")
        return self.at(slice(n))

    def _check_features(self, features: Tensor) -> None:
        if self.content.ndim != 2 or self.content.dtype != torch.int64:
            raise DataError("features stand beside the ids of fields, [n k] int64; put these numbers into content")
        if features.ndim != 2 or len(features) != len(self.content) or not features.is_floating_point():
            raise DataError(
                f"features are {describe_tensor(features)}; give [{len(self.content)} f] float, one row per token"
            )
        _finite("features", features)

    def __len__(self) -> int:
        return self.content.shape[0]


@dataclass(frozen=True, slots=True)
class _Padded:
    """A dataclass of tensors with `valid` [b n] that knows whether there is padding without asking a device.

    On the CPU that is looked up when the object is made. On an accelerator it is known where it came from the CPU by
    `to`; anywhere else `is_padded` is True, which is always right, and only costs an attention mask.
    Fields are replaced (`replace`), not written in place: `is_padded` would not notice.
    """

    _unpadded: Tensor | None = field(init=False, default=None, repr=False, compare=False)
    """The very tensor `valid` of which it is known that it has no padding: another one is never taken for it."""

    def __post_init__(self) -> None:
        valid: Tensor = self.valid  # type: ignore[attr-defined]
        if may_read(valid) and bool(valid.all()):
            object.__setattr__(self, "_unpadded", valid)

    @property
    def is_padded(self) -> bool:
        """False: every token is known to be real."""
        return self._unpadded is not self.valid  # type: ignore[attr-defined]

    def replace(self, **changes: Any) -> Self:
        """A copy with other fields; what is known of padding stays known unless `valid` is changed."""
        return replace(self, **changes)._with_padding(self.is_padded or "valid" in changes)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The same on another device or of another dtype (Lightning moves only batches that have `to`)."""
        names = [f.name for f in fields(self) if f.init and hasattr(getattr(self, f.name), "to")]
        return replace(self, **{name: getattr(self, name).to(*args, **kwargs) for name in names})._with_padding(
            self.is_padded
        )

    def with_known_padding(self, other: _Padded) -> Self:
        """This object, which takes over what `other` knows about padding if both have the same tensor `valid`."""
        return self._with_padding(other.is_padded or self.valid is not other.valid)  # type: ignore[attr-defined]

    def _with_padding(self, is_padded: bool) -> Self:
        if not is_padded:
            object.__setattr__(self, "_unpadded", self.valid)  # type: ignore[attr-defined]
        return self


@dataclass(frozen=True, slots=True)
class TokenBatch(_Padded):
    """Tokens of several examples, padded on the right with zeros.

    content: [b n], [b n k] or [b n f]. positions: [b n p]. valid: [b n] bool, True = real.
    adjacency: indices count through the whole batch, i * n + t. segments: [b n] int64: tokens of different segments
    (packed sequences) do not attend to each other; None: one segment an example.
    source: the batch that the encoder of an encoder–decoder gets, as many examples (`src` in `nn.Transformer`).
    features: [b n f] numbers beside the ids of fields, or None.
    reach: [b n] int64, for backbones whose causality comes with the batch: the last column that each token attends to.
    Its own column everywhere: causal; the end of a prefix in the prefix: a prefix language model. None: as the
    objective says. It never falls from column to column, is no earlier than the column itself, and nothing reaches on
    from where it ends (reach[reach[i]] = reach[i]), so what lies beyond leaks through no number of layers.
    Raises ValueError where sizes differ, or `reach` is not like that.
    """

    content: Tensor
    positions: Tensor
    valid: Tensor
    adjacency: Adjacency | None = None
    segments: Tensor | None = None
    source: TokenBatch | None = None
    reach: Tensor | None = None
    features: Tensor | None = None

    def __post_init__(self) -> None:
        _Padded.__post_init__(self)
        if self.valid.ndim != 2 or self.valid.dtype != torch.bool:
            raise ValueError(f"valid is {describe_tensor(self.valid)}; give [b n] bool, True where a token is real")
        for name, value in self._by_token().items():
            if value.shape[:2] != self.valid.shape:
                raise ValueError(
                    f"{name} is {describe_tensor(value)}; its first two sizes should be {list(self.valid.shape)}"
                )
        if self.reach is not None and may_read(self.reach):
            _check_reach(self.reach, self.valid)
        if self.source is not None and len(self.source) != len(self):
            raise ValueError(f"source has {len(self.source)} examples beside {len(self)}; give one for each")

    @classmethod
    def collate(cls, examples: Sequence[Tokens]) -> TokenBatch:
        """Pad to the longest. Raises ValueError if there are no examples or they differ in more than length."""
        if not examples:
            raise ValueError("collate was given no examples; a batch needs at least one")
        n = max(map(len, examples))
        given = [x.tensors() for x in examples]
        for i, tensors in enumerate(given):
            if _kinds(tensors) != _kinds(given[0]):
                raise ValueError(
                    f"example {i} has {_described(tensors)}; example 0 {_described(given[0])}: one batch holds one "
                    "tokenizer's tokens"
                )
        adjacency = None
        if examples[0].adjacency is not None:
            edge_index = torch.cat([tensors.pop("edge_index") + i * n for i, tensors in enumerate(given)], dim=1)
            adjacency = Adjacency(edge_index, torch.cat([tensors.pop("edge_type") for tensors in given]))
        padded: dict[str, Any] = {
            name: pad_sequence([tensors[name] for tensors in given], batch_first=True) for name in given[0]
        }
        valid = torch.arange(n) < torch.tensor([len(x) for x in examples])[:, None]
        return cls(**padded, valid=valid, adjacency=adjacency)

    def select(self, rows: Tensor) -> TokenBatch:
        """These examples, [b'] indices, in this order, each as often as it is named, as padded as they are."""
        if rows.equal(torch.arange(len(self), device=rows.device)):
            return self
        adjacency = self.adjacency
        if adjacency is not None:
            n = self.valid.shape[1]
            new, old = (rows[:, None] == adjacency.edge_index[0] // n).nonzero(as_tuple=True)
            adjacency = Adjacency(adjacency.edge_index[:, old] % n + new * n, adjacency.edge_type[old])
        source = None if self.source is None else self.source.select(rows)
        return replace(
            self, adjacency=adjacency, source=source, **{name: x[rows] for name, x in self._by_token().items()}
        )

    def columns(self, kept: slice) -> TokenBatch:
        """These columns of every example, with the edges among them."""
        start, end, _ = kept.indices(self.valid.shape[1])
        return self._between(start, end)

    def pad(self, columns: int) -> TokenBatch:
        """The batch with more columns of padding on the right."""
        return self._between(0, self.valid.shape[1] + columns)

    def _between(self, start: int, end: int) -> TokenBatch:
        n, adjacency = self.valid.shape[1], self.adjacency
        if adjacency is not None:
            column = adjacency.edge_index % n
            new = adjacency.edge_index // n * (end - start) + column - start
            adjacency = adjacency.moved(new.masked_fill((column < start) | (column >= end), -1))
        kept: dict[str, Any] = {name: x[:, start:end] for name, x in self._by_token().items()}
        if self.reach is not None:
            kept["reach"] = kept["reach"].clamp(max=end - 1) - start
        if end > n:
            kept = {name: F.pad(x, [0, 0] * (x.ndim - 2) + [0, end - n]) for name, x in kept.items()}
        return replace(self, adjacency=adjacency, **kept)

    def with_dtype(self, dtype: torch.dtype) -> TokenBatch:
        """The batch with numbers of another dtype; ids stay as they are."""
        source = None if self.source is None else self.source.with_dtype(dtype)
        numbers: dict[str, Any] = {n: x.to(dtype) for n, x in self._by_token().items() if x.is_floating_point()}
        return self.replace(source=source, **numbers)

    def example(self, i: int) -> Tokens:
        """The tokens of example i, without padding."""
        one, real = self.select(torch.tensor([i], device=self.valid.device)), self.valid[i]
        given = {x.name: getattr(one, x.name) for x in fields(Tokens)}
        own: dict[str, Any] = {name: x[0, real] if isinstance(x, Tensor) else x for name, x in given.items()}
        return Tokens(**own)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, also those of the adjacency and, as source.content, of the source."""
        return _tensors(self)

    def _by_token(self) -> dict[str, Tensor]:
        """Name to tensor [b n ...], for each field that has a value a token."""
        given = {x.name: getattr(self, x.name) for x in fields(self) if x.init}
        return {name: value for name, value in given.items() if isinstance(value, Tensor)}

    def __len__(self) -> int:
        return self.valid.shape[0]

    @property
    def num_tokens(self) -> int:
        """How many tokens are real."""
        return int(self.valid.sum())


@dataclass(frozen=True, slots=True)
class Embedded(_Padded):
    """Input of a backbone: embeddings of one width with positions, padding and attention structure.

    hidden: [b n d], zero where padded. positions: [b n p]. valid: [b n] bool, True = real. adjacency: as in
    `TokenBatch`. segments: [b n] int64 or None. causal: True: tokens attend to earlier ones only, for backbones whose
    causality comes with the batch; the others have their own. reach: as in `TokenBatch`.
    source: the embedded source sequence, input of an encoder. memory: the encoder's output, to which the decoder
    cross-attends (as in `nn.TransformerDecoder`).
    """

    hidden: Tensor
    positions: Tensor
    valid: Tensor
    adjacency: Adjacency | None = None
    segments: Tensor | None = None
    source: Embedded | None = None
    memory: Embedded | None = None
    causal: bool = False
    reach: Tensor | None = None


def may_read(x: Tensor) -> bool:
    """Whether values may decide what happens next: on an accelerator that makes it wait, and a graph has none yet."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def _tensors(holder: Any) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for x in fields(holder):
        value = getattr(holder, x.name)
        if isinstance(value, Tensor):
            if x.init:
                found[x.name] = value
        elif value is not None:
            prefix = "" if isinstance(value, Adjacency) else f"{x.name}."
            found |= {prefix + name: tensor for name, tensor in _tensors(value).items()}
    return found


def _kinds(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Names, dtypes and widths of tensors, which all examples of a tokenizer share."""
    return {name: (x.dtype, x.shape[1:] if name != "edge_index" else ()) for name, x in tensors.items()}


def _described(tensors: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name} {describe_tensor(x)}" for name, x in tensors.items())


def _equal(x: Tensor, y: Tensor) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and bool(((x == y) | (x.isnan() & y.isnan())).all())


def _check_reach(reach: Tensor, valid: Tensor) -> None:
    if reach.dtype != torch.int64:
        raise ValueError(
            f"reach is {describe_tensor(reach)}; give [b n] int64, the last column that a token attends to"
        )
    n = reach.shape[1]
    column = torch.arange(n)
    own = reach.where(valid, column)
    wrong = (own < column) | (own >= n)
    wrong |= (own.cummax(dim=1).values > own) & valid
    wrong |= own.gather(1, own.clamp(0, n - 1)) != own
    if bool(wrong.any()):
        row, at = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"reach of column {at} of example {row} is {int(reach[row, at])}; it must not fall from column to column, "
            "nor lie before the column, nor may the column where it ends reach on"
        )


def _finite(name: str, x: Tensor) -> None:
    if not bool(torch.isfinite(x).all()):
        row = int((~torch.isfinite(x)).any(dim=1).nonzero()[0])
        raise DataError(f"{name} of token {row} is not finite (NaN or infinite); clean the input or drop the example")
