"""Predictions beside their targets: of many, a sample is drawn, which the page says."""

import re
from types import SimpleNamespace

import pytest
import torch

from seqkit.interfaces import LossOutput
from seqkit.objectives import Regress
from seqkit.report.samples import targets as room
from seqkit.report.samples.targets import MAX_DOTS, of_number


@pytest.mark.parametrize(("m", "expected"), [
    (MAX_DOTS, "Each dot is one of 2,000 test targets."),
    (MAX_DOTS + 500, "The dots are 2,000 of 2,500 test targets, drawn by lot."),
])  # fmt: skip
def test_of_many_targets_a_sample_is_drawn(m, expected, monkeypatch):
    drawn = []
    draw = room.scatter
    monkeypatch.setattr(
        room,
        "scatter",
        lambda *given, **others: drawn.append((given, others)) or draw(*given, **others),
    )
    preds = torch.arange(m, dtype=torch.float32)
    output = LossOutput(
        torch.zeros(()), torch.tensor(m), preds=preds, target=preds + 3, prediction=preds[:, None]
    )
    objective = Regress(level="token")
    objective.fit([[0.0, 1.0]], None)
    picker = SimpleNamespace(
        outputs=lambda: [(range(m), preds[:, None], output)], largest=lambda *_: []
    )
    (section,) = of_number(objective, picker)
    assert section.note.startswith(expected)
    ((target, found), others) = drawn[0]
    assert len(set(found.tolist())) == MAX_DOTS
    assert (target - found == 3).all()
    assert others["rmse"] == pytest.approx(3)
    assert len(re.findall("<use", section.figures[0])) >= MAX_DOTS
    assert len(section.figures[0]) < 400_000
