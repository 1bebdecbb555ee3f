"""Defaults on the drawn sets of real data (`defaults_data.draw`), beside the best of several classical methods by test.

    export OMP_NUM_THREADS=1
    python -m tests.benchmarks.defaults_draw --list                # rows and classes; nothing is trained
    python -m tests.benchmarks.defaults_draw --check               # what `seqkit fit FILE` says, and two steps
    python -m tests.benchmarks.defaults_draw --rivals table/crabs  # the classical methods alone
    python -m tests.benchmarks.defaults_draw                       # once; goes on where it was stopped
    python -m tests.benchmarks.defaults_draw --print               # the table so far

The default is `seqkit fit FILE`: three seeds, or ten where the first took less than a minute. Scores of the test rows
are averaged over the seeds. The rival is the best by test of all methods of `defaults_rivals.py`, which favours it.
The difference is paired by row, with a 95 % interval (t); rows of one group count as one where a set has groups. Scores
are the share of right answers in per cent, or minus the squared error in per cent of the best constant's.

Each seed and each set's rivals add a line to `results.jsonl`, with the score of every test row. `results.csv` has a row
for each set that is done; what a person wrote into its column `cause` stays.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from tests.benchmarks.defaults import default_answers, describe, score
from tests.benchmarks.defaults_data import DRAWN, Case
from tests.benchmarks.defaults_data.drawn_series import SEASONS
from tests.benchmarks.defaults_rivals import of_bench, of_seqkit, quiet

OUT = Path("build/defaults-draw")
FEW_SEEDS = 3
MANY_SEEDS = 10
MANY_SECONDS = 60
"""Processor time of the first seed below which a set gets the many."""


class Result(NamedTuple):
    """A row of the table. low, high: of the interval of `difference`, in points."""

    name: str
    rows: int
    test_rows: int
    seeds: int
    default: float
    rival: float
    by: str
    difference: float
    low: float
    high: float
    verdict: str
    seconds: float
    steps: int
    cause: str = ""


def rival_scores(name: str, case: Case) -> dict[str, list[float]]:
    """Scores of the test rows by each method."""
    found = {}
    for answers in (of_bench(case, SEASONS.get(name)), of_seqkit(case)):
        for method, own in quiet(answers):
            found[method] = score(case, own).tolist()
    return found


def interval(differences: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of the mean, by t; rows of a group may depend on one another (cluster-robust)."""
    _, place = np.unique(groups, return_inverse=True)
    sums = np.bincount(place, differences - differences.mean())
    count = len(sums)
    error = np.sqrt(count / (count - 1) * np.square(sums).sum()) / len(differences)
    half = stats.t.ppf(0.975, count - 1) * error
    return differences.mean() - half, differences.mean() + half


def result(name: str, lines: list[dict[str, Any]], seeds: int) -> Result | None:
    """The row of a set from its lines; None: some of them are still missing."""
    rivals = next((line for line in lines if "methods" in line), None)
    runs = sorted((line for line in lines if "seed" in line), key=lambda line: line["seed"])
    if rivals is None or not runs or len(runs) < num_seeds(runs[0], seeds):
        return None
    by = max(rivals["methods"], key=lambda method: np.mean(rivals["methods"][method]))
    theirs = 100 * np.array(rivals["methods"][by])
    ours = 100 * np.mean([run["scores"] for run in runs], axis=0)
    low, high = interval(ours - theirs, np.array(rivals["groups"]))
    verdict = "even"
    if low > 0:
        verdict = "better"
    elif high < 0:
        verdict = "worse"
    return Result(
        name,
        rivals["rows"],
        len(ours),
        len(runs),
        ours.mean(),
        theirs.mean(),
        by,
        (ours - theirs).mean(),
        low,
        high,
        verdict,
        max(run["seconds"] for run in runs),
        max(run["steps"] for run in runs),
    )


def num_seeds(first: dict[str, Any], seeds: int) -> int:
    """Seeds that a set gets. seeds: 0: by the processor time of the first."""
    if seeds:
        return seeds
    return MANY_SEEDS if first["seconds"] < MANY_SECONDS else FEW_SEEDS


def read(out: Path) -> list[dict[str, Any]]:
    path = out / "results.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def add(out: Path, line: dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def run(names: list[str], seeds: int, out: Path) -> None:
    """Adds what is missing: the rivals of each set, then a line for each seed."""
    for name in names:
        lines = [line for line in read(out) if line["name"] == name]
        if result(name, lines, seeds) is not None:
            continue
        case = DRAWN[name]()
        groups = np.arange(len(case.targets)) if case.groups is None else np.array(case.groups)
        if not any("methods" in line for line in lines):
            found = rival_scores(name, case)
            known = {"name": name, "rows": len(case.targets), "methods": found}
            # texts, as JSON has no other common form of numbers and names
            add(out, {**known, "groups": [str(x) for x in groups[case.is_test]]})
        done = {line["seed"]: line for line in lines if "seed" in line}
        seed = 1
        while seed == 1 or seed <= num_seeds(done[1], seeds):
            if seed not in done:
                answers, summary, seconds = default_answers(case, seed, [])
                scores = score(case, answers).tolist()
                steps = summary["steps"]
                line = {"name": name, "seed": seed, "seconds": seconds, "steps": steps}
                done[seed] = {**line, "scores": scores}
                add(out, done[seed])
            seed += 1


def write(names: list[str], seeds: int, out: Path) -> None:
    """Prints the sets that are done, and writes results.csv; causes in the file stay."""
    path = out / "results.csv"
    causes = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            causes = {row["name"]: row["cause"] for row in csv.DictReader(file)}
    every = read(out)
    found = []
    for name in names:
        own = result(name, [line for line in every if line["name"] == name], seeds)
        if own is not None:
            found.append(own._replace(cause=causes.get(name, "")))
    heads = (
        "set",
        "test",
        "seeds",
        "default",
        "best",
        "difference [95 %]",
        "is",
        "s",
        "best's name",
    )
    table = Table(*heads, "cause")
    for one in found:
        difference = f"{one.difference:+.1f} [{one.low:+.1f}, {one.high:+.1f}]"
        numbers = [f"{one.default:.1f}", f"{one.rival:.1f}", difference]
        last = [one.verdict, f"{one.seconds:.0f}", one.by, one.cause]
        table.add_row(one.name, str(one.test_rows), str(one.seeds), *numbers, *last)
    if found:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(Result._fields)
            for one in found:
                writer.writerow([round(x, 2) if isinstance(x, float) else x for x in one])
    console = Console(width=160)
    console.print(table)
    verdicts = [one.verdict for one in found]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("better", "even", "worse"))
    console.print(f"{len(found)} of {len(names)} sets: {counts}", highlight=False)


def check(names: list[str]) -> None:
    """What seqkit says of the written files, and whether two steps train."""
    for name in names:
        case = DRAWN[name]()
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "data"
            folder.mkdir()
            words = ["fit", *map(str, case.write(folder)), "--trainer.max_steps", "2"]
            command = [sys.executable, "-m", "seqkit", *words, "--out", f"{place}/run"]
            start = time.perf_counter()
            told = subprocess.run(
                command,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            lines = [line.replace(place, "") for line in told.stderr.splitlines() if line.strip()]
            took = time.perf_counter() - start
            print(f"{name}: exit {told.returncode}, {took:.0f} s\n  {lines[0]}", flush=True)
            if told.returncode:
                print("  " + "\n  ".join(lines[-3:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="sets; none: all")
    parser.add_argument("--list", action="store_true", help="print rows and classes")
    parser.add_argument("--check", action="store_true", help="train two steps of each")
    parser.add_argument("--rivals", action="store_true", help="the classical methods alone")
    parser.add_argument("--print", action="store_true", help="print what is done")
    parser.add_argument("--seeds", type=int, default=0, help="0: three, or ten of a quick set")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    names = args.names or list(DRAWN)
    if args.list:
        for name in names:
            print(name, describe(DRAWN[name]()), flush=True)
    elif args.check:
        check(names)
    elif args.rivals:
        for name in names:
            for method, scores in rival_scores(name, DRAWN[name]()).items():
                print(f"{name}: {100 * np.mean(scores):.1f} {method}", flush=True)
    else:
        if not args.print:
            run(names, args.seeds, args.out)
        write(names, args.seeds, args.out)


if __name__ == "__main__":
    main()
