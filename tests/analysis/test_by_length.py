"""Random examples of any length have positions and labels like the data's; what a model refuses is left out."""

from functools import partial

import pytest
import torch
from candidates import DIM, VOCAB, batch_of, candidate

from seqkit.analysis.by_length import synthetic_batch
from seqkit.analysis.speed import measure
from seqkit.analysis.training_step import Candidate
from seqkit.backbones import GRU, Transformer
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.position.absolute import Learned
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.training.optim import AdamW


@pytest.mark.parametrize(
    ("objective", "label"),
    [
        (Classify(), torch.tensor([1, 0])),
        (Classify(level="token"), torch.randint(2, (2, 7))),
        (Regress(), torch.tensor([[0.5], [1.5]])),
        (Masked(), None),
    ],
)
def test_labels_are_fitted_to_every_length(objective, label):
    if isinstance(objective, Classify):
        objective.fit([0, 1], None)
    if isinstance(objective, Regress):
        objective.fit([0.5, 1.5], None)
    cost = measure(
        {"one": candidate(GRU(DIM, 1), objective, [(batch_of(7, 5), label)])}, seconds=1e-6, lengths=(3, 11)
    )["one"]
    assert [n for n, _ in cost.seconds_by_length] == [3, 11]
    assert cost.latency_by_context is None, "it is not causal"


def test_a_length_that_the_model_refuses_is_left_out():
    objective = NextToken(tied=False)
    backbone = Transformer(DIM, 1, num_heads=2, causal=True)
    model = Model(TokenSpec(vocab_size=VOCAB), backbone, objective, position=partial(Learned, sizes=[13]))
    one = Candidate(model, objective, AdamW(1e-3), [(batch_of(7), None)])
    cost = measure({"one": one}, seconds=1e-6, lengths=(5, 23))["one"]
    assert [n for n, _ in cost.seconds_by_length] == [n for n, _ in cost.latency_by_context] == [5]


def test_graphs_have_no_lengths(sample_graphs):
    spec, batch = sample_graphs
    objective = Regress()
    objective.fit([0.5, 1.5, 2.5], None)
    model = Model(spec, Transformer(DIM, 1, num_heads=2), objective)
    one = Candidate(model, objective, AdamW(1e-3), [(batch, torch.tensor([[0.5], [1.5], [2.5]]))])
    cost = measure({"one": one}, seconds=1e-6, lengths=(5,))["one"]
    assert (cost.seconds_by_length, cost.memory_by_length, cost.latency_by_context) == (None, None, None)
    with pytest.raises(ValueError, match="random tokens have no edges"):
        synthetic_batch(spec, 5)


@pytest.fixture
def sample_graphs():
    from conftest import SAMPLES

    tokenizer, tokens = SAMPLES["Graph"]().encoded()
    return tokenizer.spec, TokenBatch.collate(tokens)


@pytest.mark.parametrize("num_axes", [0, 1, 2, 3])
def test_synthetic_positions_are_distinct_and_near(num_axes):
    spec = TokenSpec(num_features=5, num_axes=num_axes)
    batch = synthetic_batch(spec, 23)
    assert batch.content.shape == (1, 23, 5)
    assert batch.positions.shape == (1, 23, num_axes)
    if num_axes:
        assert len(batch.positions[0].unique(dim=0)) == 23
        assert float(batch.positions.max()) == {1: 22, 2: 4, 3: 2}[num_axes]
        assert batch.positions[0, 0].tolist() == [0] * num_axes
