"""Sound: each token as a frame of the spectrogram, and a short WAV that a page can play.

n tokens · m mel bands · s frames of a token
"""

from __future__ import annotations

import io
import wave
from base64 import b64encode
from typing import Any

import numpy as np
import torch
from einops import rearrange
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from seqkit.errors import DataError
from seqkit.interfaces import Tokens
from seqkit.raw import Waveform
from seqkit.report.modality.base import HEAT, Renderer
from seqkit.tokenizers.audio import LogMel, resampled

MAX_SECONDS = 4.0
MAX_RATE = 16_000
"""At most so much of a sound is kept, mixed to one channel: 171 kB of text for each."""


class AudioRenderer(Renderer):
    """The spectrogram, its frames coloured by the attention that they receive."""

    tokenizer: LogMel
    size = (2.6, 1.7)
    note = "Each picture is a spectrogram: yellow is loud for its frequency, dark blue is quiet."

    def draw(
        self, axes: Axes, raw: Any, tokens: Tokens, received: np.ndarray | None = None
    ) -> None:
        """Frames over seconds and kilohertz: of the frames stacked in a token, the one at its position."""
        m = self.tokenizer.num_mels
        hop = self._hop_seconds
        frames = rearrange(tokens.content.numpy(), "n (s m) -> s m n", m=m)[
            self.tokenizer.stack // 2
        ]
        low, high = np.percentile(frames, [1, 99])  # one loud frame must not hide the others
        place: dict[str, Any] = {
            "aspect": "auto", "interpolation": "nearest", "origin": "lower",
            "extent": (-hop / 2, (len(tokens) - 0.5) * hop, -0.5, m - 0.5),
        }  # fmt: skip
        colors = "cividis" if received is None else "gray"
        axes.imshow(frames, cmap=colors, vmin=low, vmax=high, **place)
        if received is not None:
            axes.imshow(received[None], **HEAT, alpha=0.6, **place)
        axes.set(xlabel="seconds", ylabel="kHz")
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        kilohertz = [f for f in (0.25, 1, 2, 4, 8, 16) if f <= self.tokenizer.sample_rate / 2000]
        axes.set_yticks([self._band(1000 * f) for f in kilohertz], [f"{f:g}" for f in kilohertz])

    def _band(self, frequency: float) -> float:
        """The place among the mel bands (0: the centre of the lowest) of a frequency in Hz.

        Centres are evenly spaced between 0 and half the sample rate on the scale of torchaudio's mel_scale="htk".
        """
        share = np.log1p(frequency / 700) / np.log1p(self.tokenizer.sample_rate / 2 / 700)
        return float(share * (self.tokenizer.num_mels + 1) - 1)

    @property
    def _hop_seconds(self) -> float:
        """Time from a token to the next."""
        return self.tokenizer.stride * self.tokenizer.hop_samples / self.tokenizer.sample_rate


def player_source(sound: Waveform) -> str:
    """The beginning of a sound as `data:audio/wav;base64,…`, 16 bits a sample; empty if it cannot be resampled."""
    samples = np.atleast_2d(np.asarray(sound.samples))
    rate = sound.sample_rate
    samples = samples[:, : round(MAX_SECONDS * rate)].mean(axis=0, dtype=np.float32)
    if rate > MAX_RATE:
        try:
            samples = resampled(torch.from_numpy(samples), rate, MAX_RATE).numpy()
        except DataError:
            return ""
        rate = MAX_RATE
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, rate, 0, "NONE", ""))
        writer.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return f"data:audio/wav;base64,{b64encode(file.getvalue()).decode()}"
