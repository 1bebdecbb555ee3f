"""Decoders of which layers carry a state, in place of attention or beside it (transformers 5.23): their settings, and
the names of their weights. `hybrid_kinds` has the table of types.
"""

from __future__ import annotations

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.hybrid_kinds import HYBRIDS, Experts, Hybrid
from seqkit.pretrained.family import ACTIVATIONS, Family, Head, Settings, depth_of, rotary_settings
from seqkit.pretrained.rows import Half, Pairs, Rows, alias, below, layers, module, modules, tensor

# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _kind(config: ConfigFile) -> Hybrid:
    return HYBRIDS[config.model_type]


def _model(config: ConfigFile) -> Settings:
    kind = _kind(config)
    depth = depth_of(config)
    norm = {"type": kind.norm, "eps": config.positive(kind.eps_key, kind.eps)}
    attention = _attention(config, norm)
    mixer = kind.mixer(config)
    if kind.beside is not None:
        mixer = kind.beside(config, attention, mixer)
    rotary = _rotary(config)
    mlps = _mlps(config, depth)
    blocks = []
    positions = []
    mixes = kind.mixes(config, depth)
    for has_mixer, mlp in zip(mixes, mlps, strict=True):
        block: Settings = {"type": "PreNormBlock", "norm": norm, "mlp": mlp}
        residual: Settings = {}
        if kind.multiplies:
            residual["scale"] = config.number("residual_multiplier", 1.0)
        if not has_mixer:
            block["attention"] = attention
        if kind.norms_behind and not has_mixer:
            block["norm"] = "Identity"
            residual["norm"] = norm
        if residual:
            block["residual"] = residual
        blocks.append(block)
        positions.append(None if has_mixer and kind.beside is None else rotary)
    found: Settings = {"position": "NoPosition", "dropout": 0.0}
    if kind.embedding_scale is not None:
        found["embedding_scale"] = kind.embedding_scale(config)
    heads, _, _ = _heads(config)
    found["backbone"] = {
        "type": "Transformer",
        "dim": config.size("hidden_size"),
        "depth": depth,
        "num_heads": heads,
        "causal": True,
        "norm": norm,
        "dropout": 0.0,
        "position": positions,
        "block": blocks,
        "mixer": [mixer if has_mixer else None for has_mixer in mixes],
    }
    return found


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


def _attention(config: ConfigFile, norm: Settings) -> Settings:
    kind = _kind(config)
    _, kv_heads, head_dim = _heads(config)
    mechanism: Settings = {"type": "ScaledDotProductAttention"}
    if kind.window is not None:
        mechanism = {"type": "SlidingWindowAttention", "size": config.size(*kind.window)}
    mechanism["dropout"] = config.number("attention_dropout", 0.0)
    if kind.score_scale is not None:
        mechanism["temperature"] = 1 / kind.score_scale(config, head_dim**-0.5)
    found: Settings = {
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "bias": config.flag("attention_bias", False),
        "mechanism": mechanism,
    }
    if kind.biased:
        found["out_bias"] = True
    if kind.qk_norm:
        found |= {"qk_norm": norm, "qk_norm_level": kind.qk_norm}
    if kind.gate:
        found["output_gate"] = "elementwise"
    return found


def _rotary(config: ConfigFile) -> Settings | None:
    kind = _kind(config)
    if not kind.is_rotary(config):
        return None
    given = config.get("rope_parameters") or {}
    # how axes share the channels: a text has one axis
    of_axes = {"mrope_section", "mrope_interleaved"} & given.keys()
    if of_axes and kind.has_axes:
        given = {key: value for key, value in given.items() if key not in of_axes}
        return rotary_settings(config, given, base=kind.base, share=kind.share)
    return rotary_settings(config, base=kind.base, share=kind.share)


def _mlps(config: ConfigFile, depth: int) -> list[Settings]:
    """The MLP of each layer, or its experts."""
    kind = _kind(config)
    config.must_be(kind.activation, kind.activation_key)
    config.must_be(False, "mlp_bias")
    dense: Settings = {
        "type": "GatedMLP",
        "width": kind.width(config),
        "activation": ACTIVATIONS[kind.activation],
        "bias": kind.biased,
    }
    if kind.mlp_scales is not None:
        dense["scales"] = kind.mlp_scales(config)
    if kind.experts is None:
        return [dense] * depth
    own = kind.experts
    has_experts = own.layers(config, depth)
    top_k = config.size("num_experts_per_tok", own.top_k)
    normalized = own.normalized and config.flag("norm_topk_prob", True)
    if top_k == 1 and normalized:
        raise config.refused("num_experts_per_tok", "2 or more where gates are normalised")
    experts = {
        "type": "MixtureOfExperts",
        "num_experts": config.size("num_experts", own.num),
        "top_k": top_k,
        "normalize_gates": normalized,
        "aux_loss_weight": 0.0,
        "expert": {**dense, "width": _width(config, own, "moe_intermediate_size")},
    }
    weight = config.number("router_aux_loss_coef", 0.001)
    # theirs counts tokens of all layers together: top_k where balanced
    if config.flag("output_router_logits", False):
        experts["aux_loss_weight"] = weight * top_k / max(sum(has_experts), 1)
    if own.width is not None:
        shared = _width(config, own, "shared_expert_intermediate_size")
        experts |= {"shared_expert": {**dense, "width": shared}, "shared_gate": True}
    return [experts if has else dense for has in has_experts]


def _width(config: ConfigFile, experts: Experts, key: str) -> int:
    """Width of experts, by a key of their own if they have one."""
    if experts.width is None:
        return config.size("intermediate_size")
    return config.size(key, experts.width)


# ── names of weights ──────────────────────────────────────────────────────────────────────────────────────────────────


def _table(config: ConfigFile) -> Rows:
    kind = _kind(config)
    depth = depth_of(config)
    has_experts = [False] * depth
    if kind.experts is not None:
        has_experts = kind.experts.layers(config, depth)
    rows = tensor("embedder.content.weight", "embed_tokens.weight")
    rows += modules({"backbone.norm": kind.name("norm")})
    attention = _attention_table(config)
    for i, has_mixer in enumerate(kind.mixes(config, depth)):
        if kind.beside is not None:
            layer = below(attention, "attention.attention.", "self_attn.")
            layer += below(kind.table(config), "attention.beside.", kind.place)
        elif has_mixer:
            layer = below(kind.table(config), "attention.", kind.place)
        else:
            layer = below(attention, "attention.", kind.attention_place)
        layer += _norm_table(kind, has_mixer) + _mlp_table(config, has_experts[i])
        rows += below(layer, f"backbone.blocks.{i}.", f"layers.{i}.")
    return rows


def _norm_table(kind: Hybrid, has_mixer: bool) -> Rows:
    names = ("attention_norm", "mlp_norm")
    if kind.norms_behind and not has_mixer:
        names = ("attention_residual.norm", "mlp_residual.norm")
    return modules({name: kind.name(name) for name in names})


def _attention_table(config: ConfigFile) -> Rows:
    kind = _kind(config)
    heads, kv_heads, c = _heads(config)
    rotary = _rotary(config)
    turned = int(c * rotary.get("share", 1.0)) if rotary else 0
    rows = module(
        "qkv_proj",
        "q_proj",
        "k_proj",
        "v_proj",
        sizes=(heads * c, kv_heads * c, kv_heads * c),
        changes=(Half(0, c) if kind.gate else None, None, None),
        whole=Pairs(c, turned, heads + kv_heads),
    )
    if kind.gate:
        rows += module("gate_proj", "q_proj", changes=(Half(1, c),))
    for name in ("query_norm", "key_norm"):
        rows += module(name, str(kind.name(name)), whole=Pairs(c, turned))
    return rows + modules({"out_proj": kind.name("out_proj")})


def _mlp_table(config: ConfigFile, has_experts: bool) -> Rows:
    kind = _kind(config)
    rows = modules({name: kind.name(name) for name in ("gate_up_proj", "down_proj")})
    if has_experts and kind.experts is not None:
        num = config.size("num_experts", kind.experts.num)
        of_experts = layers(num, "experts.{}.", "experts.{}.", rows)
        rows = below(rows, "shared_expert.", "shared_expert.") if kind.experts.width else []
        rows += modules({"router": kind.experts.router, "shared_gate": "shared_expert_gate"})
        rows += of_experts
    return below(rows, "mlp.", kind.mlp_place)


# ── head ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_tied(config: ConfigFile) -> bool:
    kind = _kind(config)
    return config.flag(kind.tied_key, config.flag("tie_word_embeddings", kind.tied))


def _objective(config: ConfigFile) -> Settings:
    kind = _kind(config)
    found: Settings = {"type": "NextToken", "tied": _is_tied(config), "bias": False}
    if kind.multiplies:
        scale = config.number("lm_head_multiplier", 1.0) / config.number("logits_scaling", 1.0)
        found["logit_scale"] = scale
    if kind.softcap is not None:
        found["softcap"] = config.number(*kind.softcap)
    return found


def _head(config: ConfigFile) -> Rows:
    if _is_tied(config):
        return alias("embedder.content.weight", "lm_head.weight")
    return tensor("head.linear.weight", "lm_head.weight")


def _family(kind: Hybrid) -> Family:
    heads = {"NextToken": Head(("ForCausalLM",), _objective, _head)}
    return Family(_model, _table, "model.", heads, ("mtp.",), old_names=kind.old_names)


FAMILIES = {name: _family(kind) for name, kind in HYBRIDS.items()}
