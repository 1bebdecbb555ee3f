"""Imports code of others, Python files and packages, and names the file or package in every error."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from seqkit.errors import UsageError, described, one_line


@contextmanager
def quietly(name: str) -> Iterator[None]:
    """Keeps what the code inside prints from standard output; its first line is said on stderr, with `name`."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        yield
    if printed := output.getvalue().strip():
        sys.stderr.write(
            f"{name} prints while it is imported: {one_line(printed.splitlines()[0])[:200]}\n"
        )


def import_plugins(files: Sequence[Path], option: str = "--plugin ") -> None:
    """Run Python files that the user named on the command line, so that their components register.

    As with `python FILE`, they may import modules of their own folder, which is searched last. option: what stands
    before the file on the command line, for the errors; may be empty.
    """
    import importlib.util

    for file in files:
        if not file.is_file():
            what = "a folder" if file.is_dir() else "no file"
            raise UsageError(
                f"{option}{file} is {what}; give a Python file that registers components"
            )
        if file.suffix != ".py" or not file.stem.isidentifier():
            raise UsageError(
                f"{option}{file} should be a file whose name could be imported, such as my_components.py"
            )
        taken = importlib.util.find_spec(file.stem)
        if taken is not None and Path(taken.origin or "").resolve() != file.resolve():
            raise UsageError(
                f"{option}{file}: there is a module {file.stem} already; give the file another name"
            )
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        before = list(sys.path)
        if (folder := str(file.parent.resolve())) not in before:
            sys.path.append(folder)
        sys.modules[file.stem] = module = importlib.util.module_from_spec(spec)
        try:
            with quietly(f"{option}{file}"):
                spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # it is the user's own code: whatever it raises
            del sys.modules[file.stem]
            sys.path[:] = before
            raise UsageError(f"{option}{file} does not run: {described(error)}") from error
