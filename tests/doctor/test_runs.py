"""What is wrong with a run is read from its files and its weights."""

from types import SimpleNamespace

import pytest
import torch

from seqkit.doctor.runs import check_curve, check_trained_weights

FALLING = [2.0 * 0.98**i + 0.01 * (i % 3) for i in range(60)]


def with_curve(folder, losses):
    rows = [f"{10 * i},,{loss}" for i, loss in enumerate(losses)]
    rows.insert(5, "45,0.7,")  # a validation between
    (folder / "metrics.csv").write_text("step,valid/loss,train/loss\n" + "\n".join(rows) + "\n")
    return SimpleNamespace(run=folder, trained=None)


def test_a_curve_that_falls_is_healthy(tmp_path):
    result = check_curve(with_curve(tmp_path, FALLING))
    assert result.finding is None
    assert "591 steps" in result.measured


@pytest.mark.parametrize(
    ("loss", "problem"), [(8.0, "jumps in 1 places, first in step 400"), ("nan", "in step 400")]
)
def test_a_curve_that_jumps_or_ends_in_nan_is_found(tmp_path, loss, problem):
    finding = check_curve(with_curve(tmp_path, [*FALLING[:40], loss, *FALLING[41:]])).finding
    assert problem in finding.problem
    assert "--optimizer.lr" in finding.fix


def test_a_run_without_a_curve_is_not_judged(tmp_path):
    assert not check_curve(SimpleNamespace(run=tmp_path)).applies


def test_a_run_that_did_not_end_has_no_weights(tmp_path):
    assert not check_trained_weights(SimpleNamespace(run=tmp_path, trained=None)).applies


def test_trained_weights_are_finite(subject):
    made = subject("mechanism/tasks")
    made.trained = SimpleNamespace(model=made.model)
    assert check_trained_weights(made).finding is None
    with torch.no_grad():
        made.model.backbone.blocks[1].attention.qkv_proj.weight[0, 0] = torch.nan
    assert "blocks.1.attention.qkv_proj.weight" in check_trained_weights(made).finding.problem
