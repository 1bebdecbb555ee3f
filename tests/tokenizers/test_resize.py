"""Resize: PIL's pixels whatever holds them, the middle of an image, and its size before a crop."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2.functional import center_crop, resize

from seqkit.errors import DataError
from seqkit.tokenizers.resize import Resize

NOISE = np.random.default_rng(0).integers(0, 256, (23, 31, 3), np.uint8)
IMAGE = torch.from_numpy(np.moveaxis(NOISE, -1, 0).copy()).float() / 255


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(11, 13), (41, 17), (23, 31)])
def test_pixels_of_8_bits_are_pils(size, interpolation):
    right = np.asarray(
        Image.fromarray(NOISE).resize(size[::-1], Image.Resampling[interpolation.upper()])
    )
    got = Resize(size, interpolation=interpolation).apply(IMAGE)
    assert torch.equal(got * 255, torch.from_numpy(np.moveaxis(right, -1, 0).copy()).float())


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_other_pixels_are_torchs_and_not_rounded(interpolation):
    image = torch.rand(3, 23, 31) / 2 + 0.25  # where no pixel is clipped
    right = resize(image, [13, 17], InterpolationMode(interpolation), antialias=True)
    assert_close(
        Resize((13, 17), interpolation=interpolation).apply(image), right, rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
def test_other_pixels_are_near_those_of_8_bits_and_within_black_and_white(interpolation):
    grey, half = Resize((13, 17), interpolation=interpolation), IMAGE / 2 + 0.25
    rounded = (half * 255).round() / 255
    assert 0 < float((grey.apply(half) - grey.apply(rounded)).abs().max()) * 255 < 2
    edges = Resize((40, 40), interpolation=interpolation).apply(
        (torch.rand(1, 7, 7) > 0.5) * 0.999 + 0.0004
    )
    assert 0 <= float(edges.min()) <= float(edges.max()) <= 1


@pytest.mark.parametrize(
    ("shape", "right"), [((20, 31), (13, 20)), ((31, 20), (20, 13)), ((7, 7), (13, 13))]
)
def test_the_shorter_side_gets_the_size(shape, right):
    assert Resize(13).apply(torch.rand(1, *shape)).shape[1:] == right


@pytest.mark.parametrize("crop", [(23, 31), (22, 30), (21, 29), (20, 28), (20, 31)])
def test_the_middle_is_torchvisions_or_begins_earlier(crop):
    assert torch.equal(
        Resize((23, 31), crop, middle="round").apply(IMAGE), center_crop(IMAGE, list(crop))
    )
    top, left = (23 - crop[0]) // 2, (31 - crop[1]) // 2
    assert torch.equal(
        Resize((23, 31), crop).apply(IMAGE), IMAGE[:, top : top + crop[0], left : left + crop[1]]
    )


@pytest.mark.parametrize("middle", ["floor", "round"])
@pytest.mark.parametrize(
    ("size", "crop"), [((12, 17), (9, 13)), (11, (9, 8)), (11, (11, 11)), ((7, 9), None), (7, None)]
)
def test_what_was_cut_comes_back_as_zeros(size, crop, middle):
    made = Resize(size, crop, middle=middle)
    resized = made.apply(torch.rand(2, 19, 23))
    assert made.result in (None, resized.shape[1:])
    assert torch.equal(made.apply(made.undone(resized)), resized)
    assert torch.equal(made.apply(resized), resized) is made.keeps_its_result


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Resize(0), "give sizes of at least 1"),
        (lambda: Resize((4, 4), (0, 2)), "give sizes of at least 1"),
        (
            lambda: Resize((4, 9), (5, 5)),
            r"crop=\(5, 5\) is larger than an image of size=\(4, 9\) may be",
        ),
        (lambda: Resize(4, (5, 3)), "larger"),
        (
            lambda: Resize(4, interpolation="nearest"),
            "'nearest'; give bilinear or bicubic or lanczos",
        ),
        (lambda: Resize(4, middle="left"), "'left'; give floor or round"),
    ],
)
def test_wrong_sizes_are_refused(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()


def test_a_line_that_would_fill_the_memory_is_refused():
    with pytest.raises(DataError, match="224x2239776"):
        Resize(224).apply(torch.rand(1, 1, 9999))
