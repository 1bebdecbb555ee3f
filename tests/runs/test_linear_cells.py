"""A linear model of a table's cells is averaged with the network, by a share that validation rows choose."""

import csv
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from runs.stopping import Kick, differences, with_callback
from sklearn.linear_model import LogisticRegression, Ridge
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.comparison.candidates import draft_of
from seqkit.comparison.settings import Settings
from seqkit.config import complete
from seqkit.errors import Interrupted
from seqkit.export.graph import export
from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.objectives import Classify, Regress
from seqkit.objectives.linear_cells import LinearCells
from seqkit.runs.linear_model import PENALTIES, fitted
from seqkit.runs.run import resume_run, run
from seqkit.runs.trained_model import load_one
from seqkit.tokenizers import Bytes, Cells, Join

ROWS = [
    {"size": 1.0, "kind": "a"},
    {"size": 4.0, "kind": "b"},
    {"size": 2.0, "kind": "a"},
    {"size": None, "kind": "b"},
]


def cells(num_bins=2):
    made = Cells(min_count=1, num_bins=num_bins)
    made.fit(ROWS)
    return made


def table(folder, *, classes, num_rows=120):
    """A sum of two numbers and a category, with gaps and dates, as a file; its text column says nothing."""
    draw = random.Random(3)
    path = folder / f"table-{classes}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "kind", "day", "note", "y"])
        for i in range(num_rows):
            a, b, kind = draw.gauss(0, 1), draw.gauss(0, 30), draw.choice("uvw")
            y = a - b / 30 + (kind == "u") + draw.gauss(0, 0.2)
            note = " ".join(draw.choice(["red", "green", "blue", "fast", "slow"]) for _ in range(6))
            cell = "" if i % 9 == 4 else f"{a:.4f}"
            writer.writerow([cell, f"{b:.4f}", kind, f"2024-0{1 + i % 9}-11", note, "hi" * (y > 0) or "lo"] if classes
                            else [cell, f"{b:.4f}", kind, f"2024-0{1 + i % 9}-11", note, f"{y:.4f}"])  # fmt: skip
    return path


def settings(path, *, classes, **words):
    keys = {
        "data": str(path),
        "data.target": "y",
        "trainer.enable_progress_bar": False,
        "data.valid_fraction": 0.3,
    }
    keys |= {} if classes else {"model.objective": "Regress"}
    keys |= {"data.limit": None, "model.backbone.dim": 16, "model.backbone.num_heads": 2}
    return complete("multimodal/table", "debug", keys | words)


def batch_of(tokenizer, raws):
    return TokenBatch.collate([tokenizer.encode(raw) for raw in raws])


def test_inputs_are_numbers_bins_and_words_of_each_row():
    tokenizer = cells()
    made = LinearCells(tokenizer.spec, None, 1)
    found = made.inputs(
        batch_of(tokenizer, [{"size": 4.0, "kind": "b"}, {"size": None, "kind": "new"}])
    )
    numbers, columns, words = found[:, :3], found[:, 3:5], found[:, 5:9]
    assert_close(numbers[0], torch.tensor([(4 - 7 / 3) / (14 / 9) ** 0.5, 1.0, 1.0]))
    assert not numbers[1].any()
    assert columns.tolist() == [[1, 1], [1, 0]]  # kind, size
    assert words.tolist() == [[1, 0, 0, 1], [0, 1, 0, 0]]  # of a number, unknown, a, b
    assert found[:, 9].tolist() == [1, 1]
    assert made.is_bin().nonzero()[:, 0].tolist() == [1, 2]


def test_inputs_are_the_same_padded_alone_and_beside_a_text():
    tokenizer = cells()
    joined = Join({"cells": tokenizer, "text": Bytes()})
    alone, beside = (
        LinearCells(one.spec, part, 1) for one, part in ((tokenizer, None), (joined, "cells"))
    )
    expected = torch.cat([alone.inputs(batch_of(tokenizer, [row])) for row in ROWS])
    assert_close(alone.inputs(batch_of(tokenizer, ROWS)), expected)
    texts = [{"cells": row, "text": "x" * i or None} for i, row in enumerate(ROWS)]
    assert_close(beside.inputs(batch_of(joined, texts)), expected)
    assert beside.inputs(batch_of(joined, [{"text": "x"}])).tolist() == [[0.0] * 9 + [1.0]]


def test_a_number_far_outside_counts_as_three_standard_deviations():
    tokenizer = cells(num_bins=0)
    made = LinearCells(tokenizer.spec, None, 1)
    assert made.inputs(batch_of(tokenizer, [{"size": 1e9, "kind": "a"}]))[0, 0] == 3


@pytest.mark.parametrize("weights", [None, "balanced", [1.0, 15.0, 15.0]])
def test_class_weights_reach_the_linear_model(weights):
    """Recall of two rare classes, each 4 % of 800 rows, beside scikit-learn's with the same weights."""
    random = np.random.default_rng(1)
    y = random.choice(3, 800, p=[0.92, 0.04, 0.04])
    centres = np.array([[0.0, 0.0], [1.6, 0.0], [0.0, 1.6]])
    x = (centres[y] + random.normal(size=(800, 2))).clip(-3, 3)
    tokenizer = Cells(num_bins=0)
    tokenizer.fit([{"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 1.0}])
    objective = Classify(class_weights=weights)
    objective.fit(y.tolist(), ["usual", "low", "high"])
    model = LinearCells(tokenizer.spec, None, 3)
    inputs = torch.tensor(np.c_[x, np.zeros((800, len(model.weight) - 3)), np.ones(800)]).float()
    weight = fitted(inputs, torch.tensor(y), model, objective)
    by_class = weights if weights in (None, "balanced") else dict(enumerate(weights))
    right = LogisticRegression(class_weight=by_class).fit(x, y).predict(x)
    found = (inputs @ weight).argmax(dim=1).numpy()
    for label in (1, 2):
        ours, theirs = (float((one[y == label] == label).mean()) for one in (found, right))
        assert ours == pytest.approx(theirs, abs=0.1)
        assert (ours > 0.5) == (weights is not None)


@pytest.mark.slow
def test_a_run_with_class_weights_is_not_chosen_by_the_accuracy(tmp_path):
    path = tmp_path / "rare.csv"
    draw = random.Random(2)
    labels = ["rare" if i % 12 == 5 else "usual" for i in range(800)]
    rows = [
        f"{draw.gauss(1.5 * (one == 'rare'), 1):.3f},{draw.gauss(0, 1):.3f},{one}" for one in labels
    ]
    path.write_text("\n".join(["a,b,y", *rows]))
    words = {
        "model.objective.class_weights": "balanced",
        "trainer.max_epochs": 8,
        "trainer.max_steps": -1,
    }
    run(settings(path, classes=True, **words), tmp_path / "run")
    trained = load_one(tmp_path / "run")
    assert trained.summary.main_metric == "balanced_accuracy"
    found = trained.predict([{"cells": {"a": 1.5, "b": 0.0}}, {"cells": {"a": 2.5, "b": 0.0}}])
    assert found == ["rare", "rare"]


@pytest.mark.parametrize("classes", [False, True])
def test_the_linear_model_is_that_of_scikit_learn(classes, monkeypatch):
    monkeypatch.setattr("seqkit.runs.linear_model.PENALTIES", (2.0,))
    random = np.random.default_rng(0)
    x = np.hstack([random.normal(size=(90, 4)), np.ones((90, 1))]).astype(np.float32)
    y = x[:, 0] - x[:, 1] + random.normal(size=90)
    tokenizer = Cells(num_bins=0)
    # 2 numbers, 2 columns, 2 words: 6 inputs and a 1
    tokenizer.fit([{"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 1.0}])
    objective = Classify() if classes else Regress()
    objective.fit([0, 1] if classes else [-1.0, 1.0], ["lo", "hi"] if classes else None)
    target = torch.tensor(y > 0).long() if classes else torch.tensor(y)[:, None].float()
    made = LinearCells(tokenizer.spec, None, objective.num_outputs)
    made.weight = made.weight[:5]
    weight = fitted(torch.tensor(x), target, made, objective)
    if classes:  # two columns of weights share the penalty
        witness = LogisticRegression(C=1 / 2.0, max_iter=1000, tol=1e-8).fit(x[:, :4], y > 0)
        assert_close(
            weight[:4, 1] - weight[:4, 0],
            torch.tensor(witness.coef_[0]).float(),
            atol=2e-3,
            rtol=2e-2,
        )
    else:
        witness = Ridge(2.0).fit(x[:, :4], y)
        assert_close(weight[:4, 0], torch.tensor(witness.coef_).float(), atol=1e-3, rtol=1e-3)
        assert float(weight[4]) == pytest.approx(witness.intercept_, abs=1e-3)


def test_bins_are_used_where_the_loss_is_lower_with_them():
    random = np.random.default_rng(1)
    values = random.uniform(-2, 2, size=200)
    tokenizer = Cells()
    tokenizer.fit([{"a": value} for value in values])
    objective = Regress()
    objective.fit([-1.0, 1.0], None)
    made = LinearCells(tokenizer.spec, None, 1)
    x = made.inputs(batch_of(tokenizer, [{"a": value} for value in values]))
    for y, are_used in ((values, False), (np.abs(values), True)):
        target = torch.tensor(y + 0.3 * random.normal(size=200))[:, None].float()
        weight = fitted(x, target, made, objective)
        assert bool(weight[made.is_bin()].any()) == are_used
    assert min(PENALTIES) > 0


@pytest.mark.parametrize("classes", [False, True])
def test_a_run_on_few_rows_of_a_sum_is_better_with_the_linear_model(tmp_path, classes):
    path = table(tmp_path, classes=classes)
    summary = run(settings(path, classes=classes), tmp_path / "run")
    assert 0 < summary["network_share"] < 0.5
    trained = load_one(tmp_path / "run")
    shares = trained.model.shortcut.shares
    share, temperature = summary["network_share"], summary.get("temperature", 1.0)
    assert_close(shares, torch.tensor([share, 1 - share]) / temperature, atol=1e-3, rtol=1e-3)
    row = {"cells": {"a": 1.5, "b": -60.0, "kind": "u", "day": None}, "note": "red"}
    unseen = {"cells": {"a": None, "b": 1e9, "kind": "never seen"}}
    cells = [{key: one for key, one in x["cells"].items() if key in trained.tokenizer.parts["cells"].columns}
             for x in (row, unseen)]  # fmt: skip
    found = trained.predict([{"cells": one} for one in cells])
    if classes:
        assert summary["metrics"]["accuracy"] > 0.8
        assert found[0] == "hi"
    else:
        assert summary["metrics"]["r2"] > 0.7
        assert found[0] > 2
        assert np.isfinite(found[1])


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_with_the_same_linear_model(tmp_path):
    config = settings(
        table(tmp_path, classes=True),
        classes=True,
        **{"trainer.max_epochs": 2, "trainer.min_steps": None},
    )
    run(config, tmp_path / "whole")
    with with_callback(Kick(4)), pytest.raises(Interrupted):
        run(config, tmp_path / "stopped")
    resume_run(tmp_path / "stopped", {})
    assert load_one(tmp_path / "whole").model.shortcut.weight.any()
    assert not differences(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.slow
def test_the_network_trains_alone_and_the_sum_is_exported(tmp_path):
    tokenizer, objective = cells(), Regress(linear=True)
    objective.fit([1.0, 2.0], None)
    objective.read_from(tokenizer)
    model = Model(tokenizer.spec, Transformer(12, 1, num_heads=2), objective)
    batch = batch_of(tokenizer, ROWS)
    before = model.eval()(batch)
    torch.nn.init.normal_(model.shortcut.weight)
    model.shortcut.shares.copy_(torch.tensor([0.25, 0.75]))
    assert_close(
        model(batch), 0.25 * before + 0.75 * model.shortcut.inputs(batch) @ model.shortcut.weight
    )
    assert_close(model.train()(batch), before)
    assert export(model, tmp_path / "model.pt2", "torch", {}) < 1e-4


def test_without_cells_or_where_it_is_not_asked_for_there_is_no_linear_model():
    for objective, tokenizer in ((Regress(linear=True), Bytes()), (Regress(), cells())):
        objective.read_from(tokenizer)
        assert objective.shortcut() is None
    with pytest.raises(ValueError, match="level=token"):
        Classify(level="token", linear=True)


def test_a_comparison_is_of_networks_alone(tmp_path):
    path = table(tmp_path, classes=True)
    words = ["--data", str(path), "--data.target", "y"]
    settings = Settings(
        recipe="multimodal/table", backbones=["Transformer", "GRU"], overrides=words
    )
    for variant in settings.variants():
        assert not draft_of(settings, variant).config["model"]["objective"]["linear"]
    asked = replace(settings, overrides=[*words, "--model.objective.linear", "true"])
    assert draft_of(asked, asked.variants()[0]).config["model"]["objective"]["linear"]
