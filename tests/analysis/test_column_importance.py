"""A model that reads one column alone is worse by the permutation of that column, and of no other."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from seqkit.analysis.column_importance import column_importance
from seqkit.data import DataModule, Table
from seqkit.data.sources.table import Division
from seqkit.data.tables.schema import Given
from seqkit.interfaces import LossOutput
from seqkit.objectives import Classify, MultiLabel, Regress
from seqkit.tokenizers import Bytes, Cells, Join

KINDS = {"note": "text", "tells": "number", "city": "category", "row": "unused"}


class Reads:
    """Stands in for a predictor: what the number in the column `tells` says; nothing where it is not there."""

    def __init__(self, place):
        self.place = place

    def step(self, objective, batch):
        tokens, _ = batch
        found = torch.zeros(len(tokens))
        for i in range(len(tokens)):
            for name, run in tokens.example(i).alone():
                for content, features in zip(run.content, run.features) if name == "cells" else ():
                    if content[0] == self.place:
                        found[i] = features[0]
        if isinstance(objective, Classify):
            prediction = torch.stack([-found, found], dim=1)
            return LossOutput(torch.zeros(()), torch.tensor(len(found)), prediction=prediction)
        return LossOutput(torch.zeros(()), torch.tensor(len(found)), prediction=found[:, None])


def looked_at(kind, num_rows, tmp_path, offset=0):
    """A run with its data. Its target is the sign of the column `tells`, or that number; another column has gaps."""
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
    config = {"data": {"source": {"type": "Table", "columns": KINDS}}, "tokenizer": {"type": "Join"}}
    predictor = Reads(tokenizer.parts["cells"].columns.index("tells"))
    trained = SimpleNamespace(tokenizer=tokenizer, objective=objective, config=config, predictor=predictor)
    return trained, data


@pytest.mark.parametrize("kind", ["classes", pytest.param("numbers", marks=pytest.mark.slow)])
def test_the_column_that_tells_is_found_and_no_other(kind, tmp_path):
    trained, data = looked_at(kind, 200, tmp_path)
    found = column_importance(trained, data)
    assert next(iter(found.columns)) == "tells"
    assert set(found.columns) == {"tells", "note", "city"}
    assert found.num_examples == 80
    worse = found.columns["tells"]
    if isinstance(trained.objective, Classify):
        sign = 2.0 * torch.tensor([sample.label for sample in data.splits().test]) - 1
        told = torch.tensor([sample.raw["cells"]["tells"] for sample in data.splits().test])
        losses = softplus(-2 * sign[:, None] * told)  # of each row with each cell; in training numbers are standardised
        assert found.metric == pytest.approx(losses.diagonal().mean().item(), rel=0.05)
        assert worse == pytest.approx((losses.mean() - losses.diagonal().mean()).item(), rel=0.15)
    else:
        assert found.metric == pytest.approx(0, abs=1e-3)
        spread = np.std([sample.label for sample in data.splits().test])
        assert worse == pytest.approx(2**0.5 * spread, rel=0.1), "two independent numbers differ by that"
    assert found.columns["note"] == found.columns["city"] == pytest.approx(0)
    assert column_importance(trained, data) == found, "seeded"


def test_the_errors_of_targets_far_from_zero_are_in_their_own_unit(tmp_path):
    trained, data = looked_at("numbers", 40, tmp_path, offset=2**40)
    found = column_importance(trained, data)
    assert found.metric < 0.5, "the root of the mean squared error, and the spread is 1"
    assert next(iter(found.columns)) == "tells"


def test_other_runs_have_none(tmp_path):
    trained, data = looked_at("numbers", 40, tmp_path)
    trained.objective = MultiLabel()
    assert column_importance(trained, data) is None
