"""Strong baselines: n-grams against counting by hand, and every kind of example learns a rule that features show."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from seqkit.analysis.strong_baseline import _of_nodes, strong_baseline
from seqkit.data import DataModule, DataSource, Sample, Selection, Splits
from seqkit.objectives import Classify, Masked, MultiLabel, NextToken, Regress, Seq2Seq
from seqkit.raw import GraphData, Waveform
from seqkit.runs.evaluate import baseline
from seqkit.tokenizers import (
    Cells,
    Characters,
    Graph,
    Ids,
    Join,
    LogMel,
    Molecule,
    Patches,
    Series,
    Words,
)
from seqkit.tokenizers.video import Tubelets

pytest.importorskip("sklearn")


class Given(DataSource):
    def __init__(self, train, test, valid=None):
        self.train, self.test, self.valid = train, test, valid

    def splits(self):
        return Splits(self.train, self.test, self.valid)


def found(samples, tokenizer, objective):
    """The baseline of samples, of which every third is test, and a tenth of the others validation."""
    data = DataModule(
        Given([x for i, x in enumerate(samples) if i % 3], samples[::3]), tokenizer, objective
    )
    data.setup()
    return strong_baseline(data)[0]


def witten_bell(train, test, order, size):
    """Mean loss of every token but the first, with dictionaries."""
    counts = [Counter() for _ in range(order + 1)]
    for ids in train:
        for n in range(1, order + 1):
            counts[n].update(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1))

    def probability(context, token):
        if context is None:
            return 1 / size
        n = len(context) + 1
        shorter = probability(context[1:] if context else None, token)
        following = {gram: c for gram, c in counts[n].items() if gram[:-1] == context}
        total, kinds = sum(following.values()), len(following)
        return (
            shorter
            if total == 0
            else (following.get((*context, token), 0) + kinds * shorter) / (total + kinds)
        )

    ends = [(ids, i) for ids in test for i in range(1, len(ids))]
    losses = [
        -math.log(probability(tuple(ids[max(0, i - order + 1) : i]), ids[i])) for ids, i in ends
    ]
    return sum(losses) / len(losses)


def test_n_grams_are_those_of_witten_and_bell():
    """Two documents each, so that no n-gram goes over an end; `z` occurs in the test text alone."""
    texts = ["abracadabra abacus", "banana bandana cabana"], ["abba bazaar", "cadaver"]
    source = Given(*([Sample(text) for text in each] for each in (*texts, texts[1])))
    data = DataModule(source, Characters(), NextToken(), selection=Selection(window=4))
    data.setup()
    result, _ = strong_baseline(data)
    train, test = (
        [data.tokenizer.encode(text).content.tolist() for text in each] for each in texts
    )
    expected = witten_bell(train, test, 6, data.tokenizer.spec.vocab_size)
    assert result["name"] == "6-grams (Witten–Bell)"
    assert result["num_train"] == sum(map(len, train))
    assert result["metrics"]["loss"] == pytest.approx(expected)


GENERATOR = torch.Generator().manual_seed(0)


def noise(*shape):
    return torch.rand(*shape, generator=GENERATOR)


def tone(i):
    time = torch.arange(1600) / 8000
    return Waveform(torch.sin(2 * math.pi * (400 + 800 * (i % 2)) * time)[None] * 0.5, 8000)


KINDS = {
    "texts": (lambda i: f"{'good' if i % 2 else 'bad'} thing number {i}", Characters, "TF-IDF"),
    "images": (lambda i: noise(1, 8, 8) * 0.2 + 0.7 * (i % 2), lambda: Patches(4), "pixels"),
    "videos": (
        lambda i: torch.stack(
            [noise(1, 8, 8) * 0.2 + 0.2 * t for t in range(4)][:: 1 - 2 * (i % 2)]
        ),
        lambda: Tubelets((2, 4, 4), frames=4),
        "a frame and frame differences",
    ),
    "sounds": (tone, lambda: LogMel(8000, num_mels=40), "MFCC"),
    "molecules": (lambda i: "C" * (2 + i % 5) + ("O" if i % 2 else "Cl"), Molecule, "RDKit"),
    "rows": (
        lambda i: (
            {"size": i % 7 + 9.0 * (i % 2), "kind": "ab"[i % 3 // 2]} if i % 8 else {"kind": "b"}
        ),
        Cells,
        "numbers and categories",
    ),
    "ids": (lambda i: [i % 2, *range(2, 2 + i % 5)], lambda: Ids(7), "statistics of the tokens"),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "molecules")) for kind in KINDS]
)
def test_each_kind_of_example_has_features_by_which_a_plain_rule_is_learned(kind):
    make, tokenizer, name = KINDS[kind]
    samples = [Sample(make(i), i % 2) for i in range(48)]
    result = found(samples, tokenizer(), Classify())
    assert name in result["name"]
    assert result["metrics"]["accuracy"] >= 0.9
    assert result["num_train"] == 32
    numbers = found(
        [Sample(raw, 10.0 + 5 * label) for raw, label, *_ in samples], tokenizer(), Regress()
    )
    assert numbers["metrics"]["rmse"] < 1.5  # of the mean: 2.5


def test_images_of_many_sizes_and_channels_are_brought_to_one():
    """The class is which half is bright, which no mean of an image shows."""
    samples = []
    for i in range(48):
        image = noise(1 + 2 * (i % 3 == 0), 8 + 4 * (i % 4), 8 + 4 * (i % 5)) * 0.2
        top, bottom = image.chunk(2, dim=1)
        (top if i % 2 else bottom).add_(0.7)
        samples.append(Sample(image, i % 2))
    tokenizer = Patches(4, resize=(16, 16), channels=3)
    assert found(samples, tokenizer, Classify())["metrics"]["accuracy"] >= 0.9


def test_what_no_specialist_is_known_for_has_none():
    samples = [Sample("abcabc"), Sample("cab"), Sample("bca")]
    assert found(samples, Characters(), Masked()) is None
    tags = [Sample(noise(3, 2), torch.tensor([0, 1, 1])) for _ in range(6)]
    assert found(tags, Series(2), Classify(level="token")) is None


def test_a_forecast_stands_beside_the_value_that_repeats():
    """Column 2 of two repeats after 12 steps; the targets are its next 15 values, so the first three come again."""
    draw = torch.Generator().manual_seed(0)
    wave = torch.randn(12, generator=draw).repeat(20)
    both = torch.stack([torch.randn(240, generator=draw), wave], dim=1)
    starts = range(0, 190, 5)
    samples = [Sample(both[i : i + 24].tolist(), both[i + 24 : i + 39, 1].tolist()) for i in starts]
    result = found(samples, Series(2), Regress())
    assert result["name"] in [f"the value from {p} steps before" for p in (12, 24)]
    assert result["metrics"]["rmse"] == pytest.approx(0, abs=1e-6)


def test_a_forecast_that_is_a_line_through_the_values_is_found_by_ridge_regression():
    draw = torch.Generator().manual_seed(0)
    series = [torch.randn(20, generator=draw) for _ in range(150)]
    samples = [Sample(x.tolist(), (x[3] - 2 * x[11])[None].tolist()) for x in series]
    result = found(samples, Series(), Regress())
    assert result["name"] == "ridge regression on all values"
    assert result["metrics"]["rmse"] < 0.05


def test_a_forecast_of_a_random_walk_stands_beside_its_last_value():
    walk = torch.randn(400, generator=torch.Generator().manual_seed(0)).cumsum(0)
    samples = [
        Sample(walk[i : i + 20].tolist(), walk[i + 20 : i + 22].tolist()) for i in range(0, 370, 3)
    ]
    result = found(samples, Series(), Regress())
    assert result["name"] == "the last value"
    error = [[b - raw[-1] for b in label] for raw, label, *_ in samples[::3]]
    assert result["metrics"]["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(error))), rel=1e-5)


def test_a_forecast_is_chosen_by_the_latest_windows():
    """In training the value of four steps before comes again, in validation and test the last one."""
    draw = torch.Generator().manual_seed(0)
    old, new, test = ([torch.randn(16, generator=draw) for _ in range(n)] for n in (40, 20, 10))
    early = [Sample(x.tolist(), [float(x[-4])]) for x in old]
    late, tested = ([Sample(x.tolist(), [float(x[-1])]) for x in part] for part in (new, test))
    data = DataModule(Given(early, tested, late), Series(), Regress())
    data.setup()
    assert strong_baseline(data)[0]["name"] == "the last value"


def test_beside_a_text_stands_the_target_of_the_nearest_training_text_and_the_most_frequent_one():
    texts = {
        "read a file": "read",
        "write a file": "write",
        "close it": "close",
        "close it again": "close",
    }
    known = [Sample(text, target) for text, target in texts.items()]
    test = [
        Sample("reads this file", "read"),
        Sample("rewrite files", "write"),
        Sample("closes them", "open"),
    ]
    data = DataModule(Given(known, test, known[:1]), Words(), Seq2Seq(Words(), metrics=["WordF1"]))
    data.setup()
    found, _ = strong_baseline(data)
    assert (found["num_train"], found["metrics"]) == (
        5,
        pytest.approx({"word_f1": 2 / 3, "sequence_error": 1 / 3}),
    )
    constant, _ = baseline(data.objective, data.objective.target_spec, data)
    assert (constant["word_f1"], constant["sequence_error"]) == (0, 1)  # close


def test_every_named_metric_is_that_of_the_method():
    """A noisy rule with twice as many no as yes; gradient boosting has probabilities."""
    draw = np.random.default_rng(0)
    size = draw.normal(size=240)
    label = (size + draw.normal(size=240) > 0.7).astype(int)
    rows = [
        Sample({"size": float(x), "other": float(draw.normal())}, int(y))
        for x, y in zip(size, label)
    ]
    names = [
        "AUROC",
        "AveragePrecision",
        "CalibrationError",
        "BrierScore",
        "MacroF1",
        "Precision",
        "Recall",
    ]
    metrics = found(rows, Cells(), Classify(metrics=names))["metrics"]
    expected = {"accuracy", "auroc", "average_precision", "calibration_error", "brier", "macro_f1", "precision",
                "recall"}  # fmt: skip
    assert expected == set(metrics) - {"loss"}
    assert 0.6 < metrics["auroc"] < 1
    bright = torch.tensor([[0.0], [0.15]]).repeat_interleave(4, dim=0)  # one half of an image
    images = [
        Sample(0.8 * noise(1, 8, 8) + (bright.flip(0) if y else bright), int(y)) for y in label
    ]
    result = found(images, Patches(4), Classify(metrics=names))
    assert "an RBF-SVM (C 1" in result["name"]
    assert set(result["metrics"]) == {"accuracy", "macro_f1", "precision", "recall"}, (
        "an SVM has no probabilities"
    )


def test_each_of_several_labels_has_a_classifier():
    """The first label follows a line through the numbers; half of its values are unknown. The last is always no."""
    draw = np.random.default_rng(0)
    samples = []
    for i in range(150):
        x, y = draw.normal(size=2)
        line = float(x + y + 0.3 * draw.normal() > 0)
        samples.append(
            Sample({"x": float(x), "y": float(y)}, [math.nan if i % 2 else line, float(x > 0), 0.0])
        )
    result = found(samples, Cells(), MultiLabel())
    assert "numbers and categories" in result["name"]
    assert result["metrics"]["auroc"] > 0.9
    assert result["metrics"]["accuracy"] > 0.85
    texts = [
        Sample(f"{'good' if i % 2 else 'bad'} thing {i}", [float(i % 2), float(i % 3 == 0)])
        for i in range(48)
    ]
    assert "TF-IDF" in found(texts, Words(), MultiLabel())["name"]


def test_rows_of_several_parts_have_their_cells_and_words():
    """The class is a number, one of two words, or both; parts without cells and words have no method."""
    parts = {"cells": Cells(), "text": Words(), "ids": Ids(5)}
    raws = {
        "cells": [{"x": 0.0}, {"x": 1.0}],
        "text": ["a good thing", "a bad thing"],
        "ids": [[0], [1]],
    }
    for names in (["cells", "ids"], ["text", "ids"], ["cells", "text"]):
        samples = [Sample({name: raws[name][i % 2] for name in names}, i % 2) for i in range(48)]
        result = found(samples, Join({name: parts[name] for name in names}), Classify())
        assert result["metrics"]["accuracy"] == 1, names
    samples = [Sample({"ids": raws["ids"][i % 2], "own": raws["ids"][0]}, i % 2) for i in range(48)]
    assert found(samples, Join({"ids": Ids(5), "own": Ids(5)}), Classify()) is None


def test_no_more_than_the_stated_number_of_training_examples_is_used(monkeypatch):
    monkeypatch.setattr("seqkit.analysis.strong_baseline.MAX_FITTED", 20)
    samples = [Sample({"x": float(i % 2)}, i % 2) for i in range(90)]
    assert found(samples, Cells(), Classify())["num_train"] == 20


def test_the_method_that_is_best_on_training_rows_is_chosen_whatever_the_test_rows_say():
    """Of the training rows a line gives the number, of the test rows a step; the step needs boosting."""
    draw = np.random.default_rng(0).normal(size=(300, 2))
    rows = [({"x": float(x), "y": float(y)}, float(2 * x + y)) for x, y in draw]
    names = {}
    for kind in ("line", "step"):
        train = [
            Sample(row, value if kind == "line" else float(value > 0)) for row, value in rows[:200]
        ]
        test = [
            Sample(row, float(value > 0) if kind == "line" else value) for row, value in rows[200:]
        ]
        data = DataModule(Given(train, test), Cells(), Regress())
        data.setup()
        names[kind] = strong_baseline(data)[0]["name"].partition(" on ")[0]
    assert names == {"line": "ridge regression", "step": "gradient boosting"}


def blocks(homophily):
    """A graph of three classes; most edges join nodes of one class, or (without homophily) of two."""
    draw, label = np.random.default_rng(1), np.arange(150) % 3
    near = (label[:, None] == label[None]) == homophily
    edges = np.argwhere(np.triu(draw.random((150, 150)) < np.where(near, 0.12, 0.01), 1)).T
    return GraphData(torch.zeros(150, 0), torch.from_numpy(edges)), torch.from_numpy(label)


@pytest.mark.parametrize("homophily", [True, False])
def test_classes_of_nodes_are_learned_from_neighbours_alike_or_not(homophily):
    graph, label = blocks(homophily)
    split = torch.from_numpy(np.random.default_rng(2).permutation(150) // 50)
    parts = [[Sample(graph, label.masked_fill(split != i, -100))] for i in range(3)]
    data = DataModule(Given(*parts), Graph(num_features=0), Classify(level="token"))
    data.setup()
    result, _ = strong_baseline(data)
    assert result["num_train"] == 100
    assert result["metrics"]["accuracy"] > 0.9


def test_a_class_of_its_own_never_reaches_a_node_over_its_neighbours():
    """Labels of noise on a path: with a node's own class among its features, training would be all right."""
    n = 300
    graph = GraphData(torch.zeros(n, 0), torch.stack([torch.arange(n - 1), torch.arange(1, n)]))
    target = torch.randint(2, (n,), generator=torch.Generator().manual_seed(0))
    fitted = np.arange(0, n, 3)  # no two are one or two steps apart
    votes = _of_nodes(graph, fitted, target)[:, :-8].toarray()[fitted]
    assert (votes == 0).all()


def test_a_node_may_be_an_id():
    graph = GraphData(torch.arange(20), torch.stack([torch.arange(19), torch.arange(1, 20)]))
    ids = _of_nodes(graph, np.arange(5), torch.arange(20) % 2).toarray()[:, :20]
    assert (ids == np.eye(20)).all()
