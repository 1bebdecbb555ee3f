"""`seqkit fit RECIPE --splits N`: the same training on several random splits of the data."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from seqkit.errors import UsageError, one_line

LEAST = 2
"""Fewest splits that have an interval."""

RESULTS = "splits.json"

Trained = Callable[[Mapping[str, Any], Path], Mapping[str, Any]]
"""A function of a configuration and a folder that trains where that run has not ended, and gives its summary."""


def run_splits(config: Mapping[str, Any], number: int, out: Path | None, trained: Trained) -> int:
    """Train on each split, in a folder of its own, and print the means; a command that is repeated goes on.

    Split i has the seed of the data plus i, and the run's seed plus i. Raises UsageError where the data has a test
    split of its own.
    """
    from rich.console import Console

    from seqkit.files import write_json
    from seqkit.runs.folder import new_folder

    _check(config, number)
    folder = new_folder(config["recipe"]) if out is None else out
    summaries = []
    for i in range(1, number + 1):
        own = copy.deepcopy(dict(config))
        own["data"]["source"]["seed"] += i
        own["seed"] += i
        print(f"split {i} of {number}: data.seed {own['data']['source']['seed']}, seed {own['seed']}", flush=True)
        summaries.append(trained(own, folder / f"split-{i}"))
    _check_drawn(summaries, config["data"]["source"]["type"])
    results = gathered(summaries)
    write_json(folder / RESULTS, results)
    Console(markup=False, emoji=False).print(_table(results))
    print(f"{answer(results)}\nruns    {one_line(folder)}/split-*\nresults {one_line(folder / RESULTS)}")
    return 0


def _check(config: Mapping[str, Any], number: int) -> None:
    """Raise UsageError for what cannot be split anew."""
    if number < LEAST:
        raise UsageError(f"--splits is {number}; give {LEAST} or more, such as 10")
    if "tasks" in config:
        raise UsageError("--splits takes a recipe of one task; run it for each task of the mixture")
    source = config["data"]["source"]
    if "test_fraction" not in source or "seed" not in source:
        raise UsageError(
            f"--splits draws test splits anew by the arguments test_fraction and seed of a data source, and "
            f"{source['type']} has a split of its own without them; leave --splits out"
        )
    given = [key for key in ("test", "split") if source.get(key) is not None]
    if given:
        raise UsageError(f"--splits draws test splits anew, and data.{given[0]} gives one; leave one of both out")
    devices = config["trainer"]["devices"]
    if config["trainer"]["num_nodes"] != 1 or devices not in ("auto", 1, "1"):
        raise UsageError(f"--splits runs on one device, and trainer.devices is {devices}; give --trainer.devices 1")


def _check_drawn(summaries: Sequence[Mapping[str, Any]], source: str) -> None:
    """Raise UsageError if all splits have the same test examples: their interval would be that of the seeds alone."""
    tested = {summary.get("data_sha256", {}).get("test") for summary in summaries}
    if len(tested) == 1 and None not in tested:
        raise UsageError(
            f"all {len(summaries)} splits have the same test examples, so they have no interval: {source} does not "
            "heed its seed; draw its test split by it"
        )


def gathered(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Values of each test metric on all splits with mean, sd and interval; also of the classical method, if there is
    one on every split, and of the difference, on the same splits."""
    from seqkit.analysis.repeated_splits import repeated

    sizes = [fmean(summary[key] for summary in summaries) for key in ("num_train", "num_test")]
    strong = [summary.get("strong_baseline") or {"name": "", "metrics": {}} for summary in summaries]

    def over_splits(values: list[float]) -> dict[str, Any]:
        return {"values": values, **repeated(values, *sizes)._asdict()}

    found: dict[str, Any] = {}
    for name in summaries[0]["metrics"]:
        values = [summary["metrics"][name] for summary in summaries]
        found[name] = over_splits(values)
        if all(name in one["metrics"] for one in strong):
            theirs = [one["metrics"][name] for one in strong]
            found[name]["baseline"] = over_splits(theirs)
            found[name]["difference"] = over_splits([a - b for a, b in zip(values, theirs, strict=True)])
    names = list(dict.fromkeys(one["name"] for one in strong if one["name"]))
    return {
        "splits": len(summaries),
        "objective": summaries[0].get("objective", ""),
        **{key: summaries[0][key] for key in ("main_metric", "main_metric_mode") if key in summaries[0]},
        "baseline": names,
        "metrics": found,
    }


def _table(results: Mapping[str, Any]) -> Any:
    from rich import box
    from rich.table import Table

    from seqkit.report.headline import SHARES, format_metric

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    has_baseline = any("baseline" in metric for metric in results["metrics"].values())
    for column in ("metric", "mean", "95 % interval", "sd", *(("baseline", "difference") if has_baseline else ())):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for name, metric in results["metrics"].items():

        def interval(of: Mapping[str, Any], low: float = -math.inf, high: float = math.inf, name: str = name) -> str:
            ends = (min(max(end, low), high) for end in (of["low"], of["high"]))
            return " to ".join(format_metric(name, end) for end in ends)

        own = interval(metric, 0.0, 1.0) if name in SHARES and name != "explained" else interval(metric)
        cells = [name, format_metric(name, metric["mean"]), own, format_metric(name, metric["sd"])]
        if "baseline" in metric:
            difference = metric["difference"]
            shown = f"{format_metric(name, difference['mean'])} ({interval(difference)})"
            cells += [format_metric(name, metric["baseline"]["mean"]), shown]
        table.add_row(*cells)
    return table


def answer(results: Mapping[str, Any]) -> str:
    """Whether the model is better than the classical method by the main metric, and what the interval is."""
    from seqkit.report.headline import headline

    means = {name: metric["mean"] for name, metric in results["metrics"].items()}
    found = headline({**results, "metrics": means, "baseline": {}})
    main = found.name
    difference, said = results["metrics"][main].get("difference"), ""
    if difference is not None:
        method, sign = " or ".join(results["baseline"]), 1 if found.is_higher_better else -1
        worst, best = sorted((sign * difference["low"], sign * difference["high"]))
        said = f"These splits do not tell the {main} from that of {method}.\n"
        if worst > 0 or best < 0:
            said = f"The {main} is {'better' if worst > 0 else 'worse'} than that of {method}.\n"
    return (
        f"{said}Each of the {results['splits']} splits has its own test examples and seed. The intervals are corrected "
        "for their common training examples (Nadeau and Bengio 2003)."
    )
