"""The laws of one check: which are checked, which may fail, and which were left out and why."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from seqkit.errors import described

Law = Callable[..., None]

SLOW = frozenset(
    {
        "any_batch_gives_the_same",
        "columns_far_along_are_like_others",
        "every_step_equals_at_once",
        "gradients_are_right",
        "is_the_same_in_another_process",
        "keeps_its_reach",
        "keeps_no_buffer",
        "no_column_attends_to_the_future",
        "reads_all_of_an_example",
        "reorder_keeps_the_rows",
    }
)
"""Laws that a quick check leaves out."""


class NotCheckedError(Exception):
    """Raised by a law that does not apply, with the reason."""


class Checked(list[Any]):
    """The laws that were checked. left_out: name of each law that was not, with the reason."""

    def __init__(self, laws: Mapping[Law, None], left_out: Mapping[str, str]):
        super().__init__(laws)
        names = {law.__name__ for law in self}
        self.left_out = {name: reason for name, reason in left_out.items() if name not in names}

    def __repr__(self) -> str:
        return f"{len(self)} laws are kept: {', '.join(law.__name__ for law in self)}"


class Checks:
    """Checks law after law, and notes which were kept.

    quick: True: laws that take long are left out. expected_failures: name of each law that is known to be broken, with
    the reason.
    """

    def __init__(self, *, quick: bool = False, expected_failures: Mapping[str, str] | None = None):
        self.quick, self.expected = quick, dict(expected_failures or {})
        self.kept: dict[Law, None] = {}
        self.broken: set[str] = set()
        self.left_out: dict[str, str] = {}

    def check(
        self, law: Law, where: str, *given: Any, again: Callable[[], AbstractContextManager[Any]] | None = None
    ) -> None:
        """Check one law. again: a context in which a law that fails is checked once more; None: it is not.

        Raises AssertionError that begins with `where` and the law, unless it may fail.
        """
        name = law.__name__
        if self.quick and name in SLOW:
            self.left_out[name] = "takes long"
            return
        try:
            _hold(law, given, again)
            self.kept[law] = None
        except NotCheckedError as reason:
            self.left_out[name] = str(reason)
        except Exception as error:  # of the law or, where it calls the user's own code, whatever that raises
            if name in self.expected:
                self.broken.add(name)
            elif isinstance(error, AssertionError):
                raise AssertionError(f"{where}: {name}: {error}") from None
            else:
                raise AssertionError(f"{where}: {name}: it raises {described(error)}") from error

    def finish(self, what: str) -> Checked:
        """The laws that were kept. Raises AssertionError for a law that was expected to fail, and did not."""
        for name, reason in self.expected.items():
            if name not in self.broken and not (self.quick and name in SLOW):
                passed = any(law.__name__ == name for law in self.kept)
                raise AssertionError(
                    f"{what}: {name} is expected to fail ({reason}), but "
                    + ("it is kept; take it off the list" if passed else "there is no such law here")
                )
        kept = {law: None for law in self.kept if law.__name__ not in self.broken}
        return Checked(kept, self.left_out | dict.fromkeys(self.broken & self.expected.keys(), "expected to fail"))


def _hold(law: Law, given: tuple[Any, ...], again: Callable[[], AbstractContextManager[Any]] | None) -> None:
    """Check one law, and once more in a context if it fails. Raises its first error."""
    try:
        law(*given)
    except AssertionError:
        if again is None:
            raise
        with contextlib.suppress(Exception), again():
            return law(*given)
        raise
