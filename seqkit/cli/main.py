"""`seqkit`: picks the command and turns errors into one line and an exit code. Imports no torch by itself.

What takes longer to import than a few milliseconds is imported inside `main`, where Ctrl-C is handled.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

DIVERGED, USAGE, DATA, LOST = 1, 2, 3, 4
"""Exit codes: diverged, the command is wrong, the data is wrong or too large for the memory, another process died."""

MAX_MESSAGE = 4000
"""Characters of an error line; a key of a megabyte is not repeated."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code, which docs/runs.md explains."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed, as by `<&-`: the next file that is opened would take its place
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    try:
        with _stopped_in_imports():
            return _run(words)
    except KeyboardInterrupt:
        print("seqkit: stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # a reader such as `head` has what it wants
        with suppress(OSError, ValueError):  # what is still in the buffer goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


@contextmanager
def _stopped_in_imports() -> Iterator[None]:
    """End the process at once if Ctrl-C comes in an import."""
    from seqkit.errors import is_in_import

    def stop(_signal: int, frame: FrameType | None) -> None:
        if is_in_import(frame):
            os.write(2, b"seqkit: stopped\n")
            os._exit(128 + signal.SIGINT)
        raise KeyboardInterrupt

    usual = signal.default_int_handler
    is_ours = signal.getsignal(signal.SIGINT) is usual  # else it is ignored, or another program's
    if is_ours and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is stop:
            signal.signal(signal.SIGINT, usual)


def _run(words: list[str]) -> int:
    """Parse the words and run their command; an error that a user can cause is printed in one line."""
    import logging

    from seqkit.cli.parser import as_typed, module_of, parser
    from seqkit.errors import Interrupted, LogFormatter, UsageError, is_out_of_memory, one_line

    args, overrides = parser().parse_known_args(words)
    if args.command is None:
        parser().print_help()
        return 0
    name = f"seqkit {args.command}"
    if logging.lastResort is not None:  # what prints warnings where nothing else was asked to
        logging.lastResort.setFormatter(LogFormatter())
    try:
        if overrides and not getattr(args, "takes_keys", False):
            raise UsageError(f"it takes no {overrides[0]}; see {name} --help")
        args.overrides = as_typed(overrides, words)
        if args.plugin:
            from seqkit.registry.plugins import import_plugins

            import_plugins(args.plugin)
        if getattr(args, "recipe", None) is not None:
            from seqkit.cli.guess import take_data_as_recipe

            take_data_as_recipe(args)
        if getattr(args, "out", None) is not None:
            from seqkit.cli.out import check_kind

            check_kind(args.out, is_file=args.command in ("predict", "embed", "report"))
        code: int = module_of(args.command).run(args)
        sys.stdout.flush()
        return code
    except Interrupted as stop:
        print(f"{name}: {one_line(stop)}", file=sys.stderr)
        return 128 + stop.signum
    except BrokenPipeError:
        raise
    except Exception as error:
        expected = _exit_code(error)
        if expected is None:
            raise
        advice = "there is not enough memory; make model, batch or data smaller: " if is_out_of_memory(error) else ""
        print(f"{name}: {one_line(f'{advice}{error}')[:MAX_MESSAGE]}", file=sys.stderr)
        return expected


def _exit_code(error: Exception) -> int | None:
    """The exit code of an error that a user can cause; None for a mistake of ours, which deserves its traceback."""
    from traceback import walk_tb

    from seqkit.errors import DataError, DivergedError, LostProcessError, StorageError, UsageError, is_out_of_memory

    if isinstance(error, DivergedError):
        return DIVERGED
    if isinstance(error, LostProcessError):
        return LOST
    if isinstance(error, DataError | StorageError | OSError) or is_out_of_memory(error):
        return DATA
    *_, (frame, _) = walk_tb(error.__traceback__)
    is_ours = frame.f_globals.get("__name__", "").startswith("seqkit.")
    return USAGE if isinstance(error, UsageError) or (isinstance(error, ValueError) and is_ours) else None


if __name__ == "__main__":
    sys.exit(main())
