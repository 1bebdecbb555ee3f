"""Cautions about a table's rows: copies, inputs that tell the target, times and groups that a split mixes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from seqkit.data.kinds import OF_CELLS
from seqkit.data.leaks import OF_GROUPS, mixed, ranks, tell_leaks, tells
from seqkit.data.notes import Caution, listed
from seqkit.data.sample import Samples
from seqkit.data.spellings import alike
from seqkit.data.tables.cells import is_missing
from seqkit.data.tables.examples import UsableRows, read_cells
from seqkit.data.tables.infer import OF_YEARS
from seqkit.data.tables.schema import (
    Column,
    Schema,
    option,
)

Say = Callable[[str], None]


def tell_equal_inputs(
    found: dict[str, Samples],
    keys: dict[str, list[Hashable]],
    schema: Schema,
    say: Say,
    *,
    is_given: bool,
) -> None:
    """Say how many inputs of test are in training, and how many equal inputs have other targets.

    is_given: whether the user has said which rows stay together, or which are test.
    """
    inputs = schema.inputs
    if len(inputs) == 1 and inputs[0].kind in OF_CELLS:
        return  # equal numbers or categories are no copies
    keep = "take them out of one of them"
    if not (is_given or schema.steps):
        every = [key for each in keys.values() for key in each]
        num_values = [len({*values}) for values in zip(*every)]
        finest = inputs[num_values.index(max(num_values))]
        is_cell = finest.kind in OF_CELLS
        if not is_cell or 2 * max(num_values) > len(every):
            keep += f", or keep them together: {option('group', finest.name)}"
        if is_cell and "together" in keep:  # as a group alone it would be no input
            keep += f" {option('columns', {finest.name: finest.kind})}"
    tell_leaks(schema.name, found, keys, keep, say)


def tell_telling_inputs(train: UsableRows, say: Say) -> None:
    """Say which inputs tell the target by themselves, as a code, an outcome or a value in other units do."""
    schema = train.schema
    if len(schema.inputs) < 2 or schema.target_kind == "none":
        return
    target = listed([one.name for one in schema.targets])
    targets = [*map(repr, train.labels)]
    numbers: list[Sequence[float]] = []
    if schema.target_kind == "numbers":
        numbers = [*zip(*(x if isinstance(x, list) else [x] for x in train.labels))]
    for column in schema.inputs:
        values = [train.examples.values[column.name][row] for row in train.indices]
        if column.kind in (*OF_CELLS, "text") and tells(values, targets):
            what = f"alone tells {target}"
        elif column.kind in ("number", "date") and any(ranks(values, one) for one in numbers):
            what = f"grows or falls with {target}, as a copy in other units does,"
        else:
            continue
        way = option("columns", {column.name: "unused"})
        what = f"{column.name!r} {what} in all {len(train):,} rows"
        say(Caution(f"{train.rows.name}: {what}; if it is not known before the target: {way}"))


def tell_chance(
    train: UsableRows, rest: Sequence[int], aside: Sequence[int], say: Say, *, has_groups: bool
) -> None:
    """Say what a split at random mixes: rows of one thing, and earlier rows with later ones.

    rest, aside: indices of training and of test. has_groups: whether rows of one group stay together.
    """
    table = train.rows.name
    for column in train.schema.columns:
        cells = train.rows.columns.get(column.name, ())
        is_time = column.kind == "date" or column.name.lower() in OF_YEARS
        is_group = not has_groups and OF_GROUPS.fullmatch(column.name.strip())
        if column.role not in ("input", "unused") or not (is_time or is_group) or not cells:
            continue
        known, asked = ([cells[train.indices[i]] for i in part] for part in (rest, aside))
        if is_time and (said := _mixed_times(column, known, asked)):
            say(f"{table}: {said}")
        if is_group and (said := _mixed_groups(column.name, known, asked)):
            say(Caution(f"{table}: {said}"))


def tell_spellings(train: UsableRows, say: Say) -> None:
    """Say which categories of an input look alike."""
    for column in train.schema.inputs:
        if column.kind == "category":
            values = train.examples.values[column.name]
            counts = Counter(values[row] for row in train.indices if values[row] is not None)
            if said := alike(counts):
                say(f"{train.rows.name}: categories of {column.name}: {said}")


def _mixed_times(column: Column, known: Sequence[Any], asked: Sequence[Any]) -> str:
    """Says how many cells of test are before the last one of training; empty: none is."""
    times = []
    for cells in (known, asked):
        read, _ = read_cells(cells, column.read)
        times.append([value for value in read if isinstance(value, float)])
    latest = max(times[0], default=-math.inf)
    early = sum(value < latest for value in times[1])
    if not early:
        return ""
    what = f"{early:,} of {len(asked):,} test rows are not after training by {column.name!r}"
    way = "add a column, such as split, that says train or test, and give --data.split split"
    return f"{what}, as they are drawn at random; to test on later rows, {way}"


def _mixed_groups(name: str, known: Sequence[Any], asked: Sequence[Any]) -> str:
    """Says how many filled cells of test stand in training, too; empty: none does, or most differ."""
    trained, tested = (
        [str(cell) for cell in cells if not is_missing(cell)] for cells in (known, asked)
    )
    return mixed(f"values of {name!r}", trained, tested, option("group", name))
