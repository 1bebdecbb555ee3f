"""Gradient flow is the Jacobian's norm, as computed entry by entry; it vanishes as fast as recurrent weights shrink."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian

from seqkit.analysis.gradient_flow import gradient_flow
from seqkit.backbones import GRU, RNN, Transformer
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Masked, NextToken
from seqkit.tokenizers import Graph

DIM, VOCAB = 6, 11


def batch_of(*lengths):
    g = torch.Generator().manual_seed(3)
    return TokenBatch.collate(
        [Tokens(torch.randint(VOCAB, (n,), generator=g), torch.arange(float(n))[:, None]) for n in lengths]
    )


def model_of(backbone):
    return Model(TokenSpec(vocab_size=VOCAB), backbone, NextToken(tied=False) if backbone.causal else Masked())


def linear_rnn(rate):
    """An Elman network so near zero that tanh is the identity: h_t = W h_(t-1) + x_t, W orthogonal times `rate`."""
    model = model_of(RNN(DIM, 1, causal=True))
    layer = model.backbone.layers
    with torch.no_grad():
        nn.init.orthogonal_(layer.weight_hh_l0).mul_(rate)
        nn.init.eye_(layer.weight_ih_l0)
        layer.bias_hh_l0.zero_()
        layer.bias_ih_l0.zero_()
        model.embedder.content.weight.mul_(1e-4)
    return model


@pytest.mark.parametrize("rate", [0.5, 0.9, 1.1])
@pytest.mark.parametrize("num_projections", [1, DIM])
def test_a_linear_recurrence_vanishes_or_grows_as_its_weights_to_the_power_of_the_distance(rate, num_projections):
    """||W^k||² = d rate^(2 k), whatever the direction, as W is orthogonal up to `rate`."""
    flow = gradient_flow(linear_rnn(rate), batch_of(13, 7), num_projections=num_projections)
    assert [distance for distance, _ in flow] == list(range(13))
    for distance, norm in flow:
        assert norm == pytest.approx(DIM**0.5 * rate**distance, rel=1e-3)


def test_a_transformer_does_not_vanish_where_a_recurrence_does():
    tokens = batch_of(41)
    recurrent = dict(gradient_flow(linear_rnn(0.5), tokens))
    attention = dict(gradient_flow(model_of(Transformer(DIM, 2, num_heads=2, causal=True)), tokens))
    assert recurrent[40] / recurrent[1] < 1e-10
    assert attention[40] / attention[1] > 0.1


@pytest.mark.parametrize(
    "backbone",
    [
        partial(GRU, DIM, 2, causal=True),
        partial(GRU, DIM, 2),
        partial(Transformer, DIM, 1, num_heads=2),
        partial(Transformer, DIM, 1, num_heads=2, causal=True),
    ],
)
def test_all_directions_give_the_jacobian_exactly(backbone):
    model, tokens = model_of(backbone()).eval(), batch_of(5, 3)
    squares = {}
    for i, length in enumerate((5, 3)):
        embedded = model.embedder(tokens)

        def last(hidden, embedded=embedded, i=i, length=length):
            return model.backbone(embedded.replace(hidden=hidden))[i, length - 1]

        per_token = jacobian(last, embedded.hidden.detach())[:, i].square().sum(dim=(0, 2))
        for t in range(length):
            squares.setdefault(length - 1 - t, []).append(float(per_token[t]))
    expected = [(k, (sum(each) / len(each)) ** 0.5) for k, each in sorted(squares.items())]
    for (k, norm), (distance, right) in zip(gradient_flow(model, tokens, num_projections=99), expected, strict=True):
        assert k == distance
        assert norm == pytest.approx(right, rel=1e-4)


def test_few_directions_are_right_on_average_and_the_same_for_a_seed():
    model, tokens = model_of(GRU(DIM, 1, causal=True)), batch_of(4)
    exact = gradient_flow(model, tokens, num_projections=DIM)[3][1]
    guesses = [gradient_flow(model, tokens, num_projections=2, seed=s)[3][1] ** 2 for s in range(300)]
    assert (sum(guesses) / 300) ** 0.5 == pytest.approx(exact, rel=0.1)
    assert len(set(guesses)) > 290  # two of them may round to the same number
    assert gradient_flow(model, tokens, seed=5) == gradient_flow(model, tokens, seed=5)


def test_the_model_is_left_as_it_was():
    model = model_of(GRU(DIM, 1, causal=True)).train()
    gradient_flow(model, batch_of(4))
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_graphs_and_no_directions_are_refused():
    model = model_of(GRU(DIM, 1))
    with pytest.raises(ValueError, match="num_projections=0"):
        gradient_flow(model, batch_of(4), num_projections=0)
    graph = Model(Graph(3).spec, Transformer(DIM, 1, num_heads=2), Masked())
    with pytest.raises(ValueError, match="adjacency"):
        gradient_flow(graph, batch_of(4))
