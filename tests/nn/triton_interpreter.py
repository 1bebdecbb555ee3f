"""Kernels in Triton without a GPU: their test files run as programs in Triton's interpreter.

Triton chooses the interpreter when it is imported, so it runs in a process of its own.
"""

import builtins
import os
import subprocess
import sys
from pathlib import Path


def assert_passes(file):
    """Asserts that the file runs as a program, interpreted."""
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here.parent), str(here), *sys.path])
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, file], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def interpret(module):
    """Gives the kernels of a module a `range` of numbers as the interpreter has them, arrays of one."""

    def of(*ends):
        return builtins.range(
            *(int(x.handle.data.item()) if hasattr(x, "handle") else x for x in ends)
        )

    module.range = of
