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

NESTED = "processor_config.json"
PLAIN = "preprocessor_config.json"
CHANNELS = 3
MAX_SIDE = 1 << 14

HALVES = [0.5] * 3
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])

_SQUARE = {
    "resample": 3,
    "size": {"height": 224, "width": 224},
    "image_mean": HALVES,
    "image_std": HALVES,
}
_SHORTEST = {
    "resample": 3, "size": {"shortest_edge": 224}, "do_center_crop": True, "default_to_square": False,
    "image_mean": CLIP[0], "image_std": CLIP[1],
}  # fmt: skip
PROCESSORS: dict[str, dict[str, Any]] = {
    "ViTImageProcessor": {**_SQUARE, "resample": 2},
    "DeiTImageProcessor": {
        **_SQUARE,
        "size": {"height": 256, "width": 256},
        "do_center_crop": True,
    },
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

FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Filters by PIL's numbers."""


def image_settings(folder: Path) -> dict[str, Any]:
    """The section `tokenizer` of a recipe for the images of a foreign model, without its patch size and its positions.

    folder: with `preprocessor_config.json` or `processor_config.json` of transformers.
    Raises DataError for a processor that is not read, or a setting of it.
    """
    if has_section(folder / NESTED, "image_processor"):
        return _processor(folder / NESTED, "image_processor")
    if (folder / PLAIN).is_file():
        return _processor(folder / PLAIN, None)
    raise DataError(
        f"{folder} has no {PLAIN}, which says how images are resized; save the image processor there, too"
    )


def has_section(path: Path, name: str) -> bool:
    """Whether there is a JSON file with these settings. Raises DataError if it is damaged."""
    return path.exists() and name in read_json(path)


# ── transformers ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _processor(path: Path, section: str | None) -> dict[str, Any]:
    kinds = ("image_processor_type", "feature_extractor_type")
    config = ConfigFile(path, kinds=kinds, section=section)
    kind = (
        config.model_type.replace("FeatureExtractor", "ImageProcessor")
        .removesuffix("Fast")
        .removesuffix("Pil")
    )
    if kind not in PROCESSORS:
        raise DataError(
            f"{path}: the image processor {config.model_type} is not read; {suggest(kind, PROCESSORS)}"
        )
    default: dict[str, Any] = {**DEFAULTS, **PROCESSORS[kind]}
    flags = {
        name: _flag(config, name, default[name])
        for name in default
        if name.startswith(("do_", "default", "use"))
    }
    for name, known in (("do_rescale", True), ("do_pad", False), ("use_square_size", False)):
        if flags[name] is not known:
            raise config.refused(name, str(known).lower())
    factor = _given(config, "rescale_factor", default["rescale_factor"])
    if not isinstance(factor, float) or not math.isclose(factor, 1 / 255, rel_tol=1e-6):
        raise config.refused("rescale_factor", "1/255")
    found: dict[str, Any] = {"type": "Patches", "channels": CHANNELS}
    size = _size(config, "size", default["size"], is_square=flags["default_to_square"])
    resize = {
        "size": size,
        "interpolation": _option(config, "resample", FILTERS, default["resample"]),
    }
    # it may be there without a use
    crop = _size(config, "crop_size", default["crop_size"], is_square=True)
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
    config.warn_of_unread()
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
        raise config.refused(
            name, " or ".join(f"{number} ({what})" for number, what in options.items())
        )
    return options[value]


def _size(config: ConfigFile, name: str, default: Any, *, is_square: bool) -> int | list[int]:
    """Height and width, or the length of the shorter side; a bare number is a square or the shorter side."""
    value = _given(config, name, default)
    if isinstance(value, int) and not isinstance(value, bool):
        if is_square:
            value = {"height": value, "width": value}
        else:
            value = {"shortest_edge": value}
    sides = value if isinstance(value, Mapping) else {}
    if name == "size" and sides.keys() == {"shortest_edge"} and _is_side(sides["shortest_edge"]):
        return int(sides["shortest_edge"])
    if sides.keys() == {"height", "width"} and all(map(_is_side, sides.values())):
        return [sides["height"], sides["width"]]
    raise config.refused(
        name, f"height and width{', or shortest_edge' * (name == 'size')}, from 1 to {MAX_SIDE:,}"
    )


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SIDE


def _colours(config: ConfigFile, name: str, default: list[float]) -> list[float]:
    """A number for each colour; those of a `std` have to be positive."""
    value = _given(config, name, default)
    values = value if isinstance(value, list) else [value] * CHANNELS
    low = 0.0 if name.endswith("std") else -math.inf
    if len(values) != CHANNELS or not all(
        isinstance(x, int | float) and low < x < math.inf for x in values
    ):
        raise config.refused(
            name, f"a{' positive' * (low == 0)} number for each of {CHANNELS} colours"
        )
    return [float(x) for x in values]
