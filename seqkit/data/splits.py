"""Splits by class, by group and by SHA-256: the same on every machine, and with every version of a library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from numbers import Integral
from operator import itemgetter
from typing import Any

from seqkit.data.notes import Caution, listed
from seqkit.errors import DataError

SPLIT_NAMES = {
    "train": "train", "training": "train", "test": "test", "testing": "test",
    "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid",
}  # fmt: skip
"""Names of splits, in lower case, in columns and as names of files and folders."""

SPLIT_WORDS = {"train": "training", "valid": "validation", "test": "test"}


def shuffled(n: int, seed: int) -> list[int]:
    """0 … n - 1 in an order that depends on `seed` alone.

    >>> shuffled(7, seed=0)
    [6, 4, 2, 1, 5, 0, 3]
    """
    digests = [sha256(b"%d %d" % (seed, i)).digest() for i in range(n)]
    return sorted(range(n), key=digests.__getitem__)


def stratified(labels: Sequence[Any], fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Stratified split: two lists of indices, the second with `fraction` of each class (at least one of two or more).

    labels: ints are classes; anything else is one common stratum. Each list is in a random order.
    Raises ValueError if `fraction` is not between 0 and 1.

    >>> [len(part) for part in stratified([0] * 8 + [1] * 2, 0.25, seed=0)]
    [7, 3]
    """
    if not 0 <= fraction < 1:
        raise ValueError(
            f"fraction is {fraction}; give the share to set aside, at least 0 and below 1"
        )
    strata: dict[Any, list[int]] = {}
    for i in shuffled(len(labels), seed):
        strata.setdefault(labels[i] if isinstance(labels[i], Integral) else None, []).append(i)
    aside: set[int] = set()
    for members in strata.values():
        if fraction > 0:
            count = max(round(len(members) * fraction), 1)
            aside.update(members[: min(count, len(members) - 1)])
    return _mixed(len(labels), aside, seed)


MAX_OF_GROUP = 2
"""How many times its share the part that is set aside may become by a large group."""


def by_group(
    groups: Sequence[str | None], fraction: float, seed: int, labels: Sequence[Any] = ()
) -> tuple[list[int], list[int]]:
    """Split that keeps groups whole: two lists of indices, the second with about `fraction` of all.

    Whole groups are set aside in SHA-256 order until their share is reached; a group that would make it more than
    `MAX_OF_GROUP` times the share is passed over. If all are that large, the smallest is set aside. Where a list lacks
    a class, a small group of each class comes first, up to half of all, and the last one of a class is passed over.
    groups: None: a group by itself. labels: ints are classes. Each list is in a random order. Raises ValueError where
    all are one group.

    >>> rest, aside = by_group([*"aaabbbcccddd"], 0.25, seed=0)
    >>> len(rest), len({*aside} & {*rest}), len(aside)
    (9, 0, 3)
    """
    members: dict[str | int, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(i if group is None else group, []).append(i)
    if len(members) < 2:
        raise ValueError("all samples are of one group, which cannot be split")
    parts = list(members.values())
    order = [parts[number] for number in shuffled(len(parts), seed)]
    aside = _set_aside(order, [set()] * len(order), len(groups), fraction)
    if labels and fraction > 0:
        classes = [_classes(labels[i] for i in part) for part in order]
        other = _set_aside(order, classes, len(groups), fraction)
        aside = max(aside, other, key=lambda one: _num_classes(labels, one))
    return _mixed(len(groups), aside, seed)


def _set_aside(
    order: Sequence[list[int]], classes: Sequence[set[int]], n: int, fraction: float
) -> set[int]:
    """Indices of the groups that are set aside of n samples; classes: of each group."""
    left = Counter(label for each in classes for label in each)  # groups of each class in training
    quota = fraction * n
    aside: set[int] = set()

    def take(number: int, most: float) -> None:
        part = order[number]
        if len(aside) + len(part) <= most and all(left[label] > 1 for label in classes[number]):
            aside.update(part)
            left.subtract(classes[number])

    by_size = sorted(range(len(order)), key=lambda number: len(order[number]))
    for label, num in sorted(left.items(), key=itemgetter(1)):
        for number in by_size:
            if label in classes[number] and left[label] == num:
                take(number, n / 2)
    for number, part in enumerate(order):
        if len(aside) >= quota:
            break
        if part[0] not in aside:
            take(number, min(MAX_OF_GROUP * quota, n - 1))
    if not aside and quota > 0:
        smallest: list[int] = min(order, key=lambda part: (len(part), part[0]))
        aside.update(smallest)
    return aside


def _classes(labels: Iterable[Any]) -> set[int]:
    return {int(label) for label in labels if isinstance(label, Integral)}


def _num_classes(labels: Sequence[Any], aside: set[int]) -> tuple[int, int]:
    """How many classes training has, and how many the part that is set aside."""
    rest = _classes(label for i, label in enumerate(labels) if i not in aside)
    return len(rest), len(_classes(labels[i] for i in aside))


def lost_classes(labels: Mapping[str, Sequence[Any]], names: Sequence[str] | None) -> Iterator[str]:
    """Says which splits lack which classes of the others. labels: of each split; ints are classes.

    >>> [*lost_classes({"train": [0, 1, 2], "test": [0, 0]}, ["ham", "spam", "eggs"])]
    ['the test split has 1 of 3 classes: its result says nothing of spam, eggs']
    """
    own = {split: _classes(each) for split, each in labels.items()}
    every = set().union(*own.values())
    for split, known in own.items():
        lost = [names[label] if names else label for label in sorted(every - known)]
        if lost:
            many = f"the {SPLIT_WORDS[split]} split has {len(known)} of {len(every)} classes"
            yield f"{many}: its result says nothing of {listed(lost, 3)}"


def far_from_share(groups: Sequence[str | None], num_aside: int, fraction: float) -> str:
    """Says why far more or fewer are set aside by group than their share; empty: they are not.

    >>> far_from_share([*"aaabbbccc"], 3, 0.1), far_from_share([*"abcdefghi"], 1, 0.1)
    ('groups stay whole, and the largest has 3 of 9', '')
    """
    if 1 / MAX_OF_GROUP < num_aside / (fraction * len(groups)) < MAX_OF_GROUP:
        return ""
    largest = max(Counter(group for group in groups if group is not None).values(), default=1)
    return f"groups stay whole, and the largest has {largest:,} of {len(groups):,}"


@dataclass(frozen=True)
class Grouping:
    """Keeps the samples of a group in one split.

    by: what makes the groups. data, what: the data and its samples, in messages. say: gets what bears on the result.
    """

    by: str
    data: object
    what: str
    say: Callable[[Caution], None]

    def divided(
        self, groups: Sequence[str | None], fraction: float, seed: int, labels: Sequence[Any]
    ) -> tuple[list[int], list[int], str]:
        """Indices of training and of test as of `by_group`, and the rule in words. Raises DataError as that does."""
        try:
            rest, aside = by_group(groups, fraction, seed, labels)
        except ValueError:
            fault = f"all {self.what} have the same {self.by}"
            raise DataError(f"{self.data}: {fault}; give another --data.group") from None
        num_test = len({groups[i] or i for i in aside})
        num_all = len({one or i for i, one in enumerate(groups)})
        if why := far_from_share(groups, len(aside), fraction):
            many = f"{len(aside):,} of {len(groups):,} {self.what} are test, not {100 * fraction:.0f} %"
            self._tell(f"{many}: by {self.by!r} {why}")
        return (
            rest,
            aside,
            f"{num_test:,} of {num_all:,} groups by {self.by!r} are test, SHA-256 with seed {seed}",
        )

    def apart(self, groups: Mapping[str, Sequence[str | None]]) -> dict[str, list[int]]:
        """For each split that was given, the indices of samples whose group is not tested; those of test all stay.

        Raises DataError where none is left of a split.
        """
        kept = {split: [*range(len(each))] for split, each in groups.items()}
        known: set[str | None] = {None}
        for split in [split for split in ("test", "valid", "train") if split in groups]:
            own = {*groups[split]}
            if both := own & known - {None}:
                kept[split] = [i for i in kept[split] if groups[split][i] not in both]
                many = f"{len(both):,} of {len(known) - 1:,} test groups by {self.by!r}"
                where = f"{many} are in {SPLIT_WORDS[split]}, too"
                if not kept[split]:
                    raise DataError(
                        f"{self.data}: {where}: all of it; give no split, then groups stay together"
                    )
                num_out = len(groups[split]) - len(kept[split])
                self._tell(f"{where}: their {num_out:,} {self.what} there are left out")
            known |= own
        return kept

    def _tell(self, said: str) -> None:
        self.say(Caution(f"{self.data}: {said}"))


def _mixed(n: int, aside: set[int], seed: int) -> tuple[list[int], list[int]]:
    """All others and those set aside, each in an order that is not the one by which they were chosen."""
    order = shuffled(n, -1 - seed)
    return [i for i in order if i not in aside], [i for i in order if i in aside]
