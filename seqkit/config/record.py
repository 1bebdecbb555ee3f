"""A complete configuration as a record, and the walk over its keys. Imports no other part of a configuration."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import getitem
from typing import Any

Written = Mapping[str, Any]
"""A recipe, or a section of one, as somebody writes it: plain values by name, some of them sections."""

Key = tuple[str | int, ...]
"""Where a value stands: the names from the top and, in a list, the number."""


@dataclass(frozen=True, eq=False)
class Config(Mapping[str, Any]):
    """A complete configuration, every key with its value; read as a mapping, and never changed.

    given: values as recipe, preset and overrides give them: two configurations are the same if these are.
    decided: values in the place of given ones, by dotted key: what the data source decided, or `auto` on this machine.
    """

    given: Mapping[str, Any]
    decided: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _values(self) -> Mapping[str, Any]:
        return with_values(self.given, self.decided)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def deciding(self, values: Mapping[str, Any]) -> Config:
        """The same configuration, of which more is decided, by dotted key."""
        return Config(self.given, {**self.decided, **values})

    @property
    def left_open(self) -> dict[str, Any]:
        """Values that were given, by dotted key, where others were decided."""
        given = {key: value_at(self.given, key) for key in self.decided}
        return {key: value for key, value in given.items() if value != self.decided[key]}

    def of_open(self, values: Mapping[str, Any]) -> Config:
        """This configuration as one that was given with these values, `left_open`, and decided as it is."""
        return Config(with_values(self, values), {key: value_at(self, key) for key in values})

    def changed(self, values: Mapping[str, Any]) -> Config:
        """A configuration that gives other values, by dotted key."""
        return Config(with_values(self, values))


def walk(value: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Key and value of every plain value of a configuration, or of a part of it; an empty mapping or list is plain."""
    if isinstance(value, Mapping) and value:
        inside = list(value.items())
    elif isinstance(value, list) and value:
        inside = list(enumerate(value))
    else:
        yield key, value
        return
    for name, inner in inside:
        yield from walk(inner, (*key, name))


def value_at(config: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key; None where it is absent."""
    above, last = _place(config, key)
    return above.get(last)


def with_values(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a configuration with these values by dotted key. Raises KeyError for a section that is not there."""
    found = copy.deepcopy(dict(config))
    for key, value in values.items():
        above, last = _place(found, key)
        above[last] = value
    return found


def _place(config: Mapping[str, Any], key: str) -> tuple[Any, str]:
    """The section that a dotted key is in, and its name there."""
    *above, last = key.split(".")
    section = reduce(getitem, above, config)
    if not isinstance(section, Mapping):
        raise KeyError(key)
    return section, last


def learning_rates(optimizer: Mapping[str, Any]) -> dict[str, float]:
    """Learning rates of an optimizer's section and of the optimizers inside it, by dotted key.

    >>> learning_rates({"type": "Muon", "lr": 0.02, "adamw": {"lr": 0.003}})
    {'lr': 0.02, 'adamw.lr': 0.003}
    """
    return {
        ".".join(map(str, key)): value
        for key, value in walk(optimizer)
        if key[-1:] == ("lr",) and isinstance(value, int | float)
    }
