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
    _resample: dict[int, Resample] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0.5 <= self.low <= self.high <= 2:
            raise ValueError(f"speeds go from {self.low} to {self.high}; give 0.5 <= low <= high <= 2")

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
        return Waveform(F.pad(samples, (self._draw(samples.shape[-1], raw.sample_rate), 0)), raw.sample_rate)

    def _draw(self, num_samples: int, sample_rate: int) -> int:
        most = round(self.milliseconds * sample_rate / 1000)
        return max(int(torch.randint(-most, most + 1, ())), -(num_samples // 4))


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
            raise DataError(f"Affine was given {type(raw).__name__}; it changes images, tensors [c H W] of floats")
        turn, shear, larger, down, right = (2 * torch.rand(5) - 1).tolist()
        angle, tan = math.radians(self.degrees * turn), math.tan(math.radians(self.degrees * shear))
        size, ratio = 1 + self.scale * larger, raw.shape[1] / raw.shape[2]
        cos, sin = math.cos(angle) / size, math.sin(angle) / size
        matrix = [
            [cos - sin * tan, (sin + cos * tan) * ratio, 2 * self.translate * right],
            [-sin / ratio, cos, 2 * self.translate * down],
        ]
        grid = F.affine_grid(torch.tensor([matrix]), [1, *raw.shape], align_corners=False)
        return F.grid_sample(raw[None], grid.to(raw.dtype), padding_mode="border", align_corners=False)[0]


@dataclass
class OnPart:
    """Changes one part of an example of several, made one after the other; an example without it stays as it is.

    part: its key in the raw example. augment: the changes. Raises DataError for an example that is no mapping.
    """

    part: str
    augment: Sequence[Callable[[Any], Any]]

    def __call__(self, raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            raise DataError(f"OnPart was given {type(raw).__name__}; it changes a part of {{part: raw example}}")
        changed = raw.get(self.part)
        if changed is None:
            return raw
        for change in self.augment:
            changed = change(changed)
        return {**raw, self.part: changed}


def _samples(raw: Any) -> Tensor:
    if not isinstance(raw, Waveform):
        raise DataError(f"an audio augmentation was given {type(raw).__name__}; it changes Waveform(samples, rate)")
    return raw.samples
