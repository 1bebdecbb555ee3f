"""`seqkit predict RUN PATH…`: predictions, or vectors with `--embed`."""

from __future__ import annotations

import csv
import json
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.cli.options import add_device, add_out, add_run
from seqkit.cli.out import check_file, written
from seqkit.errors import UsageError, one_line, printable, shortened
from seqkit.progress import track
from seqkit.registry.commands import command

if TYPE_CHECKING:
    from seqkit.data.inputs import Inputs
    from seqkit.data.tables.read import Tables
    from seqkit.runs.answers import Answer
    from seqkit.runs.test_split import SplitInputs
    from seqkit.runs.trained_model import TrainedModel

DATA = 3
"""Exit code where an input has no prediction."""

OWN = ("name", "error", "warning")
"""Columns that a row has beside its prediction."""

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    "": "text",
}
"""Formats by the suffix of `--out`."""

DELIMITERS = {"csv": ",", "tsv": "\t"}
"""Character between the cells of a table."""


def run(args: Namespace) -> int:
    """Print a row for each raw example, or write the rows to a file; those without an answer are counted."""
    _check(args)
    from seqkit.data.tables.read import Tables

    tables = Tables()
    kept = kept_columns(args, tables) if args.keep else None
    from seqkit.runs import answers as of_run
    from seqkit.runs.trained_model import load_one

    trained = load_one(args.run, args.device, args.dtype)
    if not args.embed:
        of_run.check_predicts(trained.objective)
    inputs = open_inputs(args, trained, tables)
    targets = of_run.prediction_names(trained)
    beside: Iterable[Mapping[str, object] | None]
    columns, beside = kept or ([], repeat({}))
    if kept is not None and inputs.total != len(kept[1]):
        raise UsageError(
            "--keep copies columns of tables, and not every input here is a row of one; leave it out"
        )
    if args.test:
        columns = [f"{name} target" for name in targets] or ["target"]
        given = inputs.targets()  # type: ignore[union-attr]
        beside = (
            x and dict(zip(columns, x["target"] if targets else [x["target"]])) for x in given
        )
    if args.embed:
        answers: Iterable[Answer] = _vectors(trained, inputs)
        rows = RowWriter(["vector"], columns)
        what = "vectors of {} numbers: {}".format(*of_run.described_vectors(trained))
    else:
        answers = of_run.predictions(trained, inputs, probabilities=args.probabilities)
        names = targets or ["prediction"]
        classes = of_run.probability_names(trained.objective) if args.probabilities else []
        rows = RowWriter(names, columns, classes, has_bounds="intervals" in trained.summary)
        what = "predictions"
    kind = args.format
    if kind is None:
        kind = "text" if args.out is None else FORMATS.get(args.out.suffix.lower(), "text")
    missing = 0
    first = ""
    with ExitStack() as stack:
        rows.open(kind, None if args.out is None else stack.enter_context(written(args.out)), stack)
        for answer, more in track(zip(answers, beside), "predict", inputs.total):
            if more is None:  # a node of a graph that is not in the test split
                continue
            if answer.error is not None:
                missing += 1
                if not first and answer.name in answer.error:
                    first = answer.error
                elif not first:
                    first = f"{shortened(answer.name)}: {answer.error}"
            if answer.error is None or inputs.total != 1:  # the only one is said below
                rows.write(answer, more)
    if args.out is not None:
        print(f"predict  {one_line(args.out)}  {rows.count:,} {what}")
    if missing:
        some = ""
        if inputs.total != 1:
            some = f" ({missing:,} of {rows.count:,} inputs could not be used)"
        print(f"seqkit predict: {one_line(first)}{some}", file=sys.stderr)
    elif not rows.count:  # such as a .py file without functions
        print(
            f"seqkit predict: no example is in {one_line(', '.join(args.inputs))}", file=sys.stderr
        )
    return DATA if missing or not rows.count else 0


def _check(args: Namespace) -> None:
    """Raise UsageError for options that contradict each other, before anything heavy is imported."""
    from seqkit.files import read_mapping

    if args.test and (args.inputs or args.input is not None or args.keep):
        raise UsageError(
            "--test predicts for the test split of the run's own data; leave out inputs, --input, --keep"
        )
    if not (args.test or args.inputs or args.input):
        raise UsageError(
            "give inputs: files, folders, tables, texts, SMILES, or - for standard input; or --test"
        )
    if args.input and not args.inputs:
        tokenizer = read_mapping(args.run / "config.yaml").get("tokenizer") or {}
        if tokenizer.get("type") != "Join":  # of which one example is image=a.png,text=…
            raise UsageError(
                "--input names the column of a table, and no table is given; give an example itself without --input: "
                + command("predict", args.run, args.input)
            )
    if args.out is not None and args.format is None and args.out.suffix.lower() not in FORMATS:
        known = ", ".join(suffix for suffix in FORMATS if suffix)
        raise UsageError(
            f"--out {args.out} has a suffix of another format; give one of {known}, or --format"
        )
    if args.embed and args.probabilities:
        raise UsageError(
            "--embed writes vectors in place of predictions; leave out --probabilities"
        )
    check_file(args.out, args.inputs, force=args.force)


def _vectors(trained: TrainedModel, inputs: Iterable[Any]) -> Iterable[Answer]:
    """The vector of each input, as an answer."""
    from seqkit.runs.answers import Answer, vectors

    for one in vectors(trained, inputs):
        yield Answer(one.name, None if one.values is None else one.values.numpy(), error=one.error)


def open_inputs(
    args: Namespace, trained: TrainedModel, tables: Tables | None = None
) -> Inputs | SplitInputs:
    """The inputs of a command; what is skipped is said. A table's usual column is that of the run's own data.

    tables: has read some of the tables already.
    """
    from seqkit.data.inputs import Inputs, schema_of

    if args.test:
        from seqkit.runs.test_split import SplitInputs

        return SplitInputs(trained)
    source = trained.config["data"].get("source")
    graph = None
    if isinstance(source, dict) and source.get("type") == "GraphFile":
        from seqkit.runs.test_split import graph_reader  # brings Lightning, which others do without

        graph = graph_reader(trained, args.run)
    given = list(args.inputs)
    column = args.input
    # one example: image=a.png,text=…
    if hasattr(trained.tokenizer, "parts") and column is not None:
        given = [*given, column]
        column = None
    schema = schema_of(trained.config)
    inputs = Inputs(given, trained.tokenizer, schema, column=column, graph=graph, tables=tables)
    for note in inputs.notes:
        print(one_line(note), file=sys.stderr)
    return inputs


def kept_columns(args: Namespace, tables: Tables) -> tuple[list[str], list[dict[str, object]]]:
    """Names of the columns of tables that are copied beside the predictions, and the cells of each row by them.

    tables: reads them, as they are read for the predictions.
    Raises UsageError for what is no table, and where a table lacks a column.
    """
    from seqkit.data.formats import TABLE, format_of
    from seqkit.data.inputs import schema_of
    from seqkit.data.tables.schema import check_column
    from seqkit.files import read_mapping

    if others := [one for one in args.inputs if format_of(Path(one)) is not TABLE]:
        raise UsageError(
            f"--keep copies columns of tables, and {one_line(others[0])[:100]} is none; leave it out"
        )
    schema = schema_of(read_mapping(args.run / "config.yaml"))
    header = None if schema is None else schema.header or None
    each = [tables.read(one, header=header) for one in args.inputs]
    columns: list[str] = []
    for word in args.keep:
        columns += [word] if word in each[0].names else word.split(",")
    cells: list[dict[str, object]] = []
    for rows in each:
        for column in columns:
            check_column(rows, column, "--keep")
        cells += ({name: rows.columns[name][i] for name in columns} for i in range(len(rows)))
        cells += ({} for _ in rows.faults)  # which `Inputs` tells after the rows
    return columns, cells


class RowWriter:
    """Writes a row for each answer, with equal columns, in the formats of `FORMATS`; as text: name, tab, what is known.

    names: columns of a prediction, one for each of its numbers if it has several. beside: columns that are written
    before it. classes: whose probabilities are written after it, unless they are the prediction. has_bounds: whether
    there are columns `low` and `high`, the ends of the prediction interval.
    """

    def __init__(
        self,
        names: Sequence[str],
        beside: Sequence[str],
        classes: Sequence[str] = (),
        *,
        has_bounds: bool = False,
    ):
        self.is_one = list(names) in (["prediction"], ["vector"])
        self.count = 0
        self.names = [f"predicted {name}" if name in OWN else name for name in names]
        self.fields = {"prediction": self.names}
        for end in ("low", "high") if has_bounds else ():
            if self.is_one:
                self.fields[end] = [end]
            else:
                self.fields[end] = [f"{name} {end}" for name in self.names]
        self.classes = []
        if self.is_one:
            self.classes = [f"probability of {name}" for name in classes]
        predicted = [column for columns in zip(*self.fields.values()) for column in columns]
        taken = {*OWN, *predicted, *self.classes}
        self.beside = {name: f"{name} of the input" if name in taken else name for name in beside}
        last = ["error"] if list(names) == ["vector"] else ["error", "warning"]
        self.columns = ["name", *self.beside.values(), *predicted, *last, *self.classes]

    def open(self, kind: str, path: Path | None, stack: ExitStack) -> None:
        """Begin a file of this kind, or the standard output; the stack closes it."""
        self.kind = kind
        self._rows = list[dict[str, Any]]()
        if kind == "parquet" and path is not None:  # held in memory until the end
            stack.callback(self._write_parquet, path)
            return
        if path is None:
            self.file = sys.stdout
        else:
            self.file = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
        if kind in DELIMITERS:
            self._write_row(map(printable, self.columns))

    def write(self, answer: Answer, beside: Mapping[str, object]) -> None:
        """Write one answer, and what is known `beside` it."""
        self.count += 1
        row = dict.fromkeys(self.columns) | {
            self.beside[name]: value for name, value in beside.items()
        }
        row |= {"name": printable(answer.name), "error": answer.error and printable(answer.error)}
        if "warning" in row:
            row["warning"] = printable(answer.warning) or None
        for field, columns in self.fields.items():
            if (value := getattr(answer, field)) is not None:
                row |= dict(zip(columns, [value] if self.is_one else value, strict=True))
        if answer.probabilities is not None and self.classes:  # [k], or [n k] of the tokens
            shares = answer.probabilities.movedim(-1, 0).numpy()
            row |= dict(zip(self.classes, shares, strict=True))
        if self.kind == "parquet":
            self._rows.append(row)
            return
        row = {key: _plain(value) for key, value in row.items()}
        if self.kind == "jsonl":
            print(json.dumps(row), file=self.file)
        elif self.kind in DELIMITERS:
            self._write_row(map(_cell, row.values()))
        else:
            forms = {"name": "{1}", "prediction": "{1}", "error": "error: {1}"}
            known = {key: _cell(value) for key, value in row.items() if value is not None}
            known.pop("warning", None)  # standard error says it of all rows at once
            if answer.error is not None:
                known = {"name": answer.name, "prediction": "", **known}
            fields = (forms.get(key, "{0} {1}").format(key, value) for key, value in known.items())
            print("\t".join(map(one_line, fields)), file=self.file)

    def _write_row(self, cells: Iterable[str]) -> None:
        delimiter = DELIMITERS[self.kind]
        csv.writer(self.file, delimiter=delimiter, lineterminator="\n").writerow(cells)

    def _write_parquet(self, path: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if self._rows:
            found = pa.Table.from_pylist(self._rows)
        else:
            found = pa.table({name: [] for name in self.columns})
        parquet.write_table(found, path)


def _plain(value: Any) -> Any:
    """A value as JSON has it: a number with the fewest digits that give it again; None for one that is not finite."""
    if getattr(value, "dtype", None) == "float32":
        value = value.astype(str).astype(float)  # 0.1, where its float64 is 0.10000000149011612
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, str | int | dict):
        return value
    return str(value)


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
    add("inputs", nargs="*", default=[], metavar="PATH", help=what)
    column = (
        "column of a table (default: as in training, or found by its name); "
        "one example image=a.png,text=… of parts"
    )
    add("--input", metavar="COLUMN", help=column)
    add(
        "--test",
        action="store_true",
        help="predict for the test split of the run's own data, beside each target",
    )
    keep = "copy columns of the table into the output, such as an id; may be given more than once"
    add("--keep", action="append", metavar="COLUMN[,COLUMN]", help=keep)
    add("--probabilities", action="store_true", help="write the probability of each class")
    vectors = (
        "write vectors in place of predictions: pooled hidden states of the backbone's last layer"
    )
    add("--embed", action="store_true", help=vectors)
    add(
        "--format",
        choices=["text", "csv", "tsv", "jsonl"],
        help="default: that of the suffix of --out, or text",
    )
    add_out(parser, "output file; it is complete, or not there at all", metavar="FILE")
    add_device(parser)
