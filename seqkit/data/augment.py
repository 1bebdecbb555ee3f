"""Audio augmentation: random changes of a waveform that keep its class. For images, use `torchvision.transforms.v2`.

Each is a callable from `Waveform` to `Waveform` that draws from torch's CPU generator, which the loader seeds for every
example.

c channels · t samples
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torchaudio.functional import add_noise, preemphasis
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

    def __call__(self, raw: Waveform) -> Waveform:
        samples = _samples(raw)
        twentieths = int(torch.randint(round(20 * self.low), round(20 * self.high) + 1, ()))
        if twentieths == 20:
            return raw
        if twentieths not in self._resample:
            self._resample[twentieths] = Resample(twentieths, 20)
        return Waveform(self._resample[twentieths](samples), raw.sample_rate)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_resample": {}}


@dataclass
class Gain:
    """Louder or softer by up to `decibels` either way; what exceeds [-1, 1] is scaled back to it."""

    decibels: float = 6.0

    def __call__(self, raw: Waveform) -> Waveform:
        samples = _samples(raw) * 10 ** (_uniform(-self.decibels, self.decibels) / 20)
        return Waveform(samples / samples.abs().max().clamp(min=1), raw.sample_rate)


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
        ratio = torch.full(samples.shape[:-1], _uniform(self.low, self.high))
        return Waveform(add_noise(samples, torch.randn_like(samples), ratio), raw.sample_rate)


@dataclass
class Shift:
    """Begin up to `milliseconds` earlier (cut, at most a quarter of the clip) or later (silence before it)."""

    milliseconds: float = 50.0

    def __call__(self, raw: Waveform) -> Waveform:
        samples, most = _samples(raw), round(self.milliseconds * raw.sample_rate / 1000)
        later = max(int(torch.randint(-most, most + 1, ())), -(samples.shape[-1] // 4))
        return Waveform(F.pad(samples, (later, 0)), raw.sample_rate)


@dataclass
class SpectralTilt:
    """Another microphone: y[t] = x[t] - a x[t-1], with a drawn between -`most` (duller) and `most` (brighter)."""

    most: float = 0.3

    def __post_init__(self) -> None:
        if not 0 <= self.most < 1:
            raise ValueError(f"most is {self.most}; give at least 0 and below 1")

    def __call__(self, raw: Waveform) -> Waveform:
        samples = preemphasis(_samples(raw), _uniform(-self.most, self.most))
        return Waveform(samples / samples.abs().max().clamp(min=1), raw.sample_rate)


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
        raise DataError(
            f"an audio augmentation was given {type(raw).__name__}; it changes Waveform(samples, sample_rate)"
        )
    return raw.samples


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand(()))
