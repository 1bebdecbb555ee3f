import pickle

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2.functional import affine

from seqkit.data import Affine, Noise, Shift, SpecAugment, SpeedPerturb
from seqkit.errors import DataError
from seqkit.raw import Waveform

RATE = 8000
TONE = Waveform(0.25 * torch.sin(2 * torch.pi * 440 * torch.arange(4001) / RATE)[None], RATE)
ALL = [SpeedPerturb(), Noise(), Shift(), SpecAugment()]


@pytest.mark.parametrize("augment", ALL)
def test_each_draws_anew_from_torchs_generator_and_pickles(augment):
    def draws(change):
        torch.manual_seed(5)
        return [change(TONE).samples for _ in range(11)]

    first, again = draws(augment), draws(pickle.loads(pickle.dumps(augment)))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert len({(*x[0, :1000].tolist(), len(x[0])) for x in first}) > 2
    assert all(bool(torch.isfinite(x).all()) and x.dtype == torch.float32 for x in first)


@pytest.mark.parametrize("augment", ALL)
def test_each_leaves_its_input_and_its_rate_alone_and_refuses_other_things(augment):
    before = TONE.samples.clone()
    assert augment(TONE).sample_rate == RATE
    assert torch.equal(TONE.samples, before)
    with pytest.raises(DataError, match="was given str"):
        augment("sound")


@pytest.mark.parametrize("augment", [one for one in ALL if hasattr(one, "num_samples")])
def test_the_number_of_samples_is_known_without_the_work_and_by_the_same_draws(augment):
    for seed in range(23):
        torch.manual_seed(seed)
        expected = augment(TONE).samples.shape[-1], torch.rand(())
        torch.manual_seed(seed)
        assert (augment.num_samples(4001, RATE), torch.rand(())) == expected


def peak_hz(samples):
    return float(torch.fft.rfft(samples[0]).abs().argmax()) * RATE / len(samples[0])


@pytest.mark.parametrize("speed", [0.8, 1.25, 1.5])
def test_a_tone_played_faster_is_shorter_and_higher(speed):
    wave = SpeedPerturb(speed, speed)(TONE)
    assert len(wave.samples[0]) == pytest.approx(4001 / speed, abs=1)
    assert peak_hz(wave.samples) == pytest.approx(440 * speed, abs=4)
    assert torch.equal(SpeedPerturb(1, 1)(TONE).samples, TONE.samples)


def test_speeds_reach_both_ends():
    lengths = {len(SpeedPerturb(0.9, 1.1)(TONE).samples[0]) for _ in range(101)}
    assert len(lengths) == 5
    assert (min(lengths), max(lengths)) == (round(4001 / 1.1 + 0.5), round(4001 / 0.9 + 0.5))


@pytest.mark.parametrize("ratio", [0.0, 20.0])
def test_noise_has_the_ratio_asked_for(ratio):
    noise = Noise(ratio, ratio)(TONE).samples - TONE.samples
    assert float(
        10 * torch.log10(TONE.samples.square().sum() / noise.square().sum())
    ) == pytest.approx(ratio, abs=0.01)
    silence = Waveform(torch.zeros(1, 101), RATE)
    assert torch.equal(Noise()(silence).samples, silence.samples)


def test_the_ratio_of_noise_is_drawn_between_both_ends():
    ratios = []
    for _ in range(101):
        noise = Noise(10, 40)(TONE).samples - TONE.samples
        ratios.append(float(10 * torch.log10(TONE.samples.square().sum() / noise.square().sum())))
    assert 9.9 < min(ratios) < 15
    assert 35 < max(ratios) < 40.1


@pytest.mark.parametrize("rate", [4000, 16_000])
def test_a_shift_is_in_milliseconds_at_any_rate(rate):
    lengths = [
        len(Shift(10)(Waveform(torch.ones(1, rate), rate)).samples[0]) - rate for _ in range(101)
    ]
    assert rate / 200 < max(lengths) <= rate / 100
    assert -rate / 100 <= min(lengths) < -rate / 200


def test_shift_moves_the_clip_and_adds_nothing():
    ramp = Waveform(torch.arange(1.0, 401.0)[None] / 400, RATE)
    offsets = set()
    for _ in range(101):
        moved = Shift(10)(ramp).samples[0]
        shift = len(moved) - 400
        offsets.add(shift)
        assert (
            torch.equal(moved[shift:], ramp.samples[0])
            if shift >= 0
            else torch.equal(moved, ramp.samples[0, -shift:])
        )
        assert not moved[: max(shift, 0)].any()
    assert -80 <= min(offsets) < -40
    assert 40 < max(offsets) <= 80
    # at most a quarter is cut
    assert min(len(Shift(1000)(ramp).samples[0]) for _ in range(23)) == 300


def test_impossible_ranges_are_refused():
    for make, said in (
        (lambda: SpeedPerturb(0.1, 1), "speeds go from 0.1"),
        (lambda: Noise(20, 10), "ratio goes from 20"),
    ):
        with pytest.raises(ValueError, match=said):
            make()


def test_specaugment_mutes_bands_and_stretches_and_nothing_else():
    noise = Waveform(torch.randn(1, 8000, generator=torch.Generator().manual_seed(0)), RATE)
    assert torch.equal(SpecAugment(num_bands=0, num_stretches=0)(noise).samples, noise.samples)
    shares, muted = [], []
    for seed in range(11):
        torch.manual_seed(seed)
        banded = SpecAugment(share=0.5, num_bands=1, num_stretches=0)(noise).samples[0]
        assert len(banded) == 8000
        change = (
            torch.fft.rfft(banded).abs().reshape(-1)[:4000]
            / torch.fft.rfft(noise.samples[0]).abs()[:4000]
        )
        middle = change.reshape(80, 50).median(dim=1).values  # of bands of 50 Hz
        assert ((middle < 0.5).diff().sum()) <= 2  # one band
        shares.append(float((middle < 0.5).float().mean()))
        torch.manual_seed(seed)
        stretched = SpecAugment(num_bands=0, num_stretches=1)(noise).samples[0]
        assert torch.equal(stretched[stretched != 0], noise.samples[0][stretched != 0])
        muted.append(int((stretched == 0).sum()))
    assert max(shares) > 0.1
    assert 400 < max(muted) <= 801
    for settings in ({"share": 1.0}, {"milliseconds": -1.0}, {"num_bands": -1}):
        with pytest.raises(ValueError, match="give numbers from 0"):
            SpecAugment(**settings)


IMAGE = torch.rand(3, 23, 31)


def test_an_affine_change_that_changes_nothing_gives_the_image():
    assert_close(Affine(0, 0, 0)(IMAGE), IMAGE)
    with pytest.raises(DataError, match="was given ndarray"):
        Affine()(IMAGE.numpy())


@pytest.mark.parametrize("settings", [(10, 0, 0), (0, 0.1, 0), (0, 0, 0.1)])
def test_affine_changes_are_torchvisions_in_the_middle(settings, monkeypatch):
    """With the same draws, on an image that is not square, where no edge comes in."""
    image = torch.rand(3, 6, 8)
    image = F.interpolate(image[None], scale_factor=8, mode="bicubic", align_corners=False)[
        0
    ].clamp(0, 1)
    drawn = torch.rand(5)
    monkeypatch.setattr(torch, "rand", lambda *_: drawn)
    turn, shear, larger, down, right = (2 * drawn - 1).tolist()
    degrees, scale, translate = settings
    expected = affine(
        image,
        angle=degrees * turn,
        translate=[-translate * right * 64, -translate * down * 48],
        scale=1 + scale * larger,
        shear=[degrees * shear, 0.0],
        interpolation=InterpolationMode.BILINEAR,
    )
    assert_close(
        Affine(*settings)(image)[:, 12:-12, 16:-16], expected[:, 12:-12, 16:-16], atol=1e-4, rtol=0
    )


def test_what_comes_in_at_the_edges_is_the_edge():
    """Of an image of one colour nothing changes; RandomAffine would bring in black."""
    white = torch.full((3, 16, 24), 0.7)
    for seed in range(7):
        torch.manual_seed(seed)
        assert_close(Affine(30, 0.5, 0.5)(white), white)
