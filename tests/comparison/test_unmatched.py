"""Planted unfairness is found, and a fair comparison has no warning."""

from dataclasses import replace
from functools import cache

import pytest

from seqkit.comparison.scores import METRICS
from seqkit.comparison.types import Results, Row, Run, Trial, Tuning
from seqkit.comparison.unmatched import unmatched
from seqkit.config import complete, to_yaml

DATA = {"training": "a" * 64, "validation": "b" * 64, "test": "c" * 64}
RUN = Run(
    seed=1, folder="", value=0.9, steps=100, tokens=5000, seconds=10.0, data_sha256=DATA,
    versions={"torch": "2.11.0"}, machine={"cpu": "a processor"},
)  # fmt: skip
BASE = ("--optimizer=AdamW", "--optimizer.lr=0.003", "--data.valid_fraction=0.1")


@cache
def config_of(recipe, *words):
    """The complete configuration of these words, as text."""
    return to_yaml(complete(recipe, None, list(words)))


def row(name):
    losses = ((0.001, 0.5), (0.003, 0.3), (0.01, 0.6))
    return Row(
        name=name, mean=0.9, parameters=1000, training_flops=10_000, width=64, depth=2, chosen={"optimizer.lr": 0.003},
        trials=[Trial(values={"optimizer.lr": lr}, seed=1001, score=loss, loss=loss) for lr, loss in losses],
        runs=[replace(RUN, seed=seed) for seed in (1, 2, 3)],
        config=config_of("image/digits", f"--model.backbone={name}", *BASE),
    )  # fmt: skip


TUNING = Tuning(lr_trials=3, optimizers=["AdamW"], depths=False, seeds=[1001, 1002], by="accuracy")
FAIR = Results(
    recipe="image/digits", metric=METRICS["accuracy"], candidates=[row("Transformer"), row("LSTM")],
    match="parameters", num_test=1000, varied=["model.backbone"], seeds=[1, 2, 3], tuning=TUNING,
)  # fmt: skip


def second(results=FAIR, **changes):
    """Results whose second candidate has been changed."""
    first, other = results.candidates
    return replace(results, candidates=[first, replace(other, **changes)])


def runs(**changes):
    return second(runs=[replace(run, **changes) for run in FAIR.candidates[1].runs])


def data(**changes):
    return runs(data_sha256=DATA | changes)


def config(*words):
    return second(config=config_of("image/digits", "--model.backbone=LSTM", *BASE, *words))


def tuning(**changes):
    return replace(FAIR, tuning=replace(TUNING, **changes))


def warnings(results):
    return {
        finding.what: finding.text for finding in unmatched(results) if finding.kind == "warning"
    }


OWN = FAIR.candidates[1]
PLANTED = {
    "twice the parameters": (second(parameters=2000), "parameters", "differ by up to 100 %"),
    "twice the steps": (runs(steps=200), "training steps", "LSTM: 200"),
    "twice the tokens": (runs(tokens=10_000), "training tokens", "LSTM: 10,000"),
    "a trial failed": (
        second(trials=[*OWN.trials[:2], replace(OWN.trials[2], error="nan")]), "tuning trials", "LSTM: 2"
    ),
    "a short receptive field": (
        second(farthest=12, longest=100), "receptive field",
        "No output of LSTM depends on an input more than 12 tokens away, but examples have up to 100 tokens",
    ),
    "test examples in training": (runs(test_in_training=114), "test data", "114 of 1,000 test examples are in the"),
    "a trial's seed among the reported ones": (tuning(seeds=[1, 1002]), "tuning seeds", "share a seed"),
    "nobody tuned": (tuning(lr_trials=0), "tuning", "Nothing was tuned"),
    "another dropout inside": (config("--model.backbone.dropout=0.3"), "model.backbone.dropout", "LSTM: 0.3"),
    "validation is test": (data(validation="c" * 64), "tuning split", "is the same"),
    "one seed": (second(runs=OWN.runs[:1]), "seeds", "One seed only"),
    "other seeds": (runs(seed=9), "seeds", "have different seeds"),
    "another test split": (data(test="d" * 64), "test data", "not the same"),
    "other training data": (data(training="d" * 64), "training data", "not the same"),
    "another torch": (runs(versions={"torch": "2.12.0"}), "library versions", "torch was not the same"),
    "another processor": (runs(machine={"cpu": "another"}), "machine", "cpu was not the same"),
    "another optimizer": (config("--optimizer=Muon"), "optimizer.type", "LSTM: Muon"),
    "another weight decay": (config("--optimizer.weight_decay=0.3"), "optimizer.weight_decay", "LSTM: 0.3"),
    "another batch size": (config("--data.batch_size=128"), "data.batch_size", "LSTM: 128"),
    "part of the data": (config("--data.limit=100"), "limit", "at most 100 samples"),
    "edge of the grid": (second(chosen={"optimizer.lr": 0.01}), "tuning", "0.01, the largest of"),
    "one depth": (
        second(tuning(depths=True), trials=[*OWN.trials, replace(OWN.trials[0], depth=4)]), "tuning trials",
        "(Transformer: 3, 3, 1; LSTM: 4, 3, 2)",
    ),
    "edge of the depths": (
        second(trials=[*OWN.trials, replace(OWN.trials[0], depth=1), replace(OWN.trials[0], depth=2)]), "tuning",
        "LSTM chose the depth 2, the largest of 2 tried (1, 2)",
    ),
    "ignored bonds": (second(notes=["it ignores the edges"]), "LSTM", "ignores the edges"),
    "tuning unknown": (replace(FAIR, tuning=None), "tuning", "not recorded"),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_unfairness_is_a_warning_and_warnings_come_first(fault):
    results, what, text = PLANTED[fault]
    found = [
        finding
        for finding in unmatched(results)
        if finding.what == what and finding.kind == "warning"
    ]
    assert any(text in finding.text for finding in found), unmatched(results)
    kinds = [finding.kind for finding in unmatched(results)]
    assert kinds == sorted(kinds, key=lambda kind: kind != "warning")


def test_a_fair_comparison_has_no_warning_and_yet_notes():
    assert warnings(FAIR) == {}
    assert "other settings" in {finding.what for finding in unmatched(FAIR)}


def test_a_grid_that_went_on_is_no_warning():
    results = second(trials=[*OWN.trials, replace(OWN.trials[0], values={"optimizer.lr": 0.0001})])
    assert warnings(results) == {}
    told = {finding.what: finding.text for finding in unmatched(results)}
    assert "LSTM: 4, 4, 1)" in told["tuning trials"]
    assert "Depth, weight decay" in told["other settings"]


def test_sizes_are_matched_to_the_reference_and_not_to_each_other():
    def sized(one, other, **changes):
        rows = [
            row("Transformer"),
            replace(row("LSTM"), parameters=one),
            replace(row("GRU"), parameters=other),
        ]
        return replace(FAIR, candidates=rows, **changes)

    assert "parameters" not in warnings(sized(981, 1019))
    assert "parameters" in warnings(sized(981, 1021))
    assert "parameters" not in warnings(sized(981, 1021, match="flops"))
    assert "FLOPs of a training step" in warnings(
        second(replace(FAIR, match="flops"), training_flops=10_300)
    )


def test_encoders_of_different_types_are_one_difference_and_not_one_for_each_key():
    rows = [
        replace(
            one,
            config=config_of("text/translate", f"--model.backbone.encoder={one.name}", *BASE[:2]),
        )
        for one in FAIR.candidates
    ]
    found = warnings(replace(FAIR, candidates=rows))
    assert not [what for what in found if what.startswith("model.backbone.encoder")]


def test_sizes_that_are_what_is_compared_are_no_warning():
    rows = [
        replace(one, config=config_of("image/digits", *BASE[:2], f"--model.backbone.dim={dim}"))
        for one, dim in zip(FAIR.candidates, (16, 32))
    ]
    assert warnings(replace(FAIR, candidates=rows, varied=["width"])) == {}
