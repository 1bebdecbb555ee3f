"""Settings of a user's table that its recipe decides, and the parts of a tokenizer that its columns are."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from seqkit.errors import UsageError, suggest
from seqkit.registry import BUILT_IN, find

if TYPE_CHECKING:
    from seqkit.data.tables.schema import Schema

log = logging.getLogger("seqkit")


def reads_files(tokenizer: Any) -> bool:
    """Whether the tokenizer of that name reads files itself. The built-in ones do not, and are not imported."""
    try:
        component = find("tokenizer", str(tokenizer))
        return component not in BUILT_IN["tokenizer"] and callable(
            getattr(component.load(), "read", None)
        )
    except ValueError:
        return False  # it is refused where it is built, with its key


def settle(config: Mapping[str, Any]) -> None:
    """Write into a complete configuration what its objective learns of a table. Opens no file."""
    source = config["data"]["source"]
    if isinstance(source, dict) and "target_kind" in source and source["target_kind"] is None:
        objective = config["model"]["objective"]
        per_token = objective["type"] == "Classify" and objective["level"] == "token"
        if per_token:
            source["target_kind"] = "tags"
        else:
            from seqkit.data.kinds import TARGET_OF_OBJECTIVE

            source["target_kind"] = TARGET_OF_OBJECTIVE.get(objective["type"])


def with_parts(tokenizer: Mapping[str, Any], source: Any) -> Mapping[str, Any]:
    """A tokenizer's section with a part for each column of a table, as far as it is a `Join` that is open to them.

    A recipe's parts are called as columns, or as the kinds of columns that they are for; numbers, dates and categories
    are one part, `cells`. source: the table, whose first rows are read. What each part reads is written last, so a
    section with it is complete.
    Raises UsageError for a column without a part, and a part without a column; DataError as the table.
    """
    if (
        tokenizer["type"] != "Join"
        or tokenizer["reads"] is not None
        or not hasattr(source, "schema")
    ):
        return tokenizer
    parts, reads = _parts_of(source.schema(), tokenizer["parts"])
    return {**tokenizer, "parts": parts, "reads": reads}


def _parts_of(schema: Schema, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The tokenizer of each part, and the key of the raw example that it reads."""
    from seqkit.data.kinds import KIND_OF_TOKENIZER, KINDS, OF_CELLS
    from seqkit.data.tables.schema import CELLS, option

    columns = schema.parts
    for name in given:
        if name not in (*columns, *KINDS, CELLS):
            raise UsageError(
                f"tokenizer.parts.{name} is no column and no kind of column; {suggest(name, [*columns, *KINDS])}"
            )
    parts: dict[str, Any] = {}
    reads: dict[str, str] = {}
    for column, kind in columns.items():
        own = given.get(column)
        if own is None or KIND_OF_TOKENIZER.get(own["type"], kind) != kind:
            own = given.get(kind)
        if own is None:
            names = [
                one.name
                for one in schema.inputs
                if one.name == column or (kind == CELLS and one.kind in OF_CELLS)
            ]
            if kind == CELLS:
                what, other = ("numbers, dates or categories", "text")
            else:
                what, other = (kind, "unused")
            raise UsageError(
                f"{', '.join(map(repr, names))}: the recipe has no part for {what}; give one: --tokenizer.parts.{kind} "
                f"NAME, or say what to do: {option('columns', dict.fromkeys(names, other))}"
            )
        name = _part_name(column, parts)
        if name != column:
            log.warning(
                "%s",
                f"the part of column {column!r} is called {name}, as no part can have that name",
            )
        parts[name] = own
        reads[name] = column
    return parts, reads


def _part_name(column: str, taken: Collection[str]) -> str:
    """A name for the part of a column: its own, or where no module can have that, one like it."""
    from torch import nn

    name = re.sub(r"\W+", "_", column).strip("_") or "part"
    name = f"part_{name}" if name[0].isdigit() else name
    candidates = (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2)))
    return next(one for one in candidates if one not in taken and not hasattr(nn.ModuleDict(), one))
