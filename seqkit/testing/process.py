"""State that a component must leave alone: of the process in which it runs, and of its examples."""

from __future__ import annotations

import contextlib
import gc
import io
import locale
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

MAX_DEPTH = 8
"""Levels of a raw example (lists of objects of …) that are compared; cycles end here."""


def _numpy() -> Any:
    return sys.modules.get("numpy")  # without an import it has no state


STATES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any] | None]] = {
    "the state of torch's global generator": (torch.get_rng_state, torch.set_rng_state),
    "the state of Python's global generator": (random.getstate, random.setstate),
    "the state of NumPy's global generator": (
        lambda: _numpy() and _numpy().random.get_state(),
        lambda state: state and _numpy().random.set_state(state),
    ),
    "the number of torch's threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": (torch.get_default_device, torch.set_default_device),
    "whether torch records gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "whether torch is deterministic": (
        torch.are_deterministic_algorithms_enabled,
        lambda enabled: torch.use_deterministic_algorithms(enabled),
    ),
    "the precision of torch's matrix products": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "whether torch looks for anomalies": (
        torch.is_anomaly_enabled,
        lambda enabled: torch.autograd.set_detect_anomaly(enabled),
    ),
    "what NumPy does about overflow": (
        lambda: _numpy() and _numpy().geterr(),
        lambda state: state and _numpy().seterr(**state),
    ),
    "the locale": (lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    "the working folder": (Path.cwd, os.chdir),
    "an environment variable": (lambda: dict(os.environ), None),
    "sys.path": (lambda: list(sys.path), None),
    "the recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "what handles uncaught errors": (lambda: sys.excepthook, lambda hook: setattr(sys, "excepthook", hook)),
    "the level or the handlers of the root logger": (
        lambda: (logging.root.level, list(logging.root.handlers)),
        None,
    ),
    "what handles Ctrl-C or SIGTERM": (
        lambda: (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)),
        None,
    ),
    "Python's garbage collector": (gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
}
"""State of the process by its description: how it is read, and how it is restored; None: it is not."""


@contextlib.contextmanager
def left_alone(what: str, *, imports: bool = False, draws: bool = False) -> Iterator[None]:
    """Raises AssertionError, naming `what`, if the code inside prints, ends Python, or changes the process.

    imports: whether it may import libraries, which may set environment variables, start threads and configure logging.
    draws: whether it may draw from the global generators, as the initialisation of weights does.
    The state is restored, so that one fault does not hide another.
    """
    out, err = io.StringIO(), io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        warnings.simplefilter("ignore")
        before = {name: read() for name, (read, _) in STATES.items()}
        filters, threads = list(warnings.filters), set(threading.enumerate())
        try:
            yield
        except SystemExit as stop:
            raise AssertionError(f"{what} ends Python (SystemExit: {stop.code}); raise an error") from None
        finally:
            changed = [name for name, (read, _) in STATES.items() if not same(before[name], read())]
            changed = [name for name in changed if not (imports and STATES[name][1] is None)]
            changed = [name for name in changed if not (draws and "generator" in name)]
            if list(warnings.filters) != filters and not imports:
                changed.append("Python's filters of warnings")
            if set(threading.enumerate()) - threads and not imports:
                changed.append("the number of threads that run")
            for name in changed:
                put_back = STATES.get(name, (None, None))[1]
                if put_back is not None:
                    put_back(before[name])
    if changed:
        raise AssertionError(f"{what} changes {changed[0]}; leave the process as it was found")
    said = (out.getvalue() + err.getvalue()).strip()
    if said:
        raise AssertionError(
            f"{what} prints {said.splitlines()[0][:80]!r}; use the logging module, and not for each call"
        )


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds the global generators of torch, Python and NumPy inside, and restores them afterwards."""
    before = generators()
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if _numpy():
        _numpy().random.seed(seed)
    try:
        yield
    finally:
        for name, state in before.items():
            put_back = STATES[name][1]
            assert put_back is not None
            put_back(state)


def generators() -> dict[str, Any]:
    """State of the global generators of torch, Python and NumPy by description: it changes if one is drawn from."""
    return {name: read() for name, (read, _) in STATES.items() if "generator" in name}


def same(before: Any, after: Any, depth: int = 0) -> bool:
    """Whether two values are equal: tensors and arrays by element (NaN equals NaN), objects by attributes.

    New attributes of `after` do not count: an object may fill a cache of its own. Values that cannot be compared count
    as equal.
    """
    if before is after or depth > MAX_DEPTH:
        return True
    if isinstance(before, torch.dtype | FunctionType | BuiltinFunctionType | MethodType):
        return bool(before == after)
    if isinstance(before, Tensor) or hasattr(before, "__array__"):
        return _same_numbers(before, after)
    if type(before) is not type(after):
        return False
    if isinstance(before, Mapping):
        return len(before) == len(after) and all(
            key in after and same(value, after[key], depth + 1) for key, value in before.items()
        )
    if isinstance(before, Sequence) and not isinstance(before, str | bytes):
        return len(before) == len(after) and all(same(a, b, depth + 1) for a, b in zip(before, after, strict=True))
    names = getattr(type(before), "__slots__", None) or getattr(before, "__dict__", None)
    if isinstance(names, Mapping | tuple | list):
        return all(same(getattr(before, n, None), getattr(after, n, None), depth + 1) for n in names)
    if type(before).__eq__ is object.__eq__:
        return True
    try:
        return bool(before == after or (before != before and after != after))
    except Exception:  # whatever a raw example's own class raises
        return True


def _same_numbers(before: Any, after: Any) -> bool:
    try:
        a, b = torch.as_tensor(before), torch.as_tensor(after)
    except (TypeError, ValueError, RuntimeError):  # arrays of strings or objects
        return bool(repr(before) == repr(after))
    if a.shape != b.shape or a.dtype != b.dtype or a.is_sparse or a.device != b.device:
        return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
    return bool(((a == b) | ((a != a) & (b != b))).all())
