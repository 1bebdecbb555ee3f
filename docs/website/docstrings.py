"""Docstrings of seqkit as Markdown: an entry such as `dim: width of …` becomes an item of a list."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import griffe

ENTRY = re.compile(r"(?:^|(?<=[.;)] ))(?:(\w+(?:, \w+)*): (?=\S)|(Raises|Returns|Yields) )")
"""Names of arguments before a colon, or a word that begins an item, too."""


def as_markdown(text: str, names: Collection[str]) -> str:
    """A docstring with its entries as a list. names: arguments and attributes of what it documents."""
    return "\n\n".join(_paragraph(part, names) for part in re.split(r"\n\s*\n", text.strip()))


def _paragraph(text: str, names: Collection[str]) -> str:
    if text.startswith(">>> "):
        return f"```pycon\n{text}\n```"  # in running text, ["lr"] would be a link
    if text.startswith((" ", "* ", "- ", "```")) or "\n    " in text or "::" in text:
        return text
    line = " ".join(text.split())
    found = [
        entry
        for entry in ENTRY.finditer(line)
        if not entry[1] or set(entry[1].split(", ")) <= set(names)
    ]
    if not found:
        return text
    items = []
    for entry, end in zip(found, [*(entry.start() for entry in found[1:]), len(line)]):
        marked = (
            ", ".join(f"`{name}`" for name in entry[1].split(", ")) + ":"
            if entry[1]
            else f"**{entry[2]}**"
        )
        items.append(f"- {marked} {line[entry.end() : end].strip()}")
    # the text before the first entry is a paragraph of its own; an entry at the very beginning leaves it empty
    return "\n\n".join(filter(None, (line[: found[0].start()].strip(), "\n".join(items))))


MAX_VALUE = 200
"""Characters of a constant's value that its entry shows; a longer one is a table, and stays in the source."""

LAST = 1_000_000
"""Added to the line of a constant: it comes after the classes and functions of its module."""


class Entries(griffe.Extension):
    """Extension of griffe: docstrings by `as_markdown`, long values shortened, constants of a module last."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of a class, function, module or attribute; the value and place of an attribute."""
        if obj.is_attribute and len(str(obj.value or "")) > MAX_VALUE:
            obj.value = "..."
        if obj.is_attribute and obj.parent.is_module:
            obj.lineno = (obj.lineno or 0) + LAST
        if obj.docstring is None:
            return
        names = set()
        if obj.is_function:
            names |= {parameter.name for parameter in obj.parameters}
        elif obj.is_class:
            names |= set(obj.members)
            if (init := obj.members.get("__init__")) is not None and init.is_function:
                names |= {parameter.name for parameter in init.parameters}
        obj.docstring.value = as_markdown(obj.docstring.value, names)
