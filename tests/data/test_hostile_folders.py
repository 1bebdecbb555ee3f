"""Folders of images and sounds as people have them: each file is read right, named, or counted in one line."""

import os
import re
import struct
import zlib

import numpy as np
import pytest
import soundfile
from PIL import Image

from seqkit.data import AudioFolder, ImageFolder
from seqkit.errors import DataError, one_line
from seqkit.tokenizers import LogMel, Patches

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)
SOUND = 0.1 * RNG.standard_normal(900)


def image(path, pixels=PIXELS, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels)).save(path, **options)


def sound(path, samples=SOUND, rate=8000, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, **options)


def text(path, content=b"no picture, no sound"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def cut(path, write, share=0.5):
    write(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def noise(path):
    image(path, RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8))


def long_sound(path):
    sound(path, 0.1 * RNG.standard_normal(40_009))


def bomb(path):
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 1, 0, 0, 0, 0)), (b"IEND", b"")]
    body = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    ]
    text(path, b"\x89PNG\r\n\x1a\n" + b"".join(body))


def drawing_in_transparency(path):
    pixels = np.full((8, 8, 4), 255, np.uint8)
    pixels[3, :, 3] = 0
    image(path, pixels)


def floats(value):
    return lambda path: image(path, np.where(np.eye(8) > 0, value, 0.5).astype(np.float32))


def nan_sound(path):
    sound(path, np.where(np.arange(900) == 5, np.nan, 0.1), subtype="FLOAT")


NO_IMAGE, NO_SOUND = "cannot be read as an image", "cannot be read as audio"

BAD_IMAGES = {
    "no bytes": ("x.png", lambda path: text(path, b""), r"is empty \(0 bytes\)"),
    "a PNG cut in half": ("x.png", lambda path: cut(path, noise), NO_IMAGE),
    "a JPEG cut in half": ("x.jpg", lambda path: cut(path, noise), NO_IMAGE),
    "a GIF cut in half": ("x.gif", lambda path: cut(path, noise), NO_IMAGE),
    "a TIFF cut in half": ("x.tif", lambda path: cut(path, noise), NO_IMAGE),
    "its first bytes alone": ("x.png", lambda path: cut(path, noise, 0.001), NO_IMAGE),
    "a text": ("x.png", text, NO_IMAGE),
    "PostScript": (
        "x.png",
        lambda path: text(path, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
        NO_IMAGE,
    ),
    "a bomb": ("x.png", bomb, "more than 50 megapixels"),
    "a drawing that only transparency shows": ("x.png", drawing_in_transparency, "transparency"),
    "NaN in floats": ("x.tif", floats(np.nan), "floats from nan to nan"),
    "infinity in floats": ("x.tif", floats(np.inf), "floats from 0.5 to inf"),
    "floats to 255": ("x.tif", floats(255.0), "floats from 0.5 to 255"),
    "floats below 0": ("x.tif", floats(-1.0), "floats from -1 to 0.5"),
    "integers of 32 bits": (
        "x.tif",
        lambda path: image(path, np.full((8, 8), 9**9, np.int32)),
        "integers of 32 bits",
    ),
    "a new line in a name": ("x\ny.png", text, NO_IMAGE),
    "ANSI in a name": ("x\x1b[31m.png", text, NO_IMAGE),
    "a name that is no UTF-8": (os.fsdecode(b"x\xff.png"), text, NO_IMAGE),
}
BAD_SOUNDS = {
    "no bytes": ("x.wav", lambda path: text(path, b""), r"is empty \(0 bytes\)"),
    "a WAV cut in half": ("x.wav", lambda path: cut(path, long_sound), "is truncated"),
    "a WAV without its last sample": (
        "x.wav",
        lambda path: cut(path, long_sound, 0.99998),
        "is truncated",
    ),
    "a FLAC cut in half": ("x.flac", lambda path: cut(path, long_sound), NO_SOUND),
    "an OGG cut in half": ("x.ogg", lambda path: cut(path, long_sound), "is truncated"),
    "an MP3 cut in half": ("x.mp3", lambda path: cut(path, long_sound), "is truncated"),
    "an MP3's first bytes": ("x.mp3", lambda path: cut(path, long_sound, 0.002), NO_SOUND),
    "no samples": ("x.wav", lambda path: sound(path, np.zeros(0)), "has no samples"),
    "NaN": ("x.wav", nan_sound, "sample 5 is not finite"),
    "a text": ("x.flac", text, NO_SOUND),
    "a web page": ("x.mp3", lambda path: text(path, b"<!DOCTYPE html><p>404"), NO_SOUND),
    "an image": ("x.wav", lambda path: image(path, format="PNG"), NO_SOUND),
    "a name with a new line": ("x\ny.wav", text, NO_SOUND),
}


def good(folder, write, suffix):
    for name in ("ant", "bee"):
        for i in range(3):
            write(folder / name / f"{i}.{suffix}")


def read_all(source):
    """Everything that training, validation and test would read."""
    splits = source.splits()
    return [
        sample.raw for part in (splits.train, splits.valid or [], splits.test) for sample in part
    ]


@pytest.mark.parametrize(
    ("source", "write", "suffix", "cases"),
    [(ImageFolder, image, "png", BAD_IMAGES), (AudioFolder, sound, "wav", BAD_SOUNDS)],
)
def test_a_bad_file_is_named_with_its_reason_or_left_out_and_counted(
    tmp_path, caplog, subtests, source, write, suffix, cases
):
    good(tmp_path, write, suffix)
    for what, (name, make, reason) in cases.items():
        with subtests.test(what):
            caplog.clear()
            make(tmp_path / "bee" / name)
            with pytest.raises(DataError, match=reason) as caught:
                read_all(source(str(tmp_path)))
            assert name in str(caught.value)
            assert one_line(caught.value).count("\n") == 0
            assert "--data.skip_bad" in str(caught.value)
            assert len(read_all(source(str(tmp_path), skip_bad=1))) == 6
            assert "1 of 7 files" in caplog.text
        (tmp_path / "bee" / name).unlink()


def several(*writes):
    def make(folder):
        for write in writes:
            write(folder)

    return make


def link(name, target):
    return lambda folder: (folder / name).symlink_to(target)


ODD_FOLDERS = {
    # what is done to a folder of two classes of three images; samples then, and what is said
    "a FIFO": (lambda folder: os.mkfifo(folder / "ant" / "x.png"), 6, "not read are 1 FIFO"),
    "a device": (link("ant/x.png", "/dev/zero"), 6, "not read are 1 device"),
    "a link to nothing": (link("ant/x.png", "nowhere"), 6, "not read are 1 broken link"),
    "a link to itself": (link("ant/x.png", "x.png"), 6, "not read are 1 broken link"),
    "a loop of folders": (link("ant/up", ".."), 6, "not read are 1 link to a folder"),
    "a class that is a link to another": (link("cat", "ant"), 6, "not read are 1 link to a folder"),
    "a class that is a link to the system": (link("cat", "/etc"), 6, "not read are 1 link to a folder"),
    "a link to a file of the system": (link("ant/x.png", "/etc/passwd"), 6, "not read are 1 link out of the folder"),
    "copies that a notebook keeps": (
        lambda folder: image(folder / "ant" / ".ipynb_checkpoints" / "0-checkpoint.png"), 6, "not read are 1 hidden",
    ),
    "a link to an image": (link("ant/x.png", "0.png"), 7, "5 training, 2 test"),
    "an image in no class": (lambda folder: image(folder / "x.png"), 6, "not read are 1 in no class folder"),
    "a preview of macOS": (lambda folder: text(folder / "__MACOSX" / "._0.png"), 6, "not read are 1 hidden"),
    "hidden files": (lambda folder: text(folder / "ant" / ".DS_Store"), 6, "not read are 1 hidden"),
    "a hidden folder": (lambda folder: image(folder / ".git" / "x.png"), 6, "not read are 1 hidden"),
    "a database of previews": (lambda folder: text(folder / "ant" / "Thumbs.db"), 6, "not read are 1 .db"),
    "an image that nothing here reads": (lambda folder: text(folder / "ant" / "x.HEIC"), 6, "not read are 1 .heic"),
    "a file without suffix": (lambda folder: text(folder / "README"), 6, "not read are 1 without a suffix"),
    "a suffix with ANSI": (lambda folder: text(folder / "x.\x1b[31m"), 6, r"not read are 1 \.\\x1b\[31m"),
    "ten kinds of other files": (
        several(*(lambda folder, i=i: text(folder / f"x.s{i}") for i in range(10))), 6, "and 2 more kinds",
    ),
    "an upper-case suffix": (lambda folder: image(folder / "ant" / "x.PNG"), 7, "of 2 classes"),
    "a PNG called .jpg": (lambda folder: image(folder / "ant" / "x.jpg", format="PNG"), 7, "of 2 classes"),
    "a JPEG called .PNG": (lambda folder: image(folder / "ant" / "x.PNG", format="JPEG"), 7, "of 2 classes"),
    "a new line in a name": (lambda folder: image(folder / "ant" / "x\ny.png"), 7, "of 2 classes"),
    "a name that is no UTF-8": (lambda folder: image(folder / "ant" / os.fsdecode(b"x\xff.png")), 7, "of 2 classes"),
    "one pixel": (lambda folder: image(folder / "ant" / "x.png", PIXELS[:1, :1]), 7, "from 1 × 1 to 8 × 8 pixels"),
    "a class of one file": (lambda folder: image(folder / "cat" / "x.png"), 7, "1 of 3 classes have one file alone"),
    "classes at two depths": (
        several(*(lambda folder, i=i: image(folder / "more" / "cow" / f"{i}.png") for i in range(2))), 8,
        "of 3 classes.*the class is the folder that a file is in",
    ),
}  # fmt: skip


def test_an_odd_folder_is_read_and_its_oddity_said(tmp_path, caplog, subtests):
    for number, (what, (make, count, said)) in enumerate(ODD_FOLDERS.items()):
        with subtests.test(what):
            caplog.clear()
            good(tmp_path / str(number), image, "png")
            make(tmp_path / str(number))
            found = read_all(ImageFolder(str(tmp_path / str(number))))
            assert (len(found), {len(raw) for raw in found}) == (count, {3})
            assert any(re.search(said, line) for line in caplog.messages), caplog.messages


def one_each(folder):
    for i in range(100):
        image(folder / f"class {i}" / "x.png")


def splits_of(*names):
    return several(
        *(lambda folder, name=name: image(folder / name / "ant" / "x.png") for name in names)
    )


WRONG_FOLDERS = {
    "nothing": (lambda folder: None, "holds no PNG, .* files; add some"),
    "other files alone": (lambda folder: text(folder / "a.heic"), r"holds no PNG, .* files \(but 1 .heic\)"),
    "a class without files": (
        several(lambda folder: image(folder / "ant" / "x.png"), lambda folder: (folder / "bee").mkdir()),
        "bee holds no PNG",
    ),
    "a class of hidden files": (
        several(lambda folder: image(folder / "ant" / "x.png"), lambda folder: text(folder / "bee" / ".x.png")),
        "bee holds no PNG",
    ),
    "a hundred classes of one file": (one_each, "each of its 100 classes has one file, and training and test need one"),
    "one image": (lambda folder: image(folder / "x.png"), "it has one file, and training and test need one each"),
    "a class whose name is no UTF-8": (
        several(*(lambda folder, i=i: image(folder / os.fsdecode(b"\xff") / f"{i}.png") for i in range(2))),
        r"whose name is not UTF-8, \\udcff",
    ),
    "two folders of one split": (splits_of("train", "val", "validation"), "val and validation are both the validation"),
    "a training split without images": (
        several(splits_of("test"), lambda folder: text(folder / "train" / "x.txt")), "train holds no PNG",
    ),
    "a test class that training lacks": (
        several(splits_of("train", "test"), lambda folder: image(folder / "test" / "bee" / "x.png")),
        "has class 'bee', which training does not have",
    ),
    "a test split without classes": (
        several(splits_of("train"), lambda folder: image(folder / "test" / "x.png")), "is in no class folder, unlike",
    ),
}  # fmt: skip


def test_a_folder_that_cannot_be_meant_is_refused_with_what_to_do(tmp_path, subtests):
    for number, (what, (make, reason)) in enumerate(WRONG_FOLDERS.items()):
        (tmp_path / str(number)).mkdir()
        make(tmp_path / str(number))
        with subtests.test(what), pytest.raises(DataError, match=reason):
            read_all(ImageFolder(str(tmp_path / str(number))))


def test_a_file_that_may_not_be_opened_is_named(tmp_path, monkeypatch):
    good(tmp_path, image, "png")
    opened = os.open

    def refuse(path, *args, **options):
        if str(path).endswith("bee/1.png"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DataError, match=r"bee/1\.png .*Permission denied"):
        ImageFolder(str(tmp_path)).splits()
    with pytest.raises(DataError, match="is not a folder"):
        ImageFolder(str(tmp_path / "ant" / "0.png")).splits()


SOUNDS_AND_TOKENIZERS = {
    "one sample": (np.full(1, 0.1), 8000, LogMel(8000), None),
    "8 kHz": (SOUND, 8000, LogMel(16000), None),
    "48 kHz": (SOUND, 48000, LogMel(16000), None),
    "stereo, mixed": (np.stack([SOUND, SOUND], 1), 8000, LogMel(8000, channels="mix"), None),
    "stereo for mono": (
        np.stack([SOUND, SOUND], 1),
        8000,
        LogMel(8000),
        "set channels='mix' for their mean",
    ),
    "silence": (np.zeros(900), 8000, LogMel(8000), "audio is silent"),
    "a rate without a divisor": (SOUND, 7919, LogMel(16000), "convert it to a usual rate first"),
}


@pytest.mark.parametrize("case", SOUNDS_AND_TOKENIZERS)
def test_an_odd_sound_becomes_tokens_or_is_refused_with_what_to_do(tmp_path, case):
    samples, rate, tokenizer, reason = SOUNDS_AND_TOKENIZERS[case]
    for i in range(2):
        sound(tmp_path / "ant" / f"{i}.wav", samples, rate, subtype="FLOAT")
    raw = read_all(AudioFolder(str(tmp_path)))[0]
    if reason is None:
        tokenizer.spec.check(tokenizer.encode(raw))
    else:
        with pytest.raises(DataError, match=reason):
            tokenizer.encode(raw)


IMAGES_AND_TOKENIZERS = {
    "one pixel, resized": (PIXELS[:1, :1], Patches(4, channels=3, resize=(8, 8), crop=True), None),
    "a line": (np.repeat(PIXELS[:1], 3, axis=1), Patches(4, channels=3, resize=(8, 8), crop=True), None),
    "grey for colours": (PIXELS[..., 0], Patches(4, channels=3), None),
    "patches that do not tile": (PIXELS[:7], Patches(4, channels=3), "resize or pad it to multiples of 4 by 4"),
    "a photograph that nobody resized": (
        np.zeros((130, 130), np.uint8), Patches(1, channels=3), "16,900 patches of 1x1, and 16,384 are the most; train",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", IMAGES_AND_TOKENIZERS)
def test_an_odd_image_becomes_tokens_or_is_refused_with_what_to_do(tmp_path, case):
    pixels, tokenizer, reason = IMAGES_AND_TOKENIZERS[case]
    for i in range(2):
        image(tmp_path / "ant" / f"{i}.png", pixels)
    raw = read_all(ImageFolder(str(tmp_path)))[0]
    if reason is None:
        tokenizer.spec.check(tokenizer.encode(raw))
    else:
        with pytest.raises(DataError, match=reason):
            tokenizer.encode(raw)
