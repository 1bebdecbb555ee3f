"""Encoding and fitting in a new Python process, in which `hash()` of texts differs, as on another machine.

The tokenizer travels by pickle, as to a data loader's worker; both ends of the pipe are this module's.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqkit.interfaces import Tokenizer, Tokens

SCRIPT = """
import json, pickle, sys
path, module, file, data = pickle.load(sys.stdin.buffer)
sys.path[:] = path
out, sys.stdout = sys.stdout.buffer, sys.stderr
try:
    import importlib, importlib.util
    try:
        importlib.import_module(module)
    except ImportError:
        spec = importlib.util.spec_from_file_location(module, file)
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    tokenizer, raws, unfitted = pickle.loads(data)
    found = []
    for raw in raws:
        try:
            found.append(tokenizer.encode(raw))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    state = None
    if unfitted is not None:
        try:
            unfitted.fit(list(raws))
            state = json.dumps(unfitted.state())
        except Exception:  # it is fitted in the first process, too, whose law says what it raises
            state = None
    out.write(pickle.dumps((found, state)))
except Exception as error:
    out.write(pickle.dumps(f"{type(error).__name__}: {error}"))
"""

TIME_LIMIT = 300
"""Seconds."""


def run_elsewhere(
    tokenizer: Tokenizer, raws: Sequence[Any], unfitted: Tokenizer | None = None
) -> tuple[list[Tokens | str], str | None] | None:
    """Tokens of each raw example, or its error in words, and the JSON of the state of one that is fitted there.

    unfitted: the one that is fitted. Returns None if the class or the raws exist in this process alone.
    The new process imports the class of the tokenizer by its module's name, or from its module's file.
    Raises AssertionError if the tokenizer does not arrive.
    """
    module = sys.modules[type(tokenizer).__module__]
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__":
        return None
    try:
        data = pickle.dumps((tokenizer, list(raws), unfitted))
    except Exception:  # the raws cannot be pickled; the tokenizer alone was pickled before
        return None
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(  # noqa: S603  this Python, with the script above
        [sys.executable, "-c", SCRIPT],
        input=pickle.dumps((sys.path, module.__name__, str(Path(file).resolve()), data)),
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    if done.returncode or not done.stdout:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
        raise AssertionError(f"another process that imports {module.__name__} ended with {done.returncode}: {last}")
    found = pickle.loads(done.stdout)  # noqa: S301  written by our own process
    if isinstance(found, str):
        raise AssertionError(f"it does not arrive in another process: {found}")
    tokens, state = found
    return list(tokens), state
