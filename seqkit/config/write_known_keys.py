"""Writes the table of the built-in components' keys from the components: `python -m seqkit.config.write_known_keys`."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from seqkit.config.key_table import fingerprint
from seqkit.config.resolve import root
from seqkit.config.schema import REQUIRED, Field, read_parameters
from seqkit.files import write_atomic
from seqkit.registry import BUILT_IN, Component

FILE = Path(__file__).with_name("known_keys.py")

HEAD = '''\
"""Keys of the built-in components, so that a mistake in a recipe is found without importing one.

Made by `python -m seqkit.config.write_known_keys`; a test fails while it is not current.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Literal
'''


def table() -> str:
    """The source of `known_keys.py`, read from the classes. Imports all of them."""
    skipped = {field.section: field.skip for field in root().values() if field.section is not None}
    paths = [*skipped, *(component.path for kind in BUILT_IN.values() for component in kind)]
    enums: dict[str, type[Enum]] = {}
    sources: set[str] = set()
    rows = []
    for path in dict.fromkeys(paths):
        loaded = Component(path.partition(":")[2], path).load()
        own = _sources(loaded)
        sources.update(own)
        rows.append(f"    {path!r}: ({tuple(own)!r}, {{")
        for name, field in read_parameters(loaded).items():
            text = "None" if field is None or name in skipped.get(path, ()) else _arguments(field, enums)
            rows.append(f"        {name!r}: {text},")
        rows.append("    }),")
    members = {name: {member.name: member.value for member in enum} for name, enum in sorted(enums.items())}
    return "\n".join(
        [
            HEAD,
            *(f"{name} = Enum({name!r}, {values!r})" for name, values in members.items()),
            "",
            "FINGERPRINTS = {",
            *(f"    {name!r}: {fingerprint(name)!r}," for name in sorted(sources)),
            "}",
            '"""What the signatures were read from: modules by how their signatures look, packages by version."""',
            "",
            "KEYS: dict[str, tuple[tuple[str, ...], dict[str, dict[str, Any] | None]]] = {",
            *rows,
            "}",
            '"""Of each class its sources, and its parameters as arguments of a `Field`; None: one that is no key."""',
            "",
        ]
    )


def _sources(loaded: Any) -> list[str]:
    """Modules of seqkit that decide the signature of a class or function, or the package that it is from."""
    modules = []
    for base in loaded.__mro__ if inspect.isclass(loaded) else (loaded,):
        modules.append(base.__module__)
        if "__init__" in vars(base):
            break
    own = [module for module in dict.fromkeys(modules) if module.startswith("seqkit.")]
    return own or [modules[0].partition(".")[0]]


def _arguments(field: Field, enums: dict[str, type[Enum]]) -> str:
    written = {
        name: repr(getattr(field, name))
        for name in ("kind", "num_given", "many", "listable", "nullable", "meant")
        if getattr(field, name) != getattr(Field(field.name), name)
    }
    if field.default is not REQUIRED:
        written = {"default": repr(field.default), **written}
    if field.hint is not Any:
        written["hint"] = source_of(field.hint, enums)
    return f"{{{', '.join(f'{name!r}: {text}' for name, text in written.items())}}}"


def source_of(hint: Any, enums: dict[str, type[Enum]]) -> str:
    """An annotation of plain data as Python writes it. Adds the enumerations that it names to `enums`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Ellipsis:
        return "..."
    if hint in (None, type(None)):
        return "None"
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    inner = [source_of(one, enums) for one in arguments]
    if origin in (typing.Union, types.UnionType):
        return " | ".join(inner)
    if origin is not None:
        return f"{source_of(origin, enums)}[{', '.join(inner)}]"
    if issubclass(hint, Enum):
        assert enums.setdefault(hint.__name__, hint) is hint, f"two enumerations are called {hint.__name__}"
    else:
        assert hint in (int, float, bool, str, list, tuple, dict, type, Any, Iterable, Sequence), hint
    return str(hint.__name__)


if __name__ == "__main__":
    write_atomic(FILE, table().encode())
