"""State that a component must leave alone, of the process and of its examples."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import locale
import logging
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "the state of torch's global generator": (torch.get_rng_state, torch.set_rng_state),
    "the state of Python's global generator": (random.getstate, random.setstate),
    "the state of NumPy's global generator": (np.random.get_state, np.random.set_state),
}
STATES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    **GENERATORS,
    "the number of torch's threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "whether torch records gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "the precision of torch's matrix products": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "whether torch looks for anomalies": (
        torch.is_anomaly_enabled,
        torch.autograd.set_detect_anomaly,
    ),
    "what NumPy does about overflow": (np.geterr, lambda state: np.seterr(**state)),
    "the locale": (
        partial(locale.setlocale, locale.LC_ALL),
        partial(locale.setlocale, locale.LC_ALL),
    ),
    "the working folder": (Path.cwd, os.chdir),
    "the recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
}
"""State of the process by its description: how it is read, and how it is restored."""

OF_IMPORTS: dict[str, Callable[[], Any]] = {
    "an environment variable": lambda: dict(os.environ),
    "the level or the handlers of the root logger": lambda: [
        logging.root.level,
        *logging.root.handlers,
    ],
    "Python's filters of warnings": lambda: list(warnings.filters),
}
"""State that an import may change, too, and that is not restored."""


@contextlib.contextmanager
def left_alone(what: str, *, imports: bool = False) -> Iterator[None]:
    """Raises AssertionError, naming `what`, if the code inside prints, ends Python, or changes the process.

    imports: whether it may import libraries. The state is restored, so that one fault does not hide another.
    """
    output = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        warnings.simplefilter("ignore")
        before = {name: read() for name, (read, _) in STATES.items()}
        loose = {name: read() for name, read in OF_IMPORTS.items()}
        threads = set(threading.enumerate())
        try:
            yield
        except SystemExit as stop:
            raise AssertionError(
                f"{what} ends Python (SystemExit: {stop.code}); raise an error"
            ) from None
        finally:
            changed = []
            for name, (read, restore) in STATES.items():
                if not same(before[name], read()):
                    changed.append(name)
                    restore(before[name])
            if not imports:
                changed += [name for name, read in OF_IMPORTS.items() if loose[name] != read()]
                if not threads >= set(threading.enumerate()):
                    changed.append("the number of threads that run")
    if changed:
        raise AssertionError(f"{what} changes {changed[0]}; leave the process as it was found")
    if said := output.getvalue().strip():
        raise AssertionError(
            f"{what} prints {said.splitlines()[0][:80]!r}; use the logging module, and not for each call"
        )


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds the global generators of torch, Python and NumPy inside, and restores them afterwards."""
    before = generators()
    on_cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    if on_cuda:
        torch.cuda.manual_seed_all(seed)
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        for name, state in before.items():
            GENERATORS[name][1](state)
        torch.cuda.set_rng_state_all(on_cuda)


def fixed_generator() -> torch.Generator:
    """A generator that draws the same every time."""
    return torch.Generator().manual_seed(0)


def generators() -> dict[str, Any]:
    """State of the global generators of torch, Python and NumPy by description: it changes if one is drawn from."""
    return {name: read() for name, (read, _) in GENERATORS.items()}


def same(before: Any, after: Any) -> bool:
    """Whether two values are equal: tensors and arrays by element (NaN equals NaN), dataclasses by field.

    Objects of a class without `==` count as equal.
    """
    if before is after or type(before) is not type(after) or isinstance(before, torch.dtype):
        return before is after
    if isinstance(before, Tensor | np.ndarray):
        return _same_numbers(before, after)
    if dataclasses.is_dataclass(before):
        return all(
            same(getattr(before, x.name), getattr(after, x.name))
            for x in dataclasses.fields(before)
        )
    if isinstance(before, Mapping):
        return before.keys() == after.keys() and all(
            same(value, after[key]) for key, value in before.items()
        )
    if isinstance(before, list | tuple):
        return len(before) == len(after) and all(map(same, before, after))
    if type(before).__eq__ is object.__eq__:
        return True
    return bool(before == after) or bool(before != before and after != after)


def _same_numbers(before: Any, after: Any) -> bool:
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    if isinstance(before, Tensor) and before.is_sparse:
        return True
    return bool(((before == after) | ((before != before) & (after != after))).all())


def settings_of(component: Any) -> dict[str, Any]:
    """The settings of its class by name, from the attributes that are named after them.

    Raises LookupError with the names of those that have no attribute.
    """
    known = vars(component)
    names = inspect.signature(type(component)).parameters
    own = {name: name if name in known else f"_{name}" for name in names}
    if unknown := [name for name, attribute in own.items() if attribute not in known]:
        raise LookupError(", ".join(unknown))
    return {name: known[attribute] for name, attribute in own.items()}
