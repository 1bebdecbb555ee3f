"""Clips of a video as tubelets: one token for each block of some frames, rows and columns of pixels.

t frames · c channels · H W frame height and width · s tubelets in time · n patches of a frame · d p q frames, height and
width of a tubelet · f = c p q
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from einops import rearrange, repeat
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
        self.tubelet, self.frames, self.stride = (d, p, q), frames, stride
        self.channels, self.resize, self.crop, self.mean, self.std = channels, resize, crop, mean, std
        if d < 1 or frames < d or frames % d:
            raise ValueError(f"frames={frames} of a clip are no multiple of the {d} of a tubelet; give one, 1 or more")
        if stride is not None and stride < 1:
            raise ValueError(f"stride={stride}; give 1 or more frames, or null to spread them evenly")
        _ = self.patches  # checks its own settings

    def __repr__(self) -> str:
        return f"Tubelets({vars(self)})"  # without an address, by which no fingerprint would come again

    @property
    def patches(self) -> Patches:
        """Tokenizer of a single frame."""
        return self._patches(self.resize, crop=self.crop)

    def _patches(self, resize: tuple[int, int] | None, *, crop: bool = False) -> Patches:
        p, q = self.tubelet[1:]
        return Patches((p, q), channels=self.channels, resize=resize, crop=crop, mean=self.mean, std=self.std)

    @property
    def spec(self) -> TokenSpec:
        """Vectors of d c p q pixels on three axes: time, row and column."""
        d, p, q = self.tubelet
        return TokenSpec(num_features=d * self.channels * p * q, num_axes=3)

    def sample(self, num_frames: int) -> list[int]:
        """Indices of the frames of a clip, ascending, in a video of so many frames.

        Raises DataError where they are fewer than a tubelet has.
        """
        d = self.tubelet[0]
        within = num_frames if self.stride is None else -(-num_frames // self.stride)
        count = min(self.frames, within) // d * d
        if count == 0:
            every = "" if self.stride is None else f" of every {self.stride}"
            raise DataError(f"has {num_frames} frame{'s' * (num_frames != 1)}; a clip needs {d}{every} (a tubelet)")
        if self.stride is None:
            return [(2 * i + 1) * num_frames // (2 * count) for i in range(count)]
        start = (num_frames - (count - 1) * self.stride - 1) // 2
        return [start + i * self.stride for i in range(count)]

    def resized(self, frame: Tensor) -> Tensor:
        """A frame [c H W] at the size of `resize`; itself where there is none, or it has that size."""
        return self.patches.resized(frame)

    def encode(self, raw: Any, /) -> Tokens:
        """A clip as s n tokens: content [s n d f], of a tubelet its pixels in the order (d c p q); positions [s n 3].

        raw: tensor [t c H W], NumPy array [t H W c], or a list of frames; frames as `Patches` takes them, all encoded.
        Raises DataError on more than `frames` frames, a number that tubelets do not tile, frames of unlike sizes, or as
        `Patches`.
        """
        if isinstance(raw, Tensor | np.ndarray) and raw.ndim != 4:
            found = describe_tensor(raw) if isinstance(raw, Tensor) else f"array {list(raw.shape)}"
            raise DataError(f"clip is {found}; give a tensor [t c H W] or an array [t H W c]")
        if not isinstance(raw, Tensor | np.ndarray | list | tuple):
            raise DataError(f"a clip is a tensor [t c H W], an array [t H W c] or a list, not {type(raw).__name__}")
        d, t = self.tubelet[0], len(raw)
        if t == 0 or t % d or t > self.frames:
            fits = f"up to {self.frames} in tubelets of {d}; sample(number of frames) chooses them"
            raise DataError(f"clip has {t:,} frames; give {fits}")
        first = self.patches.encode(raw[0])
        if isinstance(raw, Tensor) and self.resize in (None, tuple(raw.shape[2:])):  # a fifth of the time
            content = self._patches(None).encode(rearrange(raw, "t c H W -> c (t H) W")).content
        else:
            each = [first, *map(self.patches.encode, raw[1:])]
            if unlike := next((i for i, frame in enumerate(each) if len(frame) != len(first)), 0):
                raise DataError(f"frame {unlike} of the clip is not of the size of frame 0; give frames of one size")
            content = torch.cat([frame.content for frame in each])
        if len(content) > MAX_PATCHES:
            many = f"{len(content):,} patches in its frames, and {MAX_PATCHES:,} are the most"
            raise DataError(f"clip has {many}; give --tokenizer.resize, or fewer --tokenizer.frames")
        n, s = len(first), t // d
        content = rearrange(content, "(s d n) f -> (s n) (d f)", d=d, n=n)
        time = repeat(torch.arange(float(s)), "s -> (s n) 1", n=n)
        return Tokens(content, torch.cat([time, repeat(first.positions, "n two -> (s n) two", s=s)], dim=1))

    def cut(self, tokens: Tokens, n: int) -> Tokens:
        """The tokens themselves. Raises DataError where they are more than n; `frames` makes clips shorter."""
        if len(tokens) > n:
            raise DataError(f"a clip of {len(tokens):,} tokens cannot be cut to {n:,}; leave --data.max_tokens out")
        return tokens

    def decode(self, tokens: Tokens) -> Tensor:
        """The clip [t c H W] that the tokens show, in any order. Raises ValueError where tubelets do not fill it."""
        patches, times = self.patches, tokens.positions[:, 0].round()
        clip = []
        for time in range(int(times.max()) + 1):
            at = times == time
            if not bool(at.any()):
                raise ValueError(f"no tubelet is at time {time} of {int(times.max()) + 1}; give all of one clip")
            cells = tokens.positions[at, 1:]
            for content in rearrange(tokens.content[at], "n (d f) -> d n f", d=self.tubelet[0]):
                clip.append(patches.pixels(Tokens(content, cells)))
        return torch.stack(clip)
