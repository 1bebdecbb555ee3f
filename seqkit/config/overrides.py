"""Overrides: dotted keys with values, and words of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from seqkit.config.recipe import load_yaml
from seqkit.config.spellings import check_spelling
from seqkit.errors import UsageError


def dotted(overrides: Mapping[str, Any] | Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(key, value) of each override; values of the command line are `Word`s.

    Of two values of a key the last counts, and a key with more dots counts more than one with fewer.
    Raises UsageError for a word that belongs to no key.

    >>> list(dotted(["--seed", "3", "--data.limit=7"]))
    [('seed', '3'), ('data.limit', '7')]
    """
    if isinstance(overrides, Mapping):
        yield from plain(overrides).items()
        return
    if not isinstance(overrides, Sequence) or isinstance(overrides, str):
        raise UsageError(
            f"the overrides are {shown(overrides)}; give a value for each dotted key: {{'seed': 2}}"
        )
    words = [str(word) for word in overrides]
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            if re.match(r"-[A-Za-z]", word):
                key, _, value = word[1:].partition("=")
                check_spelling(key, value or next(iter(words), "VALUE"))
            raise UsageError(
                f"{word!r} belongs to no key, and one recipe or file is taken; write --key value"
            )
        key, is_pair, value = word[2:].partition("=")
        if is_pair:
            yield key, Word(value)
        elif words and not words[0].startswith("--"):
            yield key, Word(words.pop(0))
        else:  # a switch, or its value was forgotten: the field of that name tells
            yield key, Switch("true")


class Word(str):
    """A value from the command line, not yet read as YAML."""

    def read(self) -> Any:
        """The value as YAML, or the word itself if it is none."""
        try:
            return load_yaml(self)
        except yaml.YAMLError:
            return str(self)


class Switch(Word):
    """The value of a key of the command line that has none: true, where a key is true or false."""


def plain(value: Any, key: str = "") -> Any:
    """A value from Python as YAML would have it: paths as texts, numbers of NumPy as numbers, tuples as lists.

    key: where it stands. Raises UsageError for anything else, such as a module, which no run folder could hold.
    """
    import numpy as np

    if isinstance(value, Mapping):
        return {str(name): plain(item, f"{key}.{name}".lstrip(".")) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, key) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    cls = value if isinstance(value, type) else type(value)
    what = "a class" if cls is value else f"an instance of {cls.__name__}"
    raise UsageError(
        f"{key or 'the configuration'} is {what}; register {cls.__name__} and give its name as a text"
    )


def shown(value: Any) -> str:
    """A value as an error shows it, cut after 200 characters."""
    if value is None:
        text = "null"
    elif isinstance(value, str):
        text = repr(value)
    else:
        text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
