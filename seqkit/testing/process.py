"""State that a component must leave alone, of the process and of its examples; and encoding in a new process, in which
`hash()` of texts differs, as on another machine."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import inspect
import io
import json
import locale
import logging
import os
import pickle
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqkit.errors import described
from seqkit.interfaces import Tokenizer, Tokens
from seqkit.registry.plugins import import_plugins

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


def built_anew(unfitted: Tokenizer | None, fitted: Tokenizer) -> Tokenizer | None:
    """One that its class builds with the settings of the unfitted one, and that loads the state of the fitted one; None
    where the attributes do not have them."""
    if unfitted is None:
        return None
    try:
        one = type(unfitted)(**copy.deepcopy(settings_of(unfitted)))
        one.load_state(json.loads(json.dumps(fitted.state())))
    except Exception:  # another law says what the user's own code raises
        return None
    return one


def all_encoded_or_not(tokenizer: Tokenizer, raws: Sequence[Any]) -> list[Tokens | str]:
    """Tokens of each raw example, or its error in words."""
    found: list[Tokens | str] = []
    for raw in raws:
        try:
            found.append(tokenizer.encode(raw))
        except Exception as error:  # the user's own code: whatever it raises
            found.append(described(error))
    return found


class Elsewhere(NamedTuple):
    """Answer of a new process: tokens or an error of each example by the pickled tokenizer, the JSON of the state of
    one that is fitted there, and tokens by one that is `built_anew` there; None: there is none."""

    tokens: list[Tokens | str]
    state: str | None = None
    anew: list[Tokens | str] | None = None


def run_elsewhere(
    tokenizer: Tokenizer, raws: Sequence[Any], unfitted: Tokenizer | None = None
) -> Elsewhere | None:
    """Tokens that a new process makes of the raw examples.

    unfitted: the one that is fitted and built anew. Returns None if the class exists in this process alone.
    The new process imports the class of the tokenizer by its module's name, or from its module's file.
    Raises CalledProcessError if the tokenizer does not arrive.
    """
    module = sys.modules[type(tokenizer).__module__]
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__":
        return None
    data = pickle.dumps((tokenizer, list(raws), unfitted))
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(  # noqa: S603  this Python, with the function below
        [sys.executable, "-c", f"from {__name__} import answer; answer()"],
        input=pickle.dumps((module.__name__, Path(file).resolve(), data)),
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )
    return Elsewhere(*pickle.loads(done.stdout))  # noqa: S301  written by our own process


def answer() -> None:
    """Reads a tokenizer and raws from standard input, and writes the parts of `Elsewhere`, in the new process."""
    name, file, data = pickle.load(sys.stdin.buffer)  # noqa: S301  written by our own process
    out = sys.stdout.buffer
    sys.stdout = sys.stderr
    try:
        importlib.import_module(name)
    except ImportError:
        import_plugins([file])
    tokenizer, raws, unfitted = pickle.loads(data)  # noqa: S301
    found = all_encoded_or_not(tokenizer, raws)
    one = built_anew(unfitted, tokenizer)
    anew = None if one is None else all_encoded_or_not(one, raws)
    state = None
    # it is fitted in the first process, too, whose law says what it raises
    with contextlib.suppress(Exception):
        if unfitted is not None:
            unfitted.fit(list(raws))
            state = json.dumps(unfitted.state())
    out.write(pickle.dumps((found, state, anew)))
