"""T5, T5 v1.1, mT5 and umT5 (transformers 5.23): RMSNorm, no biases, unscaled scores, tables of distances."""

from __future__ import annotations

from dataclasses import dataclass

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.encoder_decoder import (
    SIDES,
    Generation,
    attention_rows,
    lacks_decoder,
    shared_table,
    writes,
    written_state,
)
from seqkit.pretrained.family import (
    ACTIVATIONS,
    Family,
    Head,
    Settings,
    block,
    depth_of,
    distances,
)
from seqkit.pretrained.rows import Rows, alias, below, layers, module, modules, tensor

LONGEST = 512
"""Tokens of a target at most, as in training; distances have no table that ends."""


@dataclass(frozen=True)
class Default:
    """Values of a model type where the file does not say them."""

    inner: int
    depth: int
    heads: int
    mlp: str
    num_ids: int


MT5 = Default(inner=1024, depth=8, heads=6, mlp="gated-gelu", num_ids=250112)
DEFAULTS = {
    "t5": Default(inner=2048, depth=6, heads=8, mlp="relu", num_ids=32128),
    "mt5": MT5,
    "umt5": MT5,
}


def _default(config: ConfigFile) -> Default:
    return DEFAULTS[config.model_type]


def _dim(config: ConfigFile) -> int:
    return config.size("d_model", 512)


def _dropout(config: ConfigFile) -> float:
    return config.number("dropout_rate", 0.1)


def _depth(config: ConfigFile, side: str) -> int:
    depth = depth_of(config, "num_layers", _default(config).depth)
    if side == "encoder" or config.get("num_decoder_layers") is None:
        return depth
    return depth_of(config, "num_decoder_layers")


def _projection(config: ConfigFile) -> str:
    """Name of the activation, behind `gated-` where the MLP has a gate."""
    return str(config.get("feed_forward_proj", _default(config).mlp))


def _is_gated(config: ConfigFile) -> bool:
    return _projection(config).startswith("gated-")


def _mlp(config: ConfigFile) -> Settings:
    """The MLP: with a gate or without. Raises DataError for an activation that is not read."""
    given = _projection(config)
    inner = config.size("d_ff", _default(config).inner)
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
    ratio = inner / _dim(config)
    return {"type": "MLP", "activation": ACTIVATIONS[name], "ratio": ratio, "bias": False}


def _num_tables(config: ConfigFile, side: str) -> int:
    """Number of tables of distances of a side: one for all layers, or in umT5 one for each."""
    return _depth(config, side) if config.model_type == "umt5" else 1


def _stack(config: ConfigFile, side: str) -> Settings:
    heads = config.size("num_heads", _default(config).heads)
    is_decoder = side == "decoder"
    norm = {"type": "RMSNorm", "eps": config.positive("layer_norm_epsilon", 1e-6)}
    layer = block("PreNormBlock", norm, _mlp(config), _dropout(config))
    layer["cross_attention"] = is_decoder
    layer["attention"] |= {"head_dim": config.size("d_kv", 64), "bias": False}
    layer["attention"]["mechanism"]["temperature"] = 1.0
    buckets = ("relative_attention_num_buckets", 32)
    longest = ("relative_attention_max_distance", 128)
    position = {**distances(config, heads, buckets, longest), "causal": is_decoder}
    return {
        "type": "Transformer",
        "dim": _dim(config),
        "depth": _depth(config, side),
        "num_heads": heads,
        "causal": is_decoder,
        "dropout": _dropout(config),
        "norm": norm,
        "position": [position] * _num_tables(config, side),
        "block": layer,
    }


def _encoder(config: ConfigFile) -> Settings:
    """Section `model` of the encoder alone."""
    config.get("scale_decoder_outputs")  # of the head
    _depth(config, "decoder")
    backbone = _stack(config, "encoder")
    return {"position": "NoPosition", "dropout": _dropout(config), "backbone": backbone}


def _whole(config: ConfigFile) -> Settings:
    """Section `model` of encoder and decoder."""
    sides = {side: _stack(config, side) for side in SIDES}
    return {
        **_encoder(config),
        "share_embeddings": True,
        "backbone": {"type": "EncoderDecoder", **sides},
    }


NAMES = ("q", "k", "v", "o")


def _rows(config: ConfigFile, side: str, ours: str) -> Rows:
    layer = attention_rows("attention", "layer.0.SelfAttention", names=NAMES)
    layer += module("attention_norm", "layer.0.layer_norm")
    place = 1
    if side == "decoder":
        layer += attention_rows("cross_attention", "layer.1.EncDecAttention", names=NAMES)
        layer += module("cross_norm", "layer.1.layer_norm")
        place = 2
    mlp = modules({"up_proj": "wi", "down_proj": "wo"})
    if _is_gated(config):
        mlp = modules({"gate_up_proj": ("wi_0", "wi_1"), "down_proj": "wo"})
    layer += below(mlp, "mlp.", f"layer.{place}.DenseReluDense.")
    layer += module("mlp_norm", f"layer.{place}.layer_norm")
    distances = "layer.0.SelfAttention.relative_attention_bias.weight"
    tables = tensor("table", distances)
    tables = layers(
        _num_tables(config, side), f"{ours}.positions.{{}}.", f"{side}.block.{{}}.", tables
    )
    return [
        *tables,
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
    if config.model_type != "t5":
        return False
    is_scaled = config.get("scale_decoder_outputs")
    if is_scaled is None:
        return config.get("tie_word_embeddings", True) is not False
    return bool(is_scaled)


def _objective(config: ConfigFile) -> Settings:
    held = Generation(config)
    start = held.one_id("decoder_start_token_id", held.one_id("pad_token_id", 0))
    is_tied = _is_tied(config)
    # transformers 5.23 scales the outputs of umT5 whether they are tied or not
    is_scaled = is_tied or config.model_type == "umt5"
    scale = _dim(config) ** -0.5 if is_scaled else 1.0
    head = {"tied": is_tied, "bias": False, "logit_scale": scale}
    return {**writes(config, [start], 1, _default(config).num_ids), **head}


def _head(config: ConfigFile) -> Rows:
    if _is_tied(config):
        return alias("source_embedder.content.weight", "lm_head.weight")
    return module("head.linear", "lm_head")


SEQ2SEQ = Head(
    ("ForConditionalGeneration",),
    _objective,
    _head,
    written_state(lambda _: LONGEST),
    has_prefix=lambda _: False,
)
PREFIX = "transformer."
"""Prefix of the names in a classifier; its head is not read."""
HEADS = ("classification_head.", "classifier.", "qa_outputs.")
OLD = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.",)
"""Distances between source and target, which old files hold and no version of transformers reads."""

T5 = Family(
    _encoder,
    _encoder_table,
    PREFIX,
    left_out=("decoder.", "lm_head.", *HEADS),
    lacks=lacks_decoder,
)
WHOLE_T5 = Family(
    _whole,
    _whole_table,
    PREFIX,
    {"Seq2Seq": SEQ2SEQ},
    (*OLD, *HEADS),
    # transformers 5 ties every T5, and writes no head that is tied
    stand_ins={"lm_head.weight": "shared.weight"},
)
