"""Images in folders of their classes."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.defaults_data.case import (
    Case,
    distinct,
    each_class,
    fewer,
    files_case,
    split,
    split_groups,
)
from tests.benchmarks.defaults_data.packages import debian

TUNE = {
    "image/digits": lambda: _digits(),
    "image/crops": lambda: _crops(),
    "image/letters": lambda: _letters(),
    "image/hangul": lambda: _hangul(),
}
JUDGE = {
    "image/scripts": lambda: _scripts(),
    "image/lines": lambda: _lines(),
    "image/shading": lambda: _shading(),
}


def _images(
    name: str, rows: list[np.ndarray], targets: list[Any], is_test: np.ndarray | None = None
) -> Case:
    return files_case(
        "image", rows, targets, split(len(rows), name) if is_test is None else is_test, save_image
    )


def save_image(path: Path, pixels: np.ndarray) -> None:
    from PIL import Image

    Image.fromarray(pixels).save(path)


def _digits() -> Case:
    from sklearn.datasets import load_digits

    data = load_digits()
    return _images(
        "digits", [np.uint8(x * 15.9) for x in data.images], [f"digit{y}" for y in data.target]
    )


def _crops() -> Case:
    """Which of two photos a crop of 24 pixels is from; crops of the test lie elsewhere only by chance."""
    from sklearn.datasets import load_sample_images

    random = np.random.default_rng(0)
    crops: list[np.ndarray] = []
    targets: list[Any] = []
    for name, photo in zip(("temple", "flower"), load_sample_images().images, strict=True):
        for _ in range(400):
            y, x = random.integers(photo.shape[0] - 24), random.integers(photo.shape[1] - 24)
            crops.append(photo[y : y + 24, x : x + 24])
            targets.append(name)
    return _images("crops", crops, targets)


def _letters() -> Case:
    """Letters A to J of Brian Kent's fonts (Aenigma), 28 pixels; the test's fonts are not among the training ones."""
    from PIL import Image, ImageDraw, ImageFont, ImageOps

    images: list[np.ndarray] = []
    found: list[tuple[str, str]] = []
    for path in sorted(
        (debian("fonts-aenigma") / "usr/share/fonts/truetype/aenigma").glob("*.ttf")
    ):
        font = ImageFont.truetype(path, 64)
        drawn: list[np.ndarray] = []
        for letter in "ABCDEFGHIJ":
            canvas = Image.new("L", (256, 192))
            ImageDraw.Draw(canvas).text((64, 64), letter, fill=255, font=font)
            box = canvas.getbbox()
            if box:
                drawn.append(np.asarray(ImageOps.pad(canvas.crop(box), (28, 28))))
        if len({image.tobytes() for image in drawn}) == 10:  # a font of symbols may lack letters
            images += drawn
            # styles of a font begin alike
            found += [(path.stem[:5], letter) for letter in "ABCDEFGHIJ"]
    images, found = fewer(*distinct(images, found))
    return _images(
        "letters", images, [x for _, x in found], split_groups([x for x, _ in found], "letters")
    )


def _unifont() -> Iterator[tuple[int, np.ndarray]]:
    """Code point and pixels of each glyph of Unifont that is 16 pixels wide, or 8, which is centred."""
    for line in (debian("unifont") / "usr/share/unifont/unifont.hex").read_text().splitlines():
        code, bits = line.split(":")
        pixels = np.unpackbits(np.frombuffer(bytes.fromhex(bits), np.uint8)).reshape(
            16, -1
        ) * np.uint8(255)
        yield int(code, 16), np.pad(pixels, ((0, 0), (4, 4))) if pixels.shape[1] == 8 else pixels


def _hangul() -> Case:
    """First consonant of a Korean syllable, drawn by Unifont in 16 pixels; 19 classes of 100."""
    initials = [
        "g",
        "kk",
        "n",
        "d",
        "tt",
        "r",
        "m",
        "b",
        "pp",
        "s",
        "ss",
        "none",
        "j",
        "jj",
        "ch",
        "k",
        "t",
        "p",
        "h",
    ]
    syllables = [
        (code - 0xAC00, pixels) for code, pixels in _unifont() if 0xAC00 <= code < 0xAC00 + 19 * 588
    ]
    return _images(
        "hangul", *each_class([(pixels, initials[i // 588]) for i, pixels in syllables], 100)
    )


def _scripts() -> Case:
    """Script of a letter, drawn by Unifont in 16 pixels; 120 letters of each of eight."""
    starts = {
        "latin": 0x0100,
        "cyrillic": 0x0400,
        "arabic": 0x0620,
        "devanagari": 0x0904,
        "georgian": 0x10A0,
    }
    starts |= {"ethiopic": 0x1200, "cherokee": 0x13A0, "canadian": 0x1401}
    found = [
        (pixels, name)
        for code, pixels in _unifont()
        for name, start in starts.items()
        if start <= code < start + 250 and unicodedata.category(chr(code))[0] == "L"
    ]
    return _images("scripts", *each_class(found, 120))


def _lines() -> Case:
    """How many lines of any place, turn, length and colour there are, one to four, in noise; 40 pixels, seed 9."""
    from PIL import Image, ImageDraw

    random = np.random.default_rng(9)
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(1_000):
        ground = random.integers(0, 80, 3)
        canvas = Image.new("RGB", (40, 40), tuple(ground.tolist()))
        for _ in range(1 + i % 4):
            ends, colour = random.uniform(2, 38, (2, 2)), random.integers(120, 256, 3)
            ImageDraw.Draw(canvas).line(
                [tuple(x) for x in ends.tolist()], tuple(colour.tolist()), width=2
            )
        rows.append(
            np.uint8(np.clip(np.asarray(canvas) + random.normal(0, 10, (40, 40, 3)), 0, 255))
        )
        targets.append(f"{1 + i % 4} lines")
    return _images("lines", rows, targets)


def _shading() -> Case:
    """Where a grey ball is lit from, of four sides, at any place and size, in noise; 28 pixels, seed 10."""
    random = np.random.default_rng(10)
    y, x = np.mgrid[:28, :28]
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(600):
        name, angle = (
            ("above", "right", "below", "left")[i % 4],
            random.normal(0, 0.35) + math.pi / 2 * (i % 4),
        )
        radius = random.uniform(5, 11)
        right, down = ((x, y) - random.uniform(radius, 28 - radius, 2)[:, None, None]) / radius
        slope = right * math.sin(angle) - down * math.cos(angle)
        ball = np.where(right**2 + down**2 < 1, 120 + 90 * slope, random.uniform(40, 200))
        rows.append(np.uint8(np.clip(ball + random.normal(0, 25, (28, 28)), 0, 255)))
        targets.append(name)
    return _images("shading", rows, targets)
