"""Log-mel frames as other sequences: frames of several widths as one sequence, and overlapping patches.

n tokens · t frames · m mel bands · p q frames and bands of a patch · h w grid of patches
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange

from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.tokenizers.audio import LogMel


class MultiScale(Tokenizer):
    """Frames of several widths or hops of one recording, as one sequence in the order of time.

    A short window tells when something happens, a long one which frequencies it has. One linear layer embeds the frames
    of all scales, and positions tell these apart.
    scales: `LogMel` by name, from the first number of the second axis on; each has as many numbers a token.
    When: sounds of fast and slow events. Raises ValueError for fewer than two scales, or tokens of several widths.
    """

    def __init__(self, scales: Mapping[str, LogMel]) -> None:
        self.scales = dict(scales)
        widths = {
            name: one.spec.num_features
            for name, one in self.scales.items()
            if isinstance(one, LogMel)
        }
        if len(widths) < 2 or len(widths) < len(scales) or len({*widths.values()}) > 1:
            raise ValueError(
                f"scales have {widths or 'no'} numbers a token; give two LogMel or more, with equal num_mels and stack"
            )
        self.step = min(_hop(one) * one.stride for one in self.scales.values())

    @property
    def spec(self) -> TokenSpec:
        """Vectors of log-energies on two axes, time and scale."""
        return TokenSpec(
            num_features=next(iter(self.scales.values())).spec.num_features, num_axes=2
        )

    def encode(self, raw: Any, /) -> Tokens:
        """A `Waveform` as the tokens of all scales. Positions [n 2]: time, in steps of the densest scale, and scale.

        Tokens at one time are in the order of `scales`. Raises DataError as `LogMel.encode`.
        """
        content = []
        positions = []
        for i, one in enumerate(self.scales.values()):
            tokens = one.encode(raw)
            times = tokens.positions * float(_hop(one) / self.step)
            content.append(tokens.content)
            positions.append(F.pad(times, [0, 1], value=float(i)))
        places = torch.cat(positions)
        order = places[:, 0].argsort(stable=True)
        return Tokens(torch.cat(content)[order], places[order])


class SpectrogramPatches(Tokenizer):
    """Overlapping patches of a log-mel spectrogram, as in the Audio Spectrogram Transformer (Gong et al. 2021, AST).

    frames: the spectrogram, `LogMel` of one frame a token. patch: frames and bands of a patch. hop: frames and bands
    from one patch to the next; below the size of a patch, they overlap (10 of 16 in AST).
    When: classes of sounds; a Transformer over them as over an image. Raises ValueError for sizes below 1, a hop
    above the patch, a patch of more bands than there are, or frames that are stacked.
    """

    def __init__(
        self, frames: LogMel, *, patch: tuple[int, int] = (16, 16), hop: tuple[int, int] = (10, 10)
    ) -> None:
        self.frames = frames
        self.patch = (patch[0], patch[1])
        self.hop = (hop[0], hop[1])
        if min(self.hop) < 1 or self.hop[0] > patch[0] or self.hop[1] > patch[1]:
            raise ValueError(
                f"{patch=}, {hop=}; give a hop of at least 1 and no larger than the patch"
            )
        if (
            not isinstance(frames, LogMel)
            or frames.spec.num_features != frames.num_mels
            or frames.stride > 1
        ):
            raise ValueError(
                "patches are of single frames; give a LogMel with stack=1, stride=1 and colour=false"
            )
        if patch[1] > frames.num_mels:
            raise ValueError(
                f"a patch has {patch[1]} bands, and there are {frames.num_mels}; give a smaller patch"
            )

    @property
    def spec(self) -> TokenSpec:
        """Vectors of p q log-energies on two axes, time and frequency."""
        return TokenSpec(num_features=self.patch[0] * self.patch[1], num_axes=2)

    def encode(self, raw: Any, /) -> Tokens:
        """A `Waveform` as patches [n p*q] in the order of time, at one time from low to high; positions [n 2] count
        them. The spectrogram is filled up with its least energy to whole patches. Raises DataError as `LogMel.encode`.
        """
        energies = self.frames.encode(raw).content
        pads = [_missing(*sizes) for sizes in zip(energies.shape, self.patch, self.hop)]
        energies = F.pad(energies, [0, pads[1], 0, pads[0]], value=float(energies.min()))
        patches = energies
        for axis in (0, 1):
            patches = patches.unfold(axis, self.patch[axis], self.hop[axis])
        h, w = patches.shape[:2]
        grid = torch.cartesian_prod(torch.arange(float(h)), torch.arange(float(w)))
        return Tokens(rearrange(patches, "h w p q -> (h w) (p q)"), grid)


def _hop(mel: LogMel) -> Fraction:
    """Seconds from one frame to the next."""
    return Fraction(mel.hop_samples, mel.sample_rate)


def _missing(size: int, patch: int, stride: int) -> int:
    """Number of rows that a spectrogram lacks for whole patches."""
    if size <= patch:
        return max(patch - size, 0)
    return -(size - patch) % stride
