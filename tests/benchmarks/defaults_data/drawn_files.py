"""The drawn images and sounds."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.benchmarks.defaults_data import draw
from tests.benchmarks.defaults_data.case import Case, files_case
from tests.benchmarks.defaults_data.images import save_image
from tests.benchmarks.defaults_data.packages import debian
from tests.benchmarks.defaults_data.sounds import recording, save_sound

MAX_PIXELS = 128
"""Longer side of an image: larger ones are made smaller, as seqkit reads a square of 64 pixels."""

MAX_AREA = 20_000_000
"""Pixels of an image that is left out: a drawing of 600 million would need gigabytes."""

SECONDS = 1.5
"""Most of a sound, from where it is first loud."""

SETS = {
    "image/stamps": lambda: _stamps(),
    "image/units": lambda: _units(),
    "image/clip-art": lambda: _clip_art(),
    "audio/stamp-names": lambda: _stamp_names(),
    "audio/instruments": lambda: _instruments(),
}


def _of_files(
    kind: str,
    name: str,
    found: list[tuple[Path, str]],
    read: Callable[[Path], np.ndarray],
    groups: list[str] | None = None,
) -> Case:
    """found: files with their classes; files of the same content are equal rows."""
    keys = [hashlib.sha256(path.read_bytes()).digest() for path, _ in found]
    own = draw.kept(name, keys, [target for _, target in found])
    of_each = [groups[i] for i in own] if groups else None
    test = draw.is_test(name, own, of_each)
    rows = [read(found[i][0]) for i in own]
    save = save_image if kind == "image" else save_sound
    case = files_case(kind, rows, [found[i][1] for i in own], test, save)
    return Case(kind, case.rows, case.targets, test, case.write, of_each)


def _pixels(path: Path) -> np.ndarray:
    """Colours and transparency, made smaller."""
    from PIL import Image

    image = Image.open(path).convert("RGBA")
    image.thumbnail((MAX_PIXELS, MAX_PIXELS))
    return np.asarray(image)


def _sound(path: Path) -> np.ndarray:
    return recording(path, SECONDS)


def _in_folders(place: Path) -> list[tuple[Path, str]]:
    """PNG files that are not huge, with the folder of `place` that each is below."""
    return [
        (path, path.relative_to(place).parts[0])
        for path in sorted(place.glob("*/**/*.png"))
        if not path.is_symlink() and _num_pixels(path) <= MAX_AREA
    ]


def _num_pixels(path: Path) -> int:
    """Width times height, from the header of a PNG file."""
    header = path.read_bytes()[:24]
    width, height = struct.unpack(">II", header[16:24])
    return width * height


def _stamps() -> Case:
    """Topic of a stamp of Tux Paint, such as animals."""
    place = debian("tuxpaint-stamps-default") / "usr/share/tuxpaint/stamps"
    return _of_files("image", "stamps", _in_folders(place), _pixels)


def _clip_art() -> Case:
    """Topic of a drawing of the Open Clip Art Library, such as food."""
    place = debian("openclipart-png") / "usr/share/openclipart/png"
    return _of_files("image", "clip-art", _in_folders(place), _pixels)


def _units() -> Case:
    """Race of a drawn unit of the game Wesnoth; all pictures of a unit are for the test, or none."""
    place = debian("wesnoth-1.16-data") / "usr/share/games/wesnoth/1.16/data/core/images/units"
    found = _in_folders(place)
    units = [f"{race}/{path.stem.split('-')[0].split('+')[0]}" for path, race in found]
    return _of_files("image", "units", found, _pixels, units)


def _stamp_names() -> Case:
    """Language of a stamp's name that is read aloud; without a language in the file's name it is English."""
    place = debian("tuxpaint-stamps-default") / "usr/share/tuxpaint/stamps"
    found = [
        (path, path.stem.partition("_desc_")[2] or "en")
        for path in sorted(place.glob("**/*_desc*.ogg"))
        if not path.is_symlink() and path.stat().st_size
    ]
    return _of_files("audio", "stamp-names", found, _sound)


def _is_readable(path: Path) -> bool:
    """False for a file whose header is damaged; one is."""
    import soundfile

    try:
        return soundfile.info(path).frames > 0
    except soundfile.LibsndfileError:
        return False


def _instruments() -> Case:
    """Kind of a sample of LMMS, such as drums; shapes and waveforms are formulas and left out."""
    place = debian("lmms-common") / "usr/share/lmms/samples"
    found = [
        (path, path.relative_to(place).parts[0])
        for path in sorted(place.glob("*/**/*.*"))
        if path.suffix in (".ogg", ".wav", ".flac")
    ]
    made = ("shapes", "waveforms")
    found = [(path, kind) for path, kind in found if kind not in made and _is_readable(path)]
    return _of_files("audio", "instruments", found, _sound)
