"""Columns of a user's table, written into a configuration; where a recipe leaves it open, they choose its preset."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import Any

from seqkit.errors import DataError, UsageError
from seqkit.registry import BUILT_IN, find, suggest

log = logging.getLogger("seqkit")

TABLE = "Table"
"""The data source of a user's own tables."""

MIXED_TABLES = ("MixedTable", "cars")
"""Data sources whose columns are parts of an example, each with a tokenizer of its own."""

TARGET_KINDS = ("classes", "numbers", "labels", "text", "tags", "none")
"""Kinds of target. A recipe that leaves the kind to the table has a preset of that name for each kind it can learn."""

KIND_OF_TOKENIZER = {
    "Bytes": "text", "Characters": "text", "Words": "text", "BPE": "text", "FromFile": "text", "Patches": "image",
    "LogMel": "audio", "WhisperMel": "audio", "MelPatches": "audio", "SampleWindows": "audio",
    "Molecule": "smiles", "Series": "series", "Ids": "series",
}  # fmt: skip
"""Content of the input column by the tokenizer that reads it; for other tokenizers the table decides."""

TARGET_OF_OBJECTIVE = {
    "Classify": "classes",
    "MultiLabel": "labels",
    "Regress": "numbers",
    "Seq2Seq": "text",
    "NextToken": "none",
    "Contrastive": "none",
    "Features": "none",
    "Masked": "none",
}
"""Content of the target column by the objective that learns it; for other objectives the table decides."""


def reads_files(tokenizer: Any) -> bool:
    """Whether the tokenizer of that name reads files itself. The built-in ones do not, and are not imported."""
    try:
        component = find("tokenizer", str(tokenizer))
        return component not in BUILT_IN["tokenizer"] and callable(getattr(component.load(), "read", None))
    except ValueError:
        return False  # it is refused where it is built, with its key


def settle(config: Mapping[str, Any], open_to: Collection[str] = ()) -> str | None:
    """Write the table's columns and what they hold into a complete configuration; None: its data is no table.

    open_to: kinds of target that the recipe leaves to the table; empty: the objective decides. Returns the kind of the
    target. The first rows are read where a column is open, and no file is opened else.
    Raises DataError where the table cannot be read or the columns are not clear; UsageError for its arguments.
    """
    source = config["data"]["source"]
    if not isinstance(source, dict) or source["type"] not in (TABLE, *MIXED_TABLES):
        return None
    if source["type"] == TABLE:
        source["kind"] = source["kind"] or KIND_OF_TOKENIZER.get(config["tokenizer"]["type"])
    if source["target_kind"] is None and not open_to:
        objective = config["model"]["objective"]
        per_token = objective["type"] == "Classify" and objective["level"] == "token"
        source["target_kind"] = "tags" if per_token else TARGET_OF_OBJECTIVE.get(objective["type"])
    if source["type"] in MIXED_TABLES:
        return _settle_parts(source, config["tokenizer"])
    wanted = ("input", "kind", "target_kind", *(() if source["target_kind"] == "none" else ("target",)))
    if all(source[key] is not None for key in wanted) and not may_be_pattern(source["input"]):
        return str(source["target_kind"])
    columns = _settled(source, reads_files=reads_files(config["tokenizer"]["type"]))
    source.update(input=columns.inputs, target=columns.target, kind=columns.kind, target_kind=columns.target_kind)
    if columns.target_kind in open_to:
        log.warning(
            "the target holds %s, so the recipe's preset %s applies; to choose: --data.target_kind",
            columns.target_kind, columns.target_kind,
        )  # fmt: skip
    return columns.target_kind


def may_be_pattern(column: Any) -> bool:
    """Whether an input column may stand for several, which the first rows tell."""
    from seqkit.data.tables.columns import is_pattern

    return isinstance(column, str) and is_pattern(column)


def part_columns(config: Mapping[str, Any]) -> dict[str, str] | None:
    """Kind of each input column that a run's examples have parts for, by its configuration; None: they have one part.

    A part of another source than a mixed table is as its tokenizer reads it; one that no table can hold is left out.
    """
    tokenizer = config.get("tokenizer", {})
    if tokenizer.get("type") != "Join":
        return None
    source = config["data"].get("source")  # an imported run has none
    if isinstance(source, dict) and source["type"] in MIXED_TABLES:
        return dict(source["columns"])
    reads = tokenizer["reads"] or {}
    parts = {reads.get(name, name): KIND_OF_TOKENIZER.get(part["type"]) for name, part in tokenizer["parts"].items()}
    return {name: kind for name, kind in parts.items() if kind is not None}


def _settled(source: Mapping[str, Any], **options: Any) -> Any:
    """Result of a data source's `settled`. Raises DataError as it does; UsageError for its arguments."""
    try:
        table = find("data_source", source["type"]).load()
        return table(**{key: value for key, value in source.items() if key != "type"}).settled(**options)
    except DataError:
        raise
    except ValueError as error:
        raise UsageError(f"data.source: {error}") from error


def _settle_parts(source: dict[str, Any], tokenizer: dict[str, Any]) -> str | None:
    """Write the kinds of a mixed table's columns, and a part of the tokenizer for each, into source and tokenizer.

    A recipe's parts are called as columns, or as the kinds of columns that they are for; numbers, dates and categories
    are one part, `cells`. What each part reads is written last, so a configuration with it is settled.
    Raises UsageError for a column without a part, and a part without a column.
    """
    if tokenizer["type"] != "Join":
        raise UsageError(
            f"the examples of {source['type']} have several parts, and {tokenizer['type']} takes one; use the "
            "tokenizer Join, or one column: --data.source.type Table"
        )
    if tokenizer["reads"] is None or not source["columns"]:
        from seqkit.data.tables.mixed_columns import CELLS, OF_CELLS

        given = tokenizer["parts"]
        reads_text = any(KIND_OF_TOKENIZER.get(part["type"]) == "text" for part in given.values())
        has_cells = not reads_text or any(name in given for name in (CELLS, *OF_CELLS))
        kinds, columns = _settled(source, has_cells=has_cells, has_text=reads_text)
        source.update(columns=kinds, target=columns.target, target_kind=columns.target_kind)
        tokenizer["parts"], tokenizer["reads"] = _parts_of(kinds, tokenizer["parts"])
    return str(source["target_kind"])


def _parts_of(kinds: Mapping[str, str], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The tokenizer of each part, and the key of the raw example that it reads."""
    from seqkit.data.tables.columns import option
    from seqkit.data.tables.mixed_columns import CELLS, KINDS, OF_CELLS

    read = {name: kind for name, kind in kinds.items() if kind not in (*OF_CELLS, "unused")}
    if any(kind in OF_CELLS for kind in kinds.values()):
        read[CELLS] = CELLS
    known = {name for name in given if name in read or name in (*KINDS, CELLS)}
    if unknown := [name for name in given if name not in known]:
        raise UsageError(
            f"tokenizer.parts.{unknown[0]} is no column and no kind of column; {suggest(unknown[0], [*read, *KINDS])}"
        )
    parts: dict[str, Any] = {}
    reads: dict[str, str] = {}
    for column, kind in read.items():
        own = given.get(column)
        if own is None or KIND_OF_TOKENIZER.get(own["type"], kind) != kind:
            own = given.get(kind)
        if own is None:
            raise UsageError(
                f"column {column!r} holds {kind}, and the recipe has no part for that; give one: "
                f"--tokenizer.parts.{kind} NAME, or leave the column out: {option('columns', {column: 'unused'})}"
            )
        name = _part_name(column, parts)
        if name != column:
            log.warning("%s", f"the part of column {column!r} is called {name}, as no part can have that name")
        parts[name], reads[name] = own, column
    return parts, reads


def _part_name(column: str, taken: Collection[str]) -> str:
    """A name for the part of a column: its own, or where no module can have that, one like it."""
    from torch import nn

    name = re.sub(r"\W+", "_", column).strip("_") or "part"
    name = f"part_{name}" if name[0].isdigit() else name
    candidates = (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2)))
    return next(one for one in candidates if one not in taken and not hasattr(nn.ModuleDict(), one))
