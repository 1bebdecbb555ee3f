"""The laws of one check: which are checked, which may fail, and which were left out and why."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, ParamSpec, TypedDict, Unpack

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from seqkit.errors import described, one_line, suggest

Law = Callable[..., None]
P = ParamSpec("P")

SLOW = {
    "any_batch_gives_the_same",
    "columns_far_along_are_like_others",
    "columns_read_the_past_alike",
    "gradients_are_right",
    "is_the_same_in_another_process",
    "keeps_its_reach",
    "keeps_no_buffer",
    "no_column_attends_to_the_future",
    "reads_all_of_an_example",
    "reorder_keeps_the_rows",
    "training_sees_no_future",
}
"""Laws that a quick check leaves out."""

FIRST = (
    "gives_hidden_states_of_its_width",
    "is_deterministic",
    "leaves_the_process_alone",
)
"""Laws on which all others rest: without them nothing can be compared, or the process is another for what follows."""


class Options(TypedDict, total=False):
    """Options of every check.

    quick: True: laws that take long are left out. only: names of the laws to check. ignore: name of each law that is
    not checked, and the reason; an unknown name is a ValueError. expected_failures: name of each law that is known to
    be broken, and the reason; one that is kept all the same is an error. device: where modules and tokens are, such as
    "cuda"; one that is not here is a ValueError.
    """

    quick: bool
    only: Collection[str] | None
    ignore: Mapping[str, str] | None
    expected_failures: Mapping[str, str] | None
    device: str


class NotCheckedError(Exception):
    """Raised by a law that does not apply, with the reason."""


class Fault(NamedTuple):
    """How a law is broken.

    size: the largest difference as a share of the largest right number; None: the law compares no numbers. where: the
    class and what it was checked on.
    """

    law: str
    text: str
    size: float | None = None
    where: str = ""


class DifferenceError(AssertionError):
    """Numbers differ from the right ones. size: as in `Fault`."""

    def __init__(self, text: str, size: float):
        super().__init__(text)
        self.size = size


class Checked(list[Any]):
    """The laws that were checked and are kept.

    left_out: name of each law that was not checked, with the reason. broken: the first fault of each law that is not
    kept; a check that returns has none, and one that raises `BrokenLawsError` has them there.
    """

    def __init__(
        self, laws: Collection[Law], left_out: Mapping[str, str], broken: Sequence[Fault] = ()
    ):
        super().__init__(laws)
        names = {law.__name__ for law in self}
        self.left_out = {name: reason for name, reason in left_out.items() if name not in names}
        self.broken = tuple(broken)

    def __repr__(self) -> str:
        return f"{len(self)} laws are kept: {', '.join(law.__name__ for law in self)}"


class BrokenLawsError(AssertionError):
    """The laws that a component breaks, a line each after one that counts them. checked: all that its check found."""

    def __init__(self, what: str, checked: Checked):
        lines: dict[tuple[str, str], list[str]] = {}
        for fault in checked.broken:
            lines.setdefault((fault.where, fault.text), []).append(fault.law)
        said = [f"{where}: {', '.join(laws)}: {text}" for (where, text), laws in lines.items()]
        if len(said) > 1:
            said.insert(0, f"{what} breaks {len(checked.broken)} laws:")
        super().__init__("\n".join(said))
        self.checked = checked


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
    """Checks law after law, and notes which are kept and which are broken; `takes_device` sees to the device among the
    options.

    inside, kind: what stands before and after each fault: the component whose inside is checked, and the kind of the
    tokens. prefix: of names of parameters, which no fault says.
    """

    inside = ""
    kind = ""
    prefix = ""

    def __init__(self, **options: Unpack[Options]):
        self.quick = options.get("quick", False)
        self.only = options.get("only")
        self.ignored = dict(options.get("ignore") or {})
        self.expected = dict(options.get("expected_failures") or {})
        self.kept: dict[Law, None] = {}
        self.broken: dict[str, Fault] = {}
        self.left_out: dict[str, str] = {}
        self.cause: BaseException | None = None

    def check(
        self,
        law: Law,
        where: str,
        *given: Any,
        again: Callable[[], AbstractContextManager[Any]] | None = None,
    ) -> None:
        """Check one law, and note its fault. again: a context in which a law that fails is checked once more; None: it
        is not. Where one of `FIRST` is broken, no other law is checked: their faults would say the same."""
        name = law.__name__
        if (reason := self._reason(name)) is not None:
            self.left_out.setdefault(name, reason)
            return
        try:
            _hold(law, given, again)
            self.kept[law] = None
        except NotCheckedError as reason:
            self.left_out[name] = str(reason)
        except (
            Exception,
            SystemExit,
        ) as error:  # of the law or, where it calls the user's own code, whatever that raises
            text = str(error)
            if not isinstance(error, AssertionError):
                text = f"it raises {described(error)}"
                self.cause = self.cause or error
            text = text.replace(self.prefix, "") if self.prefix else text
            size = getattr(error, "size", None)
            self.broken[name] = Fault(name, text + self.kind, size, self.inside + where)

    def _reason(self, name: str) -> str | None:
        """Why a law is not checked, or not again; None: it is."""
        if name in self.ignored:
            return self.ignored[name]
        if self.only is not None and name not in self.only:
            return "not chosen"
        if self.quick and name in SLOW:
            return "takes long"
        if name in self.broken:
            return "broken"
        return next((f"{first} is broken" for first in FIRST if first in self.broken), None)

    def finish(self, what: str) -> Checked:
        """The laws that were kept.

        Raises BrokenLawsError if one is broken, or one that was expected to be is not; ValueError for an ignored law
        that there is not.
        """
        known = {law.__name__ for law in self.kept} | {*self.left_out, *self.broken}
        unknown = [name for name in self.ignored if name not in known]
        if unknown and self.broken.keys().isdisjoint(FIRST):
            raise ValueError(f"ignore has {unknown[0]!r}; {suggest(unknown[0], known)}")
        broken = {name: x for name, x in self.broken.items() if name not in self.expected}
        for name, reason in self.expected.items():
            if name not in self.broken and not (self.quick and name in SLOW):
                fault = "there is no such law here"
                if any(law.__name__ == name for law in self.kept):
                    fault = "it is kept; take it off the list"
                text = f"it is expected to fail ({reason}), but {fault}"
                broken[name] = Fault(name, text, None, what)
        left_out = self.left_out | dict.fromkeys(self.broken, "broken")
        left_out |= {name: "expected to fail" for name in self.expected if name in self.broken}
        kept = [law for law in self.kept if law.__name__ not in {*self.broken, *broken}]
        checked = Checked(kept, left_out, list(broken.values()))
        if broken:
            raise BrokenLawsError(what, checked) from self.cause
        return checked


def _hold(
    law: Law, given: tuple[Any, ...], again: Callable[[], AbstractContextManager[Any]] | None
) -> None:
    """Check one law, and once more in a context if it fails. Raises its last error, which has the finer size."""
    try:
        law(*given)
    except AssertionError as first:
        if again is None:
            raise
        try:
            with again():
                return law(*given)
        except AssertionError as second:
            raise second from None
        except Exception:  # the context does not suit the module
            raise first from None
