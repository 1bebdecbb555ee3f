"""Images as patches: one token per patch, and before them learned tokens such as a class token.

c channels · H W image height and width · h w grid of patches · p q patch height and width · f = c p q · n = h w
k learned tokens before the patches · P Q window height and width: the patch, and its margins if there is a stem
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.raw import describe_tensor
from seqkit.tokenizers.given import counted
from seqkit.tokenizers.image_stem import ConvStem, size_after
from seqkit.tokenizers.resize import Resize, middle_of
from seqkit.tokenizers.settings import check_choice

MAX_PATCHES = 2**14
"""Most patches of an image (2,048 × 2,048 pixels in patches of 16 × 16): larger photographs would fill the memory."""

MAX_PREFIX_TOKENS = 2**10
"""Most learned tokens before the patches."""

_SLACK = 1e-3
"""Tolerance outside [0, 1], for pixels that were rounded when they were scaled."""


class Patches(Tokenizer):
    """p x q patches of a c x H x W image, row by row; a linear layer over them is ViT's patch embedding.

    patch: side of a patch in pixels, or (height, width).
    channels: number of channels: 1 for grey, 3 for colour (a grey image is repeated three times, a PIL image with
    transparency is laid on white), 4 for colour on white and opacity, or any other number. In a recipe, "auto" is 4
    where images of a folder or table differ in their opacity, else 3.
    resize: (height, width) in pixels to which every image is resized first, or a `Resize`, for other filters and crops.
    None keeps the size of the images, which patches must then tile. In a recipe, "auto" is about 64 x 64 in the shape
    of the images of a folder or table.
    crop: True first crops the image to its largest central part with the aspect ratio of `resize`; False resizes the
    whole image, which changes its aspect ratio.
    mean: subtracted from pixels in [0, 1], one number or one per channel.
    std: pixels are divided by it afterwards, one number or one per channel.
    num_prefix_tokens: learned tokens before the patches: class, distillation and register tokens, in this order.
    positions: "grid": (row, column) of a patch, and (-1, -1) of the tokens before; "index": one number for each token,
    from 0, for tables of positions as ViT has them; "centred": (row, column) of a patch's middle, from -1 to 1 over the
    image, and (0, 0) of the tokens before, for rotary positions as DINOv3 has them.
    stem: channels after each 3 x 3 convolution of stride 2 before ViT's linear layer (`ConvStem`); () is none. With a
    stem, a token holds a margin of a quarter of a patch on each side, so tokens overlap, and an objective that masks
    some is easier. Margins outside the image repeat the pixels at its edge.
    When: images of any size that patches tile. Raises ValueError on sizes below 1, a std that is not positive, or
    positions other than "grid" of images whose size is not given.
    Dosovitskiy et al. 2021.
    """

    def __init__(
        self,
        patch: int | tuple[int, int],
        *,
        channels: int | Literal["auto"] = 1,
        resize: tuple[int, int] | Resize | Literal["auto"] | None = None,
        crop: bool = False,
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 0.5,
        num_prefix_tokens: int = 0,
        positions: Literal["grid", "index", "centred"] = "grid",
        stem: Sequence[int] = (),
    ) -> None:
        p, q = (patch, patch) if isinstance(patch, int) else patch
        self.patch = (int(p), int(q))
        if isinstance(channels, str) or isinstance(resize, str):
            raise ValueError(
                f"channels={channels}, resize={resize}; auto is for recipes, which look at the images: give a number "
                "of channels, and (height, width) or None"
            )
        self.channels = channels
        self.crop = crop
        if min(*self.patch, channels) < 1:
            raise ValueError(f"patch={patch}, channels={channels}; give sizes of at least 1")
        if not 0 <= num_prefix_tokens <= MAX_PREFIX_TOKENS:
            raise ValueError(
                f"num_prefix_tokens={num_prefix_tokens}; give a number from 0 to {MAX_PREFIX_TOKENS:,}"
            )
        self.resize: Resize | tuple[int, int] | None
        if resize is None or isinstance(resize, Resize):
            self.resize = resize
        else:
            self.resize = (int(resize[0]), int(resize[1]))
        if self.size is not None and (untiled := _untiled(*self.size, *self.patch)):
            raise ValueError(f"resize {untiled}")
        if crop and not isinstance(self.resize, tuple):
            raise ValueError(
                "crop=True takes its shape from resize; give resize, too, as (height, width)"
            )
        self.mean = _per_channel("mean", mean, channels)
        self.std = _per_channel("std", std, channels)
        if min(self.std) <= 0:
            raise ValueError(f"std={std}; give positive numbers, pixels are divided by them")
        self.num_prefix_tokens = num_prefix_tokens
        self.positions = positions
        check_choice("positions", positions, "grid", "index", "centred")
        if positions != "grid" and self.size is None:
            raise ValueError(
                f"positions={positions} is for images of one size; give resize=(height, width)"
            )
        self.stem = tuple(stem)
        self.margins = (0, 0)
        if self.stem:
            self.margins = (self.patch[0] // 4, self.patch[1] // 4)
        if self.stem and num_prefix_tokens:
            raise ValueError("a stem embeds patches alone; give num_prefix_tokens=0, or no stem")
        if (
            min(self.stem, default=1) < 1
            or min(size_after(side, len(self.stem)) for side in self.window) < 1
        ):
            raise ValueError(
                f"stem={list(self.stem)} has channels below 1, or more convolutions than {self.window[0]}x"
                f"{self.window[1]} pixels (a patch with its margins) allow; give channels of at "
                "least 1, fewer convolutions, or a larger patch"
            )

    @property
    def spec(self) -> TokenSpec:
        """Vectors of k + c P Q numbers: k flags of the learned tokens, then pixels; one axis if positions="index"."""
        k = self.num_prefix_tokens
        embedder = None
        if self.stem:
            embedder = partial(ConvStem, self.window, self.channels, self.stem)
        return TokenSpec(
            num_features=k + self.channels * self.window[0] * self.window[1],
            num_axes=1 if self.positions == "index" else 2,
            num_prefix_tokens=k,
            embedder=embedder,
        )

    @property
    def window(self) -> tuple[int, int]:
        """(height, width) in pixels of what a token holds: a patch, and its margins if there is a stem."""
        p, q = self.patch
        above, left = self.margins
        return p + 2 * above, q + 2 * left

    @property
    def size(self) -> tuple[int, int] | None:
        """(height, width) in pixels of every image that is cut into patches; None: they vary."""
        if self.resizing is None:
            return None
        return self.resizing.result

    @property
    def resizing(self) -> Resize | None:
        """Resizing of an image before it is cut into patches; None: it keeps its size."""
        if isinstance(self.resize, tuple):
            return Resize(self.resize)
        return self.resize

    def encode(self, raw: Any, /) -> Tokens:
        """An image as k + n tokens: content [k+n k+c P Q]; a patch has k zeros, then its pixels in the order (c P Q).

        raw: tensor [c H W] or [H W]; NumPy array [H W] or [H W c]; PIL image, grey, RGB or RGBA. Float in [0, 1], or
        uint8. Raises DataError on other channels than `channels`, values outside [0, 1], NaN, or a size patches do not
        tile.
        """
        image = _pixels(raw)
        mode = getattr(raw, "mode", None)
        if self.channels == 4 and mode in ("L", "RGB"):
            image = torch.cat([image.expand(3, -1, -1), torch.ones_like(image[:1])])
        if self.channels in (3, 4) and mode == "RGBA":
            image = torch.cat([_on_white(image), image[3:]])[: self.channels]
        c = image.shape[0]
        if c != self.channels and (c, self.channels) != (1, 3):
            raise DataError(
                f"image {list(image.shape)} has {c} channels, but the tokenizer takes {self.channels}; convert the "
                f"image, or train with --tokenizer.channels {c}"
            )
        if 0 in image.shape:
            raise DataError(f"image is {list(image.shape)} [c H W]; it has no pixels")
        # both are NaN if any pixel is
        low = float(image.min())
        high = float(image.max())
        if not (low >= -_SLACK and high <= 1 + _SLACK):
            raise DataError(
                f"pixels go from {low:.4g} to {high:.4g}; give floats in [0, 1] without NaN, or uint8"
            )
        image = self.resized(image).expand(self.channels, -1, -1)
        p, q = self.patch
        _, height, width = image.shape
        if untiled := _untiled(height, width, p, q):
            raise DataError(f"image {untiled}")
        h = height // p
        w = width // q
        k = self.num_prefix_tokens
        if h * w > MAX_PATCHES:
            raise DataError(
                f"image has {h * w:,} patches of {p}x{q}, and {MAX_PATCHES:,} are the most; train with "
                "--tokenizer.resize"
            )
        scaled = (image - _channels(self.mean)) / _channels(self.std)
        above, left = self.margins
        scaled = F.pad(scaled[None], [left, left, above, above], mode="replicate")[0]
        windows = scaled.unfold(1, self.window[0], p).unfold(2, self.window[1], q)
        content = rearrange(windows, "c h w P Q -> (h w) (c P Q)")
        content = torch.block_diag(torch.eye(k), content) if k else content
        if self.positions == "index":
            return Tokens(content, counted(k + h * w))
        cells = torch.cartesian_prod(torch.arange(float(h)), torch.arange(float(w)))
        before = torch.full((k, 2), -1.0)
        if self.positions == "centred":
            cells = (2 * cells + 1) / torch.tensor([h, w]) - 1
            before = torch.zeros(k, 2)
        return Tokens(content, torch.cat([before, cells]))

    def cut(self, tokens: Tokens, n: int) -> Tokens:
        """The tokens, unchanged. Raises DataError if they are more than n: some patches alone are no image."""
        if len(tokens) > n:
            raise DataError(
                f"an image of {len(tokens):,} tokens cannot be cut to {n:,}; train without --data.max_tokens"
            )
        return tokens

    def resized(self, image: Tensor) -> Tensor:
        """An image [c H W], cropped and resized as `crop` and `resize` say; unchanged if `resize` is None."""
        if self.resizing is None:
            return image
        # the largest central part with the aspect ratio of `size`: one side is whole, the other is cut
        if self.crop and self.size is not None:
            both = list(zip(image.shape[1:], self.size))
            scale = min(side / want for side, want in both)
            h, w = (max(1, min(side, round(scale * want))) for side, want in both)
            image = middle_of(image, (h, w), "round")
        return self.resizing.apply(image)

    def is_patch(self, tokens: Tokens) -> Tensor:
        """[n] bool, True: a patch; False: one of the learned tokens before them."""
        return tokens.content[:, : self.num_prefix_tokens].sum(dim=1) < 0.5

    def patches(self, tokens: Tokens) -> Tokens:
        """The patches alone, without margins: content [n f] and positions [n 2], (row, column)."""
        k = self.num_prefix_tokens
        is_patch = self.is_patch(tokens)
        cells = tokens.positions[is_patch]
        p, q = self.patch
        if self.positions != "grid":
            assert self.size is not None
            rows, columns = self.size[0] // p, self.size[1] // q
            if self.positions == "index":
                place = cells.round() - k
                cells = torch.cat([place.div(columns, rounding_mode="floor"), place % columns], 1)
            else:
                cells = ((cells + 1) * torch.tensor([rows, columns]).to(cells) - 1) / 2
        cells = cells.round()
        above, left = self.margins
        height, width = self.window
        windows = rearrange(tokens.content[is_patch, k:], "n (c P Q) -> n c P Q", P=height, Q=width)
        content = rearrange(
            windows[:, :, above : above + p, left : left + q], "n c p q -> n (c p q)"
        )
        return Tokens(content, cells)

    def pixels(self, tokens: Tokens) -> Tensor:
        """The image [c H W] of these patches, which may be in any order: each is put at its position.

        Raises ValueError unless they fill every cell of a grid exactly once.
        """
        p, q = self.patch
        tokens = self.patches(tokens)
        cells = tokens.positions.long()
        h, w = (int(size) + 1 for size in cells.max(dim=0).values)
        index = cells[:, 0] * w + cells[:, 1]
        order = index.argsort()
        if index[order].tolist() != list(range(h * w)):
            raise ValueError(
                f"{len(index)} patches do not fill each cell of a {h}x{w} grid once; "
                "give all of one image"
            )
        pattern = "(h w) (c p q) -> c (h p) (w q)"
        content = rearrange(tokens.content[order], pattern, h=h, c=self.channels, p=p, q=q)
        return content * _channels(self.std).to(content) + _channels(self.mean).to(content)

    def decode(self, tokens: Tokens) -> Tensor:
        """An image [c H W] that `encode` turns into these tokens, with zeros where `resize` cut pixels off.

        A resized image comes back at its new size. Raises ValueError as `pixels` does.
        """
        pixels = self.pixels(tokens)
        if self.resizing is None:
            return pixels
        return self.resizing.undone(pixels)


def _per_channel(name: str, value: float | Sequence[float], channels: int) -> tuple[float, ...]:
    values = (value,) * channels if isinstance(value, (int, float)) else tuple(value)
    if len(values) != channels:
        raise ValueError(
            f"{name} has {len(values)} numbers for {channels} channels; give one, or one per channel"
        )
    return values


def _channels(values: tuple[float, ...]) -> Tensor:
    return rearrange(torch.tensor(values, dtype=torch.float32), "c -> c 1 1")


def _on_white(image: Tensor) -> Tensor:
    """Colours [3 H W] of an image [4 H W] of 8 bits with transparency, laid on white.

    As `convert_to_rgb` of transformers 5.23, where a processor has `do_convert_rgb`.
    """
    colour = image[:3]
    alpha = image[3:]
    return ((colour * alpha + (1 - alpha)) * 255).round() / 255


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
    # a PIL image: recognised by its attributes, so that nothing is imported
    mode = getattr(raw, "mode", None)
    if isinstance(mode, str) and mode not in ("L", "RGB", "RGBA"):
        raise DataError(
            f"image has PIL mode {mode!r}, whose values are not pixels in [0, 255]; use convert('RGB')"
        )
    if isinstance(raw, np.ndarray) or isinstance(mode, str):
        array = np.asarray(raw)
        image = None
        if array.dtype.kind in "fu" and array.itemsize <= 8:  # torch has a dtype for it
            # a copy in this machine's byte order: PIL's memory is read-only, torch's is not
            image = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
        pattern = {2: "H W -> 1 H W", 3: "H W c -> c H W"}.get(array.ndim)
        found = f"array {list(array.shape)} {array.dtype}"
    elif isinstance(raw, Tensor):
        image = raw
        pattern = {2: "H W -> 1 H W", 3: "c H W -> c H W"}.get(raw.ndim)
        found = f"tensor {describe_tensor(raw)}"
    else:
        raise DataError(
            f"an image is a tensor [c H W], a NumPy array [H W c] or a PIL image, not {type(raw).__name__}"
        )
    if (
        image is None
        or pattern is None
        or not (image.is_floating_point() or image.dtype == torch.uint8)
    ):
        raise DataError(
            f"image is {found}; give a tensor [c H W] or an array [H W c] of floats in [0, 1] or of uint8"
        )
    image = rearrange(image, pattern)
    if image.dtype == torch.uint8:
        return image.float() / 255
    return image.float()
