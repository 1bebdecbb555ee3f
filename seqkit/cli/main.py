"""`seqkit`: picks the command and turns errors into one line and an exit code. Imports no torch by itself."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

FAILED = 1
USAGE = 2
DATA = 3
"""Exit codes of errors that have none of their own: the user's own code raised it; the command is wrong; the data is
wrong, or too large."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""System errors of a disk, for which the command is not to blame."""

MAX_MESSAGE = 4000
"""Characters of an error line; a key of a megabyte is not repeated."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code, which docs/runs.md explains."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # closed, as by `<&-`: the next file that is opened would take its place
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    try:
        return _run(words)
    except KeyboardInterrupt:
        print("seqkit: stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # a reader such as `head` has what it wants
        with suppress(OSError, ValueError):  # what is still in the buffer goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except SystemExit as left:  # rich leaves so, where its reader has gone
        if isinstance(left.__context__, BrokenPipeError):
            return 128 + signal.SIGPIPE
        raise


def _run(words: list[str]) -> int:
    """Parse the words and run their command; an error that a user can cause is printed in one line."""
    import logging

    from seqkit.cli.parser import TRACEBACK, module_of, parser
    from seqkit.errors import (
        Interrupted,
        LogFormatter,
        UsageError,
        described,
        is_out_of_memory,
        one_line,
    )

    plain = [word for word in words if word != TRACEBACK]
    args, overrides = parser().parse_known_args(plain)
    if args.command is None and overrides:
        parser().error(f"there is no command {overrides[0]!r}; see seqkit --help")
    if args.command is None:
        parser().print_help()
        return 0
    args.words = plain
    name = f"seqkit {args.command}"
    if logging.lastResort is not None:  # what prints warnings where nothing else was asked to
        logging.lastResort.setFormatter(LogFormatter())
    try:
        if overrides and not getattr(args, "takes_keys", False):
            raise UsageError(f"it takes no {overrides[0]}; see {name} --help")
        args.overrides = overrides
        if getattr(args, "allow_broken_laws", False):
            args.overrides = [*overrides, "--trainer.allow_broken_laws", "true"]
        if args.plugin:
            from seqkit.registry.plugins import import_plugins

            import_plugins(args.plugin)
        if getattr(args, "run", None) is not None:
            from seqkit.runs.summary import check_trained

            check_trained(args.run)  # a mistake is said before what imports torch
        if getattr(args, "recipe", None) is not None:
            from seqkit.cli.guess import take_data_as_recipe

            take_data_as_recipe(args)
        code: int = module_of(args.command).run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except (Interrupted, Exception) as error:
        code_of_error = _exit_code(error)
        said = str(error)
        if code_of_error is None:
            what = getattr(args, "what", "")
            checked = what.partition(":")[0] if isinstance(what, str) else ""
            place = _place(error, [*args.plugin, checked])
            if not place:
                raise
            said = f"{place}: {described(error)}; correct it ({TRACEBACK} shows how it came there)"
            code_of_error = FAILED
        if TRACEBACK in words:
            import traceback

            traceback.print_exc()
        if is_out_of_memory(error):
            advice = "there is not enough memory; make model, batch or data smaller: "
        else:
            advice = ""
        if isinstance(error, OSError) and error.filename is not None:
            said = f"{error.filename}: {error.strerror}; check the path"
            out = getattr(args, "out", None)
            if out is not None and _is_for(out, Path(error.filename)):
                said = f"{out} cannot be written ({error.strerror}); give another place"
                code_of_error = code_of_error if error.errno in FULL else USAGE
        print(f"{name}: {one_line(f'{advice}{said}')[:MAX_MESSAGE]}", file=sys.stderr)
        return code_of_error


def _is_for(out: Path, path: Path) -> bool:
    """Whether a file is an output: in it, a folder that it is in, or the temporary file that takes its name."""
    is_temporary = path.parent == out.parent and path.name.startswith(f".{out.name}.")
    return is_temporary or out.is_relative_to(path) or path.is_relative_to(out)


def _exit_code(error: BaseException) -> int | None:
    """The exit code of an error that a user can cause; None for a mistake of ours, which deserves its traceback."""
    from traceback import walk_tb

    from seqkit.errors import is_out_of_memory

    if isinstance(error, OSError) or is_out_of_memory(error):
        return DATA
    *_, (frame, _) = walk_tb(error.__traceback__)
    is_ours = frame.f_globals.get("__name__", "").startswith("seqkit.")
    return getattr(error, "exit_code", USAGE if isinstance(error, ValueError) and is_ours else None)


def _place(error: BaseException, files: Sequence[str | Path]) -> str:
    """File and line of the user's own code in which an error was raised; empty: it has no part in it.

    files: the user's Python files; others beside them are their own, too.
    """
    from traceback import extract_tb

    folders = {Path(file).resolve().parent for file in files if Path(file).suffix == ".py"}
    own = [x for x in extract_tb(error.__traceback__) if Path(x.filename).parent in folders]
    return f"{own[-1].filename}, line {own[-1].lineno}, in {own[-1].name}" if own else ""


if __name__ == "__main__":
    sys.exit(main())
