"""What a check measured, and what is wrong by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """A fault. problem: what was measured. cause: what makes it. fix: the key that mends it, as on the command line."""

    problem: str
    cause: str
    fix: str


@dataclass(frozen=True)
class Result:
    """One check. name: of the check. measured: its figures. finding: None: nothing is wrong.

    applies: False: the check says nothing of this model and data, and `measured` says why.
    """

    name: str
    measured: str
    finding: Finding | None = None
    applies: bool = True


def not_applicable(name: str, why: str) -> Result:
    """The result of a check that says nothing here."""
    return Result(name, why, applies=False)


def keys_named(config: Any, name: str, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every key of that name in a configuration, wherever it is nested."""
    pairs = config.items() if isinstance(config, Mapping) else enumerate(config) if isinstance(config, list) else ()
    for key, value in pairs:
        at = f"{path}.{key}".lstrip(".")
        if key == name:
            yield at, value
        yield from keys_named(value, name, at)


def key_of_type(config: Any, type_name: str) -> str | None:
    """Dotted key of the first component of that type; None: there is none."""
    return next((key.removesuffix(".type") for key, value in keys_named(config, "type") if value == type_name), None)


def listed(names: list[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
