"""What a user's own table decides in a configuration: its columns, what they hold, the objective where that is open."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from seqkit.errors import DataError, UsageError

log = logging.getLogger("seqkit")

TABLE = "Table"
"""The data source of a user's own tables."""

TARGET_KINDS = ("classes", "numbers", "text", "tags", "none")
"""What a target column may hold. A recipe that leaves it to the table has a preset of that name for each it knows."""

KIND_OF_TOKENIZER = {
    "Bytes": "text", "Characters": "text", "Words": "text", "BPE": "text", "Patches": "image", "LogMel": "audio",
    "Molecule": "smiles",
}  # fmt: skip
"""What the input column holds, by the tokenizer that is to read it; others: by the table."""

TARGET_OF_OBJECTIVE = {
    "Classify": "classes",
    "MultiLabel": "numbers",
    "Regress": "numbers",
    "Seq2Seq": "text",
    "NextToken": "none",
    "Masked": "none",
}
"""What the target column holds, by the objective that is to learn it; others: by the table."""


def is_unsettled(config: Mapping[str, Any]) -> bool:
    """Whether a complete configuration has a table of which not every column is known yet."""
    source = config["data"]["source"]
    if not isinstance(source, Mapping) or source["type"] != TABLE:
        return False
    wanted = ("input", "kind", "target_kind", *(() if source["target_kind"] == "none" else ("target",)))
    return any(source[key] is None for key in wanted)


def settle(config: Mapping[str, Any], open_to: Collection[str] = ()) -> str:
    """Write the table's columns and what they hold into a complete configuration; logs what was guessed in one line.

    open_to: kinds of target that the recipe leaves to the table; empty: the objective decides. Returns the kind of the
    target. Raises DataError where the table cannot be read or the columns are not clear; UsageError for its arguments.
    """
    from seqkit.data.sources.table import Table

    source = config["data"]["source"]
    arguments = {key: value for key, value in source.items() if key != "type"}
    arguments["kind"] = arguments["kind"] or KIND_OF_TOKENIZER.get(config["tokenizer"]["type"])
    if arguments["target_kind"] is None and not open_to:
        objective = config["model"]["objective"]
        per_token = objective["type"] == "Classify" and objective["level"] == "token"
        arguments["target_kind"] = "tags" if per_token else TARGET_OF_OBJECTIVE.get(objective["type"])
    try:
        columns = Table(**arguments).settled()
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
