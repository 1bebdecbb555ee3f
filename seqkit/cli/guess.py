"""`seqkit fit FILE`: the recipe that fits a user's own file or folder."""

from __future__ import annotations

import logging
import shlex
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.errors import DataError, UsageError, one_line

if TYPE_CHECKING:
    from seqkit.data.sources.table import Table
    from seqkit.data.tables.columns import Columns

RECIPES = {
    "TextFiles": ("text/char-lm", "text"),
    "ImageFolder": ("image/classify", "images"),
    "AudioFolder": ("audio/classify", "recordings"),
    "GraphFile": ("graph/nodes", "a graph"),
    "FileFolder": ("own/classify", "files of the tokenizer's own"),
}
"""For a data source of files, its recipe and what the files hold; for tables, see `TABLES`."""

TABLES = {
    "text": {"text": "text/translate", "tags": "text/tag", "none": "text/char-lm", "": "text/classify"},
    "image": {"": "image/classify"},
    "audio": {"": "audio/classify"},
    "smiles": {"": "graph/molecules"},
    "series": {"": "own/classify"},
    "file": {"text": "text/translate", "": "own/classify"},
}
"""The recipe for a table by the kind of its input column, then by that of its target ("": any other)."""


MIXED = {"classes": "multimodal/classify", "numbers": "multimodal/regress"}
"""The recipe for a table of several input columns, by the kind of its target."""

COLUMN_KEYS = ("input", "target", "kind", "target_kind", "split", "group", "separator", "decimal", "columns")
"""Arguments of tables that tell which columns are what."""


def take_data_as_recipe(args: Namespace) -> None:
    """If a command's recipe is a user's own file or folder, put the recipe that fits in its place, and say so.

    Raises UsageError where no recipe reads it, or where the command names other data, too.
    """
    from seqkit.cli.parser import is_recipe
    from seqkit.config.overrides import dotted
    from seqkit.config.own_files import named_tokenizer
    from seqkit.config.table_columns import reads_files
    from seqkit.runs.folder import check_new

    path = Path(args.recipe)
    if is_recipe(args.recipe) or not path.exists() or _holds_recipes(path):
        return
    if any(word.partition("=")[0] in ("--data", "--data.source") for word in args.overrides):
        raise UsageError(f"{path} is data, and --data names other data; give a recipe (seqkit list recipes)")
    if args.command == "fit" and getattr(args, "out", None) is not None and args.resume is None:
        check_new(args.out)  # before the data is read
    pairs = list(dotted(args.overrides))
    reads = reads_files(named_tokenizer(pairs))
    recipe, words, what = _recipe_for(path, _given_columns(pairs), reads_files=reads, command=args.command)
    words = [word for word in words if word[2:].partition("=")[0] not in dict(pairs)]
    args.recipe, args.overrides = recipe, [f"--data={path}", *words, *args.overrides]
    given = [part for word in args.overrides for part in (word.split("=", 1) if word.startswith("--") else [word])]
    preset = ["--preset", args.preset] if args.preset else []
    command = shlex.join(["seqkit", args.command, recipe, *preset, *given])
    print(one_line(f"{path} holds {what}; this runs: {command}"), file=sys.stderr)


def _holds_recipes(path: Path) -> bool:
    """Whether it is a folder with YAML files, such as a run."""
    return path.is_dir() and any(any(path.glob(pattern)) for pattern in ("*.yaml", "*/*.yaml"))


def _given_columns(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Arguments of a table's data source that a command's (key, value) pairs give, as far as they are of columns."""
    found = {}
    for key, word in pairs:
        name = key.removeprefix("data.").removeprefix("source.")
        if key.startswith("data.") and name in COLUMN_KEYS and (value := word.read()) is not None:
            is_kinds = isinstance(value, dict) and name == "columns"  # a name such as "note: free" is a mapping in YAML
            found[name] = value if isinstance(value, list) or is_kinds else str(word)
    return found


def _recipe_for(path: Path, given: Mapping[str, Any], *, reads_files: bool, command: str) -> tuple[str, list[str], str]:
    """The recipe that reads a file or folder, keys that it needs beside `--data`, and what the file or folder holds.

    given: what is said of the columns of a table. reads_files: True: the tokenizer reads files itself. command: the
    subcommand, for the one that learns from a table's texts alone.
    """
    from seqkit.data.formats import source_for

    source, arguments = source_for(path, reads_files=reads_files)
    if source == "TextFiles" and (classes := _classes(path, arguments["path"])):
        return "text/classify", [], f"texts in folders of {len(classes)} classes ({', '.join(sorted(classes)[:3])}, …)"
    if source != "Table":
        recipe, what = RECIPES[source]
        return recipe, [], what
    from seqkit.data.sources.table import Table

    log = logging.getLogger("seqkit")
    log.disabled = True  # the command says the same about the columns once more
    try:
        if "input" not in given and not reads_files and (mixed := _mixed_table(arguments, given, command)) is not None:
            return mixed
        given = {name: value for name, value in given.items() if not isinstance(value, dict)}  # kinds of a mixed table
        columns = Table(**arguments, **given).settled(reads_files=reads_files)
    finally:
        log.disabled = False
    by_target, target_kind, words = TABLES[columns.kind], columns.target_kind, []
    if columns.kind in ("text", "file") and target_kind == "classes" and _are_texts(str(path), columns.targets[0]):
        target_kind = "text"
    if target_kind == "numbers" and columns.kind not in ("smiles", "file"):
        words = ["--model.objective=Regress"]
    if columns.kind == "series":
        words.append("--tokenizer=Series")
    kinds = {"image": "images", "audio": "recordings", "smiles": "molecules", "file": "files"}
    what = f"{kinds.get(columns.kind, columns.kind)} ({columns.input})"
    if columns.targets:
        what += f" with {target_kind} ({', '.join(columns.targets)})"
    return by_target.get(target_kind, by_target[""]), words, what


def _mixed_table(
    arguments: Mapping[str, Any], given: Mapping[str, Any], command: str
) -> tuple[str, list[str], str] | None:
    """Recipe, keys and content, as of `_recipe_for`, of a table with several columns to learn a class or a number from,
    or with one that no other recipe reads; None: it is none.

    Raises DataError where the table has other columns beside its text and target, and they are not clear.
    """
    from seqkit.data.sources.mixed_table import MixedTable
    from seqkit.data.sources.table import Table

    is_mixed, text = isinstance(given.get("columns"), dict), None
    with suppress(DataError):  # no single input
        text = None if is_mixed else Table(**arguments, **given).settled()
    kind = "" if text is None else text.kind
    if kind not in ("", "text") or "kind" in given or isinstance(given.get("columns"), list):
        return None
    alone = "" if text is None else f"; for the text alone: {_text_alone(arguments, given, command, text)}"
    try:
        kinds, columns = MixedTable(**arguments, **given).settled()
    except DataError as error:
        if text is None:
            raise
        if text.target_kind in MIXED and _has_others(Table(**arguments, **given), text):
            raise DataError(f"{error}{alone}") from error
        return None
    used = [f"{name} ({kind})" for name, kind in kinds.items() if kind != "unused"]
    if columns.target_kind not in MIXED or (kind and len(used) < 2):
        return None
    if columns.target_kind == "classes" and _are_texts(arguments["path"], columns.targets[0]):
        return None
    what = f"columns of several kinds ({', '.join(used[:8])}{', …' if len(used) > 8 else ''})"
    return MIXED[columns.target_kind], [], f"{what} with {columns.target_kind} ({', '.join(columns.targets)}){alone}"


def _text_alone(arguments: Mapping[str, Any], given: Mapping[str, Any], command: str, columns: Columns) -> str:
    """The command that learns the target of a table from its text alone."""
    from seqkit.data.tables.columns import option

    said = {**given, "input": columns.input, "target": columns.target}
    words = [f"seqkit {command} {TABLES['text']['']} --data {shlex.quote(str(arguments['path']))}"]
    words += [option(name, value) for name, value in said.items()]
    words += ["--model.objective Regress"] if columns.target_kind == "numbers" else []
    return " ".join(words)


def _has_others(table: Table, columns: Columns) -> bool:
    """Whether the table has filled columns beside its input, target, split and group that do not number its rows."""
    from seqkit.data.tables.columns import is_numbering, profile_of

    rows = table.first_rows()
    known = {columns.input, *columns.targets, table.split, table.group}
    others = [name for name in rows.names if name not in known and not is_numbering(name)]
    return any(profile_of(rows, name).distinct > 1 for name in others)


def _classes(path: Path, files: list[str]) -> Counter[str]:
    """Number of texts by the folder that each is in, if these are classes: two or more, with two texts or more each.

    Chapters in a folder for each book look the same; `--data` with a recipe of language models reads them as texts.
    """
    from seqkit.data.sources.table import SPLIT_NAMES

    folders = Counter(Path(file).parent for file in files)
    classes = Counter(folder.name for folder in folders.elements())
    is_plain = path not in folders and not any(name.lower() in SPLIT_NAMES for name in classes)
    return classes if is_plain and len(classes) > 1 and min(classes.values()) > 1 else Counter()


def _are_texts(path: str, column: str) -> bool:
    """Whether a column of words holds a text in each row, since its values seldom come again, as classes do."""
    from seqkit.data.tables.files import read_tables

    values = list(islice(read_tables(path).column(column), 1000))
    return len(set(values)) > len(values) / 2
