"""Our Transformer equals Hugging Face's Phi-3: a factor for each channel pair, windows, projections side by side."""

import pytest
import torch
from parity import randomized
from transformers import Phi3Config, Phi3ForCausalLM
from weights import LLAMA_NORMS, in_pairs, num_layers, take
from whole import (
    PADDED_OR_NOT,
    assert_every_value_is_mapped,
    assert_same_generation,
    assert_same_logits,
    decoder,
)

VOCAB, HEADS, HEAD_DIM, ORIGINAL = 29, 3, 8, 16
SHORT, LONG = [1.0, 1.05, 1.3, 1.9], [1.1, 1.9, 4.3, 31.0]


def theirs(std=0.1):
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": SHORT,
        "long_factor": LONG,
    }
    config = Phi3Config(
        vocab_size=VOCAB, hidden_size=HEADS * HEAD_DIM, intermediate_size=43, num_hidden_layers=3,
        num_attention_heads=HEADS, num_key_value_heads=1, rms_norm_eps=1e-5, sliding_window=11,
        max_position_embeddings=8 * ORIGINAL, original_max_position_embeddings=ORIGINAL,
        rope_parameters={**rope, "original_max_position_embeddings": ORIGINAL}, bos_token_id=None, eos_token_id=None,
        pad_token_id=None, attn_implementation="eager",
    )  # fmt: skip
    return randomized(Phi3ForCausalLM(config), std)


def weights(theirs):
    """Their weights under our names; keys are the head after those of the queries."""
    left = theirs.state_dict()
    mapped = take(left, ["model.embed_tokens"], "embedder.content") | take(
        left, ["lm_head"], "head.linear"
    )
    for i in range(num_layers(left)):
        layer, name = f"model.layers.{i}", f"backbone.blocks.{i}"
        qkv = left.pop(f"{layer}.self_attn.qkv_proj.weight").split(
            [(HEADS + 1) * HEAD_DIM, HEAD_DIM]
        )
        mapped[f"{name}.attention.qkv_proj.weight"] = torch.cat(
            [in_pairs(qkv[0], HEAD_DIM), qkv[1]]
        )
        mapped |= take(left, [f"{layer}.self_attn.o_proj"], f"{name}.attention.out_proj")
        for kind in ("gate_up_proj", "down_proj"):
            mapped |= take(left, [f"{layer}.mlp.{kind}"], f"{name}.mlp.{kind}")
        for ours, norm in LLAMA_NORMS.items():
            mapped |= take(left, [f"{layer}.{norm}"], f"{name}.{ours}")
    mapped |= take(left, ["model.norm"], "backbone.norm")
    assert not left, f"not mapped: {sorted(left)}"
    return mapped


def pair(factors=LONG, std=0.1, **overrides):
    changes = {"position.scaling.factors": factors} | {
        name.replace("__", "."): x for name, x in overrides.items()
    }
    reference, model = theirs(std), decoder("Phi-3", VOCAB, tied=False, overrides=changes)
    model.load_state_dict(weights(reference))
    return reference, model


@pytest.mark.parametrize(
    ("factors", "lengths"),
    [(LONG, [17, 17]), (LONG, [37, 71, 19]), (SHORT, [16, 16]), (SHORT, PADDED_OR_NOT[0])],
)
def test_logits_of_phi_3(factors, lengths):
    reference, model = pair(factors)
    assert_every_value_is_mapped(model, reference)
    assert_same_logits(model, reference, lengths)


@pytest.mark.parametrize("lengths", [[16, 16], [17, 17]])
def test_the_comparison_notices_the_other_list(lengths):
    reference, other = pair(SHORT if lengths[0] > ORIGINAL else LONG)
    with pytest.raises(AssertionError, match="not close"):
        assert_same_logits(other, reference, lengths)


def test_the_comparison_notices_another_attention_factor():
    reference, other = pair(position__scaling__attention_factor=1.0)
    with pytest.raises(AssertionError, match="not close"):
        assert_same_logits(other, reference, [17, 17])


def test_generation_of_phi_3_from_prompts_that_are_long_already():
    reference, model = pair(std=0.3)
    assert_same_generation(model, reference, [torch.randint(VOCAB, (n,)) for n in (17, 31, 23)])
