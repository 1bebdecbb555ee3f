"""Sound as pretrained models take it: the features that their own feature extractors make of a waveform.

t samples · m mel bands · n tokens · s frames of a token · p q patch height (bands) and width (frames)
h w grid of patches · k learned tokens before the patches
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor
from torchaudio.compliance.kaldi import fbank

from seqkit.errors import DataError
from seqkit.interfaces import Tokens, TokenSpec
from seqkit.pretrained.audio_stems import (
    WHISPER_FRAMES,
    WHISPER_STRIDE,
    Convolutions,
    WaveStem,
    WhisperStem,
    clip_statistics,
)
from seqkit.tokenizers.audio import AudioTokenizer, Channels
from seqkit.tokenizers.given import counted

RATE, WINDOW, HOP = 16_000, 400, 160
"""Samples a second, in a frame and in a hop of Whisper and AST: 25 and 10 ms."""

AUDIO_SET = (-4.2677393, 4.5689974)
"""Mean and standard deviation of AST's features on AudioSet (Gong et al. 2021, published code)."""

_BASE = Convolutions()


class WhisperMel(AudioTokenizer):
    """Log-mel frames of Whisper, of a clip that is filled up with silence to `seconds`; two frames a token.

    The embedder is Whisper's stem of two convolutions (`WhisperStem`).
    num_mels: number of mel bands: 80, or 128 for large-v3. seconds: length of every clip.
    channels: "mono" refuses more than one channel, "mix" takes their mean, "first" takes channel 0.
    truncate: True drops what is longer than `seconds`, as Whisper's own extractor does; False refuses it.
    When: weights of Whisper's encoder. Raises ValueError for sizes below 1, or a band that falls between two
    frequencies of the FFT.
    Radford et al. 2023, section 2.2. Frames are those of `WhisperFeatureExtractor` (transformers 5.23): 16,000 Hz, an
    FFT of 400 samples, Slaney's mel scale, log10, at most 8 below the maximum.
    """

    def __init__(
        self, num_mels: int = 80, *, seconds: int = 30, channels: Channels = "mono", truncate: bool = False
    ) -> None:
        super().__init__(RATE, channels)
        if num_mels < 1 or seconds < 1:
            raise ValueError(f"num_mels={num_mels}, seconds={seconds}; give numbers of at least 1")
        _check_bands(num_mels)
        self.num_mels, self.seconds, self.truncate = num_mels, seconds, truncate

    @property
    def spec(self) -> TokenSpec:
        """Vectors of five frames and a flag each, which a stem of two convolutions embeds."""
        return TokenSpec(
            num_features=WHISPER_FRAMES * (self.num_mels + 1), embedder=partial(WhisperStem, self.num_mels)
        )

    def encode(self, raw: Any, /) -> Tokens:
        """A `Waveform` as n = 50 tokens a second, [n s*(m+1)]: the frames 2 i - 2 to 2 i + 2 of token i.

        Each frame ends with a flag, 0 where there is none: before the first one and after the last one.
        Positions [n 1] count tokens. Raises DataError as `AudioTokenizer.wave`, and on a clip that is too long.
        """
        wave = self.wave(raw, self.seconds * RATE)
        wave = _at_most(wave, self.seconds * RATE, self.truncate, f"{self.seconds} s", "seconds")
        frames = _mel_energies(wave, self.num_mels)[:, :-1].clamp(min=1e-10).log10()
        frames = (frames.clamp(min=float(frames.max()) - 8) + 4) / 4
        frames = F.pad(F.pad(frames, [0, 0, 0, 1], value=1.0), [WHISPER_FRAMES // 2, WHISPER_FRAMES // 2])
        content = rearrange(
            frames.unfold(1, WHISPER_FRAMES, WHISPER_STRIDE)[:, : self.seconds * 50], "m n s -> n (s m)"
        )
        return Tokens(content, counted(len(content)))


class MelPatches(AudioTokenizer):
    """Overlapping patches of a log-mel spectrogram of Kaldi's filter banks, and learned tokens before them.

    patch: side of a patch, in bands and frames. stride: bands and frames from one patch to the next.
    num_mels: number of mel bands. num_frames: length of the spectrogram, one frame every 10 ms; after a shorter clip
    the frames are 0, before they are normalised.
    normalize: (mean, std) of the features: they become (x - mean) / (2 std). None: they stay.
    num_prefix_tokens: learned tokens before the patches: class and distillation token.
    channels: "mono" refuses more than one channel, "mix" takes their mean, "first" takes channel 0.
    truncate: True drops what is longer than `num_frames`, as AST's own extractor does; False refuses it.
    When: weights of AST. Raises ValueError for sizes below 1, patches that do not fit, or a std that is not positive.
    Gong et al. 2021, section 2.1. Features are those of `ASTFeatureExtractor` (transformers 5.23): 16,000 Hz, frames of
    25 ms with a Hann window, a preemphasis of 0.97, without their mean.
    """

    def __init__(
        self,
        patch: int = 16,
        *,
        stride: tuple[int, int] = (10, 10),
        num_mels: int = 128,
        num_frames: int = 1024,
        normalize: tuple[float, float] | None = AUDIO_SET,
        num_prefix_tokens: int = 2,
        channels: Channels = "mono",
        truncate: bool = False,
    ) -> None:
        super().__init__(RATE, channels)
        self.patch, self.stride = patch, (int(stride[0]), int(stride[1]))
        if min(patch, *self.stride) < 1 or num_prefix_tokens < 0 or not patch <= min(num_mels, num_frames):
            raise ValueError(
                f"patch={patch}, stride={self.stride}, num_mels={num_mels}, num_frames={num_frames}, "
                f"num_prefix_tokens={num_prefix_tokens}; give sizes of at least 1, and patches that fit"
            )
        if num_mels < 4:
            raise ValueError(f"num_mels={num_mels}; Kaldi's filter banks have 4 bands at least")
        if normalize is not None and not normalize[1] > 0:
            raise ValueError(f"normalize={normalize}; give a mean and a positive std")
        self.num_mels, self.num_frames, self.num_prefix_tokens = num_mels, num_frames, num_prefix_tokens
        self.normalize = None if normalize is None else (float(normalize[0]), float(normalize[1]))
        self.truncate = truncate

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of patches along bands and frames."""
        sides = zip((self.num_mels, self.num_frames), self.stride)
        rows, columns = ((size - self.patch) // step + 1 for size, step in sides)
        return rows, columns

    @property
    def spec(self) -> TokenSpec:
        """Vectors of k + p q numbers: flags of the tokens before the patches, and log-energies."""
        k = self.num_prefix_tokens
        return TokenSpec(num_features=k + self.patch**2, num_prefix_tokens=k)

    def encode(self, raw: Any, /) -> Tokens:
        """A `Waveform` as k + h w tokens: content [k+n k+f], f = p q log-energies; low bands first, then by time.

        Positions [k+n 1] count all tokens. Raises DataError as `AudioTokenizer.wave`, and on a clip that is too long.
        """
        wave = self.wave(raw, WINDOW)
        most = WINDOW + self.num_frames * HOP - 1  # samples that make no more frames
        wave = _at_most(wave, most, self.truncate, f"{self.num_frames} frames of 10 ms", "num_frames")
        bands = fbank(
            rearrange(wave, "t -> 1 t"), sample_frequency=RATE, window_type="hanning", num_mel_bins=self.num_mels
        )
        bands = F.pad(bands, [0, 0, 0, self.num_frames - len(bands)])
        if self.normalize is not None:
            mean, std = self.normalize
            bands = (bands - mean) / (2 * std)
        patches = bands.T.unfold(0, self.patch, self.stride[0]).unfold(1, self.patch, self.stride[1])
        content = rearrange(patches, "h w p q -> (h w) (p q)")
        if k := self.num_prefix_tokens:
            content = torch.block_diag(torch.eye(k), content)
        return Tokens(content, counted(len(content)))

    def cut(self, tokens: Tokens, n: int) -> Tokens:
        """The tokens themselves. Raises DataError where they are more than n: the first patches are no sound."""
        if len(tokens) > n:
            raise DataError(f"a sound of {len(tokens):,} patches cannot be cut to {n:,}; leave --data.max_tokens out")
        return tokens


class SampleWindows(AudioTokenizer):
    """Overlapping windows of samples, which convolutions embed, as in wav2vec 2.0 and HuBERT.

    sample_rate: rate in Hz to which every clip is resampled first.
    convolutions: sizes and norms of the convolutions that embed a window; they say how long windows are and how far
    apart, 400 and 320 samples in the published models.
    channels: "mono" refuses more than one channel, "mix" takes their mean, "first" takes channel 0.
    normalize: True scales each clip to mean 0 and variance 1.
    When: weights of wav2vec 2.0 and HuBERT, with `ConvolutionalPosition`.
    Baevski et al. 2020, section 2. Samples are those of `Wav2Vec2FeatureExtractor` (transformers 5.23).
    """

    def __init__(
        self,
        sample_rate: int = RATE,
        *,
        convolutions: Convolutions = _BASE,
        channels: Channels = "mono",
        normalize: bool = True,
    ) -> None:
        super().__init__(sample_rate, channels)
        self.convolutions, self.normalize = convolutions, normalize

    @property
    def spec(self) -> TokenSpec:
        """Vectors of samples, with numbers about the whole clip if it is normed as a whole."""
        convolutions = self.convolutions
        return TokenSpec(
            num_features=convolutions.window_samples + convolutions.num_statistics,
            embedder=partial(WaveStem, convolutions),
        )

    def encode(self, raw: Any, /) -> Tokens:
        """A `Waveform` as (t - window) // hop + 1 windows of samples, [n window+s]; positions [n 1] count them.

        s: `clip_statistics` of the samples, the same in each token, where the clip is normed as a whole.
        A clip shorter than a window is filled up with zeros to one. Raises DataError as `AudioTokenizer.wave`.
        """
        wave, sizes = self.wave(raw, 1), self.convolutions
        if self.normalize:
            samples = wave.numpy()  # whose sums round as theirs do
            wave = torch.from_numpy((samples - samples.mean()) / np.sqrt(samples.var() + 1e-7))
        wave = F.pad(wave, [0, max(0, sizes.window_samples - len(wave))])
        content = wave.unfold(0, sizes.window_samples, sizes.hop_samples)
        if sizes.norm == "group":
            statistics = clip_statistics(wave, sizes.kernels[0], sizes.strides[0])
            content = torch.cat([content, repeat(statistics, "s -> n s", n=len(content))], dim=1)
        return Tokens(content.contiguous(), counted(len(content)))


def _mel_energies(wave: Tensor, num_mels: int) -> Tensor:
    """Energies [m n] of samples [t] in n = t // 160 + 1 frames."""
    waves = torch.stft(wave, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True)
    return _slaney_bands(num_mels).T @ waves.abs().square()


def _check_bands(num_mels: int) -> None:
    """Raise ValueError for so many bands that some get nothing of the FFT."""
    if num_empty := int((_slaney_bands(num_mels).sum(dim=0) == 0).sum()):
        raise ValueError(
            f"{num_empty} of num_mels={num_mels} bands fall between two frequencies of an FFT of {WINDOW} samples; "
            "take fewer bands"
        )


def _at_most(wave: Tensor, num_samples: int, truncate: bool, limit: str, key: str) -> Tensor:
    """The samples [t], at most so many. Raises DataError for more, if nothing is to be dropped."""
    if len(wave) > num_samples and not truncate:
        raise DataError(
            f"audio is {len(wave) / RATE:.1f} s long, and the model takes {limit}; cut the clip, or set "
            f"--tokenizer.truncate true to drop what is behind, or a larger --tokenizer.{key}"
        )
    return wave[:num_samples]


def _slaney_bands(num_mels: int) -> Tensor:
    """Weights [frequencies m] of the FFT's frequencies in mel bands of Slaney's scale, each of area 1.

    The scale is linear up to 1,000 Hz, 15 mel, and logarithmic from there. In float64: torchaudio's float32 weights
    move the features of 128 bands by 1.5e-5.
    """
    mels = np.linspace(0, 15 + 27 * np.log(RATE / 2000) / np.log(6.4), num_mels + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * 6.4 ** ((mels - 15) / 27))
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, np.newaxis]
    sides = np.minimum((frequencies - low) / (middle - low), (high - frequencies) / (high - middle))
    return torch.from_numpy(np.maximum(sides, 0) * 2 / (high - low)).float()
