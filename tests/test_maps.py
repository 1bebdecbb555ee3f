"""Maps are the weights that the model used, and taking them changes nothing."""

import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import GRU, RecurrentDecoder, Seq2Seq, Transformer
from seqkit.contract import TokenBatch, Tokens, TokenSpec
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.mechanism import ScaledDotProduct
from seqkit.layers.scores import Additive
from seqkit.maps import AttentionMap, attention_maps, entropy, rollout, taking_maps
from seqkit.model import Model
from seqkit.objectives import Classify, Translate
from seqkit.tokenizers import Characters


def model_and_batch(**settings):
    objective = Classify()
    objective.fit([0, 1, 2], None)
    backbone = Transformer(24, 2, num_heads=3, **settings)
    texts = [Tokens(torch.randint(11, (n,)), torch.arange(float(n))[:, None]) for n in (7, 5)]
    return Model(TokenSpec(vocab_size=11), backbone, objective).eval(), TokenBatch.collate(texts)


def test_taking_maps_changes_no_bit_of_the_output_and_leaves_nothing_behind():
    model, batch = model_and_batch()
    with torch.no_grad():
        right = model(batch)
        with taking_maps(model) as maps:
            got = model(batch)
        after = model(batch)
    assert torch.equal(got, right)
    assert torch.equal(after, right)
    assert len(maps) == 2
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_nothing_is_left_behind_after_an_error():
    model, _ = model_and_batch()
    with pytest.raises(ZeroDivisionError), taking_maps(model):
        raise ZeroDivisionError
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("causal", [False, True])
def test_a_map_weighs_the_values_to_what_the_attention_read(causal, monkeypatch):
    model, batch = model_and_batch(causal=causal)
    seen = []
    sound = ScaledDotProduct.forward

    def noting(self, q, k, v, reading, memory=None):
        read = sound(self, q, k, v, reading, memory)
        seen.append((v, read))
        return read

    monkeypatch.setattr(ScaledDotProduct, "forward", noting)
    for one, (v, read) in zip(attention_maps(model, batch), seen, strict=True):
        assert_close(one.weights @ v, read)
        assert_close(one.weights.sum(dim=-1), torch.ones(2, 3, 7))
        assert not one.weights[1, :, :5, 5:].any(), "padding is read"
        if causal:
            assert not one.weights.triu(1).any()


def test_names_and_parts_say_where_a_map_was_taken():
    model, batch = model_and_batch()
    maps = attention_maps(model, batch)
    assert [one.name for one in maps] == ["backbone.blocks.0.attention", "backbone.blocks.1.attention"]
    assert {one.part for one in maps} == {""}
    assert AttentionMap("backbone.encoder.blocks.0.attention", torch.zeros(0), False).part == "encoder"
    assert AttentionMap("backbone.decoder.blocks.0.cross", torch.zeros(0), True).part == "across"


def test_evaluation_without_dropout_and_training_goes_on():
    model, batch = model_and_batch(
        block=partial(Block, attention=partial(Attention, mechanism=partial(ScaledDotProduct, dropout=0.5)))
    )
    model.train()
    first, second = attention_maps(model, batch), attention_maps(model, batch)
    assert model.training
    assert torch.equal(first[1].weights, second[1].weights)


def test_a_backbone_without_attention_says_so():
    objective = Classify()
    objective.fit([0, 1], None)
    _, batch = model_and_batch()
    with pytest.raises(ValueError, match="GRU has no attention to look at"):
        attention_maps(Model(TokenSpec(vocab_size=11), GRU(24), objective), batch)


def test_entropy_of_one_token_is_zero_and_of_all_alike_their_logarithm():
    one, alike = torch.eye(5)[None, None], torch.full((1, 1, 5, 5), 0.2)
    valid = torch.tensor([[True, True, True, False, False]])
    assert_close(entropy(torch.cat([one, alike], dim=1), valid), torch.tensor([[0.0, math.log(5)]]))
    half = alike.clone()
    half[..., 3:, :] = torch.eye(5)[0]  # padded readers do not count
    assert_close(entropy(half, valid), torch.tensor([[math.log(5)]]))


def test_mixtures_that_go_below_zero_have_no_entropy():
    weights = torch.tensor([[[[1.5, -0.5], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]]])
    below, alike = entropy(weights, torch.ones(1, 2, dtype=torch.bool))[0]
    assert below.isnan()
    assert_close(alike, torch.tensor(math.log(2)))


def test_steps_of_a_recurrent_decoder_are_one_map_its_readers_in_order():
    objective = Translate(Characters())
    objective.fit(["ABC"], None)
    decoder = RecurrentDecoder(8, attention=partial(Attention, mechanism=Additive))
    model = Model(TokenSpec(vocab_size=11), Seq2Seq(GRU(8), decoder), objective).eval()
    source = TokenBatch.collate([Tokens(torch.randint(11, (5,)), torch.arange(5.0)[:, None])])
    written = torch.tensor([[[0, 2, 1]]])
    (whole,) = attention_maps(model, objective.prepare(source, written).batch)
    assert whole.across
    assert whole.weights.shape == (1, 1, 4, 5)
    for num_written in (1, 2):  # what comes later changes no row before
        (part,) = attention_maps(model, objective.prepare(source, written[..., :num_written]).batch)
        assert_close(part.weights, whole.weights[:, :, : num_written + 1])


def test_rollout_is_the_product_written_out():
    g = torch.Generator().manual_seed(0)
    weights = [torch.rand(1, 2, 3, 3, generator=g).softmax(dim=-1) for _ in range(2)]
    layers = [0.5 * w[0].mean(dim=0) + 0.5 * torch.eye(3) for w in weights]
    got = rollout([AttentionMap(str(i), w, False) for i, w in enumerate(weights)])
    assert_close(got[0], layers[1] @ layers[0])
    assert_close(got.sum(dim=-1), torch.ones(1, 3))
    with pytest.raises(ValueError, match="rollout follows one sequence"):
        rollout([AttentionMap("0", weights[0], True)])
