import os
import shlex
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

from seqkit.data.formats import IMAGE
from seqkit.data.io import audio_header, image_header, read_audio, read_image, read_text
from seqkit.errors import DataError
from seqkit.tokenizers import Patches

RNG = np.random.default_rng(0)


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_text_is_read_exactly(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffnaïve\r\n🜁\n".encode())
    assert read_text(path) == "naïve\r\n🜁\n"


def test_a_wrong_encoding_names_file_offset_and_remedy(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("naïve".encode("latin1"))
    with pytest.raises(DataError, match=r"latin\.txt .*0xef at offset 2.*-f cp1252"):
        read_text(path)
    path.write_bytes("naïve".encode("utf-16"))
    with pytest.raises(DataError, match=r"iconv -f utf-16 -t utf-8"):
        read_text(path)


def test_the_remedy_for_a_file_of_excel_keeps_the_euro_sign_and_can_be_pasted(tmp_path):
    path = tmp_path / "price list.txt"
    path.write_bytes("10 € für Käse".encode("cp1252"))
    with pytest.raises(DataError, match="iconv") as refused:
        read_text(path)
    command = shlex.split(str(refused.value).partition("for instance: ")[2].removesuffix(")"))
    assert command[:2] == ["iconv", "-f"]
    assert Path(command[5]).read_bytes().decode(command[2]) == "10 € für Käse"


@pytest.mark.parametrize("read", [read_text, read_image, read_audio])
def test_missing_empty_and_folders_are_named(tmp_path, read):
    with pytest.raises(DataError, match=r"nothing\.here"):
        read(tmp_path / "nothing.here")
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(DataError, match="empty is empty"):
        read(tmp_path / "empty")


def test_text_of_spaces_alone_is_empty(tmp_path):
    (tmp_path / "a.txt").write_text(" \n\n")
    with pytest.raises(DataError, match="is empty"):
        read_text(tmp_path / "a.txt")


# ── images ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pixels_keep_their_places_and_values(tmp_path):
    pixels = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image = read_image(tmp_path / "a.png")
    assert image.shape == (3, 5, 7)
    for c, h, w in ((0, 0, 6), (1, 4, 0), (2, 3, 5)):
        assert image[c, h, w] == pixels[h, w, c] / np.float32(255)


def test_a_cameras_rotation_tag_is_applied(tmp_path):
    pixels = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    image, orientation = Image.fromarray(pixels), 0x0112
    image.getexif()[orientation] = 6  # to be turned by a quarter, clockwise
    image.save(tmp_path / "a.png", exif=image.getexif())
    turned = np.rot90(pixels, k=-1).astype(np.float32) / 255
    torch.testing.assert_close(
        read_image(tmp_path / "a.png"), torch.from_numpy(turned).permute(2, 0, 1)
    )


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    pixels = np.array([[0, 13107], [32768, 65535]], dtype=np.uint16)
    Image.fromarray(pixels).save(tmp_path / "deep.png")
    torch.testing.assert_close(
        read_image(tmp_path / "deep.png", 1)[0], torch.tensor([[0.0, 0.2], [0.500008, 1.0]])
    )
    assert read_image(tmp_path / "deep.png", 3).shape == (3, 2, 2)


def test_grey_has_one_channel_and_two_are_refused(tmp_path):
    Image.fromarray(RNG.integers(0, 256, (5, 7), dtype=np.uint8)).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png", 1).shape == (1, 5, 7)
    with pytest.raises(ValueError, match="channels is 2"):
        read_image(tmp_path / "a.png", 2)


def _png(width, height, data=b""):
    """A PNG of one bit a pixel that declares that size, and holds `data` in their place."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


@pytest.mark.parametrize(
    "size", [(50_001, 1000), (10_000, 5001), (13_000, 13_000), (30_000, 30_000), (2**31 - 1, 2)]
)
def test_a_picture_of_more_than_fifty_megapixels_is_refused_before_it_is_unpacked(
    tmp_path, monkeypatch, size
):
    monkeypatch.setattr(
        "PIL.ImageFile.ImageFile.load", lambda _: pytest.fail("the pixels were unpacked")
    )
    path = tmp_path / "bomb.png"
    path.write_bytes(_png(*size))
    with pytest.raises(DataError, match=r"bomb\.png .*50 megapixels") as caught:
        read_image(path)
    assert "\n" not in str(caught.value)


def test_a_picture_of_as_many_pixels_as_allowed_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("seqkit.data.io.MAX_PIXELS", 35)
    Image.fromarray(RNG.integers(0, 256, (5, 7), dtype=np.uint8)).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png").shape == (3, 5, 7)
    Image.fromarray(RNG.integers(0, 256, (6, 6), dtype=np.uint8)).save(tmp_path / "b.png")
    with pytest.raises(DataError, match=r"b\.png has more than"):
        read_image(tmp_path / "b.png")


@pytest.mark.parametrize(
    "content", [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"8BPS\0\1" + bytes(40)]
)
def test_a_format_that_is_none_of_ours_is_not_tried_whatever_its_name(
    tmp_path, monkeypatch, content
):
    """PIL gives PostScript to another program."""
    from PIL import EpsImagePlugin

    monkeypatch.setattr(
        EpsImagePlugin.EpsImageFile, "_open", lambda _: pytest.fail("PostScript was opened")
    )
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.png"):
        read_image(tmp_path / "a.png")


@pytest.mark.parametrize("suffix", [suffix for suffix in IMAGE.suffixes if suffix != ".pgm"])
def test_every_suffix_of_an_image_is_of_a_format_that_is_tried(tmp_path, suffix):
    Image.fromarray(RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)).save(tmp_path / f"a{suffix}")
    assert read_image(tmp_path / f"a{suffix}").shape == (3, 5, 7)


@pytest.mark.parametrize("read", [read_text, read_image, read_audio])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_fifo_and_a_device_are_refused_and_not_waited_for(tmp_path, read, make):
    make(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.png is a (FIFO|device)"):
        read(tmp_path / "a.png")


RGB = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (5, 7), dtype=np.uint8)


def as_three(grey):
    return np.repeat(np.asarray(grey, np.float32)[..., None], 3, axis=2)


def with_alpha(pixels):
    alpha = RNG.integers(0, 256, (5, 7, 1), dtype=np.uint8)
    return Image.fromarray(np.concatenate([pixels, alpha], axis=2))


def clear(pixels, alpha):
    return Image.fromarray(np.concatenate([pixels, np.full((5, 7, 1), alpha, np.uint8)], axis=2))


KINDS = {
    "colour.png": (Image.fromarray(RGB), RGB / 255),
    "grey.png": (Image.fromarray(GREY), as_three(GREY / 255)),
    "one alpha.png": (clear(RGB, 90), RGB / 255),
    "grey, one alpha.png": (clear(GREY[..., None], 0), as_three(GREY / 255)),
    "palette.png": (Image.fromarray(GREY).convert("P"), as_three(GREY / 255)),
    "palette.gif": (Image.fromarray(GREY).convert("P"), as_three(GREY / 255)),
    "black and white.png": (Image.fromarray(GREY > 127), as_three(GREY > 127)),
    "cmyk.tif": (
        Image.fromarray(255 - RGB).convert("RGB").convert("CMYK"),
        (255 - RGB.astype(int)) / 255,
    ),
    "16 bits.png": (Image.fromarray(GREY.astype(np.uint16) * 257), as_three(GREY / 255)),
    "16 bits.tif": (Image.fromarray(GREY.astype(np.uint16) * 257), as_three(GREY / 255)),
    "floats.tif": (Image.fromarray((GREY / 255).astype(np.float32)), as_three(GREY / 255)),
    "UPPER.TIFF": (Image.fromarray(RGB), RGB / 255),
    "colour.bmp": (Image.fromarray(RGB), RGB / 255),
    "colour.ppm": (Image.fromarray(RGB), RGB / 255),
    "a PNG called.jpg": (Image.fromarray(RGB), RGB / 255),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_image_has_the_values_that_were_written(tmp_path, name):
    image, expected = KINDS[name]
    image.save(tmp_path / name, format="PNG" if "called" in name else None)
    found = read_image(tmp_path / name)
    torch.testing.assert_close(
        found, torch.tensor(np.moveaxis(expected, 2, 0), dtype=torch.float32)
    )
    assert image_header(tmp_path / name) == (5, 7, "alpha" in name)


def test_a_cmyk_jpeg_has_its_colours(tmp_path):
    """Adobe writes them inverted; red stays red."""
    Image.new("RGB", (16, 16), (200, 30, 40)).convert("CMYK").save(tmp_path / "a.jpg", quality=95)
    red, green, blue = read_image(tmp_path / "a.jpg").mean(dim=(1, 2))
    assert (
        abs(red - 200 / 255) < 0.02,
        abs(green - 30 / 255) < 0.02,
        abs(blue - 40 / 255) < 0.02,
    ) == (True,) * 3


def test_an_animation_is_its_first_frame(tmp_path):
    frames = [Image.new("L", (7, 5), value) for value in (51, 102, 204)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert_close = torch.testing.assert_close
    assert_close(read_image(tmp_path / "a.gif"), torch.full((3, 5, 7), 0.2))
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    assert_close(read_image(tmp_path / "a.tif"), torch.full((3, 5, 7), 0.2))


def test_transparency_that_varies_is_laid_on_white(tmp_path):
    alpha = np.zeros((5, 7, 4), np.uint8)
    alpha[2, 1:6, 3] = 255
    Image.fromarray(alpha).save(tmp_path / "black.png")
    black = read_image(tmp_path / "black.png")
    assert (black == 0).sum() == 3 * 5
    assert (black == 1).sum() == 3 * (35 - 5)
    image = with_alpha(RGB)
    image.save(tmp_path / "any.png")
    share = np.asarray(image)[..., 3:] / 255
    expected = np.moveaxis(RGB / 255 * share + 1 - share, 2, 0)
    assert np.abs(read_image(tmp_path / "any.png").numpy() - expected).max() < 1.5 / 255
    alpha[..., :3] = 255
    Image.fromarray(alpha).save(tmp_path / "white.png")
    with pytest.raises(
        DataError, match=r"white\.png is white but for its transparency.*channels 4"
    ):
        read_image(tmp_path / "white.png")


def test_opacity_is_a_fourth_channel_beside_the_colours_on_white(tmp_path):
    image = with_alpha(RGB)
    image.save(tmp_path / "any.png")
    found = read_image(tmp_path / "any.png", 4)
    assert torch.equal(found[:3], read_image(tmp_path / "any.png"))
    torch.testing.assert_close(found[3], torch.tensor(np.asarray(image)[..., 3] / np.float32(255)))
    encoded = Patches((5, 7), channels=4, mean=0, std=1).encode(image)
    torch.testing.assert_close(encoded.content.reshape(4, 5, 7), found)
    white = np.full((5, 7, 4), 255, np.uint8)
    white[2, :, 3] = 0
    Image.fromarray(white).save(tmp_path / "white.png")
    found = read_image(tmp_path / "white.png", 4)
    assert (found[:3] == 1).all()
    assert found[3].mean(1).tolist() == [1, 1, 0, 1, 1]


@pytest.mark.parametrize("array", [RGB, GREY, np.uint16(GREY) * 257], ids=["RGB", "L", "16 bits"])
def test_an_image_without_transparency_is_opaque_in_four_channels(tmp_path, array):
    Image.fromarray(array).save(tmp_path / "a.png")
    found = read_image(tmp_path / "a.png", 4)
    assert torch.equal(found[:3], read_image(tmp_path / "a.png"))
    assert (found[3] == 1).all()
    if array.dtype == np.uint8:
        encoded = Patches((5, 7), channels=4, mean=0, std=1).encode(Image.fromarray(array))
        torch.testing.assert_close(encoded.content.reshape(4, 5, 7), found)


def test_a_palette_with_transparency_has_its_colours_and_no_warning(tmp_path, recwarn):
    """PIL warns of each such image that is converted to colours at once."""
    icon = Image.fromarray(GREY).convert("P")
    absent = min({*range(256)} - {*GREY.ravel().tolist()})
    for name, transparent in (("a.png", bytes([77] * 256)), ("b.png", absent), ("a.gif", absent)):
        icon.save(tmp_path / name, transparency=transparent)
        torch.testing.assert_close(
            read_image(tmp_path / name, 1)[0], torch.tensor(GREY / np.float32(255))
        )
        # a GIF says it later than in its header
        assert image_header(tmp_path / name) == (5, 7, name != "a.gif")
    assert not recwarn.list


def test_a_header_says_the_size_without_unpacking(tmp_path, monkeypatch):
    Image.fromarray(RGB).save(tmp_path / "a.png")
    monkeypatch.setattr(
        "PIL.ImageFile.ImageFile.load", lambda _: pytest.fail("the pixels were unpacked")
    )
    assert image_header(tmp_path / "a.png") == (5, 7, False)
    (tmp_path / "b.png").write_bytes(_png(10_000, 10_000))
    with pytest.raises(DataError, match="megapixels"):
        image_header(tmp_path / "b.png")


# ── audio ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("suffix", "close"), [("wav", 1e-4), ("flac", 1e-4), ("ogg", 0.1), ("mp3", 0.1)]
)
def test_samples_come_back_channels_first(tmp_path, suffix, close):
    t = np.arange(4001) / 8000
    samples = 0.5 * np.stack([np.sin(2 * np.pi * 440 * t), np.cos(2 * np.pi * 220 * t)], axis=1)
    soundfile.write(tmp_path / f"a.{suffix}", samples, 8000)
    wave = read_audio(tmp_path / f"a.{suffix}")
    assert (wave.samples.shape, wave.sample_rate, wave.samples.dtype) == (
        (2, 4001),
        8000,
        torch.float32,
    )
    torch.testing.assert_close(
        wave.samples, torch.tensor(samples.T, dtype=torch.float32), atol=close, rtol=0
    )


def test_a_recording_whose_length_was_never_filled_in_is_read(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.full(101, 0.25), 8000)
    data = bytearray((tmp_path / "a.wav").read_bytes())
    at = data.index(b"data") + 4
    data[at : at + 4] = struct.pack("<I", 0xFFFFFFFF)
    data[4:8] = struct.pack("<I", 0xFFFFFFFF)
    (tmp_path / "b.wav").write_bytes(data)
    assert read_audio(tmp_path / "b.wav").samples.shape == (1, 101)


def test_a_recording_of_more_samples_than_memory_holds_is_refused_before_it_is_unpacked(
    tmp_path, monkeypatch
):
    soundfile.write(tmp_path / "a.flac", np.zeros((50, 2)), 8000)
    monkeypatch.setattr("seqkit.data.io.MAX_AUDIO_VALUES", 100)
    assert read_audio(tmp_path / "a.flac").samples.shape == (2, 50)
    monkeypatch.setattr("seqkit.data.io.MAX_AUDIO_VALUES", 99)
    monkeypatch.setattr(
        soundfile.SoundFile, "read", lambda *_, **__: pytest.fail("it was unpacked")
    )
    with pytest.raises(DataError, match=r"a\.flac .*50 samples of 2"):
        read_audio(tmp_path / "a.flac")


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
@pytest.mark.parametrize("kind", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_every_width_and_rate_of_a_wav_has_the_samples_that_were_written(tmp_path, kind, rate):
    samples = np.round(RNG.uniform(-0.9, 0.9, 37) * 127) / 128  # what 8 bits can say
    soundfile.write(tmp_path / "A.WAV", samples, rate, subtype=kind)
    wave = read_audio(tmp_path / "A.WAV")
    torch.testing.assert_close(wave.samples[0], torch.tensor(samples, dtype=torch.float32))
    assert wave.sample_rate == rate
    assert audio_header(tmp_path / "A.WAV") == (37, rate, 1)


@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE", "AVERAGE"])
@pytest.mark.parametrize("behind", [b"", b"TAG" + bytes(125), b"no frame at all"])
def test_an_mp3_is_read_whole_with_tags_before_and_behind_it(tmp_path, mode, behind):
    samples = np.sin(np.arange(60_011) / 7) * np.arange(60_011) / 80_000
    soundfile.write(
        tmp_path / "a.mp3", samples, 16000, format="MP3", bitrate_mode=mode, compression_level=0.5
    )
    data = (tmp_path / "a.mp3").read_bytes()
    (tmp_path / "b.mp3").write_bytes(b"ID3\4\0\0\0\0\2\1" + bytes(257) + data + behind)
    assert read_audio(tmp_path / "b.mp3").samples.shape == (1, 60_011)


def test_a_recording_that_streams_or_joins_is_read_whole_or_refused(tmp_path):
    wave = 0.5 * np.sin(np.arange(30_000) / 6)
    whole = tmp_path / "whole.mp3"
    soundfile.write(whole, wave, 22_050, format="MP3")
    assert read_audio(whole).samples.shape == (1, 30_000)
    joined = tmp_path / "joined.mp3"
    joined.write_bytes(whole.read_bytes() * 3)
    with pytest.raises(DataError, match="as joined MP3s do"):
        read_audio(joined)
    tagged = tmp_path / "tagged.mp3"
    tagged.write_bytes(whole.read_bytes() + b"APETAGEX" + bytes(9_000))
    assert read_audio(tagged).samples.shape == (1, 30_000)

    stream = tmp_path / "stream.wav"
    soundfile.write(stream, wave, 16_000)
    data = bytearray(stream.read_bytes())
    at = data.index(b"data") + 4
    data[at : at + 4] = (2_000_000_000).to_bytes(4, "little")
    stream.write_bytes(data)
    assert read_audio(stream).samples.shape == (1, 30_000)
    data[at : at + 4] = (70_000).to_bytes(4, "little")
    stream.write_bytes(data)
    with pytest.raises(DataError, match="truncated"):
        read_audio(stream)

    flac = tmp_path / "stream.flac"
    soundfile.write(flac, wave, 16_000)
    data = bytearray(flac.read_bytes())
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    flac.write_bytes(data)
    with pytest.raises(DataError, match="does not say its length"):
        read_audio(flac)


def test_floats_of_a_recording_are_amplitudes(tmp_path):
    wave = np.sin(np.arange(3_000) / 6)
    soundfile.write(tmp_path / "mix.wav", 1.3 * wave, 8_000, subtype="FLOAT")
    assert float(read_audio(tmp_path / "mix.wav").samples.max()) > 1.25
    soundfile.write(tmp_path / "loud.wav", 128 * wave, 8_000, subtype="DOUBLE")
    with pytest.raises(DataError, match="floats of up to 128"):
        read_audio(tmp_path / "loud.wav")
