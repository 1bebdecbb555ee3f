"""Names of parts: which tokenizers, backbones, objectives, data sets … there are, what each is and when to use it.

Listing imports nothing heavy: built-in parts stand in a table, parts of installed packages are entry points
(`seqkit.tokenizers`, `seqkit.backbones`, `seqkit.sources`), and parts of your own file register by a decorator:

    @register("tokenizer", "Morse", what="dots and dashes", when="radio")
    class Morse(Tokenizer): ...
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import TypeVar

from seqkit.parts import BUILT_IN, Part

KINDS = ("tokenizer", "backbone", "preset", "objective", "position", "mechanism", "source", "optimizer", "schedule")
T = TypeVar("T", bound=type)


_PARTS: dict[str, dict[str, Part]] = {kind: {} for kind in KINDS}
_ENTRY_POINTS = {"tokenizer": "seqkit.tokenizers", "backbone": "seqkit.backbones", "source": "seqkit.sources"}


def parts(kind: str) -> dict[str, Part]:
    """All parts of a kind by name: built-in, of installed packages, and registered in this process."""
    if kind not in KINDS:
        raise ValueError(f"there is no kind of part called {kind!r}; {suggest(kind, KINDS)}")
    found = {part.name: part for table in BUILT_IN[kind] for part in table}
    if kind in _ENTRY_POINTS:
        for point in entry_points(group=_ENTRY_POINTS[kind]):
            package = point.dist.name if point.dist else "an installed package"
            found.setdefault(point.name, Part(point.name, point.value, f"from {package}"))
    return found | _PARTS[kind]


def registered_paths() -> set[str]:
    """Class paths of all parts that a user or an installed package may add: those a recipe may name."""
    return {part.class_path for kind in KINDS for part in parts(kind).values()}


def find(kind: str, name: str) -> Part:
    """The part of that name, whatever its case. Raises ValueError with the nearest names."""
    known = parts(kind)
    for candidate in known:
        if candidate.lower() == name.lower():
            return known[candidate]
    raise ValueError(f"there is no {kind} called {name!r}; {suggest(name, known)}")


def register(kind: str, name: str | None = None, *, what: str = "", when: str = "") -> Callable[[T], T]:
    """Class decorator: make a part known by `name` (default: the class's own) in this process.

    Raises ValueError if the name is taken by another class.
    """

    def add(cls: T) -> T:
        part = Part(name or cls.__name__, f"{cls.__module__}:{cls.__qualname__}", what, when)
        taken = {known.lower(): other for known, other in parts(kind).items()}.get(part.name.lower())
        if taken is not None and taken.path != part.path:
            raise ValueError(f"{kind} {part.name!r} is already {taken.path}; pick another name for {part.path}")
        _PARTS[kind][part.name] = part
        return cls

    return add


def suggest(name: str, known: Iterable[str]) -> str:
    """`did you mean …?`, or the names there are."""
    known = list(known)
    by_lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.6)
    return (
        f"did you mean {' or '.join(by_lower[n] for n in near)}?" if near else f"there are: {', '.join(sorted(known))}"
    )
