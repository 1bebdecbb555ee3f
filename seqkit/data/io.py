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
        is_utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        kind, encoding = ("it looks like UTF-16; ", "utf-16") if is_utf16 else ("", "latin1")
        raise DataError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}; {kind}"
            f"save it as UTF-8 (for instance: iconv -f {encoding} -t utf-8 {path.name} > new.txt)"
        ) from None
    return text.removeprefix("\ufeff")


def read_image(path: str | Path, channels: int = 3) -> Tensor:
    """An image file as [c h w] in [0, 1]: its first frame or page, a camera's rotation tag applied.

    channels: 1 grey, 3 red, green, blue. Transparency is dropped and the colours below it count, as in torchvision's
    ImageFolder. 16 bits are scaled; floats count as they are, in [0, 1].
    Raises DataError where it is missing, truncated, no image or of more than `MAX_PIXELS`, before they are unpacked;
    where floats leave [0, 1], integers have 32 bits, or transparency alone holds the drawing;
    ValueError for another number of channels.
    """
    from PIL import Image, ImageOps

    if channels not in (1, 3):
        raise ValueError(f"channels is {channels}; give 1 (grey) or 3 (red, green, blue)")
    path = Path(path)
    _bytes(path, 1)
    try:
        with _header(path) as file:
            white = _white(path, file)
            file.load()
            image = ImageOps.exif_transpose(file)
            if white is None:
                pixels, white = np.asarray(_opaque(path, image).convert("L" if channels == 1 else "RGB")), 255
            else:
                pixels = np.asarray(image)
    except DataError:
        raise
    except (OSError, SyntaxError, ValueError, TypeError, struct.error, Image.DecompressionBombError) as error:
        reason = str(error).replace(f" {str(path)!r}", "")
        raise DataError(f"{path} cannot be read as an image ({reason}); replace it or take it out") from error
    pixels = rearrange(pixels, "h w -> 1 h w" if pixels.ndim == 2 else "h w c -> c h w")
    tensor = torch.from_numpy(pixels.astype(np.float32, order="C")).div_(white)
    low, high = float(tensor.min()), float(tensor.max())  # NaN if any pixel is
    if not 0 <= low <= high <= 1:
        raise DataError(
            f"{path} holds floats from {low:.4g} to {high:.4g}, and pixels are between 0 and 1; scale them and save it "
            "again, or take it out"
        )
    return tensor.expand(channels, -1, -1).contiguous()


def image_header(path: str | Path) -> tuple[int, int]:
    """(height, width) in pixels as an image file declares them, without unpacking it. Raises as `read_image`."""
    from PIL import Image

    path = Path(path)
    _bytes(path, 1)
    try:
        with _header(path) as file:
            _white(path, file)
            return file.height, file.width
    except DataError:
        raise
    except (OSError, SyntaxError, ValueError, TypeError, struct.error, Image.DecompressionBombError) as error:
        reason = str(error).replace(f" {str(path)!r}", "")
        raise DataError(f"{path} cannot be read as an image ({reason}); replace it or take it out") from error


def _white(path: Path, file: Image.Image) -> int | None:
    """The value of white where PIL would clip at 255: of 12 and 16 bits, of floats; None where it converts rightly.

    Raises DataError for integers of 32 bits, whose white nobody says.
    """
    bits_per_sample = 258  # the TIFF tag
    if file.mode.startswith("I;16") or (file.mode == "I" and file.format != "TIFF"):
        bits = getattr(file, "tag_v2", {}).get(bits_per_sample, (16,))[0]
        return int(2**bits - 1)
    if file.mode == "I":
        raise DataError(f"{path} has integers of 32 bits or with a sign, of which white is not known; save it in 16")
    return 1 if file.mode == "F" else None


def _opaque(path: Path, image: Image.Image) -> Image.Image:
    """The image itself. Raises DataError where it is of one colour, and its transparency alone is not."""
    if image.has_transparency_data:
        alpha, colours = np.asarray(image.convert("RGBA").getchannel("A")), np.asarray(image.convert("RGB"))
        if alpha.min() != alpha.max() and bool((colours == colours[0, 0]).all()):
            raise DataError(
                f"{path} is of one colour, and what it shows is in its transparency, which is dropped; put it on a "
                "background of another colour, or take it out"
            )
    return image


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
    """A WAV, FLAC, OGG or MP3 file as samples [c t] in [-1, 1] and their rate in Hz.

    Raises DataError where it is missing, unreadable, without samples, longer than `MAX_AUDIO_VALUES`, shorter than
    its header declares (soundfile reads a truncated WAV silently as what is left of it), or holds NaN or infinity; an
    MP3 whose length only a guess would say (`_check_mp3`).
    """
    import soundfile

    from seqkit.raw import Waveform

    path = Path(path)
    data = _bytes(path)
    _check_complete(path, data)
    try:
        with soundfile.SoundFile(path) as file:
            declared, sample_rate = file.frames, file.samplerate
            if declared * file.channels > MAX_AUDIO_VALUES:
                raise DataError(
                    f"{path} declares {declared:,} samples of {file.channels} channels, and {MAX_AUDIO_VALUES:,} "
                    "numbers are read at most; cut it into shorter files"
                )
            if file.format == "MP3":
                _check_mp3(path, data, declared)
            samples = file.read(dtype="float32", always_2d=True)
    except (OSError, RuntimeError) as error:  # soundfile.LibsndfileError is a RuntimeError
        raise DataError(_no_sound(path, error)) from error
    if declared != len(samples):
        raise DataError(f"{path} is truncated: it declares {declared} samples and holds {len(samples)}; copy it again")
    if len(samples) == 0:
        raise DataError(f"{path} has no samples (zero length); take it out")
    if not np.isfinite(samples).all():
        at = int(np.argmin(np.isfinite(samples).all(axis=1)))
        raise DataError(f"{path}: sample {at} is not finite (NaN or infinite); clean the recording or take it out")
    return Waveform(rearrange(torch.from_numpy(samples), "t c -> c t").contiguous(), sample_rate)


def audio_header(path: str | Path) -> tuple[int, int, int]:
    """(samples, sample rate in Hz, channels) as an audio file declares them. Raises as `read_audio`."""
    import soundfile

    path = Path(path)
    _bytes(path, 1)
    try:
        with soundfile.SoundFile(path) as file:
            found = file.frames, file.samplerate, file.channels
    except (OSError, RuntimeError) as error:
        raise DataError(_no_sound(path, error)) from error
    if found[0] == 0:
        raise DataError(f"{path} has no samples (zero length); take it out")
    return found


def _no_sound(path: Path, error: Exception) -> str:
    reason = str(error).rstrip(". ") or "its data is damaged"
    reason = reason.replace(f"Error opening {str(path)!r}: ", "").replace(f"Error opening {path}: ", "")
    return f"{path} cannot be read as audio ({reason}); give WAV, FLAC, OGG or MP3"


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


_MP3_RATES = ((11025, 12000, 8000), (), (22050, 24000, 16000), (44100, 48000, 32000))
_MP3_KILOBITS = (
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),  # MPEG 2 and 2.5
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),  # MPEG 1
)
"""Of layer III, by the fields of a frame's header (ISO 11172-3, 13818-3)."""


def _check_mp3(path: Path, data: bytes, declared: int) -> None:
    """Raise DataError where an MP3 ends inside a frame, or libsndfile guessed its length from the first bit rate.

    It guesses where the file does not say its length (a Xing, Info or VBRI header), and reads no further than that.
    declared: samples that libsndfile counts.
    """
    size = data[6:10]
    at = 10 + sum(byte << shift for byte, shift in zip(size, (21, 14, 7, 0))) if data[:3] == b"ID3" else 0
    at = max(data.find(b"\xff", at), 0)
    says_length = any(name in data[at : at + 200] for name in (b"Xing", b"Info", b"VBRI"))
    num_samples = 0
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] & 0xE6 == 0xE2:  # layer III
        version, bit_rate, rate = data[at + 1] >> 3 & 3, data[at + 2] >> 4, data[at + 2] >> 2 & 3
        if version == 1 or bit_rate in (0, 15) or rate == 3:
            break
        samples = 1152 if version == 3 else 576
        kilobits = _MP3_KILOBITS[version == 3][bit_rate]
        at += samples * kilobits * 125 // _MP3_RATES[version][rate] + (data[at + 2] >> 1 & 1)
        num_samples += samples
        if at > len(data):
            raise DataError(f"{path} is truncated: its last frame lacks {at - len(data)} bytes; copy it again")
    if not says_length and num_samples > declared + 2 * 1152:
        raise DataError(
            f"{path} has about {num_samples} samples and does not say so in its header, and {declared} of them would "
            "be read; convert it to WAV or FLAC"
        )
