"""Readers of files: text, image, audio, SMILES. Every fault is a DataError that names the file.

c channels · h height · w width · t samples
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import shlex
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.data.sample import Sample
from seqkit.errors import DataError
from seqkit.files import read_regular

if TYPE_CHECKING:
    from PIL import Image
    from soundfile import SoundFile

    from seqkit.raw import Waveform

MAX_PIXELS = 50_000_000
"""Most pixels of an image file: as float32 in three colours, 600 MB."""

IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""PIL's names of the formats whose suffixes `seqkit.data.formats.IMAGE` lists."""

WHITE_OF_16_BITS = 65_535

UPRIGHT = 4
"""Values of a camera's rotation tag up to which height and width stay."""

MAX_AUDIO_VALUES = 2**28
"""Most samples times channels of an audio file: 1 GB as float32, 93 minutes of mono at 48 kHz."""


PLACEHOLDER = 2**30
"""Bytes of sound from which on a header's number that the file does not have is one of a program that did not know."""

UNKNOWN_LENGTH = 2**63 - 1
"""Number of samples that libsndfile says for a FLAC whose header does not."""

MAX_AMPLITUDE = 1.5
"""Largest float of a recording; a mix may be somewhat louder than 1."""

MAX_FRAME_BYTES = 2_000
"""More than a frame of an MP3, of which not all programs count the first."""


def read_text(path: str | Path) -> str:
    """A UTF-8 text file, exactly (a byte-order mark at its start is dropped).

    Raises DataError where it cannot be read, is empty, or is not UTF-8 (with the offset of the first wrong byte).
    """
    path = Path(path)
    data = read_bytes(path)
    if data.isspace():
        raise DataError(f"{path} is empty; give a file with text in it")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    return text.removeprefix("\ufeff")


def read_image(path: str | Path, channels: int = 3) -> Tensor:
    """An image file as [c h w] in [0, 1]: its first frame or page, a camera's rotation tag applied.

    channels: 1 grey; 3 red, green, blue; 4 opacity, too. Transparency is laid on white where it is not the same
    everywhere. 16 bits are scaled; floats count as they are, in [0, 1].
    Raises DataError where it is missing, truncated, no image or of more than `MAX_PIXELS`, before they are unpacked;
    where floats leave [0, 1], integers have 32 bits, or the drawing is white on a clear ground and its opacity is no
    channel; ValueError for other channels.
    """
    if channels not in (1, 3, 4):
        raise ValueError(
            f"channels is {channels}; give 1 (grey), 3 (red, green, blue) or 4 (and opacity)"
        )
    with open_image(Path(path)) as file:
        from PIL import ImageOps

        white = _white(path, file)
        file.load()
        image = ImageOps.exif_transpose(file)
        if white is None:
            laid = _opaque(path, image, is_seen=channels == 4)
            laid = laid.convert("L" if channels == 1 else "RGB")
            if channels == 4:
                laid.putalpha(_alpha(image))
            image = laid
            white = 255
        pixels = np.asarray(image)
    pixels = rearrange(pixels, "h w -> 1 h w" if pixels.ndim == 2 else "h w c -> c h w")
    tensor = torch.from_numpy(pixels.astype(np.float32, order="C")).div_(white)
    # NaN if any pixel is
    low = float(tensor.min())
    high = float(tensor.max())
    if not 0 <= low <= high <= 1:
        raise DataError(
            f"{path} holds floats from {low:.4g} to {high:.4g}; scale them to [0, 1], or take it out"
        )
    tensor = tensor.expand(max(len(tensor), min(channels, 3)), -1, -1)
    if len(tensor) < channels:
        tensor = torch.cat([tensor, torch.ones_like(tensor[:1])])
    return tensor.contiguous()


def image_header(path: str | Path) -> tuple[int, int, bool]:
    """(height, width, whether it has transparency) as an image file declares them, without unpacking it.

    Height and width are in pixels; a GIF has its transparency behind the header. Raises as `read_image`.
    """
    with open_image(Path(path)) as file:
        _white(path, file)
        return file.height, file.width, file.has_transparency_data


def shape_and_opacity(path: str | Path) -> tuple[float, bytes]:
    """Width by height of an image, a camera's rotation tag applied, and its opacity in 16 x 16 parts.

    An image without transparency is not unpacked. Raises as `read_image`.
    """
    from PIL.ExifTags import Base

    with open_image(Path(path)) as file:
        width, height = file.size
        if file.getexif().get(Base.Orientation, 1) > UPRIGHT:
            width, height = height, width
        return width / height, _alpha(file).resize((16, 16)).tobytes()


def brightest_of_16_bits(path: str | Path) -> int | None:
    """The largest value of an image of 16 bits, of 65,535; None: it has other values. Raises as `read_image`."""
    with open_image(Path(path)) as file:
        if _white(path, file) == WHITE_OF_16_BITS:
            return int(np.asarray(file).max())
        return None


@contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """An image file of which the header alone is read. Raises DataError for whatever goes wrong with it inside `with`.

    A PNG of 17 kB can declare, and unpack to, more pixels than there is memory for. Only the formats of `IMAGE` are
    tried: others that PIL knows, such as PostScript, are programs that another program would run.
    """
    from PIL import Image

    read_bytes(path, 1)
    try:
        with warnings.catch_warnings():
            # the limit below is lower
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            file = Image.open(path, formats=IMAGE_FORMATS)
        with file:
            if file.width * file.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            yield file
    except DataError:
        raise
    except Image.DecompressionBombError:
        most = f"{MAX_PIXELS / 1e6:g} megapixels"
        raise DataError(
            f"{path} has more than {most}, the most; make it smaller or take it out"
        ) from None
    except (OSError, SyntaxError, ValueError, TypeError, struct.error) as error:
        reason = str(error).replace(f" {str(path)!r}", "")
        raise DataError(
            f"{path} cannot be read as an image ({reason}); replace it or take it out"
        ) from error


def _white(path: str | Path, file: Image.Image) -> int | None:
    """The value of white where PIL would clip at 255: of 16 bits, of floats; None where it converts rightly.

    Raises DataError for integers of 32 bits, whose white nobody says.
    """
    if file.mode.startswith("I;16") or (file.mode == "I" and file.format != "TIFF"):
        return WHITE_OF_16_BITS
    if file.mode == "I":
        raise DataError(
            f"{path} has integers of 32 bits or with a sign, of which white is not known; save it in 16"
        )
    return 1 if file.mode == "F" else None


def _alpha(image: Image.Image) -> Image.Image:
    """The opacity of an image, from 0 to 255."""
    import PIL.Image

    if image.has_transparency_data:
        return image.convert("RGBA").getchannel("A")
    return PIL.Image.new("L", image.size, 255)


def _opaque(path: str | Path, image: Image.Image, *, is_seen: bool) -> Image.Image:
    """The image on white, where its transparency is not the same everywhere.

    is_seen: opacity is a channel, too. Raises DataError where nothing is seen otherwise.
    """
    import PIL.Image

    if not image.has_transparency_data:
        return image
    # of a palette, PIL warns for each image that is converted at once
    image = image.convert("RGBA")
    alpha = np.asarray(image.getchannel("A"))
    if (alpha == alpha[0, 0]).all():
        return image.convert("RGB")
    white = PIL.Image.new("RGBA", image.size, "white")
    laid = PIL.Image.alpha_composite(white, image).convert("RGB")
    if not is_seen and (np.asarray(laid) == np.asarray(laid)[0, 0]).all():
        raise DataError(
            f"{path} is white but for its transparency, which is laid on white; put it on a background, or train "
            "with --tokenizer.channels 4"
        )
    return laid


def read_audio(path: str | Path) -> Waveform:
    """A WAV, FLAC, OGG or MP3 file as samples [c t] in [-1, 1] and their rate in Hz.

    Raises DataError where it is missing, unreadable, truncated, without samples, longer than `MAX_AUDIO_VALUES`, or
    holds NaN, infinity or floats beyond `MAX_AMPLITUDE`.
    """
    from seqkit.raw import Waveform

    with _sound(Path(path)) as file:
        declared = file.frames
        sample_rate = file.samplerate
        if declared * file.channels > MAX_AUDIO_VALUES:
            many = f"{declared:,} samples of {file.channels} channels"
            raise DataError(
                f"{path} declares {many}, and {MAX_AUDIO_VALUES:,} numbers are the most; cut it into parts"
            )
        samples = file.read(dtype="float32", always_2d=True)
        is_float = file.subtype in ("FLOAT", "DOUBLE")
    if declared != len(samples):
        raise DataError(
            f"{path} is truncated: it declares {declared} samples and holds {len(samples)}; copy it again"
        )
    if not np.isfinite(samples).all():
        at = int(np.argmin(np.isfinite(samples).all(axis=1)))
        raise DataError(
            f"{path}: sample {at} is not finite (NaN or infinite); clean the recording or take it out"
        )
    largest = float(np.abs(samples).max())
    if is_float and largest > MAX_AMPLITUDE:
        raise DataError(
            f"{path} holds floats of up to {largest:.4g}; scale them to [-1, 1] (16 bits: / 32768), or take it out"
        )
    return Waveform(rearrange(torch.from_numpy(samples), "t c -> c t").contiguous(), sample_rate)


def audio_header(path: str | Path) -> tuple[int, int, int]:
    """(samples, sample rate in Hz, channels) as an audio file declares them. Raises as `read_audio`."""
    with _sound(Path(path)) as file:
        return file.frames, file.samplerate, file.channels


@contextmanager
def _sound(path: Path) -> Iterator[SoundFile]:
    """An open audio file of which the header is read. Raises DataError for whatever goes wrong with it inside `with`.

    libsndfile reads a truncated WAV or OGG as what is left of it, and notes that in its log alone.
    """
    import soundfile

    read_bytes(path, 1)
    try:
        with (
            path.open("rb", buffering=0) as stream,
            soundfile.SoundFile(stream.fileno(), closefd=False) as file,
        ):
            torn = _TORN.search(file.extra_info)
            # recorders that cannot seek leave a large number as the length of `data`: nothing to compare with
            if torn and int(torn[1] or 0) < PLACEHOLDER:
                raise DataError(f"{path} is truncated ({torn[0]}); copy it again")
            if file.frames == 0:
                raise DataError(f"{path} has no samples (zero length); take it out")
            if file.frames == UNKNOWN_LENGTH:
                again = f"ffmpeg -i {shlex.quote(str(path))} whole{path.suffix}"
                raise DataError(
                    f"{path} does not say its length, as a stream cannot; write it again: {again}"
                )
            if file.format == "MP3":
                _check_one_stream(path)
            yield file
    except (OSError, RuntimeError) as error:  # soundfile.LibsndfileError is a RuntimeError
        reason = str(getattr(error, "error_string", error)).rstrip(". ") or "its data is damaged"
        raise DataError(
            f"{path} cannot be read as audio ({reason}); give WAV, FLAC, OGG or MP3"
        ) from error


def _check_one_stream(path: Path) -> None:
    """Raise DataError where an MP3 goes on behind the end that it declares: its decoder would stop there."""
    data = read_bytes(path)
    begin = 0
    if data[:3] == b"ID3":
        begin = 10 + sum((byte & 127) << 7 * (3 - i) for i, byte in enumerate(data[6:10]))
    declared = _STREAM.search(data, begin, begin + 2 * MAX_FRAME_BYTES)
    if declared is None:
        return
    rest = data[begin + int.from_bytes(declared[1]) :]
    is_sound = rest[:3] == b"ID3" or rest[:1] == b"\xff"
    if is_sound and len(rest) > MAX_FRAME_BYTES:
        raise DataError(
            f"{path} goes on for {len(rest):,} bytes behind its declared end, as joined MP3s do; give each alone"
        )


_STREAM = re.compile(
    rb"(?:Xing|Info)\0\0\0(?:[\x03\x07\x0b\x0f]....|[\x02\x06\x0a\x0e])(....)", re.DOTALL
)
"""Where an MP3 declares the bytes of its stream (behind the number of its frames, where it has that, too)."""

_TORN = re.compile(
    r"data : (\d+) \(should be .*|Ogg ?: (?:Junk after|Last page lacks|File ended).*"
)


def read_smiles(path: str | Path) -> list[Sample]:
    """The SMILES strings of a .smi file: the first word of each line that is not blank. Raises as `read_text`."""
    return [
        Sample(line.split()[0], name=line.split()[0])
        for line in read_text(path).splitlines()
        if line.strip()
    ]


def read_bytes(path: Path, size: int | None = None) -> bytes:
    """The file's first `size` bytes (None: all). Raises DataError where there is no such file, or it is empty."""
    with reading(path):
        data = read_regular(path, size)
    if not data:
        raise DataError(f"{path} is empty (0 bytes); copy it again or take it out")
    return data


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns errors of opening a file into DataErrors that name it."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; check the path") from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); give a file that you may read"
        ) from error


COMPRESSED: dict[str, Callable[..., IO[bytes]]] = {
    ".gz": gzip.open,  # type: ignore[dict-item]
    ".bz2": bz2.open,
    ".xz": lzma.open,
}


def not_utf8(path: Path) -> DataError:
    """An error with the place of the first byte that is not UTF-8."""
    place = ""
    head = b""
    before = 0
    with COMPRESSED.get(path.suffix.lower(), Path.open)(path, "rb") as data:
        for number, line in enumerate(data, start=1):
            head = head or line[:2]
            try:
                line.decode()
            except UnicodeDecodeError as error:
                place = f"byte 0x{line[error.start]:02x} at offset {before + error.start}, line {number}"
                break
            before += len(line)
    if head == b"\x1f\x8b":
        return DataError(
            f"{path} is compressed; call it {path.name}.gz, or unpack it if it is that already"
        )
    is_utf16 = head in (b"\xff\xfe", b"\xfe\xff")
    # cp1252 is Latin 1 with characters such as the euro sign in place of the control codes 0x80 to 0x9F
    kind, encoding = ("it looks like UTF-16; ", "utf-16") if is_utf16 else ("", "cp1252")
    command = f"iconv -f {encoding} -t utf-8 {shlex.quote(str(path))} > new{path.suffix}"
    return DataError(
        f"{path} is not UTF-8: {place}; {kind}save it as UTF-8 (for instance: {command})"
    )
