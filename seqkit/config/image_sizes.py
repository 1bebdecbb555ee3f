"""Size and channels of a user's images, where a recipe leaves them open."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

MOST_PIXELS = 5 * 32 * 32
"""Most pixels of an image that is resized: a square has 64 x 64 in patches of 16, and others about as many."""


def with_image_size(tokenizer: Mapping[str, Any], source: Any) -> Mapping[str, Any]:
    """A tokenizer's section with the size of the images and their channels, where it says `resize: auto`.

    source: a folder of images, of which some are looked at; of any other data the size is square.
    """
    if tokenizer["type"] != "Patches" or tokenizer["resize"] != "auto":
        return tokenizer
    ratio = 1.0
    channels = tokenizer["channels"]
    found = source.shapes().values() if hasattr(source, "shapes") else ()
    if found:
        ratio = median(one for one, _ in found)
        if channels == 3 and len({opacity for _, opacity in found}) > 1:
            channels = 4
    patch = tokenizer["patch"]
    p, q = [patch, patch] if isinstance(patch, int) else patch
    rows, columns = grid(ratio * p / q, max(MOST_PIXELS // (p * q), 1))
    return {**tokenizer, "resize": [rows * p, columns * q], "channels": channels}


def grid(ratio: float, most: int) -> tuple[int, int]:
    """Rows and columns of at most so many patches, in the shape of an image. ratio: its columns by its rows.

    >>> grid(1, 20), grid(4 / 3, 20), grid(100 / 30, 20), grid(1 / 30, 20)
    ((4, 4), (4, 5), (2, 7), (20, 1))
    """
    stretch = max(ratio, 1 / ratio)
    sides = [(short, min(round(short * stretch), most)) for short in range(1, most + 1)]
    short, long = [side for side in sides if side[0] * side[1] <= most][-1]
    if ratio < 1:
        return long, short
    return short, long
