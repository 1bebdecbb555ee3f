"""Audio as log-mel frames: one token per hop, positions count frames.

c channels · t samples · n frames · m mel bands · s stacked frames
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from math import gcd, log
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange, reduce, repeat
from torch import Tensor
from torchaudio.transforms import MelSpectrogram, Resample

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.tokenizers.settings import check_choice, check_counts

Channels = Literal["mono", "mix", "first"]
"""Names of what is done with more than one channel."""

RANGE_DB = 30.0
"""Dynamic range that normalising keeps: energies further below the clip's maximum are raised to this limit first.
The depth of a pause depends more on the recording than on the word, and would otherwise set each band's mean and
variance. On the FSDD speaker who pauses around his words, held out of training, this is worth 17 points of accuracy
(docs/decisions.md)."""

LOG_FLOOR = 1e-6
"""Added to the mel energies before the logarithm: about what the rounding of 16-bit samples leaves in a frame."""

# a band that varies by less nats is flat; dividing by its spread would magnify rounding
_MIN_STD = 1e-2
_MAX_PEAK = 10.0  # +20 dB over full scale: headroom for augmentation, yet int16 values are noticed
# entries of a resampling kernel; rates without a common divisor would take gigabytes
_MAX_KERNEL = 2**24


class AudioTokenizer(Tokenizer):
    """Base class of tokenizers of sound, which get one channel at one rate.

    sample_rate: rate in Hz to which every clip is resampled first (torchaudio's windowed sinc).
    channels: "mono" refuses more than one channel, "mix" takes their mean, "first" takes channel 0.
    Raises ValueError for a rate below 1, or other channels.
    """

    def __init__(self, sample_rate: int, channels: Channels) -> None:
        check_choice("channels", channels, "mono", "mix", "first")
        check_counts(sample_rate=sample_rate)
        self.sample_rate = sample_rate
        self.channels = channels

    def wave(self, raw: Any, num_samples: int) -> Tensor:
        """Samples [t] of a `Waveform` at `self.sample_rate`; a clip of less than `num_samples` is filled up with zeros.

        Raises DataError on no samples, NaN or infinite ones, integers, a shape that is not [t] or [c t], or too many
        channels.
        """
        wave = resampled(self._one_channel(_checked_samples(raw)), int(raw[1]), self.sample_rate)
        return F.pad(wave, [0, max(0, num_samples - len(wave))])

    def _one_channel(self, samples: Tensor) -> Tensor:
        c, t = samples.shape
        if c > t:
            raise DataError(
                f"samples are [{c} {t}], more channels than samples; give [c t], channels first"
            )
        if c > 1 and self.channels == "mono":
            raise DataError(
                f"audio has {c} channels; set channels='mix' for their mean or channels='first' for one"
            )
        if self.channels == "mix":
            return reduce(samples, "c t -> t", "mean")
        return samples[0]


class LogMel(AudioTokenizer):
    """Log-mel frames of a waveform at any sample rate, `window_ms` wide, one every `hop_ms`.

    sample_rate: rate in Hz to which every clip is resampled first (torchaudio's windowed sinc). A clip of a lower rate
    leaves the upper bands empty.
    num_mels: number of mel bands. window_ms: length of a frame; the FFT has the next power of two of samples.
    hop_ms: time from one frame to the next.
    channels: "mono" refuses more than one channel, "mix" takes their mean, "first" takes channel 0.
    normalize: True raises energies to at most `RANGE_DB` below the maximum, then scales each band of each clip to mean
    0 and variance 1 over the frames. That removes loudness, depth of pauses and the recording's spectral colour.
    Digital silence cannot be normalised and is refused; False accepts it.
    colour: True: the mean of each band over the clip, less that of all bands, in standard deviations of all, is
    appended to each token: what normalising removes, and what steady sounds differ by.
    stack: number of frames in a token, the frame itself and equally many on either side (the first and the last frame
    are repeated at the ends), as in Peddinti et al. 2015 (time-delay networks).
    stride: number of frames from one token to the next; 2 halves the tokens.
    When: speech and sound. Raises ValueError for an even stack, or where a band would fall between two frequencies of
    the FFT.
    """

    def __init__(
        self,
        sample_rate: int = 16_000,
        *,
        num_mels: int = 40,
        window_ms: float = 25.0,
        hop_ms: float = 10.0,
        channels: Channels = "mono",
        normalize: bool = True,
        colour: bool = False,
        stack: int = 1,
        stride: int = 1,
    ) -> None:
        super().__init__(sample_rate, channels)
        if num_mels < 1 or not 0 < hop_ms <= window_ms:
            raise ValueError(
                f"{num_mels=}, {window_ms=}, {hop_ms=}; give numbers > 0, a hop no longer than the window"
            )
        if stack < 1 or stack % 2 == 0 or stride < 1:
            raise ValueError(
                f"{stack=}, {stride=}; give an odd stack, a frame and its neighbours, and a stride >= 1"
            )
        self.num_mels = num_mels
        self.window_ms = window_ms
        self.hop_ms = hop_ms
        self.normalize = normalize
        self.stack = stack
        self.stride = stride
        self.colour = colour
        self.window_samples = round(sample_rate * window_ms / 1000)
        self.hop_samples = round(sample_rate * hop_ms / 1000)
        if self.hop_samples < 1 or self.window_samples < 2:
            raise ValueError(
                f"a hop of {hop_ms} ms at {sample_rate} Hz is shorter than a sample; make it longer"
            )
        self.fft_samples = 1 << (self.window_samples - 1).bit_length()
        self._mel()  # raises where a band is empty

    @property
    def spec(self) -> TokenSpec:
        """Vectors of `stack * num_mels` log-energies, and `num_mels` means if `colour`, on one axis."""
        return TokenSpec(num_features=(self.stack + self.colour) * self.num_mels)

    def encode(self, raw: Any, /) -> Tokens:
        """A `Waveform` as frames of log-energies: t // hop_samples + 1 of them, t counted at `self.sample_rate`.

        A token is `stack` frames, earliest first, [n stack * m], then the colour [m]; one every `stride` frames.
        Positions [n 1] count frames, hop_samples / sample_rate s each. A clip shorter than a window is filled up with
        zeros to one. Frames are centred, as in torchaudio.transforms.MelSpectrogram(center=True).
        Raises DataError as `wave`, and on digital silence if it is to be normalised.
        """
        wave = self.wave(raw, self.window_samples)
        content = rearrange((self._mel()(wave) + LOG_FLOOR).log(), "m n -> n m")
        means = content.mean(dim=0)
        colour = (means - means.mean()) / content.std(unbiased=False).clamp(min=_MIN_STD)
        if self.normalize:
            if not bool(wave.any()):
                raise DataError(
                    "audio is silent: all samples are 0; drop the clip, or train with --tokenizer.normalize false"
                )
            content = content.clamp(min=float(content.max()) - RANGE_DB * log(10) / 10)
            content = content - content.mean(dim=0)
            content = content / content.std(dim=0, unbiased=False).clamp(min=_MIN_STD)
        centres = torch.arange(0, len(content), self.stride)
        if self.stack > 1 or self.stride > 1:
            offsets = torch.arange(self.stack) - self.stack // 2
            frames = (rearrange(centres, "n -> n 1") + offsets).clamp(0, len(content) - 1)
            content = rearrange(content[frames], "n s m -> n (s m)")
        if self.colour:
            content = torch.cat([content, repeat(colour, "m -> n m", n=len(content))], dim=1)
        return Tokens(content, rearrange(centres.float(), "n -> n 1"))

    def _mel(self) -> MelSpectrogram:
        return _mel_spectrogram(
            self.sample_rate, self.fft_samples, self.window_samples, self.hop_samples, self.num_mels
        )


def resampled(wave: Tensor, rate: int, to: int) -> Tensor:
    """A waveform [t] or [c t] of `rate` Hz at `to` Hz (torchaudio's windowed sinc).

    Raises DataError where the rates have no common divisor that is large enough.
    """
    return wave if rate == to else _resample(rate, to)(wave)


@lru_cache(maxsize=8)  # a folder of odd rates must not fill the memory
def _resample(rate: int, to: int) -> Resample:
    common = gcd(rate, to)
    if (rate // common) * (to // common) > _MAX_KERNEL:
        raise DataError(
            f"audio at {rate} Hz does not resample to {to} Hz; convert it to a usual rate first: 16000 Hz"
        )
    return Resample(rate, to)


@lru_cache(maxsize=8)
def _mel_spectrogram(
    sample_rate: int, fft_samples: int, window_samples: int, hop_samples: int, num_mels: int
) -> MelSpectrogram:
    """Filters, kept outside the tokenizers, so that equal ones pickle to equal bytes. Raises ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchaudio warns of what is refused here
        mel = MelSpectrogram(
            sample_rate,
            n_fft=fft_samples,
            win_length=window_samples,
            hop_length=hop_samples,
            n_mels=num_mels,
        )
    bands = mel.mel_scale.fb
    if num_empty := int((bands.amax(dim=0) == 0).sum()):
        raise ValueError(
            f"{num_empty} of {num_mels=} bands fall between the {len(bands)} frequencies; take fewer"
        )
    return mel


def _checked_samples(raw: Any) -> Tensor:
    """Samples [c t] float32 of a waveform. Raises DataError where it cannot be used."""
    if not isinstance(raw, tuple) or len(raw) != 2:
        raise DataError(
            f"audio is a Waveform(samples, sample_rate), not {type(raw).__name__}; give its rate in Hz"
        )
    samples, rate = raw
    if isinstance(rate, bool) or not isinstance(rate, (int, np.integer)) or rate < 1:
        raise DataError(f"sample_rate is {rate!r}; give a positive integer, in Hz")
    if isinstance(samples, np.ndarray) and samples.dtype.kind == "f":
        samples = torch.from_numpy(samples.astype(np.float32))
    if not isinstance(samples, Tensor) or not samples.is_floating_point():
        kind = getattr(samples, "dtype", type(samples).__name__)
        raise DataError(
            f"samples are {kind}; give floats in [-1, 1] (int16 values divided by 32768)"
        )
    if samples.ndim not in (1, 2):
        raise DataError(f"samples are {list(samples.shape)}; give [t] or [c t]")
    if samples.numel() == 0:
        raise DataError(f"audio has no samples (shape {list(samples.shape)}); drop the clip")
    samples = torch.atleast_2d(samples).float()
    peak = float(samples.abs().max())  # NaN if any sample is
    if not peak < float("inf"):
        at = int((~torch.isfinite(samples)).any(dim=0).nonzero()[0])
        raise DataError(
            f"sample {at} is not finite (NaN or infinite); clean the audio or drop the clip"
        )
    if peak > _MAX_PEAK:
        raise DataError(
            f"samples reach {peak:.4g}; give an amplitude in [-1, 1] (int16 values divided by 32768)"
        )
    return samples
