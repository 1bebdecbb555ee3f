"""Unmatcheds of what was not matched between candidates: the diff of their configurations, and eight checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from seqkit.comparison.candidates import EQUAL, RATIO, Sizes
from seqkit.comparison.types import Results, Row, Unmatched
from seqkit.comparison.verdicts import depth_at_edge, depths_tried, rate_at_edge, same_function
from seqkit.config.recipe import load_yaml

HANDLED = ("trainer.max_steps", "trainer.max_epochs", "trainer.min_steps", "model.backbone.type")
"""Keys whose effect has a finding of its own."""

SPLITS = ("training", "validation", "test")

EXPECTED = (
    "trainer.val_check_interval",
    "trainer.check_val_every_n_epoch",
    "model.adjacency",
    RATIO,
)
"""Keys that the comparison itself sets."""

COMPARED = ("model.backbone.mixer", "model.backbone.dim", "model.backbone.depth")
"""Keys by which backbones differ that are compared, or that are matched and tuned."""

MATCH = {"parameters": "parameters", "FLOPs of a training step": "flops"}
"""Setting of `--match` that makes a size equal."""


def unmatched(results: Results) -> list[Unmatched]:
    """Unmatcheds about the results of a comparison, warnings first."""
    rows = [row for row in results.candidates if row.sound]
    checks = (
        _configurations,
        _sizes,
        _receptive_fields,
        _lengths,
        _tuning,
        _seeds,
        _splits,
        _overlap,
        _surroundings,
        _same_function,
    )
    found = [finding for check in checks for finding in check(results, rows)]
    return sorted(found, key=lambda finding: finding.kind != "warning")


def _warning(what: str, text: str) -> Unmatched:
    return Unmatched(kind="warning", what=what, text=text)


def _note(what: str, text: str) -> Unmatched:
    return Unmatched(kind="note", what=what, text=text)


def _by_name(values: Mapping[str, object]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in values.items())


def _gap(values: Sequence[float]) -> float:
    """(largest - smallest) / smallest; 0 where there is nothing to compare."""
    if len(values) > 1 and min(values) > 0:
        return max(values) / min(values) - 1
    return 0.0


def _sizes(results: Results, rows: Sequence[Row]) -> Iterator[Unmatched]:
    if "width" in results.varied:  # sizes are what is compared
        return
    sizes = {
        "parameters": {row.name: row.parameters for row in rows if row.parameters},
        "FLOPs of a training step": {
            row.name: row.training_flops for row in rows if row.training_flops
        },
    }
    for what, values in sizes.items():
        is_asked = results.match == MATCH[what]
        gap = _gap(list(values.values()))
        # the others were matched to it, not to each other
        if is_asked and results.reference in values:
            gap = max(abs(value / values[results.reference] - 1) for value in values.values())
        if gap > EQUAL:
            each = _by_name({n: f"{value:,}" for n, value in values.items()})
            text = f"They differ by up to {100 * gap:.0f} % ({each})."
            is_warning = is_asked or (what == "parameters" and results.match == "none")
            tell = _warning if is_warning else _note
            yield tell(what, text)


def _receptive_fields(_results: Results, rows: Sequence[Row]) -> Iterator[Unmatched]:
    for row in rows:
        if row.farthest is not None:
            yield _warning(
                "receptive field",
                f"No output of {row.name} depends on an input more than {row.farthest} tokens away, but examples have "
                f"up to {row.longest} tokens. At this depth, it cannot learn dependencies over longer distances.",
            )


def _lengths(results: Results, rows: Sequence[Row]) -> Iterator[Unmatched]:
    if "data.train_share" in results.varied:
        return
    steps = {row.name: fmean(run.steps or 0 for run in row.sound) for row in rows}
    tokens = {row.name: fmean(run.tokens or 0 for run in row.sound) for row in rows}
    for what, values, most in (("steps", steps, 0.0), ("tokens", tokens, 0.01)):
        if _gap(list(values.values())) > most:
            shown = _by_name({name: f"{value:,.0f}" for name, value in values.items()})
            text = f"Candidates trained for different numbers ({shown})."
            yield _warning(f"training {what}", text)


def _tuning(results: Results, rows: Sequence[Row]) -> Iterator[Unmatched]:
    tuning = results.tuning
    rates = {row.name: load_yaml(row.config)["optimizer"].get("lr") for row in rows}
    shown = _by_name(
        {name: f"{rate:g}" for name, rate in rates.items() if isinstance(rate, int | float)}
    )
    if tuning is None:
        yield _warning(
            "tuning", f"It is not recorded how these runs were tuned (learning rates: {shown})."
        )
        return
    if tuning.lr_trials < 2:
        yield _warning(
            "tuning", f"Nothing was tuned. Each candidate has the recipe's learning rate ({shown})."
        )
        return
    if reported := sorted(set(tuning.seeds) & set(results.seeds)):
        text = "Trials and reported runs share a seed, so the results of this seed are too good"
        yield _warning("tuning seeds", f"{text}: {', '.join(map(str, reported))}.")
    if any(trial.error for row in rows for trial in row.trials):
        counts = {row.name: sum(trial.error is None for trial in row.trials) for row in rows}
        yield _warning("tuning trials", f"Trials failed; those that finished: {_by_name(counts)}.")
    for row in rows:
        for edge in filter(None, (rate_at_edge(row), depth_at_edge(row))):
            yield _warning("tuning", edge)
    yield from _searches(rows)
    text = "Weight decay, dropout, warm-up, schedule, clipping and batch size are the recipe's."
    if not tuning.depths:
        text = f"Depth, {text[0].lower()}{text[1:]}"
    yield _note("other settings", f"{text} They were not tuned, and may suit one candidate better.")


def _searches(rows: Sequence[Row]) -> Iterator[Unmatched]:
    """Unequal numbers of trials, learning rates and depths; a warning where one candidate has one depth alone."""
    depths = [len(depths_tried(row)) for row in rows]
    numbers = {}
    for row, number in zip(rows, depths):
        rates = {str(one.values) for one in row.trials}
        numbers[row.name] = f"{len(row.trials)}, {len(rates)}, {number}"
    if len(set(numbers.values())) < 2:
        return
    tell = _warning if min(depths) == 1 < max(depths) else _note
    text = f"Candidates had unequal numbers of trials, rates and depths ({_by_name(numbers)})"
    why = "A search goes on while the best lies at an end, and leaves out depths that the budget does not allow"
    yield tell("tuning trials", f"{text}. {why}.")


def _same_function(results: Results, _rows: Sequence[Row]) -> Iterator[Unmatched]:
    for pair in results.differences:
        if same := same_function(pair, results):
            yield _warning("equal scores", same)


def _seeds(results: Results, rows: Sequence[Row]) -> Iterator[Unmatched]:
    seeds = {row.name: sorted(run.seed for run in row.sound) for row in rows}
    if len({tuple(one) for one in seeds.values()}) > 1 and results.until_sure is None:
        yield _warning("seeds", f"Candidates have different seeds ({_by_name(seeds)}).")
    few = [name for name, one in seeds.items() if len(one) == 1]
    if few:
        covers = "No interval exists"
        if results.num_test > 1:
            covers = "The interval covers only the choice of test examples"
        text = f"One seed only ({', '.join(few)}), so the variation between runs is unknown."
        yield _warning("seeds", f"{text} {covers}.")


def _splits(results: Results, rows: Sequence[Row]) -> Iterator[Unmatched]:
    """Candidates that did not have the same data."""
    if len({str(load_yaml(row.config)["tokenizer"]) for row in rows}) > 1:
        return
    by_share = "data.train_share" in results.varied
    for split in SPLITS[1:] if by_share else SPLITS:
        digests = {
            row.name: {run.data_sha256[split] for run in row.sound if split in run.data_sha256}
            for row in rows
        }
        every = set[str]().union(*digests.values())
        # of one version of the digest
        if len(every) > len({digest.rpartition(":")[0] for digest in every}):
            short = {
                name: ", ".join(sorted(d.rpartition(":")[2][:8] for d in own))
                for name, own in digests.items()
            }
            yield _warning(
                f"{split} data", f"The {split} split is not the same (SHA-256 {_by_name(short)})."
            )


def _overlap(results: Results, rows: Sequence[Row]) -> Iterator[Unmatched]:
    """Test examples that were seen before, and data that was left out."""
    for row in rows:
        own = row.sound[0].data_sha256
        if own.get("test") and own.get("test") in (own.get("validation"), own.get("training")):
            text = f"The test split of {row.name} is the same as its validation or training split."
            yield _warning("tuning split", text)
    if repeated := max((run.test_in_training or 0 for row in rows for run in row.sound), default=0):
        text = f"{repeated:,} of {results.num_test:,} test examples are in the training split too, token for token."
        yield _warning("test data", text)
    limits = [limit for row in rows if (limit := load_yaml(row.config)["data"].get("limit"))]
    if limits:
        text = f"Only part of the data was used, at most {max(limits):,} samples of each split."
        yield _warning("limit", text)


def _surroundings(_results: Results, rows: Sequence[Row]) -> Iterator[Unmatched]:
    seen: dict[tuple[str, str], dict[str, set[str]]] = {}
    for row in rows:
        for run in row.sound:
            for what, own in (("library versions", run.versions), ("machine", run.machine)):
                for name, value in own.items():
                    seen.setdefault((what, name), {}).setdefault(str(value), set()).add(row.name)
    for (what, name), values in seen.items():
        if len(values) > 1:
            shown = "; ".join(
                f"{value}: {', '.join(sorted(names))}" for value, names in sorted(values.items())
            )
            yield _warning(what, f"{name} was not the same ({shown}).")


def _configurations(results: Results, rows: Sequence[Row]) -> Iterator[Unmatched]:
    """Every key that differs, but for those that are compared, tuned, or follow from them."""
    flat = {row.name: dict(flattened(load_yaml(row.config))) for row in rows}
    own = {"seed", "recipe", *results.varied}
    if "width" in results.varied:
        for row in rows:
            own.update(Sizes.of(load_yaml(row.config)).widths)
    for row in rows:
        for note in row.notes:
            yield _warning(row.name, note)
    is_chosen = results.tuning is not None and len(results.tuning.optimizers) > 1
    for key in dict.fromkeys(key for config in flat.values() for key in config):
        if key in HANDLED or any(
            key == p or (key.startswith(f"{p}.") and p != "model.backbone") for p in own
        ):
            continue
        if key.startswith("optimizer.") and (key.endswith("lr") or is_chosen):
            continue
        if "model.backbone" in own and key.startswith(COMPARED):
            continue
        if key.startswith("model.backbone.") and _follows_from_the_type(key, flat):
            continue
        values = {name: config.get(key) for name, config in flat.items()}
        if len({str(value) for value in values.values()}) > 1:
            tell = _note if key in EXPECTED else _warning
            yield tell(key, f"{_by_name(values)}.")


def _follows_from_the_type(key: str, flat: Mapping[str, Mapping[str, object]]) -> bool:
    """True if a key is of a backbone, or an encoder or decoder, of different types, and they do not all have it."""
    parts = key.split(".")
    for end in range(2, len(parts)):
        above = ".".join(parts[:end])
        own = ".".join(parts[end:])
        # its size was searched for
        if len({config.get(f"{above}.type") for config in flat.values()}) > 1:
            return (
                "." in own
                or own in ("type", "dim", "depth")
                or not all(key in config for config in flat.values())
            )
    return False


def flattened(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of a configuration with their values."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flattened(inner, f"{path}.{key}".lstrip("."))
    else:
        yield path, value
