"""Features of images and clips: pixels, histograms of oriented gradients, colours.

m images · c channels · h height · w width · o orientations · f features
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from seqkit.classical.series import statistics

SIDE = 32
"""Height and width in pixels to which large images are resized for their pixels; frames of clips have half of it."""

GRADIENT_SIDE = 64
"""Height and width in pixels to which large images are resized for their gradients."""

ORIENTATIONS = 9
"""Bins of the direction of a gradient, over half a turn."""


def pixels(rows: Sequence[Tensor]) -> np.ndarray:
    """All pixels. Images that are large or differ in shape are resized to SIDE x SIDE, of three channels."""
    return np.stack([x.flatten().numpy() for x in _same_size(rows, SIDE)])


def gradients(rows: Sequence[Tensor]) -> np.ndarray:
    """Histograms of oriented gradients (Dalal and Triggs 2005) in 8 x 8, 4 x 4, 2 x 2 parts and the whole image."""
    return np.stack([_gradients(x) for x in _same_size(rows, GRADIENT_SIDE)])


def colours(rows: Sequence[Tensor]) -> np.ndarray:
    """Statistics of each channel, and how often each of 4 x 4 x 4 colours occurs."""
    return np.stack([_colours(x) for x in _same_size(rows, SIDE)])


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


def _same_size(rows: Sequence[Tensor], side: int) -> list[Tensor]:
    """Images [c h w] with values in [0, 1]. If they are large, differ in shape or are transparent, they are resized to
    side x side, and get three channels: grey is repeated; what is transparent is white, opacity a fourth."""
    found = [_unit(raw) for raw in rows]
    has_alpha = any(len(x) in (2, 4) for x in found)
    is_one_size = max(found[0].shape[1:]) <= side and len({x.shape for x in found}) == 1
    if is_one_size and not has_alpha:
        return found
    return [
        F.interpolate(_coloured(x, has_alpha)[None], (side, side), mode="area")[0] for x in found
    ]


def _coloured(image: Tensor, has_alpha: bool) -> Tensor:
    """Three channels on white; and a fourth, the opacity, if any image has one."""
    opacity = torch.ones_like(image[:1])
    if len(image) in (2, 4):
        opacity = image[-1:]
    colour = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    on_white = colour * opacity + (1 - opacity)
    return torch.cat([on_white, opacity]) if has_alpha else on_white


def _gradients(image: Tensor) -> np.ndarray:
    """Histograms of one image [c h w], each divided by the gradients around it."""
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
    """Statistics and colour counts of one image [c h w]."""
    flat = rearrange(image, "c h w -> (h w) c")
    levels = (flat[:, :3] * 3.999).long().clamp(0, 3)
    places = sum(levels[:, i] * 4**i for i in range(levels.shape[1]))
    counts = torch.bincount(torch.as_tensor(places), minlength=64).float() / len(flat)
    return np.concatenate([statistics(flat), counts.sqrt().numpy()])
