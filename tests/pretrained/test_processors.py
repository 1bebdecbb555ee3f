"""Image processors of transformers: the same pixels from the raw image, or a refusal."""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch.testing import assert_close

from seqkit.config import build, complete
from seqkit.errors import DataError
from seqkit.pretrained.processors import image_settings
from seqkit.testing import check_tokenizer

SQUARE, CROP = {"size": {"height": 15, "width": 20}}, {"crop_size": {"height": 15, "width": 20}}
PROCESSORS = {
    "ViT": SQUARE,
    "ViT as given": {"do_resize": False},
    "ViT, bicubic": {**SQUARE, "resample": 3, "image_mean": [0.1, 0.2, 0.3]},
    "ViT, not normed": {**SQUARE, "resample": 1, "do_normalize": False},
    "DeiT": {"size": {"height": 23, "width": 26}, **CROP},
    "Beit": SQUARE,
    "Bit": {"size": {"shortest_edge": 22}, **CROP, "image_mean": [0.485, 0.456, 0.406]},
    "CLIP": {"size": {"shortest_edge": 20}, "crop_size": 20},
    "CLIP, a bare number": {"size": 25, **CROP},
    "Siglip": SQUARE,
    "DINOv3ViT": SQUARE,
}
"""Settings of processors, by the beginning of the name of the class."""

SIZES = [(37, 53), (61, 29), (12, 11), (20, 25), (101, 83)]
GREY, TRANSPARENT = (47, 31), (25, 50)


def processor(name, backend=""):
    """Their processor. backend: "Pil", or "" for that of torchvision."""
    kind = name.partition(",")[0].partition(" ")[0]
    return getattr(transformers, f"{kind}ImageProcessor{backend}")(**PROCESSORS[name])


def noise(shape, seed=0):
    """A random image of 8 bits: no two pixels are alike."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def photograph(shape):
    """A random image of 8 bits whose neighbouring pixels are alike."""
    steps = np.random.default_rng(0).normal(size=shape)
    sums = steps.cumsum(axis=0).cumsum(axis=1)
    return Image.fromarray((255 * (sums - sums.min()) / np.ptp(sums)).round().astype(np.uint8))


def tokenizer_of(folder, **more):
    """The tokenizer that a recipe with these settings builds."""
    tokenizer = {**image_settings(folder), "patch": 5, **more}
    config = {
        "tokenizer": tokenizer,
        "model": {"objective": "Classify", "backbone": {"type": "MeanPool", "dim": 4}},
    }
    return build(complete(config, None, {}, only=("tokenizer", "model"))).tokenizer


def pixels(tokenizer, image):
    """What the model gets, [c H W]."""
    mean, std = (torch.tensor(each)[:, None, None] for each in (tokenizer.mean, tokenizer.std))
    return (tokenizer.pixels(tokenizer.encode(image)) - mean) / std


@pytest.mark.parametrize("name", [name for name in PROCESSORS if name != "DINOv3ViT"])
def test_pixels_are_those_of_the_processor(tmp_path, name):
    theirs = processor(name, "Pil")
    theirs.save_pretrained(tmp_path)
    tokenizer = tokenizer_of(tmp_path)
    for size in [(20, 25)] if name == "ViT as given" else SIZES:
        right = torch.from_numpy(theirs(noise((*size, 3))).pixel_values[0])
        assert_close(pixels(tokenizer, noise((*size, 3))), right.float(), rtol=0, atol=1e-4)


def test_pixels_of_dinov3_are_not_rounded_to_8_bits(tmp_path):
    theirs = processor("DINOv3ViT")
    theirs.save_pretrained(tmp_path)
    tokenizer = tokenizer_of(tmp_path)
    for size in SIZES:
        image = noise((*size, 3))
        right = theirs(image, return_tensors="pt").pixel_values[0]
        assert_close(pixels(tokenizer, image), right, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["Bit", "CLIP", "Siglip"])
def test_grey_and_transparent_images_are_those_of_a_processor_that_converts_them(tmp_path, name):
    theirs = processor(name, "Pil")
    theirs.save_pretrained(tmp_path)
    for image in (noise(GREY), noise((*TRANSPARENT, 4)), noise((*TRANSPARENT, 4), seed=1)):
        right = torch.from_numpy(theirs(image).pixel_values[0])
        assert_close(pixels(tokenizer_of(tmp_path), image), right.float(), rtol=0, atol=1e-4)


# lanczos
@pytest.mark.parametrize(
    "name", [name for name in PROCESSORS if PROCESSORS[name].get("resample") != 1]
)
def test_pixels_of_the_torchvision_backend_differ_by_a_level_of_255_at_most(tmp_path, name):
    """On images like photographs. On noise its bicubic filter is up to 22 levels away; it has no lanczos."""
    theirs = processor(name)
    theirs.save_pretrained(tmp_path)
    tokenizer = tokenizer_of(tmp_path)
    for size in [(20, 25)] if name == "ViT as given" else SIZES[:2]:
        image = photograph((*size, 3))
        std = torch.tensor(tokenizer.std)[:, None, None]
        difference = (
            pixels(tokenizer, image) - theirs(image, return_tensors="pt").pixel_values[0]
        ) * std
        assert float(difference.abs().max()) * 255 < 1.001


@pytest.mark.parametrize("name", ["DeiT", "CLIP"])
def test_the_laws_of_tokenizers_hold(tmp_path, name):
    processor(name).save_pretrained(tmp_path)
    tokenizer = tokenizer_of(tmp_path, num_prefix_tokens=3, positions="index")
    raws = [
        torch.rand(3, 24, 25),
        torch.rand(3, 23, 26),
        torch.randint(256, (3, 22, 26), dtype=torch.uint8),
    ]
    crops = (
        {"reads_all_of_an_example": "it keeps the middle of a resized image"}
        if name == "DeiT"
        else {}
    )
    bad = [torch.rand(2, 24, 25)]
    # Patches has it
    check_tokenizer(tokenizer, raws, bad=bad, other_process=False, expected_failures=crops)


def test_files_of_all_ages_are_read(tmp_path):
    nested, plain = (tmp_path / name for name in ("nested", "plain"))
    for folder in (nested, plain):
        folder.mkdir()
    old = {
        "feature_extractor_type": "CLIPFeatureExtractor",
        "size": 25,
        "crop_size": 20,
        "resample": 3,
    }
    (plain / "preprocessor_config.json").write_text(json.dumps(old))
    new = {
        "image_processor": {
            "image_processor_type": "CLIPImageProcessorFast",
            "size": {"shortest_edge": 25},
        }
    }
    new["image_processor"]["crop_size"] = {"height": 20, "width": 20}
    (nested / "processor_config.json").write_text(
        json.dumps({"processor_class": "CLIPProcessor", **new})
    )
    (nested / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "ViTImageProcessor"})
    )
    assert image_settings(plain) == image_settings(nested)
    assert image_settings(plain)["resize"] == {
        "size": 25,
        "interpolation": "bicubic",
        "crop": [20, 20],
    }


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"image_processor_type": "ViTImageProcesor"}, "did you mean ViTImageProcessor"),
        ({"image_processor_type": None}, "names no image_processor_type"),
        ({"size": {"longest_edge": 20}}, r"longest_edge"),
        ({"size": {"height": 0, "width": 5}}, "from 1 to 16,384"),
        ({"size": True}, "size is True"),
        ({"do_center_crop": True, "crop_size": 23}, r"crop_size is 23"),
        (
            {"do_center_crop": True, "do_resize": False, "crop_size": 5},
            "do_resize is False.* true where do_center_crop",
        ),
        ({"do_center_crop": "yes"}, "true or false"),
        (
            {"image_processor_type": "DINOv3ViTImageProcessorFast", "resample": 3},
            "resample is 3, and what is read is 2",
        ),
        ({"resample": 0}, r"resample is 0.* 3 \(bicubic\)"),
        ({"do_rescale": False}, "do_rescale is False"),
        ({"rescale_factor": 1 / 127.5}, "rescale_factor"),
        ({"do_pad": True}, "do_pad is True"),
        ({"image_mean": [0.5, 0.5]}, "a number for each of 3 colours"),
        ({"image_std": [0.5, 0.0, 0.5]}, "image_std"),
    ],
)
def test_what_is_not_read_is_refused(tmp_path, changed, reason):
    given = {"image_processor_type": "ViTImageProcessor", "size": 20, "crop_size": 15, **changed}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(given))
    with pytest.raises(DataError, match=reason):
        image_settings(tmp_path)


def test_a_folder_without_a_processor_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(DataError, match=r"preprocessor_config\.json"):
        image_settings(tmp_path)
