"""ViT, DeiT, MAE, MSN, I-JEPA, DINOv2 with and without registers, and DINOv3 (transformers 5.23).

n tokens · d width · c channels · p q height and width of a patch
"""

from __future__ import annotations

import math
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
from seqkit.pretrained.rows import (
    Change,
    Pairs,
    Rearranged,
    Row,
    Rows,
    layers,
    module,
    modules,
    tensor,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Kind:
    """Values of a model type where the file does not say them.

    prefix: learned tokens with a position before the patches. registers: number of those without, behind them; None:
    there is no such key.
    """

    prefix: tuple[str, ...] = ("cls_token",)
    registers: int | None = None
    patch: int = 16
    eps: float = 1e-12
    dim: int = 768
    heads: int = 12
    inner: int = 3072


KINDS = {
    "vit": Kind(),
    "vit_msn": Kind(eps=1e-6),
    "vit_mae": Kind(),
    "deit": Kind(prefix=("cls_token", "distillation_token")),
    "ijepa": Kind(prefix=()),
    "dinov2": Kind(patch=14, eps=1e-6),
    "dinov2_with_registers": Kind(registers=4, eps=1e-6),
    "dinov3_vit": Kind(registers=0, eps=1e-5, dim=384, heads=6, inner=1536),
}


def _kind(config: ConfigFile) -> Kind:
    return KINDS[config.model_type]


def _is_dinov2(config: ConfigFile) -> bool:
    return config.model_type.startswith("dinov2")


def _is_dinov3(config: ConfigFile) -> bool:
    return config.model_type == "dinov3_vit"


def _is_gated(config: ConfigFile) -> bool:
    return config.flag("use_gated_mlp" if _is_dinov3(config) else "use_swiglu_ffn", False)


def _patch(config: ConfigFile) -> int:
    return config.size("patch_size", _kind(config).patch)


def _dim(config: ConfigFile) -> int:
    return config.size("hidden_size", _kind(config).dim)


def _heads(config: ConfigFile) -> int:
    return config.size("num_attention_heads", _kind(config).heads)


def _prefix(config: ConfigFile) -> dict[str, int]:
    """How many learned tokens there are of each name before the patches."""
    found = dict.fromkeys(_kind(config).prefix, 1)
    default = _kind(config).registers
    if default is not None:
        num = config.get("num_register_tokens", default)
        found["register_tokens"] = num and config.size("num_register_tokens", default)
    return found


def patches_to_a_side(config: ConfigFile, p: int) -> int:
    """Patches of p x p pixels to a side of the images of the table. Raises DataError where they do not tile them."""
    side = config.size("image_size", 224)
    if side % p:
        raise config.refused("image_size", f"a multiple of the patch size, {p}")
    return side // p


def _num_positions(config: ConfigFile) -> int:
    p = _patch(config)
    num_to_a_side = patches_to_a_side(config, p)
    if _is_dinov2(config):
        num_to_a_side = _image_side(config) // p
    return len(_kind(config).prefix) + num_to_a_side**2


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
    config.must_be(0.0, "drop_path_rate")
    norm = layer_norm(config, _kind(config).eps)
    dropout = config.number("hidden_dropout_prob", 0.0)
    of_weights = "attention_dropout" if _is_dinov3(config) else "attention_probs_dropout_prob"
    layer = block("PreNormBlock", norm, _mlp(config), config.number(of_weights, 0.0))
    bias = config.flag("query_bias" if _is_dinov3(config) else "qkv_bias", True)
    layer["attention"] |= {"bias": bias, "out_bias": config.flag("proj_bias", True)}
    backbone = {
        "type": "Transformer",
        "dim": _dim(config),
        "depth": depth_of(config, default=12),
        "norm": norm,
        "dropout": dropout,
        "num_heads": _heads(config),
        "block": layer,
    }
    if config.model_type.startswith("dino"):
        layer["residual"] = {"layer_scale": config.number("layerscale_value", 1.0)}
    if not _is_dinov3(config):
        registers = _prefix(config).get("register_tokens", 0)
        position = {**learned(_num_positions(config)), "num_registers": registers}
        return {"position": position, "dropout": dropout, "backbone": backbone}
    if config.flag("value_bias", True) != bias or config.flag("key_bias", False) > bias:
        raise config.refused("query_bias", "what value_bias is, and true where key_bias is")
    backbone["position"] = {
        "type": "Rotary",
        "base": config.positive("rope_theta", 100.0),
        # 2 pi times coordinates from -1 to 1
        "scaling": {"type": "LinearScaling", "factor": 1 / (2 * math.pi)},
    }
    return {"position": "NoPosition", "dropout": dropout, "backbone": backbone}


def _mlp(config: ConfigFile) -> Settings:
    inner = config.size("intermediate_size", _kind(config).inner)
    activation = config.one_of("hidden_act", ACTIVATIONS, "gelu")
    if _is_dinov2(config):
        inner = int(_dim(config) * config.number("mlp_ratio", 4.0))
    found = {"activation": activation, "bias": config.flag("mlp_bias", True)}
    if not _is_gated(config):
        return {**found, "ratio": inner / _dim(config)}
    if _is_dinov2(config):
        found["activation"] = "SiLU"
        inner = (int(inner * 2 / 3) + 7) // 8 * 8
    return {**found, "type": "GatedMLP", "width": inner}


FIRST: Change = Rearranged("1 n d -> n d", {})
"""Tables that have an axis for the batch."""


def kernel(num_channels: int, p: int) -> Change:
    """The convolution over patches of p x p pixels as a linear layer."""
    return Rearranged("d c p q -> d (c p q)", {"c": num_channels, "p": p, "q": p})


def _interpolated(config: ConfigFile) -> Change | None:
    if not _is_dinov2(config):
        return None
    p = _patch(config)
    before = config.size("image_size", 224) // p
    is_antialiased = config.model_type == "dinov2_with_registers"
    return Interpolated(1, before, _image_side(config) // p, is_antialiased)


def _layer(config: ConfigFile) -> Rows:
    """Rows of a layer."""
    qkv: tuple[str, ...] = tuple(
        f"attention.attention.{name}" for name in ("query", "key", "value")
    )
    changes: tuple[Change | None, ...] = ()
    out = "attention.output.dense"
    norms = ("layernorm_before", "layernorm_after")
    up: str | tuple[str, ...] = "intermediate.dense"
    down = "output.dense"
    has_key_bias = True
    rows: Rows = []
    if config.model_type.startswith("dino"):
        norms = ("norm1", "norm2")
        up = "mlp.weights_in" if _is_gated(config) else "mlp.fc1"
        down = "mlp.weights_out" if _is_gated(config) else "mlp.fc2"
        rows += tensor("attention_residual.scale", "layer_scale1.lambda1")
        rows += tensor("mlp_residual.scale", "layer_scale2.lambda1")
    if _is_dinov3(config):
        qkv = tuple(f"attention.{name}_proj" for name in "qkv")
        pairs = Pairs(_dim(config) // _heads(config))
        changes = (pairs, pairs, None)
        out = "attention.o_proj"
        up = ("mlp.gate_proj", "mlp.up_proj") if _is_gated(config) else "mlp.up_proj"
        down = "mlp.down_proj"
        has_key_bias = config.flag("key_bias", False)
    names = {
        "attention.out_proj": out,
        "attention_norm": norms[0],
        "mlp_norm": norms[1],
        "mlp.gate_up_proj" if _is_gated(config) else "mlp.up_proj": up,
        "mlp.down_proj": down,
    }
    joined = module(
        "attention.qkv_proj",
        *qkv,
        sizes=(_dim(config),) * 3,
        changes=changes,
        without_bias=() if has_key_bias else qkv[1:2],
    )
    return [*joined, *modules(names), *rows]


def _table(config: ConfigFile) -> Rows:
    patches = "embeddings.patch_embeddings"
    last = "layernorm"
    each = "encoder.layer.{}."
    mask = "1 d -> d" if _is_dinov2(config) else "1 1 d -> d"
    rows: Rows = []
    if _is_dinov3(config):
        last = "norm"
        each = "layer.{}."
    else:
        patches += ".projection"
        table = "embedder.position.tables.0"
        rows.append(
            Row(
                table,
                ("embeddings.position_embeddings",),
                changes=(FIRST,),
                whole=_interpolated(config),
            )
        )
    content = "embedder.content"
    if prefix := _prefix(config):
        theirs = tuple(f"embeddings.{name}" for name in prefix)
        changes = (FIRST,) * len(theirs)
        rows.append(Row(f"{content}.prefix", theirs, tuple(prefix.values()), changes))
        content += ".projection"
    return [
        *rows,
        *tensor(f"{content}.weight", f"{patches}.weight", whole=kernel(3, _patch(config))),
        *tensor(f"{content}.bias", f"{patches}.bias"),
        *tensor(
            "embedder.mask_token",
            "embeddings.mask_token",
            whole=Rearranged(mask, {}),
            may_miss=True,
        ),
        *layers(depth_of(config, default=12), "backbone.blocks.{}.", each, _layer(config)),
        *module("backbone.norm", last),
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
    p = _patch(config)
    num_prefix = sum(_prefix(config).values())
    if _is_dinov3(config):
        found = {**image_settings(folder), "patch": [p, p], "positions": "centred"}
        return {**found, "num_prefix_tokens": num_prefix}
    side = _image_side(config) if _is_dinov2(config) else config.size("image_size", 224)
    return checked_images(folder, p, side, num_prefix)


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


def _classify(pool: str) -> Head:
    return Head(
        ("ForImageClassification",),
        lambda _: {"type": "Classify", "pool": pool},
        lambda _: module("head.linear", "classifier"),
        class_names,
    )


LEFT_OUT = ("pooler.", "classifier.", "decoder.", "distillation_classifier.", "cls_classifier.")
# classes of DINOv2 also see the mean of the patches
PREFIXES = {"vit_msn": "vit", "vit_mae": "vit", "dinov3_vit": "model"}
POOLS = {"vit": "first", "vit_msn": "first", "deit": "first", "ijepa": "mean"}
"""How a classifier of theirs pools, of types that have one that seqkit has."""
VISION: dict[str, Family] = {
    kind: Family(
        _model,
        _table,
        f"{PREFIXES.get(kind, kind)}.",
        {"Classify": _classify(POOLS[kind])} if kind in POOLS else {},
        LEFT_OUT,
        _inputs,
    )
    for kind in KINDS
}
