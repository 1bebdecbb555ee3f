"""Sound in pictures: its own bands on a time axis."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

from seqkit.raw import Waveform
from seqkit.report.modality.audio import AudioRenderer
from seqkit.report.modality.base import MAX_TINT
from seqkit.tokenizers.audio import LogMel


@pytest.mark.parametrize(("stack", "stride"), [(1, 1), (3, 2)])
def test_sound_stands_on_a_time_axis_with_its_own_bands(stack, stride, attention_to):
    mel = LogMel(8000, num_mels=13, stack=stack, stride=stride)
    wave = Waveform(torch.rand(2999, generator=torch.Generator().manual_seed(0)) - 0.5, 8000)
    tokens = mel.encode(wave)
    summary = attention_to(len(tokens), hot=7)
    picture, line, strips = AudioRenderer(mel).overlay(wave, tokens, summary).axes[:3]
    assert picture.images[0].get_array().shape == (13, len(tokens), 3)
    alone = LogMel(8000, num_mels=13, stride=stride).encode(wave).content.numpy().T  # without the frames beside it
    low, high = np.percentile(alone, [1, 99])
    share = MAX_TINT * summary.by_rollout / 2
    blue = np.clip((alone - low) / (high - low), 0, 1) * (1 - share)  # the tint has no blue
    np.testing.assert_allclose(picture.images[0].get_array()[..., 2], blue, atol=1e-6)
    assert line.patches[7].get_height() > line.patches[6].get_height()
    assert line.patches[7].get_x() + line.patches[7].get_width() / 2 == pytest.approx(7 * stride * 0.01)
    assert strips.images[0].get_array().shape == (6, len(tokens))
    left, right, *_ = picture.images[0].get_extent()
    assert right - left == pytest.approx(len(tokens) * stride * 0.01)
    assert "time (s)" in strips.get_xlabel()


@pytest.mark.parametrize(("stack", "stride"), [(1, 1), (3, 2)])
def test_the_picture_shows_the_frames_at_the_tokens_positions(stack, stride):
    mel = LogMel(8000, num_mels=13, stack=stack, stride=stride)
    wave = Waveform(torch.rand(2999, generator=torch.Generator().manual_seed(0)) - 0.5, 8000)
    spectrogram = AudioRenderer(mel).picture(wave, mel.encode(wave)).axes[2]
    alone = LogMel(8000, num_mels=13, stride=stride).encode(wave)
    np.testing.assert_allclose(spectrogram.images[0].get_array(), alone.content.T, atol=1e-6)


def test_a_thumbnail_shows_the_sound_once_and_not_once_for_each_stacked_frame():
    mel = LogMel(8000, num_mels=13, stack=5, stride=2)
    wave = Waveform(torch.rand(2999, generator=torch.Generator().manual_seed(0)) - 0.5, 8000)
    axes = Figure().subplots()
    AudioRenderer(mel).thumbnail(mel.encode(wave), axes)
    alone = LogMel(8000, num_mels=13, stride=2).encode(wave)
    np.testing.assert_allclose(axes.images[0].get_array(), alone.content.T, atol=1e-6)


def test_the_title_of_stacked_frames_is_inside_the_picture():
    mel = LogMel(8000, num_mels=40, stack=5)
    wave = Waveform(torch.rand(2999, generator=torch.Generator().manual_seed(0)) - 0.5, 8000)
    figure = AudioRenderer(mel).picture(wave, mel.encode(wave))
    figure.draw_without_rendering()
    title = next(text for axes in figure.axes for text in axes.findobj(Text) if "f = 200" in text.get_text())
    assert title.get_window_extent().x1 <= figure.bbox.x1
