"""Planted unfairness is found, and a fair comparison has no warning."""

import copy
from functools import cache

import pytest

from seqkit.comparison.scores import METRICS
from seqkit.comparison.unmatched import unmatched
from seqkit.config import complete, to_yaml

VERSIONS = {"python": "3.11", "torch": "2.11.0"}
MACHINE = {"cpu": "a processor", "cores": 2, "threads": 1}
DATA = {"training": "a" * 64, "validation": "b" * 64, "test": "c" * 64}


@cache
def config_of(recipe, *words):
    """The complete configuration of these words, as text."""
    return to_yaml(complete(recipe, None, list(words)))


def run_row(seed):
    return {
        "seed": seed, "value": 0.9, "steps": 100, "tokens": 5000, "seconds": 10.0, "error": None,
        "data_sha256": dict(DATA), "versions": dict(VERSIONS), "machine": dict(MACHINE),
    }  # fmt: skip


def row(name):
    words = [f"--model.backbone={name}", "--optimizer=AdamW", "--optimizer.lr=0.003", "--data.valid_fraction=0.1"]
    trials = [
        {"values": {"optimizer.lr": lr}, "loss": loss, "error": None}
        for lr, loss in ((0.001, 0.5), (0.003, 0.3), (0.01, 0.6))
    ]
    return {
        "name": name, "group": None, "mean": 0.9, "parameters": 1000, "training_flops": 10_000, "width": 64, "depth": 2,
        "chosen": {"optimizer.lr": 0.003}, "trials": trials, "runs": [run_row(seed) for seed in (1, 2, 3)],
        "config": config_of("image/digits", *words), "notes": [],
    }  # fmt: skip


def fair():
    return {
        "match": "parameters",
        "reference": "Transformer",
        "recipe_backbone": "Transformer",
        "num_test": 1000,
        "varied": ["model.backbone"],
        "seeds": [1, 2, 3],
        "tuning": {
            "lr_trials": 3,
            "dropout_trials": 0,
            "fraction_of_steps": 1.0,
            "split": "validation",
            "seeds": [1001, 1002],
        },
        "metric": METRICS["accuracy"]._asdict(),
        "differences": [],
        "candidates": [row("Transformer"), row("LSTM")],
    }


def warnings(results):
    return {finding["what"]: finding["text"] for finding in unmatched(results) if finding["kind"] == "warning"}


def test_a_fair_comparison_has_no_warning_and_yet_notes():
    assert warnings(fair()) == {}
    notes = {finding["what"] for finding in unmatched(fair())}
    assert {"effort", "implementation", "dropout", "other settings", "seeds"} <= notes


def test_a_grid_that_went_on_is_no_warning_but_a_note():
    results = fair()
    own = results["candidates"][1]
    own["trials"] = [*own["trials"], {**own["trials"][0], "values": {"optimizer.lr": 0.0001}}]
    assert warnings(results) == {}
    assert "the grid was extended" in " ".join(finding["text"] for finding in unmatched(results))


def test_near_the_ceiling_a_page_says_how_few_examples_decide():
    results = fair()
    assert "few errors" not in {finding["what"] for finding in unmatched(results)}
    results["candidates"][1]["mean"] = 0.994
    (text,) = [finding["text"] for finding in unmatched(results) if finding["what"] == "few errors"]
    assert text.endswith("Transformer: 100.0; LSTM: 6.0.")
    results["metric"] = METRICS["loss"]._asdict()
    assert "few errors" not in {finding["what"] for finding in unmatched(results)}


def changed(change):
    results = copy.deepcopy(fair())
    change(results, results["candidates"][1])
    return results


def set_runs(key, value):
    def change(_, candidate):
        for one in candidate["runs"]:
            one[key] = value if not isinstance(value, dict) else {**one[key], **value}

    return change


def set_config(words):
    def change(_, candidate):
        base = ["--model.backbone=LSTM", "--optimizer=AdamW", "--data.valid_fraction=0.1"]
        candidate["config"] = config_of("image/digits", *base, *words)

    return change


PLANTED = {
    "twice the parameters": (lambda r, c: c.update(parameters=2000), "parameters", "differ by up to 100 %"),
    "twice the steps": (set_runs("steps", 200), "training steps", "LSTM: 200"),
    "twice the tokens": (set_runs("tokens", 10_000), "training tokens", "LSTM: 10,000"),
    "one untuned": (lambda r, c: c.update(trials=c["trials"][1:2]), "tuning trials", "LSTM: 1"),
    "a receptive field that is shorter than the examples": (
        lambda r, c: c.update(farthest=12, longest=100), "receptive field",
        "No output of LSTM depends on an input more than 12 tokens away, but examples have up to 100 tokens",
    ),
    "a state that is smaller than the example": (
        lambda r, c: c.update(state=64, longest=100), "state", "LSTM stores only 64 numbers of an example, but"
    ),
    "dropout inside another backbone": (
        set_config(["--model.backbone.dropout=0.3"]), "dropout", "Transformer: 0.0; LSTM: 0.0 and 0.3"
    ),
    "test examples in training": (
        set_runs("test_in_training", 114), "test data", "114 of 1,000 test examples are in the training split too"
    ),
    "a trial's seed among the reported ones": (
        lambda r, c: r["tuning"].update(seeds=[1, 1002]), "tuning seeds", "share a seed"
    ),
    "nobody tuned": (lambda r, c: r["tuning"].update(lr_trials=0), "tuning", "Nothing was tuned"),
    "quarter trials": (
        lambda r, c: r["tuning"].update(fraction_of_steps=0.25, warmup_steps=20),
        "length of trials",
        "20 of them warm-up",
    ),
    "no trial ended": (lambda r, c: [t.update(loss=None) for t in c["trials"]], "tuning", "No trial finished"),
    "another dropout inside": (set_config(["--model.backbone.dropout=0.3"]), "model.backbone.dropout", "LSTM: 0.3"),
    "tuned on the test split": (lambda r, c: r["tuning"].update(split="test"), "tuning split", "on the test split"),
    "validation is test": (set_runs("data_sha256", {"validation": "c" * 64}), "tuning split", "is the same"),
    "one seed": (lambda r, c: c.update(runs=c["runs"][:1]), "seeds", "One seed only"),
    "other seeds": (lambda r, c: [x.update(seed=x["seed"] + 5) for x in c["runs"]], "seeds", "have different seeds"),
    "another test split": (set_runs("data_sha256", {"test": "d" * 64}), "test data", "not the same"),
    "other training data": (set_runs("data_sha256", {"training": "d" * 64}), "training data", "not the same"),
    "another torch": (set_runs("versions", {"torch": "2.12.0"}), "library versions", "torch was not the same"),
    "another processor": (set_runs("machine", {"cpu": "another"}), "machine", "cpu was not the same"),
    "another optimizer": (set_config(["--optimizer=Muon"]), "optimizer.type", "LSTM: Muon"),
    "another weight decay": (set_config(["--optimizer.weight_decay=0.3"]), "optimizer.weight_decay", "LSTM: 0.3"),
    "another batch size": (set_config(["--data.batch_size=128"]), "data.batch_size", "LSTM: 128"),
    "no augmentation": (set_config(["--data.augment=null"]), "data.augment", "LSTM: None"),
    "part of the data": (set_config(["--data.limit=100"]), "limit", "at most 100 samples"),
    "edge of the grid": (lambda r, c: c["chosen"].update({"optimizer.lr": 0.01}), "tuning", "0.01, the largest of"),
    "ignored bonds": (lambda r, c: c.update(notes=["it ignores the edges"]), "LSTM", "ignores the edges"),
    "tuning unknown": (lambda r, c: r.update(tuning=None), "tuning", "not recorded"),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_unfairness_is_a_warning(fault):
    change, what, text = PLANTED[fault]
    found = warnings(changed(change))
    assert what in found, found
    assert text in found[what]


def test_sizes_are_matched_to_the_reference_and_not_to_each_other():
    results = fair()
    results["candidates"].append(row("GRU"))
    results["candidates"][1]["parameters"], results["candidates"][2]["parameters"] = 981, 1019
    assert "parameters" not in warnings(results)
    results["candidates"][2]["parameters"] = 1021
    assert "parameters" in warnings(results)
    results["match"] = "flops"
    assert "parameters" not in warnings(results)
    results["candidates"][2]["training_flops"] = 10_300
    assert "FLOPs of a training step" in warnings(results)


def test_at_matched_time_other_steps_are_a_note_and_other_times_a_warning():
    results = changed(set_runs("steps", 200))
    results["match"] = "time"
    assert "training steps" not in warnings(results)
    slow = changed(set_runs("seconds", 15.0))
    assert "training time" not in warnings(slow)
    slow["match"] = "time"
    assert "training time" in warnings(slow)


def test_warnings_come_first():
    kinds = [finding["kind"] for finding in unmatched(changed(PLANTED["twice the steps"][0]))]
    assert kinds == sorted(kinds, key=lambda kind: kind != "warning")


def test_encoders_of_different_types_are_one_difference_and_not_one_for_each_key():
    results = fair()
    for candidate, name in zip(results["candidates"], ("Transformer", "LSTM")):
        words = [f"--model.backbone.encoder={name}", "--optimizer=AdamW", "--optimizer.lr=0.003"]
        candidate["config"] = to_yaml(complete("text/g2p", None, words))
    assert not [what for what in warnings(results) if what.startswith("model.backbone.encoder")]


def test_what_owners_of_finished_runs_chose_stands_first():
    results = fair() | {"tuning": None, "varied": [], "match": "none"}
    results["candidates"][1]["config"] = to_yaml(
        complete("image/digits", None, ["--model.backbone=Transformer", "--data.batch_size=7"])
    )
    found = [finding["what"] for finding in unmatched(results) if finding["kind"] == "warning"]
    assert found.index("data.batch_size") < found.index("tuning")


def test_a_causal_candidate_beside_one_that_looks_both_ways_is_a_warning():
    results = fair()
    for one, causal in zip(results["candidates"], (False, True)):
        one["causal"] = causal
    text = "In LSTM, a token learns of itself and earlier tokens alone; in Transformer, of all."
    assert warnings(results) == {"direction": text}
    results["candidates"][0]["causal"] = True
    assert warnings(results) == {}


def test_an_optimizer_that_no_trial_chose_is_not_said_to_be_chosen():
    results = fair()
    results["tuning"] |= {"lr_trials": 0, "optimizers": ["Muon", "AdamW"]}
    texts = {finding["text"] for finding in unmatched(results) if finding["what"] == "optimizer"}
    assert texts == {"All candidates use AdamW. Another may suit one of them better."}
    results["tuning"]["lr_trials"] = 3
    (text,) = [finding["text"] for finding in unmatched(results) if finding["what"] == "optimizer"]
    assert text.startswith("It was chosen in the same trials")


def test_sizes_that_are_what_is_compared_are_no_warning():
    results = fair() | {"varied": ["width"]}
    for one, dim in zip(results["candidates"], (16, 32)):
        words = ["--optimizer=AdamW", "--optimizer.lr=0.003", f"--model.backbone.dim={dim}"]
        one["config"] = to_yaml(complete("image/digits", None, words))
    assert warnings(results) == {}
    assert "effort" not in {finding["what"] for finding in unmatched(results)}
