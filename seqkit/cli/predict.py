"""`seqkit predict RUN PATH…`: predictions, or vectors with `--embed`."""

from __future__ import annotations

import csv
import json
import math
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from seqkit.cli.options import add_device, add_out, add_run
from seqkit.cli.out import check_file, written
from seqkit.errors import UsageError, one_line, printable
from seqkit.progress import track

if TYPE_CHECKING:
    from seqkit.data.inputs import Inputs
    from seqkit.runs.answers import Answer, Vector
    from seqkit.runs.test_split import SplitInputs
    from seqkit.runs.trained_model import TrainedModel

A = TypeVar("A", "Answer", "Vector")

DATA = 3
"""Exit code where an input has no prediction."""

FORMATS = {".csv": "csv", ".jsonl": "jsonl"}
"""Formats by the suffix of `--out`; others are text."""


def run(args: Namespace) -> int:
    """Print a prediction for each raw example, or write predictions or vectors to a file."""
    _check(args)
    kept = kept_columns(args.inputs, args.keep) if args.keep else None
    from seqkit.runs.trained_model import load_one

    trained = load_one(args.run, args.device, args.dtype)
    return _embed(args, trained) if args.embed else _predict(args, trained, kept)


def _check(args: Namespace) -> None:
    """Raise UsageError for options that contradict each other, before anything heavy is imported."""
    if args.test and (args.inputs or args.input is not None or args.keep):
        raise UsageError("--test predicts for the test split of the run's own data; leave out inputs, --input, --keep")
    if not (args.test or args.inputs or args.input):
        raise UsageError(
            "give inputs: files, folders, tables, texts, SMILES, or - for lines of standard input; or --test"
        )
    if args.input and not args.inputs and not _has_parts(args.run):
        raise UsageError(
            "--input names the column of a table, and no table is given; give an example itself without --input: "
            f"seqkit predict {args.run} {shlex.quote(args.input)}"
        )
    if args.embed and (args.test or args.keep or args.probabilities or args.format):
        raise UsageError("--embed writes names and vectors; leave out --test, --keep, --probabilities and --format")
    if args.embed and (args.out is None or args.out.suffix.lower() != ".parquet"):
        raise UsageError("--embed writes a table of vectors; give --out with a file that ends in .parquet")
    check_file(args.out, args.inputs, force=args.force)


def _has_parts(run: Path) -> bool:
    from seqkit.files import read_mapping

    return (read_mapping(run / "config.yaml").get("tokenizer") or {}).get("type") == "Join"


def _predict(args: Namespace, trained: TrainedModel, kept: tuple[list[str], list[dict[str, Any]]] | None) -> int:
    from seqkit.runs.answers import check_predicts, prediction_names, predictions, probability_names

    check_predicts(trained.objective)
    inputs: Inputs | SplitInputs
    beside: Iterable[Mapping[str, Any] | None] = repeat({})
    columns: list[str] = []
    names = [f"predicted {name}" if name in ("name", "error") else name for name in prediction_names(trained)]
    if args.test:
        from seqkit.runs.test_split import SplitInputs

        inputs = SplitInputs(trained, args.run)
        beside = (one and _named("target", one["target"], names, "{} target") for one in inputs.targets())
        columns = [f"{name} target" for name in names] or ["target"]
    else:
        inputs = open_inputs(args, trained)
    if kept is not None:
        columns, beside = kept
        if inputs.total != len(kept[1]):
            raise UsageError("--keep copies columns of tables, and not every input here is a row of one; leave it out")
    classes = probability_names(trained.objective) if args.probabilities else []
    answers = predictions(trained, inputs, probabilities=args.probabilities)
    with ExitStack() as stack:
        file: IO[str] = sys.stdout
        if args.out is not None:
            part = stack.enter_context(written(args.out))
            file = stack.enter_context(part.open("w", encoding="utf-8", newline=""))
        kind = args.format or ("text" if args.out is None else FORMATS.get(args.out.suffix.lower(), "text"))
        rows = Rows(file, kind, names, columns, classes, has_bounds="intervals" in trained.summary)
        code = _each(((one, more) for one, more in zip(answers, beside) if more is not None), rows.write, inputs.total)
    if args.out is not None:
        print(f"predict  {one_line(args.out)}  {rows.count:,} rows")
    return code


def _embed(args: Namespace, trained: TrainedModel) -> int:
    """Write the pooled hidden states of each input: columns name, vector (float32; null if there is none) and error."""
    import pyarrow as pa
    from pyarrow import parquet

    from seqkit.runs.answers import described_vectors, vectors

    inputs = open_inputs(args, trained)
    dim, what = described_vectors(trained)
    found: list[Vector] = []
    code = _each(zip(vectors(trained, inputs), repeat({})), lambda vector, _: found.append(vector), None)
    values = [None if one.values is None else one.values.numpy() for one in found]
    columns = {
        "name": [printable(one.name) for one in found],
        "vector": pa.array(values, pa.list_(pa.float32(), dim)),
        "error": pa.array([one.error and printable(one.error) for one in found], pa.string()),
    }
    with written(args.out) as part:
        parquet.write_table(pa.table(columns), part)
    count = sum(one is not None for one in values)
    print(f"predict  {one_line(args.out)}  {count:,} vectors of {dim} numbers: {what}")
    return code


def open_inputs(args: Namespace, trained: TrainedModel) -> Inputs:
    """The inputs of a command; what is skipped is said. A table's usual column is that of the run's own data."""
    from seqkit.data.inputs import Inputs, schema_of

    source, graph = trained.config["data"].get("source"), None
    if isinstance(source, dict) and source.get("type") == "GraphFile":
        from seqkit.runs.graph_inputs import graph_reader  # brings Lightning, which others do without

        graph = graph_reader(trained, args.run)
    given, column = list(args.inputs), args.input
    if hasattr(trained.tokenizer, "parts") and column is not None:  # one example: image=a.png,text=…
        given, column = [*given, column], None
    inputs = Inputs(given, trained.tokenizer, schema_of(trained.config), column=column, graph=graph)
    for note in inputs.notes:
        print(one_line(note), file=sys.stderr)
    return inputs


def _each(answers: Iterable[tuple[A, Mapping[str, Any]]], write: Callable[[A, Any], None], total: int | None) -> int:
    """Write each answer, with progress once it takes long, and say how many are missing; gives the exit code."""
    count, missing, first = 0, 0, ""
    for answer, beside in track(answers, "predict", total):
        count += 1
        if answer.error is not None:
            missing += 1
            first = first or (answer.error if answer.name in answer.error else f"{answer.name}: {answer.error}")
        if answer.error is None or total != 1:  # the only one is said below
            write(answer, beside)
    if missing:
        some = f" ({missing:,} of {count:,} inputs could not be used)" if count > 1 else ""
        print(f"seqkit predict: {one_line(first)}{some}", file=sys.stderr)
    return DATA if missing else 0


def kept_columns(given: Sequence[str], words: Sequence[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of the columns of tables that are copied beside the predictions, and the cells of each row by them.

    given: files of tables. words: names of columns, each or several with a comma between them.
    Raises UsageError for what is no table, and where a table lacks a column.
    """
    from seqkit.data.formats import TABLE, format_of
    from seqkit.data.tables.read import read_tables
    from seqkit.data.tables.schema import check_column

    if others := [one for one in given if format_of(Path(one)) is not TABLE]:
        raise UsageError(f"--keep copies columns of tables, and {one_line(others[0])[:100]} is none; leave it out")
    tables = [read_tables(one) for one in given]
    columns = [name for word in words for name in ([word] if word in tables[0].names else word.split(","))]
    cells: list[dict[str, Any]] = []
    for rows in tables:
        for column in columns:
            check_column(rows, column, "--keep")
        cells += ({name: rows.columns[name][i] for name in columns} for i in range(len(rows)))
        cells += ({} for _ in rows.faults)  # which `Inputs` tells after the rows
    return columns, cells


class Rows:
    """Writes a row for each answer, as text (name, tab, what is known), CSV or JSON Lines: all have the same columns.

    names: of the numbers of which a prediction has several, each a column; may be empty. beside: names of what is
    written before the prediction. classes: whose probabilities are written after it. has_bounds: whether there are
    columns `low` and `high`, the ends of the prediction interval.
    """

    def __init__(
        self,
        file: IO[str],
        kind: str,
        names: Sequence[str],
        beside: Sequence[str],
        classes: Sequence[str],
        *,
        has_bounds: bool,
    ):
        self.file, self.kind, self.names, self.count = file, kind, names, 0
        bounds = ["low", "high"] if has_bounds else []
        predicted = [column for name in names for column in (name, *(f"{name} {end}" for end in bounds))]
        predicted = predicted or ["prediction", *bounds]
        self.classes = {} if names else {name: f"probability of {name}" for name in classes}  # named ones are columns
        taken = {"name", "error", *predicted, *self.classes.values()}
        self.beside = {name: f"{name} of the input" if name in taken else name for name in beside}
        self.columns = ["name", *self.beside.values(), *predicted, "error", *self.classes.values()]
        if kind == "csv":
            csv.writer(file, lineterminator="\n").writerow(map(printable, self.columns))

    def write(self, answer: Answer, beside: Mapping[str, Any]) -> None:
        """Write one answer, and what is known `beside` it."""
        self.count += 1
        row = dict.fromkeys(self.columns) | {self.beside[name]: _plain(value) for name, value in beside.items()}
        row |= {"name": answer.name, "error": answer.error}
        if answer.error is None:
            row |= _named("prediction", answer.prediction, self.names)
            if answer.low is not None:
                row |= _named("low", answer.low, self.names, "{} low")
                row |= _named("high", answer.high, self.names, "{} high")
        if answer.probabilities is not None and self.classes:  # [k], or [n k] of the tokens
            shares = answer.probabilities.movedim(-1, 0).tolist()
            row |= dict(zip(self.classes.values(), map(_plain, shares), strict=True))
        if self.kind == "jsonl":
            print(json.dumps(row), file=self.file)
        elif self.kind == "csv":
            csv.writer(self.file, lineterminator="\n").writerow(map(_cell, row.values()))
        else:
            forms = {"name": "{1}", "prediction": "{1}", "error": "error: {1}"}
            known = {key: _cell(value) for key, value in row.items() if value is not None}
            known = known if answer.error is None else {"name": answer.name, "prediction": "", **known}
            fields = (forms.get(key, "{0} {1}").format(key, value) for key, value in known.items())
            print("\t".join(map(one_line, fields)), file=self.file)


def _named(key: str, value: Any, names: Sequence[str], form: str = "{}") -> dict[str, Any]:
    """A value by its key; several by the names that the form makes of theirs."""
    return {form.format(name): _plain(one) for name, one in zip(names, value)} if names else {key: _plain(value)}


def _plain(value: Any) -> Any:
    """A value as JSON has it: numbers to six digits, which float32 holds; None for one that is not finite."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, str | int | dict) else str(value)


def _cell(value: Any) -> Any:
    """A value in a table: JSON for lists."""
    if isinstance(value, list | dict):
        return json.dumps(value)
    return printable(value) if isinstance(value, str) else value


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_run(parser)
    add = parser.add_argument
    what = "files, folders, patterns, tables, a text or SMILES; - reads lines of standard input"
    add("inputs", nargs="*", metavar="PATH", help=what)
    column = (
        "column of a table (default: as in training, or found by its name); one example image=a.png,text=… of parts"
    )
    add("--input", metavar="COLUMN", help=column)
    add("--test", action="store_true", help="predict for the test split of the run's own data, beside each target")
    keep = "copy columns of the table into the output, such as an id; may be given more than once"
    add("--keep", action="append", metavar="COLUMN[,COLUMN]", help=keep)
    add("--probabilities", action="store_true", help="write the probability of each class")
    vectors = "write vectors in place of predictions: pooled hidden states of the backbone's last layer"
    add("--embed", action="store_true", help=vectors)
    add("--format", choices=["text", "csv", "jsonl"], help="default: that of the suffix of --out, or text")
    add_out(parser, "output file; it is complete, or not there at all", metavar="FILE")
    add_device(parser)
