"""Laws of tokenizers of sound: a delay moves tokens, and a stem makes as many as its convolutions over the clip do.

t samples · n tokens
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.pretrained.audio_stems import Convolutions
from seqkit.pretrained.audio_tokenizers import SampleWindows
from seqkit.raw import Waveform
from seqkit.tokenizers import LogMel, MultiScale, SpectrogramPatches

RATE = 8_000
PLAIN = {"num_mels": 7, "normalize": False}  # what normalises a clip reads all of it
STEM = Convolutions((5, 7), (10, 4), (5, 2), norm="layer")
COARSE = LogMel(RATE, window_ms=60, hop_ms=25, **PLAIN)


def sound(t, seed=0):
    return torch.rand(t, generator=torch.Generator().manual_seed(seed)) - 0.5


def assert_a_delay_moves_tokens(tokenizer, step, edge):
    """Sound before a recording, `step` samples for each step of time, leaves its tokens as they are, so much later.

    edge: samples at either end whose tokens may depend on what is beyond.
    """
    wave, num_steps = sound(9_001), 4
    first = tokenizer.encode(Waveform(wave, RATE))
    second = tokenizer.encode(Waveform(torch.cat([0.3 * sound(num_steps * step, 1), wave]), RATE))
    rows = {tuple(place.tolist()): row for place, row in zip(second.positions, second.content)}
    margin, checked = math.ceil(edge / step), 0
    for place, row in zip(first.positions.tolist(), first.content):
        if margin <= place[0] <= 9_001 / step - margin:
            assert (place[0] + num_steps, *place[1:]) in rows, (
                f"no token is {num_steps} steps after {place}"
            )
            assert_close(rows[place[0] + num_steps, *place[1:]], row, atol=1e-3, rtol=1e-3)
            checked += 1
    assert checked > 10, f"only {checked} tokens have a time within the recording"


def assert_a_stem_has_its_length(tokenizer, sizes):
    """As many tokens as the convolutions make of the whole clip; one for a clip that is shorter than a window."""
    layers = nn.Sequential(*(nn.Conv1d(1, 1, *each) for each in zip(sizes.kernels, sizes.strides)))
    for t in [
        1,
        *range(sizes.window_samples - 1, sizes.window_samples + 3 * sizes.hop_samples + 2),
    ]:
        clip = torch.zeros(1, 1, max(t, sizes.window_samples))
        assert len(tokenizer.encode(Waveform(sound(t), RATE))) == layers(clip).shape[-1], (
            f"of {t} samples"
        )


TOKENIZERS = {
    "LogMel": (LogMel(RATE, **PLAIN), 80, 200),
    "stacked": (LogMel(RATE, stack=3, **PLAIN), 80, 300),
    "MultiScale": (
        MultiScale({"fine": LogMel(RATE, hop_ms=12.5, **PLAIN), "coarse": COARSE}),
        100,
        700,
    ),
    "SpectrogramPatches": (
        SpectrogramPatches(LogMel(RATE, **PLAIN), patch=(5, 4), hop=(2, 3)),
        160,
        700,
    ),
    "SampleWindows": (
        SampleWindows(RATE, convolutions=STEM, normalize=False),
        STEM.hop_samples,
        STEM.window_samples,
    ),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_delay_moves_tokens(name):
    assert_a_delay_moves_tokens(*TOKENIZERS[name])


def test_a_stem_has_its_length():
    assert_a_stem_has_its_length(SampleWindows(RATE, convolutions=STEM), STEM)


class Faulty(SampleWindows):
    """Frames of samples with one fault."""

    def __init__(self, fault):
        super().__init__(RATE, convolutions=STEM, normalize=False)
        self.fault = fault

    def encode(self, raw):
        wave, hop = raw.samples, STEM.hop_samples
        if self.fault == "counts from the end":
            wave = wave[len(wave) % hop // 2 * 2 + (len(wave) > 9_001) :]
        if self.fault == "its beginning is one":
            wave = wave / wave[:50].abs().max()
        tokens = super().encode(Waveform(wave, RATE))
        if self.fault == "time from the end":
            return replace(tokens, positions=tokens.positions - float(tokens.positions.max()))
        if self.fault == "drops the last" and len(tokens) > 1:
            return tokens.first(len(tokens) - 1)
        if self.fault == "pads to a hop":
            return super().encode(Waveform(nn.functional.pad(wave, [0, -len(wave) % hop]), RATE))
        return tokens


@pytest.mark.parametrize(
    "fault", ["counts from the end", "its beginning is one", "time from the end"]
)
def test_a_delay_shows_a_planted_fault(fault):
    with pytest.raises(AssertionError, match=r"no token is 4 steps after|not close|only 0 tokens"):
        assert_a_delay_moves_tokens(Faulty(fault), STEM.hop_samples, STEM.window_samples)


@pytest.mark.parametrize("fault", ["drops the last", "pads to a hop"])
def test_the_length_shows_a_planted_fault(fault):
    with pytest.raises(AssertionError, match=r"of \d+ samples"):
        assert_a_stem_has_its_length(Faulty(fault), STEM)
