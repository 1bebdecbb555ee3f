"""Python files of the user's own, whose components register when they run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from seqkit.errors import UsageError


def import_plugins(files: Sequence[Path]) -> None:
    """Run Python files that the user named on the command line, so that their components register."""
    import importlib.util

    for file in files:
        if not file.is_file():
            what = "a folder" if file.is_dir() else "no file"
            raise UsageError(f"--plugin {file} is {what}; give a Python file that registers components")
        if file.suffix != ".py" or not file.stem.isidentifier():
            raise UsageError(f"--plugin {file} should be a file whose name could be imported, such as my_components.py")
        taken = importlib.util.find_spec(file.stem)
        if taken is not None and Path(taken.origin or "").resolve() != file.resolve():
            raise UsageError(f"--plugin {file}: there is a module {file.stem} already; give the file another name")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # it is the user's own code: whatever it raises
            del sys.modules[file.stem]
            raise UsageError(f"--plugin {file} does not run: {type(error).__name__}: {error}") from error
