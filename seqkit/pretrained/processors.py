"""Image processors of pretrained vision models: what they do to an image, as the section `tokenizer` of a recipe.

Sources: `image_processing_backends` of transformers 5.23.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqkit.errors import DataError, suggest
from seqkit.pretrained.config_file import ConfigFile, read_json
from seqkit.pretrained.family import Settings

NESTED = "processor_config.json"
PLAIN = "preprocessor_config.json"
CHANNELS = 3
MAX_SIDE = 1 << 14

HALVES = [0.5] * 3
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])

SQUARE = {"height": 224, "width": 224}
_SQUARE = {"resample": 3, "size": SQUARE, "image_mean": HALVES, "image_std": HALVES}
_SHORTEST = {
    "resample": 3,
    "size": {"shortest_edge": 224},
    "do_center_crop": True,
    "default_to_square": False,
    "image_mean": CLIP[0],
    "image_std": CLIP[1],
}
PROCESSORS: dict[str, Settings] = {
    "ViTImageProcessor": {**_SQUARE, "resample": 2},
    "DeiTImageProcessor": {
        **_SQUARE,
        "size": {"height": 256, "width": 256},
        "do_center_crop": True,
    },
    "BeitImageProcessor": _SQUARE,
    "BitImageProcessor": _SHORTEST,
    "CLIPImageProcessor": _SHORTEST,
    "DINOv3ViTImageProcessor": {
        **_SQUARE,
        "resample": 2,
        "image_mean": IMAGENET[0],
        "image_std": IMAGENET[1],
    },
    "SiglipImageProcessor": {**_SQUARE, "default_to_square": False},
}
"""Values of keys that a file does not write, or writes as null, by the name of the class."""

DEFAULTS = {
    "crop_size": SQUARE,
    "default_to_square": True,
    "do_center_crop": False,
    "do_normalize": True,
    "do_pad": False,
    "do_rescale": True,
    "do_resize": True,
    "rescale_factor": 1 / 255,
    "use_square_size": False,
}
"""The same, of all classes."""

FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Filters by PIL's numbers."""


def image_settings(folder: Path) -> Settings:
    """The section `tokenizer` of a recipe for the images of a foreign model, without its patch size and its positions.

    folder: with `preprocessor_config.json` or `processor_config.json` of transformers.
    Raises DataError for a processor that is not read, or a setting of it.
    """
    config = config_of(
        folder, "image_processor", ("image_processor_type", "feature_extractor_type")
    )
    kind = config.model_type.replace("FeatureExtractor", "ImageProcessor")
    kind = kind.removesuffix("Fast").removesuffix("Pil")
    if kind not in PROCESSORS:
        raise DataError(
            f"{config.path}: the image processor {config.model_type} is not read; {suggest(kind, PROCESSORS)}"
        )
    config.drop_nulls()
    found = _settings(config, {**DEFAULTS, **PROCESSORS[kind]})
    if kind.startswith("DINOv3") and "resize" in found:
        # a bicubic one would leave [0, 1], where pixels stay
        config.must_be(2, "resample")
        found["resize"]["rounds"] = False
    config.log_unread()
    return found


def config_of(folder: Path, section: str, kinds: tuple[str, ...]) -> ConfigFile:
    """Settings of a processor: of that section of a file of several, or in a file of their own.

    Raises DataError where there is none of both, or it is damaged or names none of `kinds`.
    """
    nested = folder / NESTED
    if nested.exists() and section in read_json(nested):
        return ConfigFile(nested, kinds=kinds, section=section)
    if not (folder / PLAIN).is_file():
        raise DataError(
            f"{folder} has no {PLAIN}, which says how inputs are made; save the processor there, too"
        )
    return ConfigFile(folder / PLAIN, kinds=kinds)


def _settings(config: ConfigFile, default: Settings) -> Settings:
    """Settings of `Patches`. default: values of keys that the file does not write."""
    flags = {
        name: config.flag(name, default[name])
        for name in default
        if name.startswith(("do_", "default", "use"))
    }
    for name, known in (("do_rescale", True), ("do_pad", False), ("use_square_size", False)):
        if flags[name] is not known:
            raise config.refused(name, str(known).lower())
    factor = config.get("rescale_factor", default["rescale_factor"])
    if not isinstance(factor, float) or not math.isclose(factor, 1 / 255, rel_tol=1e-6):
        raise config.refused("rescale_factor", "1/255")
    size = _size(config, "size", default["size"], is_square=flags["default_to_square"])
    # it may be there without a use
    crop = _size(config, "crop_size", default["crop_size"], is_square=True)
    number = config.get("resample", default["resample"])
    if type(number) is not int or number not in FILTERS:
        raise config.refused("resample", " or ".join(f"{i} ({x})" for i, x in FILTERS.items()))
    resize = {"size": size, "interpolation": FILTERS[number]}
    if flags["do_center_crop"]:
        if not flags["do_resize"]:
            raise config.refused("do_resize", "true where do_center_crop is")
        least = [size] * 2 if isinstance(size, int) else size
        if not isinstance(crop, list) or any(cut > side for cut, side in zip(crop, least)):
            raise config.refused("crop_size", f"at most the size of {least}")
        resize["crop"] = crop
    found: Settings = {"type": "Patches", "channels": CHANNELS}
    if flags["do_resize"]:
        found["resize"] = resize
    for ours, theirs, none in (("mean", "image_mean", 0.0), ("std", "image_std", 1.0)):
        colours = _colours(config, theirs, default[theirs])
        found[ours] = colours if flags["do_normalize"] else none
    return found


def _size(config: ConfigFile, name: str, default: Any, *, is_square: bool) -> int | list[int]:
    """Height and width, or the length of the shorter side; a bare number is a square or the shorter side."""
    value = config.get(name, default)
    if type(value) is int and is_square:
        value = {"height": value, "width": value}
    elif type(value) is int:
        value = {"shortest_edge": value}
    sides = value if isinstance(value, Mapping) else {}
    if name == "size" and sides.keys() == {"shortest_edge"} and _is_side(sides["shortest_edge"]):
        return int(sides["shortest_edge"])
    if sides.keys() == {"height", "width"} and all(map(_is_side, sides.values())):
        return [sides["height"], sides["width"]]
    known = "height and width, or shortest_edge" if name == "size" else "height and width"
    raise config.refused(name, f"{known}, from 1 to {MAX_SIDE:,}")


def _is_side(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MAX_SIDE


def _colours(config: ConfigFile, name: str, default: list[float]) -> list[float]:
    """A number for each colour; those of a `std` have to be positive."""
    value = config.get(name, default)
    values = value if isinstance(value, list) else [value] * CHANNELS
    low, kind = (0.0, "positive number") if name.endswith("std") else (-math.inf, "number")
    if len(values) != CHANNELS or not all(
        isinstance(x, int | float) and low < x < math.inf for x in values
    ):
        raise config.refused(name, f"a {kind} for each of {CHANNELS} colours")
    return [float(x) for x in values]
