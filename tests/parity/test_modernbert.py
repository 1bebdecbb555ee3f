"""Our Transformer equals Hugging Face's ModernBERT: global and local layers, two rotary bases, GeGLU.

d width · h heads · c channels of one head
"""

import pytest
import torch
from families import family
from parity import SLACK, EmbeddedBackbone, alone, assert_equal, randomized, texts
from torch import nn
from transformers import ModernBertConfig, ModernBertModel
from weights import in_pairs, take
from whole import assert_every_value_is_mapped

from seqkit.interfaces import TokenSpec
from seqkit.nn.position.absolute import NoPosition

VOCAB, DIM, DEPTH, HEADS, REACH = 29, 30, 6, 3, 4
LENGTHS = [[37, 37], [11, 41, 3]]  # longer than two windows


@pytest.fixture
def pair():
    config = ModernBertConfig(
        vocab_size=VOCAB, hidden_size=DIM, intermediate_size=43, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        local_attention=2 * REACH, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = randomized(ModernBertModel(config))
    ours = EmbeddedBackbone(TokenSpec(vocab_size=VOCAB), family("ModernBERT"), NoPosition)
    ours.backbone.blocks[0].attention_norm = nn.Identity()
    ours.load_state_dict(weights(theirs.state_dict()))
    return theirs, ours.eval()


def weights(theirs):
    """Their weights under our names; gradients are mapped alike."""

    def pair_up(x):
        q, k, v = x.chunk(3)
        return torch.cat([in_pairs(q, DIM // HEADS), in_pairs(k, DIM // HEADS), v])

    left = dict(theirs)
    mapped = take(left, ["embeddings.tok_embeddings"], "embedder.content")
    mapped |= take(left, ["embeddings.norm"], "backbone.input_norm") | take(
        left, ["final_norm"], "backbone.norm"
    )
    names = {"attention_norm": "attn_norm", "attention.out_proj": "attn.Wo", "mlp_norm": "mlp_norm"}
    names |= {"mlp.gate_up_proj": "mlp.Wi", "mlp.down_proj": "mlp.Wo"}
    for i in range(DEPTH):
        mapped |= take(
            left, [f"layers.{i}.attn.Wqkv"], f"backbone.blocks.{i}.attention.qkv_proj", [pair_up]
        )
        for ours, name in names.items():
            mapped |= take(left, [f"layers.{i}.{name}"], f"backbone.blocks.{i}.{ours}")
    assert not left, f"not mapped: {sorted(left)}"
    return mapped


@pytest.mark.parametrize("lengths", LENGTHS)
def test_hidden_states_of_modernbert(pair, lengths):
    theirs, ours = pair
    assert_every_value_is_mapped(ours, theirs)
    batch = texts(lengths, VOCAB)
    with torch.no_grad():
        assert_equal(ours(batch), alone(theirs, batch), batch.valid)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_gradients_of_modernbert(pair, lengths):
    theirs, ours = pair
    batch = texts(lengths, VOCAB)
    batch.content.clamp_(min=1)  # the padding's id has no gradient in theirs
    right = alone(theirs, batch)[batch.valid]
    direction = torch.randn_like(right)
    (right * direction).sum().backward()
    (ours(batch)[batch.valid] * direction).sum().backward()
    gradients = weights({name: p.grad for name, p in theirs.named_parameters()})
    assert gradients.keys() == dict(ours.named_parameters()).keys()
    for name, p in ours.named_parameters():
        scale = gradients[name].abs().max()
        torch.testing.assert_close(
            p.grad / scale, gradients[name] / scale, rtol=0, atol=SLACK, msg=name
        )
