"""`config.json` of Hugging Face's transformers, whose values are read or refused, and whose unknown keys are named."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from copy import copy
from math import isfinite
from pathlib import Path
from typing import Any

from seqkit.errors import DataError, one_line, shortened
from seqkit.files import decoded, load_json, read_small

log = logging.getLogger("seqkit")

NAME = "config.json"
TOKENIZER = "tokenizer.json"
MAX_BYTES = 1 << 20


def own_file(path: Path) -> Path:
    """The path itself. Raises DataError for a link out of its folder, other than to the blobs of the hub's cache."""
    folder = path.parent.resolve()
    target = path.resolve()
    blobs = next(
        (place.parent / "blobs" for place in folder.parents if place.name == "snapshots"), None
    )
    if path.is_symlink() and target.parent not in (folder, blobs):
        raise DataError(
            f"{path} is a link out of its folder, and could be any file; put a copy in its place"
        )
    return path


def tokenizer_file(folder: Path) -> Path:
    """The tokenizer's file of a folder. Raises DataError where there is none, or a link as in `own_file`."""
    path = own_file(folder / TOKENIZER)
    if not path.is_file():
        raise DataError(
            f"{folder} has no {TOKENIZER}; save its fast tokenizer there with transformers: "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    return path


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> Any:
    """Content of a JSON file of a foreign folder. Raises DataError if it is damaged, too large, or a link elsewhere."""
    try:
        return load_json(decoded(read_small(own_file(path), max_bytes)))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no JSON ({one_line(error)}); copy it again") from error


class ConfigFile:
    """Settings of a foreign model; keys that were not read at the end are logged (`log_unread`).

    path: the file. kinds: keys of which one names the type of the model. section: key below which the settings stand,
    and maybe their type; None: they are at the top.
    Raises DataError where the file is missing, damaged, or names no type.
    """

    def __init__(
        self,
        path: Path,
        *,
        kinds: Sequence[str] = ("model_type", "architecture"),
        section: str | None = None,
    ):
        self.path = path
        if not path.exists():
            raise DataError(
                f"{path} is missing; give a folder that transformers saved (save_pretrained)"
            )
        values = read_json(path)
        whole = values if isinstance(values, Mapping) else {}
        inner = whole if section is None else whole.get(section)
        inner = inner if isinstance(inner, Mapping) else {}
        found = [one[kind] for one in (inner, whole) for kind in kinds if kind in one]
        if not found or not isinstance(found[0], str):
            raise DataError(
                f"{path} names no {kinds[0]}; give a folder that transformers saved (save_pretrained)"
            )
        self.model_type: str = found[0]
        self._values = dict(inner)
        self._read: set[str] = set(kinds)
        self._sections: dict[str, ConfigFile] = {}
        self._keys: Mapping[str, str] = {}
        self._defaults: Mapping[str, Any] = {}

    def drop_nulls(self) -> None:
        """From here on, a key whose value is null counts as one that is not written."""
        self._values = {name: value for name, value in self._values.items() if value is not None}

    def get(self, name: str, default: Any = None) -> Any:
        """Value of a key, or the default where it is not written."""
        key = self._key(name)
        self._read.add(key)
        return self._values.get(key, self._defaults.get(name, default))

    def renamed(self, keys: Mapping[str, str], defaults: Mapping[str, Any]) -> ConfigFile:
        """The same settings by other names. keys: of the file, by these. defaults: in place of those asked for."""
        other = copy(self)
        other._keys = keys
        other._defaults = defaults
        return other

    def _key(self, name: str) -> str:
        """The key of a setting; its name itself where the file has no other."""
        key = self._keys.get(name, name)
        return key if key in self._values else name

    def section(self, name: str) -> ConfigFile:
        """Settings below a key; the type of the whole is theirs if they name none.

        Raises DataError for a value that holds no settings.
        """
        if name not in self._sections:
            if not isinstance(self.get(name) or {}, Mapping):
                raise self.refused(name, "settings by name")
            self._sections[name] = ConfigFile(self.path, section=name)
        return self._sections[name]

    def size(
        self, name: str, default: int | None = None, *, least: int = 1, most: int = 1 << 24
    ) -> int:
        """A whole number from `least` to `most`. Raises DataError for anything else."""
        value = self.get(name, default)
        if type(value) is not int or not least <= value <= most:
            raise self.refused(name, f"a whole number from {least} to {most:,}")
        return value

    def number(self, name: str, default: float) -> float:
        """A finite number. Raises DataError for anything else."""
        value = self.get(name, default)
        if type(value) not in (int, float) or not isfinite(value):
            raise self.refused(name, "a number")
        return float(value)

    def positive(self, name: str, default: float) -> float:
        """A finite number above 0, such as the epsilon of a norm. Raises DataError for anything else."""
        value = self.number(name, default)
        if value <= 0:
            raise self.refused(name, "a number above 0")
        return value

    def one_of(self, name: str, options: Mapping[Any, Any], default: Any = None) -> Any:
        """Meaning of the value of a key. Raises DataError for a value that is not read, with those that are."""
        value = self.get(name, default)
        if isinstance(value, list | dict) or value not in options:
            raise self.refused(name, " or ".join(str(option) for option in options))
        return options[value]

    def flag(self, name: str, default: bool) -> bool:
        """Whether something is so. Raises DataError for a value that is neither true nor false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.refused(name, "true or false")
        return value

    def must_be(self, default: Any, *names: str) -> None:
        """Raise DataError where one of these keys has another value than the one that is read, its default."""
        for name in names:
            if self.get(name, default) != default:
                raise self.refused(name, str(default))

    def log_unread(self) -> None:
        """Log the keys that were not read: most say what nothing here depends on, such as a version."""
        for section in self._sections.values():
            section.log_unread()
        if unread := sorted(self._values.keys() - self._read):
            log.info("%s: keys that are not read: %s", self.path, unread)

    def refused(self, name: str, known: str) -> DataError:
        """The error for a value that is not read."""
        key = self._key(name)
        return DataError(
            f"{self.path}: {key} is {shortened(repr(self._values.get(key)))}, and what is read is {known}"
        )
