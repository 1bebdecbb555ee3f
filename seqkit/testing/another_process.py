"""Laws of a tokenizer that goes to another process: it arrives, and encodes as here.

In a new process `hash()` of texts differs, as on another machine.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from seqkit.errors import described
from seqkit.interfaces import Tokenizer, Tokens
from seqkit.registry.plugins import import_plugins
from seqkit.testing.checks import NotCheckedError
from seqkit.testing.encoded import Raws, assert_encodes_alike, assert_same
from seqkit.testing.process import settings_of


def can_be_pickled(tokenizer: Tokenizer, raws: Raws) -> None:
    """It can be pickled for a data loader's worker; the unpickled tokenizer and a deep copy encode alike."""
    try:
        back = unpickled(pickle.dumps(tokenizer))
    except Exception as error:  # whatever a plug-in's own fields raise
        raise AssertionError(
            f"it cannot be pickled for a data loader's worker: {described(error)}"
        ) from None
    for kind, duplicate in (("a pickled copy", back), ("a copy", copy.deepcopy(tokenizer))):
        assert_encodes_alike(duplicate, tokenizer, raws, kind)


def is_the_same_in_another_process(
    tokenizer: Tokenizer, raws: Raws, fresh: Callable[[], Tokenizer] | None = None
) -> None:
    """A new Python, whose `hash()` of texts differs, makes the same tokens with the pickled tokenizer, the same state
    with one that is fitted there, and the same tokens with one that is built there and loads the state."""
    unfitted = None if fresh is None else fresh()
    found = run_elsewhere(tokenizer, raws, unfitted)
    if found is None:
        raise NotCheckedError("only this process has its class")
    right = made_of(tokenizer, raws, unfitted)
    if found.state != right.state:
        raise AssertionError(
            "fit in another process gives another state (does it follow the order of a set?); sort what you collect"
        )
    _assert_made_alike(found.tokens, right.tokens, "in another process", "are ids made by hash()?")
    how = "by one that another process builds, with the state loaded,"
    _assert_made_alike(found.anew, right.anew, how, "does __init__ follow the order of a set?")


def _assert_made_alike(
    found: Sequence[Tokens | str], right: Sequence[Tokens | str], how: str, doubt: str
) -> None:
    """Raises AssertionError if an example has other tokens than those that are right, or an error in their place."""
    for i, (got, expected) in enumerate(zip(found, right)):
        what = f"example {i} encoded {how}"
        if isinstance(expected, str):
            continue  # another law says what it raises
        if isinstance(got, str):
            raise AssertionError(f"{what} raises {got}")
        assert_same(got, expected, f"{what} ({doubt})", exact=False)


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


class Made(NamedTuple):
    """Tokens and state that a process makes of raw examples.

    tokens: of each by the tokenizer, or its error. state: of one that is fitted there; None: there is none. anew:
    tokens by one that is `built_anew` there; empty: there is none.
    """

    tokens: Sequence[Tokens | str]
    state: Any = None
    anew: Sequence[Tokens | str] = ()


def made_of(tokenizer: Tokenizer, raws: Sequence[Any], unfitted: Tokenizer | None) -> Made:
    """Tokens and state that this process makes of the raw examples; other laws say what the user's own code raises."""
    tokens = all_encoded_or_not(tokenizer, raws)
    one = built_anew(unfitted, tokenizer)
    anew = [] if one is None else all_encoded_or_not(one, raws)
    state = None
    with contextlib.suppress(Exception):
        if unfitted is not None:
            unfitted.fit(list(raws))  # type: ignore[attr-defined]
            state = json.loads(json.dumps(unfitted.state()))
    return Made(tokens, state, anew)


def run_elsewhere(
    tokenizer: Tokenizer, raws: Sequence[Any], unfitted: Tokenizer | None = None
) -> Made | None:
    """Tokens and state that a new process makes of the raw examples.

    unfitted: the one that is fitted and built anew. Returns None if the class exists in this process alone.
    The new process imports the class of the tokenizer by its module's name, or from its module's file.
    Raises CalledProcessError if the tokenizer does not arrive.
    """
    module = sys.modules[type(tokenizer).__module__]
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__":
        return None
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    code = f"from {__name__} import answer; answer()"
    done = subprocess.run(  # noqa: S603  this Python, with the function below
        [sys.executable, "-c", code, module.__name__, str(Path(file).resolve())],
        input=pickle.dumps((tokenizer, list(raws), unfitted)),
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )
    made, state, anew = torch.load(io.BytesIO(done.stdout), weights_only=True)
    tokens, again = (
        [one if isinstance(one, str) else Tokens.of(one) for one in found] for found in (made, anew)
    )
    return Made(tokens, state, again)


def answer() -> None:
    """Reads a tokenizer and raws from standard input, and writes the parts of `Made`, in the new process."""
    name, file = sys.argv[1:]
    out = sys.stdout.buffer
    sys.stdout = sys.stderr
    try:
        importlib.import_module(name)
    except ImportError:
        import_plugins([Path(file)])
    tokens, state, anew = made_of(*unpickled(sys.stdin.buffer.read()))
    # tensors by name load without code
    made, again = (
        [one if isinstance(one, str) else one.tensors() for one in found]
        for found in (tokens, anew)
    )
    torch.save((made, state, again), out)


def unpickled(data: bytes) -> Any:
    """Object of a pickle that this process, or the one that started it, has just made: the only one that seqkit loads.

    It is what a data loader's worker gets of a tokenizer. multiprocessing would load it unseen, but it runs the user's
    script again in each new process, and holds an open file for each tensor: 600 are too many for a limit of 1,024.
    """
    return pickle.loads(data)  # noqa: S301  never of a file
