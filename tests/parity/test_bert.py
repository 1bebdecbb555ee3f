"""Our Transformer equals Hugging Face's BERT: post-norm, input norm, learned positions (index, sentence)."""

from functools import partial

import pytest
import torch
from parity import EmbeddedBackbone, assert_equal, linear, linears, randomized, texts
from torch import nn
from transformers import BertConfig, BertModel

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenSpec
from seqkit.nn.block import MLP, PostNormBlock
from seqkit.nn.position.absolute import Learned

VOCAB, CONTEXT, DIM, INNER, DEPTH, HEADS = 29, 23, 21, 35, 3, 3


def theirs():
    config = BertConfig(
        vocab_size=VOCAB, max_position_embeddings=CONTEXT, type_vocab_size=2, hidden_size=DIM, intermediate_size=INNER,
        num_hidden_layers=DEPTH, num_attention_heads=HEADS, attn_implementation="eager",
    )  # fmt: skip
    return randomized(BertModel(config, add_pooling_layer=False))


def ours():
    norm = partial(nn.LayerNorm, eps=1e-12)
    block = partial(PostNormBlock, mlp=partial(MLP, ratio=INNER / DIM), norm=norm)
    backbone = Transformer(
        DIM, DEPTH, num_heads=HEADS, block=block, norm=nn.Identity, input_norm=norm
    )
    return EmbeddedBackbone(
        TokenSpec(vocab_size=VOCAB, num_axes=2), backbone, partial(Learned, sizes=[CONTEXT, 2])
    )


def weights(theirs):
    """Their weights under our names."""
    added = theirs.embeddings
    mapped = {
        "embedder.content.weight": added.word_embeddings.weight,
        "embedder.position.tables.0": added.position_embeddings.weight,
        "embedder.position.tables.1": added.token_type_embeddings.weight,
    } | linear(added.LayerNorm, "backbone.input_norm")
    for i, layer in enumerate(theirs.encoder.layer):
        name, attention = f"backbone.blocks.{i}", layer.attention
        qkv = [attention.self.query, attention.self.key, attention.self.value]
        mapped |= linears(qkv, f"{name}.attention.qkv_proj") | linear(
            attention.output.dense, f"{name}.attention.out_proj"
        )
        mapped |= linear(attention.output.LayerNorm, f"{name}.attention_norm")
        mapped |= linear(layer.intermediate.dense, f"{name}.mlp.up_proj") | linear(
            layer.output.dense, f"{name}.mlp.down_proj"
        )
        mapped |= linear(layer.output.LayerNorm, f"{name}.mlp_norm")
    return mapped


@pytest.mark.parametrize("lengths", [[13, 13], [11, 19, 5]])
def test_hidden_states_of_bert(lengths):
    reference, model = theirs(), ours()
    model.load_state_dict(weights(reference))
    batch = texts(lengths, VOCAB, num_axes=2)
    with torch.no_grad():
        right = reference(
            batch.content,
            attention_mask=batch.valid.long(),
            token_type_ids=batch.positions[..., 1].long(),
        ).last_hidden_state
        assert_equal(model(batch), right, batch.valid)
