"""The metric by which a classifier's best weights are chosen."""

from pathlib import Path

import pytest

import seqkit
from seqkit.objectives.classify import _REPORTED, Classify
from seqkit.objectives.metrics import of_classes
from seqkit.report.headline import headline
from seqkit.training.resume import best_weights


@pytest.mark.parametrize("name", [name for name in _REPORTED if name != "Loss"])
def test_each_is_reported_by_that_name_and_more_is_better(name):
    ((key, metric),) = of_classes([name], 2).items()
    assert (key, metric.higher_is_better) == (_REPORTED[name], True)
    assert name in Classify(metrics=[], main=name).chosen_metrics


@pytest.mark.parametrize(("main", "monitor", "mode"), [("AUROC", "valid/auroc", "max"), ("Loss", "valid/loss", "min")])
def test_it_is_monitored_for_the_best_weights_and_stands_first(tmp_path, main, monitor, mode):
    changes = {"model.objective.main": main, "trainer.max_steps": 3}
    run = seqkit.fit("image/digits", changes, preset="debug", out=tmp_path / "run", strong_baseline=False)
    assert headline(run.summary).name == monitor.removeprefix("valid/")
    task = type("Task", (), {"objective": run.objective, "model": run.model})
    found = best_weights(Path(tmp_path), {"": task}, averages=False)
    assert (found.monitor, found.mode) == (monitor, mode)


def test_the_accuracy_stands_first_otherwise():
    assert headline({"metrics": {"loss": 1.0, "accuracy": 0.5}, "objective": "Classify"}).name == "accuracy"
    assert Classify().primary_metric == "accuracy"
