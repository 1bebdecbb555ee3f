"""Attention maps are the weights that the model used, and recording them changes nothing."""

import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqkit.analysis.attention_maps import (
    AttentionMap,
    attention_maps,
    entropy,
    record_attention_maps,
    rollout,
)
from seqkit.backbones import GRU, EncoderDecoder, RNNDecoder, Transformer
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import PreNormBlock
from seqkit.objectives import Classify, Seq2Seq
from seqkit.tokenizers import Characters


def model_and_batch(**settings):
    objective = Classify()
    objective.fit([0, 1, 2], None)
    backbone = Transformer(24, 2, num_heads=3, **settings)
    texts = [Tokens(torch.randint(11, (n,)), torch.arange(float(n))[:, None]) for n in (7, 5)]
    return Model(TokenSpec(vocab_size=11), backbone, objective).eval(), TokenBatch.collate(texts)


def test_recording_changes_no_bit_of_the_output_and_leaves_no_hook():
    model, batch = model_and_batch()
    with torch.no_grad():
        right = model(batch)
        with record_attention_maps(model) as maps:
            got = model(batch)
        after = model(batch)
    assert torch.equal(got, right)
    assert torch.equal(after, right)
    assert len(maps) == 2
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_a_block_that_repeats_has_a_map_for_each_time():
    model, batch = model_and_batch(repeats=2)
    copies, _ = model_and_batch()
    copies.load_state_dict(model.state_dict())
    found, right = attention_maps(model, batch), attention_maps(copies, batch)
    assert [one.name for one in found] == [one.name for one in right]
    for one, other in zip(found, right, strict=True):
        assert_close(one.weights, other.weights)


def test_no_hook_is_left_after_an_error():
    model, _ = model_and_batch()
    with pytest.raises(ZeroDivisionError), record_attention_maps(model):
        raise ZeroDivisionError
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("causal", [False, True])
def test_a_map_times_the_values_is_the_attention_output(causal, monkeypatch):
    model, batch = model_and_batch(causal=causal)
    seen = []
    forward = ScaledDotProductAttention.forward

    def recording(self, q, k, v, context, cache=None):
        output = forward(self, q, k, v, context, cache)
        seen.append((v, output))
        return output

    monkeypatch.setattr(ScaledDotProductAttention, "forward", recording)
    for one, (v, output) in zip(attention_maps(model, batch), seen, strict=True):
        assert_close(one.weights @ v, output)
        assert_close(one.weights.sum(dim=-1), torch.ones(2, 3, 7))
        assert not one.weights[1, :, :5, 5:].any(), "padding is attended to"
        if causal:
            assert not one.weights.triu(1).any()


def test_name_and_stack_say_which_attention_a_map_is_of():
    model, batch = model_and_batch()
    maps = attention_maps(model, batch)
    assert [one.name for one in maps] == [
        "backbone.blocks.0.attention",
        "backbone.blocks.1.attention",
    ]
    assert {one.stack for one in maps} == {""}
    assert (
        AttentionMap("backbone.encoder.blocks.0.attention", torch.zeros(0), False).stack
        == "encoder"
    )
    assert (
        AttentionMap("backbone.decoder.blocks.0.cross_attention", torch.zeros(0), True).stack
        == "cross"
    )


def test_maps_are_without_dropout_and_the_mode_comes_back():
    model, batch = model_and_batch(
        block=partial(
            PreNormBlock,
            attention=partial(
                MultiHeadAttention, mechanism=partial(ScaledDotProductAttention, dropout=0.5)
            ),
        )
    )
    model.train()
    first, second = attention_maps(model, batch), attention_maps(model, batch)
    assert model.training
    assert torch.equal(first[1].weights, second[1].weights)


def test_a_backbone_without_attention_is_refused():
    objective = Classify()
    objective.fit([0, 1], None)
    _, batch = model_and_batch()
    with pytest.raises(ValueError, match="GRU"):
        attention_maps(Model(TokenSpec(vocab_size=11), GRU(24), objective), batch)


def test_entropy_of_one_key_is_zero_and_of_m_alike_is_log_m():
    one, alike = torch.eye(5)[None, None], torch.full((1, 1, 5, 5), 0.2)
    valid = torch.tensor([[True, True, True, False, False]])
    assert_close(entropy(torch.cat([one, alike], dim=1), valid), torch.tensor([[0.0, math.log(5)]]))
    half = alike.clone()
    half[..., 3:, :] = torch.eye(5)[0]  # padded queries do not count
    assert_close(entropy(half, valid), torch.tensor([[math.log(5)]]))


def test_what_a_row_lacks_is_a_sink_that_counts_as_one_more_key():
    weights = torch.full((1, 1, 2, 4), 0.2)  # 0.2 is left for the sink
    valid = torch.ones(1, 2, dtype=torch.bool)
    assert_close(entropy(weights, valid), torch.tensor([[math.log(5)]]))
    assert_close(entropy(0 * weights, valid), torch.tensor([[0.0]]))


@pytest.mark.parametrize("sinks", ["learned", "zero"])
def test_maps_and_rollout_of_heads_with_sinks_are_not_normalised_again(sinks):
    mechanism = partial(ScaledDotProductAttention, sinks=sinks)
    model, batch = model_and_batch(
        block=partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=mechanism))
    )
    maps = attention_maps(model, batch)
    real = batch.valid[0]
    for one in maps:
        sums = one.weights[0, :, real].sum(dim=-1)
        assert sums.max() < 1
        assert sums.min() > 0
    layers = [0.5 * one.weights[0].mean(dim=0) + 0.5 * torch.eye(len(real)) for one in maps]
    got = rollout(maps)[0]
    assert_close(got, layers[1] @ layers[0])
    assert got[real].sum(dim=-1).max() < 1
    seen = entropy(maps[0].weights, batch.valid)
    assert seen.isfinite().all()


def test_weights_below_zero_have_no_entropy():
    weights = torch.tensor([[[[1.5, -0.5], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]]])
    below, alike = entropy(weights, torch.ones(1, 2, dtype=torch.bool))[0]
    assert below.isnan()
    assert_close(alike, torch.tensor(math.log(2)))


def test_steps_of_a_recurrent_decoder_are_one_map_with_its_queries_in_order():
    objective = Seq2Seq(Characters())
    objective.fit(["ABC"], None)
    decoder = RNNDecoder(8, attention=partial(MultiHeadAttention, mechanism=AdditiveAttention))
    model = Model(TokenSpec(vocab_size=11), EncoderDecoder(GRU(8), decoder), objective).eval()
    source = TokenBatch.collate([Tokens(torch.randint(11, (5,)), torch.arange(5.0)[:, None])])
    target = torch.tensor([[[0, 2, 1]]])
    (whole,) = attention_maps(model, objective.prepare(source, target).batch)
    assert whole.is_cross
    assert whole.weights.shape == (1, 1, 4, 5)
    for num_tokens in (1, 2):  # later tokens change no row before
        (prefix,) = attention_maps(model, objective.prepare(source, target[..., :num_tokens]).batch)
        assert_close(prefix.weights, whole.weights[:, :, : num_tokens + 1])


def test_rollout_is_the_product_written_out():
    g = torch.Generator().manual_seed(0)
    weights = [torch.rand(1, 2, 3, 3, generator=g).softmax(dim=-1) for _ in range(2)]
    layers = [0.5 * w[0].mean(dim=0) + 0.5 * torch.eye(3) for w in weights]
    got = rollout([AttentionMap(str(i), w, False) for i, w in enumerate(weights)])
    assert_close(got[0], layers[1] @ layers[0])
    assert_close(got.sum(dim=-1), torch.ones(1, 3))
    with pytest.raises(ValueError, match="rollout"):
        rollout([AttentionMap("0", weights[0], True)])
