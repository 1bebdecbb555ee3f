"""Groups of files by their paths: the patient or speaker of each, as a pattern says, or as folders seem to say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from seqkit.data.leaks import mixed
from seqkit.data.notes import listed

CONTENT = "content"
"""In place of a pattern: files of equal content are a group."""

_MEASURE = re.compile(
    r"(19|20)\d\d([-_.]?\d\d){0,2}|\d+\s?[x×]\s?\d*|\d+\s?(px|pt|mm|cm|k|hz|khz|dpi)", re.IGNORECASE
)
"""A name of a folder that holds files of one year or day, size, magnification or rate, whatever they show."""

_START = re.compile(r"(?P<lead>(\D*[_-])?)(?P<name>[^\W_]*\d+[a-z]?)(?P<end>[_-])")
"""How the name of a file begins that numbers what it shows: `p03_left.png`, `patient-3_2.wav`."""


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of paths such as `class/group_*`: `group` and `class` stand for themselves, `*` for a part of a name.

    What lies below its last folder may be anything. Raises ValueError for a pattern without one `group`.

    >>> compiled("class/group_*").fullmatch("ill/p03_left.png").groupdict()
    {'class': 'ill', 'group': 'p03'}
    """
    if pattern.count("group") != 1 or pattern.count("class") > 1:
        raise ValueError(
            f"group is {pattern!r}; give a pattern of paths with the word group once, and class for the folder of the "
            f"class, such as group/class, class/group or class/group_*; or {CONTENT}"
        )
    text = re.escape(pattern).replace(r"\*", "[^/]*?")
    for word in ("group", "class"):
        text = text.replace(word, f"(?P<{word}>[^/]+?)")
    return re.compile(f"{text}(?:/.*)?", re.DOTALL)


def folder_above(paths: Iterable[str]) -> str:
    """Advice for classes that are no classes, but what their folders hold; empty: some path has no such folder."""
    depth = min((path.count("/") for path in paths), default=0)
    if depth < 2:
        return ""
    return f"; if the class is the folder above: --data.group {shlex.quote('*/' * (depth - 2) + 'class/group')}"


def told(train: Sequence[str], test: Sequence[str]) -> str:
    """Says how many things of which test has files are in training, too; empty: nothing seems to be one thing.

    train, test: paths of files below the folder of the data, or of their split. A thing, such as a patient, is a folder
    above or below that of a class, or a number with which names begin.
    """
    levels = [level for level in _levels([*train, *test]) if level.rank]
    if not levels:
        return ""
    best = max(levels, key=lambda level: level.rank)
    names, classes = (listed(sorted({*values}), 3) for values in (best.names, best.classes))
    known, asked = (best.names[: len(train)], best.names[len(train) :])
    way = f"--data.group {shlex.quote(best.pattern)}"
    what = "folders" if best.is_folder else "beginnings of names"
    return mixed(f"{what} ({names}; classes {classes})", known, asked, way)


class _Level(NamedTuple):
    """A part of the paths of files. names, classes: of each file; pattern: of `--data.group` by which it has these."""

    names: Sequence[str]
    classes: Sequence[str]
    pattern: str
    is_folder: bool = True

    @property
    def rank(self) -> tuple[int, ...]:
        """How likely the names are those of things, by is_folder, being numbered, and number; empty: they are not.

        Most classes have several things, and a thing several files. Names without numbers are more than the classes,
        and have files of several.
        """
        distinct = {*self.names}
        classes = {*self.classes}
        is_few = len(distinct) < 3 or 2 * len(distinct) > len(self.names)
        pairs = 2 * len({*zip(self.names, self.classes)})
        if is_few or pairs < 3 * len(classes) or _are_measures(distinct) or _are_measures(classes):
            return ()
        kinds = {re.sub(r"\d+", "#", name) for name in distinct}
        is_numbered = len(kinds) == 1 and "#" in kinds.pop()
        is_mixed = len(distinct) > max(3, len(classes)) and pairs >= 3 * len(distinct)
        if is_numbered or (is_mixed and self.is_folder):
            return self.is_folder, is_numbered, len(distinct)
        return ()


def _levels(files: Sequence[str]) -> Iterator[_Level]:
    paths = [path.split("/") for path in files]
    depth = min(map(len, paths)) - 1
    if depth < 1:
        return
    classes = [path[-2] for path in paths]
    is_even = all(len(path) == depth + 1 for path in paths)
    for i in range(depth - 1):
        # without it, the class is the folder that a file is in
        class_below = "/*" * (depth - i - 2) + "/class" if is_even else ""
        yield _Level([path[i] for path in paths], classes, "*/" * i + "group" + class_below)
    if depth > 1:
        upper = [path[depth - 2] for path in paths]
        lower = [path[depth - 1] for path in paths]
        yield _Level(lower, upper, "*/" * (depth - 2) + "class/group")
    starts = [found for path in paths if (found := _START.match(path[-1]))]
    marks = {(found["lead"], found["end"]) for found in starts}
    if len(starts) == len(paths) and len(marks) == 1:
        ((lead, end),) = marks
        pattern = f"{'*/' * (depth - 1)}class/{lead}group{end}*"
        yield _Level([found["name"] for found in starts], classes, pattern, is_folder=False)


def _are_measures(names: Iterable[str]) -> bool:
    """Whether all names are those of years, sizes, or other measures; whole eights are sizes of images."""
    return all(
        _MEASURE.fullmatch(name) or (name.isdecimal() and name[0] != "0" and int(name) % 8 == 0)
        for name in names
    )
