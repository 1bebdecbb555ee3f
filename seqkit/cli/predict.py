"""`seqkit predict RUN PATH…`."""

from __future__ import annotations

import csv
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

from seqkit.errors import UsageError, one_line, printable
from seqkit.progress import track

if TYPE_CHECKING:
    from seqkit.data.inputs import Inputs
    from seqkit.runs.answers import Answer, Vector
    from seqkit.runs.trained_model import TrainedModel

A = TypeVar("A", "Answer", "Vector")

DATA = 3
"""Exit code where an input has no prediction."""

MAX_HELD = 1000
"""Failures that wait for the first answer."""

Format = Literal["text", "csv", "jsonl"]


def run(args: Namespace) -> int:
    """Print a prediction for each raw example, or write them to a file; those that have none are counted."""
    from seqkit.runs.summary import check_trained

    check_trained(args.run)  # a mistake is said before what imports torch
    if args.top is not None and args.top < 1:
        raise UsageError(f"--top {args.top} counts the classes to show; give 1 or more")
    check_out(args.out)
    from seqkit.runs.answers import predictions
    from seqkit.runs.trained_model import load

    trained = load(args.run)
    with_probabilities = args.probabilities or args.top is not None
    inputs = open_inputs(args, trained)
    answers = predictions(trained, inputs, probabilities=with_probabilities)
    classes = trained.objective.classes if with_probabilities else []
    with _written(args.out) as file:
        targets = trained.config["data"]["source"].get("target")
        names = targets if isinstance(targets, list) else []
        rows = Rows(file, args.format or _format_of(args.out), classes, args.top, names)
        return each(args.command, answers, rows.write, inputs.total)


def open_inputs(args: Namespace, trained: TrainedModel) -> Inputs:
    """The inputs of a command; what is skipped is said. A table's usual column is that of the run's own data."""
    from seqkit.data.inputs import Inputs

    source = trained.config["data"].get("source")
    own = source if isinstance(source, dict) and source.get("type") == "Table" else {}
    graph = None
    if isinstance(source, dict) and source.get("type") == "GraphFile":
        from seqkit.runs.graph_inputs import graph_reader  # brings Lightning, which others do without

        graph = graph_reader(trained, args.run)
    inputs = Inputs(
        args.inputs, trained.tokenizer, column=args.input, usual_column=own.get("input"), kind=own.get("kind"),
        graph=graph,
    )  # fmt: skip
    for note in inputs.notes:
        print(one_line(note), file=sys.stderr)
    return inputs


def check_out(out: Path | None) -> None:
    """Raise UsageError where no file can be written there."""
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise UsageError(f"--out {out} is a folder, or is in a folder that does not exist; give a file")


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


class Rows:
    """Writes answers as lines of text (name, tab, prediction), as CSV or as JSON Lines.

    classes: whose probabilities are written; empty: none are. top: only so many, the likeliest. targets: of which a
    prediction has a number each; empty: it is one thing.
    Lines of text begin with the first answer: a command that answers nothing prints nothing but its error.
    """

    def __init__(
        self, file: IO[str], kind: Format, classes: Sequence[str], top: int | None = None, targets: Sequence[str] = ()
    ):
        self.targets = list(targets)
        self.file, self.classes, self.kind = file, list(classes), kind
        self._held: list[Answer] = []
        self._has_begun = False
        self.top = None if top is None else min(top, len(classes))
        if kind == "csv":
            columns = [f"probability of {name}" for name in self.classes]
            if self.top is not None:
                columns = [f"{what} {i}" for i in range(1, self.top + 1) for what in ("class", "probability")]
            self._csv = csv.writer(file, lineterminator="\n")
            self._csv.writerow(["name", "prediction", "error", *map(printable, columns)])

    def write(self, answer: Answer) -> None:
        """One answer."""
        if self.targets and answer.error is None:
            answer = replace(answer, prediction=dict(zip(self.targets, answer.prediction, strict=True)))
        {"text": self._lines, "csv": self._row, "jsonl": self._json}[self.kind](answer)

    def _lines(self, answer: Answer) -> None:
        self._held.append(answer)
        if answer.error is None or self._has_begun or len(self._held) == MAX_HELD:
            self._has_begun = True
            for one in self._held:
                self._text(one)
            self._held = []

    def _text(self, answer: Answer) -> None:
        # an empty prediction, and a third column with the reason: no prediction holds a tab
        prediction = answer.prediction
        if isinstance(prediction, dict):
            prediction = " ".join(f"{name} {value:.6g}" for name, value in prediction.items())
        fields: list[Any] = [answer.name, prediction]
        if answer.error is not None:
            fields = [answer.name, "", f"error: {answer.error}"]
        elif answer.probabilities is not None and answer.probabilities.ndim == 1:
            fields += [f"{name} {share:.4f}" for name, share in self._shares(answer.probabilities)]
        elif answer.probabilities is not None:
            fields += [
                " ".join(f"{name} {share:.4f}" for name, share in self._shares(token)) for token in answer.probabilities
            ]
        print("\t".join(one_line(field) for field in fields), file=self.file)

    def _row(self, answer: Answer) -> None:
        prediction = answer.prediction
        if isinstance(prediction, list | dict):
            prediction = json.dumps(prediction)
        shares: list[Any] = []
        if answer.probabilities is not None and answer.probabilities.ndim == 1:
            pairs = self._shares(answer.probabilities)
            shares = [share for _, share in pairs] if self.top is None else [value for pair in pairs for value in pair]
        elif answer.probabilities is not None:  # a token's: in each column a list, one entry a token
            tokens = [self._shares(token) for token in answer.probabilities]
            flat = [[share for _, share in t] if self.top is None else [v for pair in t for v in pair] for t in tokens]
            shares = [json.dumps(list(column)) for column in zip(*flat)]
        cells = [answer.name, "" if prediction is None else prediction, answer.error or "", *shares]
        self._csv.writerow([printable(cell) if isinstance(cell, str) else cell for cell in cells])

    def _json(self, answer: Answer) -> None:
        entry: dict[str, Any] = {"name": answer.name}
        if answer.error is not None:
            entry["error"] = answer.error
        else:
            entry["prediction"] = answer.prediction
        if answer.probabilities is not None and answer.probabilities.ndim == 1:
            entry["probabilities"] = dict(self._shares(answer.probabilities))
        elif answer.probabilities is not None:
            entry["probabilities"] = [dict(self._shares(token)) for token in answer.probabilities]
        print(json.dumps(entry), file=self.file)

    def _shares(self, probabilities: Any) -> list[tuple[str, float]]:
        """(class, probability), the likeliest first where only some are shown."""
        pairs = list(zip(self.classes, probabilities.tolist()))
        return pairs if self.top is None else sorted(pairs, key=lambda pair: -pair[1])[: self.top]


def _format_of(out: Path | None) -> Format:
    """By the suffix of the file; text where it says nothing."""
    known: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    return known.get(out.suffix.lower(), "text") if out is not None else "text"


@contextmanager
def _written(out: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that has its name when all of it is written."""
    if out is None:
        yield sys.stdout
        return
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
