"""`seqkit doctor` names each planted fault, and that one alone; of the recipes it finds nothing wrong."""

import pytest

from seqkit.config import complete
from seqkit.doctor import examine as module
from seqkit.doctor.examine import examine
from seqkit.doctor.findings import Result
from seqkit.errors import DataError


def findings(recipe, *words, preset="debug"):
    results = examine(complete(recipe, preset, list(words)))
    return {result.name: result.finding for result in results if result.finding is not None}


@pytest.mark.slow
def test_a_learning_rate_a_hundred_times_too_high_is_named_alone_and_its_keys_mend_it():
    words = ["image/digits", "--optimizer.lr", "1.0", "--optimizer.adamw.lr", "0.3"]
    found = findings(*words)
    assert list(found) == ["learning rate"]
    keys = found["learning rate"].fix.replace(",", "").split()
    assert keys[::2] == ["--optimizer.lr", "--optimizer.adamw.lr"]
    assert findings(*words, *keys) == {}


HEALTHY = ["graph/karate", "graph/molecules", "text/char-lm", "image/masked-patches",
           "audio/classify", "mechanism/tasks", "text/translate", "text/masked-lm", "multimodal/clip",
           "multimodal/caption", "multimodal/table"]  # fmt: skip
"""Recipes of each modality and objective; graph/karate is quick."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [
        one if one == "graph/karate" else pytest.param(one, marks=pytest.mark.slow)
        for one in HEALTHY
    ],
)
def test_a_healthy_recipe_has_no_finding(recipe):
    assert findings(recipe) == {}


def test_what_a_users_component_raises_is_a_finding(monkeypatch):
    def check_nothing(_):
        raise TypeError("no such thing")

    for name in ("MODEL_AND_DATA_CHECKS", "TRAINING_CHECKS"):
        monkeypatch.setattr(module, name, {})
    checks = {"nothing": check_nothing, "next": lambda _: Result("")}
    monkeypatch.setattr(module, "MODEL_AND_DATA_CHECKS", checks)
    results = examine(complete("mechanism/tasks", "debug"))
    assert "no such thing" in results[0].finding.problem
    assert [result.name for result in results] == ["nothing", "next"]


def test_data_that_cannot_be_read_is_no_finding(monkeypatch):
    def check_nothing(_):
        raise DataError("it is broken")

    monkeypatch.setattr(module, "MODEL_AND_DATA_CHECKS", {"nothing": check_nothing})
    with pytest.raises(DataError, match="it is broken"):
        examine(complete("mechanism/tasks", "debug"))
