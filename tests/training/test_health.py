"""Figures of a training's health are what their definitions say, and taking them changes nothing."""

import math

import pytest
import torch
from torch import nn

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Classify
from seqkit.training.health import (
    gradient_norms,
    layer_of,
    loss_spikes,
    total_norm,
    vanishing_layers,
)


def batch_of(*lengths):
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(11, (n,), generator=generator) for n in lengths]
    return TokenBatch.collate([Tokens(one, torch.arange(float(len(one)))[:, None]) for one in ids])


def model_of():
    torch.manual_seed(0)
    objective = Classify()
    objective.fit([0, 1, 2], None)
    return Model(TokenSpec(vocab_size=11), Transformer(24, 2, num_heads=3), objective).eval()


# ── gradients ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("backbone.blocks.0.mlp.up_proj.weight", "backbone.blocks.0"),
        ("backbone.decoder.blocks.11.attention_norm.bias", "backbone.decoder.blocks.11"),
        ("backbone.layers.weight_ih_l1", "backbone.layers.1"),
        ("backbone.layers.bias_hh_l0_reverse", "backbone.layers.0"),
        ("backbone.blocks.3.cell.weight_ih_l0", "backbone.blocks.3"),
        ("head.linear.weight", "head.linear"),
        ("embedder.mask_token", "embedder"),
        ("scale", "scale"),
    ],
)
def test_a_parameter_belongs_to_the_layer_that_its_name_says(name, layer):
    assert layer_of(name) == layer


def test_norms_by_layer_are_those_of_all_their_gradients_in_one_vector():
    model = model_of()
    model(batch_of(7, 5)).square().sum().backward()
    norms = gradient_norms(model)
    block = [
        p.grad for name, p in model.named_parameters() if name.startswith("backbone.blocks.1.")
    ]
    assert norms["backbone.blocks.1"] == pytest.approx(
        float(torch.cat([g.flatten() for g in block]).norm()), rel=1e-4
    )
    whole = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    assert total_norm(norms) == pytest.approx(float(whole), rel=1e-4)


def test_a_layer_without_gradients_has_norm_zero():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    assert gradient_norms(model) == {"0": 0.0, "1": 0.0}
    model[1](torch.ones(1, 3)).sum().backward()
    assert gradient_norms(model)["0"] == 0
    assert gradient_norms(model)["1"] > 0


def test_a_layer_far_below_the_others_of_its_stack_has_vanished():
    norms = {
        "blocks.0": 1e-5,
        "blocks.1": 0.2,
        "blocks.2": 1.0,
        "head": 1e-9,
        "other.0": 1e-7,
        "other.1": 0.0,
    }
    assert vanishing_layers(norms) == ["blocks.0"]
    assert vanishing_layers({name: 1e-6 * norm for name, norm in norms.items()}) == ["blocks.0"]


# ── loss ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def noisy(num, spread, seed=0):
    noise = torch.randn(num, generator=torch.Generator().manual_seed(seed)) * spread
    return [3.0 * math.exp(-i / 40) * math.exp(x) for i, x in enumerate(noise.tolist())]


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.1, 0.5, 1.0])
def test_noise_of_any_size_has_no_spike(spread):
    assert loss_spikes(noisy(200, spread)) == []


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.1])
def test_a_jump_is_a_spike_where_it_happens(spread):
    losses = noisy(200, spread)
    losses[120] *= 8
    assert loss_spikes(losses) == [120]


def test_a_spike_is_known_when_it_happens():
    losses = noisy(60, 0.05)
    losses[40] *= 8
    assert loss_spikes(losses[:41]) == [40]
    assert 16 in loss_spikes(losses[40 - 16 : 41])


def test_what_is_not_finite_is_a_spike_and_spoils_no_later_comparison():
    losses = noisy(60, 0.05)
    losses[24:31], losses[31] = [math.nan] * 7, math.inf
    losses[36] *= 8
    assert loss_spikes(losses) == [*range(24, 32), 36]


def test_losses_below_zero_have_spikes_too():
    losses = [-2.0 + 0.01 * (i % 3) for i in range(40)]
    assert loss_spikes(losses) == []
    losses[25] = 3.0
    assert loss_spikes(losses) == [25]


def test_the_first_losses_are_no_spikes():
    assert loss_spikes([1.0, 50.0, 1.0]) == []
