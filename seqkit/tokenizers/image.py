"""Images as patches: one token per patch, positions are (row, column) of the patch.

c channels · H W image height and width · h w grid of patches · p q patch height and width · f = c p q · n = h w
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.raw import describe_tensor

MAX_PATCHES = 2**14
"""Most patches of an image (2,048 x 2,048 pixels in patches of 16 x 16): larger photographs would fill the memory."""

_SLACK = 1e-3  # rounding of whoever scaled the pixels


class Patches(Tokenizer):
    """p x q patches of a c x H x W image, row by row; a linear layer over them is ViT's patch embedding.

    patch: side of a patch in pixels, or (height, width).
    channels: number of channels: 1 for grey, 3 for colour (a grey image is repeated three times), or any other number.
    resize: (height, width) in pixels to which every image is resized first (bilinear, antialiased). None keeps the size
    of the images, which patches must then tile.
    crop: True resizes the largest part in the middle that has the shape of `resize`; False resizes the whole image,
    which changes its aspect ratio.
    mean: subtracted from pixels in [0, 1], one number or one per channel.
    std: pixels are divided by it afterwards, one number or one per channel.
    When: images of any size they tile. Raises ValueError on sizes below 1 or a std that is not positive.
    Dosovitskiy et al. 2021.
    """

    def __init__(
        self,
        patch: int | tuple[int, int],
        *,
        channels: int = 1,
        resize: tuple[int, int] | None = None,
        crop: bool = False,
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 0.5,
    ) -> None:
        self.patch = (patch, patch) if isinstance(patch, int) else (int(patch[0]), int(patch[1]))
        self.channels = channels
        self.resize = None if resize is None else (int(resize[0]), int(resize[1]))
        self.crop = crop
        if min(*self.patch, channels, *(self.resize or (1, 1))) < 1:
            raise ValueError(f"patch={patch}, channels={channels}, resize={resize}; give sizes of at least 1")
        if self.resize is not None:
            untiled = _untiled(*self.resize, *self.patch)
            if untiled:
                raise ValueError(f"resize {untiled}")
        elif crop:
            raise ValueError("crop=True is the shape of what is resized; give resize, too")
        self.mean, self.std = _per_channel("mean", mean, channels), _per_channel("std", std, channels)
        if float(self.std.min()) <= 0:
            raise ValueError(f"std={std}; give positive numbers, pixels are divided by them")

    def __getstate__(self) -> dict[str, Any]:
        """State with numbers in place of tensors, whose pickled bytes vary: equal tokenizers then pickle alike."""
        return self.__dict__ | {"mean": self.mean.flatten().tolist(), "std": self.std.flatten().tolist()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores the tensors."""
        self.__dict__.update(state)
        self.mean, self.std = (_per_channel(name, state[name], self.channels) for name in ("mean", "std"))

    def __repr__(self) -> str:
        return f"Patches({self.patch}, channels={self.channels}, resize={self.resize}, crop={self.crop})"

    @property
    def spec(self) -> TokenSpec:
        """Vectors of c p q pixel values on two axes."""
        return TokenSpec(num_features=self.channels * self.patch[0] * self.patch[1], num_axes=2)

    def encode(self, raw: Any, /) -> Tokens:
        """An image as patches [n f], features in the order (c p q); positions [n 2] are (row, column) in patches.

        raw: tensor [c H W] or [H W]; NumPy array [H W] or [H W c]; PIL image, grey or RGB. Float in [0, 1], or uint8.
        Raises DataError on other channels than `channels`, values outside [0, 1], NaN, or a size patches do not tile.
        """
        image = _pixels(raw)
        if image.shape[0] == 1 and self.channels == 3:
            image = image.expand(3, -1, -1)
        if image.shape[0] != self.channels:
            raise DataError(
                f"image {list(image.shape)} has {image.shape[0]} channels, but the tokenizer takes {self.channels}; "
                f"convert the image, or give --tokenizer.channels {image.shape[0]}"
            )
        if 0 in image.shape:
            raise DataError(f"image is {list(image.shape)} [c H W]; it has no pixels")
        low, high = float(image.min()), float(image.max())  # NaN if any pixel is
        if not (low >= -_SLACK and high <= 1 + _SLACK):
            raise DataError(f"pixels go from {low:.4g} to {high:.4g}; give floats in [0, 1] without NaN, or uint8")
        image = self.resized(image)
        (p, q), (_, height, width) = self.patch, image.shape
        untiled = _untiled(height, width, p, q)
        if untiled:
            raise DataError(f"image {untiled}")
        num_patches = (height // p) * (width // q)
        if num_patches > MAX_PATCHES:
            raise DataError(
                f"image is {height}x{width} pixels, which are {num_patches:,} patches of {p}x{q}, and {MAX_PATCHES:,} "
                "are the most; give --tokenizer.resize '[HEIGHT, WIDTH]' or larger patches"
            )
        content = rearrange((image - self.mean) / self.std, "c (h p) (w q) -> (h w) (c p q)", p=p, q=q)
        rows, columns = torch.meshgrid(
            torch.arange(height // p, dtype=torch.float32), torch.arange(width // q, dtype=torch.float32), indexing="ij"
        )
        return Tokens(content, rearrange([rows, columns], "a h w -> (h w) a"))

    def resized(self, image: Tensor) -> Tensor:
        """An image [c H W] at the size `resize`; itself where it has that size, or there is none."""
        if self.resize is None or image.shape[1:] == self.resize:
            return image
        from torchvision.transforms.v2.functional import center_crop, resize  # seconds to import: only where used

        height, width = image.shape[1:]
        if self.crop:  # as much as has the shape: the one side whole, the other cut
            scale = min(height / self.resize[0], width / self.resize[1])
            cut = [max(1, min(side, round(scale * want))) for side, want in zip((height, width), self.resize)]
            image = center_crop(image, cut)
        return resize(image, list(self.resize), antialias=True)

    def decode(self, tokens: Tokens) -> Tensor:
        """The image [c H W] of patches in any order: content back in pixel values, each at its position.

        Raises ValueError unless every cell of a grid is filled once. A resized image comes back at its new size.
        """
        (p, q), cells = self.patch, tokens.positions.round().long()
        h, w = (int(size) + 1 for size in cells.max(dim=0).values)
        index = cells[:, 0] * w + cells[:, 1]
        order = index.argsort()
        if len(index) != h * w or not torch.equal(index[order], torch.arange(h * w, device=index.device)):
            raise ValueError(f"{len(index)} patches do not fill a grid of {h}x{w} once each; give all of one image")
        content = rearrange(
            tokens.content[order], "(h w) (c p q) -> c (h p) (w q)", h=h, w=w, c=self.channels, p=p, q=q
        )
        return content * self.std.to(content) + self.mean.to(content)


def _per_channel(name: str, value: float | Sequence[float], channels: int) -> Tensor:
    values = torch.tensor([value] * channels if isinstance(value, (int, float)) else list(value), dtype=torch.float32)
    if len(values) != channels:
        raise ValueError(f"{name} has {len(values)} numbers for {channels} channels; give one, or one per channel")
    return rearrange(values, "c -> c 1 1")


def _untiled(height: int, width: int, p: int, q: int) -> str:
    """Message that names the sizes and a size that fits; empty where patches tile the image."""
    if height % p == 0 and width % q == 0:
        return ""
    return (
        f"is {height}x{width} pixels, which {p}x{q} patches do not tile; resize or pad it to multiples of {p} by {q} "
        f"(such as resize=({-(-height // p) * p}, {-(-width // q) * q}))"
    )


def _pixels(raw: Any) -> Tensor:
    """Any accepted image as float [c H W]; uint8 is divided by 255."""
    mode = getattr(raw, "mode", None)  # a PIL image: recognised by its attributes, so that nothing is imported
    if isinstance(mode, str) and mode not in ("L", "RGB", "RGBA"):
        raise DataError(f"image has PIL mode {mode!r}, whose values are not pixels in [0, 255]; use convert('RGB')")
    if isinstance(raw, np.ndarray) or isinstance(mode, str):
        array = np.asarray(raw)
        usable = array.dtype.kind in "fu" and array.itemsize <= 8  # torch has a dtype for it
        # a copy in this machine's byte order: PIL's memory is read-only, torch's is not
        image = torch.from_numpy(array.astype(array.dtype.newbyteorder("="))) if usable else None
        pattern = {2: "H W -> 1 H W", 3: "H W c -> c H W"}.get(array.ndim)
        found = f"array {list(array.shape)} {array.dtype}"
    elif isinstance(raw, Tensor):
        image, pattern = raw, {2: "H W -> 1 H W", 3: "c H W -> c H W"}.get(raw.ndim)
        found = f"tensor {describe_tensor(raw)}"
    else:
        raise DataError(f"an image is a tensor [c H W], a NumPy array [H W c] or a PIL image, not {type(raw).__name__}")
    if image is None or pattern is None or not (image.is_floating_point() or image.dtype == torch.uint8):
        raise DataError(f"image is {found}; give a tensor [c H W] or an array [H W c] of floats in [0, 1] or of uint8")
    image = rearrange(image, pattern)
    return image.float() / 255 if image.dtype == torch.uint8 else image.float()
