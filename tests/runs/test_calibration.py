"""A temperature after training: confidence becomes the share of right answers, and the answers stay."""

import pytest
import torch
from torch.testing import assert_close

from seqkit.config import complete
from seqkit.runs.calibration import RANGE, best_temperature
from seqkit.runs.evaluate import evaluate
from seqkit.runs.run import run
from seqkit.runs.trained_model import load_one


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_of_drawn_labels_is_found(temperature):
    torch.manual_seed(0)
    logits = 2 * torch.randn(20_000, 3, dtype=torch.float64)
    labels = (logits / temperature).softmax(dim=1).multinomial(1)[:, 0]
    assert best_temperature(logits, labels) == pytest.approx(temperature, rel=0.05)


def test_where_all_answers_are_right_the_confidence_is_below_one():
    """The smoothed loss of m right answers is least at a confidence of about 1 - 1 / (m + 2)."""
    labels = torch.arange(50) % 2
    logits = torch.nn.functional.one_hot(labels, 2).double()
    confidence = (logits / best_temperature(logits, labels)).softmax(dim=1).amax(dim=1)
    assert_close(confidence, torch.full_like(confidence, 1 - 1 / 52 / 2), atol=1e-4, rtol=0)


@pytest.mark.slow
def test_a_run_has_the_temperature_in_its_weights_and_answers_as_without(tmp_path, monkeypatch):
    config = complete(
        "image/digits",
        "debug",
        {"data.limit": 240, "trainer.max_epochs": 2, "data.valid_fraction": 0.3},
    )
    summary = run(config, tmp_path / "a")
    monkeypatch.setattr("seqkit.runs.calibration.FEWEST", 10_000)
    plain = run(config, tmp_path / "b")
    temperature = summary["temperature"]
    assert "temperature" not in plain
    assert RANGE[0] < temperature < RANGE[1]
    assert abs(temperature - 1) > 0.01
    assert summary["metrics"]["accuracy"] == plain["metrics"]["accuracy"]
    ours, theirs = (load_one(tmp_path / name).model.state_dict() for name in "ab")
    for name, weight in theirs.items():
        assert_close(
            ours[name], weight / temperature if "head" in name else weight, atol=1e-4, rtol=1e-3
        )
    assert evaluate(tmp_path / "a", "valid")["loss"] < evaluate(tmp_path / "b", "valid")["loss"]
