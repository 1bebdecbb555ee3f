"""Errors that a user can cause, each with its exit code, and texts that cannot steer a terminal."""

from __future__ import annotations

import difflib
import logging
import re
import signal
from collections.abc import Iterable
from types import FrameType
from typing import Any


class DataError(ValueError):
    """Input data cannot be used."""

    exit_code = 3


class UsageError(ValueError):
    """A command, a key or a name is wrong."""

    exit_code = 2


class DivergedError(RuntimeError):
    """The loss is not finite, and another optimizer step would destroy the weights."""

    exit_code = 1


class StorageError(RuntimeError):
    """A file cannot be written."""

    exit_code = 3


class LostProcessError(RuntimeError):
    """Another process of a distributed run died."""

    exit_code = 4


SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
    if hasattr(signal, name)
)
"""Signals that stop a run; Windows has SIGTERM and SIGINT alone."""


class Interrupted(BaseException):
    """A signal asked the run to stop; no Exception, so that nothing catches it as one."""

    def __init__(self, message: str, signum: int):
        super().__init__(message)
        self.signum = signum
        self.exit_code = 128 + signum


def is_in_import(frame: FrameType | None) -> bool:
    """Whether a signal came in an import, where some packages turn what its handler raises into other errors."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or torch ran out of memory; torch raises RuntimeErrors with such words."""
    words = (
        "allocate memory", "out of memory", "not enough memory", "DefaultCPUAllocator", "CUBLAS_STATUS_ALLOC_FAILED",
        "Storage size calculation overflowed",
    )  # fmt: skip
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


MAX_FOREIGN = 300
MAX_REASON = 1000
"""Characters that are shown of another library's message, and of a sentence that says why an example is refused: some
hold the whole file that they complain of."""


def shortened(text: object, most: int = MAX_FOREIGN) -> str:
    """A text of so many characters at most, the last of them `…` where it was longer."""
    whole = str(text)
    return whole if len(whole) <= most else f"{whole[: most - 1]}…"


def reason(error: BaseException) -> str:
    """The sentence of an error that says by itself why an example is refused, as a DataError does, shortened."""
    return shortened(error, MAX_REASON) or type(error).__name__


def described(error: BaseException) -> str:
    """Class and message of an error that is not ours, in a line, shortened; one without a message is its class."""
    return ": ".join(filter(None, (type(error).__name__, " ".join(shortened(error).split()))))


def attempt(tokenizer: Any, method: str, given: Any) -> Any:
    """Result of a method of the user's tokenizer. Raises DataError, whatever the method raises."""
    try:
        return getattr(tokenizer, method)(given)
    except DataError:
        raise
    except Exception as error:  # the user's own code: whatever it raises
        if is_out_of_memory(error):
            raise
        raise DataError(f"{type(tokenizer).__name__}.{method} raised {described(error)}") from error


_STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that a terminal or a page obeys or cannot show: control characters (ESC starts ANSI sequences), line
separators, marks that reverse the order of letters, and halves of surrogate pairs (undecodable bytes of file names)."""


def printable(text: object) -> str:
    """A text for a terminal, a log or a page, with control characters escaped (ESC becomes \\x1b); line feeds stay."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def one_line(text: object) -> str:
    """A printable text in one line: a line feed becomes \\n, a tab \\t."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


class LogFormatter(logging.Formatter):
    """Makes log records printable, and our messages one line each, so that no file name can fake another line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record with its traceback, escaped."""
        return printable(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The record without its traceback."""
        if record.name.partition(".")[0] == "seqkit":
            record.message = one_line(record.message)
        return super().formatMessage(record)


def suggest(name: str, known: Iterable[str]) -> str:
    """`did you mean …?` with the nearest of the known names, or all of them if none is near."""
    known = list(known)
    if not known:
        return "there are none"
    # the last part of a dotted name counts too: SGD is near torch.optim.SGD
    by_lower = {k.rpartition(".")[2].lower(): k for k in known} | {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(dict.fromkeys(by_lower[n] for n in near))}?"
    return f"there are: {', '.join(sorted(known))}"
