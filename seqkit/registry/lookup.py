"""Lookup of components by kind and name: tokenizers, backbones, objectives, data sources and what they are made of.

Listing imports nothing heavy: built-in components are in a table, those of installed packages are entry points (group
`seqkit.tokenizers`, `seqkit.backbones`, …: the kind and an s), and those of your own file register by a decorator:

    @register("tokenizer", "Morse", what="dots and dashes", when="radio")
    class Morse(Tokenizer): ...
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import TypeVar

from seqkit.errors import suggest
from seqkit.registry.builtin import BUILT_IN, Component

KINDS = tuple(BUILT_IN)
T = TypeVar("T", bound=type)

_REGISTERED: dict[str, dict[str, Component]] = {kind: {} for kind in KINDS}


def components(kind: str) -> dict[str, Component]:
    """All components of a kind by name: built-in, of installed packages, and registered in this process.

    Raises ValueError for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"there is no kind of component called {kind!r}; {suggest(kind, KINDS)}")
    built_in = {component.name: component for component in BUILT_IN[kind]}
    taken = {name.lower() for name in built_in}
    others: dict[str, Component] = {}
    for component in _installed(kind):
        if component.name.lower() not in taken:
            taken.add(component.name.lower())
            others[component.name] = component
    return built_in | others | _REGISTERED[kind]


def registered() -> tuple[Component, ...]:
    """All components that were registered in this process: what is known of a class may depend on them."""
    return tuple(component for known in _REGISTERED.values() for component in known.values())


def name_conflicts(kind: str) -> list[str]:
    """Sentences about components of installed packages that are not used, since another one has their name."""
    owners = {component.name.lower(): "seqkit" for component in BUILT_IN[kind]}
    found = []
    for component in _installed(kind):
        owner = owners.setdefault(component.name.lower(), component.package)
        if owner != component.package:
            found.append(
                f"{component.package} also has a {kind.replace('_', ' ')} called {component.name}, which is not used: "
                f"{owner} has that name"
            )
    return found


def _installed(kind: str) -> tuple[Component, ...]:
    """Components of installed packages."""
    return _of_every_kind()[kind]


@cache
def _of_every_kind() -> dict[str, tuple[Component, ...]]:
    """Components of installed packages by kind, read at once and once in a process: it takes 20 ms."""
    found = entry_points()
    return {
        kind: tuple(
            Component(point.name, point.value, f"from {package}", package=package)
            for point in found.select(group=f"seqkit.{kind}s")
            for package in [point.dist.name if point.dist else "an installed package"]
        )
        for kind in KINDS
    }


def find(kind: str, name: str, *more_kinds: str) -> Component:
    """The component of that name, in any case, of one of the kinds. Raises ValueError with the nearest names."""
    known = {name: one for each in (*more_kinds, kind) for name, one in components(each).items()}
    spelled = {candidate.lower(): candidate for candidate in known}
    if name.lower() not in spelled:
        near = suggest(name, known)
        if near.startswith("did you mean"):
            own = ""
        else:
            own = "; give the file of a class of your own with --plugin"
        raise ValueError(f"there is no {kind.replace('_', ' ')} called {name!r}; {near}{own}")
    return known[spelled[name.lower()]]


def register(
    kind: str, name: str | None = None, *, what: str = "", when: str = ""
) -> Callable[[T], T]:
    """Class decorator: make a component known by `name` (default: the class's own) in this process.

    Raises ValueError if the name is taken by another class.
    """

    def add(cls: T) -> T:
        component = Component(
            name or cls.__name__, f"{cls.__module__}:{cls.__qualname__}", what, when
        )
        taken = {known.lower(): other for known, other in components(kind).items()}.get(
            component.name.lower()
        )
        if taken is not None and taken.path != component.path:
            raise ValueError(
                f"{kind} {component.name!r} is already {taken.path}; rename {component.path}"
            )
        _REGISTERED[kind][component.name] = component
        return cls

    return add
