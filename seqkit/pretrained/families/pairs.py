"""CLIP, MetaCLIP 2 and SigLIP, whole and each tower alone (transformers 5.23).

d width · c channels · p q height and width of a patch
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from seqkit.errors import DataError
from seqkit.pretrained.config_file import ConfigFile, read_json, tokenizer_file
from seqkit.pretrained.families.vision import checked_images, kernel, patches_to_a_side
from seqkit.pretrained.family import (
    ACTIVATIONS,
    Family,
    Head,
    Settings,
    block,
    class_of,
    depth_of,
    layer_norm,
    learned,
)
from seqkit.pretrained.rows import Rearranged, Rows, below, layers, module, modules, tensor

TEXT = "text"
IMAGE = "image"


@dataclass(frozen=True)
class Sizes:
    """Sizes of a tower where the file does not say them."""

    dim: int = 768
    heads: int = 12
    inner: int = 3072


@dataclass(frozen=True)
class Default:
    """Values of both towers of a model type where the file does not say them.

    num_tokens, num_ids: of texts. text: sizes of their tower; those of images are the same in all.
    """

    eps: float
    activation: str
    patch: int
    num_tokens: int
    num_ids: int
    text: Sizes


CLIP = Default(1e-5, "quick_gelu", 32, 77, 49408, Sizes(512, 8, 2048))
SIGLIP = Default(1e-6, "gelu_pytorch_tanh", 16, 64, 32000, Sizes())


PREFIX = {TEXT: "text_model.", IMAGE: "vision_model."}
"""Beginnings of the names of a tower's weights in the whole model."""


def _is_clip(config: ConfigFile) -> bool:
    return config.model_type.startswith(("clip", "metaclip_2"))


def _default(config: ConfigFile) -> Default:
    return CLIP if _is_clip(config) else SIGLIP


def _sizes(config: ConfigFile, part: str) -> Sizes:
    return _default(config).text if part == TEXT else Sizes()


def _section(config: ConfigFile, part: str) -> ConfigFile:
    """Settings of the tower of a part; those of CLIP may stand under a second name, which then counts alone."""
    name = {TEXT: "text_config", IMAGE: "vision_config"}[part]
    config.get(name)
    second = f"{name}_dict"
    has_second = _is_clip(config) and config.get(second) is not None
    found = config.section(second) if has_second else config.section(name)
    kinds = (config.model_type, f"{config.model_type}_{name.removesuffix('_config')}_model")
    if found.model_type not in kinds:
        raise found.refused("model_type", " or ".join(kinds))
    return found


# ── towers ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _dim(config: ConfigFile, part: str) -> int:
    return config.size("hidden_size", _sizes(config, part).dim)


def _heads(config: ConfigFile, part: str) -> int:
    return config.size("num_attention_heads", _sizes(config, part).heads)


def _norm(config: ConfigFile) -> Settings:
    return layer_norm(config, _default(config).eps)


def _mlp(config: ConfigFile, part: str) -> Settings:
    activation = config.one_of("hidden_act", ACTIVATIONS, _default(config).activation)
    ratio = config.size("intermediate_size", _sizes(config, part).inner) / _dim(config, part)
    return {"type": "MLP", "ratio": ratio, "activation": activation}


def _patch(config: ConfigFile) -> int:
    return config.size("patch_size", _default(config).patch)


def _num_positions(config: ConfigFile, part: str) -> int:
    if part == TEXT:
        return config.size("max_position_embeddings", _default(config).num_tokens)
    return _is_clip(config) + patches_to_a_side(config, _patch(config)) ** 2


def _position(config: ConfigFile, part: str) -> Settings:
    return learned(_num_positions(config, part))


def _backbone(config: ConfigFile, part: str) -> Settings:
    if part == IMAGE:
        config.must_be(3, "num_channels")
    norm = _norm(config)
    dropout = config.number("attention_dropout", 0.0)
    return {
        "type": "Transformer",
        "dim": _dim(config, part),
        "depth": depth_of(config, default=12),
        "num_heads": _heads(config, part),
        "causal": _is_clip(config) and part == TEXT,
        "norm": norm,
        "dropout": 0.0,
        "block": block("PreNormBlock", norm, _mlp(config, part), dropout),
        "input_norm": norm if _is_clip(config) and part == IMAGE else None,
    }


def _projection(config: ConfigFile, part: str) -> Settings:
    """From the hidden states of a tower to its vector."""
    if _is_clip(config) or part == TEXT:
        pool = "last" if part == TEXT else "first"
        return {"type": "LinearProjection", "pool": pool, "bias": not _is_clip(config)}
    config.must_be(True, "vision_use_head")
    return {
        "type": "AttentionPooling",
        "num_heads": _heads(config, part),
        "mlp": _mlp(config, part),
        "norm": _norm(config),
    }


def _tower(config: ConfigFile, part: str) -> Rows:
    """Names of the weights of embedder and backbone of a tower."""
    layer = modules(
        {
            "attention_norm": "layer_norm1",
            "attention.qkv_proj": tuple(f"self_attn.{name}_proj" for name in "qkv"),
            "attention.out_proj": "self_attn.out_proj",
            "mlp_norm": "layer_norm2",
            "mlp.up_proj": "mlp.fc1",
            "mlp.down_proj": "mlp.fc2",
        }
    )
    rows = layers(depth_of(config, default=12), "backbone.blocks.{}.", "encoder.layers.{}.", layer)
    rows += tensor("embedder.position.tables.0", "embeddings.position_embedding.weight")
    if part == TEXT:
        rows += tensor("embedder.content.weight", "embeddings.token_embedding.weight")
        return rows + module("backbone.norm", "final_layer_norm")
    content = "embedder.content"
    if _is_clip(config):
        first = Rearranged("d -> 1 d", {})
        rows += tensor("embedder.content.prefix", "embeddings.class_embedding", whole=first)
        rows += module("backbone.input_norm", "pre_layrnorm")
        content += ".projection"
    else:
        rows += tensor(f"{content}.bias", "embeddings.patch_embedding.bias")
    rows += tensor(
        f"{content}.weight", "embeddings.patch_embedding.weight", whole=kernel(3, _patch(config))
    )
    return rows + module("backbone.norm", "post_layernorm")


def _projection_rows(config: ConfigFile, part: str) -> Rows:
    """Names of the weights of a projection, those of SigLIP below its tower."""
    if _is_clip(config):
        return module("linear", {TEXT: "text_projection", IMAGE: "visual_projection"}[part])
    if part == TEXT:
        return module("linear", "head")
    return [
        *tensor("query", "head.probe", whole=Rearranged("1 1 d -> d", {})),
        *tensor("qkv_proj.weight", "head.attention.in_proj_weight"),
        *tensor("qkv_proj.bias", "head.attention.in_proj_bias"),
        *modules(
            {
                "out_proj": "head.attention.out_proj",
                "norm": "head.layernorm",
                "mlp.up_proj": "head.mlp.fc1",
                "mlp.down_proj": "head.mlp.fc2",
            }
        ),
    ]


# ── inputs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _images(folder: Path, config: ConfigFile) -> Settings:
    return checked_images(
        folder, _patch(config), config.size("image_size", 224), int(_is_clip(config))
    )


def _texts(folder: Path, config: ConfigFile) -> Settings:
    """Texts as they are published for: CLIP's end at the first end token, SigLIP's are filled up to all positions."""
    from seqkit.tokenizers.from_file import FromFile

    path = tokenizer_file(folder)
    most = _num_positions(config, TEXT)
    num_ids = config.size("vocab_size", _default(config).num_ids)
    found = {"type": "FromFile", "path": str(path), "num_ids": num_ids, "max_tokens": most}
    said = folder / "tokenizer_config.json"
    of_tokenizer = read_json(said) if said.exists() else {}
    known = FromFile(str(path))
    if not _is_clip(config):
        length = of_tokenizer.get("model_max_length", most)
        if length != most:
            raise DataError(
                f"{said}: model_max_length is {length}, and the table of positions is for {most}; give {most}"
            )
        pad = of_tokenizer.get("pad_token") or "</s>"
        pad = pad.get("content") if isinstance(pad, Mapping) else pad
        if (pad_id := known.id_of(str(pad))) is None:
            raise DataError(
                f"{path} has no token {pad}, which fills texts; give the pad_token of {said.name}"
            )
        return {**found, "pad_id": pad_id}
    end = config.get("eos_token_id", 49407)
    last = int(known.encode("a").content[-1])
    # 2 stands in files of CLIP whose model pools at the greatest id
    if end == 2 and config.model_type.startswith("clip"):
        end = known.vocab_size - 1
    if last != end:
        raise DataError(
            f"{path} ends texts with id {last}, and the model pools at id {end}; give the tokenizer of the model"
        )
    return {**found, "end_id": end}


INPUTS = {TEXT: _texts, IMAGE: _images}

# ── families ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _num_outputs(config: ConfigFile, part: str) -> int:
    """Width of the vector of a tower that has a projection of its own."""
    if _is_clip(config):
        return config.size("projection_dim", 512)
    dim = _dim(config, part)
    if part == TEXT and config.get("projection_size") is not None:
        return config.size("projection_size", dim)
    return dim


def _alone(part: str) -> Family:
    """The family of one tower. CLIP's have a projection in one class alone, which then names the tower, too."""

    def model(config: ConfigFile) -> Settings:
        objective(config)  # which other objectives leave out
        return {
            "position": _position(config, part),
            "backbone": _backbone(config, part),
            "dropout": 0.0,
            "embedding_bias": not _is_clip(config),
        }

    def is_clips_with_projection(config: ConfigFile) -> bool:
        return class_of(config).endswith("WithProjection")

    def has_projection(config: ConfigFile) -> bool:
        return not _is_clip(config) or is_clips_with_projection(config)

    def objective(config: ConfigFile) -> Settings:
        projection = _projection(config, part)
        if not has_projection(config):
            return {"type": "Features", "pool": projection["pool"]}
        return {"type": "Features", "projection": projection, "dim": _num_outputs(config, part)}

    def table(config: ConfigFile) -> Rows:
        if has_projection(config):
            return below(_projection_rows(config, part), "head.projection.", "")
        return []

    head = Head(("",), objective, table, has_prefix=is_clips_with_projection)
    left_out = ("text_projection.", "visual_projection.", "head.")
    return Family(
        model,
        lambda config: _tower(config, part),
        PREFIX[part],
        {"Features": head},
        left_out,
        INPUTS[part],
    )


def _whole(config: ConfigFile) -> Settings:
    _contrastive(config)  # which other objectives leave out
    towers = {part: _section(config, part) for part in INPUTS}
    return {
        "positions": {part: _position(tower, part) for part, tower in towers.items()},
        "dropout": 0.0,
        "embedding_bias": not _is_clip(config),
        "backbone": {
            "type": "Towers",
            "parts": {part: _backbone(tower, part) for part, tower in towers.items()},
        },
    }


def _contrastive(config: ConfigFile) -> Settings:
    """The objective, without a limit of the scale, which their classes do not have either."""
    towers = {part: _section(config, part) for part in INPUTS}
    of_whole = {part: config if _is_clip(config) else tower for part, tower in towers.items()}
    dim, *others = {_num_outputs(of_whole[part], part) for part in INPUTS}
    if others:
        raise towers[TEXT].refused(
            "projection_size", f"the width of images, {_dim(towers[IMAGE], IMAGE)}"
        )
    return {
        "type": "Contrastive",
        "parts": [*INPUTS],
        "dim": dim,
        "max_scale": None,
        "loss": "softmax" if _is_clip(config) else "sigmoid",
        "projections": {part: _projection(tower, part) for part, tower in towers.items()},
    }


def _of_tower(rows: Rows, part: str) -> Rows:
    """Rows of a tower alone as those of the same in the whole."""
    return [
        replace(row, ours=row.ours.replace(".", f".parts.{part}.", 1))
        for row in below(rows, "", PREFIX[part])
    ]


def _whole_table(config: ConfigFile) -> Rows:
    return [row for part in INPUTS for row in _of_tower(_tower(_section(config, part), part), part)]


def _contrastive_table(config: ConfigFile) -> Rows:
    if _is_clip(config):
        rows = tensor("head.logit_scale", "logit_scale", whole=Rearranged("-> 1", {}))
        prefix = dict.fromkeys(INPUTS, "")
    else:
        rows = tensor("head.logit_scale", "logit_scale")
        rows += tensor("head.logit_bias", "logit_bias")
        prefix = PREFIX
    for part in INPUTS:
        own = _projection_rows(_section(config, part), part)
        rows += below(own, f"head.projections.{part}.", prefix[part])
    return rows


def _joined(folder: Path, config: ConfigFile) -> Settings:
    parts = {part: make(folder, _section(config, part)) for part, make in INPUTS.items()}
    return {"type": "Join", "parts": parts}


PROJECTIONS = ("text_projection.", "visual_projection.")
HEADS = ("logit_scale", "logit_bias", "text_model.head.", "vision_model.head.")
PAIR = Family(
    _whole,
    _whole_table,
    "",
    {
        "Contrastive": Head(
            ("",), _contrastive, _contrastive_table, lambda _: {"has_classes": False}
        )
    },
    PROJECTIONS + HEADS,
    _joined,
)
PAIRS: dict[str, Family] = {
    f"{name}{end}": family
    for name in ("clip", "metaclip_2", "siglip")
    for end, family in (
        ("", PAIR),
        ("_text_model", _alone(TEXT)),
        ("_vision_model", _alone(IMAGE)),
    )
}
"""Both models, and their towers."""
