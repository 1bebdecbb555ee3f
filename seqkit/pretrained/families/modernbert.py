"""ModernBERT (transformers 5.23)."""

from __future__ import annotations

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.encoders import TAGS, masked_rows
from seqkit.pretrained.family import (
    ACTIVATIONS,
    Family,
    Head,
    Settings,
    classifier,
    depth_of,
    layer_norm,
    rotary_settings,
)
from seqkit.pretrained.rows import Pairs, Rows, layers, module, modules, tensor

FULL = "full_attention"
LOCAL = "sliding_attention"


def _model(config: ConfigFile) -> Settings:
    """Layers with full and with local attention, each kind with a rotary base of its own; the first has no norm."""
    kinds = _kinds(config)
    norm = _norm(config)
    attention = {"bias": config.flag("attention_bias", False)}
    dropout = config.number("attention_dropout", 0.0)
    size = config.size("local_attention", 128, least=2) // 2 + 1
    mechanisms: dict[str, Settings] = {
        LOCAL: {"type": "SlidingWindowAttention", "size": size, "dropout": dropout},
        FULL: {"type": "ScaledDotProductAttention", "dropout": dropout},
    }
    mlp = {
        "type": "GatedMLP",
        "width": config.size("intermediate_size", 1152),
        "activation": config.one_of("hidden_activation", ACTIVATIONS, "gelu"),
        "bias": config.flag("mlp_bias", False),
        "dropout": config.number("mlp_dropout", 0.0),
    }
    block: Settings = {"type": "PreNormBlock", "norm": norm, "mlp": mlp}
    blocks = [
        {**block, "attention": {**attention, "mechanism": mechanisms[kind]}} for kind in kinds
    ]
    blocks[0]["attention_norm"] = "Identity"
    rotary = {
        FULL: _rotary(config, FULL, "global_rope_theta", 160_000.0),
        LOCAL: _rotary(config, LOCAL, "local_rope_theta", 10_000.0),
    }
    return {
        "position": "NoPosition",
        "dropout": config.number("embedding_dropout", 0.0),
        "backbone": {
            "type": "Transformer",
            "dim": config.size("hidden_size", 768),
            "depth": len(kinds),
            "norm": norm,
            "input_norm": norm,
            "num_heads": config.size("num_attention_heads", 12),
            "dropout": dropout,
            "position": [rotary[kind] for kind in kinds],
            "block": blocks,
        },
    }


def _kinds(config: ConfigFile) -> list[str]:
    """Kind of attention of each layer."""
    depth = depth_of(config, default=22)
    every = config.size("global_attn_every_n_layers", 3)
    kinds = config.get("layer_types")
    if kinds is None:
        return [LOCAL if i % every else FULL for i in range(depth)]
    if len(kinds) != depth or not {*kinds} <= {FULL, LOCAL}:
        raise config.refused("layer_types", f"{FULL} or {LOCAL} for each layer")
    return list(kinds)


def _norm(config: ConfigFile) -> Settings:
    return {**layer_norm(config, 1e-5, "norm_eps"), "bias": config.flag("norm_bias", False)}


def _rotary(config: ConfigFile, kind: str, old: str, base: float) -> Settings:
    """Rotary positions of layers of a kind. old, base: key of the base before transformers 5, and its default."""
    config.must_be(None, "rope_scaling")
    given = config.get("rope_parameters") or {}
    if not {*given} <= {FULL, LOCAL}:
        raise config.refused("rope_parameters", f"those of {FULL} and of {LOCAL}")
    return rotary_settings(config, given.get(kind) or {}, base=config.number(old, base))


def _table(config: ConfigFile) -> Rows:
    heads = config.size("num_attention_heads", 12)
    # of queries and keys, not of values
    pairs = Pairs(config.size("hidden_size", 768) // heads, heads=2 * heads)
    layer = module("attention.qkv_proj", "attn.Wqkv", whole=pairs)
    layer += modules(
        {
            "attention_norm": "attn_norm",
            "attention.out_proj": "attn.Wo",
            "mlp_norm": "mlp_norm",
            "mlp.gate_up_proj": "mlp.Wi",
            "mlp.down_proj": "mlp.Wo",
        }
    )
    return [
        *tensor("embedder.content.weight", "embeddings.tok_embeddings.weight"),
        *module("backbone.input_norm", "embeddings.norm"),
        *layers(depth_of(config, default=22), "backbone.blocks.{}.", "layers.{}.", layer),
        *module("backbone.norm", "final_norm"),
    ]


def _transform(config: ConfigFile) -> Settings:
    return {
        "activation": config.one_of("classifier_activation", ACTIVATIONS, "gelu"),
        "norm": _norm(config),
        "bias": config.flag("classifier_bias", False),
    }


def _masked(config: ConfigFile) -> Settings:
    config.must_be(True, "decoder_bias", "tie_word_embeddings")
    return {"type": "Masked", "tied": True, "transform": _transform(config)}


def _classify(config: ConfigFile) -> Settings:
    pool = config.one_of("classifier_pooling", {"cls": "first", "mean": "mean"}, "cls")
    return {"type": "Classify", "pool": pool, "transform": _transform(config)}


def _tag(config: ConfigFile) -> Settings:
    return {"type": "Classify", "level": "token", "transform": _transform(config)}


MASKED = Head(
    ("ForMaskedLM",),
    _masked,
    lambda _: masked_rows("head.dense", "head.norm", "decoder", "decoder.bias"),
)
CLASSES = modules(
    {
        "head.transform.linear": "head.dense",
        "head.transform.norm": "head.norm",
        "head.linear": "classifier",
    }
)
HEADS = {
    "Masked": MASKED,
    "Classify": classifier("ForSequenceClassification", _classify, CLASSES),
    TAGS: classifier("ForTokenClassification", _tag, CLASSES),
}
MODERNBERT = Family(
    _model,
    _table,
    "model.",
    HEADS,
    ("head.", "decoder.", "classifier.", "qa_outputs."),
)
