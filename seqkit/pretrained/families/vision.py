"""ViT, DeiT and DINOv2 (transformers 5.23), and the ViT of timm (1.0.31).

n tokens · d width · c channels · p q height and width of a patch
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from seqkit.errors import DataError
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import ACTIVATIONS, MAX_LAYERS, Family, Head, Settings, class_names, depth_of
from seqkit.pretrained.processors import image_settings
from seqkit.pretrained.rows import Change, Rearranged, Row, Rows, layers, module, tensor


def _patch(config: ConfigFile) -> int:
    return config.size("patch_size", 14 if config.model_type.startswith("dinov2") else 16)


def _num_prefix(config: ConfigFile) -> int:
    return {"vit": 1, "deit": 2, "dinov2": 1}[config.model_type]


def _num_positions(config: ConfigFile) -> int:
    side = config.size("image_size", 224)
    if side % _patch(config):
        raise config.refused("image_size", f"a multiple of the patch size, {_patch(config)}")
    return _num_prefix(config) + (side // _patch(config)) ** 2


def _model(config: ConfigFile) -> Settings:
    config.must_be(3, "num_channels")
    return vit_settings(config, _num_positions(config))


def vit_settings(config: ConfigFile, num_positions: int) -> Settings:
    """Embedder and backbone of a ViT. num_positions: of all tokens, the learned ones before the patches too."""
    is_dino = config.model_type == "dinov2"
    config.must_be(True, "qkv_bias", *(["apply_layernorm", "reshape_hidden_states"] if is_dino else []))
    for unused in ("encoder_stride", "pooler_output_size", "pooler_act", "out_features", "out_indices", "stage_names"):
        config.get(unused)  # of a pooler and other heads
    dim = config.size("hidden_size", 768)
    norm = {"type": "LayerNorm", "eps": config.number("layer_norm_eps", 1e-6 if is_dino else 1e-12)}
    activation = config.one_of("hidden_act", ACTIVATIONS, "gelu")
    branches, attention = (config.number(f"{name}_dropout_prob", 0.0) for name in ("hidden", "attention_probs"))
    block: Settings = {
        "type": "PreNormBlock", "norm": norm,
        "mlp": {"ratio": _inner(config, dim) / dim, "activation": activation},
        "attention": {"mechanism": {"type": "ScaledDotProductAttention", "dropout": attention}},
    }  # fmt: skip
    if is_dino:
        config.must_be(False, "use_swiglu_ffn")
        config.get("use_mask_token")
        block["residual"] = {"layer_scale": config.number("layerscale_value", 1.0)}
        config.must_be(0.0, "drop_path_rate")
    return {
        "position": {"type": "Learned", "sizes": [num_positions]},
        "dropout": branches,
        "backbone": {
            "type": "Transformer", "dim": dim, "depth": depth_of(config, default=12), "norm": norm, "dropout": branches,
            "num_heads": config.size("num_attention_heads", 12), "block": block,
        },
    }  # fmt: skip


def _inner(config: ConfigFile, dim: int) -> int:
    if config.model_type == "dinov2":
        return int(dim * config.number("mlp_ratio", 4.0))
    return config.size("intermediate_size", 3072)


FIRST: Change = Rearranged("1 n d -> n d", {})
"""Tables that have an axis for the batch."""


def kernel(num_channels: int, p: int) -> Change:
    """The convolution over patches of p x p pixels as a linear layer."""
    return Rearranged("d c p q -> d (c p q)", {"c": num_channels, "p": p, "q": p})


def _table(config: ConfigFile) -> Rows:
    before = ["cls_token", *(["distillation_token"] if config.model_type == "deit" else [])]
    return vit_table(config, before, 3, _patch(config))


def vit_table(config: ConfigFile, before: list[str], num_channels: int, p: int) -> Rows:
    """Names of the weights of a ViT. before: names of the learned tokens. p: side of a patch."""
    is_dino = config.model_type == "dinov2"
    names = ("norm1", "norm2", "mlp.fc1", "mlp.fc2") if is_dino else (
        "layernorm_before", "layernorm_after", "intermediate.dense", "output.dense"
    )  # fmt: skip
    layer = [
        *module("attention_norm", names[0]),
        *module("attention.qkv_proj", *(f"attention.attention.{name}" for name in ("query", "key", "value"))),
        *module("attention.out_proj", "attention.output.dense"),
        *module("mlp_norm", names[1]),
        *module("mlp.up_proj", names[2]),
        *module("mlp.down_proj", names[3]),
    ]
    if is_dino:
        layer += tensor("attention_residual.scale", "layer_scale1.lambda1")
        layer += tensor("mlp_residual.scale", "layer_scale2.lambda1")
    prefix = tuple(f"embeddings.{name}" for name in before)
    mask = Rearranged("1 d -> d" if is_dino else "1 1 d -> d", {})
    return [
        Row("embedder.content.prefix", prefix, changes=(FIRST,) * len(prefix)),
        Row(
            "embedder.content.projection.weight",
            ("embeddings.patch_embeddings.projection.weight",),
            whole=kernel(num_channels, p),
        ),
        *tensor("embedder.content.projection.bias", "embeddings.patch_embeddings.projection.bias"),
        *tensor("embedder.position.tables.0", "embeddings.position_embeddings", whole=FIRST),
        *tensor("embedder.mask_token", "embeddings.mask_token", whole=mask, may_miss=True),
        *layers(depth_of(config, default=12), "backbone.blocks.{}.", "encoder.layer.{}.", layer),
        *module("backbone.norm", "layernorm"),
    ]


def _inputs(folder: Path, config: ConfigFile) -> Settings:
    return checked_images(folder, _patch(config), config.size("image_size", 224), _num_prefix(config))


def checked_images(folder: Path, p: int, side: int, num_prefix: int) -> Settings:
    """Patches of images as large as the table of positions is made for."""
    found = {**image_settings(folder), "patch": [p, p]}
    resize = found.get("resize", {})
    size = resize.get("crop") or resize.get("size")
    if size != [side, side]:
        raise DataError(
            f"{folder}: images become {size} pixels, and the table of positions is for {[side, side]}; give an image "
            "processor of that size"
        )
    return {**found, "num_prefix_tokens": num_prefix, "positions": "index"}


CLASSIFY = Head(
    ("ForImageClassification",), lambda _: {"type": "Classify", "pool": "first"},
    lambda _: module("head.linear", "classifier"), class_names,
)  # fmt: skip
LEFT_OUT = ("pooler.", "classifier.", "decoder.", "distillation_classifier.", "cls_classifier.")
VIT = Family(_model, _table, "vit.", {"Classify": CLASSIFY}, LEFT_OUT, _inputs)
DEIT = Family(_model, _table, "deit.", {"Classify": CLASSIFY}, LEFT_OUT, _inputs)
DINOV2 = Family(_model, _table, "dinov2.", {}, LEFT_OUT, _inputs)  # its classes also see the mean of the patches

# ── timm ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

TIMM = re.compile(r"(?:vit|deit)_(tiny|small|base|large|huge)_patch(\d+)_(\d+)")
"""Architectures of timm that are ViT as the paper has it; others have other norms, pooling or positions."""

TIMM_SIZES = {
    "tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16), "huge": (1280, 32, 16),
}  # fmt: skip
"""Width, layers and heads."""


@dataclass(frozen=True)
class _Timm:
    """Sizes of a ViT of timm, by its name and by `model_args`. side, patch: in pixels."""

    dim: int
    depth: int
    heads: int
    ratio: float
    patch: int
    side: int

    @property
    def num_positions(self) -> int:
        """Positions of the class token and the patches."""
        return 1 + (self.side // self.patch) ** 2


def _timm(config: ConfigFile) -> _Timm:
    match = TIMM.fullmatch(config.model_type)
    assert match is not None, "the family was found by it"
    given = dict(config.get("model_args") or {})
    dim, depth, heads = TIMM_SIZES[match[1]]
    side = given.pop("img_size", int(match[3]))
    height, width = side if isinstance(side, list) else (side, side)
    patch = given.pop("patch_size", int(match[2]))
    found = _Timm(
        given.pop("embed_dim", dim), given.pop("depth", depth), given.pop("num_heads", heads),
        given.pop("mlp_ratio", 4.0), patch, height,
    )  # fmt: skip
    usual = {"num_classes": config.get("num_classes", 1000), "in_chans": 3, "global_pool": "token", "qkv_bias": True}
    for name, value in given.items():
        if name not in usual or value != usual[name]:
            raise config.refused("model_args", f"sizes; {name}={value!r} is not read")
    if not all(isinstance(x, int) and 1 <= x <= 1 << 14 for x in (found.dim, found.depth, found.heads, patch, height)):
        raise config.refused("model_args", "whole numbers from 1 to 16,384")
    if height != width or height % patch or found.depth > MAX_LAYERS:
        raise config.refused("model_args", f"square images of a multiple of {patch} pixels")
    return found


def _timm_model(config: ConfigFile) -> Settings:
    config.must_be("token", "global_pool")
    for elsewhere in ("num_features", "pretrained_cfg", "label_names", "label_descriptions"):
        config.get(elsewhere)  # of the images and of the head
    sizes, norm = _timm(config), {"type": "LayerNorm", "eps": 1e-6}
    block = {"type": "PreNormBlock", "norm": norm, "mlp": {"ratio": sizes.ratio, "activation": "GELU"}}
    return {
        "position": {"type": "Learned", "sizes": [sizes.num_positions]},
        "dropout": 0.0,
        "backbone": {
            "type": "Transformer", "dim": sizes.dim, "depth": sizes.depth, "num_heads": sizes.heads, "norm": norm,
            "dropout": 0.0, "block": block,
        },
    }  # fmt: skip


def _timm_table(config: ConfigFile) -> Rows:
    sizes = _timm(config)
    layer = [
        *module("attention_norm", "norm1"),
        *module("attention.qkv_proj", "attn.qkv"),
        *module("attention.out_proj", "attn.proj"),
        *module("mlp_norm", "norm2"),
        *module("mlp.up_proj", "mlp.fc1"),
        *module("mlp.down_proj", "mlp.fc2"),
    ]
    return [
        *tensor("embedder.content.prefix", "cls_token", whole=FIRST),
        *tensor("embedder.content.projection.weight", "patch_embed.proj.weight", whole=kernel(3, sizes.patch)),
        *tensor("embedder.content.projection.bias", "patch_embed.proj.bias"),
        *tensor("embedder.position.tables.0", "pos_embed", whole=FIRST),
        *layers(sizes.depth, "backbone.blocks.{}.", "blocks.{}.", layer),
        *module("backbone.norm", "norm"),
    ]


def _timm_classes(config: ConfigFile) -> dict[str, list[str]]:
    """State of `Classify`: `label_names`, or LABEL_0, LABEL_1 and so on."""
    num = config.size("num_classes", 1000)
    names = config.get("label_names") or [f"LABEL_{i}" for i in range(num)]
    if not isinstance(names, list) or len(names) != num or num < 2:
        raise config.refused("label_names", f"a name for each of {num} classes")
    return {"names": [str(name) for name in names]}


def _timm_inputs(folder: Path, config: ConfigFile) -> Settings:
    sizes = _timm(config)
    return checked_images(folder, sizes.patch, sizes.side, 1)


VIT_OF_TIMM = Family(
    _timm_model, _timm_table, "",
    {
        "Classify": Head(
            ("",), lambda _: {"type": "Classify", "pool": "first"}, lambda _: module("head.linear", "head"),
            _timm_classes, lambda config: config.get("num_classes", 1000) > 1,
        )
    },
    ("head.",), _timm_inputs,
)  # fmt: skip
