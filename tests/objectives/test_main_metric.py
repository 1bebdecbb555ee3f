"""The metric by which a classifier's best weights are chosen."""

from types import SimpleNamespace
from typing import get_args

import pytest
import torch

from seqkit.interfaces import IGNORE, TokenSpec
from seqkit.objectives import Regress
from seqkit.objectives.classify import Classify, MainMetric
from seqkit.objectives.labels import REPORTED
from seqkit.objectives.metrics import build_metrics
from seqkit.report.headline import headline
from seqkit.training.callbacks import best_weights


@pytest.mark.parametrize("name", [name for name in get_args(MainMetric) if name != "Loss"])
def test_each_is_reported_by_that_name_and_more_is_better(name):
    ((key, metric),) = build_metrics([name]).items()
    assert (key, metric.higher_is_better) == (REPORTED[name], True)
    assert name in Classify(metrics=[], main=name).chosen_metrics


@pytest.mark.parametrize(
    ("objective", "monitor", "mode"),
    [
        (Classify(), "valid/accuracy", "max"),
        (Classify(main="AUROC"), "valid/auroc", "max"),
        (Classify(main="Loss"), "valid/loss", "min"),
        (Classify(class_weights=[1.0, 5.0]), "valid/balanced_accuracy", "max"),
        (Classify(class_weights="balanced", main="Accuracy"), "valid/accuracy", "max"),
        (Regress(), "valid/rmse", "min"),
    ],
)
def test_it_is_monitored_for_the_best_weights_and_stands_first(tmp_path, objective, monitor, mode):
    objective.fit([0, 1, 1], None)
    task = SimpleNamespace(objective=objective, model=SimpleNamespace(spec=TokenSpec(vocab_size=5)))
    found = best_weights(tmp_path, {"": task}, averages=False, labels=[0, 1] * 100)
    assert (found.monitor, found.mode) == (monitor, mode)


NODES = torch.tensor([0, 1, IGNORE] * 150)


@pytest.mark.parametrize(
    ("objective", "labels", "monitor", "mode"),
    [
        (Classify(), [0] * 199, "valid/loss", "min"),
        (Classify(), [0] * 200, "valid/accuracy", "max"),
        (Classify(level="token"), [NODES], "valid/accuracy", "max"),
        (Classify(level="token"), [NODES[:200]], "valid/loss", "min"),
        (Classify(main="AUROC"), [0] * 199, "valid/auroc", "max"),
        (Regress(), [torch.tensor([0.5])] * 199, "valid/rmse", "min"),
    ],
)
def test_the_loss_stands_for_accuracy_where_the_labels_that_are_known_are_few(
    tmp_path, objective, labels, monitor, mode
):
    objective.fit([0, 1, 1], None)
    task = SimpleNamespace(objective=objective, model=SimpleNamespace(spec=TokenSpec(vocab_size=5)))
    found = best_weights(tmp_path, {"": task}, averages=False, labels=labels)
    assert (found.monitor, found.mode) == (monitor, mode)


def test_the_main_metric_stands_first_in_a_report():
    metrics = {"loss": 1.0, "accuracy": 0.5, "auroc": 0.7}
    assert (
        headline({"metrics": metrics, "objective": "Classify", "main_metric": "accuracy"}).name
        == "accuracy"
    )
