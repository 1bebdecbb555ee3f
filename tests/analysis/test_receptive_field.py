"""How far backbones look: known receptive fields, and None where a column is no distance."""

from functools import partial

import pytest
import torch

from seqkit.analysis.receptive_field import farthest_input
from seqkit.backbones import GRU, LSTM, S4D, TCN, Mamba, Transformer
from seqkit.interfaces import Adjacency, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken

SPEC = TokenSpec(vocab_size=29)


def model(backbone, spec=SPEC):
    torch.manual_seed(0)
    return Model(spec, backbone, NextToken())


def batch(*sizes):
    return TokenBatch.collate([SPEC.random(n) for n in sizes])


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kernel_size", [2, 3])
def test_a_tcn_looks_as_far_as_its_formula_says(depth, kernel_size):
    """Two convolutions a block, dilated by 1, 2, 4, …: 2 (k - 1) (2^depth - 1) tokens back (Bai et al. 2018)."""
    tcn = TCN(12, depth, kernel_size=kernel_size, causal=True)
    assert farthest_input(model(tcn), batch(90, 7)) == 2 * (kernel_size - 1) * (2**depth - 1)


GLOBAL = {"LSTM": LSTM, "GRU": GRU, "S4D": S4D, "Mamba": Mamba}
GLOBAL["Transformer"] = partial(Transformer, depth=1, num_heads=2)


@pytest.mark.parametrize("name", GLOBAL)
def test_what_attends_or_recurs_looks_as_far_as_the_longest_example(name):
    """400 tokens: the gradient of an LSTM over so many is zero in float32."""
    assert farthest_input(model(GLOBAL[name](12, causal=True)), batch(7, 400)) == 399


def test_edges_and_sources_are_no_distance_and_the_model_stays_as_it_was():
    path = torch.stack([torch.arange(6), torch.arange(1, 7)])
    tokens = Tokens(
        torch.arange(7),
        torch.arange(7.0)[:, None],
        Adjacency(path, torch.ones(6, dtype=torch.int64)),
    )
    spec = TokenSpec(vocab_size=29, num_edge_types=1)
    own = model(Transformer(12, 1, num_heads=2, causal=True), spec).train()
    assert farthest_input(own, TokenBatch.collate([tokens])) is None
    assert own.training
