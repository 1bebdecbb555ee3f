"""Frames of several scales in one sequence, and overlapping patches equal to a convolution over the spectrogram."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.raw import Waveform
from seqkit.tokenizers import LogMel, MultiScale, SpectrogramPatches

RATE = 8_000
WAVE = Waveform(torch.rand(4_003, generator=torch.Generator().manual_seed(0)) - 0.5, RATE)
FINE, COARSE = (
    LogMel(RATE, num_mels=7, window_ms=w, hop_ms=h, stride=s)
    for w, h, s in ((25, 10, 2), (100, 50, 1))
)


def test_scales_are_merged_by_time_and_each_is_whole():
    tokens = MultiScale({"fine": FINE, "coarse": COARSE}).encode(WAVE)
    assert tokens.positions[:6].tolist() == [[0, 0], [0, 1], [1, 0], [2, 0], [2.5, 1], [3, 0]]
    for scale, one in enumerate((FINE, COARSE)):
        assert_close(tokens.content[tokens.positions[:, 1] == scale], one.encode(WAVE).content)


@pytest.mark.parametrize("scales", [{}, {"one": FINE}, {"a": FINE, "b": LogMel(RATE, num_mels=9)}])
def test_scales_that_one_layer_cannot_embed_are_refused(scales):
    with pytest.raises(ValueError, match=r"give two LogMel or more"):
        MultiScale(scales)


def test_patches_through_a_linear_layer_are_the_convolution_of_ast():
    mel, weight = LogMel(RATE, num_mels=13), torch.randn(5, 1, 4, 3)
    tokens = SpectrogramPatches(mel, patch=(4, 3), hop=(3, 2)).encode(WAVE)
    # 51 frames: patches begin at 0, 3, … 48, and the last one lacks a frame
    energies = mel.encode(WAVE).content
    energies = F.pad(energies, [0, 0, 0, 1], value=float(energies.min()))
    expected = F.conv2d(rearrange(energies, "t m -> 1 1 t m"), weight, stride=(3, 2))
    found = tokens.content @ rearrange(weight, "d 1 p q -> (p q) d")
    assert_close(found, rearrange(expected, "1 d h w -> (h w) d"), rtol=1e-4, atol=1e-4)
    assert tokens.positions[[0, 5, 6, -1]].tolist() == [[0, 0], [0, 5], [1, 0], [16, 5]]


@pytest.mark.parametrize("t", [1, 90, 4_003])
def test_a_recording_shorter_than_a_patch_is_one(t):
    tokens = SpectrogramPatches(LogMel(RATE, num_mels=7), patch=(16, 7), hop=(10, 7)).encode(
        Waveform(WAVE.samples[:t], RATE)
    )
    assert len(tokens) == max(1, -(-(t // 80 + 1 - 16) // 10) + 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hop": (0, 1)}, "hop"),
        ({"hop": (5, 1)}, "no larger than the patch"),
        ({"patch": (4, 8)}, "8 bands, and there are 7"),
        ({"frames": LogMel(RATE, num_mels=7, stack=3)}, "single frames"),
        ({"frames": LogMel(RATE, num_mels=7, stride=2)}, "single frames"),
    ],
)
def test_patches_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        SpectrogramPatches(
            **{"frames": LogMel(RATE, num_mels=7), "patch": (4, 3), "hop": (2, 2)} | settings
        )


@pytest.mark.parametrize(
    "samples", [torch.zeros(0), torch.full((900,), torch.nan), torch.zeros(900)]
)
def test_bad_sound_is_refused(samples):
    for tokenizer in (
        MultiScale({"a": FINE, "b": COARSE}),
        SpectrogramPatches(LogMel(RATE, num_mels=16)),
    ):
        with pytest.raises(DataError, match=r"no samples|not finite|silent"):
            tokenizer.encode(Waveform(samples, RATE))
