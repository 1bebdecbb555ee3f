"""Imports code of others, Python files and packages, and names the file or package in every error."""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType

from seqkit.errors import UsageError, described, one_line

SLOW, TIME_LIMIT = 10, 120
"""Seconds of computing after which an import is called slow, and seconds after which it is stopped; torch with
Lightning, vision and audio takes some 7 on an idle machine."""


class _TooSlow(BaseException):
    """The time is over; no Exception, so that a plug-in's own `except Exception` does not swallow it."""


@contextmanager
def in_time(name: str) -> Iterator[None]:
    """Raises UsageError, naming `name`, if the code inside takes too long; says so if it is slow or prints.

    Only Python's main thread on a system with SIGALRM can be stopped; elsewhere there is no limit.
    """
    output = io.StringIO()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _TooSlow

    can_stop = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, stop) if can_stop else None
    start = time.process_time()  # a busy machine makes no import slow
    try:
        if can_stop:
            signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT)
        with redirect_stdout(output), redirect_stderr(output):
            yield
    except _TooSlow:
        raise UsageError(f"{name} takes more than {TIME_LIMIT:g} s to import; move its work into functions") from None
    finally:
        if can_stop:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    took, printed = time.process_time() - start, output.getvalue().strip()
    if took > SLOW:
        sys.stderr.write(f"{name} computes for {took:.0f} s when it is imported; move its work into functions\n")
    if printed:
        sys.stderr.write(f"{name} prints while it is imported: {one_line(printed.splitlines()[0])[:200]}\n")


def import_plugins(files: Sequence[Path], option: str = "--plugin ") -> None:
    """Run Python files that the user named on the command line, so that their components register.

    As with `python FILE`, they may import modules of their own folder, which is searched last. option: what stands
    before the file on the command line, for the errors; may be empty.
    """
    import importlib.util

    for file in files:
        if not file.is_file():
            what = "a folder" if file.is_dir() else "no file"
            raise UsageError(f"{option}{file} is {what}; give a Python file that registers components")
        if file.suffix != ".py" or not file.stem.isidentifier():
            raise UsageError(f"{option}{file} should be a file whose name could be imported, such as my_components.py")
        taken = importlib.util.find_spec(file.stem)
        if taken is not None and Path(taken.origin or "").resolve() != file.resolve():
            raise UsageError(f"{option}{file}: there is a module {file.stem} already; give the file another name")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        before = list(sys.path)
        if (folder := str(file.parent.resolve())) not in before:
            sys.path.append(folder)
        sys.modules[file.stem] = module = importlib.util.module_from_spec(spec)
        try:
            with in_time(f"{option}{file}"):
                spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # it is the user's own code: whatever it raises
            del sys.modules[file.stem]
            sys.path[:] = before
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"{option}{file} does not run: {described(error)}") from error
