"""Groups of files by their paths: the patient or speaker of each, as a pattern says, or as folders seem to say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from seqkit.data.leaks import OF_GROUPS, mixed
from seqkit.data.notes import listed

CONTENT = "content"
"""In place of a pattern: files of equal content are a group."""

_MEASURE = re.compile(
    r"(19|20)\d\d([-_.]?\d\d){0,2}|\d+\s?[x×]\s?\d*|\d+\s?(px|pt|mm|cm|k|hz|khz|dpi)", re.IGNORECASE
)
"""A name of a folder that holds files of one year or day, size, magnification or rate, whatever they show."""

_NUMBER = re.compile(r"\d+[a-z]?|(?<=[a-z])[A-Z]$")
"""The number or capital letter that tells things of one word apart: `p03`, `patientB`."""

_OF_FILES = re.compile(
    r"(scan|im|img|image|pic|picture|photo|dsc|frame|slice|tile|patch|crop|view|sample|file|take|clip|rec|recording)s?"
)
"""Words whose numbers count files, and no things that these show."""

_OF_THINGS = re.compile(rf"{OF_GROUPS.pattern}|p|pt|pat|sub|subj|spk")
"""Words whose numbers count things, wherever they stand in the name of a file."""


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
    above or below that of a class, or a word of the names of files.
    """
    levels = [level for level in _levels([*train, *test]) if level.rank]
    if not levels:
        return ""
    best = max(levels, key=lambda level: level.rank)
    names, classes = (listed(sorted({*values}), 3) for values in (best.names, best.classes))
    known, asked = (best.names[: len(train)], best.names[len(train) :])
    way = f"--data.group {shlex.quote(best.pattern)}"
    what = "folders" if best.begins is None else "parts of names"
    return mixed(f"{what} ({names}; classes {classes})", known, asked, way)


class _Level(NamedTuple):
    """A part of the paths of files. names, classes: of each file; pattern: of `--data.group` by which it has these.

    begins: of a word in the names of files, whether it is the first that differs, and not the last one; None: a folder.
    """

    names: Sequence[str]
    classes: Sequence[str]
    pattern: str
    begins: bool | None = None

    @property
    def rank(self) -> tuple[int, ...]:
        """How likely the names are those of things, by being a folder, called so, numbered, and number; empty: no.

        Most classes have several things, and a thing several files. Names without numbers are more than the classes,
        and have files of several.
        """
        distinct = {*self.names}
        classes = {*self.classes}
        is_few = len(distinct) < 3 or 2 * len(distinct) > len(self.names)
        pairs = 2 * len({*zip(self.names, self.classes)})
        if is_few or pairs < 3 * len(classes) or _are_measures(distinct) or _are_measures(classes):
            return ()
        kinds = {_NUMBER.sub("#", name).lower() for name in distinct}
        words = [kind.partition("#")[0].rstrip("-_ ") for kind in kinds]
        is_numbered = len(kinds) == 1 and "#" in kinds.pop()
        is_called = is_numbered and _OF_THINGS.fullmatch(words[0]) is not None
        is_mixed = len(distinct) > max(3, len(classes)) and pairs >= 3 * len(distinct)
        is_folder = self.begins is None
        if not is_folder and any(map(_OF_FILES.fullmatch, words)):
            return ()
        if self.begins is False and not is_called:
            return ()
        if is_numbered or is_mixed:
            return is_folder, is_called, is_numbered, len(distinct)
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
    # such as ["", "scan", "_", "0", "_", "subject07", ".", "png", ""]
    columns = [*zip(*(re.split(r"([^\W_]+)", path[-1]) for path in paths))]
    pattern = "*/" * (depth - 1) + "class/"
    known = ""
    begins = True
    for marks, words, ends in zip(columns[::2], columns[1::2], columns[2::2]):
        if len({*marks}) > 1 or len({*ends}) > 1:
            return
        pattern += marks[0]
        is_number = all(word.isdecimal() or len(word) == 1 for word in words)
        names = [known * is_number + word for word in words]
        yield _Level(names, classes, f"{pattern}group{ends[0]}*", begins and ends[0] != ".")
        is_same = len({*words}) == 1
        known = words[0] if is_same else ""
        begins = begins and is_same
        pattern += "*" if not is_same or re.search("group|class", known) else known


def _are_measures(names: Iterable[str]) -> bool:
    """Whether all names are those of years, sizes, or other measures; whole eights are sizes of images."""
    return all(
        _MEASURE.fullmatch(name) or (name.isdecimal() and name[0] != "0" and int(name) % 8 == 0)
        for name in names
    )
