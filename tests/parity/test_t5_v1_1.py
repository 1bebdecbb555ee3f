"""Our EncoderDecoder equals Hugging Face's T5 v1.1: gated GELU, heads not dim / num_heads wide, an untied head.

Their encoder is the deeper one, since their cache of a deeper decoder fails in `generate` (transformers 5.23)."""

import pytest
import torch
from parity import attention, linear, linears, randomized, texts
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration
from whole import (
    assert_every_value_is_mapped,
    assert_same_generation,
    assert_same_logits_from_a_source,
    encoder_decoder,
)

from seqkit.interfaces import TokenSpec
from seqkit.nn.heads import TokenHead

VOCAB, DIM, HEADS, HEAD_DIM = 29, 24, 3, 10


def theirs(std=0.1):
    config = T5Config(
        vocab_size=VOCAB, d_model=DIM, d_kv=HEAD_DIM, d_ff=37, num_layers=3, num_decoder_layers=2, num_heads=HEADS,
        relative_attention_num_buckets=8, relative_attention_max_distance=11, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, decoder_start_token_id=VOCAB - 2,
        attn_implementation="eager",
    )  # fmt: skip
    reference = T5ForConditionalGeneration(config)
    # though transformers 5.23 ties the head whatever the configuration says
    assert not config.scale_decoder_outputs
    reference.lm_head.weight = nn.Parameter(torch.randn(VOCAB, DIM) * DIM**-0.5)
    return randomized(reference, std)


def t5_attention(theirs, name):
    return attention(theirs.q, theirs.k, theirs.v, theirs.o, name)


def weights(theirs, ours):
    """Their weights under our names."""
    mapped = {
        f"{name}.content.weight": theirs.shared.weight for name in ("source_embedder", "embedder")
    }
    mapped |= linear(theirs.lm_head, "head.linear")
    for side, stack in (("backbone.encoder", theirs.encoder), ("backbone.decoder", theirs.decoder)):
        table = next(name for name in ours.state_dict() if name.startswith(f"{side}.position"))
        mapped[table] = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        mapped |= linear(stack.final_layer_norm, f"{side}.norm")
        for i, block in enumerate(stack.block):
            name, (self_attention, *cross_attention, feed_forward) = (
                f"{side}.blocks.{i}",
                block.layer,
            )
            mapped |= t5_attention(self_attention.SelfAttention, f"{name}.attention")
            mapped |= linear(self_attention.layer_norm, f"{name}.attention_norm")
            for layer in cross_attention:
                mapped |= t5_attention(layer.EncDecAttention, f"{name}.cross_attention")
                mapped |= linear(layer.layer_norm, f"{name}.cross_norm")
            mlp = feed_forward.DenseReluDense
            mapped |= linears([mlp.wi_0, mlp.wi_1], f"{name}.mlp.gate_up_proj") | linear(
                mlp.wo, f"{name}.mlp.down_proj"
            )
            mapped |= linear(feed_forward.layer_norm, f"{name}.mlp_norm")
    return mapped


def pair(std=0.1):
    reference = theirs(std)
    head = lambda embedder: TokenHead(embedder.dim, VOCAB, bias=False)  # noqa: E731
    model = encoder_decoder("T5 v1.1", TokenSpec(vocab_size=VOCAB), VOCAB, head=head)
    model.load_state_dict(weights(reference, model))
    return reference, model


@pytest.mark.parametrize(
    ("source_lengths", "lengths"), [([17, 17], [13, 13]), ([19, 5, 11], [7, 17, 3])]
)
def test_logits_of_t5_v1_1(source_lengths, lengths):
    reference, model = pair()
    assert_every_value_is_mapped(model, reference)
    assert_same_logits_from_a_source(model, reference, source_lengths, lengths)


def test_generation_of_t5_v1_1():
    reference, model = pair(std=0.3)
    source = texts([19, 5, 11], VOCAB)
    sources = [{"input_ids": ids[None, real]} for ids, real in zip(source.content, source.valid)]
    prompts = [torch.tensor([VOCAB - 2, *ids]) for ids in ([], [3, 1, 4], [1, 5])]
    assert_same_generation(model, reference, prompts, source=source, inputs=sources)
