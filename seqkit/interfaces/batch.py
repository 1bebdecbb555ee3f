"""Tokens of a batch, and embedded.

b batch · n tokens · k fields · f features · p position axes · d width
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seqkit.errors import DataError
from seqkit.interfaces.parts import Part, Parts
from seqkit.interfaces.tokens import Adjacency, Tokens, by_token, may_read, tensors_of
from seqkit.raw import describe_tensor


@dataclass(frozen=True, slots=True)
class Padding:
    """Knowledge of the padding of a batch without waiting for its device.

    is_padded: False: every token is known to be real, which spares an attention mask. most_real: a bound on the number
    of real tokens, so that layers may leave out padding. It is rounded up (`rounded_up`), so that few sizes occur.
    """

    is_padded: bool
    most_real: int

    @classmethod
    def of(cls, valid: Tensor) -> Padding:
        """Padding of valid [b n]: looked up on the CPU; elsewhere any token may be padding."""
        if not may_read(valid):
            return cls(True, valid.numel())
        num_real = int(valid.sum())
        return cls(num_real < valid.numel(), min(rounded_up(num_real), valid.numel()))


class Padded:
    """Base class of batches that say which tokens are real, and know as much of it as the host does.

    valid: [b n] bool, True = real. padding: what is known; a copy (`replace`) knows it too, unless it has another
    `valid`.
    """

    __slots__ = ()
    valid: Tensor
    padding: Padding

    @property
    def is_padded(self) -> bool:
        """False: every token is known to be real."""
        return self.padding.is_padded

    def know(self, padding: Padding) -> Self:
        """The batch itself, of whose padding that is known."""
        object.__setattr__(self, "padding", padding)
        return self

    def replace(self, **changes: Any) -> Self:
        """A copy with other fields."""
        copy = replace(self, **changes)  # type: ignore[type-var]
        if "valid" in changes:
            return copy
        return copy.know(self.padding)


@dataclass(frozen=True, slots=True)
class TokenBatch(Padded):
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
    parts: the parts of joined tokens, whose content is the number of each token's part; None: they are of one
    tokenizer. graphs: [b n] int64, number of the graph that a token of these belongs to, 0: of none: the adjacency
    masks pairs of one graph alone; None: each example is one graph, if there is an adjacency.
    padding: on the CPU it is looked up when the batch is made; to an accelerator it goes along with `to`.
    Raises ValueError where sizes differ, where padding stands before a real token, or `reach` is not like that.

    >>> short, long = (Tokens(torch.arange(n), torch.arange(float(n))[:, None]) for n in (1, 3))
    >>> batch = TokenBatch.collate([short, long])
    >>> batch.content
    tensor([[0, 0, 0],
            [0, 1, 2]])
    >>> batch.valid[0], batch.is_padded
    (tensor([ True, False, False]), True)
    """

    content: Tensor
    positions: Tensor
    valid: Tensor
    adjacency: Adjacency | None = None
    segments: Tensor | None = None
    source: TokenBatch | None = None
    reach: Tensor | None = None
    features: Tensor | None = None
    parts: Parts | None = None
    graphs: Tensor | None = None
    padding: Padding = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.valid.ndim != 2 or self.valid.dtype != torch.bool:
            raise ValueError(
                f"valid is {describe_tensor(self.valid)}; give [b n] bool, True where a token is real"
            )
        self.know(Padding.of(self.valid))
        if self.is_padded and may_read(self.valid):
            # a causal mask leaves padding out, and recurrent layers pack their rows by lengths: both rely on it
            moved = (self.valid[:, 1:] & ~self.valid[:, :-1]).any(dim=1)
            if bool(moved.any()):
                raise ValueError(
                    f"row {int(moved.nonzero()[0])} of valid has padding before a real token; pad on the right, as "
                    "TokenBatch.collate does"
                )
        for name, value in by_token(self).items():
            if value.shape[:2] != self.valid.shape:
                raise ValueError(
                    f"{name} is {describe_tensor(value)}; let it begin with {list(self.valid.shape)}"
                )
        if self.reach is not None and may_read(self.reach):
            _check_reach(self.reach, self.valid)
        if self.source is not None and len(self.source) != len(self):
            raise ValueError(
                f"source has {len(self.source)} examples beside {len(self)}; give one for each"
            )

    @classmethod
    def collate(cls, examples: Sequence[Tokens]) -> TokenBatch:
        """Pad to the longest. Raises ValueError if there are no examples or they differ in more than length."""
        if not examples:
            raise ValueError("collate was given no examples; a batch needs at least one")
        n = max(map(len, examples))
        given = [tensors_of(x) for x in examples]
        for i, tensors in enumerate(given):
            if _kinds(tensors) != _kinds(given[0]):
                raise ValueError(
                    f"example {i} has {_described(tensors)}; example 0 {_described(given[0])}: one batch holds one "
                    "tokenizer's tokens"
                )
        adjacency = Adjacency.join([x.adjacency for x in examples], range(0, n * len(examples), n))
        values = [by_token(x) for x in examples]
        padded: dict[str, Any] = {
            name: pad_sequence([each[name] for each in values], batch_first=True)
            for name in values[0]
        }
        valid = torch.arange(n) < torch.tensor([len(x) for x in examples])[:, None]
        if not any(x.parts for x in examples):
            return cls(**padded, valid=valid, adjacency=adjacency)
        parts = Parts.collate(examples, n, cls)
        graphs = None if adjacency is None else parts.graphs(valid.shape)
        return cls(**padded, valid=valid, adjacency=adjacency, parts=parts, graphs=graphs)

    def to(self, *args: Any, **kwargs: Any) -> TokenBatch:
        """The same on another device or of another dtype (Lightning moves only batches that have `to`)."""
        given = {x.name: getattr(self, x.name) for x in fields(self) if x.init}
        moved = {name: x.to(*args, **kwargs) for name, x in given.items() if hasattr(x, "to")}
        return replace(self, **moved).know(self.padding)

    def pin_memory(self) -> TokenBatch:
        """The batch in pinned memory, from which a GPU copies while it computes; torch's DataLoader calls this."""
        return cast(TokenBatch, _pinned(self))

    def select(self, rows: Tensor) -> TokenBatch:
        """These examples, [b'] indices, in this order, each as often as it is named, as padded as they are."""
        if rows.equal(torch.arange(len(self), device=rows.device)):
            return self
        adjacency = self.adjacency
        if adjacency is not None:
            n = self.valid.shape[1]
            new, old = (rows[:, None] == adjacency.edge_index[0] // n).nonzero(as_tuple=True)
            adjacency = Adjacency(
                adjacency.edge_index[:, old] % n + new * n, adjacency.edge_type[old]
            )
        source = None if self.source is None else self.source.select(rows)
        if self.parts is None:
            parts = None
        else:
            parts = self.parts.select(rows, self.valid.shape[1])
        kept: dict[str, Any] = {name: x[rows] for name, x in by_token(self).items()}
        chosen = replace(self, adjacency=adjacency, source=source, parts=parts, **kept)
        if self.is_padded:
            return chosen
        return chosen.know(Padding(False, chosen.valid.numel()))

    def columns(self, kept: slice) -> TokenBatch:
        """These columns of every example, with the edges among them. Raises ValueError for some of joined tokens."""
        # comparisons alone: `range` or `kept.indices` would compile a graph for each length
        start = kept.start or 0
        if start < 0:
            start = max(start + self.valid.shape[1], 0)
        return self._between(start, start + self.valid[:, kept].shape[1])

    def pad(self, columns: int) -> TokenBatch:
        """The batch with more columns of padding on the right."""
        return self._between(0, self.valid.shape[1] + columns)

    def _between(self, start: int, end: int) -> TokenBatch:
        n = self.valid.shape[1]
        adjacency = self.adjacency
        parts = self.parts
        if parts is not None:
            if start > 0 or end < n:
                raise ValueError(
                    "columns of joined tokens cannot be cut off; cut the examples (`Tokens.at`)"
                )
            parts = parts.widened(n, end)
        if adjacency is not None:
            column = adjacency.edge_index % n
            new = adjacency.edge_index // n * (end - start) + column - start
            adjacency = adjacency.moved(new.masked_fill((column < start) | (column >= end), -1))
        kept: dict[str, Any] = {name: x[:, start:end] for name, x in by_token(self).items()}
        if self.reach is not None:
            kept["reach"] = kept["reach"].clamp(max=end - 1) - start
        if end > n:
            kept = {
                name: F.pad(x, [0, 0] * (x.ndim - 2) + [0, end - n]) for name, x in kept.items()
            }
        found = replace(self, adjacency=adjacency, parts=parts, **kept)
        is_padded = found.is_padded and (self.is_padded or end > n)
        # no token becomes real
        most_real = min(found.padding.most_real, self.padding.most_real)
        return found.know(Padding(is_padded, most_real))

    def with_dtype(self, dtype: torch.dtype) -> TokenBatch:
        """The batch with numbers of another dtype; ids stay as they are."""
        source = None if self.source is None else self.source.with_dtype(dtype)
        parts = None if self.parts is None else self.parts.with_dtype(dtype)
        numbers: dict[str, Any] = {
            n: x.to(dtype) for n, x in by_token(self).items() if x.is_floating_point()
        }
        return self.replace(source=source, parts=parts, **numbers)

    def example(self, i: int) -> Tokens:
        """The tokens of example i, without padding."""
        one = self.select(torch.tensor([i], device=self.valid.device))
        real = self.valid[i]
        n = self.valid.shape[1]
        names = {x.name for x in fields(Tokens)}
        own: dict[str, Any] = {
            name: x[0, real] for name, x in by_token(one).items() if name in names
        }
        if self.parts is not None:
            own |= {"parts": self.parts.runs_of(i, n), "runs_on": self.parts.is_running_on(i, n)}
        return Tokens(**own, adjacency=one.adjacency)

    def part(self, name: str | None) -> TokenBatch:
        """Tokens of a part, a row for each of its runs; None: the batch itself. Raises DataError without that part."""
        return self if name is None else self._part(name).batch

    def rows(self, name: str) -> Tensor:
        """Example of each run of a part, [r]. Raises DataError without that part."""
        return self._part(name).rows(self.valid.shape[1])

    def _part(self, name: str) -> Part:
        if self.parts is None:
            raise DataError(f"the batch has no part {name}; its tokens are of one tokenizer")
        return self.parts.of(name)

    def only(self, name: str) -> TokenBatch:
        """Joined tokens of one part alone, a row for each run (`rows`), with the positions that they have.

        Raises DataError without that part, or where an example has several runs of it.
        """
        rows = self.rows(name)
        part = self.part(name)
        several = (rows.diff() == 0).any()
        fault = f"an example has several runs of the part {name}; give one"
        if several.is_cuda:
            # the device looks itself, and nothing waits for it
            torch._assert_async(~several, fault)
        elif not several.is_meta and bool(several):
            raise DataError(fault)
        assert self.parts is not None
        columns = self.parts[name].columns
        shape = part.valid.shape
        own = torch.arange(shape.numel(), device=columns.device).reshape(shape).where(part.valid, 0)
        kept: dict[str, Any] = {}
        for key, x in by_token(replace(self, reach=None)).items():
            found = x.flatten(0, 1)[columns]
            kept[key] = found.masked_fill(~part.valid.reshape(*shape, *[1] * (found.ndim - 2)), 0)
        adjacency = self.adjacency
        if adjacency is not None:
            # padding of a run is column 0 of the batch: it is written nowhere
            place = torch.full((self.valid.numel() + 1,), -1, device=columns.device)
            place = place.scatter(
                0, columns.where(part.valid, self.valid.numel()).reshape(-1), own.reshape(-1)
            )
            adjacency = adjacency.moved(place[adjacency.edge_index])
        parts = Parts({name: replace(self.parts[name], batch=part, columns=own)})
        return replace(self, adjacency=adjacency, source=None, reach=None, parts=parts, **kept)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, also those of the adjacency and, as source.content, of the source and of parts."""
        parts = {} if self.parts is None else self.parts.tensors()
        return tensors_of(self) | {f"parts.{name}": tensor for name, tensor in parts.items()}

    def __len__(self) -> int:
        return self.valid.shape[0]

    @property
    def num_tokens(self) -> int:
        """How many tokens are real."""
        return int(self.valid.sum())


@dataclass(frozen=True, slots=True)
class Embedded(Padded):
    """Input of a backbone: embeddings of one width with positions, padding and attention structure.

    hidden: [b n d], zero where padded. positions: [b n p]. valid: [b n] bool, True = real. adjacency: as in
    `TokenBatch`. segments: [b n] int64 or None. causal: True: tokens attend to earlier ones only, for backbones whose
    causality comes with the batch; the others have their own. reach, graphs, parts: as in `TokenBatch`.
    source: the embedded source sequence, input of an encoder. memory: the encoder's output, to which the decoder
    cross-attends (as in `nn.TransformerDecoder`). padding: that of the batch, if `know` gave it; else any token may be
    padding.
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
    graphs: Tensor | None = None
    parts: Parts | None = None
    padding: Padding = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.know(Padding(True, self.valid.numel()))


def rounded_up(count: int) -> int:
    """At most a 32nd more than the count, or 8 more: 32 sizes from each power of two to the next."""
    step = 2 ** max(count.bit_length() - 6, 3)
    return -(-count // step) * step


def _kinds(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Names, dtypes and widths of tensors, which all examples of a tokenizer share."""
    return {
        name: (x.dtype, x.shape[1:] if name != "edge_index" else ()) for name, x in tensors.items()
    }


def _pinned(value: Any) -> Any:
    """A copy of nested dataclasses and dicts whose tensors are in pinned memory."""
    if isinstance(value, Tensor):
        return value.pin_memory()
    if isinstance(value, dict):
        return type(value)({name: _pinned(x) for name, x in value.items()})
    if not is_dataclass(value):
        return value
    own = {x.name: _pinned(getattr(value, x.name)) for x in fields(value) if x.init}
    return replace(value, **own)  # type: ignore[type-var]


def _described(tensors: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name} {describe_tensor(x)}" for name, x in tensors.items())


def _check_reach(reach: Tensor, valid: Tensor) -> None:
    if reach.dtype != torch.int64:
        raise ValueError(
            f"reach is {describe_tensor(reach)}; give [b n] int64, the last column attended to"
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
