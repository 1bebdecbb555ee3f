"""Strong baselines: n-grams against counting by hand, and every kind of example learns a rule that features show."""

import itertools
import math
import time
from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from seqkit.classical.images import Images
from seqkit.classical.member import NodeMember
from seqkit.classical.method import Method, folds, metrics_of
from seqkit.classical.methods import ESTIMATORS
from seqkit.classical.nodes import node_features
from seqkit.classical.strong_baseline import strong_baseline
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
    return with_metrics(data)


def outputs(result, data):
    """Predictions of a method for the test split."""
    return result.member.predict([sample.raw for sample in data.splits().test])


def with_metrics(data):
    """The baseline as a mapping, with its metrics on the test split."""
    result = strong_baseline(data)
    if result is None or result.member is None:
        return result and result._asdict()
    objective, made = data.objective, outputs(result, data)
    target = torch.stack(
        [torch.as_tensor(objective.encode_target(x.label)) for x in data.splits().test]
    )
    if isinstance(result.member, NodeMember):
        target = target[0]
    return result._asdict() | {"metrics": metrics_of(objective, made, target)}


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
    result = with_metrics(data)
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
    "images": (lambda i: noise(1, 8, 8) * 0.2 + 0.7 * (i % 2), lambda: Patches(4), "on pixels"),
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
        "cells",
    ),
    "series": (
        lambda i: (torch.arange(30 + i % 5) * (0.2 + i % 2) + i).sin().tolist(),
        Series,
        "on ",
    ),
    "ids": (lambda i: [i % 2, *range(2, 2 + i % 5)], lambda: Ids(7), "statistics of the tokens"),
}


DEAR = {"molecules", "images", "sounds", "series", "rows", "ids"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in DEAR)) for kind in KINDS]
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


@pytest.mark.slow
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
    result = found(samples, Series(2), Regress(forecast=True))
    assert result["name"] in [f"the value from {p} steps before" for p in (12, 24)]
    assert result["metrics"]["rmse"] == pytest.approx(0, abs=1e-6)


def windows(values, length, ahead, every=1):
    """Windows of a series in the order of time, each with the values that follow it."""
    starts = range(0, len(values) - length - ahead + 1, every)
    return [
        Sample(values[i : i + length].tolist(), values[i + length : i + length + ahead].tolist())
        for i in starts
    ]


def forecast(samples, columns=1):
    """The baseline of windows, of which the last third is test."""
    cut = 2 * len(samples) // 3
    data = DataModule(Given(samples[:cut], samples[cut:]), Series(columns), Regress(forecast=True))
    data.setup()
    return with_metrics(data)


@pytest.mark.slow
def test_numbers_that_are_a_line_through_a_series_are_found_by_ridge_regression():
    draw = torch.Generator().manual_seed(0)
    series = [torch.randn(20, generator=draw) for _ in range(150)]
    samples = [Sample(x.tolist(), (x[3] - 2 * x[11])[None].tolist()) for x in series]
    result = found(samples, Series(), Regress())
    assert result["name"] == "ridge regression on values"
    assert result["metrics"]["rmse"] < 0.05


def test_a_forecast_of_a_random_walk_stands_beside_its_last_value():
    walk = torch.randn(300, generator=torch.Generator().manual_seed(0)).cumsum(0)
    samples = windows(walk, 20, 2)
    result = forecast(samples)
    error = [[b - raw[-1] for b in label] for raw, label, *_ in samples[2 * len(samples) // 3 :]]
    last = np.sqrt(np.mean(np.square(error)))
    assert result["metrics"]["rmse"] <= 1.03 * last
    if result["name"] == "the last value":
        assert result["metrics"]["rmse"] == pytest.approx(last, rel=1e-4)


def test_a_trend_goes_on_by_ridge_regression_on_differences():
    """The test goes on far above training, where the differences are as before."""
    draw = torch.Generator().manual_seed(0)
    steps = torch.arange(240.0)
    rising = 0.5 * steps + 3 * (steps / 3).sin() + 0.1 * torch.randn(240, generator=draw)
    result = forecast(windows(rising, 24, 3))
    assert result["name"].startswith("ridge regression")
    assert result["metrics"]["rmse"] < 0.5  # the last value: 2.1


def test_a_forecast_reads_the_column_that_leads_another():
    draw = torch.Generator().manual_seed(0)
    leads = torch.randn(300, generator=draw)
    both = torch.stack([leads, leads.roll(1)], dim=1)
    samples = [Sample(both[i : i + 12].tolist(), [float(both[i + 12, 1])]) for i in range(1, 280)]
    result = forecast(samples, columns=2)
    assert "of all columns" in result["name"]
    assert result["metrics"]["rmse"] < 0.05


def test_a_forecast_is_chosen_by_the_latest_windows():
    """In training the value of four steps before comes again, in validation and test the last one."""
    draw = torch.Generator().manual_seed(0)
    old, new, test = ([torch.randn(16, generator=draw) for _ in range(n)] for n in (20, 60, 10))
    early = [Sample(x.tolist(), [float(x[-4])]) for x in old]
    late, tested = ([Sample(x.tolist(), [float(x[-1])]) for x in part] for part in (new, test))
    data = DataModule(Given(early, tested, late), Series(), Regress(forecast=True))
    data.setup()
    assert strong_baseline(data).name == "the last value"


def bump(i):
    """A wave somewhere in noise, fast or slow: the class shows in no single step and hardly in a statistic."""
    series = 0.3 * torch.randn(60 + i % 7, generator=torch.Generator().manual_seed(i))
    start = 5 + 7 * i % 30
    wave = (torch.arange(16) * (0.8 if i % 2 else 1.6)).sin()
    series[start : start + 16] += wave
    return series.tolist()


@pytest.mark.slow
def test_a_pattern_anywhere_in_a_series_is_found_by_random_convolution_kernels():
    result = found([Sample(bump(i), i % 2) for i in range(180)], Series(), Classify())
    assert result["name"] == "a ridge classifier on random convolution kernels"
    assert result["metrics"]["accuracy"] > 0.9
    two = [Sample([[x, 0.5] for x in bump(i)], i % 2) for i in range(180)]
    assert found(two, Series(2), Classify())["metrics"]["accuracy"] > 0.85


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
    found = strong_baseline(data)
    assert (found.num_train, found.metrics) == (
        5,
        pytest.approx({"word_f1": 2 / 3, "sequence_error": 1 / 3}),
    )
    constant, _ = baseline(data.objective, data.objective.target_spec, data)
    assert (constant["word_f1"], constant["sequence_error"]) == (0, 1)  # close


@pytest.mark.slow
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
    texts = [Sample("a good thing" if y else "a bad thing", int(y)) for y in label]
    result = found(texts, Characters(), Classify(metrics=names))
    assert expected == set(result["metrics"]) - {"loss"}
    assert result["metrics"]["loss"] < 0.1, "a factor makes logits of the scores of an SVM"


@pytest.mark.slow
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
    assert "on cells" in result["name"]
    assert result["metrics"]["auroc"] > 0.9
    assert result["metrics"]["accuracy"] > 0.85
    texts = [
        Sample(f"{'good' if i % 2 else 'bad'} thing {i}", [float(i % 2), float(i % 3 == 0)])
        for i in range(48)
    ]
    assert "TF-IDF" in found(texts, Words(), MultiLabel())["name"]


@pytest.mark.slow
def test_rows_of_several_parts_have_features_of_each():
    """The class is a number, a word, a molecule, an image or a sound; ids have no features in a row."""
    parts = {
        "cells": Cells(), "text": Words(), "smiles": Molecule(), "image": Patches(4),
        "sound": LogMel(8000, num_mels=40), "series": Series(), "ids": Ids(5),
    }  # fmt: skip
    raws = {
        "cells": lambda i: {"x": float(i % 2)},
        "text": lambda i: ["a good thing", "a bad thing"][i % 2],
        "smiles": lambda i: "C" * (2 + i % 5) + ("O" if i % 2 else "Cl"),
        "image": lambda i: noise(1, 8, 8) * 0.2 + 0.7 * (i % 2),
        "sound": tone,
        "series": lambda i: (torch.arange(30) * (0.2 + i % 2) + i).sin().tolist(),
        "ids": lambda i: [i % 2],
    }
    for name in [name for name in parts if name != "ids"]:
        samples = [Sample({name: raws[name](i), "ids": [i % 2]}, i % 2) for i in range(48)]
        # a part may be missing, also one of a test row
        samples += [Sample({"ids": [1]}, 1), Sample({"ids": [0]}, 0)]
        result = found(samples, Join({name: parts[name], "ids": Ids(5)}), Classify())
        assert result["metrics"]["accuracy"] >= 0.9, name
    samples = [Sample({"ids": [i % 2], "own": [0]}, i % 2) for i in range(48)]
    assert found(samples, Join({"ids": Ids(5), "own": Ids(5)}), Classify()) is None


@pytest.mark.slow
def test_no_more_than_the_stated_number_of_training_examples_is_used(monkeypatch):
    monkeypatch.setattr("seqkit.classical.strong_baseline.MAX_FITTED", 20)
    samples = [Sample({"x": float(i % 2)}, i % 2) for i in range(90)]
    assert found(samples, Cells(), Classify())["num_train"] == 20


def tried(samples, tokenizer, objective, monkeypatch):
    """Names of the methods that were fitted to choose the best."""
    names = []
    fit = Method.fit

    def named(self, rows, target):
        names.append(self.name)
        return fit(self, rows, target)

    monkeypatch.setattr(Method, "fit", named)
    found(samples, tokenizer, objective)
    return list(dict.fromkeys(names))


def test_no_clock_decides_which_methods_are_tried(monkeypatch):
    """On a machine on which each glance at a clock takes a day."""
    draw = np.random.default_rng(0)
    samples = [Sample({"x": x, "y": draw.normal()}, float(x)) for x in draw.normal(size=60)]
    for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time"):
        ticks = itertools.count(0.0, 86_400.0)
        monkeypatch.setattr(time, name, lambda ticks=ticks: next(ticks))
    names = tried(samples, Cells(), Regress(), monkeypatch)
    kinds = ["ridge regression", "a random forest", "an RBF-SVM (C 10)", "gradient boosting"]
    assert names == [f"{kind} on cells" for kind in kinds]


def test_of_too_many_numbers_the_cheaper_methods_are_tried(monkeypatch):
    draw = np.random.default_rng(0)
    samples = [Sample({"x": x, "y": draw.normal()}, float(x)) for x in draw.normal(size=60)]
    monkeypatch.setattr("seqkit.classical.methods.MAX_SIZES", {"linear": 0, "forest": 0, "hard": 0})
    names = tried(samples, Cells(), Regress(), monkeypatch)
    assert names == ["ridge regression on cells", "gradient boosting on cells"]


@pytest.mark.slow
def test_the_method_that_is_best_on_training_rows_is_chosen_whatever_the_test_rows_say():
    """Of the training rows a line gives the number, of the test rows a step; the step is no line."""
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
        names[kind] = strong_baseline(data).name.partition(" on ")[0]
    assert names["line"] == "ridge regression"
    assert names["step"] in ("gradient boosting", "a random forest", "an RBF-SVM (C 10)")


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
    result = with_metrics(data)
    assert result["num_train"] == 100
    assert result["metrics"]["accuracy"] > 0.9


def test_a_node_never_has_its_own_class_among_its_features():
    """Whatever a node's own class, its features are the same; those of its neighbours are not."""
    graph, label = blocks(homophily=True)
    fitted = np.arange(0, 150, 2)
    before = node_features(graph, fitted, label)
    for node in (0, 40, 148):
        changed = label.clone()
        changed[node] = (label[node] + 1) % 3
        after = node_features(graph, fitted, changed)
        assert (before.votes[node] == after.votes[node]).all()
        assert (before.votes != after.votes).any()


def test_classes_of_test_nodes_are_not_read():
    graph, label = blocks(homophily=True)
    fitted = np.arange(0, 150, 2)
    other = label.clone()
    other[1::2] = 0
    before, after = (node_features(graph, fitted, x) for x in (label, other))
    assert (before.votes == after.votes).all()


def test_features_of_a_graph_of_equal_groups_are_the_same_each_time():
    """Of cliques, all eigenvalues but a few are equal."""
    whole = np.ones((4, 4)) - np.eye(4)
    edges = np.argwhere(np.kron(np.eye(50), whole)).T.copy()
    graph = GraphData(torch.zeros(200, 0), torch.from_numpy(edges))
    target = torch.arange(200) % 2
    first, *others = (node_features(graph, np.arange(100), target)[2] for _ in range(3))
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.slow
def test_labels_go_along_a_chain_of_nodes_without_features():
    """Two chains, a few of whose nodes are known: those of the test are up to nine steps away from one."""
    edges = [(i, i + 1) for i in range(199) if i != 99]
    graph = GraphData(torch.zeros(200, 0), torch.tensor(edges).T)
    label = torch.arange(200) // 100
    place = torch.arange(200) % 10
    parts = [label.masked_fill(place != 0, -100), label.masked_fill(place == 0, -100)]
    given = Given(*([Sample(graph, part)] for part in parts))
    data = DataModule(
        given, Graph(num_features=0), Classify(level="token"), selection=Selection(valid_fraction=0)
    )
    data.setup()
    assert with_metrics(data)["metrics"]["accuracy"] > 0.95


def test_a_node_may_be_an_id():
    graph = GraphData(torch.arange(20), torch.stack([torch.arange(19), torch.arange(1, 20)]))
    features = node_features(graph, np.arange(5), torch.arange(20) % 2)
    assert (features.own.toarray()[:, :20] == np.eye(20)).all()


def test_rows_of_one_group_are_held_out_together_and_each_row_once():
    groups = np.arange(60) % 7
    parts = folds(np.arange(60) % 2, Classify(), groups)
    held_out = np.concatenate([aside for _, aside in parts])
    assert sorted(held_out) == list(range(60))
    for rest, aside in parts:
        assert not set(groups[rest]) & set(groups[aside])


@pytest.mark.slow
def test_a_method_that_knows_groups_alone_is_not_chosen():
    """Each group has a number, by which its class is known in training; test groups are others."""
    draw = np.random.default_rng(0)
    samples = []
    for i in range(240):
        group = i % 24
        row = {"number": group * 1.37 % 1.0, "hint": group % 2 + float(draw.normal()) * 0.6}
        samples.append(Sample(row, group % 2, group=str(group)))
    train = [x for x in samples if int(x.group) < 18]
    test = [x for x in samples if int(x.group) >= 18]
    data = DataModule(Given(train, test), Cells(), Classify())
    data.setup()
    assert with_metrics(data)["metrics"]["accuracy"] > 0.6


def test_folds_of_a_forecast_hold_out_later_windows_alone():
    objective = Regress(forecast=True)
    parts = folds(np.zeros(80), objective)
    assert len(parts) == 4
    assert all(rest.max() < aside.min() for rest, aside in parts)
    assert parts[-1][1].max() == 79


@pytest.mark.parametrize(
    "objective",
    [Classify, *(pytest.param(one, marks=pytest.mark.slow) for one in (Regress, MultiLabel))],
)
def test_test_targets_change_no_prediction(objective):
    draw = np.random.default_rng(0)
    rows = [{"x": float(x), "y": float(y)} for x, y in draw.normal(size=(120, 2))]
    label = [float(row["x"] > row["y"]) for row in rows]
    if objective is Classify:
        label = list(map(int, label))
    if objective is MultiLabel:
        label = [[value, 1 - value] for value in label]
    predictions = []
    for order in (range(80, 120), range(119, 79, -1)):
        train = [Sample(rows[i], label[i]) for i in range(80)]
        test = [Sample(rows[i], label[j]) for i, j in zip(range(80, 120), order)]
        data = DataModule(Given(train, test), Cells(), objective())
        data.setup()
        predictions.append(outputs(strong_baseline(data), data))
    torch.testing.assert_close(*predictions, rtol=0, atol=0)


def ring(i):
    """A drawing on a clear ground, a ring or a cross, black or white."""
    image = torch.zeros(4, 40, 44)
    y, x = torch.meshgrid(torch.arange(40) - 20, torch.arange(44) - 20 - i % 3, indexing="ij")
    shape = ((x**2 + y**2).sqrt() - 12).abs() < 2
    if i % 2:
        shape = (x.abs() < 2) | (y.abs() < 2)
    image[3][shape] = 1.0
    image[:3, shape] = float(i // 2 % 2)
    return image


@pytest.mark.slow
def test_what_a_drawing_shows_is_seen_in_its_opacity_where_its_colour_is_that_of_the_ground():
    samples = [Sample(ring(i), i % 2) for i in range(60)]
    tokenizer = Patches(4, resize=(16, 16), channels=4)
    assert found(samples, tokenizer, Classify())["metrics"]["accuracy"] >= 0.9


def test_validation_rows_are_predicted_by_training_rows_alone_in_their_order(monkeypatch):
    """Whatever the labels of validation, one method says the same of its rows; of the test it does not."""
    monkeypatch.setitem(ESTIMATORS, "linear", (None, ("one", LogisticRegression())))
    for key in ("forest", "hard", "boosting"):
        monkeypatch.setitem(ESTIMATORS, key, (None, None))
    draw = np.random.default_rng(0)
    rows = [{"x": float(x), "y": float(y)} for x, y in draw.normal(size=(100, 2))]
    samples = [Sample(row, int(row["x"] > row["y"])) for row in rows]
    train, valid, test = samples[:40], samples[40:70], samples[70:]
    others = [x._replace(label=1 - x.label) for x in valid]
    results = []
    for part in (valid, others, valid[::-1]):
        data = DataModule(Given(train, test, part), Cells(), Classify())
        data.setup()
        results.append(strong_baseline(data))
    one, other, turned = results
    # the scale of logits is chosen by all rows
    assert torch.equal(one.valid.argmax(dim=1), other.valid.argmax(dim=1))
    assert torch.equal(one.valid.argmax(dim=1), turned.valid.argmax(dim=1).flip(0))
    assert not torch.equal(outputs(one, data).argmax(dim=1), outputs(other, data).argmax(dim=1))
    assert (one.valid.argmax(dim=1) == torch.tensor([x.label for x in valid])).float().mean() > 0.9


@pytest.mark.slow
def test_more_validation_rows_than_are_fitted_are_all_predicted(monkeypatch):
    monkeypatch.setattr("seqkit.classical.strong_baseline.MAX_FITTED", 20)
    samples = [Sample({"x": float(i % 2)}, i % 2) for i in range(90)]
    data = DataModule(Given(samples[:30], samples[60:], samples[30:60]), Cells(), Classify())
    data.setup()
    result = strong_baseline(data)
    assert result.num_train == 20
    assert result.valid.argmax(dim=1).tolist() == [i % 2 for i in range(30)]


@pytest.mark.slow
def test_of_nodes_the_classes_of_validation_are_not_read_for_its_predictions():
    graph, label = blocks(homophily=True)
    split = torch.from_numpy(np.random.default_rng(2).permutation(150) // 50)
    found = []
    for valid_label in (label, (label + 1) % 3):
        parts = [label, valid_label, label]
        samples = [
            [Sample(graph, part.masked_fill(split != i, -100))] for i, part in enumerate(parts)
        ]
        data = DataModule(
            Given(samples[0], samples[2], samples[1]),
            Graph(num_features=0),
            Classify(level="token"),
        )
        data.setup()
        found.append(strong_baseline(data))
    right = [(one.valid.argmax(dim=1) == label)[split == 1].float().mean() for one in found]
    assert min(right) > 0.8


def test_an_image_of_another_size_is_resized_to_that_of_training():
    for channels in (1, 3):
        images = Images("pixels").fit([noise(channels, 8, 8) for _ in range(3)])
        assert images.transform([noise(3, 20, 10), noise(1, 8, 8)]).shape == (2, channels * 64)
