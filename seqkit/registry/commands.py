"""Commands of seqkit as a line advises them: quoted for a shell, and with the plug-ins in use."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from seqkit.errors import one_line
from seqkit.registry.lookup import registered


def command(*words: object) -> str:
    """A command of seqkit, quoted for a shell, with `--plugin` for each file of components that this process uses."""
    plugins = [word for file in plugin_files() for word in ("--plugin", file)]
    return in_shell(*words, *plugins)


def in_shell(*words: object) -> str:
    """Words of a command of seqkit, quoted for a shell; as the program was started, where another has its name."""
    is_module = Path(sys.argv[0]).parts[-2:] == ("seqkit", "__main__.py")
    program = ["python", "-m", "seqkit"] if is_module else ["seqkit"]
    return one_line(shlex.join([*program, *map(str, words)]))


def plugin_files() -> list[Path]:
    """Files whose components are registered, relative to the working folder where they are in it.

    A module of a package is none: it is imported by its package's name.
    """
    names = dict.fromkeys(component.path.partition(":")[0] for component in registered())
    found = []
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and "." not in name:
            path = Path(file)
            here = Path.cwd()
            found.append(path.relative_to(here) if path.is_relative_to(here) else path)
    return found
