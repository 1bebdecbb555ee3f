"""Results of checks: what was measured, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass


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


def faulty(name: str, problem: str, cause: str, fix: str) -> Result:
    """The result of a check that found a fault."""
    return Result(name, problem, Finding(problem, cause, fix))


def listed(names: list[str], most: int = 3) -> str:
    """The first few names, and the number of the others.

    >>> listed(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
