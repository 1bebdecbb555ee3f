"""Sound in pictures and in players: a time axis, the frames at the tokens' positions, the samples of the recording."""

import io
import wave
from base64 import b64decode

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from seqkit.raw import Waveform
from seqkit.report.modality.audio import MAX_SECONDS, AudioRenderer, player_source
from seqkit.tokenizers.audio import LogMel

NOISE = Waveform(torch.rand(2999, generator=torch.Generator().manual_seed(0)) - 0.5, 8000)


@pytest.mark.parametrize(("stack", "stride"), [(1, 1), (3, 2)])
def test_frames_stand_once_on_a_time_axis_below_the_attention_that_they_receive(
    stack, stride, attention_to
):
    mel = LogMel(8000, num_mels=13, stack=stack, stride=stride)
    tokens = mel.encode(NOISE)
    received = attention_to(len(tokens), hot=7)
    axes = Figure().subplots()
    AudioRenderer(mel).draw(axes, NOISE, tokens, received)
    frames, colours = axes.images
    alone = LogMel(8000, num_mels=13, stride=stride).encode(NOISE)  # without the frames beside it
    np.testing.assert_allclose(frames.get_array(), alone.content.T, atol=1e-6)
    np.testing.assert_array_equal(colours.get_array(), received[None])
    left, right, *_ = frames.get_extent()
    assert right - left == pytest.approx(len(tokens) * stride * 0.01)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("seconds", "kHz")


def test_a_long_sound_is_cut_mixed_and_resampled():
    tone = np.sin(2 * np.pi * 440 * np.arange(5 * 44_100) / 44_100, dtype=np.float32)
    source = player_source(Waveform(torch.tensor(np.stack([tone, 0 * tone])), 44_100))
    with wave.open(
        io.BytesIO(b64decode(source.removeprefix("data:audio/wav;base64,"))), "rb"
    ) as heard:
        assert (heard.getframerate(), heard.getnframes(), heard.getnchannels()) == (
            16_000,
            MAX_SECONDS * 16_000,
            1,
        )
        samples = np.frombuffer(heard.readframes(heard.getnframes()), "<i2")
    spectrum = np.abs(np.fft.rfft(samples / 32768))
    assert spectrum.argmax() == 440 * MAX_SECONDS
    assert np.abs(samples).max() / 32767 == pytest.approx(0.5, abs=0.02)
