"""Figures of a training's health are what their definitions say, and taking them changes nothing."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.analysis.attention_maps import attention_maps, entropy
from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.linear import LinearAttention
from seqkit.nn.attention.linformer import LinformerAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.attention.sliding_window import SlidingWindowAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.bias import ALiBi
from seqkit.objectives import Classify
from seqkit.training.health import (
    HeadEntropy,
    collapsed_layers,
    gradient_norms,
    indifferent_layers,
    layer_of,
    loss_spikes,
    record_attention_entropy,
    total_norm,
    vanishing_layers,
)


def batch_of(*lengths):
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(11, (n,), generator=generator) for n in lengths]
    return TokenBatch.collate([Tokens(one, torch.arange(float(len(one)))[:, None]) for one in ids])


def model_of(mechanism=ScaledDotProductAttention, **settings):
    torch.manual_seed(0)
    objective = Classify()
    objective.fit([0, 1, 2], None)
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=mechanism))
    return Model(TokenSpec(vocab_size=11), Transformer(24, 2, num_heads=3, block=block, **settings), objective).eval()


@torch.no_grad()
def recorded(model, batch):
    with record_attention_entropy(model) as heads:
        model(batch)
    return heads


# ── gradients ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("backbone.blocks.0.mlp.up_proj.weight", "backbone.blocks.0"),
        ("backbone.decoder.blocks.11.attention_norm.bias", "backbone.decoder.blocks.11"),
        ("backbone.layers.weight_ih_l1", "backbone.layers.1"),
        ("backbone.layers.bias_hh_l0_reverse", "backbone.layers.0"),
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
    block = [p.grad for name, p in model.named_parameters() if name.startswith("backbone.blocks.1.")]
    assert norms["backbone.blocks.1"] == pytest.approx(float(torch.cat([g.flatten() for g in block]).norm()), rel=1e-4)
    whole = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    assert total_norm(norms) == pytest.approx(float(whole), rel=1e-4)


def test_a_layer_without_gradients_has_norm_zero():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    assert gradient_norms(model) == {"0": 0.0, "1": 0.0}
    model[1](torch.ones(1, 3)).sum().backward()
    assert gradient_norms(model)["0"] == 0
    assert gradient_norms(model)["1"] > 0


def test_a_layer_far_below_the_others_of_its_stack_has_vanished():
    norms = {"blocks.0": 1e-5, "blocks.1": 0.2, "blocks.2": 1.0, "head": 1e-9, "other.0": 1e-7, "other.1": 0.0}
    assert vanishing_layers(norms) == ["blocks.0"]
    assert vanishing_layers({name: 1e-6 * norm for name, norm in norms.items()}) == ["blocks.0"]


# ── attention ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_entropy_is_that_of_the_attention_maps_as_a_share_of_the_logarithm_of_keys():
    model, batch = model_of(), batch_of(7, 7)
    with torch.no_grad():
        for block in model.backbone.blocks:
            block.attention.qkv_proj.weight.mul_(20)
    for got, one in zip(recorded(model, batch), attention_maps(model, batch), strict=True):
        assert got.name == one.name
        right = entropy(one.weights, batch.valid).mean(dim=0) / math.log(7)
        assert_close(got.entropy, right.double(), rtol=1e-4, atol=1e-5)
        assert float(right.max()) < 0.95
        assert_close(got.divergence, 1 - right.double(), rtol=1e-3, atol=1e-5)  # from a plain mean over all keys


def test_padding_changes_no_entropy():
    model = model_of()
    short, long = batch_of(5), batch_of(5, 9)
    alone = recorded(model, TokenBatch.collate([Tokens(short.content[0], short.positions[0])]))
    padded = recorded(model, long.select(torch.tensor([0])))
    for a, b in zip(alone, padded, strict=True):
        assert_close(a.entropy, b.entropy, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [{"causal": True}, {"position": ALiBi()}, {"causal": True, "position": ALiBi()}])
def test_what_masks_and_biases_leave_is_the_largest_entropy(settings):
    model = model_of(**settings)
    with torch.no_grad():
        for block in model.backbone.blocks:
            block.attention.qkv_proj.weight.zero_()
    for one in recorded(model, batch_of(7, 5)):
        assert_close(one.entropy, torch.ones(3, dtype=torch.float64))
        assert float(one.divergence.abs().max()) < 1e-12
    assert len(indifferent_layers(recorded(model, batch_of(7, 5)))) == 2


@pytest.mark.parametrize(
    "mechanism",
    [partial(SlidingWindowAttention, size=3), LinearAttention, AdditiveAttention],
)
def test_what_a_mechanism_attends_to_counts_as_the_largest_entropy(mechanism):
    heads = recorded(model_of(mechanism), batch_of(17))
    entropies = torch.cat([one.entropy for one in heads])
    assert 0.9 < float(entropies.min()) <= float(entropies.max()) < 1.01


def test_recording_changes_no_bit_of_the_output_and_leaves_no_hook():
    model, batch = model_of(), batch_of(7, 5)
    with torch.no_grad():
        right = model(batch)
        with record_attention_entropy(model) as heads:
            got = model(batch)
    assert torch.equal(got, right)
    assert len(heads) == 2
    assert not any(module._forward_hooks for module in model.modules())


def test_passes_are_averaged_over_their_queries():
    model = model_of()
    with torch.no_grad(), record_attention_entropy(model) as both:
        model(batch_of(7))
        model(batch_of(7))
    assert_close(both[0].entropy, recorded(model, batch_of(7))[0].entropy)


def test_mechanisms_without_weights_and_queries_with_one_key_are_left_out():
    assert recorded(model_of(partial(LinformerAttention, max_tokens=17, rank=3)), batch_of(7, 5)) == []
    assert recorded(model_of(), batch_of(1)) == []


@pytest.mark.parametrize(("temperature", "collapsed", "indifferent"), [(1e-5, 2, 0), (None, 0, 0), (1e4, 0, 2)])
def test_scores_out_of_scale_are_told(temperature, collapsed, indifferent):
    heads = recorded(model_of(partial(ScaledDotProductAttention, temperature=temperature)), batch_of(17, 13))
    assert (len(collapsed_layers(heads)), len(indifferent_layers(heads))) == (collapsed, indifferent)


def test_one_sharp_head_is_no_collapse():
    head = HeadEntropy("a", torch.tensor([0.001, 0.3]), torch.tensor([0.9, 0.5]))
    assert collapsed_layers([head]) == []


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
