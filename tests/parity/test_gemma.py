"""Our Transformer equals Hugging Face's Gemma 2 and Gemma 3 (text): norms before and after each branch, local and full
layers in turn, bounded scores or normalised queries and keys.

b batch · n tokens · v vocabulary
"""

from functools import reduce

import pytest
import torch
from parity import randomized, texts
from transformers import Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig
from weights import llama_like
from whole import (
    PADDED_OR_NOT,
    assert_same_generation,
    assert_same_gradients,
    assert_same_logits,
    decoder,
)

from seqkit.nn.attention.sliding_window import SlidingWindowAttention
from seqkit.nn.heads import TiedHead

VOCAB, DIM, INNER, HEADS, HEAD_DIM, WINDOW, EPS = 29, 36, 43, 4, 10, 5, 1e-6
FINAL_SOFTCAP = 3.0
NORMS = {
    "attention_norm": "input_layernorm",
    "attention_residual.norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_residual.norm": "post_feedforward_layernorm",
}


SIZES = {
    "vocab_size": VOCAB, "hidden_size": DIM, "intermediate_size": INNER, "num_attention_heads": HEADS,
    "num_key_value_heads": 2, "head_dim": HEAD_DIM, "sliding_window": WINDOW, "rms_norm_eps": EPS,
    "pad_token_id": None, "eos_token_id": None, "bos_token_id": None, "attn_implementation": "eager",
}  # fmt: skip


def gemma2(std=0.1):
    config = Gemma2Config(
        **SIZES, num_hidden_layers=4, query_pre_attn_scalar=25, attn_logit_softcapping=0.7,
        final_logit_softcapping=FINAL_SOFTCAP,
    )  # fmt: skip
    return randomized(Gemma2ForCausalLM(config), std)


def gemma3(std=0.1, query_pre_attn_scalar=HEAD_DIM):
    rotary = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
    }
    config = Gemma3TextConfig(
        **SIZES,
        num_hidden_layers=2,
        layer_types=[*rotary],
        query_pre_attn_scalar=query_pre_attn_scalar,
        rope_parameters=rotary,
    )
    return randomized(Gemma3ForCausalLM(config), std)


THEIRS = {"Gemma 2": gemma2, "Gemma 3": gemma3}


def weights(theirs):
    """Their weights under our names."""
    # it is the table
    left = {name: w for name, w in theirs.state_dict().items() if name != "lm_head.weight"}
    return llama_like(left, HEAD_DIM, NORMS)


def ours(name, overrides=None):
    model = decoder(name, VOCAB, tied=True, overrides=overrides)
    softcap = FINAL_SOFTCAP if name == "Gemma 2" else None
    model.head = TiedHead(model.embedder.table, softcap=softcap)
    return model


def pair(name):
    reference, model = THEIRS[name](), ours(name)
    model.load_state_dict(weights(reference))
    return reference, model


@pytest.mark.parametrize("name", THEIRS)
def test_as_many_parameters(name):
    reference, model = pair(name)
    assert model.num_parameters == reference.num_parameters()


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
@pytest.mark.parametrize("name", THEIRS)
def test_logits_of_gemma(name, lengths):
    assert_same_logits(*reversed(pair(name)), lengths)


LOCAL = {"type": "Rotary", "base": 100}
FULL = {"type": "Rotary", "base": 1000, "scaling": {"type": "LinearScaling", "factor": 8.0}}


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("Gemma 2", {"position": LOCAL}),
        ("Gemma 3", {"position": {"type": "Rotary", "base": 100}}),
        ("Gemma 3", {"position": [LOCAL, {"type": "Rotary", "base": 1000}]}),
        ("Gemma 3", {"position": [LOCAL, {**FULL, "base": 100}]}),
    ],
)
def test_the_comparison_notices_another_composition(name, overrides):
    reference, other = THEIRS[name](), ours(name, overrides)
    other.load_state_dict(weights(reference))
    with pytest.raises(AssertionError, match="not close"):
        assert_same_logits(other, reference, [13, 13])


EVEN, ODD = slice(0, None, 2), slice(1, None, 2)  # the local and the full layers


@pytest.mark.parametrize(
    ("name", "layers", "setting", "value"),
    [
        ("Gemma 2", EVEN, "size", WINDOW + 1),
        ("Gemma 2", EVEN, "size", 100),
        ("Gemma 2", EVEN, "attend.softcap", None),
        ("Gemma 2", ODD, "softcap", None),
        ("Gemma 2", EVEN, "attend.temperature", HEAD_DIM**0.5),
        ("Gemma 2", ODD, "temperature", HEAD_DIM**0.5),
        ("Gemma 3", EVEN, "size", WINDOW + 1),
    ],
)
def test_the_comparison_notices_another_setting_of_attention(name, layers, setting, value):
    reference, other = pair(name)
    for block in other.backbone.blocks[layers]:
        *inner, name = setting.split(".")
        holder = reduce(getattr, inner, block.attention.mechanism)
        assert getattr(holder, name) != value
        setattr(holder, name, value)
    with pytest.raises(AssertionError, match="not close"):
        assert_same_logits(other, reference, [13, 13])


def test_the_comparison_notices_a_gemma_2_whose_layers_are_all_local():
    reference, other = pair("Gemma 2")
    for block in other.backbone.blocks[ODD]:
        block.attention.mechanism = other.backbone.blocks[0].attention.mechanism
    with pytest.raises(AssertionError, match="not close"):
        assert_same_logits(other, reference, [13, 13])


def test_gemma_3_with_scores_divided_by_another_root():
    """query_pre_attn_scalar is not the width of a head (27B)."""
    reference, model = gemma3(query_pre_attn_scalar=23), ours("Gemma 3")
    for block in model.backbone.blocks:
        kind, others = type(block.attention.mechanism), {}
        if kind is SlidingWindowAttention:
            others = {"size": WINDOW}
        block.attention.mechanism = kind(HEADS, HEAD_DIM, temperature=23**0.5, **others)
    model.load_state_dict(weights(reference))
    assert_same_logits(model, reference, [13, 13])


@pytest.mark.parametrize("name", THEIRS)
def test_generation_of_gemma(name):
    reference, model = THEIRS[name](std=0.5), ours(name)
    with torch.no_grad():
        reference.model.embed_tokens.weight.mul_(0.1)  # else a tied head says each token again
    model.load_state_dict(weights(reference))
    assert_same_generation(model, reference, [torch.randint(VOCAB, (n,)) for n in (7, 1, 11)])


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_gradients_of_gemma_2(lengths):
    reference, model = pair("Gemma 2")
    assert_same_gradients(model, reference, weights, lengths)


def test_gemma_3_in_bfloat16_is_as_near_to_single_precision_as_theirs():
    errors = torch.zeros(2)  # ours, theirs; of several models, since one alone leaves it to chance
    for _ in range(4):
        reference, model = pair("Gemma 3")
        batch = texts([41] * 8, VOCAB)
        with torch.no_grad():
            right = reference(batch.content).logits
            got = (
                model.to(torch.bfloat16)(batch),
                reference.to(torch.bfloat16)(batch.content).logits,
            )
        assert got[0].dtype == torch.bfloat16
        errors += torch.stack([(x - right).abs().mean() for x in got])
    assert errors[0] <= 1.25 * errors[1]
