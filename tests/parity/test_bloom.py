"""Our Transformer equals Hugging Face's BLOOM: ALiBi, a norm of the embeddings, tanh-approximated GELU.

h heads · c channels of one head · d width
"""

import pytest
import torch
from einops import rearrange
from parity import linear, randomized
from transformers import BloomConfig, BloomForCausalLM
from whole import (
    PADDED_OR_NOT,
    assert_every_value_is_mapped,
    assert_same_generation,
    assert_same_logits,
    decoder,
    scattered,
)

VOCAB, DIM, DEPTH, HEADS = 29, 24, 3, 6


def theirs():
    config = BloomConfig(
        vocab_size=VOCAB, hidden_size=DIM, n_layer=DEPTH, n_head=HEADS, bos_token_id=0, eos_token_id=0,
        attn_implementation="eager",
    )  # fmt: skip
    return randomized(BloomForCausalLM(config))


def weights(theirs):
    """Their weights under our names."""
    model = theirs.transformer
    mapped = {
        f"{name}.weight": model.word_embeddings.weight
        for name in ("embedder.content", "head.table")
    }
    mapped |= linear(model.word_embeddings_layernorm, "backbone.input_norm") | linear(
        model.ln_f, "backbone.norm"
    )
    for i, block in enumerate(model.h):
        name, qkv = f"backbone.blocks.{i}", block.self_attention.query_key_value.state_dict()
        # theirs stand head by head, ours queries, keys and values one after another
        for kind, by_head in qkv.items():
            rows = rearrange(by_head, "(h three c) ... -> (three h c) ...", h=HEADS, three=3)
            mapped[f"{name}.attention.qkv_proj.{kind}"] = rows
        mapped |= linear(block.self_attention.dense, f"{name}.attention.out_proj")
        mapped |= linear(block.mlp.dense_h_to_4h, f"{name}.mlp.up_proj")
        mapped |= linear(block.mlp.dense_4h_to_h, f"{name}.mlp.down_proj")
        mapped |= linear(block.input_layernorm, f"{name}.attention_norm")
        mapped |= linear(block.post_attention_layernorm, f"{name}.mlp_norm")
    return mapped


def pair(generating=False):
    reference, model = theirs(), decoder("BLOOM", VOCAB, tied=True)
    if generating:
        scattered(reference.transformer.ln_f)
        with torch.no_grad():  # what was attended to counts more than the last id
            for block in reference.transformer.h:
                block.self_attention.dense.weight.mul_(3.0)
    model.load_state_dict(weights(reference))
    return reference, model


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_logits_of_bloom(lengths):
    reference, model = pair()
    assert_every_value_is_mapped(model, reference)
    assert_same_logits(model, reference, lengths)


def test_generation_of_bloom():
    reference, model = pair(generating=True)
    assert_same_generation(model, reference, [torch.randint(VOCAB, (n,)) for n in (5, 1, 9)])
