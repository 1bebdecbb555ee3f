"""Intervals of a run's metric, and of its difference from other predictions for the same examples."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from seqkit.classical.method import metrics_of
from seqkit.data import DataModule, DataSource, Loading, Sample, Splits
from seqkit.objectives import Classify, Regress
from seqkit.raw import GraphData
from seqkit.report.beside import Scored
from seqkit.tokenizers import Graph, Ids, Series


class Given(DataSource):
    def __init__(self, *parts):
        self.parts = parts

    def splits(self):
        train, valid, test = self.parts
        return Splits(train, test, valid)


def module(train, test, tokenizer, objective, valid=()):
    data = DataModule(Given(train, list(valid), test), tokenizer, objective, Loading(batch_size=4))
    data.setup()
    return data


def scored(data, run, target):
    """As a test run makes it: with the metric that the objective reports."""
    value = metrics_of(data.objective, run, target)[data.objective.primary_metric]
    return Scored(data, run, target, value)


def one_hot(classes):
    return torch.nn.functional.one_hot(classes, 2).float()


def test_predictions_are_paired_with_the_examples_that_they_are_of():
    """Both are right of half of the examples: of the same ones, and then of the other ones."""
    label = torch.arange(200) % 2
    samples = [Sample([1, 2], int(x)) for x in label]
    data = module(samples, samples, Ids(7), Classify())
    is_right = torch.arange(200) < 100
    some = one_hot(torch.where(is_right, label, 1 - label))
    others = one_hot(torch.where(is_right, 1 - label, label))
    middle, low, high = scored(data, some, label).difference(some)
    assert (middle, low < 0 < high, high < 0.03) == (0, True, True)
    middle, low, high = scored(data, some, label).difference(others)
    assert (middle, high > 0.1) == (0, True)
    middle, low, _ = scored(data, one_hot(label), label).difference(some)
    assert middle == pytest.approx(0.5)
    assert low > 0.4


def test_of_a_graph_the_test_nodes_are_compared():
    draw, label = np.random.default_rng(1), torch.arange(90) % 3
    edges = torch.from_numpy(np.argwhere(np.triu(draw.random((90, 90)) < 0.1, 1)).T.copy())
    split = torch.from_numpy(draw.permutation(90) // 30)
    train, valid, test = ([Sample(GraphData(torch.zeros(90, 0), edges), label.masked_fill(split != i, -100))]
                          for i in range(3))  # fmt: skip
    data = module(train, test, Graph(num_features=0), Classify(level="token"), valid)
    right = torch.nn.functional.one_hot(label, 3).float()
    constant = torch.tensor([1.0, 0, 0]).expand(90, 3)
    share = float((label[split == 2] == 0).float().mean())
    middle, low, _ = scored(data, right, test[0].label).difference(constant)
    assert middle == pytest.approx(1 - share, abs=1e-6)
    assert low > 0


def test_an_error_is_compared_in_the_unit_of_the_target():
    target = torch.linspace(-3, 3, 50)[:, None]
    samples = [Sample([1, 2], float(x)) for x in target]
    data = module(samples, samples, Ids(7), Regress())
    right = target / data.objective.std[0]
    middle, _, high = scored(data, right, target).difference(right + 1)
    assert middle == pytest.approx(-data.objective.std[0], rel=1e-4)
    assert high < 0


def test_a_metric_that_is_no_mean_has_no_interval():
    samples = [Sample([1, 2], i % 2) for i in range(40)]
    data = module(samples, samples, Ids(7), Classify(main="AUROC"))
    label = torch.arange(40) % 2
    one = scored(data, one_hot(label), label)
    assert one.interval() is None
    assert one.difference(one_hot(1 - label)) is None


def of_sequences(targets, objective, group=None):
    samples = [Sample([1, 2], x, group=group and group(i)) for i, x in enumerate(targets)]
    return module(samples, samples, Ids(7), objective)


def shares_that_hold(found, right):
    return np.mean([low <= right <= high for low, high in found])


def test_the_interval_of_an_accuracy_holds_the_true_one():
    """Over draws of 30 examples some 95 % of intervals hold the true share; they are about Clopper and Pearson's."""
    label = torch.arange(30) % 2
    data = of_sequences(label.tolist(), Classify())
    found = {}
    for k in range(31):
        answers = torch.where(torch.arange(30) < k, label, 1 - label)
        found[k] = scored(data, one_hot(answers), label).interval()
        right = stats.binomtest(k, 30).proportion_ci()
        assert found[k] == pytest.approx((right.low, right.high), abs=0.005)
    drawn = np.random.default_rng(0).binomial(30, 0.8, 2000)
    assert 0.94 <= shares_that_hold([found[k] for k in drawn], 0.8) <= 0.99


@pytest.mark.slow
def test_the_interval_of_an_error_holds_the_true_one_and_no_error_below_zero():
    draw = torch.Generator().manual_seed(0)
    target = torch.randn(100, 1, generator=draw)
    data = of_sequences([float(x) for x in target], Regress())
    unit = data.objective.std[0]
    found = [
        scored(data, target + torch.randn(100, 1, generator=draw), target).interval()
        for _ in range(200)
    ]
    assert 0.9 <= shares_that_hold(found, unit) <= 0.99
    few = of_sequences([1.0, 2.0, 3.0], Regress())
    target = torch.tensor([[1.0], [2.0], [3.0]])
    low, high = scored(few, target + torch.tensor([[0.0], [0.0], [9.0]]), target).interval()
    assert low == 0 < high


def test_answers_of_a_group_count_as_one():
    """Ten speakers have ten answers each, and five are always understood."""
    label = torch.arange(100) % 2
    answers = torch.where(torch.arange(100) < 50, label, 1 - label)
    narrow, wide = (
        scored(of_sequences(label.tolist(), Classify(), group), one_hot(answers), label).interval()
        for group in (None, lambda i: str(i // 10))
    )
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


def test_windows_that_overlap_count_as_few():
    """Errors of ten windows in turn are alike; of the intervals some 95 % hold the true error, and alone few would."""
    draw = torch.Generator().manual_seed(0)
    series = torch.randn(330, generator=draw)
    windows = [
        Sample(series[i : i + 20].tolist(), series[i + 20 : i + 22].tolist()) for i in range(300)
    ]
    data = module(windows, windows, Series(), Regress(forecast=True))
    target = torch.tensor([sample.label for sample in windows])
    std = torch.tensor(data.objective.std)
    right = (target - torch.tensor(data.objective.centred_mean)) / std
    found = []
    alone = []
    for _ in range(100):
        error = torch.randn(30, 1, generator=draw).repeat_interleave(10, dim=0)
        one = scored(data, right + error / std, target)
        found.append(one.interval())
        one.run = replace(one.run, groups=None)
        alone.append(one.interval())
    assert 0.88 <= shares_that_hold(found, 1.0) <= 1
    assert shares_that_hold(alone, 1.0) < 0.6


class ByBatch(Classify):
    """Its loss is of a batch, as of contrastive learning."""

    separable = False


def test_a_metric_that_means_another_thing_has_no_interval():
    label = torch.arange(40) % 2
    data = of_sequences(label.tolist(), Classify())
    answers = one_hot(torch.where(torch.arange(40) < 30, label, 1 - label))
    assert Scored(data, answers, label, 0.75).interval() is not None
    for one in (
        Scored(data, answers, label, 0.9),
        Scored(of_sequences(label.tolist(), ByBatch()), answers, label, 0.75),
    ):
        assert one.interval() is None
        assert one.difference(answers) is None
