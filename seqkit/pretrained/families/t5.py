"""T5, T5 v1.1 and mT5 (transformers 5.23): RMSNorm, no biases, unscaled scores, one table of distances for a side."""

from __future__ import annotations

from typing import Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.encoder_decoder import (
    SIDES,
    Generation,
    lacks_decoder,
    shared_table,
    writes,
    written_state,
)
from seqkit.pretrained.family import ACTIVATIONS, Family, Head, Settings, depth_of
from seqkit.pretrained.rows import Rows, alias, layers, module, tensor

LONGEST = 512
"""Tokens of a target at most, as in training; distances have no table that ends."""

SIZES = {"t5": (512, 2048, 6, 8, "relu", 32128), "mt5": (512, 1024, 8, 6, "gated-gelu", 250112)}
"""Width, inner width, layers, heads, MLP and number of ids by default."""


def _default(config: ConfigFile, i: int) -> Any:
    return SIZES[config.model_type][i]


def _depth(config: ConfigFile, side: str) -> int:
    depth = depth_of(config, "num_layers", _default(config, 2))
    if side == "encoder" or config.get("num_decoder_layers") is None:
        return depth
    return depth_of(config, "num_decoder_layers")


def _is_gated(config: ConfigFile) -> bool:
    return str(config.get("feed_forward_proj", _default(config, 4))).startswith("gated-")


def _mlp(config: ConfigFile, dim: int) -> Settings:
    """The MLP: with a gate or without. Raises DataError for an activation that is not read."""
    given = str(config.get("feed_forward_proj", _default(config, 4)))
    inner = config.size("d_ff", _default(config, 1))
    name = given.removeprefix("gated-")
    if name not in ACTIVATIONS:
        raise config.refused(
            "feed_forward_proj", "relu, gated-gelu, or another activation, with gated- before it"
        )
    theirs = "gelu_new" if given == "gated-gelu" else name
    config.must_be(theirs, "dense_act_fn")
    config.must_be(_is_gated(config), "is_gated_act")
    if _is_gated(config):
        return {"type": "GatedMLP", "activation": ACTIVATIONS[theirs], "width": inner}
    return {"type": "MLP", "activation": ACTIVATIONS[name], "ratio": inner / dim, "bias": False}


def _stack(config: ConfigFile, side: str) -> Settings:
    dim = config.size("d_model", _default(config, 0))
    heads = _heads(config)
    is_decoder = side == "decoder"
    norm = {"type": "RMSNorm", "eps": config.positive("layer_norm_epsilon", 1e-6)}
    dropout = config.number("dropout_rate", 0.1)
    mechanism = {"type": "ScaledDotProductAttention", "temperature": 1.0, "dropout": dropout}
    buckets = config.size("relative_attention_num_buckets", 32)
    far = config.size("relative_attention_max_distance", 128)
    return {
        "type": "Transformer", "dim": dim, "depth": _depth(config, side), "num_heads": heads, "causal": is_decoder,
        "dropout": dropout, "norm": norm,
        "position": {
            "type": "T5Bias", "num_heads": heads, "num_buckets": buckets, "max_distance": far, "causal": is_decoder
        },
        "block": {
            "type": "PreNormBlock", "norm": norm, "cross_attention": is_decoder, "mlp": _mlp(config, dim),
            "attention": {"head_dim": config.size("d_kv", 64), "bias": False, "mechanism": mechanism},
        },
    }  # fmt: skip


def _heads(config: ConfigFile) -> int:
    return config.size("num_heads", _default(config, 3))


def _encoder(config: ConfigFile) -> Settings:
    """Section `model` of the encoder alone."""
    config.get("scale_decoder_outputs")  # of the head
    _depth(config, "decoder")
    dropout = config.number("dropout_rate", 0.1)
    return {"position": "NoPosition", "dropout": dropout, "backbone": _stack(config, "encoder")}


def _whole(config: ConfigFile) -> Settings:
    """Section `model` of encoder and decoder."""
    sides = {side: _stack(config, side) for side in SIDES}
    return {
        **_encoder(config),
        "share_embeddings": True,
        "backbone": {"type": "EncoderDecoder", **sides},
    }


def _rows(config: ConfigFile, side: str, ours: str) -> Rows:
    def attention(ours: str, theirs: str, *projections: tuple[str, str]) -> Rows:
        rows = module(f"{ours}.out_proj", f"{theirs}.o")
        for name, of in projections:
            rows += module(f"{ours}.{name}", *(f"{theirs}.{letter}" for letter in of))
        return rows

    layer = [
        *attention("attention", "layer.0.SelfAttention", ("qkv_proj", "qkv")),
        *module("attention_norm", "layer.0.layer_norm"),
    ]
    if side == "decoder":
        layer += attention(
            "cross_attention", "layer.1.EncDecAttention", ("q_proj", "q"), ("kv_proj", "kv")
        )
        layer += module("cross_norm", "layer.1.layer_norm")
    mlp = "layer.1" if side == "encoder" else "layer.2"
    first = [
        f"{mlp}.DenseReluDense.{name}"
        for name in (("wi_0", "wi_1") if _is_gated(config) else ("wi",))
    ]
    layer += [
        *module("mlp.gate_up_proj" if _is_gated(config) else "mlp.up_proj", *first),
        *module("mlp.down_proj", f"{mlp}.DenseReluDense.wo"),
        *module("mlp_norm", f"{mlp}.layer_norm"),
    ]
    distances = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return [
        *tensor(f"{ours}.positions.0.table", distances),
        *layers(_depth(config, side), f"{ours}.blocks.{{}}.", f"{side}.block.{{}}.", layer),
        *module(f"{ours}.norm", f"{side}.final_layer_norm"),
    ]


def _encoder_table(config: ConfigFile) -> Rows:
    return [*shared_table("embedder.content.weight"), *_rows(config, "encoder", "backbone")]


def _whole_table(config: ConfigFile) -> Rows:
    sides = [row for side in SIDES for row in _rows(config, side, f"backbone.{side}")]
    return [*shared_table("source_embedder.content.weight"), *sides]


def _is_tied(config: ConfigFile) -> bool:
    """Whether the output layer is the table: as in the first T5, whose outputs are scaled, which newer files say."""
    if config.model_type == "mt5":
        return False
    is_scaled = config.get("scale_decoder_outputs")
    if is_scaled is None:
        return config.get("tie_word_embeddings", True) is not False
    return bool(is_scaled)


def _objective(config: ConfigFile) -> Settings:
    held = Generation(config)
    start = held.one_id("decoder_start_token_id", held.one_id("pad_token_id", 0))
    if _is_tied(config):
        scale = config.size("d_model", _default(config, 0)) ** -0.5
    else:
        scale = 1.0
    head = {"tied": _is_tied(config), "bias": False, "logit_scale": scale}
    return {**writes(config, [start], 1, _default(config, 5)), **head}


def _head(config: ConfigFile) -> Rows:
    if _is_tied(config):
        return alias("source_embedder.content.weight", "lm_head.weight")
    return module("head.linear", "lm_head")


SEQ2SEQ = Head(("ForConditionalGeneration",), _objective, _head, written_state(lambda _: LONGEST))
OLD = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.",)
"""Distances between source and target, which old files hold and no version of transformers reads."""

T5 = Family(_encoder, _encoder_table, "", left_out=("decoder.", "lm_head."), lacks=lacks_decoder)
WHOLE_T5 = Family(_whole, _whole_table, "", {"Seq2Seq": SEQ2SEQ}, OLD)
