"""Raw examples that are changed at one place, and the share of such changes that a tokenizer reads.

A raw example may be a text, a number, a tensor, an array, a recording or a graph, or a list, a tuple, a mapping, a
NamedTuple or a dataclass of these, nested in any way.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import decimal
import enum
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqkit.interfaces import Tokenizer, Tokens
from seqkit.raw import GraphData, Waveform
from seqkit.testing.checks import NotCheckedError
from seqkit.testing.encoded import difference
from seqkit.tokenizers.join import Join

NUM_PLACES = 100
"""Number of places in the raw examples that are changed, about."""

NUM_OTHERS = 4
"""Number of other characters or numbers that are put into a place, at most, until one changes the tokens."""

MAX_COLUMNS = 16
"""Number of values, at most, of which a tuple of equal length in all examples is a row with columns, and not a sequence
of any length."""

MAX_SLICES = 8
"""Size of an axis, at most, that is one of channels or columns if it has that size in all examples; a list in a list is
a row up to this length."""

VALUES = (
    bool,
    int,
    float,
    complex,
    bytes,
    type(None),
    decimal.Decimal,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    enum.Enum,
    np.generic,
)
"""Types of single values, which another value of the same field may replace."""

Path = tuple[Any, ...]
"""Keys, names and indices that lead to a value in a raw example."""

Field = tuple[str, ...]
"""The path as the examples share it: all elements of a sequence are one field, and columns of rows are several."""


class Place(NamedTuple):
    """A place in a raw example that was changed.

    field: the field that it is in. is_slice: whether it was all of a channel. is_read: whether its changes changed the
    tokens.
    """

    field: Field
    is_slice: bool
    is_read: bool


def share_read(tokenizer: Tokenizer, raws: Sequence[Any]) -> float | None:
    """Share of the places in raw examples at which every kind of change that `encode` accepts changes the tokens.

    Places are drawn at random, always the same. Returns None if no place can be changed. A key of a mapping of which
    nothing is read does not count, since data may have more columns than a model should see.
    """
    try:
        places = tried_places(tokenizer, raws)
    except NotCheckedError:
        return None
    unread_keys = {field[:1] for field in _unread(places, lambda field: field[:1])} if _are_mappings(raws) else set()
    read = [place.is_read for place in places if not place.is_slice and place.field[:1] not in unread_keys]
    return sum(read) / len(read) if read else None


def unread_fields(places: Sequence[Place]) -> list[str]:
    """The fields of which no change changes the tokens, as a reader would write them: `raw[…][2]`, `raw['time']`."""
    return ["raw" + "".join(field) for field in _unread(places, lambda field: field) if field]


def _unread(places: Sequence[Place], of: Callable[[Field], Field]) -> list[Field]:
    read = defaultdict(list)
    for place in places:
        read[of(place.field)].append(place.is_read)
    return [field for field, found in read.items() if not any(found)]


def _are_mappings(raws: Sequence[Any]) -> bool:
    return all(isinstance(raw, Mapping) for raw in raws)


def tried_places(tokenizer: Tokenizer, raws: Sequence[Any]) -> list[Place]:
    """Places in raw examples that were changed, so that `encode` accepts it, and whether it reads them.

    Raises NotCheckedError with the reason if there is none.
    """
    generator, places, can_change = random.Random(0), [], False  # noqa: S311  draws places, no secrets
    values = _Values(raws, has_parts=isinstance(tokenizer, Join))
    for raw, leaves in zip(raws, values.leaves, strict=True):
        tokens = copy.deepcopy(tokenizer.encode(raw))
        for field, is_slice, kinds in values.changed(raw, leaves, -(-NUM_PLACES // len(raws)), generator):
            can_change = can_change or any(map(bool, kinds))
            found = [_is_read(tokenizer, changed, tokens) for changed in kinds]
            is_read = [one for one in found if one is not None]
            if is_read:
                places.append(Place(field, is_slice, all(is_read)))
    if not places and can_change:
        raise NotCheckedError("encode refuses every change of the examples")
    if not places:
        types = ", ".join(sorted({type(raw).__name__ for raw in raws}))
        raise NotCheckedError(f"the examples ({types}) hold no text or numbers that it knows how to change")
    return places


def _is_read(tokenizer: Tokenizer, changed: Sequence[Any], tokens: Tokens) -> bool | None:
    """Whether one of these changes of a place, all of one kind, changes the tokens; None if `encode` accepts none."""
    is_accepted = False
    for other in changed:
        try:
            differs = difference(tokenizer.encode(other), tokens) is not None
        except Exception:  # noqa: S112  the change made it no example, such as an open ring in a SMILES
            continue
        if differs:
            return True
        is_accepted = True
    return False if is_accepted else None


class _Values:
    """The values in raw examples that can be changed.

    leaves: for each raw example, its values by path and field. has_parts: whether it may be a list of pairs, of a name
    that stays and of what it names.
    """

    def __init__(self, raws: Sequence[Any], *, has_parts: bool = False):
        self.has_parts = has_parts
        self.lengths: dict[Field, set[int]] = defaultdict(set)
        for raw in raws:
            for _ in self._walk(raw):  # notes the lengths of sequences, which say whether they are rows
                pass
        self.leaves = [list(self._walk(raw)) for raw in raws]
        self.shapes: dict[Field, set[tuple[int, ...]]] = defaultdict(set)
        self.column: dict[Field, list[Any]] = defaultdict(list)
        for _, field, value in itertools.chain(*self.leaves):
            if isinstance(value, Tensor):
                self.shapes[field].add(tuple(value.shape))
            elif isinstance(value, (str, *VALUES)):
                self.column[field].append(value)

    def _walk(
        self, value: Any, path: Path = (), field: Field = (), kind: Field = (), above: tuple[int, ...] = ()
    ) -> Iterator[tuple[Path, Field, Any]]:
        """Path, field and value of all that can be changed in a raw example. kind: the field without columns."""
        if id(value) in above:
            return  # it holds itself
        if isinstance(value, (str, Waveform, GraphData, Tensor, *VALUES)):
            yield path, field, value
            return
        if isinstance(value, np.ndarray) and value.dtype.names is None and value.dtype.kind in _WIDE:
            yield path, field, torch.from_numpy(value.astype(_WIDE[value.dtype.kind]))
            return
        is_sequence = isinstance(value, tuple | MutableSequence) and not hasattr(value, "_fields")
        if is_sequence:
            self.lengths[kind].add(len(value))
        most = MAX_COLUMNS if isinstance(value, tuple) else MAX_SLICES if field else 0
        is_row = is_sequence and len(self.lengths[kind]) == 1 and 2 <= len(value) <= most
        for steps, name, inner in self._inside(value, is_outermost=not path):
            own = f"[{steps[0]}]" if name == _EACH and is_row else name
            yield from self._walk(inner, (*path, *steps), (*field, own), (*kind, name), (*above, id(value)))

    def _inside(self, value: Any, *, is_outermost: bool) -> Iterable[tuple[Path, str, Any]]:
        """Steps to each value inside one, its name in the field, and the value."""
        if isinstance(value, Mapping):
            return [((key,), f"[{key!r}]", inner) for key, inner in value.items()]
        if isinstance(value, np.ndarray):
            if value.dtype.names is not None:
                return [((name,), f"[{name!r}]", value[name]) for name in value.dtype.names]
            return [((index,), _EACH, value[index]) for index in np.ndindex(value.shape)] if value.shape else []
        names: Sequence[str] = getattr(value, "_fields", ()) if isinstance(value, tuple) else ()
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [each.name for each in dataclasses.fields(value) if each.init and hasattr(value, each.name)]
        if names:
            return [((name,), f".{name}", getattr(value, name)) for name in names]
        if not isinstance(value, tuple | MutableSequence) or isinstance(value, bytearray):
            return []
        if self.has_parts and is_outermost:
            return [((i, 1), f"[{name!r}]", inner) for i, (name, inner) in enumerate(value)]
        return [((i,), _EACH, inner) for i, inner in enumerate(value)]

    def changed(
        self, raw: Any, leaves: Sequence[tuple[Path, Field, Any]], num_places: int, generator: random.Random
    ) -> Iterator[tuple[Field, bool, list[list[Any]]]]:
        """Field of some places, whether it is all of a channel, and the raw example with kinds of changes there."""
        by_field: dict[Field, list[tuple[Path, Any]]] = defaultdict(list)
        for path, field, value in leaves:
            by_field[field].append((path, value))
        if len(leaves) > 1:
            for some in by_field.values():
                generator.shuffle(some)
        turns = itertools.zip_longest(*([(field, *one) for one in some] for field, some in by_field.items()))
        chosen = list(itertools.islice((one for turn in turns for one in turn if one is not None), num_places))
        for field, path, value in chosen:
            column = self.column[field] if path else ()
            for kinds in _changed_at_places(value, -(-num_places // len(chosen)), generator, column):
                yield field, False, [_with_each(raw, path, kind) for kind in kinds]
            if isinstance(value, Tensor):
                for index, kind in _changed_slices(value, self.shapes[field], generator):
                    yield (*field, index), True, [_with_each(raw, path, kind)]


_EACH = "[…]"
"""Name of each element of a sequence of any length."""

_WIDE = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
"""Type in which numbers of an array are changed, by the kind of its own."""


def _with_each(raw: Any, path: Path, values: Iterable[Any]) -> list[Any]:
    """The raw example with each of the values at a path; those that its own classes refuse are left out."""
    made = []
    for value in values:
        with contextlib.suppress(Exception):
            made.append(_with(raw, path, value))
    return made


def _with(raw: Any, path: Path, value: Any) -> Any:
    """A copy of a raw example with another value at a path."""
    if not path:
        return value.numpy().astype(raw.dtype) if isinstance(raw, np.ndarray) else value
    step, rest = path[0], path[1:]
    if isinstance(raw, tuple) and hasattr(raw, "_fields"):
        named: Any = raw
        return named._replace(**{step: _with(getattr(raw, step), rest, value)})
    if isinstance(raw, tuple):
        return type(raw)((*raw[:step], _with(raw[step], rest, value), *raw[step + 1 :]))
    if dataclasses.is_dataclass(raw) and not isinstance(raw, type):
        return replace(raw, **{step: _with(getattr(raw, step), rest, value)})
    made: Any = copy.copy(raw)
    made[step] = _with(raw[step], rest, value)
    return made


def _changed_at_places(
    raw: Any, num_places: int, generator: random.Random, column: Sequence[Any] = ()
) -> Iterator[list[list[Any]]]:
    """Copies of a value that are changed at one place, for each of some places: the kinds of change, and of each a
    few, since a tokenizer may take some letters or numbers for one (an alphabet of two, black or white).

    A text loses a character, loses a word, or gets another character of its own: a filter of characters shows by the
    first, a filter of words by the second, and a rule by position by the third. Numbers change in a twentieth of them.
    column: values of the same field, which may replace a single value or word.
    """
    if isinstance(raw, str):
        places = [i for i, character in enumerate(raw) if not character.isspace()]
        is_name = bool(column) and len(raw.split()) < 2
        for i in generator.sample(places, min(num_places, len(places))):
            before, after = raw[:i], raw[i + 1 :]
            letters = sorted({c for c in raw if not c.isspace() and c.casefold() != raw[i].casefold()})
            start, end = len(before) - len(_first_word(before[::-1])), i + 1 + len(_first_word(after))
            others = generator.sample(letters, min(NUM_OTHERS, len(letters)))
            texts = [[before + after], [raw[:start] + raw[end:].lstrip()], [before + c + after for c in others]]
            kinds: list[list[Any]] = [[text for text in changed if text.strip()] for changed in texts]
            # what stands for a category may be known or not, which is one kind of change
            yield [[*_others(raw, column, generator), *itertools.chain(*kinds)]] if is_name else kinds
        if not places:
            yield [_others(raw, column, generator)]
    elif isinstance(raw, Waveform):
        for kinds in _changed_at_places(raw.samples, num_places, generator):
            yield [[raw._replace(samples=samples) for samples in changed] for changed in kinds]
    elif isinstance(raw, GraphData):
        for kinds in _changed_at_places(raw.nodes, num_places, generator):
            yield [[replace(raw, nodes=nodes) for nodes in changed] for changed in kinds]
    elif isinstance(raw, Tensor):
        if raw.layout is torch.strided and raw.numel():
            yield from _changed_numbers(raw, num_places, generator)
    else:
        yield [_others(raw, column, generator) + _near(raw)]


def _changed_numbers(raw: Tensor, num_places: int, generator: random.Random) -> Iterator[list[list[Tensor]]]:
    """Copies of a tensor in which a twentieth of the numbers, or one id, is another."""
    is_float, numbers = raw.is_floating_point(), raw.flatten()
    length = max(1, len(numbers) // 20) if is_float else 1
    for _ in range(num_places):
        i = generator.randrange(len(numbers) - length + 1)
        here = numbers[i : i + length]
        if is_float:
            known = here.nan_to_num()  # what is missing is a place, too
            values = [0.5 * known + 0.2, 0.9 - 0.8 * known]  # stay between 0 and 1, and the first between -1 and 1
            starts = [generator.randrange(len(numbers) - length + 1) for _ in range(NUM_OTHERS)]
            values += [numbers[start : start + length] for start in starts]
        elif len(different := numbers[numbers != here]):
            values = [different[generator.randrange(len(different))][None] for _ in range(NUM_OTHERS)]
        else:
            values = [~here] if here.dtype == torch.bool else [here + 1, here - 1]
        yield [[torch.cat([numbers[:i], value, numbers[i + length :]]).reshape(raw.shape) for value in values]]


def _changed_slices(
    raw: Tensor, shapes: Iterable[tuple[int, ...]], generator: random.Random
) -> Iterator[tuple[str, list[Tensor]]]:
    """Copies of a tensor in which all of a channel changes: an index of an axis that is short, and as long in all."""
    if raw.layout is not torch.strided or raw.is_complex() or not raw.numel():
        return
    for axis in range(raw.ndim) if raw.ndim > 1 and len({len(shape) for shape in shapes}) == 1 else ():
        if not 2 <= raw.shape[axis] <= MAX_SLICES or len({shape[axis] for shape in shapes}) > 1:
            continue
        for index in range(raw.shape[axis]):
            at: Any = (*[slice(None)] * axis, index)
            here, numbers = raw[at], raw.flatten()
            drawn = [torch.tensor(generator.choices(range(len(numbers)), k=here.numel())) for _ in range(NUM_OTHERS)]
            values = [here.flatten().roll(1).reshape(here.shape)]
            values += [numbers[places].reshape(here.shape) for places in drawn]
            if raw.is_floating_point():
                values = [0.5 * here.nan_to_num() + 0.2, 0.9 - 0.8 * here.nan_to_num(), *values]
            made = [raw.clone() for _ in values]
            for one, value in zip(made, values, strict=True):
                one[at] = value
            yield f"[{', '.join([':'] * axis + [str(index)])}]", [one for one in made if not one.equal(raw)]


def _others(value: Any, column: Sequence[Any], generator: random.Random) -> list[Any]:
    """A few other values of the same field."""
    different = [other for other in column if type(other) is not type(value) or bool(other != value)]
    return generator.sample(different, min(NUM_OTHERS, len(different)))


def _near(value: Any) -> list[Any]:
    """Other values that no example needs to have."""
    if isinstance(value, enum.Enum | np.timedelta64):
        return []
    if isinstance(value, bool | np.bool_):
        return [not value]
    if isinstance(value, bytes):
        return [value[:-1], value[1:]] if len(value) > 1 else []
    if isinstance(value, int | np.integer):
        steps = (1, -1) if value else (1,)
        with contextlib.suppress(OverflowError):
            return [type(value)(int(value) + step) for step in steps]
    if isinstance(value, float | np.floating):
        known = 0.0 if value != value else float(value)
        return [type(value)(other) for other in (0.5 * known + 0.2, 0.9 - 0.8 * known, known + 1.0, 2.0 * known)]
    return []


def _first_word(text: str) -> str:
    return "" if text[:1].isspace() else next(iter(text.split(maxsplit=1)), "")
