"""LLaMA and those built alike: Mistral, Qwen2, Qwen3, SmolLM3 and OLMo 2 (transformers 5.23)."""

from __future__ import annotations

from typing import Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import ACTIVATIONS, Family, Head, Settings, depth_of
from seqkit.pretrained.rows import Pairs, Rows, alias, layers, module, tensor


def _model(config: ConfigFile) -> Settings:
    """They differ in norms, windows, biases and positions."""
    kind = config.model_type
    dim, (heads, kv_heads, head_dim) = config.size("hidden_size"), _heads(config)
    depth = depth_of(config)
    norm = {"type": "RMSNorm", "eps": config.number("rms_norm_eps", 1e-6)}
    has_bias = config.get("attention_bias", False) is True
    config.must_be(False, "mlp_bias")
    config.must_be(None, "clip_qkv")
    config.get("max_position_embeddings")  # rotary positions have no table
    attention: Settings = {
        "num_kv_heads": kv_heads, "bias": has_bias, "head_dim": head_dim,
    }  # fmt: skip
    if kind == "qwen2":
        attention |= {"bias": True, "out_bias": False}
    if kind in ("qwen3", "olmo2"):
        attention |= {"qk_norm": norm, "qk_norm_level": "head" if kind == "qwen3" else "all"}
    dropout = config.number("attention_dropout", 0.0)
    block: Settings = {
        "type": "PreNormBlock", "norm": norm,
        "mlp": {
            "type": "GatedMLP", "width": config.size("intermediate_size"),
            "activation": config.one_of("hidden_act", ACTIVATIONS, "silu"),
        },
    }  # fmt: skip
    if kind == "olmo2":  # norms of what the branches give, not of what they get
        block |= {"norm": "Identity", "residual": {"norm": norm}}
    sizes, rotary = _windows(config, depth), _rotary(config)
    blocks = []
    for size in sizes:
        window = {"type": "SlidingWindowAttention", "size": size}
        mechanism = {"type": "ScaledDotProductAttention"} if size is None else window
        blocks.append({**block, "attention": {**attention, "mechanism": {**mechanism, "dropout": dropout}}})
    positions = [rotary if one else None for one in _with_positions(config, depth)]
    return {
        "position": "NoPosition",
        "dropout": 0.0,
        "backbone": {
            "type": "Transformer", "dim": dim, "depth": depth, "num_heads": heads, "causal": True, "norm": norm,
            "dropout": 0.0, "position": positions[0] if _are_alike(positions) else positions,
            "block": blocks[0] if _are_alike(blocks) else blocks,
        },
    }  # fmt: skip


def _heads(config: ConfigFile) -> tuple[int, int, int]:
    """Heads, heads of keys and values, and channels of a head."""
    heads = config.size("num_attention_heads")
    kv_heads = heads if config.get("num_key_value_heads") is None else config.size("num_key_value_heads")
    head_dim = config.size("hidden_size") // heads if config.get("head_dim") is None else config.size("head_dim")
    return heads, kv_heads, head_dim


def _rotary(config: ConfigFile) -> Settings:
    """Rotary positions: `rope_parameters` as of transformers 5, or `rope_theta` and `rope_scaling`, as before."""
    base, scaling = config.get("rope_theta", 10_000.0), config.get("rope_scaling")
    given = dict(config.get("rope_parameters") or scaling or {})
    kind = given.pop("rope_type", given.pop("type", "default"))
    given.pop("type", None)
    rotary: Settings = {"type": "Rotary", "base": given.pop("rope_theta", base)}
    if given.pop("partial_rotary_factor", 1.0) != 1.0 or kind not in ("default", "linear", "llama3"):
        raise config.refused(
            "rope_scaling" if scaling else "rope_parameters", "default, linear or llama3, of all channels"
        )
    if kind == "linear":
        rotary["scaling"] = {"type": "LinearScaling", "factor": given.pop("factor")}
    if kind == "llama3":
        names = ("factor", "low_freq_factor", "high_freq_factor")
        most = given.pop("original_max_position_embeddings")
        rotary["scaling"] = {
            "type": "LLaMA3Scaling", "original_max_tokens": most, **{name: given.pop(name) for name in names}
        }  # fmt: skip
    if given:
        raise config.refused("rope_scaling" if scaling else "rope_parameters", f"without {', '.join(sorted(given))}")
    return rotary


def _windows(config: ConfigFile, depth: int) -> list[int | None]:
    """Tokens that each layer attends to; None: all."""
    size, used = config.get("sliding_window"), config.get("use_sliding_window", config.model_type == "mistral")
    first, kinds = config.get("max_window_layers", depth), config.get("layer_types")
    if not used or size is None:
        return [None] * depth
    if kinds is None:
        kinds = [
            "sliding_attention" if i >= first or config.model_type == "mistral" else "full_attention"
            for i in range(depth)
        ]
    if len(kinds) != depth or not {*kinds} <= {"full_attention", "sliding_attention"}:
        raise config.refused("layer_types", "full_attention or sliding_attention for each layer")
    return [size if kind == "sliding_attention" else None for kind in kinds]


def _with_positions(config: ConfigFile, depth: int) -> list[bool]:
    """Whether each layer has positions (SmolLM3 has layers without)."""
    every, given = config.get("no_rope_layer_interval", 4), config.get("no_rope_layers")
    if config.model_type != "smollm3":
        return [True] * depth
    return [bool(one) for one in given] if given else [(i + 1) % every != 0 for i in range(depth)]


def _are_alike(values: list[Any]) -> bool:
    return all(value == values[0] for value in values)


def _layer(config: ConfigFile) -> Rows:
    heads, kv_heads, head_dim = _heads(config)
    pairs, kv = Pairs(head_dim), kv_heads * head_dim
    return [
        *module(
            "attention.qkv_proj", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
            sizes=(heads * head_dim, kv, kv), changes=(pairs, pairs, None),
        ),
        *module("attention.query_norm", "self_attn.q_norm", whole=pairs),
        *module("attention.key_norm", "self_attn.k_norm", whole=pairs),
        *module("attention.out_proj", "self_attn.o_proj"),
        *module("mlp.gate_up_proj", "mlp.gate_proj", "mlp.up_proj"),
        *module("mlp.down_proj", "mlp.down_proj"),
    ]  # fmt: skip


def _table(config: ConfigFile) -> Rows:
    norms = [*module("attention_norm", "input_layernorm"), *module("mlp_norm", "post_attention_layernorm")]
    if config.model_type == "olmo2":
        norms = [
            *module("attention_residual.norm", "post_attention_layernorm"),
            *module("mlp_residual.norm", "post_feedforward_layernorm"),
        ]
    return [
        *tensor("embedder.content.weight", "embed_tokens.weight"),
        *layers(depth_of(config), "backbone.blocks.{}.", "layers.{}.", [*_layer(config), *norms]),
        *module("backbone.norm", "norm"),
    ]


def _is_tied(config: ConfigFile) -> bool:
    return config.get("tie_word_embeddings", False) is True


def _head(config: ConfigFile) -> Rows:
    if _is_tied(config):
        return alias("embedder.content.weight", "lm_head.weight")
    return tensor("head.linear.weight", "lm_head.weight")


NEXT_TOKEN = Head(
    ("ForCausalLM",), lambda config: {"type": "NextToken", "tied": _is_tied(config), "bias": False}, _head
)
LLAMA = Family(_model, _table, "model.", {"NextToken": NEXT_TOKEN}, ("score.", "lm_head."))
