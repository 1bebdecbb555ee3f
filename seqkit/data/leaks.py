"""Leaks between splits: inputs of test that are in training, and equal inputs with different targets."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import file_digest, sha256
from itertools import pairwise
from pathlib import Path
from stat import S_ISDIR

from seqkit.data.notes import Caution
from seqkit.data.sample import Samples
from seqkit.errors import one_line

OF_GROUPS = re.compile(
    r"(?i:(.*[_ .-])?(id|patient|subject|person|participant|donor|animal|speaker|author|user|customer|client|member"
    r"|household|family|group|session|device|machine|sensor|station|site|school|hospital|batch|plate)s?)"
    r"|.*[a-z](Id|ID)"
)
"""Names of columns that say which rows are of one thing, where their cells come again, and of folders of such."""

FEW = 4
"""Mean number of rows from which on a column has few values."""

MIN_TOLD = 10
"""Rows, beside the first of each value and the usual target, that a column tells which is said to tell it; or values of
both, where they are numbers."""


def tells(values: Sequence[Hashable], targets: Sequence[Hashable]) -> bool:
    """Whether a column of few values has one target for each, in so many rows that chance does not explain it.

    >>> tells([*"nnpp"] * 9, [*"0011"] * 9), tells([*"nnpp"] * 9, [*"0010"] * 9)
    (True, False)
    """
    counts = Counter(values)
    if FEW * len(counts) > len(values):
        return False
    target_of: dict[Hashable, Hashable] = {}
    for value, target in zip(values, targets):
        if target_of.setdefault(value, target) != target:
            return False
    ((usual, _),) = Counter(targets).most_common(1)
    told = [count - 1 for value, count in counts.items() if target_of[value] != usual]
    return sum(told) >= MIN_TOLD


def ranks(values: Sequence[float | None], targets: Sequence[float]) -> bool:
    """Whether a column puts all rows in the order of a number, or in its reverse, as the number in other units does.

    Equal and missing values and targets may stand in any order, so that both may be rounded.

    >>> ranks([32 + 1.8 * i // 1 for i in range(20)], range(20)), ranks([*range(20)], [*range(1, 20), 0])
    (True, False)
    """
    known = [(x, y) for x, y in zip(values, targets) if x is not None and not math.isnan(y)]
    if min(len({x for x, _ in known}), len({y for _, y in known})) < MIN_TOLD:
        return False
    return any(
        all(a[0] == b[0] or a[1] <= b[1] for a, b in pairwise(sorted(pairs)))
        for pairs in (known, [(x, -y) for x, y in known])
    )


class Compared:
    """Contents of files in a form in which equal ones are equal, each read once. folder: folder of the names."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._known = dict[str, Hashable]()

    def content(self, file: str | bytes) -> Hashable:
        """The content of a file, or of each in a folder; a file that cannot be read is compared by its name."""
        if isinstance(file, bytes):
            return sha256(file).digest()
        if file not in self._known:
            try:
                if (self._folder / file).is_dir():
                    return tuple(map(self.content, self._inside(file)))
                with (self._folder / file).open("rb") as data:
                    self._known[file] = file_digest(data, "sha256").digest()
            except OSError:
                self._known[file] = file
        return self._known[file]

    def contents(self, files: Sequence[str]) -> list[Hashable]:
        """The content of each file. A file whose size no other of them has is not opened, its size tells it apart."""
        sizes = [self._size(file) for file in files]
        counts = Counter(sizes)
        return [
            size if counts[size] == 1 else self.content(file) for file, size in zip(files, sizes)
        ]

    def _inside(self, folder: str) -> list[str]:
        return sorted(f"{folder}/{one.name}" for one in (self._folder / folder).iterdir())

    def _size(self, file: str) -> Hashable:
        try:
            state = (self._folder / file).stat()
            if S_ISDIR(state.st_mode):
                return tuple(map(self._size, self._inside(file)))
            return state.st_size
        except OSError:
            return file


def mixed(what: str, known: Sequence[str], asked: Sequence[str], way: str) -> str:
    """Says how many things of which test has samples are in training, too; empty: none is, there is one thing alone, or
    most have one sample.

    what: the things, in words. known, asked: the thing of each training and of each test sample. way: what to type.

    >>> mixed("sites", [*"aabbc"], [*"aad"], "--data.group site")
    '1 of 2 sites in test are in training, too; to test on new ones: --data.group site'
    """
    tested = {*asked}
    both = len(tested.intersection(known))
    num = len(tested.union(known))
    if not both or num == 1 or 2 * num > len(known) + len(asked):
        return ""
    return f"{both:,} of {len(tested):,} {what} in test are in training, too; to test on new ones: {way}"


def tell_leaks(
    name: str,
    splits: Mapping[str, Samples],
    keys: Mapping[str, Sequence[Hashable]],
    keep: str,
    say: Callable[[str], None],
    *,
    what: str = "inputs",
) -> None:
    """Say how many inputs of test are in training, and how many of a split have another target there.

    name: the data, for messages. keys: of the samples of each split, equal where the inputs are. keep: what to do about
    it. what: what the inputs are.
    """
    known = set(keys["train"])
    shared = [i for i, key in enumerate(keys["test"]) if key in known]
    if shared:
        test = splits["test"]
        say(
            Caution(
                f"{name}: {len(shared):,} of {len(test):,} test {what} are in training, too (first: "
                f"{one_line(test.name(shared[0]))}), which flatters the result; {keep}"
            )
        )
    first: dict[Hashable, str] = {}
    for split in sorted(splits, key=lambda one: one != "train"):
        samples = splits[split]
        conflicts = []
        for i, key in enumerate(keys[split]):
            label = repr(samples.labels[i])
            if first.setdefault(key, label) != label:
                conflicts.append(i)
        if conflicts:
            say(
                Caution(
                    f"{name}: {split} {what} that another example has, with another target: {len(conflicts):,} "
                    f"(first: {one_line(samples.name(conflicts[0]))})"
                )
            )
