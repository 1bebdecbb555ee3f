"""Columns of a user's table, written into a configuration; where a recipe leaves it open, they choose its preset."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from seqkit.errors import DataError, UsageError
from seqkit.registry import BUILT_IN, find

log = logging.getLogger("seqkit")

TABLE = "Table"
"""The data source of a user's own tables."""

TARGET_KINDS = ("classes", "numbers", "text", "tags", "none")
"""Kinds of target. A recipe that leaves the kind to the table has a preset of that name for each kind it can learn."""

KIND_OF_TOKENIZER = {
    "Bytes": "text", "Characters": "text", "Words": "text", "BPE": "text", "Patches": "image", "LogMel": "audio",
    "Molecule": "smiles",
}  # fmt: skip
"""Content of the input column by the tokenizer that reads it; for other tokenizers the table decides."""

TARGET_OF_OBJECTIVE = {
    "Classify": "classes",
    "MultiLabel": "numbers",
    "Regress": "numbers",
    "Seq2Seq": "text",
    "NextToken": "none",
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
    if not isinstance(source, dict) or source["type"] != TABLE:
        return None
    source["kind"] = source["kind"] or KIND_OF_TOKENIZER.get(config["tokenizer"]["type"])
    if source["target_kind"] is None and not open_to:
        objective = config["model"]["objective"]
        per_token = objective["type"] == "Classify" and objective["level"] == "token"
        source["target_kind"] = "tags" if per_token else TARGET_OF_OBJECTIVE.get(objective["type"])
    wanted = ("input", "kind", "target_kind", *(() if source["target_kind"] == "none" else ("target",)))
    if all(source[key] is not None for key in wanted):
        return str(source["target_kind"])
    from seqkit.data.sources.table import Table

    try:
        columns = Table(**{key: value for key, value in source.items() if key != "type"}).settled(
            reads_files=reads_files(config["tokenizer"]["type"])
        )
    except DataError:
        raise
    except ValueError as error:
        raise UsageError(f"data.source: {error}") from error
    targets = columns.targets[0] if len(columns.targets) == 1 else columns.targets or None
    source.update(input=columns.input, target=targets, kind=columns.kind, target_kind=columns.target_kind)
    if columns.target_kind in open_to:
        log.warning(
            "the target holds %s, so the recipe's preset %s applies; to choose: --data.target_kind",
            columns.target_kind, columns.target_kind,
        )  # fmt: skip
    return columns.target_kind
