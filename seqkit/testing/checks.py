"""The laws of one check: which are checked, which may fail, and which were left out and why."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypedDict, Unpack

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from seqkit.errors import described, one_line

Law = Callable[..., None]
P = ParamSpec("P")

SLOW = {
    "any_batch_gives_the_same",
    "columns_far_along_are_like_others",
    "gradients_are_right",
    "is_the_same_in_another_process",
    "keeps_its_reach",
    "keeps_no_buffer",
    "no_column_attends_to_the_future",
    "reads_all_of_an_example",
    "reorder_keeps_the_rows",
}
"""Laws that a quick check leaves out."""


class Options(TypedDict, total=False):
    """Options of every check.

    quick: True: laws that take long are left out. only: names of the laws to check. expected_failures: name of each law
    that is known to be broken, and the reason; one that is kept all the same is an error. device: where modules and
    tokens are, such as "cuda"; one that is not here is a ValueError.
    """

    quick: bool
    only: Collection[str] | None
    expected_failures: Mapping[str, str] | None
    device: str


class NotCheckedError(Exception):
    """Raised by a law that does not apply, with the reason."""


class Checked(list[Any]):
    """The laws that were checked. left_out: name of each law that was not, with the reason."""

    def __init__(self, laws: Collection[Law], left_out: Mapping[str, str]):
        super().__init__(laws)
        names = {law.__name__ for law in self}
        self.left_out = {name: reason for name, reason in left_out.items() if name not in names}

    def __repr__(self) -> str:
        return f"{len(self)} laws are kept: {', '.join(law.__name__ for law in self)}"


class _NewTensorsOn(TorchFunctionMode):
    """Context in which new tensors are moved to a device; `torch.device` cannot draw there from a generator of the CPU.

    So modules, batches and what laws compare them with are on the device, and none of them needs to know it.
    """

    def __init__(self, device: torch.device):
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in _device_constructors():
            return found.to(self.device)
        return found


@contextlib.contextmanager
def on_device(name: str) -> Iterator[None]:
    """Context of checks on a device. Raises ValueError for one that this machine does not have.

    cuDNN is off: its recurrent layers have no gradient in evaluation mode, in which laws are checked.
    """
    if name == "cpu":
        yield
        return
    try:
        device = torch.ones(1, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        said = one_line(error)[:100]
        raise ValueError(
            f"device {name} cannot be used here ({said}); give cpu, cuda or mps"
        ) from None
    with _NewTensorsOn(device), torch.backends.cudnn.flags(enabled=False):
        yield


def takes_device(check: Callable[P, Checked]) -> Callable[P, Checked]:
    """Runs a check on the device that its argument `device` names."""

    @functools.wraps(check)
    def run(*args: P.args, **kwargs: P.kwargs) -> Checked:
        with on_device(str(kwargs.pop("device", "cpu"))):
            return check(*args, **kwargs)

    return run


class Checks:
    """Checks law after law, and notes which were kept; `takes_device` sees to the device among the options."""

    def __init__(self, **options: Unpack[Options]):
        self.quick = options.get("quick", False)
        self.only = options.get("only")
        self.expected = dict(options.get("expected_failures") or {})
        self.kept: dict[Law, None] = {}
        self.broken: set[str] = set()
        self.left_out: dict[str, str] = {}

    def check(
        self,
        law: Law,
        where: str,
        *given: Any,
        again: Callable[[], AbstractContextManager[Any]] | None = None,
    ) -> None:
        """Check one law. again: a context in which a law that fails is checked once more; None: it is not.

        Raises AssertionError that begins with `where` and the law, unless it may fail.
        """
        name = law.__name__
        if self.only is not None and name not in self.only:
            self.left_out[name] = "not chosen"
            return
        if self.quick and name in SLOW:
            self.left_out[name] = "takes long"
            return
        try:
            _hold(law, given, again)
            self.kept[law] = None
        except NotCheckedError as reason:
            self.left_out[name] = str(reason)
        except (
            Exception
        ) as error:  # of the law or, where it calls the user's own code, whatever that raises
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
                fault = "there is no such law here"
                if any(law.__name__ == name for law in self.kept):
                    fault = "it is kept; take it off the list"
                raise AssertionError(f"{what}: {name} is expected to fail ({reason}), but {fault}")
        kept = [law for law in self.kept if law.__name__ not in self.broken]
        return Checked(kept, self.left_out | dict.fromkeys(self.broken, "expected to fail"))


def _hold(
    law: Law, given: tuple[Any, ...], again: Callable[[], AbstractContextManager[Any]] | None
) -> None:
    """Check one law, and once more in a context if it fails. Raises its first error."""
    try:
        law(*given)
    except AssertionError:
        if again is None:
            raise
        with contextlib.suppress(Exception), again():
            return law(*given)
        raise
