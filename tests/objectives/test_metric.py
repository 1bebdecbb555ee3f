"""One record says which way a metric is better and how it is written."""

from types import SimpleNamespace

import pytest

from seqkit.config import complete
from seqkit.errors import UsageError
from seqkit.objectives import Classify
from seqkit.objectives.labels import REPORTED
from seqkit.objectives.metric import METRICS, find_metric, primary_metric
from seqkit.objectives.metrics import build_metrics
from seqkit.runs.prepare import prepare

BUILT = build_metrics([name for name in REPORTED if name != "Loss"])
KNOWN = {name: metric.higher_is_better for name, metric in BUILT.items()}


@pytest.mark.parametrize("name", [name for name in KNOWN if KNOWN[name] is not None])
def test_a_metric_known_by_name_is_better_where_torchmetrics_says(name):
    assert find_metric(name).higher_is_better == KNOWN[name]


def test_names_that_nobody_knows_are_better_higher_and_recalls_are_shares():
    assert find_metric("yours").higher_is_better
    assert find_metric("yours").text(0.5) == "0.500"
    assert find_metric("r2").text(-0.0004) == "0.000"
    assert find_metric("image_to_text@5").text(0.5) == "50.00 %"
    assert find_metric("loss") is METRICS["loss"]


@pytest.mark.parametrize(("higher", "mode"), [(True, "max"), (False, "min"), (None, "min")])
def test_of_the_primary_metric_the_objectives_own_says_which_way_is_better(higher, mode):
    own = SimpleNamespace(higher_is_better=higher)
    objective = SimpleNamespace(
        primary_metric="accuracy", metrics=lambda _: {"accuracy": own}, generation_metrics=dict
    )
    found = primary_metric(objective, None)
    assert (found.mode, found.unit) == (mode, "%")
    assert found.is_better(2.0, 1.0) == bool(higher)


def test_a_primary_metric_that_is_not_measured_is_refused_and_the_loss_is_always():
    objective = SimpleNamespace(
        primary_metric="accuracy", metrics=lambda _: {"f1": None}, generation_metrics=dict
    )
    with pytest.raises(UsageError, match=r"'accuracy', which its metrics \(f1\) lack"):
        primary_metric(objective, None)
    objective.primary_metric = "loss"
    assert primary_metric(objective, None).mode == "min"


def test_it_is_refused_before_a_training_that_validates_nothing(monkeypatch):
    monkeypatch.setattr(Classify, "metrics", lambda *_: {})
    config = complete(
        "image/digits", "debug", {"data.valid_fraction": 0, "trainer.weights": "last"}
    )
    with pytest.raises(UsageError, match=r"Classify.primary_metric is 'accuracy'.*none"):
        prepare(config)
