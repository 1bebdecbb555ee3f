"""Clips of a video as tubelets: one token for each block of some frames, rows and columns of pixels.

t frames · c channels · H W frame height and width · s tubelets in time · n patches of a frame · f = c p q
d p q frames, height and width of a tubelet
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.raw import describe_tensor
from seqkit.tokenizers.image import MAX_PATCHES, Patches


class Tubelets(Tokenizer):
    """Blocks of d x p x q pixels of a clip [t c H W], at (time, row, column), counted in blocks.

    A linear layer over them is the tubelet embedding of ViViT. A clip is what `sample` chooses of a video: readers of
    files decode these frames alone.
    tubelet: (frames, height, width) of a block; (1, p, q) are patches of single frames.
    frames: most frames of a clip, a multiple of those of a tubelet.
    stride: frames from one sampled frame to the next, from the middle of the video; None: they are spread evenly over
    the whole of it. No frame is taken twice: of a shorter video, as many whole tubelets as it has.
    channels, resize, crop, mean, std: as of `Patches`, for each frame.
    Raises ValueError on sizes below 1, or frames that tubelets do not tile.
    Arnab et al. 2021, section 3.2.
    """

    def __init__(
        self,
        tubelet: tuple[int, int, int],
        *,
        frames: int = 16,
        stride: int | None = None,
        channels: int = 1,
        resize: tuple[int, int] | None = None,
        crop: bool = False,
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 0.5,
    ) -> None:
        d, p, q = (int(size) for size in tubelet)
        self.tubelet = (d, p, q)
        self.frames = frames
        self.stride = stride
        self.channels = channels
        self.resize = resize
        self.crop = crop
        self.mean = mean
        self.std = std
        if d < 1 or frames < d or frames % d:
            raise ValueError(
                f"frames={frames} of a clip are no multiple of the {d} of a tubelet; give one, 1 or more"
            )
        if stride is not None and stride < 1:
            raise ValueError(
                f"stride={stride}; give 1 or more frames, or null to spread them evenly"
            )
        _ = self.frame  # which checks its own settings

    @property
    def frame(self) -> Patches:
        """Tokenizer of a single frame."""
        return Patches(
            self.patch,
            channels=self.channels,
            resize=self.resize,
            crop=self.crop,
            mean=self.mean,
            std=self.std,
        )

    @property
    def patch(self) -> tuple[int, int]:
        """(height, width) of a tubelet."""
        return self.tubelet[1:]

    @property
    def spec(self) -> TokenSpec:
        """Vectors of d c p q pixels on three axes: time, row and column."""
        return TokenSpec(num_features=prod(self.tubelet) * self.channels, num_axes=3)

    def sample(self, num_frames: int) -> list[int]:
        """Indices of the frames of a clip, ascending, in a video of so many frames.

        Raises DataError where they are fewer than a tubelet has.
        """
        d = self.tubelet[0]
        within = num_frames if self.stride is None else -(-num_frames // self.stride)
        count = min(self.frames, within) // d * d
        if count == 0:
            frames = "1 frame" if num_frames == 1 else f"{num_frames} frames"
            every = "" if self.stride is None else f" of every {self.stride}"
            raise DataError(f"has {frames}; a clip needs {d}{every} (a tubelet)")
        if self.stride is None:
            return [(2 * i + 1) * num_frames // (2 * count) for i in range(count)]
        start = (num_frames - (count - 1) * self.stride - 1) // 2
        return [start + i * self.stride for i in range(count)]

    def resized(self, frame: Tensor) -> Tensor:
        """A frame [c H W] at the size of `resize`; itself where there is none, or it has that size."""
        return self.frame.resized(frame)

    def encode(self, raw: Any, /) -> Tokens:
        """A clip as s n tokens: content [s n d f], of a tubelet its pixels in the order (d c p q); positions [s n 3].

        raw: tensor [t c H W], float in [0, 1] or uint8, of which all frames are encoded. Raises DataError on more than
        `frames`, a number that tubelets do not tile, or as `Patches`.
        """
        if not isinstance(raw, Tensor) or raw.ndim != 4:
            found = describe_tensor(raw) if isinstance(raw, Tensor) else type(raw).__name__
            raise DataError(f"a clip is a tensor [t c H W], not {found}; stack its frames")
        d, p, q = self.tubelet
        t = len(raw)
        if t == 0 or t % d or t > self.frames:
            fits = f"up to {self.frames} in tubelets of {d}; sample(number of frames) chooses them"
            raise DataError(f"clip has {t:,} frames; give {fits}")
        if self.resize not in (None, tuple(raw.shape[2:])):
            scale = 255 if raw.dtype == torch.uint8 else 1
            raw = torch.stack([self.resized(frame / scale) for frame in raw])
        s = t // d
        n = (raw.shape[2] // p) * (raw.shape[3] // q)
        if s * n > MAX_PATCHES:
            raise DataError(
                f"clip has {s * n:,} tubelets of {d}x{p}x{q}, and {MAX_PATCHES:,} are the most; train with "
                "--tokenizer.resize, or fewer --tokenizer.frames"
            )
        flat = Patches(self.patch, channels=self.channels, mean=self.mean, std=self.std)
        if raw.shape[2] % p:
            flat.encode(raw[0])  # which patches do not tile: an error
        # frames of all tubelets below each other: a fifth of the time of one after the other
        parts = [flat.encode(rearrange(raw[i::d], "s c H W -> c (s H) W")) for i in range(d)]
        content = torch.cat([part.content for part in parts], dim=1)
        time = torch.arange(float(s)).repeat_interleave(n)
        places = parts[0].positions[:n].repeat(s, 1)
        return Tokens(content, torch.cat([time[:, None], places], dim=1))

    def cut(self, tokens: Tokens, n: int) -> Tokens:
        """The tokens themselves. Raises DataError where they are more than n; `frames` makes clips shorter."""
        return self.frame.cut(tokens, n)

    # as those of Patches, by which a page draws them: the first frames of the tubelets, beside each other

    def pixels(self, tokens: Tokens) -> Tensor:
        """One image [c H (s W)] of the first frames."""
        return self.frame.pixels(self.patches(tokens))

    def patches(self, tokens: Tokens) -> Tokens:
        """The patches of that image."""
        time, row, column = tokens.positions.unbind(dim=1)
        content = tokens.content[:, : self.frame.spec.num_features]
        return Tokens(content, torch.stack([row, time * (column.max() + 1) + column], dim=1))

    def is_patch(self, tokens: Tokens) -> Tensor:
        """[n] bool, all True."""
        return torch.ones(len(tokens), dtype=torch.bool)
