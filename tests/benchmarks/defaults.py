"""Defaults beside classical methods, on data sets that packages ship (`defaults_data.py`).

    export OMP_NUM_THREADS=1
    python -m tests.benchmarks.defaults --half tune                      # one seed, the sets that may be looked at
    python -m tests.benchmarks.defaults --half judge --seeds 3           # once, when nothing changes any more
    python -m tests.benchmarks.defaults --half judge --list              # rows and classes; nothing is trained
    python -m tests.benchmarks.defaults text/fortunes --words --preset transformer      # one set, with other keys

The default is `seqkit fit FILE`, the command that a newcomer types. The rival is the method of scikit-learn that is set
beside it (`seqkit.classical.strong_baseline`), chosen within the training rows. The difference is paired by test
example, with a 95 % interval (t): of the share of right answers, in points, or of the squared error, relative to that
of the best constant. Above 0 the default is better.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from seqkit.classical.strong_baseline import strong_baseline
from seqkit.cli.guess import take_data_as_recipe
from seqkit.cli.parser import parser
from seqkit.config import complete
from seqkit.runs.prepare import untrained
from tests.benchmarks.defaults_data import Case, cases


def rival_answers(case: Case) -> tuple[str, np.ndarray]:
    """Name and answers for the test rows of the method that `seqkit fit` sets beside its run."""
    with tempfile.TemporaryDirectory() as place:
        args = Namespace(words=["fit", *map(str, case.write(Path(place)))])
        _, args.overrides = parser().parse_known_args(args.words, args)
        take_data_as_recipe(args)
        _, data = untrained(complete(args.recipe, args.preset, args.overrides))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = strong_baseline(data)
        assert found is not None
        assert found.member is not None
        test = data.splits().test
        names = [Path(test.name(i)).stem for i in range(len(test))]
        answers = data.objective.decode(found.member.predict([sample.raw for sample in test]))
    # in the order of their folders; the name of a file is its number
    if case.kind in ("image", "audio"):
        answers = [answer for _, answer in sorted(zip(map(int, names), answers))]
    return found.name, np.array(answers)


def default_answers(
    case: Case, seed: int, words: list[str]
) -> tuple[np.ndarray, dict[str, Any], float]:
    """Answers of the trained default for the test rows, its summary, and the processor seconds of `seqkit fit`."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "data"
        folder.mkdir()
        given = [str(x) for x in case.write(folder)]
        run, environment = Path(place) / "run", {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "seqkit"]
        start = _seconds_of_children()
        keys: dict[str, Any] = {"check": True, "env": environment, "capture_output": True}
        subprocess.run(
            [*command, "fit", *given, "--seed", str(seed), "--out", str(run), *words], **keys
        )
        seconds = _seconds_of_children() - start
        subprocess.run(
            [*command, "predict", str(run), "--test", "--out", f"{place}/tested.csv"], **keys
        )
        with Path(place, "tested.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        # in the order of their folders; the name of a file is its number
        if case.kind in ("image", "audio"):
            rows.sort(key=lambda row: int(Path(row["name"]).stem))
        answers = np.array([_answer(row, case) for row in rows])
        return answers, json.loads((run / "summary.json").read_text()), seconds


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _answer(row: dict[str, str], case: Case) -> Any:
    if not case.is_regression:
        return row["prediction"]
    names = [name for name in row if name.startswith("prediction")] or [
        name for name in row if f"{name} target" in row
    ]
    values = [json.loads(row[name]) for name in names]
    flat = values[0] if isinstance(values[0], list) else values
    return flat if case.kind == "forecast" else float(flat[0])


def score(case: Case, answers: np.ndarray) -> np.ndarray:
    """Score of each test row: 1 for a right class; squared error as a negative share of the best constant's."""
    y = np.array(case.targets)
    truth, train = y[case.is_test], y[~case.is_test]
    if not case.is_regression:
        return (answers == truth).astype(float)
    errors = np.square(answers - truth).reshape(len(truth), -1).mean(1)
    return -errors / np.square(truth - train.mean(0)).mean()


def describe(case: Case) -> str:
    """Rows, and what is to be answered."""
    num_test, targets = int(case.is_test.sum()), case.targets
    several = f"{len(targets[0])} values ahead" if case.kind == "forecast" else "a number"
    answer = (
        several
        if case.is_regression
        else ", ".join(f"{n} {y}" for y, n in sorted(Counter(targets).items()))
    )
    return f"{len(targets)} rows, {num_test} for the test: {answer}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="sets; none: those of --half")
    parser.add_argument("--half", choices=["tune", "judge"], default="tune")
    parser.add_argument(
        "--list", action="store_true", help="print rows and classes, and train nothing"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--words", nargs=argparse.REMAINDER, default=[], help="further words of seqkit fit"
    )
    parser.add_argument("--out", type=Path, default=Path("build/defaults/results.jsonl"))
    args = parser.parse_args()
    known = cases(args.half)
    names = args.names or list(known)
    if args.list:
        for name in names:
            print(name, describe(known[name]()))
        return
    table = Table(
        "set", "test rows", "default", "rival", "difference [95 %]", "seconds", "rival's name"
    )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=140)
    for name in names:
        case = known[name]()
        rival, answers = rival_answers(case)
        theirs, runs = (
            score(case, answers),
            [default_answers(case, seed, args.words) for seed in range(1, args.seeds + 1)],
        )
        ours = np.mean([score(case, found) for found, _, _ in runs], axis=0)
        difference = ours - theirs
        half = (
            stats.t.ppf(0.975, len(difference) - 1)
            * difference.std(ddof=1)
            / len(difference) ** 0.5
        )
        middle, seconds = difference.mean(), max(one[2] for one in runs)
        texts = [f"{100 * x.mean():.1f}" for x in (ours, theirs)]
        interval = (
            f"{100 * middle:+.1f} [{100 * (middle - half):+.1f}, {100 * (middle + half):+.1f}]"
        )
        table.add_row(name, str(len(ours)), *texts, interval, f"{seconds:.0f}", rival)
        row = {
            "name": name,
            "words": args.words,
            "seeds": args.seeds,
            "default": ours.mean(),
            "rival": theirs.mean(),
            "by": rival,
        }
        with args.out.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps({**row, "difference": middle, "half": half, "seconds": seconds}) + "\n"
            )
        console.print(
            f"{name}: {texts[0]} : {texts[1]} ({interval}), {seconds:.0f} s, {rival}",
            highlight=False,
        )
    console.print(table)


if __name__ == "__main__":
    main()
