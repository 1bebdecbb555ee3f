"""Our EncoderDecoder equals Hugging Face's BART: post-norm, norm of the embeddings, learned positions, one table."""

from functools import partial

import pytest
import torch
from parity import attention, linear, randomized, texts
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration
from whole import (
    assert_every_value_is_mapped,
    assert_same_generation,
    assert_same_logits_from_a_source,
    encoder_decoder,
    scattered,
)

from seqkit.interfaces import TokenSpec
from seqkit.nn.heads import TiedHead
from seqkit.nn.position.absolute import Learned

VOCAB, CONTEXT, DIM = 29, 41, 24
OFFSET = 2
"""Position 0 has row 2 of their tables, and no token has the rows before it."""


def theirs():
    config = BartConfig(
        vocab_size=VOCAB, max_position_embeddings=CONTEXT, d_model=DIM, encoder_layers=2, decoder_layers=3,
        encoder_attention_heads=4, decoder_attention_heads=3, encoder_ffn_dim=36, decoder_ffn_dim=48,
        decoder_start_token_id=VOCAB - 2, attn_implementation="eager",
    )  # fmt: skip
    return randomized(BartForConditionalGeneration(config))


def bart_attention(theirs, name):
    return attention(theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.out_proj, name)


def weights(theirs):
    """Their weights under our names."""
    mapped = {
        f"{name}.weight": theirs.model.shared.weight
        for name in ("source_embedder.content", "embedder.content", "head.table")
    }
    for embedder, stack in (
        ("source_embedder", theirs.model.encoder),
        ("embedder", theirs.model.decoder),
    ):
        side = "backbone.encoder" if embedder == "source_embedder" else "backbone.decoder"
        mapped[f"{embedder}.position.tables.0"] = stack.embed_positions.weight[OFFSET:]
        mapped |= linear(stack.layernorm_embedding, f"{side}.input_norm")
        for i, layer in enumerate(stack.layers):
            name = f"{side}.blocks.{i}"
            mapped |= bart_attention(layer.self_attn, f"{name}.attention")
            mapped |= linear(layer.self_attn_layer_norm, f"{name}.attention_norm")
            if stack is theirs.model.decoder:
                mapped |= bart_attention(layer.encoder_attn, f"{name}.cross_attention")
                mapped |= linear(layer.encoder_attn_layer_norm, f"{name}.cross_norm")
            mapped |= linear(layer.fc1, f"{name}.mlp.up_proj") | linear(
                layer.fc2, f"{name}.mlp.down_proj"
            )
            mapped |= linear(layer.final_layer_norm, f"{name}.mlp_norm")
    return mapped


def pair(generating=False):
    reference = theirs()
    if generating:
        scattered(reference.model.decoder.layers[-1].final_layer_norm)
        nn.init.normal_(reference.model.decoder.embed_positions.weight, std=0.3)
    model = encoder_decoder(
        "BART",
        TokenSpec(vocab_size=VOCAB),
        VOCAB,
        head=lambda embedder: TiedHead(embedder.table),
        position=partial(Learned, sizes=[CONTEXT]),
    )
    model.load_state_dict(weights(reference))
    return reference, model


@pytest.mark.parametrize(
    ("source_lengths", "lengths"), [([17, 17], [13, 13]), ([19, 5, 11], [7, 17, 3])]
)
def test_logits_of_bart(source_lengths, lengths):
    reference, model = pair()
    sides = (reference.model.encoder, reference.model.decoder)
    assert_every_value_is_mapped(
        model, reference, unused=[x.embed_positions.weight[:OFFSET] for x in sides]
    )
    assert_same_logits_from_a_source(model, reference, source_lengths, lengths)


def test_generation_of_bart():
    reference, model = pair(generating=True)
    source = texts([19, 5, 11], VOCAB)
    sources = [{"input_ids": ids[None, real]} for ids, real in zip(source.content, source.valid)]
    prompts = [torch.tensor([VOCAB - 2, *ids]) for ids in ([], [3, 1, 4], [1, 5])]
    assert_same_generation(model, reference, prompts, source=source, inputs=sources)
