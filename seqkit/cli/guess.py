"""`seqkit fit FILE`: the recipe that fits a user's own file or folder, one for each kind of data."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.data.formats import OF_CLASSES, source_for
from seqkit.data.kinds import KINDS, TARGET_OF_OBJECTIVE, TARGETS
from seqkit.errors import DataError, UsageError, one_line
from seqkit.registry.commands import command, in_shell

if TYPE_CHECKING:
    from seqkit.data.sources.table import Table
    from seqkit.data.tables.read import Tables
    from seqkit.data.tables.schema import Schema

RECIPES = {
    "TextFiles": ("text/char-lm", "text"),
    **{str(known.folder_source): (KINDS[known.kind].recipe, known.plural) for known in OF_CLASSES},
    "GraphFile": ("graph/nodes", "a graph"),
    "FileFolder": (KINDS["file"].recipe, "files of the tokenizer's own"),
}
"""For a data source of files, its recipe and what the files hold; of a table the columns tell (`seqkit.data.kinds`)."""

FORECAST = [
    "--model.objective={type: Regress, forecast: true}",
    "--tokenizer.normalize=null",
    "--optimizer={type: AdamW, lr: 0.002}",
]
"""Keys for several numbers of a series, which are its next values: those of the recipe's preset."""

SPELLED = ["--model.objective.target=Characters", "--tokenizer.stride=2"]
"""Keys for texts that are spoken: they are written letter by letter."""


@dataclass(frozen=True)
class Guess:
    """The recipe for a file or folder.

    what: is there, in words. keys: what the recipe needs beside `--data`. preset: one that fits; None: the recipe as it
    is. tables: has read the table; None: it is none.
    """

    recipe: str
    what: str
    keys: Sequence[str] = ()
    preset: str | None = None
    tables: Tables | None = None


def take_data_as_recipe(args: Namespace) -> None:
    """If a command's recipe is a user's own file or folder, put the recipe that fits in its place, and say so.

    `args.tables` then has the table's rows, so that the command parses it no second time; None: it is no table.
    Raises UsageError where no recipe reads it, or where the command names other data, too.
    """
    from seqkit.cli.parser import is_recipe
    from seqkit.config.overrides import dotted
    from seqkit.config.own_files import is_data_set, named_tokenizer
    from seqkit.config.table_columns import reads_files
    from seqkit.runs.folder import check_new
    from seqkit.runs.launcher import rank

    args.tables = None
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
    guess = _guess(path, pairs, reads_files=reads_files(named_tokenizer(pairs)))
    args.tables = guess.tables
    preset = [] if args.preset or not guess.preset else ["--preset", guess.preset]
    args.preset = args.preset or guess.preset
    given = {key for key, _ in pairs}
    keys = [word for word in guess.keys if word[2:].partition("=")[0] not in given]
    data = f"--data={'./' if is_data_set(args.recipe) else ''}{path}"
    place = args.words.index(args.recipe)
    args.recipe = guess.recipe
    args.overrides = [data, *keys, *args.overrides]
    parts = [part for word in [data, *keys] for part in word.split("=", 1)]
    rest = args.words[place + 1 :]
    runs = in_shell(*args.words[:place], guess.recipe, *preset, *parts, *rest)
    if rank() == 0:
        print(one_line(f"{path} holds {guess.what}; this runs: {runs}"), file=sys.stderr)


def _guess(path: Path, pairs: Sequence[tuple[str, Any]], *, reads_files: bool) -> Guess:
    """The recipe that reads a file or folder.

    pairs: keys and values of the command. reads_files: True: the tokenizer reads files itself.
    """
    source, arguments = source_for(path, reads_files=reads_files)
    if (
        source == "TextFiles"
        and path.is_dir()
        and any(Path(file).parent != path for file in arguments["path"])
    ):
        raise UsageError(
            f"{path} holds texts in folders, which may be classes; name the recipe: "
            f"{command('fit', 'text/classify', '--data', path)} for a class for each folder, "
            f"{command('fit', 'text/char-lm', '--data', path)} for a language model"
        )
    if source != "Table":
        recipe, what = RECIPES[source]
        return Guess(recipe, what)
    table = _table(arguments["path"], pairs)
    schema = table.inferred(reads_files=reads_files)
    recipe, keys = _of_schema(schema)
    inputs = schema.inputs
    what = f"a table with {inputs[0].name} as input"
    if len(inputs) > 1:
        what = f"a table with {len(inputs)} input columns"
    if schema.targets:
        what += f" and {', '.join(column.name for column in schema.targets)}"
        if schema.target_kind == "numbers" and [column.kind for column in inputs] == ["number"]:
            what += " (to forecast, give rows of past and next values: seqkit fit series/classify --preset forecast)"
        what += " as target"
    preset = None
    is_own_model = any(re.match(r"tokenizer|model(?!\.objective)", key) for key, _ in pairs)
    if recipe == "text/classify" and not is_own_model:
        preset = "ngrams"
        plain = command("fit", recipe, "--data", path)
        what += (
            f" (n-grams ignore the order of words; where it counts, leave the preset out: {plain})"
        )
    return Guess(recipe, what, keys, preset, table.tables)


def _table(path: Any, pairs: Sequence[tuple[str, Any]]) -> Table:
    """A table, with what the command says of its columns."""
    from seqkit.data.sources.table import Division, Table
    from seqkit.data.tables.schema import Given

    columns: dict[str, Any] = {}
    division: dict[str, Any] = {}
    names_of_columns = [field.name for field in fields(Given)]
    for key, word in pairs:
        if key == "model.objective":
            objective = word.read()
            if isinstance(objective, dict) and "level" not in objective:
                objective = objective.get("type")
            columns.setdefault("target_kind", TARGET_OF_OBJECTIVE.get(str(objective)))
        name = key.removeprefix("data.").removeprefix("source.")
        if not key.startswith("data.") or name not in (*names_of_columns, "split", "group"):
            continue
        value = word.read()
        if value is None:
            continue
        if not isinstance(value, list | dict):
            value = str(word)
        settings = columns if name in names_of_columns else division
        settings[name] = value
    try:
        return Table(path, Given(**columns), Division(**division))
    except (ValueError, TypeError) as error:
        raise UsageError(f"data.source: {error}") from error


def _of_schema(schema: Schema) -> tuple[str, list[str]]:
    """Recipe for a table, and keys that it needs. Raises DataError where none learns its target from its inputs."""
    kinds = [column.kind for column in schema.inputs]
    target = TARGETS[schema.target_kind]
    recipe = KINDS[kinds[0]].recipe if len(kinds) == 1 else ""
    has_text = "text" in kinds or "words" in kinds
    is_written = has_text or (kinds == ["file"] and target.name == "text")
    if is_written and target.of_texts and (recipe or target.name == "tags"):
        return target.of_texts, []
    if not recipe and target.of_rows is not None:
        return "multimodal/table", [*target.of_rows]
    if kinds == ["audio"] and target.name == "text":
        return "audio/ctc-digits", SPELLED
    if recipe and target.objective:
        own = "numbers" if kinds == ["smiles"] else "classes"
        if target.name == own:
            return recipe, []
        if kinds == ["series"] and target.name == "numbers" and len(schema.targets) > 1:
            return recipe, FORECAST
        return recipe, [f"--model.objective={target.objective}"]
    what = f"target_kind {target.name} from {', '.join(column.name for column in schema.inputs)}"
    raise DataError(
        f"{schema.name}: no recipe learns {what}; name another --data.target, or one --data.input"
    )
