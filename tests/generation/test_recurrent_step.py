"""The written-out step of recurrent networks gives the modules' logits, and stays away from what it does not know."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import GRU, LSTM, RNN, TCN
from seqkit.generation.decode import DecodingState
from seqkit.generation.decoders import find_decoder
from seqkit.generation.recurrent_step import RecurrentStep, is_recurrent
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.nn.embedder import EmbeddingSettings
from seqkit.nn.position.absolute import Sinusoidal
from seqkit.objectives import NextToken

SPEC = TokenSpec(vocab_size=13)
PROMPTS = [torch.tensor([3, 5, 7]), torch.tensor([2]), torch.tensor([11, 1])]


def model(cls, depth=2, objective=None, **settings):
    scale = settings.pop("embedding_scale", 1.0)
    torch.manual_seed(3)
    backbone = cls(10, depth, causal=True, **settings)
    return (
        Model(
            SPEC,
            backbone,
            objective or NextToken(),
            embedding=EmbeddingSettings(embedding_scale=scale),
        )
        .double()
        .eval()
    )


def logits(made, *, fast):
    """Logits of twelve steps after ragged prompts, with a change of rows in between."""
    if not fast:
        # hooks forbid a written-out step
        made.register_forward_hook(lambda module, args, output: None)
    state, found = DecodingState(made, PROMPTS, 12), []
    for step in range(12):
        found.append(state.next_logits())
        state.append(found[-1].argmax(dim=-1))
        if step == 5:
            state.reorder(torch.tensor([2, 0, 0]))
    assert (state._decoder is not None) == fast
    return torch.stack(found)


@pytest.mark.parametrize("cls", [LSTM, GRU, RNN])
@pytest.mark.parametrize("residual", [False, True])
@torch.inference_mode()
def test_it_gives_the_logits_of_the_modules(cls, residual):
    build = partial(model, cls, residual=residual)
    assert_close(logits(build(), fast=True), logits(build(), fast=False))


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        (NextToken(tied=True), {}),
        (NextToken(bias=False), {}),
        (NextToken(softcap=2.0), {"embedding_scale": 3.0}),
    ],
)
@torch.inference_mode()
def test_it_gives_them_for_every_head_and_scale(objective, settings):
    build = partial(model, LSTM, objective=objective, **settings)
    assert_close(logits(build(), fast=True), logits(build(), fast=False))


@torch.inference_mode()
def test_it_is_chosen_for_recurrent_networks_alone():
    class Louder(LSTM):
        def forward(self, embedded, cache=None):
            return 2 * super().forward(embedded, cache)

    assert isinstance(find_decoder(model(GRU), 1, 20), RecurrentStep)
    assert not is_recurrent(model(Louder))
    assert find_decoder(model(TCN), 1, 20) is None
    other_norm = model(LSTM)
    other_norm.backbone.blocks[0].norm = nn.RMSNorm(10)
    assert not is_recurrent(other_norm)
    added = Model(SPEC, LSTM(10, causal=True), NextToken(), position=Sinusoidal)
    normed = Model(
        SPEC,
        LSTM(10, causal=True),
        NextToken(),
        embedding=EmbeddingSettings(embedding_norm=nn.LayerNorm),
    )
    narrow = Model(
        SPEC, LSTM(10, causal=True), NextToken(), embedding=EmbeddingSettings(embedding_dim=6)
    )
    assert not any(map(is_recurrent, (added, normed, narrow)))
