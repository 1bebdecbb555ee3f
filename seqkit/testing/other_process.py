"""Encoding and fitting in a new Python process, in which `hash()` of texts differs, as on another machine.

The tokenizer travels by pickle, as to a data loader's worker; both ends of the pipe are this module's.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqkit.errors import described
from seqkit.interfaces import Tokenizer, Tokens
from seqkit.registry.plugins import import_plugins

TIME_LIMIT = 300
"""Seconds."""


def run_elsewhere(
    tokenizer: Tokenizer, raws: Sequence[Any], unfitted: Tokenizer | None = None
) -> tuple[list[Tokens | str], str | None] | None:
    """Tokens of each raw example, or its error in words, and the JSON of the state of one that is fitted there.

    unfitted: the one that is fitted. Returns None if the class exists in this process alone.
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
        timeout=TIME_LIMIT,
        check=True,
    )
    tokens, state = pickle.loads(done.stdout)  # noqa: S301  written by our own process
    return list(tokens), state


def answer() -> None:
    """Reads a tokenizer and raws from standard input, and writes tokens and state, in the new process."""
    name, file, data = pickle.load(sys.stdin.buffer)  # noqa: S301  written by our own process
    out, sys.stdout = sys.stdout.buffer, sys.stderr
    try:
        importlib.import_module(name)
    except ImportError:
        import_plugins([file])
    tokenizer, raws, unfitted = pickle.loads(data)  # noqa: S301
    found: list[Tokens | str] = []
    for raw in raws:
        try:
            found.append(tokenizer.encode(raw))
        except Exception as error:  # the user's own code: whatever it raises
            found.append(described(error))
    state = None
    with contextlib.suppress(Exception):  # it is fitted in the first process, too, whose law says what it raises
        if unfitted is not None:
            unfitted.fit(list(raws))
            state = json.dumps(unfitted.state())
    out.write(pickle.dumps((found, state)))
