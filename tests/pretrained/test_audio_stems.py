"""Stems equal the convolutions over whole clips that they stand for, though each token is embedded alone."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn
from torch.testing import assert_close

from seqkit.pretrained.audio_stems import (
    ClipNorm,
    Convolutions,
    WaveStem,
    WhisperStem,
    clip_statistics,
)
from seqkit.pretrained.audio_tokenizers import SampleWindows, WhisperMel
from seqkit.raw import Waveform

DIM = 7


def test_the_stem_of_whisper_is_two_padded_convolutions():
    tokenizer, stem = WhisperMel(5, seconds=1), WhisperStem(5, DIM)
    tokens = tokenizer.encode(Waveform(torch.randn(9_000) * 0.1, 16_000))
    frames = rearrange(tokens.content, "n (s m) -> n s m", s=5)[:, 2:4, :-1]
    hidden = F.gelu(
        F.conv1d(
            rearrange(frames, "n s m -> 1 m (n s)"), stem.conv1.weight, stem.conv1.bias, padding=1
        )
    )
    right = F.gelu(F.conv1d(hidden, stem.conv2.weight, stem.conv2.bias, stride=2, padding=1))
    got = stem(rearrange(tokens.content, "n f -> 1 n f"))
    assert got.shape == (1, 50, DIM)
    assert_close(
        got,
        rearrange(right, "1 d n -> 1 n d"),
        rtol=0,
        atol=1e-4 * float(right.detach().abs().max()),
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("norm", ["group", "layer"])
def test_the_stem_of_waves_is_its_convolutions_over_the_clip(norm, bias):
    sizes = Convolutions((5, 11), (10, 3), (5, 2), norm, bias, norm_eps=1e-3)
    stem = WaveStem(sizes, DIM)
    with torch.no_grad():
        for p in stem.parameters():
            p.add_(0.1 * torch.randn_like(p))
    wave = 0.2 + 0.1 * torch.randn(333)
    x = rearrange(wave, "t -> 1 1 t")
    for i, layer in enumerate(stem.layers):
        x = layer.conv(x)
        if norm == "group" and i == 0:
            x = F.group_norm(x, 5, layer.norm.weight, layer.norm.bias)
        elif norm == "layer":
            x = rearrange(layer.norm(rearrange(x, "1 c t -> t c")), "t c -> 1 c t")
        x = F.gelu(x)
    right = stem.projection(stem.norm(rearrange(x, "1 c t -> 1 t c")))
    tokens = SampleWindows(convolutions=sizes, normalize=False).encode(Waveform(wave, 16_000))
    got = stem(rearrange(tokens.content, "n f -> 1 n f"))
    assert got.std() > 0.1
    assert_close(got, right, rtol=0, atol=1e-4 * float(right.detach().abs().max()))


def test_a_clip_norm_is_a_group_norm_of_the_clip_also_of_smooth_sounds():
    wave = 0.3 + 1e-3 * torch.randn(1_001).cumsum(0)
    conv, norm = nn.Conv1d(1, 5, 10, 5), ClipNorm(5)
    x = conv(rearrange(wave, "t -> 1 1 t"))
    got = norm(x, conv, rearrange(clip_statistics(wave, 10, 5), "s -> 1 s"))
    right = F.group_norm(x.double(), 5).float()
    assert got.std() > 0.5
    assert_close(got, right, rtol=0, atol=1e-4 * float(right.detach().abs().max()))


def test_the_root_of_the_covariance_is_its_root():
    wave = torch.randn(97)
    stretches = wave.unfold(0, 4, 3)
    mean, root = clip_statistics(wave, 4, 3).tensor_split([4])
    assert_close(mean, stretches.mean(dim=0))
    root = rearrange(root, "(i k) -> i k", i=4)
    assert_close(root, root.T)
    covariance = torch.cov(stretches.T, correction=0)
    assert_close(root @ root, covariance, rtol=0, atol=1e-4 * float(covariance.max()))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"widths": (5, 7)}, "one number from 1"),
        ({"widths": (), "kernels": (), "strides": ()}, "one number from 1"),
        ({"widths": (5,), "kernels": (0,), "strides": (1,)}, "one number from 1"),
        ({"widths": (5,), "kernels": (2,), "strides": (3,)}, "below its stride"),
        ({"norm": "batch"}, "norm='batch'"),
    ],
)
def test_sizes_that_are_no_convolutions(given, said):
    with pytest.raises(ValueError, match=said):
        Convolutions(**given)
