"""`seqkit predict RUN PATH…`."""

from __future__ import annotations

import csv
import json
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

from seqkit.cli.options import add_inputs, add_out, whole
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

MAX_WAITING = 1000
"""Failures that wait for the first answer."""

Format = Literal["text", "csv", "jsonl"]


def run(args: Namespace) -> int:
    """Print a prediction for each raw example, or write them to a file; those that have none are counted."""
    from seqkit.runs.summary import check_trained

    check_trained(args.run)  # a mistake is said before what imports torch
    if args.top is not None and args.top < 1:
        raise UsageError(f"--top {args.top} counts the classes to show; give 1 or more")
    if args.test and (args.inputs or args.input is not None or args.keep):
        raise UsageError("--test predicts for the test split of the run's own data; leave out inputs, --input, --keep")
    check_file(args.out, args.inputs, force=args.force)
    kept = KeptColumns(args.inputs, args.keep) if args.keep else None
    from seqkit.runs.answers import check_predicts, prediction_names, predictions, probability_names
    from seqkit.runs.trained_model import load_one

    trained = load_one(args.run, args.device, args.dtype)
    check_predicts(trained.objective)
    with_probabilities = args.probabilities or args.top is not None
    inputs: Inputs | SplitInputs
    beside: Iterable[Mapping[str, Any] | None] = repeat({})
    columns: list[str] = []
    if args.test:
        from seqkit.runs.test_split import SplitInputs

        inputs = SplitInputs(trained, args.run)
        beside, columns = inputs.targets(), ["target"]
    else:
        inputs = open_inputs(args, trained)
    if kept is not None:
        if inputs.total != len(kept):
            raise UsageError("--keep copies columns of tables, and not every input here is a row of one; leave it out")
        beside, columns = iter(kept), kept.columns
    answers = predictions(trained, inputs, probabilities=with_probabilities)
    classes = probability_names(trained.objective) if with_probabilities else []
    names = prediction_names(trained)
    kind = args.format or _format_of(args.out)
    with ExitStack() as stack:
        file: IO[str] = sys.stdout
        if args.out is not None:
            part = stack.enter_context(written(args.out, force=args.force))
            file = stack.enter_context(part.open("w", encoding="utf-8", newline=""))
        rows = Rows(file, kind, classes, args.top, names, columns, has_bounds="intervals" in trained.summary)
        known = (replace(answer, beside=more) for answer, more in zip(answers, beside) if more is not None)
        code = each(args.command, known, rows.write, inputs.total)
        rows.finish()
        return code


def open_inputs(args: Namespace, trained: TrainedModel) -> Inputs:
    """The inputs of a command; what is skipped is said. A table's usual column is that of the run's own data."""
    from seqkit.data.inputs import Inputs, schema_of

    source = trained.config["data"].get("source")
    graph = None
    if isinstance(source, dict) and source.get("type") == "GraphFile":
        from seqkit.runs.test_split import graph_reader  # brings Lightning, which others do without

        graph = graph_reader(trained, args.run)
    schema = schema_of(trained.config)
    given, column = list(args.inputs), args.input
    has_parts = schema is not None and hasattr(trained.tokenizer, "parts")
    if has_parts and column is not None:  # one example: image=a.png,text=…
        given, column = [*given, column], None
    if not given:
        forms = "a table, or --input part=value,…" if has_parts else "files, tables or texts"
        raise UsageError(f"give inputs: {forms}")
    inputs = Inputs(given, trained.tokenizer, schema, column=column, graph=graph)
    for note in inputs.notes:
        print(one_line(note), file=sys.stderr)
    return inputs


def each(command: str, answers: Iterable[A], write: Callable[[A], None], total: int | None) -> int:
    """Write each answer, with progress once it takes long, and say how many are missing; gives the exit code."""
    count, missing, first = 0, 0, ""
    for answer in track(answers, command, total):
        write(answer)
        count += 1
        if answer.error is not None:
            missing += 1
            first = first or (answer.error if answer.name in answer.error else f"{answer.name}: {answer.error}")
    if missing:
        some = f" ({missing:,} of {count:,} inputs could not be used)" if count > 1 else ""
        print(f"seqkit {command}: {one_line(first)}{some}", file=sys.stderr)
    return DATA if missing else 0


class KeptColumns:
    """Columns of tables that are copied beside the predictions for their rows: iterates over the cells of each row.

    given: files of tables. words: names of columns, each or several with a comma between them.
    Raises UsageError for what is no table, and where a table lacks a column.
    """

    def __init__(self, given: Sequence[str], words: Sequence[str]):
        from seqkit.data.formats import TABLE, format_of
        from seqkit.data.tables.read import read_tables
        from seqkit.data.tables.schema import check_column

        if others := [one for one in given if format_of(Path(one)) is not TABLE] or ([] if given else ["no input"]):
            raise UsageError(f"--keep copies columns of tables, and {one_line(others[0])[:100]} is none; leave it out")
        self._tables = [read_tables(one) for one in given]
        known = self._tables[0].names
        self.columns = [name for word in words for name in ([word] if word in known else word.split(","))]
        for rows in self._tables:
            for column in self.columns:
                check_column(rows, column, "--keep")

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._tables)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for rows in self._tables:
            values = [rows.columns[column] for column in self.columns]
            yield from ({name: cells[i] for name, cells in zip(self.columns, values)} for i in range(len(rows)))
            yield from ({} for _ in rows.faults)  # which `Inputs` tells after the rows


class Rows:
    """Writes answers as lines of text (name, tab, prediction), as CSV or as JSON Lines.

    classes: names of the classes or labels whose probabilities are written; may be empty. top: number of the likeliest
    to write; None: all. targets: names of the numbers of which a prediction has several; may be empty. columns: names
    of what each answer has `beside` its prediction, written before it. has_bounds: whether answers have `low` and
    `high`, which CSV and JSON Lines hold.
    Failures wait for the first answer, so that a command with one input that has none prints nothing but its error.
    """

    def __init__(
        self,
        file: IO[str],
        kind: Format,
        classes: Sequence[str],
        top: int | None = None,
        targets: Sequence[str] = (),
        columns: Sequence[str] = (),
        *,
        has_bounds: bool = False,
    ):
        self.bounds = ["low", "high"] if has_bounds else []
        own = {"name", "prediction", "error", "probabilities", *self.bounds}
        self.columns = {name: f"{name} of the input" if name in own else name for name in columns}
        self.targets, self.file, self.classes, self.kind = list(targets), file, list(classes), kind
        self.top = None if top is None else min(top, len(classes))
        self._waiting: list[Answer] | None = []
        if kind == "csv":
            shares = [f"probability of {name}" for name in self.classes]
            if self.top is not None:
                shares = [f"{what} {i}" for i in range(1, self.top + 1) for what in ("class", "probability")]
            self._csv = csv.writer(file, lineterminator="\n")
            known = map(printable, self.columns.values())
            self._csv.writerow(["name", *known, "prediction", *self.bounds, "error", *map(printable, shares)])

    def write(self, answer: Answer) -> None:
        """Write one answer."""
        beside = {shown: _as_json(answer.beside.get(name)) for name, shown in self.columns.items()}
        if self.targets and isinstance(beside.get("target"), list):
            beside["target"] = dict(zip(self.targets, beside["target"], strict=True))
        answer = replace(answer, beside=beside)
        if self.targets and answer.error is None:
            own = {key: getattr(answer, key) for key in ("prediction", *self.bounds)}
            own = {key: dict(zip(self.targets, numbers, strict=True)) for key, numbers in own.items()}
            answer = replace(answer, **own)
        {"text": self._write_text, "csv": self._write_row, "jsonl": self._write_json}[self.kind](answer)

    def finish(self) -> None:
        """Write the failures that wait, unless it is a single one, which the command's own error says."""
        if self.kind == "text" and self._waiting is not None and len(self._waiting) > 1:
            self._print_text(self._waiting)

    def _shares(self, answer: Answer) -> list[list[tuple[str, float]]]:
        """(class, probability) pairs of the answer or, if each token has its own prediction, of each token."""
        if answer.probabilities is None:
            return []
        tokens = answer.probabilities.reshape(-1, len(self.classes)).tolist()
        pairs = [list(zip(self.classes, token)) for token in tokens]
        return pairs if self.top is None else [sorted(token, key=lambda pair: -pair[1])[: self.top] for token in pairs]

    def _write_text(self, answer: Answer) -> None:
        if self._waiting is not None:
            self._waiting.append(answer)
            if answer.error is not None and len(self._waiting) < MAX_WAITING:
                return
        waiting, self._waiting = self._waiting or [answer], None
        self._print_text(waiting)

    def _print_text(self, answers: Sequence[Answer]) -> None:
        for one in answers:
            prediction, more = one.prediction, [[f"{name} {share:.4f}" for name, share in t] for t in self._shares(one)]
            if isinstance(prediction, dict):
                prediction = " ".join(f"{name} {value:.6g}" for name, value in prediction.items())
            first = [one.name, *map(_as_cell, one.beside.values())]
            fields = [*first, prediction, *(map(" ".join, more) if _is_by_token(one) else chain(*more))]
            if one.error is not None:
                fields = [*first, "", f"error: {one.error}"]  # no prediction holds a tab
            print("\t".join(one_line(field) for field in fields), file=self.file)

    def _write_row(self, answer: Answer) -> None:
        shares = [
            [share for _, share in token] if self.top is None else list(chain(*token))
            for token in self._shares(answer)
        ]  # fmt: skip
        by_token = [json.dumps(list(column)) for column in zip(*shares)]
        cells: list[Any] = by_token if _is_by_token(answer) else list(chain(*shares))
        num_shares = len(self.classes) if self.top is None else 2 * self.top
        cells = cells or [""] * num_shares  # of a failed input
        beside = map(_as_cell, answer.beside.values())
        found = [_as_cell(getattr(answer, key)) for key in ("prediction", *self.bounds)]
        row = [answer.name, *beside, *found, answer.error or "", *cells]
        self._csv.writerow([printable(cell) if isinstance(cell, str) else cell for cell in row])

    def _write_json(self, answer: Answer) -> None:
        key, value = ("prediction", answer.prediction) if answer.error is None else ("error", answer.error)
        entry = {"name": answer.name, **answer.beside, key: value}
        entry |= {key: getattr(answer, key) for key in self.bounds if answer.error is None}
        if answer.probabilities is not None:
            shares = list(map(dict, self._shares(answer)))
            entry["probabilities"] = shares if _is_by_token(answer) else shares[0]
        print(json.dumps(entry), file=self.file)


def _as_cell(value: Any) -> Any:
    """A value in a table: empty for none, JSON for lists."""
    return "" if value is None else json.dumps(value) if isinstance(value, list | dict) else value


def _as_json(value: Any) -> Any:
    """A cell of a table as plain data: what JSON does not have, such as a date, as a text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value


def _is_by_token(answer: Answer) -> bool:
    """Whether each token has its own probabilities."""
    return answer.probabilities is not None and answer.probabilities.ndim == 2


def _format_of(out: Path | None) -> Format:
    """The format that the file's suffix names; text for other suffixes."""
    known: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    return known.get(out.suffix.lower(), "text") if out is not None else "text"


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_inputs(parser)
    add = parser.add_argument
    text = "predict for the test split of the run's own data, with the target of each example"
    add("--test", action="store_true", help=text)
    text = "copy columns of the table into the output, such as an id; may be given more than once"
    add("--keep", action="append", metavar="COLUMN[,COLUMN]", help=text)
    add("--probabilities", action="store_true", help="write the probability of each class")
    add("--top", type=whole, metavar="K", help="write the K likeliest classes with their probabilities")
    add("--format", choices=["text", "csv", "jsonl"], help="default: that of the suffix of --out, or text")
    add_out(parser, "output file; it is complete, or not there at all", metavar="FILE")
