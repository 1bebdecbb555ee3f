import struct

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

from seqkit.data.io import read_audio, read_image, read_text
from seqkit.errors import DataError

RNG = np.random.default_rng(0)


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_text_is_read_exactly(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffnaïve\r\n🜁\n".encode())
    assert read_text(path) == "naïve\r\n🜁\n"


def test_a_wrong_encoding_names_file_offset_and_remedy(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("naïve".encode("latin1"))
    with pytest.raises(DataError, match=r"latin\.txt is not UTF-8: byte 0xef at offset 2.*iconv"):
        read_text(path)
    path.write_bytes("naïve".encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        read_text(path)


@pytest.mark.parametrize("read", [read_text, read_image, read_audio])
def test_missing_empty_and_folders_are_named(tmp_path, read):
    with pytest.raises(DataError, match=r"nothing\.here does not exist"):
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


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    pixels = np.array([[0, 13107], [32768, 65535]], dtype=np.uint16)
    Image.fromarray(pixels).save(tmp_path / "deep.png")
    torch.testing.assert_close(read_image(tmp_path / "deep.png", 1)[0], torch.tensor([[0.0, 0.2], [0.500008, 1.0]]))
    assert read_image(tmp_path / "deep.png", 3).shape == (3, 2, 2)


def test_grey_has_one_channel_and_two_are_refused(tmp_path):
    Image.fromarray(RNG.integers(0, 256, (5, 7), dtype=np.uint8)).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png", 1).shape == (1, 5, 7)
    with pytest.raises(ValueError, match="channels is 2"):
        read_image(tmp_path / "a.png", 2)


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_truncated_and_false_images_are_named(tmp_path, suffix):
    path = tmp_path / f"whole.{suffix}"
    Image.fromarray(RNG.integers(0, 256, (31, 37, 3), dtype=np.uint8)).save(path)
    data = path.read_bytes()
    cut = tmp_path / f"cut.{suffix}"
    for kept in (len(data) // 2, len(data) // 3, 11):
        cut.write_bytes(data[:kept])
        with pytest.raises(DataError, match=rf"cut\.{suffix} cannot be read as an image"):
            read_image(cut)
    cut.write_text("no picture")
    with pytest.raises(DataError, match=rf"cut\.{suffix} cannot be read as an image"):
        read_image(cut)


# ── audio ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("suffix", "close"), [("wav", 1e-4), ("flac", 1e-4), ("ogg", 0.1)])
def test_samples_come_back_channels_first(tmp_path, suffix, close):
    t = np.arange(4001) / 8000
    samples = 0.5 * np.stack([np.sin(2 * np.pi * 440 * t), np.cos(2 * np.pi * 220 * t)], axis=1)
    soundfile.write(tmp_path / f"a.{suffix}", samples, 8000)
    wave = read_audio(tmp_path / f"a.{suffix}")
    assert (wave.samples.shape, wave.sample_rate, wave.samples.dtype) == ((2, 4001), 8000, torch.float32)
    torch.testing.assert_close(wave.samples, torch.tensor(samples.T, dtype=torch.float32), atol=close, rtol=0)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_truncated_audio_is_named(tmp_path, suffix):
    path = tmp_path / f"whole.{suffix}"
    soundfile.write(path, RNG.uniform(-0.5, 0.5, 40_009), 8000)
    data = path.read_bytes()
    cut = tmp_path / f"cut.{suffix}"
    for kept in (len(data) - 2, len(data) // 2, len(data) // 3):
        cut.write_bytes(data[:kept])
        with pytest.raises(DataError, match=rf"cut\.{suffix}"):
            read_audio(cut)


def test_a_recording_whose_length_was_never_filled_in_is_read(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.full(101, 0.25), 8000)
    data = bytearray((tmp_path / "a.wav").read_bytes())
    at = data.index(b"data") + 4
    data[at : at + 4] = struct.pack("<I", 0xFFFFFFFF)
    data[4:8] = struct.pack("<I", 0xFFFFFFFF)
    (tmp_path / "b.wav").write_bytes(data)
    assert read_audio(tmp_path / "b.wav").samples.shape == (1, 101)


def test_no_samples_and_no_audio_are_named(tmp_path):
    soundfile.write(tmp_path / "none.wav", np.zeros(0), 8000)
    with pytest.raises(DataError, match=r"none\.wav has no samples"):
        read_audio(tmp_path / "none.wav")
    (tmp_path / "false.wav").write_text("no sound at all")
    with pytest.raises(DataError, match=r"false\.wav cannot be read as audio"):
        read_audio(tmp_path / "false.wav")
