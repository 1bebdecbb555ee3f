"""Tables of names: which tensors of another library become which of ours, and back.

A table is a list of rows, made for the sizes of one model. `read` and `write` go through the same rows, so what is read
is written back bit for bit.

h heads · c channels of one head · r channel pairs · i inputs · o outputs
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from einops import rearrange

if TYPE_CHECKING:
    from torch import Tensor


class Change(Protocol):
    """A change of a tensor that loses nothing: `write` takes back what `read` did."""

    def read(self, x: Tensor, /) -> Tensor:
        """Our tensor from theirs."""

    def write(self, x: Tensor, /) -> Tensor:
        """Their tensor from ours."""


@dataclass(frozen=True)
class Pairs:
    """Channels of a head that rotary positions turn: theirs pair (i, i + r), ours (2 i, 2 i + 1). Rows are [(h c) ...].

    head_dim: channels of a head. rotated: how many of them, from the first on, are turned; None: all. heads: how many
    heads, from the first on, are turned, where queries, keys and values are one tensor; None: all.
    """

    head_dim: int
    rotated: int | None = None
    heads: int | None = None

    def read(self, x: Tensor, /) -> Tensor:
        """Our order of the rows."""
        return self._reordered(x, "h (two r) ... -> h (r two) ...")

    def write(self, x: Tensor, /) -> Tensor:
        """Their order of the rows."""
        return self._reordered(x, "h (r two) ... -> h (two r) ...")

    def _reordered(self, x: Tensor, pattern: str) -> Tensor:
        import torch

        heads = rearrange(x, "(h c) ... -> h c ...", c=self.head_dim)
        turned = self.head_dim if self.rotated is None else self.rotated
        if turned % 2:
            raise ValueError(
                f"{turned} channels of a head cannot be turned in pairs; an even number can"
            )
        first = heads[: self.heads]
        rest = heads[len(heads) if self.heads is None else self.heads :]
        first = torch.cat([rearrange(first[:, :turned], pattern, two=2), first[:, turned:]], dim=1)
        return rearrange(torch.cat([first, rest]), "h c ... -> (h c) ...")


class Negated:
    """Numbers of the other sign."""

    def read(self, x: Tensor, /) -> Tensor:
        """-x."""
        return -x

    write = read


class Transposed:
    """A weight that stands as [i o] (`Conv1D` of transformers); a bias stays as it is."""

    def read(self, x: Tensor, /) -> Tensor:
        """[o i] from [i o]."""
        return rearrange(x, "i o -> o i") if x.ndim == 2 else x

    write = read


@dataclass(frozen=True)
class Entry:
    """One entry of the first axis; rows of `changes` in the order of their entries write them all."""

    index: int

    def read(self, x: Tensor, /) -> Tensor:
        """The entry."""
        return x[self.index]

    def write(self, x: Tensor, /) -> Tensor:
        """The entry."""
        return x


@dataclass(frozen=True)
class Half:
    """One of two things that each head of a projection has, one after the other: rows [(h two c) ...].

    Two rows of a table read the two, and `write` adds what they write: x + (-0) is x to the last bit.
    change: of the one.
    """

    index: int
    channels: int
    change: Change | None = None

    def read(self, x: Tensor, /) -> Tensor:
        """[(h c) ...] of one."""
        both = rearrange(x, "(h two c) ... -> two (h c) ...", two=2, c=self.channels)
        return both[self.index] if self.change is None else self.change.read(both[self.index])

    def write(self, x: Tensor, /) -> Tensor:
        """Both, of which the other is -0."""
        if self.change is not None:
            x = self.change.write(x)
        both = x.new_full((2, *x.shape), -0.0)
        both[self.index] = x
        return rearrange(both, "two (h c) ... -> (h two c) ...", c=self.channels)


@dataclass(frozen=True)
class Permuted:
    """Rows in another order. order: [o], the row there of each of ours."""

    order: Tensor

    def read(self, x: Tensor, /) -> Tensor:
        """Our order."""
        return x[self.order]

    def write(self, x: Tensor, /) -> Tensor:
        """Their order."""
        return x[self.order.argsort()]


@dataclass(frozen=True)
class Rearranged:
    """An einops pattern of axes from theirs to ours, `theirs -> ours`, with the sizes that it needs."""

    pattern: str
    sizes: Mapping[str, int]

    def read(self, x: Tensor, /) -> Tensor:
        """Our axes from theirs."""
        return rearrange(x, self.pattern, **self.sizes)

    def write(self, x: Tensor, /) -> Tensor:
        """Their axes from ours."""
        theirs, ours = self.pattern.split("->")
        return rearrange(x, f"{ours} -> {theirs}", **self.sizes)


@dataclass(frozen=True)
class Row:
    """A tensor of ours from one or several of theirs, side by side along the first axis.

    ours: its name. theirs: their names; an empty one stands for the bias of keys that have none there: softmax ignores
    it, so zeros are read, and it is dropped as it is written. changes: of each of theirs before they are joined; None:
    none of it. sizes: rows of each of theirs after that; None: equal ones. whole: of the joined tensor. may_miss: True:
    neither side needs to have it. zeros: so many zeros are read where they do not have it; None: it is an error.
    is_alias: True: a second name of theirs, which is compared and not written.
    """

    ours: str
    theirs: tuple[str, ...]
    sizes: tuple[int, ...] | None = None
    changes: tuple[Change | None, ...] = ()
    whole: Change | None = None
    may_miss: bool = False
    is_alias: bool = False
    zeros: int | None = None

    def is_in(self, names: Collection[str]) -> bool:
        """Whether a file of these names has the tensor. Raises KeyError with the name of one that it has to have."""
        given = [name for name in self.theirs if name in names]
        if not given and (self.may_miss or self.zeros is not None):
            return self.zeros is not None
        if missing := [name for name in self.theirs if name and name not in names]:
            raise KeyError(missing[0])
        return True

    def read(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Our tensor, from a file that has it (`is_in`). Raises ValueError or RuntimeError for other sizes."""
        import torch

        if self.zeros is not None and not any(name in weights for name in self.theirs):
            return torch.zeros(self.zeros)
        given = [weights[name] for name in self.theirs if name]
        if not all(self.theirs):
            assert self.sizes is not None
            rest = iter(given)
            given = [
                next(rest) if name else given[0].new_zeros(size, *given[0].shape[1:])
                for name, size in zip(self.theirs, self.sizes)
            ]
        parts = [
            x if change is None else change.read(x) for x, change in zip(given, self._changes())
        ]
        if self.sizes is not None:
            for name, x, size in zip(self.theirs, parts, self.sizes):
                if len(x) != size:
                    raise ValueError(f"{name} has {len(x)} rows in place of {size}")
        joined = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.whole is None:
            return joined
        return self.whole.read(joined)

    def write(self, x: Tensor) -> dict[str, Tensor]:
        """Their tensors by name."""
        x = x if self.whole is None else self.whole.write(x)
        if len(self.theirs) == 1:
            parts = [x]
        else:
            parts = list(x.split(self.sizes or -(-len(x) // len(self.theirs))))
        found = {}
        for name, part, change in zip(self.theirs, parts, self._changes(), strict=True):
            if name:
                found[name] = (part if change is None else change.write(part)).contiguous()
        return found

    @property
    def is_half(self) -> bool:
        """Whether another row has the rest of one of their tensors."""
        return any(isinstance(change, Half) for change in self.changes)

    def _changes(self) -> Sequence[Change | None]:
        return self.changes or (None,) * len(self.theirs)


Rows = list[Row]


def tensor(ours: str, *theirs: str, whole: Change | None = None, may_miss: bool = False) -> Rows:
    """The row of a tensor that is no weight or bias of a module, such as a table of positions."""
    return [Row(ours, theirs, whole=whole, may_miss=may_miss)]


def module(
    ours: str,
    *theirs: str,
    sizes: tuple[int, ...] | None = None,
    changes: tuple[Change | None, ...] = (),
    whole: Change | None = None,
    without_bias: Collection[str] = (),
) -> Rows:
    """Rows of the weight and the bias of a module, as far as they are there.

    without_bias: keys of theirs that have no bias beside queries and values that have one.
    """
    weight = Row(
        f"{ours}.weight",
        tuple(f"{name}.weight" for name in theirs),
        sizes,
        changes,
        whole,
        may_miss=True,
    )
    biases = tuple("" if name in without_bias else f"{name}.bias" for name in theirs)
    return [weight, replace(weight, ours=f"{ours}.bias", theirs=biases)]


def modules(names: Mapping[str, str | tuple[str, ...]]) -> Rows:
    """Rows of modules that are alike in both: by our names theirs, of one or of several side by side."""
    given = {ours: (own,) if isinstance(own, str) else own for ours, own in names.items()}
    return [row for ours, theirs in given.items() for row in module(ours, *theirs)]


def alias(ours: str, theirs: str) -> Rows:
    """The row of a second name in their files, such as that of a tied head."""
    return [Row(ours, (theirs,), may_miss=True, is_alias=True)]


def below(rows: Rows, ours: str, theirs: str) -> Rows:
    """Rows of modules inside others. ours, theirs: what their names begin with."""
    return [
        replace(
            row,
            ours=ours + row.ours,
            theirs=tuple(theirs + name if name else "" for name in row.theirs),
        )
        for row in rows
    ]


def layers(depth: int, ours: str, theirs: str, rows: Rows) -> Rows:
    """The rows of each of so many layers. ours, theirs: what their names begin with, with {} for the number."""
    return [row for i in range(depth) for row in below(rows, ours.format(i), theirs.format(i))]


def write(table: Rows, weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], set[str]]:
    """Their tensors by name, and the names of ours that were written.

    Raises KeyError with the name of one of ours that is missing; ValueError where two of ours that are one tensor of
    theirs differ.
    """
    import torch

    found: dict[str, Tensor] = {}
    entries: dict[str, list[Tensor]] = {}
    written: set[str] = set()
    for row in table:
        if row.is_alias or (row.may_miss and row.ours not in weights):
            continue
        for name, x in row.write(weights[row.ours]).items():
            if any(isinstance(change, Entry) for change in row.changes):
                entries.setdefault(name, []).append(x)
                continue
            if name in found and row.is_half:
                x = found[name] + x
            elif name in found and not x.equal(found[name]):
                raise ValueError(f"{row.ours} differs from the other tensor that is {name} there")
            found[name] = x
        written.add(row.ours)
    return {**found, **{name: torch.stack(parts) for name, parts in entries.items()}}, written
