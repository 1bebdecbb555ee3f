"""Errors that a user can cause, by exit code: wrong data (3), wrong command (2), a diverged run (1)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DataError(ValueError):
    """Input data that cannot be used: what, where, what to do. Exit code 3 on the command line."""


class UsageError(ValueError):
    """The command, a key or a name is wrong. Exit code 2."""


class DivergedError(RuntimeError):
    """The loss is not finite, and another optimizer step would destroy the weights. Exit code 1."""


def suggest(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names (`did you mean …?`), or all of them where none is near."""
    known = list(known)
    if not known:
        return "there are none"
    # the last part of a dotted name counts too: SGD is near torch.optim.SGD
    by_lower = {k.rpartition(".")[2].lower(): k for k in known} | {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(dict.fromkeys(by_lower[n] for n in near))}?"
    return f"there are: {', '.join(sorted(known))}"
