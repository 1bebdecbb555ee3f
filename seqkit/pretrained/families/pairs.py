"""CLIP and SigLIP, whole and each tower alone (transformers 5.23).

d width · c channels · p q height and width of a patch
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from seqkit.errors import DataError
from seqkit.pretrained.config_file import ConfigFile, own_file, read_json
from seqkit.pretrained.families.vision import checked_images, kernel
from seqkit.pretrained.family import ACTIVATIONS, Family, Head, Settings, class_of, depth_of
from seqkit.pretrained.rows import Rearranged, Rows, below, layers, module, tensor

TEXT = "text"
IMAGE = "image"


PREFIX = {TEXT: "text_model.", IMAGE: "vision_model."}
"""Beginnings of the names of a tower's weights in the whole model."""


def _is_clip(config: ConfigFile) -> bool:
    return config.model_type.startswith("clip")


def _section(config: ConfigFile, part: str) -> ConfigFile:
    """Settings of the tower of a part; those of CLIP may stand under a second name, which then counts alone."""
    name = {TEXT: "text_config", IMAGE: "vision_config"}[part]
    config.get(name)
    has_second = _is_clip(config) and config.get(f"{name}_dict") is not None
    found = config.section(f"{name}_dict" if has_second else name)
    kinds = (config.model_type, f"{config.model_type}_{name.removesuffix('_config')}_model")
    if found.model_type not in kinds:
        raise found.refused("model_type", " or ".join(kinds))
    return found


# ── towers ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _dim(config: ConfigFile, part: str) -> int:
    return config.size("hidden_size", 512 if _is_clip(config) and part == TEXT else 768)


def _heads(config: ConfigFile, part: str) -> int:
    return config.size("num_attention_heads", 8 if _is_clip(config) and part == TEXT else 12)


def _norm(config: ConfigFile) -> Settings:
    return {
        "type": "LayerNorm",
        "eps": config.positive("layer_norm_eps", 1e-5 if _is_clip(config) else 1e-6),
    }


def _mlp(config: ConfigFile, part: str) -> Settings:
    is_small = _is_clip(config) and part == TEXT
    activation = config.one_of(
        "hidden_act", ACTIVATIONS, "quick_gelu" if _is_clip(config) else "gelu_pytorch_tanh"
    )
    ratio = config.size("intermediate_size", 2048 if is_small else 3072) / _dim(config, part)
    return {"type": "MLP", "ratio": ratio, "activation": activation}


def _patch(config: ConfigFile) -> int:
    return config.size("patch_size", 32 if _is_clip(config) else 16)


def _num_positions(config: ConfigFile, part: str) -> int:
    if part == TEXT:
        return config.size("max_position_embeddings", 77 if _is_clip(config) else 64)
    side = config.size("image_size", 224)
    p = _patch(config)
    if side % p:
        raise config.refused("image_size", f"a multiple of the patch size, {p}")
    return _is_clip(config) + (side // p) ** 2


def _position(config: ConfigFile, part: str) -> Settings:
    return {"type": "Learned", "sizes": [_num_positions(config, part)]}


def _backbone(config: ConfigFile, part: str) -> Settings:
    if part == IMAGE:
        config.must_be(3, "num_channels")
    norm = _norm(config)
    dim = _dim(config, part)
    mechanism = {
        "type": "ScaledDotProductAttention",
        "dropout": config.number("attention_dropout", 0.0),
    }
    block = {
        "type": "PreNormBlock", "norm": norm, "mlp": _mlp(config, part), "attention": {"mechanism": mechanism},
    }  # fmt: skip
    return {
        "type": "Transformer", "dim": dim, "depth": depth_of(config, default=12), "num_heads": _heads(config, part),
        "causal": _is_clip(config) and part == TEXT, "norm": norm, "dropout": 0.0, "block": block,
        "input_norm": norm if _is_clip(config) and part == IMAGE else None,
    }  # fmt: skip


def _projection(config: ConfigFile, part: str) -> Settings:
    """From the hidden states of a tower to its vector."""
    if _is_clip(config) or part == TEXT:
        pool = "last" if part == TEXT else "first"
        return {"type": "LinearProjection", "pool": pool, "bias": not _is_clip(config)}
    config.must_be(True, "vision_use_head")
    norm = _norm(config)
    mlp = _mlp(config, part)
    return {"type": "AttentionPooling", "num_heads": _heads(config, part), "mlp": mlp, "norm": norm}


def _tower(config: ConfigFile, part: str) -> Rows:
    """Names of the weights of embedder and backbone of a tower."""
    layer = [
        *module("attention_norm", "layer_norm1"),
        *module("attention.qkv_proj", *(f"self_attn.{name}_proj" for name in "qkv")),
        *module("attention.out_proj", "self_attn.out_proj"),
        *module("mlp_norm", "layer_norm2"),
        *module("mlp.up_proj", "mlp.fc1"),
        *module("mlp.down_proj", "mlp.fc2"),
    ]
    rows = layers(depth_of(config, default=12), "backbone.blocks.{}.", "encoder.layers.{}.", layer)
    rows += tensor("embedder.position.tables.0", "embeddings.position_embedding.weight")
    if part == TEXT:
        rows += tensor("embedder.content.weight", "embeddings.token_embedding.weight")
        return rows + module("backbone.norm", "final_layer_norm")
    content = "embedder.content"
    if _is_clip(config):
        rows += tensor(
            "embedder.content.prefix",
            "embeddings.class_embedding",
            whole=Rearranged("d -> 1 d", {}),
        )
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
        *module("out_proj", "head.attention.out_proj"),
        *module("norm", "head.layernorm"),
        *module("mlp.up_proj", "head.mlp.fc1"),
        *module("mlp.down_proj", "head.mlp.fc2"),
    ]


# ── inputs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _images(folder: Path, config: ConfigFile) -> Settings:
    return checked_images(
        folder, _patch(config), config.size("image_size", 224), int(_is_clip(config))
    )


def _texts(folder: Path, config: ConfigFile) -> Settings:
    """Texts as they are published for: CLIP's end at the first end token, SigLIP's are filled up to all positions."""
    from seqkit.tokenizers.from_file import NAME, FromFile

    path = own_file(folder / NAME)
    most = _num_positions(config, TEXT)
    num_ids = config.size("vocab_size", 49408 if _is_clip(config) else 32000)
    found = {"type": "FromFile", "path": str(path), "num_ids": num_ids, "max_tokens": most}
    if not path.is_file():
        raise DataError(f"{folder} has no {NAME}; save its fast tokenizer there (save_pretrained)")
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
    # 2 stands in files whose model pools at the greatest id
    end = config.get("eos_token_id", 49407)
    last = int(known.encode("a").content[-1])
    end = known.vocab_size - 1 if end == 2 else end
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
        position = _position(config, part)
        bias = not _is_clip(config)
        return {
            "position": position,
            "backbone": _backbone(config, part),
            "dropout": 0.0,
            "embedding_bias": bias,
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
        "type": "Contrastive", "parts": [*INPUTS], "dim": dim, "max_scale": None,
        "loss": "softmax" if _is_clip(config) else "sigmoid",
        "projections": {part: _projection(tower, part) for part, tower in towers.items()},
    }  # fmt: skip


def _of_tower(rows: Rows, part: str) -> Rows:
    """Rows of a tower alone as those of the same in the whole."""
    return [
        replace(row, ours=row.ours.replace(".", f".parts.{part}.", 1))
        for row in below(rows, "", PREFIX[part])
    ]


def _whole_table(config: ConfigFile) -> Rows:
    return [row for part in INPUTS for row in _of_tower(_tower(_section(config, part), part), part)]


def _contrastive_table(config: ConfigFile) -> Rows:
    rows = tensor(
        "head.logit_scale",
        "logit_scale",
        whole=Rearranged("-> 1", {}) if _is_clip(config) else None,
    )
    for part in INPUTS:
        own = _projection_rows(_section(config, part), part)
        rows += below(own, f"head.projections.{part}.", "" if _is_clip(config) else PREFIX[part])
    if _is_clip(config):
        return rows
    return rows + tensor("head.logit_bias", "logit_bias")


def _joined(folder: Path, config: ConfigFile) -> Settings:
    parts = {part: make(folder, _section(config, part)) for part, make in INPUTS.items()}
    return {"type": "Join", "parts": parts}


PAIR = Family(
    _whole, _whole_table, "",
    {"Contrastive": Head(("",), _contrastive, _contrastive_table, lambda _: {"has_classes": False})},
    ("text_projection.", "visual_projection.", "logit_scale", "logit_bias", "text_model.head.", "vision_model.head."),
    _joined,
)  # fmt: skip
PAIRS: dict[str, Family] = {
    "clip": PAIR, "siglip": PAIR,
    **{f"{name}_text_model": _alone(TEXT) for name in ("clip", "siglip")},
    **{f"{name}_vision_model": _alone(IMAGE) for name in ("clip", "siglip")},
}  # fmt: skip
"""Both models, and their towers."""
