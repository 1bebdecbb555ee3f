"""Results of checks: what was measured, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """A fault.

    problem: what was measured. cause: why it happens. fix: the key that mends it, as on the command line.
    """

    problem: str
    cause: str
    fix: str


@dataclass(frozen=True)
class Result:
    """Result of one check.

    name: name of the check. measured: its figures in words. finding: the fault; None: nothing is wrong.
    applies: False: the check says nothing about this model and data, and `measured` says why.
    """

    name: str
    measured: str
    finding: Finding | None = None
    applies: bool = True


def not_applicable(name: str, why: str) -> Result:
    """The result of a check that says nothing about this model and data."""
    return Result(name, why, applies=False)


def keys_named(config: Any, name: str, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted key, value) for every key of that name in a configuration, wherever it is nested."""
    pairs = config.items() if isinstance(config, Mapping) else enumerate(config) if isinstance(config, list) else ()
    for key, value in pairs:
        at = f"{path}.{key}".lstrip(".")
        if key == name:
            yield at, value
        yield from keys_named(value, name, at)


def key_of_type(config: Any, type_name: str) -> str | None:
    """Dotted key of the first component of that type; None if there is none."""
    return next((key.removesuffix(".type") for key, value in keys_named(config, "type") if value == type_name), None)


def listed(names: list[str], most: int = 3) -> str:
    """The first few names, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
