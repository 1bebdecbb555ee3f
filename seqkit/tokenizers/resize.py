"""Resizing of images as the image processors of pretrained vision models do it: PIL's filters, in 8 bits.

c channels · H W image height and width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqkit.errors import DataError
from seqkit.tokenizers.settings import check_choice

MAX_PIXELS = 2**26
"""Most pixels of a resized image: a line of 1 × 10,000 pixels would become one of 224 × 2,240,000."""

ROUNDING = 1e-3
"""Distance from whole numbers, in levels of 255, below which pixels are those of 8 bits that somebody divided."""


@dataclass(frozen=True)
class Resize:
    """Size of the images that are cut into patches, for weights that were trained with another library's processor.

    size: (height, width) in pixels; or one number: the length of the shorter side, and the aspect ratio stays.
    crop: (height, width) of the middle that is kept afterwards; None: all.
    interpolation: filter, antialiased. rounds: whether pixels of 8 bits are rounded to 8 bits, as PIL does (DINOv3's
    are not); others never are.
    middle: where the middle of an odd number of left-over pixels is: one more is cut behind it ("floor", as Hugging
    Face), or before it where that makes the cut even ("round", as torchvision and timm).
    Raises ValueError for sizes below 1, or a crop that is larger than the resized image.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # of a recipe

    size: int | tuple[int, int]
    crop: tuple[int, int] | None = None
    interpolation: Literal["bilinear", "bicubic", "lanczos"] = "bilinear"
    middle: Literal["floor", "round"] = "floor"
    rounds: bool = True

    def __post_init__(self) -> None:
        size = self.size
        if not isinstance(size, int):
            size = (int(size[0]), int(size[1]))
        crop = None if self.crop is None else (int(self.crop[0]), int(self.crop[1]))
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "crop", crop)
        if min(*self._least, *(crop or (1, 1))) < 1:
            raise ValueError(f"size={self.size}, crop={self.crop}; give sizes of at least 1")
        if crop is not None and any(cut > side for cut, side in zip(crop, self._least)):
            raise ValueError(
                f"crop={crop} is larger than an image of size={self.size} may be; give a larger size"
            )
        check_choice("interpolation", self.interpolation, "bilinear", "bicubic", "lanczos")
        check_choice("middle", self.middle, "floor", "round")

    @property
    def result(self) -> tuple[int, int] | None:
        """(height, width) of every resized image; None: they vary."""
        if self.crop is not None or isinstance(self.size, int):
            return self.crop
        return self.size

    @property
    def keeps_its_result(self) -> bool:
        """True: a resized image that is resized again stays as it is."""
        return self.crop is None or self.crop == self._least

    @property
    def _least(self) -> tuple[int, int]:
        """Least height and width before the crop."""
        if isinstance(self.size, int):
            return (self.size, self.size)
        return self.size

    def apply(self, image: Tensor) -> Tensor:
        """The resized image, of [c H W] in [0, 1]. Raises DataError for one of more than `MAX_PIXELS` pixels."""
        height, width = image.shape[1:]
        if isinstance(self.size, int):
            short, long = sorted((height, width))
            longer = int(self.size * long / short)
            target = (longer, self.size) if width <= height else (self.size, longer)
        else:
            target = self.size
        if target[0] * target[1] > MAX_PIXELS:
            raise DataError(
                f"image of {height}x{width} pixels would be resized to {target[0]}x{target[1]}; crop it"
            )
        image = _interpolated(image, target, self.interpolation, self.rounds)
        if self.crop is None:
            return image
        return middle_of(image, self.crop, self.middle)

    def undone(self, image: Tensor) -> Tensor:
        """The resized image before its crop, with zeros for what was cut. `apply` gives the same image again."""
        if self.crop is None:
            return image
        height, width = self._least
        h, w = self.crop
        top = _start(height - h, self.middle)
        left = _start(width - w, self.middle)
        return F.pad(image, [left, width - w - left, top, height - h - top])


def has_8_bits(image: Tensor) -> bool:
    """Whether the pixels, in [0, 1], are whole numbers of 0 to 255, divided."""
    levels = image * 255
    return bool((levels - levels.round()).abs().max() <= ROUNDING)


def middle_of(image: Tensor, size: tuple[int, int], middle: str) -> Tensor:
    """The middle of that size of an image [c H W]. middle: as of `Resize`."""
    top, left = (_start(side - cut, middle) for side, cut in zip(image.shape[1:], size))
    return image[:, top : top + size[0], left : left + size[1]]


def _start(num_cut: int, middle: str) -> int:
    return num_cut // 2 if middle == "floor" else round(num_cut / 2)


def _interpolated(image: Tensor, size: tuple[int, int], interpolation: str, rounds: bool) -> Tensor:
    """An image [c H W] at another size; itself where it has that size."""
    if image.shape[1:] == size:
        return image
    from PIL import Image

    kind = Image.Resampling[interpolation.upper()]
    is_whole = rounds and has_8_bits(image)
    planes = ((image * 255).round().to(torch.uint8) if is_whole else image).numpy()
    resized = np.stack(
        [np.asarray(Image.fromarray(plane).resize(size[::-1], kind)) for plane in planes]
    )
    # filters with negative weights leave [0, 1] where pixels are not clipped to 8 bits
    if is_whole:
        return torch.from_numpy(resized) / 255
    return torch.from_numpy(resized).clamp(0, 1)
