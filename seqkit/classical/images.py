"""Features of images and clips: pixels, histograms of oriented gradients, colours.

m images · c channels · h height · w width · o orientations · f features
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor

from seqkit.classical.series import statistics

SIDE = 32
"""Height and width in pixels to which large images are resized for their pixels; frames of clips have half of it."""

GRADIENT_SIDE = 64
"""Height and width in pixels to which large images are resized for their gradients."""

ORIENTATIONS = 9
"""Bins of the direction of a gradient, over half a turn."""


class Images(TransformerMixin, BaseEstimator):
    """Features of images of one size: `pixels`, `gradients` or `colours`.

    If those of training are large, differ in shape or are transparent, all are resized to a square, and get three
    channels: grey is repeated; what is transparent is white, opacity a fourth.
    """

    def __init__(self, features: str) -> None:
        self.features = features

    def fit(self, rows: Sequence[Tensor], target: Any = None) -> Images:
        """Takes the shape."""
        side, _ = FEATURES[self.features]
        self.has_alpha_ = any(len(x) in (2, 4) for x in rows)
        self.shape_ = list(rows[0].shape)
        if (
            self.has_alpha_
            or max(self.shape_[1:]) > side
            or any(list(x.shape) != self.shape_ for x in rows)
        ):
            self.shape_ = [3 + self.has_alpha_, side, side]
        return self

    def transform(self, rows: Sequence[Tensor]) -> np.ndarray:
        """Features [m f]."""
        _, function = FEATURES[self.features]
        return np.stack([function(self._resized(_unit(raw))) for raw in rows])

    def _resized(self, image: Tensor) -> Tensor:
        """The image with values in [0, 1] as [c h w] of the shape."""
        c, *size = self.shape_
        if list(image.shape) == self.shape_ and not self.has_alpha_:
            return image
        found = F.interpolate(_coloured(image, self.has_alpha_)[None], size, mode="area")[0]
        return found.mean(dim=0, keepdim=True) if c == 1 else found


def frame_changes(clip: Tensor) -> Tensor:
    """The middle frame of a clip [t c h w], and the changes from the first frame to it and from it to the last.

    They are [3 c SIDE/2 SIDE/2].
    """
    frames = _unit(clip[[0, len(clip) // 2, -1]])
    first, middle, last = F.interpolate(frames, (SIDE // 2, SIDE // 2), mode="area")
    return torch.stack([middle, middle - first, last - middle])


def _unit(image: Tensor) -> Tensor:
    """Values in [0, 1]."""
    return image.float() / (255 if image.dtype == torch.uint8 else 1)


def _coloured(image: Tensor, has_alpha: bool) -> Tensor:
    """Three channels on white; and a fourth, the opacity, if any image has one."""
    opacity = torch.ones_like(image[:1])
    if len(image) in (2, 4):
        opacity = image[-1:]
    colour = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    on_white = colour * opacity + (1 - opacity)
    return torch.cat([on_white, opacity]) if has_alpha else on_white


def _pixels(image: Tensor) -> np.ndarray:
    """All pixels of one image [c h w]."""
    return image.flatten().numpy()


def _gradients(image: Tensor) -> np.ndarray:
    """Histograms of oriented gradients (Dalal and Triggs 2005) of [c h w] in 8 x 8, 4 x 4, 2 x 2 and 1 x 1 parts.

    Each is divided by the gradients around it.
    """
    padded = F.pad(image[None], (1, 1, 1, 1), mode="replicate")[0]
    across = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    size, channel = torch.hypot(across, down).max(dim=0, keepdim=True)
    angle = torch.atan2(down.gather(0, channel), across.gather(0, channel))
    place = (angle / math.pi % 1.0) * ORIENTATIONS
    centres = rearrange(torch.arange(ORIENTATIONS).float(), "o -> o 1 1")
    distance = (place - centres).abs()
    distance = torch.minimum(distance, ORIENTATIONS - distance)
    votes = (1 - distance).clamp(min=0) * size
    found = []
    for parts in (8, 4, 2, 1):
        cells = F.adaptive_avg_pool2d(votes, parts)
        energy = cells.square().sum(dim=0)[None, None]
        around = F.avg_pool2d(energy, 3, stride=1, padding=1, count_include_pad=False)[0]
        found.append((cells / (around + 1e-4).sqrt()).flatten())
    return torch.cat(found).numpy()


def _colours(image: Tensor) -> np.ndarray:
    """Statistics of each channel of one image [c h w], and how often each of 4 x 4 x 4 colours occurs."""
    flat = rearrange(image, "c h w -> (h w) c")
    levels = (flat[:, :3] * 3.999).long().clamp(0, 3)
    places = sum(levels[:, i] * 4**i for i in range(levels.shape[1]))
    counts = torch.bincount(torch.as_tensor(places), minlength=64).float() / len(flat)
    return np.concatenate([statistics(flat), counts.sqrt().numpy()])


FEATURES = {
    "pixels": (SIDE, _pixels),
    "gradients": (GRADIENT_SIDE, _gradients),
    "colours": (SIDE, _colours),
}
"""Height and width to which large images are resized, and features of an image, by name."""
