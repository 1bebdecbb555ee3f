"""Findings of what was not matched between candidates, in sentences; every comparison has some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from seqkit.comparison.candidates import backbone_of, widths_of
from seqkit.config.recipe import load_yaml
from seqkit.registry import components
from seqkit.report.learning_rates import edge_remarks, trial_length
from seqkit.report.numbers import listed
from seqkit.report.ranking import TOLERANCE

HANDLED = ("trainer.max_steps", "trainer.max_epochs", "model.backbone.type")
"""Keys whose effect has a finding of its own."""

EXPECTED = ("trainer.val_check_interval", "trainer.check_val_every_n_epoch", "model.adjacency")
"""Keys that the comparison itself sets."""

Finding = dict[str, str]
"""kind: "warning" (a reviewer would object) or "note"; what: its subject; text: whole sentences."""

FEW_ERRORS = 10
"""If the best candidate has fewer test examples wrong, the page says how few decide."""

MUCH = 0.1
"""Relative difference in time above which the page mentions it."""


def unmatched(results: Mapping[str, Any]) -> list[Finding]:
    """Findings about the results of a comparison (`results.json`), warnings first."""
    rows = [row for row in results["candidates"] if finished(row)]
    checks = (
        _sizes,
        _receptive_fields,
        _directions,
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
    are_finished = results["tuning"] is None  # whose owner chose what differs
    first = sorted(checks, key=lambda check: are_finished and check is not _configurations)
    found = [finding for check in first for finding in check(results, rows)]
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
    if "width" in results.get("varied", ()):  # sizes are what is compared
        return
    for key, what in (("parameters", "parameters"), ("training_flops", "FLOPs of a training step")):
        values = {row["name"]: row[key] for row in rows if row[key]}
        asked = match == ("parameters" if key == "parameters" else "flops")
        gap = _gap(list(values.values()))
        if asked and reference in values:  # the others were matched to it, not to each other
            gap = max(abs(value / values[reference] - 1) for value in values.values())
        if gap <= TOLERANCE:
            continue
        shown = _listed({name: f"{value:,}" for name, value in values.items()})
        text = f"They differ by up to {100 * gap:.0f} % ({shown})."
        other = match != "none" and not asked if key == "parameters" else not asked
        yield _note(what, text) if other else _warning(what, text)
    sizes = {row["name"]: f"{row['width']} × {row['depth'] or '–'}" for row in rows if row["width"]}
    if len(set(sizes.values())) > 1:
        yield _note("width × depth", f"{_listed(sizes)}.")


def _receptive_fields(_results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    for row in rows:
        if (farthest := row.get("farthest")) is not None:
            yield _warning(
                "receptive field",
                f"No output of {row['name']} depends on an input more than {farthest} tokens away, but examples have "
                f"up to {row['longest']} tokens. At this depth, it cannot learn dependencies over longer distances.",
            )
    types = {backbone_of(load_yaml(row["config"])) for row in rows}
    if len(types) > 1 and "Transformer" in types:
        text = "Each backbone counts its own: a Transformer's layer has attention and an MLP, that of others a mixer."
        yield _note("layers", text)
    if len(types) > 1:
        known = components("backbone")
        kinds = {name: known[name].what for name in sorted(types) if name in known and known[name].what}
        if kinds:
            yield _note("backbones", f"{_listed(kinds)}.")


def _directions(_results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    """Causal candidates beside bidirectional ones."""
    causal = [row["name"] for row in rows if row.get("causal")]
    others = [row["name"] for row in rows if row.get("causal") is False]
    if causal and others:
        text = f"In {listed(causal)}, a token learns of itself and earlier tokens alone; in {listed(others)}, of all."
        yield _warning("direction", text)


def _states(_results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    """Size of the state of candidates whose state does not grow with the example."""
    kept = {row["name"]: row["state"] for row in rows if row.get("state") is not None}
    if kept and len(set(kept.values())) + (len(kept) < len(rows)) > 1:
        shown = _listed({name: f"{state:,}" for name, state in kept.items()})
        text = f"Numbers that a candidate stores of an example of any length: {shown}."
        more = " The others store more of a longer example, or read it in both directions."
        yield _note("state", text + (more if len(kept) < len(rows) else ""))
    for row in rows:
        if (state := row.get("state")) is not None and state < row["longest"]:
            longest = f"examples have up to {row['longest']:,} tokens"
            yield _warning("state", f"{row['name']} stores only {state:,} numbers of an example, but {longest}.")


def _dropouts(_results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    """Dropouts at any depth of the configuration."""
    found = {}
    for row in rows:
        flat = flattened(load_yaml(row["config"])["model"], "model")
        values = {key: value for key, value in flat if key.rpartition(".")[2] == "dropout"}
        found[row["name"]] = sorted({value or 0.0 for value in values.values()}) or [0.0]
    if len({tuple(values) for values in found.values()}) > 1:
        shown = _listed({name: " and ".join(map(str, values)) for name, values in found.items()})
        yield _warning("dropout", f"Candidates have different dropouts ({shown}).")


def _steps(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    by_time, by_share = results["match"] == "time", "data.train_share" in results.get("varied", ())
    for key, what in (("steps", "training steps"), ("tokens", "training tokens")):
        values = {row["name"]: fmean(run[key] for run in finished(row)) for row in rows}
        if not by_share and _gap(list(values.values())) > (0 if key == "steps" else 0.01):
            text = _listed({name: f"{value:,.0f}" for name, value in values.items()})
            text = f"Candidates trained for different numbers ({text})."
            yield _note(what, f"{text} Training time was matched instead.") if by_time else _warning(what, text)
    times = {row["name"]: fmean(run["seconds"] for run in finished(row)) for row in rows}
    if _gap(list(times.values())) > MUCH:
        text = _listed({name: f"{value:.0f} s" if value >= 10 else f"{value:.2g} s" for name, value in times.items()})
        yield (_warning if by_time else _note)(
            "training time",
            f"Wall-clock time of a run with validation, mean over seeds: {text}. Others may have shared the machine.",
        )


def _tuning(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    tuning = results["tuning"]
    rates = {row["name"]: load_yaml(row["config"])["optimizer"].get("lr") for row in rows}
    shown = _listed({name: f"{rate:g}" for name, rate in rates.items() if isinstance(rate, int | float)})
    if tuning is None:
        yield _warning("tuning", f"It is not recorded how these runs were tuned (learning rates: {shown}).")
        return
    if tuning["lr_trials"] == 0:
        yield _warning("tuning", f"Nothing was tuned. Each candidate has the recipe's learning rate ({shown}).")
        return
    if reported := sorted(set(tuning.get("seeds", [1])) & set(results["seeds"])):
        text = "Trials and reported runs share a seed, so the results of this seed are too good"
        yield _warning("tuning seeds", f"{text}: {', '.join(map(str, reported))}.")
    counts = {row["name"]: sum(trial["loss"] is not None for trial in row["trials"]) for row in rows}
    if len(set(counts.values())) > 1:
        failed = min(counts.values()) < tuning["lr_trials"] or any(t["loss"] is None for r in rows for t in r["trials"])
        text = f"Candidates finished different numbers of trials ({_listed(counts)})."
        why = "" if failed else " If the best rate was at an end of the grid, the grid was extended."
        yield (_warning if failed else _note)("tuning trials", text + why)
    untuned = [name for name, count in counts.items() if count == 0]
    if untuned:
        yield _warning("tuning", f"No trial finished, so nothing was tuned, for {listed(untuned)}.")
    if tuning["split"] == "test":
        yield _warning("tuning split", "Learning rates were chosen on the test split, so the results are too good.")
    if tuning["lr_trials"] == 1:
        yield _warning("learning rate", f"It was not tuned. Each candidate has the recipe's ({shown}).")
    for row in rows if tuning["lr_trials"] > 1 else ():
        for remark in edge_remarks(row):
            yield _warning("tuning", remark)
    if tuning["fraction_of_steps"] < 1:
        text = f"Each trial ran for {trial_length(results)}."
        yield _warning("length of trials", f"{text} The best learning rate of a longer run may be another.")
    if not tuning["dropout_trials"]:
        yield _note("dropout", "It was not tuned. Each candidate has the recipe's.")
    yield _note(
        "other settings",
        "Weight decay, warm-up, schedule, clipping and batch size were not tuned. They are the recipe's, whose author "
        f"chose them for {results['recipe_backbone']}.",
    )


def _seeds(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    seeds = {row["name"]: sorted(run["seed"] for run in finished(row)) for row in rows}
    if len({tuple(one) for one in seeds.values()}) > 1:
        yield _warning("seeds", f"Candidates have different seeds ({_listed(seeds)}).")
    few = [name for name, one in seeds.items() if len(one) == 1]
    if few:
        text = f"One seed only ({', '.join(few)}), so the variation between runs is unknown."
        covers = (
            "The interval covers only the choice of test examples" if results["num_test"] > 1 else "No interval exists"
        )
        yield _warning("seeds", f"{text} {covers}.")
    elif max(map(len, seeds.values()), default=0) < 10:
        yield _note("seeds", "With fewer than ten seeds, intervals are wide and standard deviations rough.")


def _ceiling(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    """Numbers of test examples that decide, where they are few."""
    metric, number = results["metric"], results["num_test"]
    if metric["unit"] != "%" or not number:
        return
    wrong = {row["name"]: (1 - row["mean"] if metric["higher_is_better"] else row["mean"]) * number for row in rows}
    if min(wrong.values(), default=FEW_ERRORS) < FEW_ERRORS:
        shown = _listed({name: f"{errors:.1f}" for name, errors in wrong.items()})
        yield _note("few errors", f"Few of the {number:,} test examples decide. Wrong on average: {shown}.")


def _data(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    tokenizers = {row["name"]: load_yaml(row["config"])["tokenizer"] for row in rows}
    same_tokens = len({str(one) for one in tokenizers.values()}) <= 1
    by_share = "data.train_share" in results.get("varied", ())
    for split in ("validation", "test") if by_share else ("training", "validation", "test"):
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
            yield _warning(f"{split} data", f"The {split} split is not the same (SHA-256 {shown}).")
        elif different and split == "training":
            yield _note("tokens", "Tokenizers differ, so it was not checked that the splits hold the same text.")
    for row in rows:
        for run in finished(row)[:1]:
            own = run["data_sha256"]
            if own.get("test") and own.get("test") in (own.get("validation"), own.get("training")):
                yield _warning(
                    "tuning split", f"The test split of {row['name']} is the same as its validation or training split."
                )
    for row in rows:
        repeated = next((run["test_in_training"] for run in finished(row) if run.get("test_in_training")), 0)
        if repeated:
            text = (
                f"{repeated:,} of {results['num_test']:,} test examples are in the training split too, token for token."
            )
            yield _warning("test data", text)
            break
    limited = {row["name"]: limit for row in rows if (limit := load_yaml(row["config"])["data"].get("limit"))}
    if limited:
        yield _warning(
            "limit", f"Only part of the data was used, at most {max(limited.values()):,} samples of each split."
        )
    if results["tuning"] is not None and results["tuning"]["lr_trials"]:
        fractions = {load_yaml(row["config"])["data"]["valid_fraction"] for row in rows}
        yield _note(
            "validation split",
            "Tuning used validation data. If the data has no validation split, this is "
            f"{100 * max(fractions):.0f} % of the training split, and no run trains on it.",
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
                yield _warning(what, f"{name} was not the same ({shown}).")


def _configurations(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    flat = {row["name"]: dict(flattened(load_yaml(row["config"]))) for row in rows}
    varied = tuple(results.get("varied", ()))
    tuning = results["tuning"] or {"lr_trials": 0}
    several = tuning["lr_trials"] > 0 and len(tuning.get("optimizers", [])) > 1
    own = ["seed", "recipe", *varied]
    if "width" in varied:
        own += {key for row in rows for key in widths_of(load_yaml(row["config"]))}
    for row in rows:
        for note in row.get("notes", []):
            yield _warning(row["name"], note)
    for key in dict.fromkeys(key for config in flat.values() for key in config):
        if key in HANDLED or any(key == p or (key.startswith(f"{p}.") and p != "model.backbone") for p in own):
            continue
        if key.startswith("optimizer.") and (key.endswith("lr") or several):  # tuned, or said under "tuning"
            continue
        if key.startswith("model.backbone.") and _follows_from_the_type(key, flat):
            continue
        values = {name: config.get(key) for name, config in flat.items()}
        if len({str(value) for value in values.values()}) > 1:
            yield (_note if key in EXPECTED else _warning)(key, f"{_listed(values)}.")
    if several:
        chosen = {name: config.get("optimizer.type") for name, config in flat.items()}
        yield _note("optimizer", f"It was chosen in the same trials as the learning rate ({_listed(chosen)}).")
    elif rows and varied and "optimizer" not in varied:
        name = next(iter(flat.values())).get("optimizer.type")
        yield _note("optimizer", f"All candidates use {name}. Another may suit one of them better.")
    keys = [f"model.backbone.{path}position.type" for path in ("", "encoder.")]
    positions = {name: next((config[key] for key in keys if config.get(key)), "none") for name, config in flat.items()}
    if len(set(positions.values())) > 1:
        yield _note("positions inside the backbone", f"{_listed(positions)}.")
    decoders = {name: config.get("model.backbone.decoder.type") for name, config in flat.items()}
    if len(set(decoders.values())) > 1:
        text = "A Transformer attends to the source in every layer, the others once, after the last (AttentionDecoder)"
        yield _note("decoder", f"{text}: {_listed(decoders)}.")


def _follows_from_the_type(key: str, flat: Mapping[str, Mapping[str, Any]]) -> bool:
    """True if a key is of a backbone, or an encoder or decoder, of different types, and they do not all have it."""
    parts = key.split(".")
    for end in range(2, len(parts)):
        above, own = ".".join(parts[:end]), ".".join(parts[end:])
        if len({config.get(f"{above}.type") for config in flat.values()}) > 1:  # its size was searched for
            return "." in own or own in ("type", "dim", "depth") or not all(key in config for config in flat.values())
    return False


def _always(results: Mapping[str, Any], rows: Sequence[Any]) -> Iterator[Finding]:
    yield _note(
        "implementation",
        "Speeds are those of these implementations on this machine. Recurrent layers run in torch's own kernels, scans "
        "and attention in others. On another processor or accelerator, the order may differ.",
    )
    if len({backbone_of(load_yaml(row["config"])) for row in rows}) < 2:
        return
    yield _note(
        "effort",
        f"The recipe was developed with {results['recipe_backbone']}. The others had only the trials under Tuning.",
    )


def flattened(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of a configuration with their values."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flattened(inner, f"{path}.{key}".lstrip("."))
    else:
        yield path, value
