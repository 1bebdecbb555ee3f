"""Overrides: dotted keys with values, and words of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from seqkit.config.recipe import load_yaml
from seqkit.config.spellings import check_spelling
from seqkit.errors import UsageError


def dotted(overrides: Mapping[str, Any] | Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(key, value) of each override; values of the command line are `Word`s.

    Raises UsageError for a word that belongs to no key.
    """
    if isinstance(overrides, Mapping):
        yield from plain(overrides).items()
        return
    if not isinstance(overrides, Sequence) or isinstance(overrides, str):
        raise UsageError(f"the overrides are {shown(overrides)}; give a value for each dotted key: {{'seed': 2}}")
    words = list(overrides)
    while words:
        word = words.pop(0)
        if not isinstance(word, str) or not word.startswith("--"):
            if re.match(r"-[A-Za-z]", str(word)):
                key, _, value = word[1:].partition("=")
                check_spelling(key, value or str(next(iter(words), "VALUE")))
            raise UsageError(f"{word!r} belongs to no key; write --key value")
        key, is_pair, value = word[2:].partition("=")
        if is_pair:
            yield key, Word(value)
        elif words and not str(words[0]).startswith("--"):
            yield key, Word(words.pop(0))
        else:  # a switch, or its value was forgotten: the field of that name tells
            yield key, Switch("true")


PLAIN_MODULES = ("builtins", "datetime", "decimal")
"""Modules whose objects a configuration may hold, or refuses by their values."""


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

    key: where it stands. Raises UsageError for a module, another object of a class, or a class, which no run folder
    could hold.
    """
    import numpy as np

    if isinstance(value, Mapping):
        return {str(name): plain(item, f"{key}.{name}" if key else str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, key) for item in value]
    cls = value if isinstance(value, type) else type(value)
    if cls.__module__.partition(".")[0] not in PLAIN_MODULES and not isinstance(value, Path | Enum | str | np.generic):
        what = "a class" if cls is value else f"an instance of {cls.__name__}"
        raise UsageError(
            f"{key or 'the configuration'} is {what}; register {'it' if cls is value else 'its class'} and give its "
            f"name, {cls.__name__}"
        )
    return str(value) if isinstance(value, Path) else value.item() if isinstance(value, np.generic) else value


def shown(value: Any) -> str:
    """A value as an error shows it, cut after 200 characters."""
    text = "null" if value is None else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
