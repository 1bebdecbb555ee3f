"""Raw examples that are changed at one place, and the share of such changes that a tokenizer reads.

A raw example may be a text, bytes, a number, a tensor or array, a recording or a graph, or a list, a mapping or a
dataclass of these.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqkit.interfaces import Tokenizer
from seqkit.raw import GraphData, Waveform
from seqkit.testing.encoded import difference

NUM_PLACES = 100
"""Number of places in the raw examples that are changed, about."""

NUM_OTHERS = 4
"""Number of other characters or numbers that are put into a place, at most, until one changes the tokens."""

MAX_CHANNELS = 8
"""Size of an axis, at most, that is one of channels or columns if it has that size in all examples."""

VALUES = (bool, int, float, bytes, type(None), datetime.date, np.generic)
"""Types of single values, which another value of the same field may replace."""

WIDE = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
"""Type in which numbers of an array are changed, by the kind of its own."""

Path = tuple[Any, ...]
"""Keys, names and indices that lead to a value in a raw example."""

Field = tuple[str, ...]
"""The path as the examples share it: all elements of a list are one field."""


Read = dict[Field, list[bool]]
"""Whether each of the changes in a field changed the tokens."""


def share_read(tokenizer: Tokenizer, raws: Sequence[Any]) -> float | None:
    """Share of the places in raw examples at which every kind of change that `encode` accepts changes the tokens.

    Places are drawn at random, always the same. Returns None if no place can be changed. A key of a mapping of which
    nothing is read does not count, since data may have more columns than a model should see.
    """
    by_key: Read = defaultdict(list)
    for field, found in tried_places(tokenizer, raws).items():
        by_key[field[:1]] += found
    if all(isinstance(raw, Mapping) for raw in raws):
        return share_of(found for found in by_key.values() if any(found))
    return share_of(by_key.values())


def share_of(found: Iterable[list[bool]]) -> float | None:
    """Share of what is True in all lists; None where they are empty."""
    read = list(itertools.chain(*found))
    return sum(read) / len(read) if read else None


def unread_fields(places: Read) -> list[str]:
    """The fields of which no change changes the tokens, as a reader would write them: `raw['time']`, `raw[:, 2]`."""
    return [
        "raw" + "".join(field) for field, is_read in places.items() if field and not any(is_read)
    ]


def tried_places(tokenizer: Tokenizer, raws: Sequence[Any]) -> Read:
    """Places in raw examples that were changed so that `encode` accepts it, and whether it reads them."""
    generator = random.Random(0)  # noqa: S311  draws places, no secrets
    places: Read = defaultdict(list)
    inside = [list(leaves(raw)) for raw in raws]
    columns: dict[Field, list[Any]] = defaultdict(list)
    for _, field, value in itertools.chain(*inside):
        columns[field].append(value)
    for raw, own in zip(raws, inside, strict=True):
        tokens = copy.deepcopy(tokenizer.encode(raw))
        num_places = -(-NUM_PLACES // len(raws))
        chosen = generator.sample(own, min(num_places, len(own)))
        for path, field, value in chosen:
            column = columns[field] if field or isinstance(value, Tensor) else ()
            for channel, kinds in _changed(value, column, -(-num_places // len(chosen)), generator):
                found = [_is_read(tokenizer, raw, path, values, tokens) for values in kinds]
                if any(is_read is not None for is_read in found):
                    places[(*field, channel) if channel else field].append(False not in found)
    return places


def _is_read(
    tokenizer: Tokenizer, raw: Any, path: Path, values: Sequence[Any], tokens: Any
) -> bool | None:
    """Whether one of the values at a path, all of one kind, changes the tokens; None if `encode` accepts none."""
    is_accepted = False
    for value in values:
        # the change made it no example, such as an open ring in a SMILES
        with contextlib.suppress(Exception):
            if difference(tokenizer.encode(with_value(raw, path, value)), tokens) is not None:
                return True
            is_accepted = True
    if is_accepted:
        return False
    return None


def leaves(value: Any, path: Path = (), field: Field = ()) -> Iterator[tuple[Path, Field, Any]]:
    """Path, field and value of all that can be changed in a raw example."""
    if isinstance(value, np.ndarray) and value.dtype.kind in WIDE:
        value = torch.from_numpy(value.astype(WIDE[value.dtype.kind]))
    inside: list[tuple[Any, str, Any]] = []
    if isinstance(value, (str, *VALUES)):
        yield path, field, value
    elif isinstance(value, Tensor):
        if value.layout is torch.strided and value.numel():
            yield path, field, value
    elif isinstance(value, Waveform | GraphData):
        name = "samples" if isinstance(value, Waveform) else "nodes"
        yield from leaves(getattr(value, name), (*path, name), field)
    elif isinstance(value, Mapping):
        inside = [(key, f"[{key!r}]", inner) for key, inner in value.items()]
    elif dataclasses.is_dataclass(value):
        inside = [(x.name, f".{x.name}", getattr(value, x.name)) for x in dataclasses.fields(value)]
    elif isinstance(value, list | tuple):
        inside = [(i, "[…]", inner) for i, inner in enumerate(value)]
    for step, name, inner in inside:
        yield from leaves(inner, (*path, step), (*field, name))


def with_value(raw: Any, path: Path, value: Any) -> Any:
    """A copy of a raw example with another value at a path."""
    if not path:
        if isinstance(raw, np.ndarray):
            return value.numpy().astype(raw.dtype)
        return value
    step = path[0]
    rest = path[1:]
    if isinstance(raw, Waveform):
        return raw._replace(samples=value)
    if dataclasses.is_dataclass(raw) and not isinstance(raw, type):
        return dataclasses.replace(raw, **{step: with_value(getattr(raw, step), rest, value)})
    if isinstance(raw, tuple):
        return (*raw[:step], with_value(raw[step], rest, value), *raw[step + 1 :])
    made = copy.copy(raw)
    made[step] = with_value(raw[step], rest, value)
    return made


def _changed(
    value: Any, column: Sequence[Any], num_places: int, generator: random.Random
) -> Iterator[tuple[str, list[list[Any]]]]:
    """Values that are changed at one place, for each of some places: the channel, and the kinds of change, and of each
    a few, since a tokenizer may take some letters or numbers for one (an alphabet of two, black or white).

    column: values of the same field, which may replace a single value or word.
    """
    if isinstance(value, Tensor):
        yield from _changed_numbers(value, column, num_places, generator)
        return
    others = [other for other in column if type(other) is not type(value) or bool(other != value)]
    others = generator.sample(others, min(NUM_OTHERS, len(others)))
    if not isinstance(value, str):
        yield "", [others + _near(value)]
    elif column and len(value.split()) < 2:  # a category, known or not: one kind of change
        for kinds in _changed_text(value, 1, generator):
            others += itertools.chain(*kinds)
        yield "", [others]
    else:
        for kinds in _changed_text(value, num_places, generator):
            yield "", kinds


def _changed_text(
    text: str, num_places: int, generator: random.Random
) -> Iterator[list[list[str]]]:
    """A text that loses a character, loses a word, or gets another character of its own: a filter of characters shows
    by the first, a filter of words by the second, and a rule by position by the third."""
    places = [i for i, character in enumerate(text) if not character.isspace()]
    for i in generator.sample(places, min(num_places, len(places))):
        before = text[:i]
        after = text[i + 1 :]
        letters = sorted(
            {c for c in text if not c.isspace() and c.casefold() != text[i].casefold()}
        )
        start = max(before.rfind(" "), before.rfind("\n")) + 1
        end = min(at for at in (text.find(" ", i), text.find("\n", i), len(text)) if at >= 0)
        others = generator.sample(letters, min(NUM_OTHERS, len(letters)))
        texts = [
            [before + after],
            [text[:start] + text[end:].lstrip()],
            [before + c + after for c in others],
        ]
        yield [[one for one in kind if one.strip()] for kind in texts]


def _near(value: Any) -> list[Any]:
    """Other values that no example needs to have."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, bytes):
        return [value[:-1], value[1:]] if len(value) > 1 else []
    if isinstance(value, int | np.integer):
        steps = (1, -1) if value else (1,)
        return [type(value)(int(value) + step) for step in steps]
    if isinstance(value, float | np.floating):
        known = float(np.nan_to_num(value))
        return [
            type(value)(other)
            for other in (0.5 * known + 0.2, 0.9 - 0.8 * known, known + 1.0, 2.0 * known)
        ]
    return []


def _changed_numbers(
    raw: Tensor, column: Sequence[Any], num_places: int, generator: random.Random
) -> Iterator[tuple[str, list[list[Tensor]]]]:
    """Name of a channel, and copies of a tensor in which a twentieth of the numbers there, or one id, is another.

    A channel is an index of the shortest axis, if it is short, and as long in all examples.
    """
    is_float = raw.is_floating_point()
    shapes = [tuple(getattr(x, "shape", ())) for x in column]
    axes = [
        axis
        for axis, n in enumerate(raw.shape)
        if raw.ndim > 1
        and 2 <= n <= MAX_CHANNELS
        and all(x[axis : axis + 1] == (n,) for x in shapes)
    ]
    for _ in range(num_places):
        name = ""
        at: Any = ()
        if axes:
            axis = min(axes, key=lambda axis: raw.shape[axis])
            index = generator.randrange(raw.shape[axis])
            name = f"[{', '.join([':'] * axis + [str(index)])}]"
            at = (*[slice(None)] * axis, index)
        numbers = raw[at].flatten()
        others = raw.flatten()
        length = max(1, len(numbers) // 20) if is_float else 1
        i = generator.randrange(len(numbers) - length + 1)
        here = numbers[i : i + length]
        known = here.nan_to_num()  # what is missing is a place, too
        # stay between 0 and 1, and the first between -1 and 1
        if is_float:
            values = [0.5 * known + 0.2, 0.9 - 0.8 * known]
        elif here.dtype == torch.bool:
            values = [~here]
        else:
            values = [known + 1, known - 1]
        for _ in range(NUM_OTHERS):
            values.append(others[generator.randrange(len(others) - length + 1) :][:length])
        made = []
        for value in values:
            if not value.equal(here):
                one = raw.clone()
                changed = torch.cat([numbers[:i], value, numbers[i + length :]])
                one[at] = changed.reshape(raw[at].shape)
                made.append(one)
        yield name, [made]
