"""Results of checks: what was measured, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Fault that was found.

    problem: what was measured. cause: why it happens. fix: the key that mends it, as on the command line.
    """

    problem: str
    cause: str
    fix: str


@dataclass(frozen=True)
class Result:
    """Result of one check.

    measured: its figures in words. finding: the fault; None: nothing is wrong. applies: False: the check says nothing
    about this model and data, and `measured` says why. name: of the check, as `examine` lists it.
    """

    measured: str
    finding: Fault | None = None
    applies: bool = True
    name: str = ""


def not_applicable(why: str) -> Result:
    """The result of a check that says nothing about this model and data."""
    return Result(why, applies=False)


def faulty(problem: str, cause: str, fix: str) -> Result:
    """The result of a check that found a fault."""
    return Result(problem, Fault(problem, cause, fix))


def first_few(names: list[str], most: int = 3) -> str:
    """The first few names, and the number of the others.

    >>> first_few(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    shown = ", ".join(names[:most])
    if len(names) > most:
        return f"{shown} and {len(names) - most} more"
    return shown
