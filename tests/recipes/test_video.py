"""Moving digits: no frame tells the direction, the digits of test are unseen, every direction is its step."""

from collections import Counter

import pytest
import torch

from seqkit.recipes.image.digits import Mnist5k
from seqkit.recipes.video.moving_digits import DIRECTIONS, MovingDigits
from seqkit.tokenizers.video import Tubelets


def centres(clip):
    """Row and column of the mean of the light in each frame."""
    light = clip[:, 0] / clip.sum(dim=(1, 2, 3), keepdim=True)[:, 0]
    at = torch.arange(float(clip.shape[-1]))
    return torch.stack([light.sum(dim=2) @ at, light.sum(dim=1) @ at], dim=1)


@pytest.fixture(scope="module")
def splits():
    return MovingDigits(rounds=8).splits()


def test_a_clip_moves_a_pixel_a_frame_in_the_direction_of_its_name(splits):
    digits = Mnist5k().splits().train
    for i in range(0, len(splits.train), 997):
        clip, name = splits.train[i].raw, splits.names[splits.train.labels[i]]
        digit, way = name.split()
        assert int(digit) == digits.labels[i % len(digits)]
        steps = centres(clip[2:6]).diff(dim=0)  # the whole digit is in the square
        assert torch.allclose(
            steps, torch.tensor(DIRECTIONS[way], dtype=torch.float32).expand(3, 2), atol=0.2
        )


def test_every_digit_of_training_goes_each_way_once_and_stays_in_one_group(splits):
    digits = Counter(splits.train.groups)
    assert set(digits.values()) == {8}
    ways = {(group, label % 8) for group, label in zip(splits.train.groups, splits.train.labels)}
    assert len(ways) == len(splits.train) == 8 * len(digits) == 32_000
    assert len(splits.test) == 1000


def test_the_place_in_the_middle_does_not_depend_on_the_direction():
    source = MovingDigits(rounds=8)
    source.read_for(Tubelets((1, 8, 8), frames=1))
    train = source.splits().train
    assert train[0].raw.shape == (1, 1, 32, 32)
    rows = torch.stack([centres(train[i].raw)[0] for i in range(0, len(train), 16)])
    ways = torch.tensor(train.labels[::16]) % 8
    means = torch.stack([rows[ways == way].mean(dim=0) for way in ways.unique()])
    # of 5 places; 7 pixels where it begins or ends
    assert (means - means.mean(dim=0)).abs().max() < 0.5


def test_the_label_may_be_the_digit_alone():
    splits = MovingDigits("digit").splits()
    assert len(splits.names) == 10
    assert splits.train.groups is None
