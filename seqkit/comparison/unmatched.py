"""Findings of what was not matched between candidates; each is a sentence in the report, and there is always one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from seqkit.comparison.candidates import TOLERANCE
from seqkit.config.recipe import load_yaml
from seqkit.registry import components
from seqkit.report.learning_rates import edge_remarks, trial_length

HANDLED = ("trainer.max_steps", "trainer.max_epochs", "model.backbone.type")
"""Keys whose effect is reported under its own name."""

EXPECTED = ("trainer.val_check_interval", "trainer.check_val_every_n_epoch", "model.adjacency")
"""Keys that the comparison itself sets."""

Finding = dict[str, str]
"""kind: "warning" (a hostile reviewer would not sign) or "note"; what; text."""

FEW_ERRORS = 10
"""Test examples that the best candidate has wrong, below which a page says how few decide."""

MUCH = 0.1
"""A share above which a difference in time or work is worth a sentence of its own."""


def unmatched(results: Mapping[str, Any]) -> list[Finding]:
    """Findings about the results of a comparison (`results.json`), warnings first."""
    rows = [row for row in results["candidates"] if finished(row)]
    checks = (
        _sizes,
        _receptive_fields,
        _states,
        _dropouts,
        _steps,
        _tuning,
        _seeds,
        _ceiling,
        _data,
        _surroundings,
        _configurations,
        _always,
    )
    found = [finding for check in checks for finding in check(results, rows)]
    return sorted(found, key=lambda finding: finding["kind"] != "warning")


def finished(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Runs of a candidate that have a value."""
    return [run for run in row["runs"] if run["value"] is not None]


def _warning(what: str, text: str) -> Finding:
    return {"kind": "warning", "what": what, "text": text}


def _note(what: str, text: str) -> Finding:
    return {"kind": "note", "what": what, "text": text}


def _listed(values: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in values.items())


def _gap(values: Sequence[float]) -> float:
    """(largest - smallest) / smallest; 0 where there is nothing to compare."""
    return max(values) / min(values) - 1 if len(values) > 1 and min(values) > 0 else 0.0


def _sizes(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    match, reference = results["match"], results["reference"]
    for key, what in (("parameters", "parameters"), ("training_flops", "FLOPs of a training step")):
        values = {row["name"]: row[key] for row in rows if row[key]}
        asked = match == ("parameters" if key == "parameters" else "flops")
        gap = _gap(list(values.values()))
        if asked and reference in values:  # the others were matched to it, not to each other
            gap = max(abs(value / values[reference] - 1) for value in values.values())
        if gap <= TOLERANCE:
            continue
        text = f"they differ by up to {gap:.0%} ({_listed({name: f'{value:,}' for name, value in values.items()})})"
        other = match != "none" and not asked if key == "parameters" else not asked
        yield _note(what, text) if other else _warning(what, text)
    for key in ("width", "depth"):
        values = {row["name"]: row[key] for row in rows if row[key]}
        if len(set(values.values())) > 1:
            yield _note(key, _listed(values))


def _receptive_fields(_results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    for row in rows:
        if (farthest := row.get("farthest")) is not None:
            yield _warning(
                "receptive field",
                f"no output of {row['name']} depends on an input more than {farthest} tokens away, and examples have "
                f"up to {row['longest']}: it cannot learn what lies farther apart, at this depth",
            )
    types = {load_yaml(row["config"])["model"]["backbone"]["type"] for row in rows}
    if len(types) > 1:
        text = "each backbone counts its own: a Transformer's has attention and an MLP, that of others a mixer alone"
        yield _note("layers", text)
        known = components("backbone")
        kinds = {name: known[name].what for name in sorted(types) if name in known and known[name].what}
        if kinds:
            yield _note("backbones", f"more differs between them than their names say ({_listed(kinds)})")


def _states(_results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    """Numbers that pass from token to token, where there are so many however long the example."""
    kept = {row["name"]: row["state"] for row in rows if row.get("state") is not None}
    if kept and len(set(kept.values())) + (len(kept) < len(rows)) > 1:
        text = f"numbers that are kept of an example, however long: {_listed({n: f'{x:,}' for n, x in kept.items()})}"
        yield _note("state", text + ("; the others keep more the longer it is" if len(kept) < len(rows) else ""))
    for row in rows:
        if (state := row.get("state")) is not None and state < row["longest"]:
            longest = f"examples have up to {row['longest']:,} tokens"
            yield _warning("state", f"{row['name']} keeps {state:,} numbers of an example, and {longest}")


def _dropouts(_results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    """Every dropout of every candidate, however deep it lies in the configuration."""
    found = {}
    for row in rows:
        flat = flattened(load_yaml(row["config"])["model"], "model")
        values = {key: value for key, value in flat if key.rpartition(".")[2] == "dropout"}
        found[row["name"]] = sorted({value or 0.0 for value in values.values()}) or [0.0]
    if len({tuple(values) for values in found.values()}) > 1:
        yield _warning("dropout", _listed({name: " and ".join(map(str, values)) for name, values in found.items()}))


def _steps(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    by_time = results["match"] == "time"
    for key, what in (("steps", "training steps"), ("tokens", "training tokens")):
        values = {row["name"]: fmean(run[key] for run in finished(row)) for row in rows}
        if _gap(list(values.values())) > (0 if key == "steps" else 0.01):
            text = _listed({name: f"{value:,.0f}" for name, value in values.items()})
            yield _note(what, f"{text}; training time was matched instead") if by_time else _warning(what, text)
    times = {row["name"]: fmean(run["seconds"] for run in finished(row)) for row in rows}
    if _gap(list(times.values())) > MUCH:
        text = _listed({name: f"{value:.0f} s" for name, value in times.items()})
        yield (_warning if by_time else _note)(
            "training time",
            f"{text} by the clock (mean over seeds, validation included; other runs may have shared the machine)",
        )


def _tuning(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    tuning = results["tuning"]
    rates = {row["name"]: load_yaml(row["config"])["optimizer"].get("lr") for row in rows}
    shown = _listed({name: f"{rate:g}" for name, rate in rates.items() if isinstance(rate, int | float)})
    if tuning is None:
        yield _warning("tuning", f"how the settings of these runs were found is not recorded (learning rates: {shown})")
        return
    if tuning["lr_trials"] == 0:
        yield _warning("tuning", f"nothing was tuned; each has the recipe's learning rate ({shown})")
        return
    if reported := sorted(set(tuning.get("seeds", [1])) & set(results["seeds"])):
        text = "trials chose the settings with a seed that is among the reported ones, which flatters its run: "
        yield _warning("tuning seeds", text + ", ".join(map(str, reported)))
    counts = {row["name"]: sum(trial["loss"] is not None for trial in row["trials"]) for row in rows}
    if len(set(counts.values())) > 1:
        failed = min(counts.values()) < tuning["lr_trials"] or any(t["loss"] is None for r in rows for t in r["trials"])
        text = f"candidates differ in how many trials ended: {_listed(counts)}"
        why = "" if failed else "; a grid whose best rate was its last was continued"
        yield (_warning if failed else _note)("tuning trials", text + why)
    untuned = [name for name, count in counts.items() if count == 0]
    if untuned:
        yield _warning("tuning", f"no trial ended, so nothing was tuned: {', '.join(untuned)}")
    if tuning["split"] == "test":
        yield _warning("tuning split", "the learning rates were chosen on the test split, so the results are too good")
    if tuning["lr_trials"] == 1:
        yield _warning("learning rate", f"it was not tuned; each has the recipe's ({shown})")
    for row in rows:
        for remark in edge_remarks(row):
            yield _warning("tuning", remark)
    for row in rows:
        depths = row.get("depth_trials") or []
        if depths and row["depth"] in (depths[0]["depth"], depths[-1]["depth"]):
            which = "fewest" if row["depth"] == depths[0]["depth"] else "most"
            text = f"{row['name']}: the chosen number of layers, {row['depth']}, is the {which} that were tried"
            yield _note("depth", f"{text}; another may be better")
    if tuning["fraction_of_steps"] < 1:
        text = f"trials took {trial_length(results)}"
        yield _warning(
            "length of trials", f"{text}; the best learning rate of a short run may not be that of a long one"
        )
    if not tuning["dropout_trials"]:
        yield _note("dropout", "it was not tuned; each has the recipe's, where it has any")
    yield _note(
        "other settings",
        "weight decay, warm-up, schedule, clipping and batch size are the recipe's and were not tuned; the recipe's "
        f"author chose them for {results['recipe_backbone']}",
    )


def _seeds(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    seeds = {row["name"]: sorted(run["seed"] for run in finished(row)) for row in rows}
    if len({tuple(one) for one in seeds.values()}) > 1:
        yield _warning("seeds", f"not all have the same: {_listed(seeds)}")
    few = [name for name, one in seeds.items() if len(one) == 1]
    if few:
        text = f"{', '.join(few)}: one seed only, so nothing is known of the spread between runs"
        covers = "covers the choice of test examples alone" if results["num_test"] > 1 else "cannot be had"
        yield _warning("seeds", f"{text}; the interval {covers}")
    elif max(map(len, seeds.values()), default=0) < 10:
        yield _note("seeds", "so few make wide intervals, and a rough standard deviation; more would tell more apart")


def _ceiling(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    """Numbers of test examples that decide, where they are few."""
    metric, number = results["metric"], results["num_test"]
    if metric["unit"] != "%" or not number:
        return
    wrong = {row["name"]: (1 - row["mean"] if metric["higher_is_better"] else row["mean"]) * number for row in rows}
    if min(wrong.values(), default=FEW_ERRORS) < FEW_ERRORS:
        shown = _listed({name: f"{errors:.1f}" for name, errors in wrong.items()})
        yield _note("ceiling", f"of {number:,} test examples these are wrong, mean over seeds, so few decide: {shown}")


def _data(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    tokenizers = {row["name"]: load_yaml(row["config"])["tokenizer"] for row in rows}
    same_tokens = len({str(one) for one in tokenizers.values()}) <= 1
    for split in ("training", "validation", "test"):
        digests = {
            row["name"]: {run["data_sha256"].get(split) for run in finished(row) if run["data_sha256"].get(split)}
            for row in rows
        }
        every = set[str]().union(*digests.values())
        different = len(every) > len({digest.rpartition(":")[0] for digest in every})  # of one version of the digest
        if different and same_tokens:
            shown = _listed(
                {name: ", ".join(sorted(d.rpartition(":")[2][:8] for d in each)) for name, each in digests.items()}
            )
            yield _warning(f"{split} data", f"the {split} split is not the same (SHA-256 {shown})")
        elif different and split == "training":
            yield _note("tokens", "the tokenizers differ, so it was not checked that the splits are the same text")
    for row in rows:
        for run in finished(row)[:1]:
            own = run["data_sha256"]
            if own.get("test") and own.get("test") in (own.get("validation"), own.get("training")):
                yield _warning(
                    "tuning split", f"{row['name']}: the test split is the same as the validation or training split"
                )
    for row in rows:
        repeated = next((run["test_in_training"] for run in finished(row) if run.get("test_in_training")), 0)
        if repeated:
            text = (
                f"{repeated:,} of {results['num_test']:,} test examples are in the training split too, token for token"
            )
            yield _warning("test data", text)
            break
    limited = {row["name"]: limit for row in rows if (limit := load_yaml(row["config"])["data"].get("limit"))}
    if limited:
        yield _warning(
            "limit", f"at most {max(limited.values()):,} samples of each split were used, not the whole data"
        )
    if results["tuning"] is not None and results["tuning"]["lr_trials"]:
        fractions = {load_yaml(row["config"])["data"]["valid_fraction"] for row in rows}
        yield _note(
            "validation split",
            f"the learning rates were chosen on validation data; where the data has none of its own, on "
            f"{max(fractions):.0%} of the training split, on which nothing was trained",
        )


def _surroundings(_results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    for key, what in (("versions", "library versions"), ("machine", "machine")):
        seen: dict[str, dict[str, set[str]]] = {}
        for row in rows:
            for run in finished(row):
                for name, value in (run.get(key) or {}).items():
                    seen.setdefault(name, {}).setdefault(str(value), set()).add(row["name"])
        for name, values in seen.items():
            if len(values) > 1:
                shown = "; ".join(f"{value}: {', '.join(sorted(names))}" for value, names in sorted(values.items()))
                yield _warning(what, f"{name} was not the same ({shown})")


def _configurations(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    flat = {row["name"]: dict(flattened(load_yaml(row["config"]))) for row in rows}
    varied = tuple(results.get("varied", ()))
    several = len((results["tuning"] or {}).get("optimizers", [])) > 1
    types = {config.get("model.backbone.type") for config in flat.values()}
    own = ["seed", "recipe", *varied]
    unlike = len(types) > 1
    for row in rows:
        for note in row.get("notes", []):
            yield _warning(row["name"], note)
    for key in dict.fromkeys(key for config in flat.values() for key in config):
        if key in HANDLED or any(key == p or (key.startswith(f"{p}.") and p != "model.backbone") for p in own):
            continue
        if key.startswith("optimizer.") and (key.endswith("lr") or several):  # tuned, or said under "tuning"
            continue
        if key.startswith("model.backbone.") and unlike and not _is_common(key, flat):
            continue
        values = {name: config.get(key) for name, config in flat.items()}
        if len({str(value) for value in values.values()}) > 1:
            yield (_note if key in EXPECTED else _warning)(key, _listed(values))
    if several:
        chosen = {name: config.get("optimizer.type") for name, config in flat.items()}
        yield _note("optimizer", f"chosen in the same trials as the learning rate; {_listed(chosen)}")
    elif rows and varied and "optimizer" not in varied:
        name = next(iter(flat.values())).get("optimizer.type")
        yield _note("optimizer", f"one for all, {name}, whichever would suit each best")
    keys = [f"model.backbone.{path}position.type" for path in ("", "encoder.")]
    positions = {name: next((config[key] for key in keys if config.get(key)), "none") for name, config in flat.items()}
    if len(set(positions.values())) > 1:
        yield _note("positions inside the backbone", _listed(positions))
    decoders = {name: config.get("model.backbone.decoder.type") for name, config in flat.items()}
    if len(set(decoders.values())) > 1:
        text = (
            "a Transformer attends to the source in every layer, the others once, above their last (AttentionDecoder)"
        )
        yield _note("decoder", f"{text}: {_listed(decoders)}")


def _is_common(key: str, flat: Mapping[str, Mapping[str, Any]]) -> bool:
    """True if all backbones have this key of their own, and it does not decide their size."""
    own = key.removeprefix("model.backbone.")
    return "." not in own and own not in ("type", "dim", "depth") and all(key in config for config in flat.values())


def _always(results: Mapping[str, Any], _rows: Sequence[Any]) -> Iterator[Finding]:
    yield _note(
        "implementation",
        "speed is that of these implementations on this machine; recurrent layers run in torch's own kernels, scans "
        "and attention in others, and on another processor or accelerator the order may differ",
    )
    yield _note(
        "effort",
        f"the recipe was developed with {results['recipe_backbone']}; others have had the trials above, nothing more",
    )


def flattened(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of a configuration with their values."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flattened(inner, f"{path}.{key}".lstrip("."))
    else:
        yield path, value
