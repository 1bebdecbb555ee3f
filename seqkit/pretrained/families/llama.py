"""LLaMA and the decoders of `decoder_kinds` (transformers 5.23): their settings, and the names of their weights.

h heads · c channels of one head
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.decoder_kinds import KINDS, Kind
from seqkit.pretrained.families.gpt import TIED
from seqkit.pretrained.family import (
    ACTIVATIONS,
    TANH,
    Family,
    Head,
    Settings,
    depth_of,
    learned,
    rotary_settings,
)
from seqkit.pretrained.rows import (
    Entry,
    Pairs,
    Rearranged,
    Row,
    Rows,
    Transposed,
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
    config.must_be(None, "clip_qkv")
    config.must_be(dim, "word_embed_proj_dim")
    config.must_be(True, *MUST)
    config.must_be(False, *MUST_NOT)
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
    position: Any = "NoPosition"
    if kind.position == "learned":
        num_tokens = config.size("max_position_embeddings") + kind.first
        position = {**learned(num_tokens), "first": kind.first}
    found: Settings = {"position": position, "dropout": config.number("embedding_dropout", 0.0)}
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
        "dropout": config.number("hidden_dropout", 0.0),
        "position": _one_if_alike(_positions(config, sizes)),
        "block": _one_if_alike(blocks),
    }
    if kind.input_norm:
        found["backbone"]["input_norm"] = norm
    return found


MUST = (
    "scale_attn_weights",
    "do_layer_norm_before",
    "enable_bias",
    "layer_norm_elementwise_affine",
)
MUST_NOT = (
    "qk_layernorm",
    "use_qk_norm",
    "scale_attn_by_inverse_layer_idx",
    "reorder_and_upcast_attn",
    "add_cross_attention",
    "apply_residual_connection_post_layernorm",
    "slow_but_exact",
    "_remove_final_layer_norm",
)
"""Settings that a model must have, and must not have, to be computed."""


def _one_if_alike(values: list[Any]) -> Any:
    """The value of all layers where they have the same, else those of each."""
    if all(value == values[0] for value in values):
        return values[0]
    return values


def _norm(config: ConfigFile) -> Settings:
    return {"eps": config.positive("rms_norm_eps", 1e-6), **_kind(config).norm}


def _heads(config: ConfigFile) -> tuple[int, int, int]:
    """Heads, heads of keys and values, and channels of a head."""
    heads = config.size("num_attention_heads")
    kv_heads = heads
    if config.get("num_key_value_heads") is not None:
        kv_heads = config.size("num_key_value_heads")
        if heads % kv_heads:
            raise config.refused("num_key_value_heads", f"a divisor of {heads} heads")
    if config.get("head_dim") is None:
        return heads, kv_heads, config.size("hidden_size") // heads
    return heads, kv_heads, config.size("head_dim")


def _attention(config: ConfigFile) -> Settings:
    kind = _kind(config)
    _, kv_heads, head_dim = _heads(config)
    bias = config.get("attention_bias", False) is True
    found: Settings = {"bias": bias if kind.bias is None else kind.bias}
    if kind.position == "rotary":
        found |= {"num_kv_heads": kv_heads, "head_dim": head_dim}
    if (out_bias := config.get("attention_out_bias", found["bias"])) != found["bias"]:
        found["out_bias"] = out_bias
    if kind.qk_norm:
        found |= {"qk_norm": _norm(config), "qk_norm_level": kind.qk_norm}
    return found


def _mechanism(config: ConfigFile, size: int | None) -> Settings:
    """Attention to all tokens before, or to `size` of them."""
    found: Settings = {"type": "ScaledDotProductAttention"}
    if size is not None:
        found = {"type": "SlidingWindowAttention", "size": size}
    if config.model_type == "gpt_oss":
        found["sinks"] = "learned"
    found["dropout"] = config.number("attention_dropout", 0.0)
    *_, head_dim = _heads(config)
    divisor = config.number("query_pre_attn_scalar", head_dim) ** 0.5
    if config.model_type.startswith("granite"):
        divisor = 1 / config.number("attention_multiplier", 1.0)
    if divisor != head_dim**0.5:
        found["temperature"] = divisor
    if config.model_type == "gemma3_text":
        # transformers keeps the key, and applies none
        config.must_be(None, "attn_logit_softcapping")
    if (softcap := config.get("attn_logit_softcapping")) is not None:
        found["softcap"] = softcap
    return found


def _mlps(config: ConfigFile, depth: int) -> list[Settings]:
    """The MLP of each layer, or its experts."""
    kind = _kind(config)
    dim = config.size("hidden_size")
    width = 4 * dim
    if config.get("intermediate_size", width) is not None:
        width = config.size("intermediate_size")
    dense: Settings = {"activation": _activation(config), "bias": config.flag("mlp_bias", False)}
    if kind.is_gated:
        dense |= {"type": "GatedMLP", "width": width}
    else:
        dense["ratio"] = width / dim
    if kind.experts is None:
        return [dense] * depth
    config.must_be(0.0, "router_jitter_noise")
    coefficient = config.number("router_aux_loss_coef", 0.001)
    has_experts = _with_experts(config, depth)
    top_k = config.size("num_experts_per_tok")
    experts: Settings = {
        "type": "MixtureOfExperts",
        "num_experts": _num_experts(config),
        "top_k": top_k,
        "aux_loss_weight": 0.0,
        "expert": {**dense, "width": config.size(kind.experts.width)},
    }
    if config.model_type == "gpt_oss":
        config.must_be(1.702, "swiglu_alpha")
        config.must_be("silu", "hidden_act")
        experts["router_bias"] = True
        limit = config.positive("swiglu_limit", 7.0)
        experts["expert"] |= {"activation": "QuickGELU", "limit": limit}
    # theirs counts tokens of all layers together: top_k where balanced
    if config.get("output_router_logits", False):
        experts["aux_loss_weight"] = coefficient * top_k / max(sum(has_experts), 1)
    if kind.experts.normalize is None:
        experts["normalize_gates"] = config.get("norm_topk_prob", False) is True
    if top_k == 1 and experts.get("normalize_gates", True):
        raise config.refused(
            "num_experts_per_tok",
            "2 or more where gates are normalised: of one the gate would be 1",
        )
    return [experts if has else dense for has in has_experts]


def _activation(config: ConfigFile) -> Any:
    kind = _kind(config)
    if kind.activation == "hidden_activation" and config.get("hidden_activation") is None:
        return TANH
    if config.model_type == "gemma":
        config.get("hidden_activation")  # older files have both; transformers 5.23 reads the other
        if config.get("hidden_act") == "gelu":  # official files say so, and mean the other
            return TANH
    return config.one_of(kind.activation, ACTIVATIONS, "silu")


def _num_experts(config: ConfigFile) -> int:
    return config.size("num_local_experts" if config.get("num_experts") is None else "num_experts")


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
    size = config.get("sliding_window")
    kinds = config.get("layer_types")
    if config.model_type == "gemma2":
        # of official files, beside the names that count
        for unused in ("hidden_act", "sliding_window_size"):
            config.get(unused)
    if not (kind.windows or config.get("use_sliding_window")) or size is None:
        return [None] * depth
    size = config.size("sliding_window", least=2)
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


def _positions(config: ConfigFile, sizes: list[int | None]) -> list[Any]:
    """Positions inside attention of each layer, or None (some types have layers without)."""
    kind = _kind(config)
    if kind.position != "rotary":
        return ["ALiBi" if kind.position == "alibi" else None] * len(sizes)
    if kind.rotary == "both":
        by_kind = _two_rotaries(config, kind)
        return [by_kind[size is not None] for size in sizes]
    rotary, turned = _rotary(config)
    if turned % 2:
        raise config.refused("partial_rotary_factor", f"one of an even number, not of {turned}")
    have = [True] * len(sizes)
    # without windows, all layers of EXAONE 4 have rotary positions, and none of Cohere 2
    if kind.rotary == "local" and (config.model_type == "cohere2" or config.get("sliding_window")):
        have = [size is not None for size in sizes]
    if config.model_type == "smollm3":
        every = config.get("no_rope_layer_interval", 4)
        have = config.get("no_rope_layers") or [(i + 1) % every != 0 for i in range(len(sizes))]
    return [rotary if has else None for has in have]


def _rotary(config: ConfigFile) -> tuple[Settings, int]:
    """Rotary positions of all layers, and how many channels of a head they turn."""
    usual = _kind(config).defaults
    is_given = config.get("rope_parameters") or config.get("rope_scaling")
    found = rotary_settings(
        config,
        None if is_given else usual.get("rope"),
        base=config.get("rope_theta", 10_000.0),
        share=usual.get("partial_rotary_factor"),
    )
    *_, head_dim = _heads(config)
    return found, int(head_dim * found.get("share", 1.0))


def _two_rotaries(config: ConfigFile, kind: Kind) -> list[Settings]:
    """Rotary positions of layers that attend to all tokens, and of local ones."""
    given = config.get("rope_parameters")
    usual = kind.defaults["rope_theta"]
    of_local = usual if config.model_type == "olmo3" else 10_000.0
    local = {"rope_theta": config.get("rope_local_base_freq", of_local)}
    full = None
    if given:
        config.must_be(None, "rope_scaling")
        if {*given} != {"sliding_attention", "full_attention"} or any(
            # transformers looks for it elsewhere
            one.get("truncate", True) is not True
            for one in given.values()
        ):
            raise config.refused(
                "rope_parameters",
                "those of sliding_attention and of full_attention, none with truncate",
            )
        local = given["sliding_attention"]
        full = given["full_attention"]
    elif "rope_type" not in (config.get("rope_scaling") or {"rope_type": "default"}):
        raise config.refused("rope_scaling", "with rope_type; transformers ignores it without")
    return [rotary_settings(config, full, base=usual), rotary_settings(config, local)]


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
    kv = kv_heads * head_dim
    turns = kind.position == "rotary" and not kind.pairs_neighbours
    turned = None
    if "partial_rotary_factor" in kind.defaults:
        turned = _rotary(config)[1]
    pairs = Pairs(head_dim, turned) if turns else None
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
        both = replace(pairs, heads=heads + kv_heads) if pairs else None
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
        inner = "gate_up_proj" if kind.is_gated else "up_proj"
        mlp = modules({inner: kind.mlp, "down_proj": "down_proj"})
        rows += below(mlp, "mlp.", "mlp.")
        if kind.transposed:
            return [replace(row, whole=Transposed()) for row in rows]
        return rows
    assert kind.experts is not None
    prefix = kind.experts.prefix
    rows += module("mlp.router", prefix + kind.experts.router)
    if kind.experts.stacks:
        return rows + [
            Row(f"mlp.experts.{i}.{ours}", (prefix + theirs,), changes=(Entry(i),), whole=change)
            for i in range(_num_experts(config))
            for ours, (theirs, change) in kind.experts.stacks.items()
        ]
    *gate_up, down = kind.experts.names
    expert = modules({"gate_up_proj": tuple(gate_up), "down_proj": down})
    theirs = prefix + "experts.{}."
    return rows + layers(_num_experts(config), "mlp.experts.{}.", theirs, expert)


def _table(config: ConfigFile) -> Rows:
    rows = tensor("embedder.content.weight", "embed_tokens.weight")
    rows += module("backbone.norm", "norm")
    rows += module("backbone.input_norm", "input_norm")
    rows += tensor("embedder.position.tables.0", "embed_positions.weight", may_miss=True)
    depth = depth_of(config)
    sizes = _windows(config, depth)
    for i, has_experts in enumerate(_with_experts(config, depth)):
        layer = _layer(config, has_experts=has_experts)
        if config.model_type == "gpt_oss":
            mechanism = "mechanism" if sizes[i] is None else "mechanism.attend"
            layer += tensor(f"attention.{mechanism}.sinks", "self_attn.sinks")
        rows += below(layer, f"backbone.blocks.{i}.", f"layers.{i}.")
    return _renamed(rows, _kind(config).names)


def _renamed(rows: Rows, names: Mapping[str, str]) -> Rows:
    """The rows with other names in place of parts of theirs."""

    def other(name: str) -> str:
        return ".".join(filter(None, (names.get(part, part) for part in name.split("."))))

    return [replace(row, theirs=tuple(map(other, row.theirs))) for row in rows]


# ── head ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _objective(config: ConfigFile) -> Settings:
    tied = config.get("tie_word_embeddings", False) is True
    has_bias = _kind(config).head_bias
    found: Settings = {"type": "NextToken", "tied": tied, "bias": has_bias}
    found["tied_bias"] = tied and has_bias
    scale = config.number("logit_scale", 1.0) / config.number("logits_scaling", 1.0)
    if scale != 1:
        found["logit_scale"] = scale
    if (softcap := config.get("final_logit_softcapping")) is not None:
        found["softcap"] = softcap
    return found


def _head(config: ConfigFile) -> Rows:
    if config.get("tie_word_embeddings", False) is True:
        rows = alias("embedder.content.weight", "lm_head.weight")
        rows += tensor("head.bias", "lm_head.bias", may_miss=True)
    else:
        rows = module("head.linear", "lm_head")
    return _renamed(rows, _kind(config).names)


# ── families ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(make: Callable[[ConfigFile], Any]) -> Callable[[ConfigFile], Any]:
    """The function, which then gets the settings by LLaMA's keys, with the kind's defaults."""

    def made(config: ConfigFile) -> Any:
        kind = _kind(config)
        return make(config.renamed(kind.keys, kind.defaults))

    return made


HEAD = Head(("ForCausalLM",), _read(_objective), _read(_head))
LLAMA = Family(
    _read(_model),
    _read(_table),
    "model.",
    {"NextToken": HEAD},
    ("score.", "lm_head.", "embed_out.", "classifier.", "qa_outputs.", "multiple_choice_head."),
)
GPT2 = replace(
    LLAMA, prefix="transformer.", heads={"NextToken": replace(HEAD, classes=TIED.classes)}
)
DECODERS = {
    **dict.fromkeys(KINDS, LLAMA),
    "gpt2": GPT2,
    "bloom": GPT2,
    "gpt_neox": replace(LLAMA, prefix="gpt_neox."),
}
