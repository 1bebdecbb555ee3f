"""Readers of files: text, image, audio, SMILES. Every fault is a DataError that names the file.

c channels · h height · w width · t samples
"""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError
from seqkit.files import read_regular

if TYPE_CHECKING:
    from PIL import Image

    from seqkit.raw import Waveform

MAX_PIXELS = 50_000_000
"""Of an image file: as float32 in three colours, 600 MB."""

IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""What PIL calls the formats whose suffixes `seqkit.data.formats.IMAGE` lists."""

MAX_AUDIO_VALUES = 2**28
"""Samples times channels of an audio file: 1 GB as float32, 93 minutes of mono at 48 kHz."""


def read_text(path: str | Path) -> str:
    """A UTF-8 text file, exactly (a byte-order mark at its start is dropped).

    Raises DataError where it cannot be read, is empty, or is not UTF-8 (with the offset of the first wrong byte).
    """
    path = Path(path)
    data = _bytes(path)
    if not data.strip():
        raise DataError(f"{path} is empty; give a file with text in it")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        kind = "it looks like UTF-16; " if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise DataError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}; {kind}"
            f"save it as UTF-8 (for instance: iconv -f latin1 -t utf-8 {path.name} > new.txt)"
        ) from None
    return text.removeprefix("\ufeff")


def read_image(path: str | Path, channels: int = 3) -> Tensor:
    """An image file as [c h w] in [0, 1]; transparency is dropped, a camera's rotation tag is applied.

    channels: 1 grey, 3 red, green, blue.
    Raises DataError where it is missing, truncated, no image or of more than `MAX_PIXELS`, before they are unpacked;
    ValueError for another number of channels.
    """
    from PIL import Image, ImageOps

    if channels not in (1, 3):
        raise ValueError(f"channels is {channels}; give 1 (grey) or 3 (red, green, blue)")
    path = Path(path)
    _bytes(path, 1)
    try:
        with _header(path) as file:
            file.load()
            image = ImageOps.exif_transpose(file)
            deep = image.mode.startswith("I;16")  # 16 bits: PIL's own conversion to 8 clips them
            pixels = np.asarray(image if deep else image.convert("L" if channels == 1 else "RGB"))
    except DataError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read as an image ({error}); replace it or take it out") from error
    pixels = rearrange(pixels, "h w -> 1 h w" if pixels.ndim == 2 else "h w c -> c h w")
    tensor = torch.from_numpy(pixels.astype(np.float32, order="C")).div_(65535 if deep else 255)
    return tensor.expand(channels, -1, -1).contiguous()


def _header(path: Path) -> Image.Image:
    """An image file of which the header alone is read. Raises DataError where it declares too many pixels.

    A PNG of 17 kB can declare, and unpack to, more pixels than there is memory for. Only the formats of `IMAGE` are
    tried: others that PIL knows, such as PostScript, are programs that another program would run.
    """
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit below is lower
        try:
            file = Image.open(path, formats=IMAGE_FORMATS)
        except Image.DecompressionBombError:
            raise DataError(_too_large(path, f"more than {2 * (Image.MAX_IMAGE_PIXELS or 0) / 1e6:.0f}")) from None
    if file.width * file.height > MAX_PIXELS:
        file.close()
        raise DataError(_too_large(path, f"{file.width} x {file.height}, {file.width * file.height / 1e6:.0f}"))
    return file


def _too_large(path: Path, size: str) -> str:
    return f"{path} has {size} megapixels, and {MAX_PIXELS // 10**6} are read at most; make it smaller or take it out"


def read_audio(path: str | Path) -> Waveform:
    """A WAV, FLAC or OGG file as samples [c t] in [-1, 1] and their rate in Hz.

    Raises DataError where it is missing, unreadable, without samples, longer than `MAX_AUDIO_VALUES`, or shorter than
    its header declares (soundfile reads a truncated WAV silently as what is left of it).
    """
    import soundfile

    from seqkit.raw import Waveform

    path = Path(path)
    _check_complete(path, _bytes(path))
    try:
        with soundfile.SoundFile(path) as file:
            declared, sample_rate = file.frames, file.samplerate
            if declared * file.channels > MAX_AUDIO_VALUES:
                raise DataError(
                    f"{path} declares {declared:,} samples of {file.channels} channels, and {MAX_AUDIO_VALUES:,} "
                    "numbers are read at most; cut it into shorter files"
                )
            samples = file.read(dtype="float32", always_2d=True)
    except (OSError, RuntimeError) as error:  # soundfile.LibsndfileError is a RuntimeError
        raise DataError(f"{path} cannot be read as audio ({error}); give WAV, FLAC or OGG") from error
    if declared != len(samples):
        raise DataError(f"{path} is truncated: it declares {declared} samples and holds {len(samples)}; copy it again")
    if len(samples) == 0:
        raise DataError(f"{path} has no samples (zero length); take it out")
    return Waveform(rearrange(torch.from_numpy(samples), "t c -> c t").contiguous(), sample_rate)


def read_smiles(path: str | Path) -> list[str]:
    """The SMILES strings of a .smi file: the first word of each line that is not blank. Raises as `read_text`."""
    return [line.split()[0] for line in read_text(path).splitlines() if line.strip()]


def _bytes(path: Path, size: int | None = None) -> bytes:
    """The file's first `size` bytes (None: all). Raises DataError where there is no such file, or it is empty."""
    try:
        data = read_regular(path, size)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; check the path") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); give a file that you may read") from error
    if not data:
        raise DataError(f"{path} is empty (0 bytes); copy it again or take it out")
    return data


def _check_complete(path: Path, data: bytes) -> None:
    """Raise DataError if a WAV or OGG file is shorter than its header or its pages declare."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        start = 12
        while start + 8 <= len(data):
            name, size = struct.unpack_from("<4sI", data, start)
            start += 8
            # recorders that cannot seek leave the length of `data` at its largest value: nothing to compare with
            if name == b"data" and size < 0xFFFFFF00 and start + size > len(data):
                raise DataError(
                    f"{path} is truncated: its header declares {size} bytes of sound and {len(data) - start} "
                    "are there; copy it again"
                )
            start += size + size % 2
    elif data[:4] == b"OggS":
        last = data.rfind(b"OggS")
        ends = len(data) >= last + 27 and bool(data[last + 5] & 4)  # the flag `end of stream` of the last page
        if ends:
            table = data[last + 27 : last + 27 + data[last + 26]]
            ends = len(data) >= last + 27 + data[last + 26] + sum(table)
        if not ends:
            raise DataError(f"{path} is truncated: its last page does not end the stream; copy it again")
