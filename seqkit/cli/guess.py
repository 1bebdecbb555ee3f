"""`seqkit fit FILE`: the recipe that fits a user's own file or folder, one for each kind of data."""

from __future__ import annotations

import logging
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.data.formats import OF_CLASSES
from seqkit.errors import DataError, UsageError, one_line

if TYPE_CHECKING:
    from seqkit.data.tables.schema import Schema

RECIPES = {
    "TextFiles": ("text/char-lm", "text"),
    **{str(known.folder_source): (f"{known.kind}/classify", known.plural) for known in OF_CLASSES},
    "GraphFile": ("graph/nodes", "a graph"),
    "FileFolder": ("own/classify", "files of the tokenizer's own"),
}
"""For a data source of files, its recipe and what the files hold."""

OF_COLUMN = {
    **{known.kind: f"{known.kind}/classify" for known in OF_CLASSES},
    "text": "text/classify", "smiles": "graph/molecules", "series": "series/classify", "file": "own/classify",
    "words": "text/classify",
}  # fmt: skip
"""The recipe that learns classes, numbers or labels from one column, by its kind."""

OF_TEXTS = {"text": "text/translate", "none": "text/char-lm", "tags": "text/tag"}
"""The recipe for a column of texts, by what is learned of it, where that is something else."""

OF_ROWS = {"classes": [], "numbers": ["--model.objective=Regress"]}
"""Keys of the recipe that learns from all columns, by the kind of the target."""

OBJECTIVES = {
    "classes": "{type: Classify, pool: mean}",
    "labels": "MultiLabel",
    "numbers": "Regress",
}
"""The objective by the kind of the target, where a recipe of one column has another."""

FORECAST = ["--model.objective={type: Regress, forecast: true}", "--tokenizer.normalize=null"]
"""Keys for several numbers of a series, which are its next values."""


def take_data_as_recipe(args: Namespace) -> None:
    """If a command's recipe is a user's own file or folder, put the recipe that fits in its place, and say so.

    Raises UsageError where no recipe reads it, or where the command names other data, too.
    """
    from seqkit.cli.parser import is_recipe
    from seqkit.config.overrides import dotted
    from seqkit.config.own_files import is_data_set, named_tokenizer
    from seqkit.config.table_columns import reads_files
    from seqkit.runs.folder import check_new
    from seqkit.runs.launcher import rank

    path = Path(args.recipe)
    is_run = path.is_dir() and any(any(path.glob(pattern)) for pattern in ("*.yaml", "*/*.yaml"))
    if is_recipe(args.recipe) or not path.exists() or is_run:
        return
    if any(word.partition("=")[0] in ("--data", "--data.source") for word in args.overrides):
        raise UsageError(
            f"{path} is data, and --data names other data; give a recipe (seqkit list recipes)"
        )
    if args.command == "fit" and getattr(args, "out", None) is not None and args.resume is None:
        check_new(args.out)  # before the data is read
    pairs = list(dotted(args.overrides))
    recipe, words, what, fitting = _recipe_for(
        path, pairs, reads_files=reads_files(named_tokenizer(pairs))
    )
    args.preset = args.preset or fitting
    given = {key for key, _ in pairs}
    words = [word for word in words if word[2:].partition("=")[0] not in given]
    data = f"--data={'./' if is_data_set(args.recipe) else ''}{path}"
    args.recipe = recipe
    args.overrides = [data, *words, *args.overrides]
    preset = ["--preset", args.preset] if args.preset else []
    parts = [part for word in args.overrides for part in word.split("=", 1)]
    command = shlex.join(["seqkit", args.command, recipe, *preset, *parts])
    if rank() == 0:
        print(one_line(f"{path} holds {what}; this runs: {command}"), file=sys.stderr)


def _recipe_for(
    path: Path, pairs: Sequence[tuple[str, Any]], *, reads_files: bool
) -> tuple[str, list[str], str, Any]:
    """The recipe that reads a file or folder, keys that it needs beside `--data`, what is there, and a preset if any.

    pairs: keys and values of the command. reads_files: True: the tokenizer reads files itself.
    """
    from seqkit.data.formats import source_for

    source, arguments = source_for(path, reads_files=reads_files)
    if source == "TextFiles" and any(
        Path(file).parent != path for file in arguments["path"] if path.is_dir()
    ):
        raise UsageError(
            f"{path} holds texts in folders, which may be classes; name the recipe: seqkit fit text/classify --data "
            f"{path} for a class for each folder, seqkit fit text/char-lm --data {path} for a language model"
        )
    if source != "Table":
        return RECIPES[source][0], [], RECIPES[source][1], None
    schema, has_few_rows = _schema(arguments["path"], pairs, reads_files=reads_files)
    recipe, words = _of_schema(schema)
    count = len(schema.inputs)
    targets = ", ".join(column.name for column in schema.targets)
    if count > 1:
        what = f"a table with {count} input columns"
    else:
        what = f"a table with {schema.inputs[0].name} as input"
    if words == OF_ROWS["numbers"] and [column.kind for column in schema.inputs] == ["number"]:
        targets += " (the next values of a series are docs/data/forecast.md)"
    what += f" and {targets} as target" if targets else ""
    # a model of the user's choice
    is_own = any(key.partition(".")[0] in ("tokenizer", "model") for key, _ in pairs)
    return (
        recipe,
        words,
        what,
        "ngrams" if has_few_rows and recipe == "text/classify" and not is_own else None,
    )


def _schema(
    path: Any, pairs: Sequence[tuple[str, Any]], *, reads_files: bool
) -> tuple[Schema, bool]:
    """The columns of a table, of which the recipe tells, by what the command says of them; and whether rows are few."""
    from seqkit.data.sources.table import Division, Table
    from seqkit.data.tables.schema import Given

    columns: dict[str, Any] = {}
    division: dict[str, Any] = {}
    for key, word in pairs:
        name = key.replace("data.source.", "data.", 1).removeprefix("data.")
        if key == "model.objective" and str(word) == "MultiLabel":
            columns.setdefault("target_kind", "labels")
        is_column = name in {field.name for field in fields(Given)}
        if (
            key.startswith("data.")
            and (is_column or name in ("split", "group"))
            and (value := word.read()) is not None
        ):
            if isinstance(value, list | dict):
                (columns if is_column else division)[name] = value
            else:
                (columns if is_column else division)[name] = str(word)
    log = logging.getLogger("seqkit")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        table = Table(path, Given(**columns), Division(**division))
        return table.schema(reads_files=reads_files), table.has_few_rows
    except DataError:
        raise
    except (ValueError, TypeError) as error:
        raise UsageError(f"data.source: {error}") from error
    finally:
        log.setLevel(level)


def _of_schema(schema: Schema) -> tuple[str, list[str]]:
    """Recipe for a table, and keys that it needs. Raises DataError where none learns its target from its inputs."""
    kinds = [column.kind for column in schema.inputs]
    target = schema.target_kind
    has_text = bool({"text", "words"} & {*kinds})
    if target == "tags" and has_text:
        return OF_TEXTS[target], []
    if len(kinds) == 1 and kinds[0] in OF_COLUMN:
        (kind,) = kinds
        recipe = OF_COLUMN[kind]
        if target in OF_TEXTS and (has_text or (kind, target) == ("file", "text")):
            return OF_TEXTS[target], []
        if (kind, target) == ("audio", "text"):
            return "audio/ctc-digits", [
                "--model.objective.target=Characters",
                "--tokenizer.stride=2",
            ]
        if target in OBJECTIVES:
            own = "numbers" if recipe == "graph/molecules" else "classes"
            if kind == "series" and target == "numbers" and len(schema.targets) > 1:
                return recipe, FORECAST
            return recipe, [] if target == own else [f"--model.objective={OBJECTIVES[target]}"]
    elif target in OF_ROWS:
        return "multimodal/table", OF_ROWS[target]
    what = f"target_kind {target} from {', '.join(column.name for column in schema.inputs)}"
    raise DataError(
        f"{schema.name}: no recipe learns {what}; name another --data.target, or one --data.input"
    )
