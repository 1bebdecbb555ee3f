"""The difference between a run and a classical method: of the same examples, with an interval that holds."""

import numpy as np
import pytest
import torch

from seqkit.data import DataModule, DataSource, Loading, Sample, Splits
from seqkit.objectives import Classify
from seqkit.raw import GraphData
from seqkit.report.beside import beside
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


def test_predictions_are_paired_with_the_examples_that_they_are_of():
    """Examples differ in length, so the test loader has another order; the model is right of every third example."""
    draw = np.random.default_rng(0)
    rows = [[int(x) for x in draw.integers(0, 7, 1 + 5 * i % 17)] for i in range(200)]
    samples = [Sample(row, int(draw.random() < (0.8 if 3 in row else 0.2))) for row in rows]
    test = [sample._replace(raw=[*sample.raw, i % 3]) for i, sample in enumerate(samples[100:])]
    data = module(samples[:100], test, Ids(7), Classify())

    def tested(rule):
        for batch, label in data.test_dataloader():
            last = batch.content[torch.arange(len(label)), batch.valid.sum(1) - 1]
            yield (
                torch.nn.functional.one_hot(torch.where(rule(last), label, 1 - label), 2).float(),
                label,
            )

    same, other = (
        beside(data, list(tested(rule)))
        for rule in (lambda last: last == 0, lambda last: last >= 0)
    )
    rival = same["metrics"]["accuracy"]
    share = sum(i % 3 == 0 for i in range(100)) / 100
    assert same["difference"][0] == pytest.approx(share - rival, abs=1e-6)
    assert other["difference"][0] == pytest.approx(1 - rival, abs=1e-6)
    assert other["difference"][1] > 0, "a model that is always right is better"


def test_of_a_graph_the_test_nodes_are_compared():
    """The model answers class 0 for every node, so its accuracy is the share of class 0 among the test nodes."""
    draw, label = np.random.default_rng(1), torch.arange(90) % 3
    edges = torch.from_numpy(np.argwhere(np.triu(draw.random((90, 90)) < 0.1, 1)).T.copy())
    split = torch.from_numpy(draw.permutation(90) // 30)
    train, valid, test = ([Sample(GraphData(torch.zeros(90, 0), edges), label.masked_fill(split != i, -100))]
                          for i in range(3))  # fmt: skip
    data = module(train, test, Graph(num_features=0), Classify(level="token"), valid)
    found = beside(data, [(torch.tensor([1.0, 0, 0]).expand(1, 90, 3), test[0].label[None])])
    share = float((label[split == 2] == 0).float().mean())
    assert found["difference"][0] == pytest.approx(share - found["metrics"]["accuracy"], abs=1e-6)
