"""The difference between a run and other predictions: of the same examples, with an interval that holds."""

import numpy as np
import pytest
import torch

from seqkit.data import DataModule, DataSource, Loading, Sample, Splits
from seqkit.objectives import Classify, Regress
from seqkit.raw import GraphData
from seqkit.report.beside import difference
from seqkit.tokenizers import Graph, Ids


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
    middle, low, high = difference(data, some, some, label)
    assert (middle, low < 0 < high, high < 0.03) == (0, True, True)
    middle, low, high = difference(data, some, others, label)
    assert (middle, high > 0.1) == (0, True)
    middle, low, _ = difference(data, one_hot(label), some, label)
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
    middle, low, _ = difference(data, right, constant, test[0].label)
    assert middle == pytest.approx(1 - share, abs=1e-6)
    assert low > 0


def test_an_error_is_compared_in_the_unit_of_the_target():
    target = torch.linspace(-3, 3, 50)[:, None]
    samples = [Sample([1, 2], float(x)) for x in target]
    data = module(samples, samples, Ids(7), Regress())
    right = target / data.objective.std[0]
    middle, _, high = difference(data, right, right + 1, target)
    assert middle == pytest.approx(-data.objective.std[0], rel=1e-4)
    assert high < 0


def test_a_metric_that_is_no_mean_has_no_interval():
    samples = [Sample([1, 2], i % 2) for i in range(40)]
    data = module(samples, samples, Ids(7), Classify(main="AUROC"))
    label = torch.arange(40) % 2
    assert difference(data, one_hot(label), one_hot(1 - label), label) is None
