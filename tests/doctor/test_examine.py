"""`seqkit doctor` names each planted fault, and that one alone; of the recipes it finds nothing wrong."""

import pytest

from seqkit.config import complete
from seqkit.doctor import examine as module
from seqkit.doctor.examine import examine
from seqkit.doctor.findings import Result
from seqkit.errors import DataError

TEMPERATURE = "--model.backbone.block.attention.mechanism.temperature"


def findings(recipe, *words, preset="debug"):
    results = examine(complete(recipe, preset, list(words)))
    return {result.name: result.finding for result in results if result.finding is not None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "check", "key", "value"),
    [
        (
            ["image/digits", "--model.backbone.block", "PostNormBlock"],
            "warm-up",
            "--model.backbone.block",
            "PreNormBlock",
        ),
        (["image/digits", TEMPERATURE, "0.001"], "attention", TEMPERATURE, "null"),
        (["text/char-lm", "--model.backbone", "SeesTheFuture"], "future", "--model.backbone", "Transformer"),
        (["image/digits", "--tokenizer", "Amplified"], "inputs", "--tokenizer", "Patches"),
    ],
    ids=lambda word: word.removeprefix("--") if isinstance(word, str) else "",
)
def test_a_planted_fault_is_named_alone_with_the_key_that_mends_it(words, check, key, value):
    late = ["--schedule.warmup_steps", "0"] if check == "warm-up" else []
    found = findings(*words, *late)
    assert list(found) == [check]
    assert found[check].cause
    assert f"{key} {value}" in found[check].fix or f"{key} (now" in found[check].fix


@pytest.mark.slow
def test_a_learning_rate_a_hundred_times_too_high_is_named_alone_and_its_keys_mend_it():
    words = ["image/digits", "--optimizer.lr", "1.0", "--optimizer.adamw.lr", "0.3"]
    found = findings(*words)
    assert list(found) == ["learning rate"]
    keys = found["learning rate"].fix.replace(",", "").split()
    assert keys[::2] == ["--optimizer.lr", "--optimizer.adamw.lr"]
    assert findings(*words, *keys) == {}


@pytest.mark.slow
def test_a_batch_that_is_too_large_for_the_memory_is_named_alone(monkeypatch):
    monkeypatch.setattr("seqkit.doctor.memory.available_memory", lambda _: ("this machine", 10_000_000))
    found = findings("image/digits", "--data.batch_size", "10000")
    assert list(found) == ["memory"]
    assert "--data.batch_size" in found["memory"].fix


HEALTHY = ["graph/karate", "graph/solubility", "text/char-lm", "image/masked-patches",
           "audio/classify", "mechanism/parity", "multimodal/clip", "multimodal/caption",
           "multimodal/regress"]  # fmt: skip
"""Recipes of each modality and objective; graph/karate is quick."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe", [one if one == "graph/karate" else pytest.param(one, marks=pytest.mark.slow) for one in HEALTHY]
)
def test_a_healthy_recipe_has_no_finding(recipe):
    assert findings(recipe) == {}


def test_what_a_users_component_raises_is_a_finding(monkeypatch):
    def check_nothing(_):
        raise TypeError("no such thing")

    for name in ("MODEL_AND_DATA_CHECKS", "TRAINING_CHECKS"):
        monkeypatch.setattr(module, name, ())
    monkeypatch.setattr(module, "MODEL_AND_DATA_CHECKS", (check_nothing, lambda _: Result("next", "")))
    results = examine(complete("mechanism/copy", "debug"))
    assert "no such thing" in results[0].finding.problem
    assert [result.name for result in results] == ["nothing", "next"]


def test_data_that_cannot_be_read_is_no_finding(monkeypatch):
    def check_nothing(_):
        raise DataError("it is broken")

    monkeypatch.setattr(module, "MODEL_AND_DATA_CHECKS", (check_nothing,))
    with pytest.raises(DataError, match="it is broken"):
        examine(complete("mechanism/copy", "debug"))
