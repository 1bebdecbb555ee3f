"""`seqkit fit RECIPE --splits N`: the same training on several random splits of the data."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from seqkit.errors import UsageError, one_line

LEAST = 2
"""Fewest splits that have an interval."""

RESULTS = "splits.json"

PROPORTIONS = {"accuracy", "sequence_error"}
"""Metrics that are a proportion of the test examples, or of their tokens, as are recalls (`a_to_b@1`)."""

BESIDE = ("baseline", "strong_baseline", "difference")
"""Columns beside a metric, if they are known."""

Trained = Callable[[Mapping[str, Any], Path], Mapping[str, Any]]
"""A function of a configuration and a folder that trains where that run has not ended, and gives its summary."""


def run_splits(config: Mapping[str, Any], number: int, out: Path | None, trained: Trained) -> int:
    """Train on each split, in a folder of its own, and print the means; a command that is repeated goes on.

    Below the means stands what each split's own result says, once for all splits.
    Split i has the seed of the data plus i, and the run's seed plus i. Raises UsageError where the data has a test
    split of its own.
    """
    from rich.console import Console

    from seqkit.files import write_json
    from seqkit.report.numbers import finite
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
    write_json(folder / RESULTS, finite(results))
    Console(markup=False, emoji=False).print(_table(results))
    for line in (*explained(results), *answer(results), *common_cautions(summaries)):
        print(one_line(line))
    print(f"runs    {one_line(folder)}/split-*\nresults {one_line(folder / RESULTS)}")
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
    """Values of each test metric on all splits with mean, sd and interval; also of the best constant prediction, of the
    classical method, if there is one on every split, and of the difference from that, on the same splits."""
    from seqkit.analysis.repeated_splits import repeated

    sizes = [fmean(summary[key] for summary in summaries) for key in ("num_train", "num_test")]
    constant = [summary.get("baseline", {}) for summary in summaries]
    strong = [summary.get("strong_baseline") or {"name": "", "metrics": {}} for summary in summaries]

    def over_splits(values: list[float], *, proportion: bool) -> dict[str, Any]:
        return {"values": values, **repeated(values, *sizes, proportion=proportion)._asdict()}

    found: dict[str, Any] = {}
    for name in summaries[0]["metrics"]:
        is_proportion = name in PROPORTIONS or "@" in name
        values = [summary["metrics"][name] for summary in summaries]
        found[name] = over_splits(values, proportion=is_proportion)
        for key, others in (("baseline", constant), ("strong_baseline", [one["metrics"] for one in strong])):
            if all(name in one for one in others):
                found[name][key] = over_splits([one[name] for one in others], proportion=is_proportion)
        if beside := found[name].get("strong_baseline"):
            differences = [a - b for a, b in zip(values, beside["values"], strict=True)]
            found[name]["difference"] = over_splits(differences, proportion=False)
    return {
        "splits": len(summaries),
        "objective": summaries[0].get("objective", ""),
        "num_test": sizes[1],
        **{key: summaries[0][key] for key in ("main_metric", "main_metric_mode") if key in summaries[0]},
        "strong_baseline": list(dict.fromkeys(one["name"] for one in strong if one["name"])),
        "metrics": found,
    }


def _table(results: Mapping[str, Any]) -> Any:
    from rich import box
    from rich.table import Table

    from seqkit.report.headline import SHARES, format_metric

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    beside = [key for key in BESIDE if any(key in metric for metric in results["metrics"].values())]
    for column in ("metric", "mean", "95 % interval", "sd", *(key.replace("_", " ") for key in beside)):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for name, metric in results["metrics"].items():

        def interval(of: Mapping[str, Any], low: float = -math.inf, high: float = math.inf, name: str = name) -> str:
            if math.isnan(of["low"]):
                return format_metric(name, None)
            ends = (min(max(end, low), high) for end in (of["low"], of["high"]))
            return " to ".join(format_metric(name, end) for end in ends)

        own = interval(metric, 0.0, 1.0) if name in SHARES and name != "explained" else interval(metric)
        cells = [name, format_metric(name, metric["mean"]), own, format_metric(name, metric["sd"])]
        for key in beside:
            mean = format_metric(name, metric[key]["mean"] if key in metric else None)
            cells.append(f"{mean} ({interval(metric[key])})" if key == "difference" and key in metric else mean)
        table.add_row(*cells)
    return table


def explained(results: Mapping[str, Any]) -> list[str]:
    """Sentences on the columns of the table, and on why an interval is not that of the splits."""
    metrics, lines = results["metrics"], []
    if any("baseline" in metric for metric in metrics.values()):
        lines.append("baseline: the best constant prediction on the same splits")
    if names := results["strong_baseline"]:
        lines.append(f"strong baseline: {' or '.join(names)}, on the same splits")
    if equal := [name for name, metric in metrics.items() if metric["interval_from"] == "examples"]:
        lines.append(
            f"All splits have the same {', '.join(equal)}; its interval is that of the {results['num_test']:,.0f} test "
            "examples of one split (Clopper and Pearson 1934)."
        )
    none = [name for name, metric in metrics.items() if metric["interval_from"] is None and metric["sd"] == 0]
    if none:
        lines.append(f"All splits have the same {', '.join(none)}, from which no interval can be had.")
    return lines


def answer(results: Mapping[str, Any]) -> list[str]:
    """Whether the model is better than the classical method by the main metric, and what the intervals are."""
    from seqkit.report.headline import headline

    means = {name: metric["mean"] for name, metric in results["metrics"].items()}
    of_run = {key: results[key] for key in ("main_metric", "main_metric_mode", "objective") if key in results}
    found = headline({**of_run, "metrics": means})
    main = found.name
    difference, lines = results["metrics"][main].get("difference"), []
    if difference is not None:
        method, sign = " or ".join(results["strong_baseline"]), 1 if found.is_higher_better else -1
        worst, best = sorted((sign * difference["low"], sign * difference["high"]))
        if worst > 0 or best < 0:
            lines.append(f"The {main} is {'better' if worst > 0 else 'worse'} than that of {method}.")
        else:
            lines.append(f"These splits do not tell the {main} from that of {method}.")
    own = f"Each of the {results['splits']} splits has its own test examples and seed."
    known = [one for metric in results["metrics"].values() for one in (metric, metric.get("difference", metric))]
    if any(one["interval_from"] == "splits" for one in known):
        own += " The intervals are corrected for their common training examples (Nadeau and Bengio 2003)."
    return [*lines, own]


def common_cautions(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Warnings of the results and the data of the splits, each kind once, with the number of splits it is of."""
    from seqkit.report.headline import cautions

    kinds: dict[str, dict[int, str]] = {}
    for i, summary in enumerate(summaries, start=1):
        for text in (*cautions(dict(summary)), *summary.get("data_cautions", ())):
            # splits differ in their numbers, and in the metrics and rows that stand in brackets
            kinds.setdefault(re.sub(r"\([^()]*\)|\d[\d.,]*", "", text), {}).setdefault(i, text)
    lines = []
    for by_split in kinds.values():
        first, text = next(iter(by_split.items()))
        where = f"all {len(summaries)}" if len(by_split) == len(summaries) else f"{len(by_split)} of {len(summaries)}"
        is_alike = len(set(by_split.values())) == 1
        lines.append(f"In {where} splits{'' if is_alike else f', with the numbers of split {first}'}: {text}")
    return lines
