"""Tokens of one example, and the edges among them.

n tokens · k fields · f features · p position axes · e edges
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import accumulate
from typing import Any, Self

import torch
from torch import Tensor

from seqkit.errors import DataError
from seqkit.raw import describe_tensor

MIN_STEPS = 8
"""Distance of most positions, in steps of float32 at the largest one, below which their distances are rounding."""


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
        index = self.edge_index
        edge_type = self.edge_type
        if index.ndim != 2 or index.shape[0] != 2 or index.dtype != torch.int64:
            raise ValueError(
                f"edge_index is {describe_tensor(index)}; give [2 e] int64, (source, target) per edge"
            )
        if edge_type.shape != index.shape[1:] or edge_type.dtype != torch.int64:
            raise ValueError(
                f"edge_type is {describe_tensor(edge_type)}; give [{index.shape[1]}] int64, one per edge"
            )
        if may_read(edge_type) and len(edge_type) and int(edge_type.min()) < 1:
            raise ValueError(
                f"edge_type goes down to {int(edge_type.min())}; types start at 1 (0: a token itself)"
            )

    def __len__(self) -> int:
        return self.edge_type.shape[0]

    def to(self, *args: Any, **kwargs: Any) -> Adjacency:
        return Adjacency(self.edge_index.to(*args, **kwargs), self.edge_type.to(*args, **kwargs))

    @classmethod
    def join(cls, given: Sequence[Adjacency | None], starts: Iterable[int]) -> Adjacency | None:
        """Edges of several examples in one; token t of example i becomes token starts[i] + t. None: none has edges."""
        found = [(one, start) for one, start in zip(given, starts) if one is not None]
        if not found:
            return None
        index = torch.cat([one.edge_index + start for one, start in found], dim=1)
        return cls(index, torch.cat([one.edge_type for one, _ in found]))

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
    parts: name and tokens of each run of joined tokens, in their order (`TokenSpec.join`); content is then the number
    of each token's part. Empty: they are of one tokenizer. runs_on: True: positions run on from run to run, as those of
    an interleaved list; False: each run has the positions that it has alone.
    Numbers of other precision (float64 as NumPy makes them, float16) become float32.
    Raises DataError where content or positions are empty, not finite or of another length, different positions are all
    the same in float32, or an edge points outside.

    >>> tokens = Tokens(torch.tensor([5, 2, 7]), torch.arange(3.0)[:, None])
    >>> len(tokens), tokens.first(2).content
    (3, tensor([5, 2]))
    """

    content: Tensor
    positions: Tensor
    adjacency: Adjacency | None = None
    features: Tensor | None = None
    parts: tuple[tuple[str, Tokens], ...] = ()
    runs_on: bool = False

    def __post_init__(self) -> None:
        for name in ("content", "positions", "features"):
            given = getattr(self, name)
            if not isinstance(given, Tensor):
                if given is None and name == "features":
                    continue
                raise DataError(f"{name} is of type {type(given).__name__}; give a torch.Tensor")
            if given.is_floating_point() and given.dtype != torch.float32:
                if name == "positions":
                    _check_stay_apart(given)
                object.__setattr__(self, name, given.float())
        ids = self.content.ndim in (1, 2) and self.content.dtype == torch.int64
        if not ids and not (self.content.ndim == 2 and self.content.is_floating_point()):
            raise DataError(
                f"content is {describe_tensor(self.content)}; give ids [n] or [n k] int64, or floats [n f]"
            )
        n = self.content.shape[0]
        if n == 0:
            raise DataError("content has no tokens; an example needs at least one")
        if (
            self.positions.ndim != 2
            or len(self.positions) != n
            or not self.positions.is_floating_point()
        ):
            raise DataError(
                f"positions are {describe_tensor(self.positions)}; give [{n} p] float, one row per token"
            )
        if self.features is not None:
            self._check_features(self.features)
        if self.parts and sum(len(run) for _, run in self.parts) != n:
            raise DataError(
                f"the runs of joined tokens have {sum(len(run) for _, run in self.parts)} tokens, not {n}"
            )
        if not ids:
            _finite("content", self.content)
        _finite("positions", self.positions)
        if self.adjacency is not None and len(self.adjacency):
            index = self.adjacency.edge_index
            low = int(index.min())
            high = int(index.max())
            if low < 0 or high >= n:
                wrong = low if low < 0 else high
                raise DataError(f"an edge names token {wrong}, but there are tokens 0 to {n - 1}")
            pairs = index[0] * n + index[1]
            if len(pairs.unique()) < len(pairs):
                raise DataError(
                    "two edges join the same (source, target) pair; merge their types into one"
                )

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, those of the adjacency and of the parts too; a field that is None has none."""
        found = tensors_of(self)
        if self.runs_on:
            found["parts.runs_on"] = torch.ones(1, dtype=torch.int64)
        for i, (part, run) in enumerate(self.parts):
            found |= {f"parts.{i}.{part}.{name}": tensor for name, tensor in run.tensors().items()}
        return found

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Tokens of what `tensors` gave."""
        rest: dict[str, Any] = {}
        runs: dict[tuple[int, str], dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            if key == "parts.runs_on":
                rest["runs_on"] = True
            elif key.startswith("parts."):
                _, number, part, name = key.split(".", 3)
                runs.setdefault((int(number), part), {})[name] = tensor
            else:
                rest[key] = tensor
        edges = [rest.pop(x.name) for x in fields(Adjacency) if x.name in rest]
        parts = tuple((part, Tokens.of(runs[number, part])) for number, part in sorted(runs))
        return cls(**rest, adjacency=Adjacency(*edges) if edges else None, parts=parts)

    @classmethod
    def join(cls, examples: Sequence[Tokens]) -> Self:
        """Tokens of several examples of one tokenizer, one after the other; an edge stays within its example."""
        values = [by_token(x) for x in examples]
        joined: dict[str, Any] = {
            name: torch.cat([each[name] for each in values]) for name in values[0]
        }
        starts = accumulate(map(len, examples), initial=0)
        adjacency = Adjacency.join([x.adjacency for x in examples], starts)
        return cls(
            **joined, adjacency=adjacency, parts=tuple(run for x in examples for run in x.parts)
        )

    def at(self, kept: Tensor | slice) -> Tokens:
        """The tokens of these indices, [m] int64 without twins, in this order, with the edges among them.

        Raises ValueError where they would put tokens of a run of joined tokens apart.
        """
        index = torch.arange(len(self))[kept]
        new: dict[str, Any] = {name: x[index] for name, x in by_token(self).items()}
        adjacency = self.adjacency
        if adjacency is not None:
            place = torch.full((len(self),), -1).scatter(0, index, torch.arange(len(index)))
            adjacency = adjacency.moved(place[adjacency.edge_index])
        if not self.parts:
            return replace(self, adjacency=adjacency, **new)
        ends = torch.tensor([len(run) for _, run in self.parts]).cumsum(0)
        number = torch.searchsorted(ends, index, right=True)  # of the run of each token
        if bool((number.diff() < 0).any()):
            raise ValueError("joined tokens stand run by run; keep the order of the runs")
        parts = [
            (name, run.at(index[number == i] - (int(ends[i]) - len(run))))
            for i, (name, run) in enumerate(self.parts)
            if bool((number == i).any())
        ]
        return replace(self, adjacency=adjacency, parts=tuple(parts), **new)

    def append(
        self,
        content: Tensor,
        position: Tensor,
        features: Tensor | None = None,
        edges: Adjacency | None = None,
    ) -> Tokens:
        """The tokens and one more. content: an id, or [k] ids, or [f] numbers. position: [p]. features: [f] or None.
        edges: those that come with it, to or from any token. Raises ValueError for joined tokens."""
        if self.parts:
            raise ValueError("a token is appended to a part of joined tokens; use Join.continues")
        one = Tokens(
            content[None], position[None], features=None if features is None else features[None]
        )
        both = Tokens.join([replace(self, adjacency=None), one])
        return replace(both, adjacency=Adjacency.join([self.adjacency, edges], [0, 0]))

    def alone(self) -> tuple[tuple[str, Tokens], ...]:
        """Runs of joined tokens with the positions that each has alone."""
        if not self.runs_on:
            return self.parts
        found = []
        offset = 0.0
        for name, run in self.parts:
            moved = run.positions.numel() > 0
            found.append((name, replace(run, positions=run.positions - offset) if moved else run))
            offset = float(run.positions.max()) + 1 if moved else offset + 1
        return tuple(found)

    def equals(self, other: Tokens) -> bool:
        """Whether both have the same tensors, NaN being equal to NaN."""
        ours = self.tensors()
        theirs = other.tensors()
        return ours.keys() == theirs.keys() and all(
            _equal(x, theirs[name]) for name, x in ours.items()
        )

    def first(self, n: int, *, is_set: bool = False) -> Tokens:
        """The first n tokens; all where there are no more. Raises DataError where the others cannot be left out.

        is_set: True: the order in which they stand means nothing (`TokenSpec.is_set`), so there are no first ones.
        """
        if len(self) <= n:
            return self
        if self.adjacency is not None or self.positions.shape[1] > 1 or is_set:
            why = "edges" if self.adjacency is not None else "positions on several axes"
            why = "an order that means nothing (a set)" if is_set else why
            raise DataError(
                f"{len(self):,} tokens with {why} cannot be cut to {n:,}; train without --data.max_tokens"
            )
        return self.at(slice(n))

    def _check_features(self, features: Tensor) -> None:
        if self.content.ndim != 2 or self.content.dtype != torch.int64:
            raise DataError(
                "features stand beside the ids of fields, [n k] int64; put these numbers into content"
            )
        if (
            features.ndim != 2
            or len(features) != len(self.content)
            or not features.is_floating_point()
        ):
            raise DataError(
                f"features are {describe_tensor(features)}; give [{len(self)} f] float, one row per token"
            )
        _finite("features", features)

    def __len__(self) -> int:
        return self.content.shape[0]


def rounding(positions: Tensor) -> str:
    """How positions [n p] are rounded in float32, in words; empty where they are not."""
    for axis in positions.unbind(dim=1):
        places = axis.unique()
        step = float(axis.abs().max()) * torch.finfo(torch.float32).eps
        if len(places) > 2 and (distance := float(places.diff().median())) < MIN_STEPS * step:
            return (
                f"positions up to {float(places[-1]):.4g} are rounded to {step:.2g} in float32, and most are no "
                f"further apart than {distance:.2g}; subtract the first"
            )
    return ""


def _check_stay_apart(positions: Tensor) -> None:
    """Raise DataError where float64 positions differ, and those of float32 do not: the order would be lost silently."""
    if positions.ndim == 2 and len(positions) > 1 and positions.dtype == torch.float64:
        single = positions.float()
        if bool((single == single[:1]).all()) and not bool((positions == positions[:1]).all()):
            first = float(positions.min())
            last = float(positions.max())
            raise DataError(
                f"positions of {len(positions)} tokens from {first!r} to {last!r} are all {float(single[0, 0])!r} in "
                "float32; subtract the first"
            )


def may_read(x: Tensor) -> bool:
    """Whether values may decide what happens next: an accelerator waits for them, a graph or a fake tensor has none."""
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None


def by_token(holder: Any) -> dict[str, Tensor]:
    """The fields of `Tokens` or `TokenBatch` that have a value for each token: all that are tensors, by name.

    Joining, selecting and padding go by this list, so a new field is in all of them.
    """
    given = {x.name: getattr(holder, x.name) for x in fields(holder)}
    return {name: value for name, value in given.items() if isinstance(value, Tensor)}


def tensors_of(holder: Any) -> dict[str, Tensor]:
    """Tensors of `by_token`, and in their place among the fields those of its adjacency and of its source."""
    found: dict[str, Tensor] = {}
    for x in fields(holder):
        value = getattr(holder, x.name)
        if isinstance(value, Tensor):
            found[x.name] = value
        elif is_dataclass(value):
            prefix = "" if isinstance(value, Adjacency) else f"{x.name}."
            found |= {prefix + name: tensor for name, tensor in tensors_of(value).items()}
    return found


def _equal(x: Tensor, y: Tensor) -> bool:
    return (
        x.dtype == y.dtype
        and x.shape == y.shape
        and bool(((x == y) | (x.isnan() & y.isnan())).all())
    )


def _finite(name: str, x: Tensor) -> None:
    if not bool(torch.isfinite(x).all()):
        row = int((~torch.isfinite(x)).any(dim=1).nonzero()[0])
        verb = "is" if name == "content" else "are"
        raise DataError(
            f"{name} of token {row} {verb} not finite (NaN or infinite); clean the input or drop the example"
        )
