"""Keys of the command line that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqkit.config.overrides import Word, dotted
from seqkit.config.own_files import data_source
from seqkit.errors import UsageError


def check_given_once(words: Sequence[str]) -> None:
    """Raise UsageError if two keys of the command line set one thing differently, of which one would be ignored.

    `--seed 1 --seed 2`, `--optimizer '{lr: 1}' --optimizer.lr 2`, `--schedule null --schedule.warmup_steps 3`, and
    `--data FILE --data.path OTHER`.
    """
    given: dict[str, tuple[str, Word, Any]] = {}
    for key, word in dotted(words):
        for setting, value in (*_settings(key, word.read()), (f"--{key.removesuffix('.type')}", word.read())):
            other, before, known = given.setdefault(setting, (key, word, value))
            if repr(known) != repr(value):
                if _setting(other) == _setting(key):
                    raise UsageError(f"--{key} is given twice, as {before} and as {word}; give it once")
                raise UsageError(f"--{other} {before} and --{key} {word} both set {setting}; give one of them")
    for setting, (key, word, value) in given.items():
        inner = next((one for name, one in given.items() if value is None and name.startswith(f"{setting}.")), None)
        if inner is not None:
            raise UsageError(f"--{key} {word} and --{inner[0]} {inner[1]} both set {setting}; give one of them")
    source = given.get("data", ("", "", None))
    if "data.path" in given and isinstance(source[2], str):
        key, path, value = given["data.path"]
        if data_source(source[2], "data").get("path", value) != value:
            raise UsageError(f"--{source[0]} {source[1]} and --{key} {path} both set data.path; give one of them")


def _settings(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """(key, value) of everything that a value sets: a mapping sets the keys in it."""
    if not isinstance(value, Mapping):
        yield _setting(key), value
        return
    for name, item in value.items():
        yield from _settings(f"{key}.{name}", item)


def _setting(key: str) -> str:
    """A key by one of its spellings: `data.X` for `data.source.X`, `model.backbone` for `model.backbone.type`."""
    key = key.removesuffix(".type")
    return key.replace("data.source", "data", 1) if f"{key}.".startswith("data.source.") else key
