"""Sound as pretrained models take it: the features of transformers' own extractors, and what is refused."""

import numpy as np
import pytest
import torch
from einops import rearrange
from torch.testing import assert_close
from transformers import Wav2Vec2FeatureExtractor, WhisperFeatureExtractor

from seqkit.errors import DataError
from seqkit.pretrained.audio_stems import Convolutions, clip_statistics
from seqkit.pretrained.audio_tokenizers import SampleWindows, WhisperMel
from seqkit.raw import Waveform

RATE = 16_000


def sound(num_samples, seed=0):
    """A tone in noise, with a pause, as float32."""
    rng = np.random.default_rng(seed)
    t = np.arange(num_samples)
    wave = 0.3 * np.sin(2 * np.pi * 440 * t / RATE) + 0.1 * rng.standard_normal(num_samples) + 0.05
    wave[num_samples // 3 : num_samples // 2] *= 1e-4
    return wave.astype(np.float32)


# ── Whisper ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("num_mels", [80, 128])
@pytest.mark.parametrize("num_samples", [2 * RATE, 13_001, 150])
def test_frames_of_whisper(num_mels, num_samples):
    wave, tokenizer = sound(num_samples), WhisperMel(num_mels, seconds=2)
    right = WhisperFeatureExtractor(feature_size=num_mels, chunk_length=2)(
        wave, sampling_rate=RATE
    )["input_features"]
    tokens = tokenizer.encode(Waveform(wave, RATE))
    frames = rearrange(tokens.content, "n (s m) -> n s m", s=5)
    assert len(tokens) == 100
    assert_close(
        rearrange(frames[:, 2:4, :-1], "n s m -> m (n s)"),
        torch.tensor(right[0]),
        rtol=0,
        atol=1e-4,
    )
    assert frames[1:, :3].equal(frames[:-1, 2:])  # neighbours share frames
    assert frames[..., -1].eq(0).nonzero().tolist() == [[0, 0], [0, 1], [99, 4]]


def test_a_clip_that_whisper_does_not_take_is_refused_or_cut():
    wave = sound(RATE + 1)
    with pytest.raises(DataError, match=r"takes 1 s"):
        WhisperMel(seconds=1).encode(Waveform(wave, RATE))
    cut = WhisperMel(seconds=1, truncate=True).encode(Waveform(wave, RATE))
    assert cut.content.equal(WhisperMel(seconds=1).encode(Waveform(wave[:RATE], RATE)).content)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_mels": 0}, "num_mels=0"),
        ({"seconds": 0}, "seconds=0"),
        (
            {"num_mels": 201},
            "num_mels=201 bands fall between two frequencies of an FFT of 400 samples",
        ),
        ({"channels": "all"}, "channels='all'"),
    ],
)
def test_settings_of_whisper_that_make_no_frames(given, said):
    with pytest.raises(ValueError, match=said):
        WhisperMel(**given)


# ── wav2vec 2.0 ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("normalize", [True, False])
def test_samples_of_wav2vec(normalize):
    wave, sizes = sound(1_999), Convolutions((5, 7), (10, 4), (5, 3), norm="layer")
    right = Wav2Vec2FeatureExtractor(do_normalize=normalize)(wave, sampling_rate=RATE)[
        "input_values"
    ][0]
    tokens = SampleWindows(convolutions=sizes, normalize=normalize).encode(Waveform(wave, RATE))
    assert (sizes.window_samples, sizes.hop_samples) == (25, 15)
    assert tokens.content.shape == (1 + (1_999 - 25) // 15, 25)
    assert tokens.content.equal(torch.tensor(right).unfold(0, 25, 15))


def test_windows_of_the_published_models():
    tokenizer = SampleWindows()
    assert (tokenizer.convolutions.window_samples, tokenizer.convolutions.hop_samples) == (400, 320)
    assert len(tokenizer.encode(Waveform(sound(RATE), RATE))) == 49


def test_statistics_are_of_the_whole_clip_and_stand_in_each_token():
    sizes = Convolutions((5,), (4,), (2,))
    tokens = SampleWindows(convolutions=sizes, normalize=False).encode(
        Waveform(wave := sound(31), RATE)
    )
    right = clip_statistics(torch.tensor(wave), 4, 2)
    assert tokens.content[:, 4:].eq(right).all()
    assert tokens.content.shape[1] == tokens.content[:, :4].shape[1] + sizes.num_statistics


def test_a_clip_shorter_than_a_window_is_one_token_ending_in_zeros():
    tokens = SampleWindows(convolutions=Convolutions(norm="layer")).encode(Waveform(sound(7), RATE))
    assert tokens.content.shape == (1, 400)
    assert tokens.content[0, 7:].eq(0).all()
    assert tokens.content[0, :7].std() > 0.5


@pytest.mark.parametrize("tokenizer", [WhisperMel(seconds=1), SampleWindows()])
def test_other_rates_and_channels(tokenizer):
    wave = sound(RATE // 2)
    half, whole = (
        tokenizer.encode(Waveform(wave[::2].copy(), RATE // 2)),
        tokenizer.encode(Waveform(wave, RATE)),
    )
    assert len(half) == len(whole)
    with pytest.raises(DataError, match="2 channels"):
        tokenizer.encode(Waveform(np.stack([wave, wave]), RATE))
