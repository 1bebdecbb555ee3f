"""`seqkit`: picks the command and turns errors into one line and an exit code. Imports no torch by itself."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from seqkit.cli.parser import COMMANDS, TAKE_KEYS, parser
from seqkit.errors import (
    DataError,
    DivergedError,
    Interrupted,
    LogFormatter,
    StorageError,
    UsageError,
    is_out_of_memory,
    one_line,
)

DIVERGED, USAGE, DATA = 1, 2, 3
"""Exit codes: diverged, the command is wrong, the data is wrong or too large for the memory."""

MAX_MESSAGE = 4000
"""Characters of an error line; a key of a megabyte is not repeated."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code: 0, 1 (diverged), 2 (usage), 3 (data) or 128 + a signal's number."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    args, overrides = parser().parse_known_args(words)
    if args.command is None:
        parser().print_help()
        return 0
    name = f"seqkit {args.command}"
    if overrides and args.command not in TAKE_KEYS:
        print(f"{name}: it takes no {one_line(overrides[0])}; see {name} --help", file=sys.stderr)
        return USAGE
    args.overrides = overrides
    if logging.lastResort is not None:  # what prints warnings where nothing else was asked to
        logging.lastResort.setFormatter(LogFormatter())
    try:
        if getattr(args, "plugin", None):
            from seqkit.registry.plugins import import_plugins

            import_plugins(args.plugin)
        code: int = import_module(f"seqkit.cli.{COMMANDS[args.command]}").run(args)
        sys.stdout.flush()
        return code
    except Interrupted as stop:
        print(f"{name}: {one_line(stop)}", file=sys.stderr)
        return 128 + stop.signum
    except BrokenPipeError:  # a reader such as `head` has what it wants
        with suppress(OSError, ValueError):  # what is still in the buffer goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:
        expected = _exit_code(error)
        if expected is None:
            raise
        advice = "there is not enough memory; make model, batch or data smaller: " if is_out_of_memory(error) else ""
        print(f"{name}: {one_line(f'{advice}{error}')[:MAX_MESSAGE]}", file=sys.stderr)
        return expected


def _exit_code(error: Exception) -> int | None:
    """The exit code of an error that a user can cause; None for a mistake of ours, which deserves its traceback."""
    if isinstance(error, DivergedError):
        return DIVERGED
    if isinstance(error, DataError | StorageError | OSError) or is_out_of_memory(error):
        return DATA
    if isinstance(error, UsageError) or (isinstance(error, ValueError) and _module(error).startswith("seqkit.")):
        return USAGE
    return None


def _module(error: Exception) -> str:
    """The module in which the error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""


if __name__ == "__main__":
    sys.exit(main())
