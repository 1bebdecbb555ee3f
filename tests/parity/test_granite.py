"""Our Transformer equals Hugging Face's Granite: LLaMA with constant factors of embeddings, branches and scores."""

import pytest
import torch
from parity import randomized
from transformers import GraniteConfig, GraniteForCausalLM
from weights import llama_like
from whole import (
    PADDED_OR_NOT,
    assert_every_value_is_mapped,
    assert_same_generation,
    assert_same_logits,
    decoder,
)

from seqkit.nn.heads import TiedHead

VOCAB, DIM, HEAD_DIM, LOGITS_SCALING = 29, 30, 10, 0.7


def theirs(std=0.1):
    config = GraniteConfig(
        vocab_size=VOCAB, hidden_size=DIM, intermediate_size=43, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=1, rms_norm_eps=1e-6, tie_word_embeddings=True, embedding_multiplier=12.0,
        residual_multiplier=0.22, attention_multiplier=1 / 6, logits_scaling=LOGITS_SCALING, bos_token_id=None,
        eos_token_id=None, pad_token_id=None, attn_implementation="eager",
    )  # fmt: skip
    return randomized(GraniteForCausalLM(config), std)


def pair(std=0.1, overrides=None):
    reference, model = theirs(std), decoder("Granite", VOCAB, tied=True, overrides=overrides)
    model.head = TiedHead(model.embedder.table, scale=1 / LOGITS_SCALING)
    # it is the table
    left = {name: w for name, w in reference.state_dict().items() if name != "lm_head.weight"}
    model.load_state_dict(llama_like(left, HEAD_DIM))
    return reference, model


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_logits_of_granite(lengths):
    reference, model = pair()
    assert_every_value_is_mapped(model, reference)
    assert_same_logits(model, reference, lengths)


@pytest.mark.parametrize(
    "overrides",
    [
        {"block.residual.scale": 1.0},
        {"block.residual.scale": 0.23},
        {"block.attention.mechanism.temperature": None},
    ],
)
def test_the_comparison_notices_another_constant(overrides):
    reference, other = pair(overrides=overrides)
    with pytest.raises(AssertionError, match="not close"):
        assert_same_logits(other, reference, [13, 13])


def test_the_comparison_notices_another_scale_of_embeddings():
    reference, other = pair()
    other.embedder.scale = 1.0
    with pytest.raises(AssertionError, match="not close"):
        assert_same_logits(other, reference, [13, 13])


def test_generation_of_granite():
    reference, model = pair(std=0.5)
    for table in (reference.model.embed_tokens, model.embedder.content):
        table.weight.data.mul_(0.03)  # else a tied head says each token again
    assert_same_generation(model, reference, [torch.randint(VOCAB, (n,)) for n in (7, 1, 11)])
