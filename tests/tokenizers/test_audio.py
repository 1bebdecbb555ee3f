"""Log-mel frames: equal to torchaudio's, invariant to loudness if normalised, and bad audio is refused with reason."""

import math
import pickle

import numpy as np
import pytest
import torch
import torchaudio
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.raw import Waveform
from seqkit.tokenizers import LogMel
from seqkit.tokenizers.audio import LOG_FLOOR, RANGE_DB


def noise(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)) - 0.5


@pytest.mark.parametrize(
    ("rate", "fft", "window", "hop"), [(8000, 256, 200, 80), (16_000, 512, 400, 160)]
)
def test_frames_equal_the_logarithm_of_torchaudios_mel_spectrogram(rate, fft, window, hop):
    wave = noise(5003)
    mel = torchaudio.transforms.MelSpectrogram(
        rate, n_fft=fft, win_length=window, hop_length=hop, n_mels=37
    )(wave)
    tokens = LogMel(rate, num_mels=37, normalize=False).encode(Waveform(wave, rate))
    assert_close(tokens.content, torch.log(mel + LOG_FLOOR).T)
    assert len(tokens) == 5003 // hop + 1


def test_other_rates_are_resampled_as_torchaudio_does():
    wave = noise(3001)
    tokens = LogMel(8000).encode(Waveform(wave, 11_025))
    resampled = Waveform(torchaudio.functional.resample(wave, 11_025, 8000), 8000)
    # the functional form builds its filter in single precision, the transform in double
    assert_close(tokens.content, LogMel(8000).encode(resampled).content, atol=1e-3, rtol=0)


@pytest.mark.parametrize("rate", [4000, 22_050, 44_100])
def test_a_tone_lands_in_the_same_band_at_any_rate(rate):
    tone = torch.sin(2 * math.pi * 1000 * torch.arange(rate // 2) / rate)
    bands = LogMel(16_000, normalize=False).encode(Waveform(tone, rate)).content[7].argmax()
    reference = torch.sin(2 * math.pi * 1000 * torch.arange(8000) / 16_000)
    assert (
        bands
        == LogMel(16_000, normalize=False).encode(Waveform(reference, 16_000)).content[7].argmax()
    )


def test_positions_count_frames():
    tokenizer = LogMel(8000)
    tokens = tokenizer.encode(Waveform(noise(1013), 8000))
    tokenizer.spec.check(tokens)
    assert_close(tokens.positions, torch.arange(13.0)[:, None])


def test_normalised_bands_have_mean_zero_and_variance_one():
    content = LogMel(8000).encode(Waveform(noise(2003), 8000)).content
    assert_close(content.mean(dim=0), torch.zeros(40), atol=1e-4, rtol=0)
    assert_close(content.std(dim=0, unbiased=False), torch.ones(40))


def test_normalising_keeps_the_decibels_of_its_range_below_the_loudest_and_lifts_the_rest_to_it():
    """As torchaudio does with `top_db`; a decibel is a fixed number of nats, which dividing by the spread removes."""
    fading = Waveform(noise(8009) * torch.logspace(0, -4, 8009), 8000)  # by 80 dB
    energies = LogMel(8000, num_mels=7, normalize=False).encode(fading).content.exp()
    decibels = torchaudio.transforms.AmplitudeToDB("power", top_db=RANGE_DB)(energies)
    assert 0.3 < float((decibels == decibels.min()).float().mean()) < 0.9
    right = (decibels - decibels.mean(dim=0)) / decibels.std(dim=0, unbiased=False)
    assert_close(LogMel(8000, num_mels=7).encode(fading).content, right, atol=1e-4, rtol=0)


def test_normalising_removes_loudness():
    wave = noise(2003)
    loud, soft = (LogMel(8000).encode(Waveform(wave * gain, 8000)).content for gain in (1.0, 0.5))
    assert_close(loud, soft, atol=2e-2, rtol=0)  # not exactly: LOG_FLOOR stays


def test_channels_are_mixed_or_chosen_only_if_asked():
    stereo = noise(2, 2003)
    for channels, mono in (("mix", stereo.mean(dim=0)), ("first", stereo[0])):
        tokens = LogMel(8000, channels=channels).encode(Waveform(stereo, 8000))
        assert_close(tokens.content, LogMel(8000).encode(Waveform(mono, 8000)).content)
    with pytest.raises(DataError, match="2 channels"):
        LogMel(8000).encode(Waveform(stereo, 8000))


def test_one_channel_numpy_doubles_and_plain_tuples_are_the_same_audio():
    wave = noise(1009)
    expected = LogMel(8000).encode(Waveform(wave, 8000)).content
    for form in (
        Waveform(wave[None], 8000),
        (wave.numpy().astype(np.float64), 8000),
        Waveform(wave.double(), 8000),
    ):
        assert_close(LogMel(8000).encode(form).content, expected)


@pytest.mark.parametrize("num_samples", [1, 2, 79, 199, 200, 201])
def test_clips_shorter_than_a_window_are_filled_up_with_zeros(num_samples):
    wave = noise(num_samples)
    content = LogMel(8000).encode(Waveform(wave, 8000)).content
    filled = torch.cat([wave, torch.zeros(max(0, 200 - num_samples))])
    assert_close(content, LogMel(8000).encode(Waveform(filled, 8000)).content)
    assert len(content) == max(num_samples, 200) // 80 + 1


def test_silence_is_an_error_only_where_it_cannot_be_normalised():
    silence = Waveform(torch.zeros(809), 8000)
    with pytest.raises(DataError, match="silent"):
        LogMel(8000).encode(silence)
    assert_close(
        LogMel(8000, normalize=False).encode(silence).content,
        torch.full((11, 40), math.log(LOG_FLOOR)),
    )


def test_flat_bands_stay_finite():
    content = (
        LogMel(8000)
        .encode(Waveform(torch.cat([torch.full((4001,), 1e-30), torch.zeros(1)]), 8000))
        .content
    )
    assert content.abs().max() < 1


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (Waveform(torch.zeros(0), 8000), "no samples"),
        (Waveform(torch.zeros(1, 0), 8000), "no samples"),
        (Waveform(torch.tensor([0.1, float("nan")]), 8000), "sample 1 is not finite"),
        (Waveform(torch.tensor([0.1, 0.2, -float("inf")]), 8000), "sample 2 is not finite"),
        (Waveform(torch.ones(9, dtype=torch.int16), 8000), "int16.*divided by 32768"),
        (Waveform(np.ones(9, np.int16), 8000), "int16.*divided by 32768"),
        (Waveform(torch.full((9,), 20_000.0), 8000), "reach 2e.04"),
        (Waveform(torch.zeros(9, 2), 8000), "channels first"),
        (Waveform(torch.zeros(2, 3, 9), 8000), r"give \[t\] or \[c t\]"),
        (Waveform([0.1], 8000), "samples are list"),
        (Waveform(torch.ones(9), 0), "sample_rate is 0"),
        (Waveform(torch.ones(9), 8000.0), "sample_rate is 8000.0"),
        (Waveform(torch.ones(9), 16_001 * 3571), "does not resample to 8000 Hz"),
        (torch.ones(9), "Waveform.*not Tensor"),
    ],
)
def test_bad_audio_is_refused_with_its_reason(raw, reason):
    with pytest.raises(DataError, match=reason):
        LogMel(8000).encode(raw)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda: LogMel(8000, channels="both"), "give mono or mix or first"),
        (lambda: LogMel(8000, window_ms=10, hop_ms=25), "no longer than the window"),
        (lambda: LogMel(0), "at least 1"),
        (lambda: LogMel(50, window_ms=1000, hop_ms=10), "shorter than a sample"),
        (
            lambda: LogMel(8000, num_mels=128),
            "of num_mels=128 bands fall between the 129 frequencies",
        ),
    ],
)
def test_wrong_use_is_refused_with_its_reason(use, reason):
    with pytest.raises(ValueError, match=reason):
        use()


def test_a_used_tokenizer_can_be_pickled_for_loader_workers():
    tokenizer, raw = LogMel(8000), Waveform(noise(1009), 16_000)
    before = tokenizer.encode(raw)
    assert_close(pickle.loads(pickle.dumps(tokenizer)).encode(raw).content, before.content)


def test_a_stacked_token_is_its_frame_and_the_neighbours_on_both_sides():
    clip = Waveform(torch.randn(1103), 8000)
    frames = LogMel(8000, num_mels=7).encode(clip).content
    stacked = LogMel(8000, num_mels=7, stack=3, stride=2).encode(clip)
    n = len(frames)
    assert stacked.positions.flatten().tolist() == list(range(0, n, 2))
    for token, i in enumerate(range(0, n, 2)):
        by_hand = torch.cat([frames[max(i - 1, 0)], frames[i], frames[min(i + 1, n - 1)]])
        torch.testing.assert_close(stacked.content[token], by_hand)
    with pytest.raises(ValueError, match="odd stack"):
        LogMel(8000, stack=4)


def test_the_depth_of_a_pause_does_not_change_the_normalised_word():
    generator = torch.Generator().manual_seed(1)
    word = torch.randn(4000, generator=generator)
    pause = torch.randn(2400, generator=generator)

    def tokens(depth: float):
        return (
            LogMel(8000, num_mels=7)
            .encode(Waveform(torch.cat([depth * pause, word]) / 5, 8000))
            .content
        )

    # frames at the seam hold both
    torch.testing.assert_close(tokens(1e-3), tokens(1e-4), atol=1e-2, rtol=0)
    assert (tokens(1e-3) - tokens(0.3)).abs().max() > 0.1  # an audible pause does


def test_equal_tokenizers_are_equal_in_bytes_whatever_they_have_encoded():
    """By which encoded data of an earlier process is found again."""
    one, other = LogMel(8000), LogMel(8000)
    wave = Waveform(torch.rand(900), 16000)
    tokens = one.encode(wave)
    assert pickle.dumps(one) == pickle.dumps(other) != pickle.dumps(LogMel(8000, stride=2))
    assert torch.equal(pickle.loads(pickle.dumps(one)).encode(wave).content, tokens.content)


def test_colour_tells_steady_sounds_apart_that_normalising_makes_alike():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(8000, generator=generator) / 10
    dull, bright = (torch.nn.functional.avg_pool1d(noise[None], width, 1)[0] for width in (9, 2))
    tokenizer = LogMel(8000, num_mels=13, stack=3, colour=True)
    clips = [tokenizer.encode(Waveform(x, 8000)).content for x in (dull, bright, 0.3 * dull)]
    assert clips[0].shape[1] == tokenizer.spec.num_features == 52
    means = [content.mean(dim=0) for content in clips]
    assert float((means[0] - means[1])[:39].abs().max()) < 0.2
    assert float((means[0] - means[1])[39:].abs().max()) > 0.5
    assert_close(means[0], means[2], atol=0.05, rtol=0)  # not loudness
