"""Tubelets: a 3-D convolution, time as the first axis, sampled frames, refused where they do not tile."""

import pytest
import torch
from einops import rearrange
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.interfaces import Tokens
from seqkit.tokenizers import Tubelets


def test_tubelets_through_a_linear_equal_a_convolution_over_frames_rows_and_columns():
    torch.manual_seed(0)
    clip = torch.rand(4, 3, 6, 15)
    convolution = torch.nn.Conv3d(3, 7, (2, 3, 5), stride=(2, 3, 5))
    weight = rearrange(convolution.weight, "f c d p q -> f (d c p q)")
    tokens = Tubelets((2, 3, 5), frames=4, channels=3).encode(clip)
    expected = convolution(rearrange((clip - 0.5) / 0.5, "t c H W -> 1 c t H W"))
    found = tokens.content @ weight.T + convolution.bias
    for row, place in zip(found, tokens.positions.int().tolist(), strict=True):
        assert_close(row, expected[0, :, *place], atol=1e-5, rtol=1e-5)


def backwards(tokenizer, clip):
    """Tokens of a clip that is played backwards, or None where they are those of the clip in another order."""
    forth, back = tokenizer.encode(clip), tokenizer.encode(clip.flip(0))
    rows = [sorted(torch.cat([x.positions, x.content], dim=1).tolist()) for x in (forth, back)]
    return None if rows[0] == rows[1] else back


class WithoutTime(Tubelets):
    """The fault: positions are row and column alone."""

    def encode(self, raw, /):
        tokens = super().encode(raw)
        return Tokens(tokens.content, tokens.positions * torch.tensor([0.0, 1.0, 1.0]))


def test_a_clip_played_backwards_has_its_times_reversed_and_a_fault_without_time_is_seen():
    clip = torch.rand(5, 1, 4, 6)
    forth, back = (Tubelets((1, 2, 3), frames=5).encode(x) for x in (clip, clip.flip(0)))
    again = Tokens(
        forth.content, torch.cat([4 - forth.positions[:, :1], forth.positions[:, 1:]], dim=1)
    )
    order = (again.positions * torch.tensor([100.0, 10.0, 1.0])).sum(dim=1).argsort()
    assert torch.equal(again.positions[order], back.positions)
    assert torch.equal(again.content[order], back.content)
    assert backwards(Tubelets((1, 2, 3), frames=5), clip) is not None
    assert backwards(WithoutTime((1, 2, 3), frames=5), clip) is None


@pytest.mark.parametrize("resize", [None, (6, 10), (8, 5)])
def test_each_frame_is_what_patches_make_of_it(resize):
    pixels = torch.randint(256, (4, 3, 6, 10), dtype=torch.uint8)
    tokenizer = Tubelets((2, 2, 5), frames=4, channels=3, resize=resize)
    found = tokenizer.encode(pixels)
    assert torch.equal(found.content, tokenizer.encode(pixels / 255).content)
    frames = torch.stack([tokenizer.frame.encode(frame).content for frame in pixels])
    assert torch.equal(found.content, rearrange(frames, "(s d) n f -> (s n) (d f)", d=2))


@pytest.mark.parametrize(
    ("stride", "num_frames", "expected"),
    [
        (None, 6, [0, 1, 2, 3, 4, 5]),
        (None, 1000, [83, 250, 416, 583, 750, 916]),
        (None, 5, [0, 1, 3, 4]),
        (3, 1000, [492, 495, 498, 501, 504, 507]),
        (3, 10, [0, 3, 6, 9]),
    ],
)
def test_frames_are_spread_evenly_or_a_stride_apart_in_the_middle_and_none_comes_twice(
    stride, num_frames, expected
):
    assert Tubelets((2, 1, 1), frames=6, stride=stride).sample(num_frames) == expected


def test_a_single_frame_is_the_middle_one():
    assert Tubelets((1, 1, 1), frames=1).sample(9) == [4]


@pytest.mark.parametrize(
    ("raw", "fact"),
    [
        (torch.rand(3, 4, 6), r"not \[3, 4, 6\]"),
        (torch.rand(3, 1, 4, 6), "3 frames"),
        (torch.rand(6, 1, 4, 6), "6 frames"),
        (torch.rand(2, 1, 5, 6), "5x6"),
        (torch.rand(2, 3, 4, 6), "3 channels"),
        (torch.rand(2, 1, 4, 6) + torch.tensor([0.0, 1.0])[:, None, None, None], "pixels go"),
        (torch.rand(2, 1, 400, 600), "40,000 tubelets"),
        ([torch.rand(1, 4, 6)] * 2, "not list"),
        ("clip.gif", "not str"),
    ],
)
def test_what_is_no_clip_is_refused(raw, fact):
    with pytest.raises(DataError, match=fact):
        Tubelets((2, 2, 3), frames=4).encode(raw)


@pytest.mark.parametrize(
    "settings", [{"frames": 3}, {"frames": 0}, {"stride": 0}, {"resize": (5, 6)}, {"std": 0}]
)
def test_settings_that_do_not_fit_are_refused(settings):
    with pytest.raises(ValueError, match=r"\d"):
        Tubelets((2, 2, 3), **settings)


def test_a_video_shorter_than_a_tubelet_is_refused():
    with pytest.raises(DataError, match="1 frame;"):
        Tubelets((2, 2, 3)).sample(1)


def test_the_limit_is_of_tubelets_and_named_as_such():
    """Of 128 frames in tubelets of 2 x 16 x 16, half as many tokens come as there are patches of frames."""
    wide = Tubelets((2, 16, 16), frames=256)
    assert len(wide.encode(torch.zeros(128, 1, 224, 224, dtype=torch.uint8))) == 64 * 14 * 14
    with pytest.raises(DataError, match=r"clip has 25,088 tubelets of 2x16x16, and 16,384 are the"):
        wide.encode(torch.zeros(256, 1, 224, 224, dtype=torch.uint8))
