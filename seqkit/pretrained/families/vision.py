"""ViT, DeiT and DINOv2 (transformers 5.23).

n tokens · d width · c channels · p q height and width of a patch
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from einops import rearrange

from seqkit.errors import DataError
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import ACTIVATIONS, Family, Head, Settings, class_names, depth_of
from seqkit.pretrained.processors import image_settings
from seqkit.pretrained.rows import Change, Rearranged, Row, Rows, layers, module, tensor

if TYPE_CHECKING:
    from torch import Tensor


def _patch(config: ConfigFile) -> int:
    return config.size("patch_size", 14 if config.model_type.startswith("dinov2") else 16)


def _num_prefix(config: ConfigFile) -> int:
    return {"vit": 1, "deit": 2, "dinov2": 1}[config.model_type]


def _num_positions(config: ConfigFile) -> int:
    side = config.size("image_size", 224)
    if side % _patch(config):
        raise config.refused("image_size", f"a multiple of the patch size, {_patch(config)}")
    if config.model_type == "dinov2":
        side = _image_side(config.path.parent, _patch(config))
    return _num_prefix(config) + (side // _patch(config)) ** 2


def _image_side(folder: Path, p: int) -> int:
    """Side in pixels of the images that the processor makes. Raises DataError unless p x p patches tile a square."""
    size = _image_size(image_settings(folder))
    if size is None or size[0] != size[1] or size[0] % p:
        raise DataError(
            f"{folder}: images become {size} pixels; give a processor of squares that {p} x {p} patches tile"
        )
    return size[0]


def _image_size(found: Settings) -> list[int] | None:
    resize = found.get("resize", {})
    size: list[int] | None = resize.get("crop") or resize.get("size")
    return size


def _model(config: ConfigFile) -> Settings:
    config.must_be(3, "num_channels")
    is_dino = config.model_type == "dinov2"
    config.must_be(
        True, "qkv_bias", *(["apply_layernorm", "reshape_hidden_states"] if is_dino else [])
    )
    dim = config.size("hidden_size", 768)
    norm = {
        "type": "LayerNorm",
        "eps": config.positive("layer_norm_eps", 1e-6 if is_dino else 1e-12),
    }
    activation = config.one_of("hidden_act", ACTIVATIONS, "gelu")
    branches, attention = (
        config.number(f"{name}_dropout_prob", 0.0) for name in ("hidden", "attention_probs")
    )
    block: Settings = {
        "type": "PreNormBlock", "norm": norm,
        "mlp": {"ratio": _inner(config, dim) / dim, "activation": activation},
        "attention": {"mechanism": {"type": "ScaledDotProductAttention", "dropout": attention}},
    }  # fmt: skip
    if is_dino:
        config.must_be(False, "use_swiglu_ffn")
        block["residual"] = {"layer_scale": config.number("layerscale_value", 1.0)}
        config.must_be(0.0, "drop_path_rate")
    return {
        "position": {"type": "Learned", "sizes": [_num_positions(config)]},
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


def _interpolated(config: ConfigFile) -> Change:
    p = _patch(config)
    sides = config.size("image_size", 224), _image_side(config.path.parent, p)
    return Interpolated(_num_prefix(config), *(side // p for side in sides))


def _table(config: ConfigFile) -> Rows:
    before = ["cls_token", *(["distillation_token"] if config.model_type == "deit" else [])]
    is_dino = config.model_type == "dinov2"
    if is_dino:
        names = ("norm1", "norm2", "mlp.fc1", "mlp.fc2")
    else:
        names = ("layernorm_before", "layernorm_after", "intermediate.dense", "output.dense")
    layer = [
        *module("attention_norm", names[0]),
        *module(
            "attention.qkv_proj",
            *(f"attention.attention.{name}" for name in ("query", "key", "value")),
        ),
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
            whole=kernel(3, _patch(config)),
        ),
        *tensor("embedder.content.projection.bias", "embeddings.patch_embeddings.projection.bias"),
        Row(
            "embedder.position.tables.0",
            ("embeddings.position_embeddings",),
            changes=(FIRST,),
            whole=_interpolated(config) if is_dino else None,
        ),
        *tensor("embedder.mask_token", "embeddings.mask_token", whole=mask, may_miss=True),
        *layers(depth_of(config, default=12), "backbone.blocks.{}.", "encoder.layer.{}.", layer),
        *module("backbone.norm", "layernorm"),
    ]


@dataclass(frozen=True)
class Interpolated:
    """A table of positions [n d] for images of another size, as transformers interpolates it (bicubic, in float32).

    num_prefix: tokens before the patches, which keep theirs. before, after: patches to a side, in the file and here.
    """

    num_prefix: int
    before: int
    after: int

    def read(self, x: Tensor, /) -> Tensor:
        """The table of `after` x `after` patches."""
        if self.before == self.after:
            return x
        import torch

        grid = rearrange(x[self.num_prefix :], "(h w) d -> 1 d h w", h=self.before).float()
        grid = torch.nn.functional.interpolate(grid, size=(self.after, self.after), mode="bicubic")
        return torch.cat([x[: self.num_prefix], rearrange(grid, "1 d h w -> (h w) d").to(x.dtype)])

    def write(self, x: Tensor, /) -> Tensor:
        """The table itself. Raises DataError for one that was interpolated, as the original is lost."""
        if self.before != self.after:
            raise DataError(
                f"the table of positions was made for {self.before} x {self.before} patches and is interpolated to "
                f"{self.after} x {self.after}, which the original folder cannot hold; use --to safetensors"
            )
        return x


def _inputs(folder: Path, config: ConfigFile) -> Settings:
    if config.model_type == "dinov2":
        return checked_images(
            folder, _patch(config), _image_side(folder, _patch(config)), _num_prefix(config)
        )
    return checked_images(
        folder, _patch(config), config.size("image_size", 224), _num_prefix(config)
    )


def checked_images(folder: Path, p: int, side: int, num_prefix: int) -> Settings:
    """Patches of images as large as the table of positions is made for."""
    found = {**image_settings(folder), "patch": [p, p]}
    size = _image_size(found)
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
# its classes also see the mean of the patches
DINOV2 = Family(_model, _table, "dinov2.", {}, LEFT_OUT, _inputs)
