"""LLaMA and the decoders of `decoder_kinds` (transformers 5.23): their settings, and the names of their weights.

h heads · c channels of one head
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.decoder_kinds import KINDS, Experts, Kind
from seqkit.pretrained.family import (
    ACTIVATIONS,
    TANH,
    Family,
    Head,
    Settings,
    depth_of,
    rotary_settings,
)
from seqkit.pretrained.rows import (
    Pairs,
    Rearranged,
    Rows,
    alias,
    below,
    layers,
    module,
    modules,
    tensor,
)


def _kind(config: ConfigFile) -> Kind:
    return KINDS[config.model_type]


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _model(config: ConfigFile) -> Settings:
    kind = _kind(config)
    dim = config.size("hidden_size")
    depth = depth_of(config)
    heads, _, _ = _heads(config)
    config.must_be(False, "qk_layernorm", "use_qk_norm")
    config.must_be(None, "clip_qkv")
    config.must_be(0.0, *{"resid_pdrop", "embd_pdrop"}.difference(kind.dropouts))
    for of_head in ("logit_scale", "logits_scaling", "final_logit_softcapping"):
        config.get(of_head)
    if config.get("use_bidirectional_attention"):
        raise config.refused("use_bidirectional_attention", "a causal model")
    norm = _norm(config)
    residual: Settings = {}
    if kind.norms in ("after", "both"):
        residual["norm"] = norm
    if (scale := config.number("residual_multiplier", 1.0)) != 1:
        residual["scale"] = scale
    block: Settings = {
        "type": "PreNormBlock",
        "norm": "Identity" if kind.norms == "after" else norm,
    }
    if kind.norms == "shared":
        block |= {"type": "ParallelBlock", "shared_norm": True}
    elif config.flag("use_parallel_residual", kind.parallel):
        if not kind.parallel:
            raise config.refused("use_parallel_residual", "false")
        block["type"] = "ParallelBlock"
    if residual:
        block["residual"] = residual
    attention = _attention(config)
    sizes = _windows(config, depth)
    blocks = [
        {**block, "attention": {**attention, "mechanism": _mechanism(config, size)}, "mlp": mlp}
        for size, mlp in zip(sizes, _mlps(config, depth), strict=True)
    ]
    of_embeddings, of_branches = kind.dropouts
    found: Settings = {"position": "NoPosition", "dropout": config.number(of_embeddings, 0.0)}
    if kind.embedding_scale:
        scale = dim**0.5
    else:
        scale = config.number("embedding_multiplier", 1.0)
    if scale != 1:
        found["embedding_scale"] = scale
    found["backbone"] = {
        "type": "Transformer",
        "dim": dim,
        "depth": depth,
        "num_heads": heads,
        "causal": True,
        "norm": norm,
        "dropout": config.number(of_branches, kind.dropout),
        "position": _one_if_alike(_positions(config, sizes)),
        "block": _one_if_alike(blocks),
    }
    return found


def _one_if_alike(values: list[Any]) -> Any:
    """The value of all layers where they have the same, else those of each."""
    if all(value == values[0] for value in values):
        return values[0]
    return values


def _norm(config: ConfigFile) -> Settings:
    kind = _kind(config)
    eps = config.positive(kind.eps_key, kind.eps) if kind.eps_key else kind.eps
    return {**kind.norm, "eps": eps}


def _flag(config: ConfigFile, key: str | bool, default: bool = False) -> bool:
    """Whether something is so, by a key, or always."""
    return key if isinstance(key, bool) else config.get(key, default) is True


def _heads(config: ConfigFile) -> tuple[int, int, int]:
    """Heads, heads of keys and values, and channels of a head."""
    kind = _kind(config)
    heads = config.size("num_attention_heads")
    kv_heads = heads
    if config.get("num_key_value_heads", kind.kv_heads) is not None:
        kv_heads = config.size("num_key_value_heads", kind.kv_heads)
    if config.get("head_dim", kind.head_dim) is None:
        return heads, kv_heads, config.size("hidden_size") // heads
    return heads, kv_heads, config.size("head_dim", kind.head_dim)


def _attention(config: ConfigFile) -> Settings:
    kind = _kind(config)
    _, kv_heads, head_dim = _heads(config)
    bias = _flag(config, kind.bias, kind.biased)
    found: Settings = {"num_kv_heads": kv_heads, "bias": bias, "head_dim": head_dim}
    if kind.out_bias is not None:
        found["out_bias"] = _flag(config, kind.out_bias)
    if kind.qk_norm:
        found |= {"qk_norm": _norm(config), "qk_norm_level": kind.qk_norm}
    return found


def _mechanism(config: ConfigFile, size: int | None) -> Settings:
    """Attention to all tokens before, or to `size` of them."""
    found: Settings = {"type": "ScaledDotProductAttention"}
    if size is not None:
        found = {"type": "SlidingWindowAttention", "size": size}
    found["dropout"] = config.number("attention_dropout", _kind(config).dropout)
    *_, head_dim = _heads(config)
    usual = 256 if config.model_type in ("gemma2", "gemma3_text") else head_dim
    divisor = config.number("query_pre_attn_scalar", usual) ** 0.5
    if config.model_type.startswith("granite"):
        divisor = 1 / config.number("attention_multiplier", 1.0)
    if divisor != head_dim**0.5:
        found["temperature"] = divisor
    if config.model_type == "gemma3_text":
        # transformers keeps the key, and applies none
        config.must_be(None, "attn_logit_softcapping")
    if (softcap := config.get("attn_logit_softcapping", _softcaps(config)[0])) is not None:
        found["softcap"] = softcap
    return found


def _softcaps(config: ConfigFile) -> tuple[float | None, float | None]:
    """Bounds of scores and logits where the file does not say them."""
    if config.model_type == "gemma2":
        return (50.0, 30.0)
    return (None, None)


def _mlps(config: ConfigFile, depth: int) -> list[Settings]:
    """The MLP of each layer, or its experts."""
    kind = _kind(config)
    activation = _activation(config)
    width = config.size("intermediate_size")
    bias = _flag(config, kind.mlp_bias, kind.biased and kind.mlp_bias == kind.bias)
    dense: Settings = {"activation": activation, "bias": bias}
    if kind.gated:
        dense |= {"type": "GatedMLP", "width": width}
    else:
        dense["ratio"] = width / config.size("hidden_size")
    if kind.experts is None:
        return [dense] * depth
    config.must_be(0.0, "router_jitter_noise")
    coefficient = config.number("router_aux_loss_coef", kind.experts.aux_loss)
    has_experts = _with_experts(config, depth)
    top_k = config.size("num_experts_per_tok", kind.experts.top_k)
    experts: Settings = {
        "type": "MixtureOfExperts",
        "num_experts": _num_experts(config, kind.experts),
        "top_k": top_k,
        "aux_loss_weight": 0.0,
        "expert": dense,
    }
    # theirs counts tokens of all layers together: top_k where balanced
    if config.get("output_router_logits", False):
        experts["aux_loss_weight"] = coefficient * top_k / max(sum(has_experts), 1)
    if kind.experts.normalize is None:
        by_default = config.model_type == "qwen3_next"
        experts["normalize_gates"] = config.get("norm_topk_prob", by_default) is True
    experts["expert"] = {**dense, "width": config.size(*kind.experts.width)}
    if top_k == 1 and experts.get("normalize_gates", True):
        raise config.refused(
            "num_experts_per_tok",
            "2 or more where gates are normalised: of one the gate would be 1",
        )
    return [experts if has else dense for has in has_experts]


def _activation(config: ConfigFile) -> Any:
    kind = _kind(config)
    if kind.activation == "hidden_activation" and config.get("hidden_activation") is None:
        return ACTIVATIONS[kind.default_activation]
    if config.model_type == "gemma":
        config.get("hidden_activation")  # older files have both; transformers 5.23 reads the other
        if config.get("hidden_act") == "gelu":  # official files say so, and mean the other
            return TANH
    return config.one_of(kind.activation, ACTIVATIONS, kind.default_activation)


def _num_experts(config: ConfigFile, experts: Experts) -> int:
    key = "num_experts" if config.get("num_experts") is not None else "num_local_experts"
    return config.size(key, experts.num)


def _with_experts(config: ConfigFile, depth: int) -> list[bool]:
    """Whether each layer has experts."""
    if config.model_type not in ("qwen3_moe", "qwen3_next"):
        return [_kind(config).experts is not None] * depth
    every = config.size("decoder_sparse_step", 1)
    dense = config.get("mlp_only_layers") or []
    return [i not in dense and (i + 1) % every == 0 for i in range(depth)]


def _windows(config: ConfigFile, depth: int) -> list[int | None]:
    """Tokens that each layer attends to; None: all."""
    kind = _kind(config)
    size = config.get("sliding_window", kind.window)
    kinds = config.get("layer_types")
    if config.model_type == "gemma2":
        # of official files, beside the names that count
        for unused in ("hidden_act", "sliding_window_size"):
            config.get(unused)
    if not (kind.windows or config.get("use_sliding_window")) or size is None:
        return [None] * depth
    if kinds is None:
        if config.model_type in ("smollm3", "qwen3_moe"):
            raise config.refused("use_sliding_window", "false, or with layer_types")
        key = "_sliding_window_pattern"
        if config.get(key) is None:
            key = "sliding_window_pattern"
        every = kind.every and config.size(key, kind.every)
        first = 0 if kind.windows else config.get("max_window_layers", 28)
        is_local = [(i + 1) % every != 0 if every else i >= first for i in range(depth)]
        kinds = ["sliding_attention" if one else "full_attention" for one in is_local]
    if len(kinds) != depth or not {*kinds} <= {"full_attention", "sliding_attention"}:
        raise config.refused("layer_types", "full_attention or sliding_attention for each layer")
    return [size if kind == "sliding_attention" else None for kind in kinds]


def _positions(config: ConfigFile, sizes: list[int | None]) -> list[Settings | None]:
    """Rotary positions of each layer, or None (some types have layers without)."""
    kind = _kind(config)
    if kind.rotary == "both":
        by_kind = _two_rotaries(config, kind)
        return [by_kind[size is not None] for size in sizes]
    rotary = rotary_settings(config, base=kind.base, share=kind.rotary_share)
    have = [True] * len(sizes)
    if kind.rotary == "local":
        is_global = config.model_type == "exaone4" and {*sizes} == {None}
        have = [size is not None or is_global for size in sizes]
    if config.model_type == "smollm3":
        every = config.get("no_rope_layer_interval", 4)
        have = config.get("no_rope_layers") or [(i + 1) % every != 0 for i in range(len(sizes))]
    return [rotary if has else None for has in have]


def _two_rotaries(config: ConfigFile, kind: Kind) -> list[Settings]:
    """Rotary positions of layers that attend to all tokens, and of local ones."""
    given = config.get("rope_parameters")
    usual = kind.base if config.model_type == "olmo3" else 10_000.0
    local = {"rope_theta": config.get("rope_local_base_freq", usual)}
    full = None
    if given:
        config.must_be(None, "rope_scaling")
        if {*given} != {"sliding_attention", "full_attention"}:
            raise config.refused(
                "rope_parameters", "those of sliding_attention and of full_attention"
            )
        local = given["sliding_attention"]
        full = given["full_attention"]
    elif "rope_type" not in (config.get("rope_scaling") or {"rope_type": "default"}):
        raise config.refused("rope_scaling", "with rope_type; transformers ignores it without")
    return [rotary_settings(config, full, base=kind.base), rotary_settings(config, local)]


# ── names of weights ──────────────────────────────────────────────────────────────────────────────────────────────────

AFTER = {
    "attention_residual.norm": "post_attention_layernorm",
    "mlp_residual.norm": "post_feedforward_layernorm",
}
NORMS: dict[str, dict[str, str | tuple[str, ...]]] = {
    "before": {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"},
    "shared": {"attention_norm": "input_layernorm", "mlp_norm": "input_layernorm"},
    "after": {**AFTER},
    "both": {
        **AFTER,
        "attention_norm": "input_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
    },
}


def _layer(config: ConfigFile, *, has_experts: bool) -> Rows:
    kind = _kind(config)
    heads, kv_heads, head_dim = _heads(config)
    turned = None
    if kind.rotary_share is not None:
        turned = int(head_dim * rotary_settings(config, share=kind.rotary_share).get("share", 1.0))
    pairs: Pairs | None = Pairs(head_dim, turned)
    kv = kv_heads * head_dim
    if kind.pairs_neighbours:
        pairs = None
    if kind.qkv == "apart":
        qkv = module(
            "attention.qkv_proj",
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
            sizes=(heads * head_dim, kv, kv),
            changes=(pairs, pairs, None),
        )
    else:
        both = Pairs(head_dim, turned, heads + kv_heads)
        qkv = module("attention.qkv_proj", "self_attn.qkv_proj", whole=both)
    if kind.qkv == "by_head":
        sort = Rearranged("(h three c) ... -> (three h c) ...", {"three": 3, "c": head_dim})
        qkv = [replace(row, changes=(sort,)) for row in qkv]
    rows = [
        *qkv,
        *module("attention.query_norm", "self_attn.q_norm", whole=pairs),
        *module("attention.key_norm", "self_attn.k_norm", whole=pairs),
        *module("attention.out_proj", "self_attn.o_proj"),
        *modules(NORMS[kind.norms]),
    ]
    if not has_experts:
        mlp = module("down_proj", "down_proj")
        if not kind.gated:
            mlp += module("up_proj", "up_proj")
        elif kind.joins_gate_up:
            mlp += module("gate_up_proj", "gate_up_proj")
        else:
            mlp += module("gate_up_proj", "gate_proj", "up_proj")
        return rows + below(mlp, "mlp.", "mlp.")
    assert kind.experts is not None
    *gate_up_of_expert, down = kind.experts.names
    expert = modules({"gate_up_proj": tuple(gate_up_of_expert), "down_proj": down})
    theirs = kind.experts.prefix + "experts.{}."
    return [
        *rows,
        *module("mlp.router", f"{kind.experts.prefix}gate"),
        *layers(_num_experts(config, kind.experts), "mlp.experts.{}.", theirs, expert),
    ]


def _table(config: ConfigFile) -> Rows:
    rows = tensor("embedder.content.weight", "embed_tokens.weight")
    rows += module("backbone.norm", "norm")
    for i, has_experts in enumerate(_with_experts(config, depth_of(config))):
        layer = _layer(config, has_experts=has_experts)
        rows += below(layer, f"backbone.blocks.{i}.", f"layers.{i}.")
    return _renamed(rows, _kind(config).names)


def _renamed(rows: Rows, names: Mapping[str, str]) -> Rows:
    """The rows with other names in place of parts of theirs."""

    def other(name: str) -> str:
        return ".".join(names.get(part, part) for part in name.split("."))

    return [replace(row, theirs=tuple(map(other, row.theirs))) for row in rows]


# ── head ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_tied(config: ConfigFile) -> bool:
    return config.get("tie_word_embeddings", _kind(config).tied) is True


def _objective(config: ConfigFile) -> Settings:
    kind = _kind(config)
    found: Settings = {"type": "NextToken", "tied": _is_tied(config), "bias": kind.head_bias}
    if kind.logit_scale != 1:
        found["logit_scale"] = config.number("logit_scale", kind.logit_scale)
    elif (divisor := config.number("logits_scaling", 1.0)) != 1:
        found["logit_scale"] = 1 / divisor
    if (softcap := config.get("final_logit_softcapping", _softcaps(config)[1])) is not None:
        found["softcap"] = softcap
    return found


def _head(config: ConfigFile) -> Rows:
    if not _is_tied(config):
        return module("head.linear", "lm_head")
    bias = tensor("head.bias", "lm_head.bias", may_miss=True)
    return alias("embedder.content.weight", "lm_head.weight") + bias


LLAMA = Family(
    _model,
    _table,
    "model.",
    {"NextToken": Head(("ForCausalLM",), _objective, _head)},
    ("score.", "lm_head."),
)
