"""The model is embedder, backbone and head in a row; what is not compatible is refused when it is built."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import LSTM, Transformer
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.position.absolute import Learned, NoPosition, Sinusoidal
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.testing import synthetic

DIM = 24
IDS = TokenSpec(vocab_size=11)
GRAPH = TokenSpec(num_features=3, num_axes=0, num_edge_types=2)


def classify():
    objective = Classify()
    objective.fit([0, 1], ["no", "yes"])
    return objective


def test_the_model_is_embedder_backbone_and_head_in_a_row():
    spec, examples = synthetic()["text"]
    batch = TokenBatch.collate(examples)
    model = Model(spec, Transformer(DIM, 1), Masked())
    masked = torch.rand(batch.valid.shape) < 0.5
    embedded = model.embedder(batch, masked)
    assert_close(model(batch, masked), model.head(model.backbone(embedded), batch.valid))
    assert (model(batch, masked) - model(batch)).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("spec", "backbone", "encoding"),
    [
        (IDS, lambda: Transformer(DIM, 1), Sinusoidal),
        (IDS, lambda: Transformer(DIM, 1, position=Rotary()), NoPosition),
        (IDS, lambda: LSTM(DIM), NoPosition),
        (TokenSpec(num_features=3, num_axes=2), lambda: LSTM(DIM), Sinusoidal),
        (GRAPH, lambda: Transformer(DIM, 1), NoPosition),
    ],
)
def test_positions_are_added_where_the_backbone_does_not_use_them(spec, backbone, encoding):
    assert type(Model(spec, backbone(), Masked()).embedder.position) is encoding


def test_another_positional_encoding_can_be_passed_in():
    model = Model(IDS, LSTM(DIM), Masked(), position=lambda dim, num_axes: Learned(dim, num_axes, sizes=[7]))
    assert isinstance(model.embedder.position, Learned)


@pytest.mark.parametrize(
    ("spec", "backbone", "objective", "message"),
    [
        (
            IDS,
            lambda: LSTM(DIM),
            NextToken,
            r"NextToken needs a causal backbone, and this LSTM is not; build it with causal=True",
        ),
        (
            IDS,
            lambda: LSTM(DIM, causal=True),
            Masked,
            "Masked needs a bidirectional backbone, and this LSTM is not; build it with causal=False",
        ),
        (
            GRAPH,
            lambda: LSTM(DIM),
            Masked,
            r"LSTM does not support adjacency \(these tokens have 2 edge types\); use Transformer, or set .*=ignore",
        ),
        (
            GRAPH,
            lambda: Transformer(DIM, 1, causal=True),
            NextToken,
            "NextToken needs an order from left to right, which the nodes",
        ),
        (
            TokenSpec(num_features=3, num_axes=2),
            lambda: Transformer(DIM, 1, position=Rotary()),
            Masked,
            "a head_dim of 3 has no channel pair for each of 2 axes",
        ),
        (IDS, lambda: LSTM(DIM), Classify, "Classify does not know its classes yet"),
        (IDS, lambda: LSTM(DIM), Regress, "Regress does not know its targets yet"),
        (TokenSpec(num_features=3), lambda: LSTM(DIM, causal=True), NextToken, "these tokens are vectors"),
    ],
)
def test_what_is_not_compatible_is_refused_with_what_to_change(spec, backbone, objective, message):
    with pytest.raises(ValueError, match=message):
        Model(spec, backbone(), objective())


def test_adjacency_is_ignored_only_where_that_is_set():
    spec, examples = synthetic()["graph"]
    batch = TokenBatch.collate(examples)
    model = Model(spec, LSTM(DIM), classify(), adjacency="ignore")
    assert model.ignores_adjacency
    assert model.spec.num_edge_types == 0
    assert model(batch).shape == (2, 2)
    torch.manual_seed(0)
    ignoring = Model(spec, Transformer(DIM, 1), classify(), adjacency="ignore")
    torch.manual_seed(0)
    using = Model(spec, Transformer(DIM, 1), classify())
    assert ignoring.embedder.edge_bias is None
    assert using.embedder.edge_bias.shape == (3, 8)
    assert (ignoring(batch) - using(batch)).abs().max() > 1e-5


def test_shared_weights_count_once_and_frozen_ones_not_at_all():
    untied = Model(IDS, LSTM(DIM, causal=True), NextToken(bias=False))
    tied = Model(IDS, LSTM(DIM, causal=True), NextToken(tied=True))
    assert untied.num_parameters - tied.num_parameters == 11 * DIM
    lstm = sum(p.numel() for p in nn.LSTM(DIM, DIM, 2).parameters())
    assert tied.num_parameters == 11 * DIM + lstm
    tied.embedder.requires_grad_(False)
    assert tied.num_parameters == lstm
