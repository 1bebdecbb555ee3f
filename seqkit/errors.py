"""Errors that a user can cause, by exit code: wrong data (3), wrong command (2), a diverged run (1)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DataError(ValueError):
    """Input data that cannot be used: what, where, what to do. Exit code 3 on the command line."""


class UsageError(ValueError):
    """The command, a key or a name is wrong. Exit code 2."""


class DivergedError(RuntimeError):
    """The loss is not finite, and another optimiser step would destroy the weights. Exit code 1."""


def suggest(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names (`did you mean …?`), or all of them where none is near."""
    known = list(known)
    by_lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(by_lower[n] for n in near)}?"
    return f"there are: {', '.join(sorted(known))}"
