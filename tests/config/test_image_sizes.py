"""Size and channels of a folder of images, where `resize` is `auto`."""

import numpy as np
import pytest
from PIL import Image

from seqkit.config import complete
from seqkit.config.builder import build

CLEAR = np.zeros((30, 30, 4), np.uint8)
DISC = CLEAR.copy()
DISC[5:20, 5:20, 3] = 255
BAR = CLEAR.copy()
BAR[2:4, :, 3] = 255
OPAQUE = np.full((30, 30, 4), 255, np.uint8)


def folder(root, arrays, **keys):
    """Two classes that have the same images."""
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for i, array in enumerate(arrays):
            Image.fromarray(array).save(root / name / f"{i}.png", **keys)
    return root


def settings(path, **words):
    """(resize, channels) of the tokenizer that is built."""
    keys = {f"tokenizer.{name}": value for name, value in words.items()}
    found = build(complete("image/classify", None, {"data": str(path), **keys})).tokenizer_section
    return found["resize"], found["channels"]


@pytest.mark.parametrize(
    ("height", "width", "resize"),
    [
        (30, 100, [32, 112]), (100, 30, [112, 32]), (8, 8, [64, 64]), (333, 333, [64, 64]),
        (480, 640, [64, 80]), (3, 600, [16, 320]),
    ],
)  # fmt: skip
def test_images_are_resized_to_their_own_shape(tmp_path, height, width, resize):
    root = folder(tmp_path / "images", [np.zeros((height, width, 3), np.uint8)] * 3)
    assert settings(root) == (resize, 3)


def test_the_shape_is_that_of_the_median_training_image_as_it_is_turned(tmp_path):
    wide = np.zeros((30, 100, 3), np.uint8)
    folder(tmp_path / "images" / "train", [wide, wide, wide[:, :30]])
    folder(tmp_path / "images" / "test", [wide[:, :30]] * 20)
    assert settings(tmp_path / "images")[0] == [32, 112]
    turned = Image.Exif()
    turned[0x0112] = 6
    assert settings(folder(tmp_path / "turned", [wide], exif=turned))[0] == [112, 32]


@pytest.mark.parametrize(
    ("arrays", "channels"),
    [
        ([DISC, BAR], 4), ([DISC, OPAQUE], 4), ([DISC, OPAQUE[..., :3]], 4), ([DISC, DISC], 3),
        ([OPAQUE, OPAQUE], 3), ([OPAQUE, OPAQUE[..., :3]], 3),
    ],
    ids=["icons", "some opaque", "some without", "one mask", "all opaque", "opaque in both ways"],
)  # fmt: skip
def test_opacity_is_a_channel_where_images_differ_in_it(tmp_path, arrays, channels):
    assert settings(folder(tmp_path / "images", arrays))[1] == channels


def test_what_is_given_stays(tmp_path):
    root = folder(tmp_path / "images", [DISC[:, :10], BAR[:, :10]])
    assert settings(root, resize=[48, 48], channels=3) == ([48, 48], 3)
    assert settings(root, resize=[48, 48]) == ([48, 48], 4)
    assert settings(root, channels=3) == ([96, 32], 3)
    assert settings(root, channels=1) == ([96, 32], 1)
    assert settings(root, patch=8, stem=[4])[0] == [120, 40]
    assert settings("mnist-5k") == ([64, 64], 3)


def test_images_that_a_table_names_are_looked_at_in_each_of_its_columns(tmp_path):
    folder(tmp_path, [np.zeros((30, 100, 3), np.uint8), np.zeros((40, 40, 3), np.uint8)])
    rows = [f"{name}/0.png,{name}/1.png,{name}" for name in "ab" for _ in range(10)]
    one = tmp_path / "one.csv"
    one.write_text("\n".join(["image,label", *(row.split(",", 1)[0] + row[-2:] for row in rows)]))
    assert settings(one) == ([32, 112], 3)
    two = tmp_path / "two.csv"
    two.write_text("\n".join(["front,side,label", *rows]))
    words = {"data": str(two), "data.target": "label"}
    parts = build(complete("multimodal/table", None, words)).tokenizer_section["parts"]
    assert {name: part["resize"] for name, part in parts.items()} == {
        "front": [32, 104], "side": [64, 64],
    }  # fmt: skip
