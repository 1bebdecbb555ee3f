"""`seqkit fit FILE`: the recipe that fits a user's own file or folder, by the rule of `fit.OWN_TABLES`."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.errors import DataError, UsageError, one_line

if TYPE_CHECKING:
    from seqkit.data.tables.schema import Schema

RECIPES = {
    "TextFiles": ("text/char-lm", "text"),
    "ImageFolder": ("image/classify", "images"),
    "AudioFolder": ("audio/classify", "recordings"),
    "GraphFile": ("graph/nodes", "a graph"),
    "FileFolder": ("own/classify", "files of the tokenizer's own"),
}
"""For a data source of files, its recipe and what the files hold."""

OF_COLUMN = {
    "text": "text/classify", "image": "image/classify", "audio": "audio/classify", "smiles": "graph/molecules",
    "series": "own/classify", "file": "own/classify", "words": "text/classify",
}  # fmt: skip
"""The recipe that learns classes, numbers or labels from one column, by its kind."""

OF_TEXTS = {"text": "text/translate", "none": "text/char-lm", "tags": "text/tag"}
"""The recipe for a column of texts, by what is learned of it, where that is something else."""

OF_ROWS = {"classes": "multimodal/classify", "numbers": "multimodal/regress"}
"""The recipe that learns from all columns, by the kind of the target."""

OBJECTIVES = {"classes": "{type: Classify, pool: mean}", "labels": "MultiLabel", "numbers": "Regress"}
"""The objective by the kind of the target, where a recipe of one column has another."""


def take_data_as_recipe(args: Namespace) -> None:
    """If a command's recipe is a user's own file or folder, put the recipe that fits in its place, and say so.

    Raises UsageError where no recipe reads it, or where the command names other data, too.
    """
    from seqkit.cli.parser import is_recipe
    from seqkit.config.overrides import Switch, dotted
    from seqkit.config.own_files import is_data_set, named_tokenizer
    from seqkit.config.table_columns import reads_files
    from seqkit.runs.folder import check_new
    from seqkit.runs.launcher import rank

    path = Path(args.recipe)
    is_name = is_data_set(args.recipe)
    if is_recipe(args.recipe) or not path.exists() or _holds_recipes(path):
        return
    if any(word.partition("=")[0] in ("--data", "--data.source") for word in args.overrides):
        raise UsageError(f"{path} is data, and --data names other data; give a recipe (seqkit list recipes)")
    if args.command == "fit" and getattr(args, "out", None) is not None and args.resume is None:
        check_new(args.out)  # before the data is read
    if rank() > 0:
        logging.getLogger("seqkit").setLevel(logging.ERROR)  # the first process says what all of them find
    pairs = list(dotted(args.overrides))
    reads = reads_files(named_tokenizer(pairs))
    recipe, words, settled, what = _recipe_for(path, _given_columns(pairs), reads_files=reads)
    given = dict(pairs)
    words = [word for word in words if word[2:].partition("=")[0] not in given]
    data = f"--data=./{path}" if is_name else f"--data={path}"
    said = [data, *words, *args.overrides]
    rest = [
        f"--{key}" if isinstance(value, Switch) else f"--{key}={value}"
        for key, value in pairs
        if _setting(key) not in settled
    ]
    in_yaml = {name: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for name, v in settled.items()}
    found = [f"--{name}={value}" for name, value in in_yaml.items()]
    args.recipe, args.overrides = recipe, [data, *words, *rest, *found]
    preset = ["--preset", args.preset] if args.preset else []
    parts = [part for word in said for part in (word.split("=", 1) if word.startswith("--") else [word])]
    command = shlex.join(["seqkit", args.command, recipe, *preset, *parts])
    if rank() == 0:
        print(one_line(f"{path} holds {what}; this runs: {command}"), file=sys.stderr)


def _holds_recipes(path: Path) -> bool:
    """Whether it is a folder with YAML files, such as a run."""
    return path.is_dir() and any(any(path.glob(pattern)) for pattern in ("*.yaml", "*/*.yaml"))


def _setting(key: str) -> str:
    return key.replace("data.source.", "data.", 1)


def _given_columns(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Arguments of a table that a command's (key, value) pairs give, as far as they are of its columns."""
    from seqkit.data.tables.schema import Given

    names = {field.name for field in fields(Given)} | {"split", "group"}
    found = {}
    for key, word in pairs:
        name = _setting(key).removeprefix("data.")
        if key.startswith("data.") and name in names and (value := word.read()) is not None:
            found[name] = value if isinstance(value, list | dict) else str(word)
    return found


def _recipe_for(
    path: Path, given: Mapping[str, Any], *, reads_files: bool
) -> tuple[str, list[str], dict[str, Any], str]:
    """The recipe that reads a file or folder, keys that it needs beside `--data`, settings of a table's columns as
    they were inferred, and what the file or folder holds.

    given: what is said of the columns of a table. reads_files: True: the tokenizer reads files itself.
    """
    from seqkit.data.formats import source_for

    source, arguments = source_for(path, reads_files=reads_files)
    if source == "TextFiles" and (classes := _classes(path, arguments["path"])):
        what = f"texts in folders of {len(classes)} classes ({', '.join(sorted(classes)[:3])}, …)"
        return "text/classify", [], {}, what
    if source != "Table":
        recipe, what = RECIPES[source]
        return recipe, [], {}, what
    schema = _schema(arguments["path"], given, reads_files=reads_files)
    recipe, words = _of_schema(schema)
    settled = {f"data.{name}": value for name, value in schema.settings().items() if value is not None}
    count = len(schema.inputs)
    what = f"a table with {count} input columns" if count > 1 else f"a table with {schema.inputs[0].name} as input"
    targets = ", ".join(column.name for column in schema.targets)
    return recipe, words, settled, what + (f" and {targets} as target" if targets else "")


def _schema(path: Any, given: Mapping[str, Any], *, reads_files: bool) -> Schema:
    """The columns of a table, as they are inferred; each is said in a line."""
    from seqkit.data.sources.table import Division, Table
    from seqkit.data.tables.schema import Given

    division = {name: value for name, value in given.items() if name in ("split", "group")}
    columns = {name: value for name, value in given.items() if name not in division}
    try:
        return Table(path, Given(**columns), Division(**division)).schema(reads_files=reads_files)
    except DataError:
        raise
    except (ValueError, TypeError) as error:
        raise UsageError(f"data.source: {error}") from error


def _of_schema(schema: Schema) -> tuple[str, list[str]]:
    """Recipe for a table, and keys that it needs. Raises DataError where none learns its target from its inputs."""
    kinds, target = [column.kind for column in schema.inputs], schema.target_kind
    has_text = bool({"text", "words"} & {*kinds})
    if target == "tags" and has_text:
        return OF_TEXTS[target], []
    if len(kinds) == 1 and kinds[0] in OF_COLUMN:
        (kind,) = kinds
        recipe = OF_COLUMN[kind]
        if target in OF_TEXTS and (has_text or (kind, target) == ("file", "text")):
            return OF_TEXTS[target], []
        if target in OBJECTIVES:
            words = ["--tokenizer=Series"] if kind == "series" else []
            own = "numbers" if recipe == "graph/molecules" else "classes"
            return recipe, words if target == own else [*words, f"--model.objective={OBJECTIVES[target]}"]
    elif target in OF_ROWS:
        return OF_ROWS[target], []
    what = f"target_kind {target} from {', '.join(column.name for column in schema.inputs)}"
    raise DataError(f"{schema.name}: no recipe learns {what}; name another --data.target, or one --data.input")


def _classes(path: Path, files: list[str]) -> Counter[str]:
    """Number of texts by the folder that each is in, if these are classes: two or more, with two texts or more each.

    Chapters in a folder for each book look the same; `--data` with a recipe of language models reads them as texts.
    """
    from seqkit.data.splits import SPLIT_NAMES

    folders = Counter(Path(file).parent for file in files)
    classes = Counter(folder.name for folder in folders.elements())
    is_plain = path not in folders and not any(name.lower() in SPLIT_NAMES for name in classes)
    return classes if is_plain and len(classes) > 1 and min(classes.values()) > 1 else Counter()
