"""Image processors of pretrained vision models: what they do to an image, as the section `tokenizer` of a recipe.

Sources: `image_processing_backends` of transformers 5.23, and `timm.data.transforms_factory` of timm 1.0.31.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqkit.errors import DataError, suggest
from seqkit.files import decoded, load_json, read_small
from seqkit.pretrained.config_file import MAX_BYTES, NAME, ConfigFile

NESTED, PLAIN = "processor_config.json", "preprocessor_config.json"
CHANNELS, MAX_SIDE = 3, 1 << 14

HALVES = [0.5] * 3
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])

_SQUARE = {"resample": 3, "size": {"height": 224, "width": 224}, "image_mean": HALVES, "image_std": HALVES}
_SHORTEST = {
    "resample": 3, "size": {"shortest_edge": 224}, "do_center_crop": True, "default_to_square": False,
    "image_mean": CLIP[0], "image_std": CLIP[1],
}  # fmt: skip
PROCESSORS: dict[str, dict[str, Any]] = {
    "ViTImageProcessor": {**_SQUARE, "resample": 2},
    "DeiTImageProcessor": {**_SQUARE, "size": {"height": 256, "width": 256}, "do_center_crop": True},
    "BeitImageProcessor": _SQUARE,
    "BitImageProcessor": _SHORTEST,
    "CLIPImageProcessor": _SHORTEST,
    "SiglipImageProcessor": {**_SQUARE, "default_to_square": False},
}
"""Values of keys that a file does not write, or writes as null, by the name of the class."""

DEFAULTS = {
    "crop_size": {"height": 224, "width": 224}, "default_to_square": True, "do_center_crop": False,
    "do_normalize": True, "do_pad": False, "do_rescale": True, "do_resize": True, "rescale_factor": 1 / 255,
    "use_square_size": False,
}  # fmt: skip
"""The same, of all classes."""

CHANGES_NOTHING = {
    "_valid_processor_keys", "data_format", "device", "disable_grouping", "do_convert_rgb", "do_reduce_labels",
    "image_seq_length", "input_data_format", "pad_size", "processor_class", "reduce_labels", "return_tensors",
}  # fmt: skip
"""Keys that do not change the pixels of a colour image. Others are always converted to three colours: where
`do_convert_rgb` is false, those processors refuse them or make a grey image of them."""

FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Filters by PIL's numbers."""

TIMM_CHANGES_NOTHING = {
    "architecture", "classifier", "custom_load", "description", "file", "first_conv", "fixed_input_size",
    "hf_hub_filename", "hf_hub_id", "label_descriptions", "label_names", "label_offset", "license", "min_input_size",
    "notes", "num_classes", "origin_url", "paper_ids", "paper_name", "pool_size", "source", "tag", "test_crop_pct",
    "test_input_size", "test_pool_size", "url",
}  # fmt: skip
"""Keys of timm that do not change the pixels, unless sizes for tests are asked for."""


def image_settings(folder: Path) -> dict[str, Any]:
    """The section `tokenizer` of a recipe for the images of a foreign model, without its patch size and its positions.

    folder: with `preprocessor_config.json` or `processor_config.json` of transformers, or `config.json` of timm.
    Raises DataError for a processor that is not read, or a setting of it.
    """
    if "image_processor" in _keys(folder / NESTED):
        return _processor(folder / NESTED, "image_processor")
    if (folder / PLAIN).is_file():
        return _processor(folder / PLAIN, None)
    if "pretrained_cfg" in _keys(folder / NAME):
        return _timm(folder / NAME)
    raise DataError(f"{folder} has no {PLAIN}, which says how images are resized; save the image processor there, too")


def _keys(path: Path) -> set[str]:
    """Keys of a JSON file; none where it is missing or damaged."""
    try:
        return {*load_json(decoded(read_small(path, MAX_BYTES)))}
    except (OSError, ValueError, TypeError):
        return set()


# ── transformers ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _processor(path: Path, section: str | None) -> dict[str, Any]:
    kinds = ("image_processor_type", "feature_extractor_type")
    config = ConfigFile(path, kinds=kinds, section=section, changes_nothing=CHANGES_NOTHING)
    kind = config.model_type.replace("FeatureExtractor", "ImageProcessor").removesuffix("Fast").removesuffix("Pil")
    if kind not in PROCESSORS:
        raise DataError(f"{path}: the image processor {config.model_type} is not read; {suggest(kind, PROCESSORS)}")
    default: dict[str, Any] = {**DEFAULTS, **PROCESSORS[kind]}
    flags = {name: _flag(config, name, default[name]) for name in default if name.startswith(("do_", "default", "use"))}
    for name, known in (("do_rescale", True), ("do_pad", False), ("use_square_size", False)):
        if flags[name] is not known:
            raise config.refused(name, str(known).lower())
    factor = _given(config, "rescale_factor", default["rescale_factor"])
    if not isinstance(factor, float) or not math.isclose(factor, 1 / 255, rel_tol=1e-6):
        raise config.refused("rescale_factor", "1/255")
    found: dict[str, Any] = {"type": "Patches", "channels": CHANNELS}
    size = _size(config, "size", default["size"], is_square=flags["default_to_square"])
    resize = {"size": size, "interpolation": _option(config, "resample", FILTERS, default["resample"])}
    crop = _size(config, "crop_size", default["crop_size"], is_square=True)  # it may be there without a use
    if flags["do_center_crop"]:
        if not flags["do_resize"]:
            raise config.refused("do_resize", "true where do_center_crop is")
        least = [size] * 2 if isinstance(size, int) else size
        if not isinstance(crop, list) or any(cut > side for cut, side in zip(crop, least)):
            raise config.refused("crop_size", f"at most the size of {least}")
        resize["crop"] = crop
    if flags["do_resize"]:
        found["resize"] = resize
    for ours, theirs, none in (("mean", "image_mean", 0.0), ("std", "image_std", 1.0)):
        colours = _colours(config, theirs, default[theirs])
        found[ours] = colours if flags["do_normalize"] else none
    config.check_all_read()
    return found


def _given(config: ConfigFile, name: str, default: Any) -> Any:
    """Value of a key, or the default where it is not written, or null."""
    value = config.get(name)
    return default if value is None else value


def _flag(config: ConfigFile, name: str, default: bool) -> bool:
    value = _given(config, name, default)
    if not isinstance(value, bool):
        raise config.refused(name, "true or false")
    return value


def _option(config: ConfigFile, name: str, options: Mapping[Any, str], default: Any) -> str:
    value = _given(config, name, default)
    if isinstance(value, bool | list | dict) or value not in options:
        raise config.refused(name, " or ".join(f"{number} ({what})" for number, what in options.items()))
    return options[value]


def _size(config: ConfigFile, name: str, default: Any, *, is_square: bool) -> int | list[int]:
    """Height and width, or the length of the shorter side; a bare number is a square or the shorter side."""
    value = _given(config, name, default)
    if isinstance(value, int) and not isinstance(value, bool):
        value = {"height": value, "width": value} if is_square else {"shortest_edge": value}
    sides = value if isinstance(value, Mapping) else {}
    if name == "size" and sides.keys() == {"shortest_edge"} and _is_side(sides["shortest_edge"]):
        return int(sides["shortest_edge"])
    if sides.keys() == {"height", "width"} and all(map(_is_side, sides.values())):
        return [sides["height"], sides["width"]]
    raise config.refused(name, f"height and width{', or shortest_edge' * (name == 'size')}, from 1 to {MAX_SIDE:,}")


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SIDE


def _colours(config: ConfigFile, name: str, default: list[float]) -> list[float]:
    """A number for each colour; those of a `std` have to be positive."""
    value = _given(config, name, default)
    values = value if isinstance(value, list) else [value] * CHANNELS
    low = 0.0 if name.endswith("std") else -math.inf
    if len(values) != CHANNELS or not all(isinstance(x, int | float) and low < x < math.inf for x in values):
        raise config.refused(name, f"a{' positive' * (low == 0)} number for each of {CHANNELS} colours")
    return [float(x) for x in values]


# ── timm ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _timm(path: Path) -> dict[str, Any]:
    config = ConfigFile(path, kinds=("architecture",), section="pretrained_cfg", changes_nothing=TIMM_CHANGES_NOTHING)
    size = _given(config, "input_size", [CHANNELS, 224, 224])
    if not isinstance(size, list) or len(size) != 3 or size[0] != CHANNELS or not all(map(_is_side, size[1:])):
        raise config.refused("input_size", f"{CHANNELS} colours, height and width, from 1 to {MAX_SIDE:,}")
    crop, share = size[1:], _given(config, "crop_pct", 0.875)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise config.refused("crop_pct", "a share above 0 and at most 1")
    larger = [math.floor(side / share) for side in crop]
    mode = _option(config, "crop_mode", {"center": "middle", "squash": "whole image"}, "center")
    if mode == "middle" and crop[0] != crop[1]:
        raise config.refused("input_size", "as high as wide where crop_mode is center")
    interpolation = _option(config, "interpolation", dict(zip(FILTERS.values(), FILTERS.values())), "bicubic")
    found = {
        "type": "Patches",
        "channels": CHANNELS,
        "resize": {
            "size": larger[0] if mode == "middle" else larger,
            "crop": crop,
            "interpolation": interpolation,
            "middle": "round",
        },
        "mean": _colours(config, "mean", IMAGENET[0]),
        "std": _colours(config, "std", IMAGENET[1]),
    }
    config.check_all_read()
    return found
