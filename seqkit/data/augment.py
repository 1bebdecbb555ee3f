"""Audio augmentation: random changes of a waveform that keep its class. For images, use `torchvision.transforms.v2`.

Each is a callable from `Waveform` to `Waveform` that draws from torch's CPU generator, which the loader seeds for every
example. A method `num_samples` gives the length of the result, from the same draws and without the work: batches are
grouped by it.

c channels · t samples
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torchaudio.functional import add_noise
from torchaudio.transforms import Resample

from seqkit.errors import DataError
from seqkit.raw import Waveform


@dataclass
class SpeedPerturb:
    """Play faster or slower, pitch and all, at a speed drawn from the twentieths between `low` and `high`.

    low, high: 1 is unchanged, 1.1 a tenth faster and shorter. Raises ValueError unless 0.5 <= low <= high <= 2.
    Resampling by a ratio of small integers, as in Kaldi's speed perturbation; a speed's filter is made once.
    """

    low: float = 0.9
    high: float = 1.1
    _resample: dict[int, Resample] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not 0.5 <= self.low <= self.high <= 2:
            raise ValueError(
                f"speeds go from {self.low} to {self.high}; give 0.5 <= low <= high <= 2"
            )

    def num_samples(self, num_samples: int, sample_rate: int) -> int:
        """Number of samples after the change, with the draws of `__call__`."""
        return math.ceil(20 * num_samples / self._draw())

    def __call__(self, raw: Waveform) -> Waveform:
        samples = _samples(raw)
        twentieths = self._draw()
        if twentieths == 20:
            return raw
        if twentieths not in self._resample:
            self._resample[twentieths] = Resample(twentieths, 20)
        return Waveform(self._resample[twentieths](samples), raw.sample_rate)

    def _draw(self) -> int:
        return int(torch.randint(round(20 * self.low), round(20 * self.high) + 1, ()))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_resample": {}}


@dataclass
class Noise:
    """White noise at a signal-to-noise ratio drawn between `low` and `high` decibels. Silence stays silent."""

    low: float = 10.0
    high: float = 40.0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"the ratio goes from {self.low} to {self.high} dB; give low <= high")

    def __call__(self, raw: Waveform) -> Waveform:
        samples = _samples(raw)
        if not bool(samples.any()):
            return raw
        drawn = self.low + (self.high - self.low) * float(torch.rand(()))
        ratio = torch.full(samples.shape[:-1], drawn)
        return Waveform(add_noise(samples, torch.randn_like(samples), ratio), raw.sample_rate)


@dataclass
class Shift:
    """Begin up to `milliseconds` earlier (cut, at most a quarter of the clip) or later (silence before it)."""

    milliseconds: float = 50.0

    def num_samples(self, num_samples: int, sample_rate: int) -> int:
        """Number of samples after the change, with the draws of `__call__`."""
        return num_samples + self._draw(num_samples, sample_rate)

    def __call__(self, raw: Waveform) -> Waveform:
        samples = _samples(raw)
        return Waveform(
            F.pad(samples, (self._draw(samples.shape[-1], raw.sample_rate), 0)), raw.sample_rate
        )

    def _draw(self, num_samples: int, sample_rate: int) -> int:
        most = round(self.milliseconds * sample_rate / 1000)
        return max(int(torch.randint(-most, most + 1, ())), -(num_samples // 4))


@dataclass
class SpecAugment:
    """Mute stretches of time and bands of frequency (Park et al. 2019), whatever the tokenizer makes of the sound.

    milliseconds: of a stretch, drawn between 0 and that, and at most a fifth of the clip. share: of the mel scale up to
    half the sample rate, drawn likewise for a band. num_stretches, num_bands: how many of each; they may overlap.
    Bands are cut out of a short-time Fourier transform with windows of 32 ms or a little more.
    """

    milliseconds: float = 100.0
    share: float = 0.2
    num_stretches: int = 2
    num_bands: int = 2

    def __post_init__(self) -> None:
        if (
            self.milliseconds < 0
            or not 0 <= self.share < 1
            or min(self.num_stretches, self.num_bands) < 0
        ):
            raise ValueError(f"{self}; give numbers from 0, and a share below 1")

    def __call__(self, raw: Waveform) -> Waveform:
        samples = _samples(raw).clone()
        t = raw.samples.shape[-1]
        rate = raw.sample_rate
        if self.num_bands and self.share:
            size = 1 << max((round(0.032 * rate) - 1).bit_length(), 4)
            window = torch.hann_window(size)
            waves = torch.stft(
                samples, size, window=window, pad_mode="constant", return_complex=True
            )
            mels = torch.linspace(0, rate / 2, size // 2 + 1).div(700).log1p()
            for _ in range(self.num_bands):
                low, high = _stretch(float(mels[-1]), self.share * float(mels[-1]))
                waves[..., (mels >= low) & (mels < high), :] = 0
            samples = torch.istft(waves, size, window=window, length=t)
        for _ in range(self.num_stretches):
            start, end = _stretch(t, min(self.milliseconds * rate / 1000, t / 5))
            samples[..., round(start) : round(end)] = 0
        return Waveform(samples, rate)


def _stretch(total: float, most: float) -> tuple[float, float]:
    """Beginning and end of a stretch of at most that length, both drawn evenly (Park et al. 2019, section 2)."""
    length, place = torch.rand(2).tolist()
    return (start := place * (total - length * most)), start + length * most


@dataclass
class Affine:
    """Turn, shear, scale, shift an image [c H W] of floats at random; the pixels at its edge are repeated outside it.

    degrees: largest turn, and largest shear. scale, translate: largest change, as a share of the size. Angles and order
    as in torchvision's RandomAffine, which fills with one colour. Raises ValueError for changes that leave nothing.
    """

    degrees: float = 10.0
    scale: float = 0.1
    translate: float = 0.1

    def __post_init__(self) -> None:
        if not (0 <= self.degrees < 90 and 0 <= self.scale < 1 and self.translate >= 0):
            raise ValueError(f"{self}; give 0 <= degrees < 90, 0 <= scale < 1, translate >= 0")

    def __call__(self, raw: Tensor) -> Tensor:
        if not (isinstance(raw, Tensor) and raw.ndim == 3 and raw.is_floating_point()):
            raise DataError(
                f"Affine was given {type(raw).__name__}; it changes images, tensors [c H W] of floats"
            )
        turn, shear, larger, down, right = (2 * torch.rand(5) - 1).tolist()
        angle = math.radians(self.degrees * turn)
        tan = math.tan(math.radians(self.degrees * shear))
        size = 1 + self.scale * larger
        ratio = raw.shape[1] / raw.shape[2]
        cos = math.cos(angle) / size
        sin = math.sin(angle) / size
        matrix = [
            [cos - sin * tan, (sin + cos * tan) * ratio, 2 * self.translate * right],
            [-sin / ratio, cos, 2 * self.translate * down],
        ]
        grid = F.affine_grid(torch.tensor([matrix]), [1, *raw.shape], align_corners=False)
        return F.grid_sample(
            raw[None], grid.to(raw.dtype), padding_mode="border", align_corners=False
        )[0]


@dataclass
class OnPart:
    """Changes one part of an example of several, made one after the other; an example without it stays as it is.

    part: its key in the raw example. augment: the changes. Raises DataError for an example that is no mapping.
    """

    part: str
    augment: Sequence[Callable[[Any], Any]]

    def __call__(self, raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            raise DataError(
                f"OnPart was given {type(raw).__name__}; it changes a part of {{part: raw example}}"
            )
        changed = raw.get(self.part)
        if changed is None:
            return raw
        for change in self.augment:
            changed = change(changed)
        return {**raw, self.part: changed}


def _samples(raw: Any) -> Tensor:
    if not isinstance(raw, Waveform):
        raise DataError(
            f"an audio augmentation was given {type(raw).__name__}; it changes Waveform(samples, rate)"
        )
    return raw.samples
