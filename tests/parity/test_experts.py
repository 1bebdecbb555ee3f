"""Our Transformer equals Hugging Face's Mixtral and Qwen3-MoE: mixtures of experts.

h heads · c channels of one head · r channel pairs · d width
"""

import pytest
import torch
from einops import rearrange
from parity import linear, linears, randomized
from torch import nn
from transformers import MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from whole import (
    PADDED_OR_NOT,
    assert_every_value_is_mapped,
    assert_same_generation,
    assert_same_gradients,
    assert_same_logits,
    decoder,
)

VOCAB, DEPTH, EXPERTS = 29, 3, 5
SIZES = {
    "vocab_size": VOCAB, "num_hidden_layers": DEPTH, "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "attn_implementation": "eager", "experts_implementation": "eager",
}  # fmt: skip


def mixtral():
    return MixtralForCausalLM(
        MixtralConfig(
            hidden_size=24, intermediate_size=19, num_attention_heads=4, num_key_value_heads=2,
            num_local_experts=EXPERTS, num_experts_per_tok=2, **SIZES,
        )
    )  # fmt: skip


def qwen3_moe(normalize_gates=False, **settings):
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            hidden_size=28, moe_intermediate_size=17, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
            num_experts=EXPERTS, num_experts_per_tok=3, norm_topk_prob=normalize_gates, **SIZES, **settings,
        )
    )  # fmt: skip


def paired(module, head_dim):
    """A projection or norm of channels rotated in pairs (i, i + r), as one whose pairs are (2 i, 2 i + 1)."""
    weight = rearrange(module.weight, "(h two r) ... -> (h r two) ...", two=2, r=head_dim // 2)
    if weight.ndim == 1:
        return weight
    out = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    out.load_state_dict({"weight": weight})
    return out


def mixture(theirs, name):
    mapped = {f"{name}.router.weight": theirs.gate.weight}
    for e in range(EXPERTS):
        mapped[f"{name}.experts.{e}.gate_up_proj.weight"] = theirs.experts.gate_up_proj[e]
        mapped[f"{name}.experts.{e}.down_proj.weight"] = theirs.experts.down_proj[e]
    return mapped


def dense(theirs, name):
    mapped = linears([theirs.gate_proj, theirs.up_proj], f"{name}.gate_up_proj")
    return mapped | linear(theirs.down_proj, f"{name}.down_proj")


def weights(theirs):
    """Their weights under our names."""
    model = theirs.model
    mapped = {
        "embedder.content.weight": model.embed_tokens.weight,
        "head.linear.weight": theirs.lm_head.weight,
    }
    mapped |= linear(model.norm, "backbone.norm")
    for i, layer in enumerate(model.layers):
        name, attention, mlp = f"backbone.blocks.{i}", layer.self_attn, layer.mlp
        c = attention.head_dim
        qkv = [paired(attention.q_proj, c), paired(attention.k_proj, c), attention.v_proj]
        mapped |= linears(qkv, f"{name}.attention.qkv_proj") | linear(
            attention.o_proj, f"{name}.attention.out_proj"
        )
        if hasattr(attention, "q_norm"):
            mapped[f"{name}.attention.query_norm.weight"] = paired(attention.q_norm, c)
            mapped[f"{name}.attention.key_norm.weight"] = paired(attention.k_norm, c)
        mapped |= (
            mixture(mlp, f"{name}.mlp") if hasattr(mlp, "experts") else dense(mlp, f"{name}.mlp")
        )
        mapped |= linear(layer.input_layernorm, f"{name}.attention_norm")
        mapped |= linear(layer.post_attention_layernorm, f"{name}.mlp_norm")
    return mapped


QWEN3_BLOCK = {
    "norm": {"type": "RMSNorm", "eps": 1e-6},
    "attention": {
        "num_kv_heads": 2,
        "head_dim": 10,
        "bias": False,
        "qk_norm": {"type": "RMSNorm", "eps": 1e-6},
    },
}
WITH_EXPERTS = QWEN3_BLOCK | {
    "mlp": {
        "type": "MixtureOfExperts", "num_experts": EXPERTS, "top_k": 3, "normalize_gates": False,
        "expert": {"type": "GatedMLP", "width": 17},
    }
}  # fmt: skip
DENSE = QWEN3_BLOCK | {"mlp": {"type": "GatedMLP", "width": 31}}

FAMILIES = {
    "Mixtral": (mixtral, "Mixtral", {}),
    "Qwen3-MoE": (qwen3_moe, "Qwen3-MoE", {}),
    "Qwen3-MoE, normalised gates": (
        lambda: qwen3_moe(normalize_gates=True),
        "Qwen3-MoE",
        {"block.mlp.normalize_gates": True},
    ),
    "Qwen3-MoE, a dense layer between": (
        lambda: qwen3_moe(mlp_only_layers=[1], intermediate_size=31),
        "Qwen3-MoE",
        {"block": [WITH_EXPERTS, DENSE, WITH_EXPERTS]},
    ),
}


def pair(name, std=0.1):
    build, name, overrides = FAMILIES[name]
    reference = randomized(build(), std)
    model = decoder(name, VOCAB, tied=False, overrides=overrides)
    model.load_state_dict(weights(reference))
    return reference, model


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
@pytest.mark.parametrize("name", FAMILIES)
def test_logits_with_experts(name, lengths):
    reference, model = pair(name)
    assert_every_value_is_mapped(model, reference)
    assert_same_logits(model, reference, lengths)


def test_the_comparison_notices_how_gates_are_normalised():
    reference, _ = pair("Qwen3-MoE")
    _, other = pair("Qwen3-MoE, normalised gates")
    other.load_state_dict(weights(reference))
    with pytest.raises(AssertionError, match="not close"):
        assert_same_logits(other, reference, [13, 13])


@pytest.mark.parametrize("name", FAMILIES)
def test_generation_with_experts(name):
    reference, model = pair(name, std=0.3)
    assert_same_generation(model, reference, [torch.randint(VOCAB, (n,)) for n in (5, 1, 9)])


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_gradients_of_mixtral(lengths):
    reference, model = pair("Mixtral")
    assert_same_gradients(model, reference, weights, lengths)
