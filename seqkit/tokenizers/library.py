"""The library `tokenizers`: imported where it is used, and its errors in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from seqkit.errors import described


def library(owner: str) -> Any:
    """The library. Raises ValueError, with what to install, if it is missing. owner: the class that needs it."""
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise ValueError(
            f'{owner} needs the library tokenizers; pip install "seqkit[text]"'
        ) from error
    return tokenizers


@contextmanager
def as_value_error(what: str) -> Iterator[None]:
    """Turns what the library raises into a ValueError in one line that begins with `what`."""
    try:
        yield
    except BaseException as error:
        # the library raises bare Exception, and where its own code fails a class that it does not export
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{what}: {described(error).removeprefix('Exception: ')}") from None
