"""Sound inside a page: a short WAV as an address that a player reads without asking any host."""

from __future__ import annotations

import io
import wave
from base64 import b64encode

import numpy as np
import torch

from seqkit.errors import DataError
from seqkit.raw import Waveform
from seqkit.tokenizers.audio import resampled

MAX_SECONDS = 4.0
MAX_RATE = 16_000
"""At most so much of a sound is kept, mixed to one channel: 171 kB of text for each."""


def player_source(sound: Waveform) -> str:
    """The beginning of a sound as `data:audio/wav;base64,…`, 16 bits a sample; empty if it cannot be resampled."""
    samples, rate = np.atleast_2d(np.asarray(sound.samples)), sound.sample_rate
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
