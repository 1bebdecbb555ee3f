"""Classes of a table: their names and spellings, and whether its splits can be learned from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from seqkit.data.notes import Caution, listed
from seqkit.data.sample import Samples
from seqkit.data.spellings import alike, one_spelling
from seqkit.data.tables.cells import number, short
from seqkit.data.tables.examples import UsableRows
from seqkit.data.tables.schema import (
    Schema,
    objective_option,
)
from seqkit.errors import DataError


def class_names(train: UsableRows, say: Callable[[str], None]) -> list[str]:
    """Classes in the order of their numbers or names. Raises DataError where there are too few or too many."""
    if train.schema.target_kind == "tags":
        return _in_order({tag for tags in train.labels for tag in tags})
    table = train.rows.name
    target = train.schema.targets[0].name
    counts = Counter(train.labels)
    if len(counts) < 2:
        (name,) = counts
        all_alike = f"{target} is {short(name)} in all {len(train):,} rows"
        raise DataError(
            f"{table}: {all_alike}, and a classifier needs two classes; name another --data.target"
        )
    if len(train) >= 10 and len(counts) > len(train) / 2:
        way = "--data.target_kind text"
        if all(number(name) is not None for name in counts):
            way = f"--data.target_kind numbers {objective_option('numbers')}"
        raise DataError(
            f"{table}: {target} has {len(counts):,} different values in {len(train):,} rows, which are no classes; "
            f"did you mean {way}, or another column (--data.target)?"
        )
    if said := alike(counts):
        say(Caution(f"{table}: classes of {target}: {said}"))
    single = sorted(name for name, count in counts.items() if count == 1)
    if single:
        say(
            f"{table}: {len(single)} of {len(counts)} classes of {target} have one row alone, in training "
            f"({listed(single, 5)})"
        )
    return _in_order(counts)


def spell_alike(parts: Sequence[UsableRows]) -> None:
    """Give equal classes of all splits one spelling."""
    spelling = one_spelling({label for part in parts for label in part.labels})
    for part in parts:
        part.labels = [spelling[label] for label in part.labels]


def _in_order(names: Iterable[str]) -> list[str]:
    """Names of classes in the order of their numbers, or of their letters."""
    known = list(names)
    values = [number(name) for name in known]
    if all(value is not None and math.isfinite(value) for value in values):
        return [name for _, name in sorted(zip(values, known))]  # type: ignore[type-var]
    return sorted(known)


def check_learnable(
    found: dict[str, Samples], schema: Schema, table: str, names: Sequence[str] | None
) -> None:
    """Raise DataError where training has one number alone, or another split has a class that training lacks."""
    labels = found["train"].labels
    if schema.target_kind in ("numbers", "labels") and len(labels) > 1:
        rows = [label if isinstance(label, list) else [label] for label in labels]
        for target, values in zip(schema.targets, zip(*rows)):
            numbers = {value for value in values if not math.isnan(value)}
            if len(numbers) < 2:
                what = "has no number in the rows"
                if numbers:
                    what = f"is {numbers.pop():g} in all rows"
                raise DataError(
                    f"{table}: {target.name} {what} of the training split; name another --data.target"
                )
    if schema.target_kind == "classes" and names is not None:
        known = set(labels)
        for split, samples in found.items():
            for i, label in enumerate(samples.labels):
                if label not in known:
                    what = f"is in the {split} split with class {short(names[label])}, which training lacks"
                    raise DataError(
                        f"{samples.name(i)} {what}; add rows of it, or give another --data.seed"
                    )
