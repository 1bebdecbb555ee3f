"""ViT, DeiT, MAE, MSN, I-JEPA, and DINOv2 with and without registers (transformers 5.23).

n tokens · d width · c channels · p q height and width of a patch
"""

from __future__ import annotations

from collections.abc import Mapping
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


PREFIX = {"deit": ("cls_token", "distillation_token"), "ijepa": ()}
"""Learned tokens with a position before the patches, where they are others than a class token."""


def _is_dino(config: ConfigFile) -> bool:
    return config.model_type.startswith("dinov2")


def _patch(config: ConfigFile) -> int:
    return config.size("patch_size", 14 if config.model_type == "dinov2" else 16)


def _prefix(config: ConfigFile) -> tuple[str, ...]:
    return PREFIX.get(config.model_type, ("cls_token",))


def num_registers(config: ConfigFile, default: int) -> int:
    """Learned tokens without a position, behind the class token."""
    if config.get("num_register_tokens", default) == 0:
        return 0
    return config.size("num_register_tokens", default)


def _num_registers(config: ConfigFile) -> int:
    return num_registers(config, 4) if config.model_type == "dinov2_with_registers" else 0


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
    return len(_prefix(config)) + num_to_a_side**2


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
    norm = layer_norm(config, 1e-6 if is_dino or config.model_type == "vit_msn" else 1e-12)
    dropout = config.number("hidden_dropout_prob", 0.0)
    mlp = _mlp(config, dim)
    layer = block("PreNormBlock", norm, mlp, config.number("attention_probs_dropout_prob", 0.0))
    position = learned(_num_positions(config))
    if is_dino:
        config.must_be(True, "apply_layernorm", "reshape_hidden_states")
        config.must_be(0.0, "drop_path_rate")
        layer["residual"] = {"layer_scale": config.number("layerscale_value", 1.0)}
        position["num_registers"] = _num_registers(config)
    return {
        "position": position,
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


def _is_gated(config: ConfigFile) -> bool:
    return _is_dino(config) and config.flag("use_swiglu_ffn", False)


def _mlp(config: ConfigFile, dim: int) -> Settings:
    inner = int(dim * config.number("mlp_ratio", 4.0)) if _is_dino(config) else 0
    if _is_gated(config):
        return {"type": "GatedMLP", "width": int(inner * 2 / 3), "multiple_of": 8, "bias": True}
    inner = inner or config.size("intermediate_size", 3072)
    activation = config.one_of("hidden_act", ACTIVATIONS, "gelu")
    return {"ratio": inner / dim, "activation": activation}


FIRST: Change = Rearranged("1 n d -> n d", {})
"""Tables that have an axis for the batch."""


def kernel(num_channels: int, p: int) -> Change:
    """The convolution over patches of p x p pixels as a linear layer."""
    return Rearranged("d c p q -> d (c p q)", {"c": num_channels, "p": p, "q": p})


def _interpolated(config: ConfigFile) -> Change:
    p = _patch(config)
    before = config.size("image_size", 224) // p
    is_antialiased = config.model_type == "dinov2_with_registers"
    return Interpolated(len(_prefix(config)), before, _image_side(config) // p, is_antialiased)


def prefix_rows(prefix: tuple[str, ...], registers: int) -> Rows:
    """The row of the learned tokens before the patches; of that many registers, if any, behind the others."""
    if not prefix:
        return []
    theirs = [f"embeddings.{name}" for name in prefix]
    sizes = [1] * len(prefix)
    if registers:
        theirs.append("embeddings.register_tokens")
        sizes.append(registers)
    changes = (FIRST,) * len(sizes)
    return [Row("embedder.content.prefix", tuple(theirs), tuple(sizes), changes)]


def _table(config: ConfigFile) -> Rows:
    prefix = _prefix(config)
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
                "mlp.down_proj": "mlp.weights_out" if _is_gated(config) else "mlp.fc2",
                "mlp.gate_up_proj": "mlp.weights_in",
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
    content = "embedder.content.projection" if prefix else "embedder.content"
    return [
        *prefix_rows(prefix, _num_registers(config)),
        *tensor(f"{content}.weight", f"{projection}.weight", whole=kernel(3, _patch(config))),
        *tensor(f"{content}.bias", f"{projection}.bias"),
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
    antialias: as of torch's `interpolate`.
    """

    num_prefix: int
    before: int
    after: int
    antialias: bool

    def read(self, x: Tensor, /) -> Tensor:
        """The table of `after` x `after` patches."""
        if self.before == self.after:
            return x
        import torch

        grid = rearrange(x[self.num_prefix :], "(h w) d -> 1 d h w", h=self.before).float()
        grid = torch.nn.functional.interpolate(
            grid, size=(self.after, self.after), mode="bicubic", antialias=self.antialias
        )
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
    num_prefix = len(_prefix(config)) + _num_registers(config)
    return checked_images(folder, _patch(config), side, num_prefix)


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


def _classify(pool: str) -> Mapping[str, Head]:
    head = Head(
        ("ForImageClassification",),
        lambda _: {"type": "Classify", "pool": pool},
        lambda _: module("head.linear", "classifier"),
        class_names,
    )
    return {"Classify": head}


def _family(prefix: str, heads: Mapping[str, Head]) -> Family:
    return Family(_model, _table, prefix, heads, LEFT_OUT, _inputs)


LEFT_OUT = ("pooler.", "classifier.", "decoder.", "distillation_classifier.", "cls_classifier.")
VISION: dict[str, Family] = {
    "vit": _family("vit.", _classify("first")),
    "vit_msn": _family("vit.", _classify("first")),
    "vit_mae": _family("vit.", {}),
    "deit": _family("deit.", _classify("first")),
    "ijepa": _family("ijepa.", _classify("mean")),
    # their classes also see the mean of the patches
    "dinov2": _family("dinov2.", {}),
    "dinov2_with_registers": _family("dinov2_with_registers.", {}),
}
