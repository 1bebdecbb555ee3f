"""LLaMA and those built alike, as one table with options (transformers 5.23): gated MLP, rotary positions, no biases.

h heads · c channels of one head
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import (
    ACTIVATIONS,
    TANH,
    Family,
    Head,
    Settings,
    depth_of,
    rotary_settings,
)
from seqkit.pretrained.rows import Pairs, Rows, alias, below, layers, module, modules, tensor


@dataclass(frozen=True)
class Experts:
    """Experts of a model type, in place of MLPs.

    prefix: what their names begin with. num, top_k: how many there are, and how many a token gets, where the file does
    not say them. names: of the weights of one: gate, up and down.
    """

    prefix: str
    num: int
    top_k: int
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Kind:
    """Differences of a model type from LLaMA.

    norm: its component. norms: "before" a branch, "after" it, or "both". activation: key of the activation. qk_norm:
    norm of queries and keys, of each "head" or of "all" together. qkv_bias: key of the biases of queries, keys and
    values alone; True: it has them always. windows: whether layers are local without `use_sliding_window`.
    embedding_scale: whether embeddings are multiplied by sqrt(d). tied, head_dim, kv_heads, base, rotary_share:
    values where the file does not say them, of the head, the channels of a head, the heads of keys and values and the
    rotary positions; rotary_share None: heads are turned whole. experts: None: there are none. fused: whether queries,
    keys and values are one weight, and gate and up.
    """

    norm: Literal["RMSNorm", "ZeroCenteredRMSNorm", "LayerNorm"] = "RMSNorm"
    norms: Literal["before", "after", "both"] = "before"
    eps: float = 1e-6
    activation: str = "hidden_act"
    default_activation: str = "silu"
    qk_norm: Literal["head", "all"] | None = None
    qkv_bias: str | Literal[True] | None = None
    windows: bool = False
    embedding_scale: bool = False
    tied: bool = False
    head_dim: int | None = None
    kv_heads: int | None = None
    base: float = 10_000.0
    rotary_share: float | None = None
    experts: Experts | None = None
    fused: bool = False


GEMMA = Kind(
    norm="ZeroCenteredRMSNorm",
    default_activation="gelu_pytorch_tanh",
    embedding_scale=True,
    tied=True,
    head_dim=256,
)
GEMMA2 = replace(
    GEMMA,
    norms="both",
    activation="hidden_activation",
    windows=True,
    kv_heads=4,
)
KINDS = {
    "llama": Kind(),
    "mistral": Kind(windows=True, kv_heads=8),
    "mixtral": Kind(
        eps=1e-5,
        windows=True,
        experts=Experts("block_sparse_moe.", 8, 2, ("w1", "w3", "w2")),
        base=1e6,
        kv_heads=8,
    ),
    "phi3": Kind(eps=1e-5, windows=True, fused=True),
    "qwen2": Kind(qkv_bias=True),
    "qwen3": Kind(qk_norm="head", head_dim=128),
    "qwen3_moe": Kind(qk_norm="head", experts=Experts("mlp.", 128, 8), kv_heads=4),
    "smollm3": Kind(tied=True, base=2e6, kv_heads=4),
    "olmo": Kind(norm="LayerNorm", eps=1e-5),
    "olmo2": Kind(norms="after", qk_norm="all", eps=1e-5),
    "granite": Kind(),
    "stablelm": Kind(norm="LayerNorm", eps=1e-5, qkv_bias="use_qkv_bias", rotary_share=0.25),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": replace(GEMMA2, qk_norm="head"),
}


def _kind(config: ConfigFile) -> Kind:
    return KINDS[config.model_type]


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _model(config: ConfigFile) -> Settings:
    kind = _kind(config)
    dim = config.size("hidden_size")
    depth = depth_of(config)
    heads, _, _ = _heads(config)
    config.must_be(False, "mlp_bias", "use_parallel_residual", "qk_layernorm")
    config.must_be(None, "clip_qkv")
    config.must_be(0.0, "resid_pdrop", "embd_pdrop")
    for of_head in ("logits_scaling", "final_logit_softcapping"):
        config.get(of_head)
    if config.get("use_bidirectional_attention"):
        raise config.refused("use_bidirectional_attention", "a causal model")
    norm = _norm(config)
    residual: Settings = {}
    if kind.norms != "before":
        residual["norm"] = norm
    if (scale := config.number("residual_multiplier", 1.0)) != 1:
        residual["scale"] = scale
    block: Settings = {
        "type": "PreNormBlock",
        "norm": "Identity" if kind.norms == "after" else norm,
    }
    if residual:
        block["residual"] = residual
    attention = _attention(config)
    sizes = _windows(config, depth)
    blocks = [
        {**block, "attention": {**attention, "mechanism": _mechanism(config, size)}, "mlp": mlp}
        for size, mlp in zip(sizes, _mlps(config, depth), strict=True)
    ]
    found: Settings = {"position": "NoPosition", "dropout": 0.0}
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
    return found


def _one_if_alike(values: list[Any]) -> Any:
    """The value of all layers where they have the same, else those of each."""
    if all(value == values[0] for value in values):
        return values[0]
    return values


def _norm(config: ConfigFile) -> Settings:
    kind = _kind(config)
    if config.model_type == "olmo":
        return {"type": "LayerNorm", "eps": kind.eps, "elementwise_affine": False}
    key = "layer_norm_eps" if kind.norm == "LayerNorm" else "rms_norm_eps"
    return {"type": kind.norm, "eps": config.positive(key, kind.eps)}


def _heads(config: ConfigFile) -> tuple[int, int, int]:
    """Heads, heads of keys and values, and channels of a head."""
    kind = _kind(config)
    heads = config.size("num_attention_heads")
    kv_heads = heads
    if config.get("num_key_value_heads", kind.kv_heads) is not None:
        kv_heads = config.size("num_key_value_heads", kind.kv_heads)
    head_dim = kind.head_dim or config.size("hidden_size") // heads
    if config.get("head_dim") is not None:
        head_dim = config.size("head_dim")
    return heads, kv_heads, head_dim


def _attention(config: ConfigFile) -> Settings:
    kind = _kind(config)
    _, kv_heads, head_dim = _heads(config)
    bias = config.get("attention_bias", False) is True
    found: Settings = {"num_kv_heads": kv_heads, "bias": bias, "head_dim": head_dim}
    if kind.qkv_bias is True or (kind.qkv_bias and config.get(kind.qkv_bias, False) is True):
        found |= {"bias": True, "out_bias": False}
    if kind.qk_norm:
        found |= {"qk_norm": _norm(config), "qk_norm_level": kind.qk_norm}
    return found


def _mechanism(config: ConfigFile, size: int | None) -> Settings:
    """Attention to all tokens before, or to `size` of them."""
    found: Settings = {"type": "ScaledDotProductAttention"}
    if size is not None:
        found = {"type": "SlidingWindowAttention", "size": size}
    found["dropout"] = config.number("attention_dropout", 0.0)
    *_, head_dim = _heads(config)
    usual = 256 if config.model_type in ("gemma2", "gemma3_text") else head_dim
    divisor = config.number("query_pre_attn_scalar", usual) ** 0.5
    if config.model_type == "granite":
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
    dense = {"type": "GatedMLP", "width": width, "activation": activation}
    if kind.experts is None:
        return [dense] * depth
    config.must_be(0.0, "router_jitter_noise")
    coefficient = config.number("router_aux_loss_coef", 0.001)
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
    if config.model_type == "qwen3_moe":
        experts["normalize_gates"] = config.get("norm_topk_prob", False) is True
        experts["expert"] = {**dense, "width": config.size("moe_intermediate_size", 768)}
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
    if config.model_type != "qwen3_moe":
        return [_kind(config).experts is not None] * depth
    every = config.size("decoder_sparse_step", 1)
    dense = config.get("mlp_only_layers") or []
    return [i not in dense and (i + 1) % every == 0 for i in range(depth)]


def _windows(config: ConfigFile, depth: int) -> list[int | None]:
    """Tokens that each layer attends to; None: all."""
    usual = 4096 if config.model_type not in ("mixtral", "phi3", "smollm3") else None
    size = config.get("sliding_window", usual)
    by_default = _kind(config).windows
    used = config.get("use_sliding_window", by_default)
    first = config.get("max_window_layers", 28)
    kinds = config.get("layer_types")
    if config.model_type == "gemma2":
        # of official files, beside the names that count
        for unused in ("hidden_act", "sliding_window_size"):
            config.get(unused)
    every = config.get("_sliding_window_pattern", config.get("sliding_window_pattern", 6))
    if not used or size is None:
        return [None] * depth
    if kinds is None:
        by_kind = {"gemma2": lambda i: i % 2 == 0, "gemma3_text": lambda i: (i + 1) % every != 0}
        if config.model_type in ("smollm3", "qwen3_moe"):
            raise config.refused("use_sliding_window", "false, or with layer_types")
        is_local = by_kind.get(config.model_type, lambda i: i >= first or by_default)
        kinds = ["sliding_attention" if is_local(i) else "full_attention" for i in range(depth)]
    if len(kinds) != depth or not {*kinds} <= {"full_attention", "sliding_attention"}:
        raise config.refused("layer_types", "full_attention or sliding_attention for each layer")
    return [size if kind == "sliding_attention" else None for kind in kinds]


def _positions(config: ConfigFile, sizes: list[int | None]) -> list[Settings | None]:
    """Rotary positions of each layer, or None (SmolLM3 has layers without)."""
    kind = _kind(config)
    if config.model_type == "gemma3_text":
        given = config.get("rope_parameters")
        local = {"rope_theta": config.get("rope_local_base_freq", 10_000.0)}
        full = None
        if given:
            if {*given} != {"sliding_attention", "full_attention"}:
                raise config.refused(
                    "rope_parameters", "those of sliding_attention and of full_attention"
                )
            local = given["sliding_attention"]
            full = given["full_attention"]
        elif "rope_type" not in (config.get("rope_scaling") or {"rope_type": "default"}):
            raise config.refused("rope_scaling", "with rope_type; transformers ignores it without")
        by_kind = [rotary_settings(config, full, base=1_000_000.0), rotary_settings(config, local)]
        return [by_kind[size is not None] for size in sizes]
    rotary = rotary_settings(config, base=kind.base, share=kind.rotary_share)
    if config.model_type != "smollm3":
        return [rotary] * len(sizes)
    every = config.get("no_rope_layer_interval", 4)
    have = config.get("no_rope_layers") or [(i + 1) % every != 0 for i in range(len(sizes))]
    return [rotary if has else None for has in have]


# ── names of weights ──────────────────────────────────────────────────────────────────────────────────────────────────

AFTER = {
    "attention_residual.norm": "post_attention_layernorm",
    "mlp_residual.norm": "post_feedforward_layernorm",
}
NORMS: dict[str, dict[str, str | tuple[str, ...]]] = {
    "before": {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"},
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
    pairs = Pairs(head_dim, turned)
    kv = kv_heads * head_dim
    if kind.fused:
        both = Pairs(head_dim, turned, heads + kv_heads)
        qkv = module("attention.qkv_proj", "self_attn.qkv_proj", whole=both)
        gate_up: tuple[str, ...] = ("gate_up_proj",)
    else:
        qkv = module(
            "attention.qkv_proj",
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
            sizes=(heads * head_dim, kv, kv),
            changes=(pairs, pairs, None),
        )
        gate_up = ("gate_proj", "up_proj")
    rows = [
        *qkv,
        *module("attention.query_norm", "self_attn.q_norm", whole=pairs),
        *module("attention.key_norm", "self_attn.k_norm", whole=pairs),
        *module("attention.out_proj", "self_attn.o_proj"),
        *modules(NORMS[kind.norms]),
    ]
    if not has_experts:
        mlp = modules({"gate_up_proj": gate_up, "down_proj": "down_proj"})
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
    return rows


# ── head ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_tied(config: ConfigFile) -> bool:
    return config.get("tie_word_embeddings", _kind(config).tied) is True


def _objective(config: ConfigFile) -> Settings:
    found: Settings = {"type": "NextToken", "tied": _is_tied(config), "bias": False}
    if (divisor := config.number("logits_scaling", 1.0)) != 1:
        found["logit_scale"] = 1 / divisor
    if (softcap := config.get("final_logit_softcapping", _softcaps(config)[1])) is not None:
        found["softcap"] = softcap
    return found


def _head(config: ConfigFile) -> Rows:
    if _is_tied(config):
        return alias("embedder.content.weight", "lm_head.weight")
    return tensor("head.linear.weight", "lm_head.weight")


LLAMA = Family(
    _model,
    _table,
    "model.",
    {"NextToken": Head(("ForCausalLM",), _objective, _head)},
    ("score.", "lm_head."),
)
