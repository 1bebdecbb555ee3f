"""A model that reads one column alone is worse by the permutation of that column, and of no other."""

import json

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from seqkit.data import DataModule, Table
from seqkit.data.sources.table import Division
from seqkit.data.tables.schema import Given
from seqkit.interfaces import LossOutput
from seqkit.objectives import Classify, MultiLabel, Regress
from seqkit.report import importance as room
from seqkit.report.figures import MAX_TICKS, EvenTicks
from seqkit.report.importance import importance
from seqkit.report.samples.picker import Picker
from seqkit.tokenizers import Bytes, Cells, Join

KINDS = {"note": "text", "tells": "number", "city": "category", "row": "unused"}


class Reads:
    """Stands in for a run: it reads the number in the column `tells`, and nothing where that is not there."""

    def __init__(self, tokenizer, objective):
        self.tokenizer = tokenizer
        self.objective = objective
        self.encode = tokenizer.encode
        self.place = tokenizer.parts["cells"].columns.index("tells")

    def step(self, batch, raws):
        tokens, _ = batch
        assert len(tokens) == len(raws)
        found = torch.zeros(len(tokens))
        for i in range(len(tokens)):
            for name, run in tokens.example(i).alone():
                for content, features in zip(run.content, run.features) if name == "cells" else ():
                    if content[0] == self.place:
                        found[i] = features[0]
        prediction = found[:, None]
        if isinstance(self.objective, Classify):
            prediction = torch.stack([-found, found], dim=1)
        return LossOutput(torch.zeros(()), torch.tensor(len(found)), prediction=prediction)


def looked_at(kind, num_rows, tmp_path, monkeypatch, offset=0):
    """The bars of a run. Its target is the sign of the column `tells`, or that number; another column has gaps."""
    numbers = np.random.default_rng(1).normal(size=num_rows).round(3).tolist()
    rows = [
        {
            "note": f"words {i}", "tells": x, "city": ["Rome", "Oslo", None][i % 3], "row": i,
            "y": ["no", "yes"][x > 0] if kind == "classes" else offset + x,
        }
        for i, x in enumerate(numbers)
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    tokenizer = Join({"note": Bytes(), "cells": Cells()})
    objective = Classify() if kind == "classes" else Regress()
    columns = Given(target="y", target_kind=kind, columns=KINDS)
    source = Table(str(tmp_path / "rows.jsonl"), columns, Division(test_fraction=0.4))
    data = DataModule(source, tokenizer, objective)
    data.setup()
    drawn = []
    bars = room._bars
    monkeypatch.setattr(
        room, "_bars", lambda found, label: drawn.append(found) or bars(found, label)
    )
    picker = Picker(Reads(tokenizer, objective), data)
    (section,) = importance(picker)
    return {name: bounds for name, *bounds in drawn[0]}, section, picker


@pytest.mark.parametrize("kind", ["classes", pytest.param("numbers", marks=pytest.mark.slow)])
def test_the_column_that_tells_is_found_and_no_other(kind, tmp_path, monkeypatch):
    found, section, picker = looked_at(kind, 200, tmp_path, monkeypatch)
    assert next(iter(found)) == "tells"
    assert set(found) == {"tells", "note", "city"}
    assert "5 permutations of 80 test examples" in section.note
    rise, low, high = found["tells"]
    assert 0 < low < rise < high
    samples = picker.data.splits().test
    if kind == "classes":
        sign = 2.0 * torch.tensor([sample.label for sample in samples]) - 1
        told = torch.tensor([sample.raw["cells"]["tells"] for sample in samples])
        losses = softplus(-2 * sign[:, None] * told)  # of each row with each cell
        assert rise == pytest.approx((losses.mean() - losses.diagonal().mean()).item(), rel=0.25)
    else:
        spread = np.std([sample.label for sample in samples])
        assert rise == pytest.approx(2**0.5 * spread, rel=0.1), (
            "two independent numbers differ by that"
        )
    for name in ("note", "city"):
        assert found[name] == pytest.approx([0, 0, 0])


def test_the_errors_of_targets_far_from_zero_are_in_their_own_unit(tmp_path, monkeypatch):
    found, _, _ = looked_at("numbers", 40, tmp_path, monkeypatch, offset=2**40)
    assert next(iter(found)) == "tells"
    assert 0.5 < found["tells"][0] < 3


def test_the_axis_of_small_rises_has_few_ticks():
    axes = room._bars([("a", 3.1e-5, 0.0, 5e-5), ("b", -2.1e-4, -3e-4, 0.0)], "rise").axes[0]
    assert len(axes.get_xticks()) <= MAX_TICKS + 2  # with those beyond its ends
    assert isinstance(axes.xaxis.get_major_formatter(), EvenTicks)


def test_other_runs_have_none(tmp_path, monkeypatch):
    _, _, picker = looked_at("numbers", 40, tmp_path, monkeypatch)
    picker.trained.objective = MultiLabel()
    assert importance(picker) == []
    picker.trained.objective = Regress(level="token")
    assert importance(picker) == []


def test_a_row_keeps_its_last_value_and_gaps_are_permuted_too():
    raws = [{"cells": {"a": 1}}, {"note": "x"}, {"cells": {"a": 2, "b": 3}, "note": "y"}]
    for seed in range(5):
        found = room._permuted(raws, ("cells", "a"), seed)
        assert all(found)
        assert [one.get("note") for one in found] == [None, "x", "y"]
        assert found[2]["cells"]["b"] == 3
        assert sorted(one["cells"]["a"] for one in found if "a" in one.get("cells", {})) in (
            [1, 2],
            [1, 1, 2],
        )
    assert raws == [{"cells": {"a": 1}}, {"note": "x"}, {"cells": {"a": 2, "b": 3}, "note": "y"}]
