"""The model is embedder, backbone and head in a row; what does not fit is refused when it is built."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import LSTM, Transformer
from seqkit.conformance import made_up
from seqkit.contract import TokenBatch, TokenSpec
from seqkit.layers.position import Learned, NoPosition, Rotary, Sinusoidal
from seqkit.model import Model
from seqkit.objectives import Classify, Masked, NextToken, Regress

DIM = 24
IDS = TokenSpec(vocab_size=11)
GRAPH = TokenSpec(num_features=3, num_axes=0, num_links=2)


def classify():
    objective = Classify()
    objective.fit([0, 1], ["no", "yes"])
    return objective


def test_the_model_is_embedder_backbone_and_head_in_a_row():
    spec, examples = made_up()["text"]
    batch = TokenBatch.collate(examples)
    model = Model(spec, Transformer(DIM, 1), Masked())
    hide = torch.rand(batch.valid.shape) < 0.5
    embedded = model.embedder(batch, hide)
    assert_close(model(batch, hide), model.head(model.backbone(embedded), batch.valid))
    assert (model(batch, hide) - model(batch)).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("spec", "backbone", "added"),
    [
        (IDS, lambda: Transformer(DIM, 1), Sinusoidal),
        (IDS, lambda: Transformer(DIM, 1, position=Rotary()), NoPosition),
        (IDS, lambda: LSTM(DIM), NoPosition),
        (TokenSpec(num_features=3, num_axes=2), lambda: LSTM(DIM), Sinusoidal),
        (GRAPH, lambda: Transformer(DIM, 1), NoPosition),
    ],
)
def test_positions_are_added_where_the_backbone_would_not_see_them(spec, backbone, added):
    assert type(Model(spec, backbone(), Masked()).embedder.position) is added


def test_another_position_can_be_asked_for():
    model = Model(IDS, LSTM(DIM), Masked(), position=lambda dim, num_axes: Learned(dim, num_axes, sizes=[7]))
    assert isinstance(model.embedder.position, Learned)


@pytest.mark.parametrize(
    ("spec", "backbone", "objective", "message"),
    [
        (IDS, lambda: LSTM(DIM), NextToken, r"NextToken does not fit this LSTM, which reads later tokens.*causal=True"),
        (IDS, lambda: LSTM(DIM, causal=True), Masked, "Masked .* cannot read what follows a token; .*causal=False"),
        (
            GRAPH,
            lambda: LSTM(DIM),
            Masked,
            r"LSTM cannot honour who reads whom .*links of 2 kinds.*Transformer.*ignore",
        ),
        (GRAPH, lambda: Transformer(DIM, 1, causal=True), NextToken, "NextToken goes from left to right, and linked"),
        (
            TokenSpec(num_features=3, num_axes=2),
            lambda: Transformer(DIM, 1, position=Rotary()),
            Masked,
            "heads of 3 channels hold no pair for each of 2 axes",
        ),
        (IDS, lambda: LSTM(DIM), Classify, "Classify does not know its classes yet"),
        (IDS, lambda: LSTM(DIM), Regress, "Regress does not know its targets yet"),
        (TokenSpec(num_features=3), lambda: LSTM(DIM, causal=True), NextToken, "these tokens are vectors"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_change(spec, backbone, objective, message):
    with pytest.raises(ValueError, match=message):
        Model(spec, backbone(), objective())


def test_links_are_ignored_only_when_asked():
    spec, examples = made_up()["graph"]
    batch = TokenBatch.collate(examples)
    model = Model(spec, LSTM(DIM), classify(), links="ignore")
    assert model.ignores_links
    assert model.spec.num_links == 0
    assert model(batch).shape == (2, 2)
    torch.manual_seed(0)
    blind = Model(spec, Transformer(DIM, 1), classify(), links="ignore")
    torch.manual_seed(0)
    reading = Model(spec, Transformer(DIM, 1), classify())
    assert blind.embedder.link_bias is None
    assert reading.embedder.link_bias.shape == (3, 8)
    assert (blind(batch) - reading(batch)).abs().max() > 1e-5


def test_shared_and_frozen_weights_are_counted_as_trained():
    loose = Model(IDS, LSTM(DIM, causal=True), NextToken(bias=False))
    tied = Model(IDS, LSTM(DIM, causal=True), NextToken(tied=True))
    assert loose.num_parameters - tied.num_parameters == 11 * DIM
    lstm = sum(p.numel() for p in nn.LSTM(DIM, DIM, 2).parameters())
    assert tied.num_parameters == 11 * DIM + lstm
    tied.embedder.requires_grad_(False)
    assert tied.num_parameters == lstm
