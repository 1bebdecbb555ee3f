"""Size and channels of a user's images, where a recipe leaves them open."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from statistics import median
from typing import Any

from seqkit.errors import DataError

MOST_PIXELS = 5 * 32 * 32
"""Most pixels of an image that is resized: a square has 64 x 64 in patches of 16, and others about as many."""


def with_image_size(
    tokenizer: Mapping[str, Any], source: Any, column: str | None = None
) -> Mapping[str, Any]:
    """A tokenizer's section with the size of the images and their channels, where it says `auto`.

    source: a folder or a table of images, of which some are looked at; of any other data they are squares in colour.
    column: of a table; None: the one of images.
    """
    if tokenizer["type"] == "Join":
        reads = tokenizer["reads"] or {}
        parts = {
            name: with_image_size(part, source, reads.get(name, name))
            for name, part in tokenizer["parts"].items()
        }
        return {**tokenizer, "parts": parts}
    if tokenizer["type"] != "Patches" or "auto" not in (tokenizer["resize"], tokenizer["channels"]):
        return tokenizer
    found = _looked_at(source, column)
    settled = dict(tokenizer)
    if tokenizer["channels"] == "auto":
        settled["channels"] = 4 if len({opacity for _, opacity in found}) > 1 else 3
    if tokenizer["resize"] == "auto":
        ratio = median([one for one, _ in found] or [1.0])
        patch = tokenizer["patch"]
        p, q = [patch, patch] if isinstance(patch, int) else patch
        rows, columns = grid(ratio * p / q, max(MOST_PIXELS // (p * q), 1))
        settled["resize"] = [rows * p, columns * q]
    return settled


def _looked_at(source: Any, column: str | None) -> list[tuple[float, bytes]]:
    """Width by height and opacity of a few images. What is wrong with the data is said where it is read."""
    from seqkit.data.io import shape_and_opacity
    from seqkit.data.sources.folder_kinds import tried

    if not hasattr(source, "images"):
        return []
    with suppress(DataError):
        return [*tried(shape_and_opacity, source.images(column)).values()]
    return []


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
