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
from seqkit.pretrained.family import (
    ACTIVATIONS,
    Family,
    Head,
    Settings,
    block,
    class_names,
    depth_of,
    layer_norm,
    learned,
)
from seqkit.pretrained.processors import image_settings
from seqkit.pretrained.rows import Change, Rearranged, Row, Rows, layers, module, modules, tensor

if TYPE_CHECKING:
    from torch import Tensor


def _is_dino(config: ConfigFile) -> bool:
    return config.model_type == "dinov2"


def _patch(config: ConfigFile) -> int:
    return config.size("patch_size", 14 if _is_dino(config) else 16)


def _num_prefix(config: ConfigFile) -> int:
    return {"vit": 1, "deit": 2, "dinov2": 1}[config.model_type]


def patches_to_a_side(config: ConfigFile, p: int) -> int:
    """Patches of p x p pixels to a side of the images of the table. Raises DataError where they do not tile them."""
    side = config.size("image_size", 224)
    if side % p:
        raise config.refused("image_size", f"a multiple of the patch size, {p}")
    return side // p


def _num_positions(config: ConfigFile) -> int:
    p = _patch(config)
    num_to_a_side = patches_to_a_side(config, p)
    if _is_dino(config):
        num_to_a_side = _image_side(config) // p
    return _num_prefix(config) + num_to_a_side**2


def _image_side(config: ConfigFile) -> int:
    """Side in pixels of the images that the processor makes. Raises DataError unless patches tile a square."""
    folder = config.path.parent
    p = _patch(config)
    size = _image_size(image_settings(folder))
    if size is None or size[0] != size[1] or size[0] % p:
        raise DataError(
            f"{folder}: images become {size} pixels; give a processor of squares that {p} x {p} patches tile"
        )
    return size[0]


def _image_size(found: Settings) -> list[int] | None:
    resize = found.get("resize", {})
    return resize.get("crop") or resize.get("size")  # type: ignore[no-any-return]


def _model(config: ConfigFile) -> Settings:
    config.must_be(3, "num_channels")
    config.must_be(True, "qkv_bias")
    is_dino = _is_dino(config)
    dim = config.size("hidden_size", 768)
    norm = layer_norm(config, 1e-6 if is_dino else 1e-12)
    dropout = config.number("hidden_dropout_prob", 0.0)
    if is_dino:
        inner = int(dim * config.number("mlp_ratio", 4.0))
    else:
        inner = config.size("intermediate_size", 3072)
    activation = config.one_of("hidden_act", ACTIVATIONS, "gelu")
    mlp = {"ratio": inner / dim, "activation": activation}
    layer = block("PreNormBlock", norm, mlp, config.number("attention_probs_dropout_prob", 0.0))
    if is_dino:
        config.must_be(True, "apply_layernorm", "reshape_hidden_states")
        config.must_be(False, "use_swiglu_ffn")
        config.must_be(0.0, "drop_path_rate")
        layer["residual"] = {"layer_scale": config.number("layerscale_value", 1.0)}
    return {
        "position": learned(_num_positions(config)),
        "dropout": dropout,
        "backbone": {
            "type": "Transformer",
            "dim": dim,
            "depth": depth_of(config, default=12),
            "norm": norm,
            "dropout": dropout,
            "num_heads": config.size("num_attention_heads", 12),
            "block": layer,
        },
    }


FIRST: Change = Rearranged("1 n d -> n d", {})
"""Tables that have an axis for the batch."""


def kernel(num_channels: int, p: int) -> Change:
    """The convolution over patches of p x p pixels as a linear layer."""
    return Rearranged("d c p q -> d (c p q)", {"c": num_channels, "p": p, "q": p})


def _interpolated(config: ConfigFile) -> Change:
    p = _patch(config)
    before = config.size("image_size", 224) // p
    return Interpolated(_num_prefix(config), before, _image_side(config) // p)


def _table(config: ConfigFile) -> Rows:
    prefix: tuple[str, ...] = ("embeddings.cls_token",)
    if config.model_type == "deit":
        prefix = (*prefix, "embeddings.distillation_token")
    qkv = tuple(f"attention.attention.{name}" for name in ("query", "key", "value"))
    layer = modules({"attention.qkv_proj": qkv, "attention.out_proj": "attention.output.dense"})
    mask = "1 1 d -> d"
    interpolated = None
    if _is_dino(config):
        layer += modules(
            {
                "attention_norm": "norm1",
                "mlp_norm": "norm2",
                "mlp.up_proj": "mlp.fc1",
                "mlp.down_proj": "mlp.fc2",
            }
        )
        layer += tensor("attention_residual.scale", "layer_scale1.lambda1")
        layer += tensor("mlp_residual.scale", "layer_scale2.lambda1")
        mask = "1 d -> d"
        interpolated = _interpolated(config)
    else:
        layer += modules(
            {
                "attention_norm": "layernorm_before",
                "mlp_norm": "layernorm_after",
                "mlp.up_proj": "intermediate.dense",
                "mlp.down_proj": "output.dense",
            }
        )
    projection = "embeddings.patch_embeddings.projection"
    return [
        Row("embedder.content.prefix", prefix, changes=(FIRST,) * len(prefix)),
        *tensor(
            "embedder.content.projection.weight",
            f"{projection}.weight",
            whole=kernel(3, _patch(config)),
        ),
        *tensor("embedder.content.projection.bias", f"{projection}.bias"),
        Row(
            "embedder.position.tables.0",
            ("embeddings.position_embeddings",),
            changes=(FIRST,),
            whole=interpolated,
        ),
        *tensor(
            "embedder.mask_token",
            "embeddings.mask_token",
            whole=Rearranged(mask, {}),
            may_miss=True,
        ),
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
    side = _image_side(config) if _is_dino(config) else config.size("image_size", 224)
    return checked_images(folder, _patch(config), side, _num_prefix(config))


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
    ("ForImageClassification",),
    lambda _: {"type": "Classify", "pool": "first"},
    lambda _: module("head.linear", "classifier"),
    class_names,
)
LEFT_OUT = ("pooler.", "classifier.", "decoder.", "distillation_classifier.", "cls_classifier.")
VIT = Family(_model, _table, "vit.", {"Classify": CLASSIFY}, LEFT_OUT, _inputs)
DEIT = Family(_model, _table, "deit.", {"Classify": CLASSIFY}, LEFT_OUT, _inputs)
# its classes also see the mean of the patches
DINOV2 = Family(_model, _table, "dinov2.", {}, LEFT_OUT, _inputs)
