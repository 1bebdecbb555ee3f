"""Sound as pretrained models take it: the features that their own feature extractors make of a waveform.

t samples · m mel bands · n tokens · s frames of a token
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor

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
from seqkit.tokenizers.settings import check_counts

RATE = 16_000
WINDOW = 400
HOP = 160
"""Samples a second, in a frame and in a hop of Whisper: 25 and 10 ms."""

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
        self,
        num_mels: int = 80,
        *,
        seconds: int = 30,
        channels: Channels = "mono",
        truncate: bool = False,
    ) -> None:
        super().__init__(RATE, channels)
        check_counts(num_mels=num_mels, seconds=seconds)
        bands = _slaney_bands(num_mels)
        if num_empty := int((bands.sum(dim=0) == 0).sum()):
            raise ValueError(
                f"{num_empty} of num_mels={num_mels} bands fall between two frequencies of an FFT of {WINDOW} samples; "
                "take fewer bands"
            )
        self.num_mels = num_mels
        self.seconds = seconds
        self.truncate = truncate

    @property
    def spec(self) -> TokenSpec:
        """Vectors of five frames and a flag each, which a stem of two convolutions embeds."""
        return TokenSpec(
            num_features=WHISPER_FRAMES * (self.num_mels + 1),
            embedder=partial(WhisperStem, self.num_mels),
        )

    def encode(self, raw: Any, /) -> Tokens:
        """A `Waveform` as n = 50 tokens a second, [n s*(m+1)]: the frames 2 i - 2 to 2 i + 2 of token i.

        Each frame ends with a flag, 0 where there is none: before the first one and after the last one.
        Positions [n 1] count tokens. Raises DataError as `AudioTokenizer.wave`, and on a clip that is too long.
        """
        num_samples = self.seconds * RATE
        wave = self.wave(raw, num_samples)
        if len(wave) > num_samples and not self.truncate:
            raise DataError(
                f"audio is {len(wave) / RATE:.1f} s long, and the model takes {self.seconds} s; cut the clip, or "
                "train with --tokenizer.truncate true, which drops what is behind, or a larger --tokenizer.seconds"
            )
        frames = _mel_energies(wave[:num_samples], self.num_mels)[:, :-1].clamp(min=1e-10).log10()
        frames = (frames.clamp(min=float(frames.max()) - 8) + 4) / 4
        flagged = F.pad(frames, [0, 0, 0, 1], value=1.0)
        frames = F.pad(flagged, [WHISPER_FRAMES // 2, WHISPER_FRAMES // 2])
        windows = frames.unfold(1, WHISPER_FRAMES, WHISPER_STRIDE)[:, : self.seconds * 50]
        content = rearrange(windows, "m n s -> n (s m)")
        return Tokens(content, counted(len(content)))


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
        self.convolutions = convolutions
        self.normalize = normalize

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
        wave = self.wave(raw, 1)
        sizes = self.convolutions
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


def _slaney_bands(num_mels: int) -> Tensor:
    """Weights [frequencies m] of the FFT's frequencies in mel bands of Slaney's scale, each of area 1.

    The scale is linear up to 1,000 Hz, 15 mel, and logarithmic from there. In float64: torchaudio's float32 weights
    move the features of 128 bands by 1.5e-5.
    """
    mels = np.linspace(0, 15 + 27 * np.log(RATE / 2000) / np.log(6.4), num_mels + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * 6.4 ** ((mels - 15) / 27))
    low = edges[:-2]
    middle = edges[1:-1]
    high = edges[2:]
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, np.newaxis]
    sides = np.minimum((frequencies - low) / (middle - low), (high - frequencies) / (high - middle))
    return torch.from_numpy(np.maximum(sides, 0) * 2 / (high - low)).float()
