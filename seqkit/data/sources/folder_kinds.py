"""Folders of images, recordings, texts, and files that a tokenizer reads: what each says of its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import log10
from pathlib import Path
from typing import Any

from torch import Tensor

from seqkit.data.formats import AUDIO, IMAGE, TEXT, own_reader
from seqkit.data.io import (
    WHITE_OF_16_BITS,
    audio_header,
    brightest_of_16_bits,
    image_header,
    read_audio,
    read_image,
    read_text,
)
from seqkit.data.notes import listed
from seqkit.data.sources.folder import ClassFolder, split_folders
from seqkit.errors import DataError, UsageError, one_line

LOOKED_AT = 20
"""Files of a folder whose values are looked at before training, one in so many."""


_CHANNELS = {1: "mono", 2: "stereo"}


class ImageFolder(ClassFolder):
    """Your own images: `<path>/<class>/*.png|jpg|…`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    They have the tokenizer's channels. They are resized when they are read, as the tokenizer does, so that
    augmentations work on small ones; those of a `Resize` with a larger size than crop stay as they are until then.
    path, test_fraction, seed, skip_bad: as of `ClassFolder`.
    """

    suffixes = IMAGE.suffixes
    plural = "images"
    header = staticmethod(image_header)
    read: Any = staticmethod(read_image)
    _rule = "in colour"

    def read_for(self, tokenizer: Any) -> None:
        """Take the tokenizer's channels and size."""
        from seqkit.tokenizers import Patches  # brings torchvision

        if not isinstance(tokenizer, Patches):
            return
        resizing = tokenizer.resizing
        channels = 3
        if tokenizer.channels == 1:
            channels = 1
            self._rule = "in grey"
        if tokenizer.channels == 4:
            channels = 4
            self._rule = "in colour, with their opacity as a fourth channel"
        # others would be resized twice
        resized = None
        if resizing and resizing.keeps_its_result:
            resized = tokenizer.resized
        self.read = partial(_read_resized, channels=channels, resized=resized)
        if resizing is not None:
            part = "they are"
            if tokenizer.crop or resizing.crop:
                part = "their middle is"
            size = f"a shorter side of {resizing.size}"
            if tokenizer.size is not None:
                size = "{} × {}".format(*tokenizer.size)
            self._rule += f"; {part} resized to {size} (--tokenizer.resize)"

    def images(self, column: str | None = None) -> list[Path]:
        """The training images, or where the files are not split, all."""
        root = Path(self.path)
        if not root.is_dir():
            return []
        below, names = self.found(root)
        folder = split_folders(below)["train"]
        start = f"{folder}/" if folder else ""
        return [root / name for name in names if name.startswith(start)]

    def described(self, headers: Sequence[tuple[int, int, bool]]) -> str:
        """Sizes of the images, and how many have transparency."""
        by_size = sorted(headers, key=lambda header: header[0] * header[1])
        small, large = (f"{by_size[i][0]} × {by_size[i][1]}" for i in (0, -1))
        sizes = small
        if len({header[:2] for header in headers}) > 1:
            sizes = f"from {small} to {large}"
        num_transparent = sum(is_transparent for *_, is_transparent in headers)
        said = f"{sizes} pixels, read {self._rule}"
        if num_transparent:
            said += f"; the transparency of {num_transparent:,} is laid on white"
        return said

    def cautions(self, headers: Mapping[Path, Any]) -> Iterator[str]:
        """Images of 16 bits that use less than a sixteenth of them, as those of a camera of 12 bits do."""
        found = [
            value for value in tried(brightest_of_16_bits, [*headers]).values() if value is not None
        ]
        if found and max(found) < WHITE_OF_16_BITS / 16:
            what = f"the largest value of {len(found)} of them is {max(found):,} of {WHITE_OF_16_BITS:,}"
            yield f"images of 16 bit are dark: {what}; multiply the values, by 16 if they have 12 bits"


def _read_resized(path: Path, channels: int, resized: Callable[[Tensor], Tensor] | None) -> Tensor:
    image = read_image(path, channels)
    if resized is None:
        return image
    return resized(image)


class AudioFolder(ClassFolder):
    """Your own recordings: `<path>/<class>/*.wav|flac|ogg|mp3`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    Recordings keep their rates, and the tokenizer resamples. path, test_fraction, seed, skip_bad: as of `ClassFolder`.
    """

    suffixes = AUDIO.suffixes
    plural = "recordings"
    read = staticmethod(read_audio)
    header = staticmethod(audio_header)
    _rate: int | None = None
    _mixes = False

    def read_for(self, tokenizer: Any) -> None:
        """Keeps what the tokenizer does with rates and channels, for the log."""
        self._rate = getattr(tokenizer, "sample_rate", None)
        self._mixes = getattr(tokenizer, "channels", None) == "mix"

    def described(self, headers: Sequence[tuple[int, int, int]]) -> str:
        """Lengths, sample rates and channels of the recordings."""
        seconds = sorted(samples / rate for samples, rate, _ in headers)
        rates, channels = (sorted({header[i] for header in headers}) for i in (1, 2))
        said = (
            f"{seconds[0]:.3g} to {seconds[-1]:.3g} s, median {seconds[len(seconds) // 2]:.3g} s, "
            f"{' and '.join(_CHANNELS.get(c, f'{c} channels') for c in channels)}, at {listed(rates, 6)} Hz"
        )
        if self._rate is not None and rates != [self._rate]:
            said += f", resampled to {self._rate} Hz (--tokenizer.sample_rate)"
        return said

    def cautions(self, headers: Mapping[Path, tuple[int, int, int]]) -> Iterator[str]:
        """Recordings whose channels cancel each other when they are mixed, as of which one is the other's negative."""
        if not self._mixes:
            return
        several = [
            path for path, (samples, _, c) in headers.items() if c > 1 and samples * c < 10_000_000
        ]
        losses = tried(_loss_of_mix, several)
        if lost := [path.name for path, loss in losses.items() if loss > 20]:
            many = f"{len(lost)} of {len(losses)} recordings with several channels (first: {one_line(lost[0])})"
            yield f"{many} lose over 20 dB when mixed, as these cancel each other; --tokenizer.channels first takes one"


def _loss_of_mix(path: Path) -> float:
    """Ratio of the power of the channels to that of their mean, in dB."""
    samples = read_audio(path).samples.double()
    power = float((samples**2).mean())
    mixed = float((samples.mean(dim=0) ** 2).mean())
    if power == 0:
        return 0.0
    return 10 * log10(power / max(mixed, 1e-30))


class TextFolder(ClassFolder):
    """Your own UTF-8 texts by class: `<path>/<class>/*.txt|md`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    path, test_fraction, seed, skip_bad: as of `ClassFolder`; each text is read once beforehand.
    """

    suffixes = TEXT.suffixes
    plural = "texts"
    read = staticmethod(read_text)

    def header(self, path: Path) -> int:
        """Number of characters."""
        return len(read_text(path))

    def described(self, headers: Sequence[int]) -> str:
        """Lengths of the texts."""
        return between(headers, "characters")


def between(sizes: Sequence[int], unit: str) -> str:
    """The smallest and the largest size, in words."""
    low = min(sizes)
    high = max(sizes)
    if low == high:
        return f"of {low:,} {unit}"
    return f"of {low:,} to {high:,} {unit}"


def _no_tokenizer(_: Path) -> Any:
    raise ValueError("FileFolder has no tokenizer yet; call read_for(tokenizer)")


class FileFolder(ClassFolder):
    """Your own files of any format: `<path>/<class>/*`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    They are read by the tokenizer's `read`, each once before training, so that a fault is found before it. path,
    test_fraction, seed, skip_bad: as of `ClassFolder`; a file may also be left out because a tokenizer without `fit`
    cannot encode it.
    """

    read: Any = staticmethod(_no_tokenizer)
    header: Any = staticmethod(_no_tokenizer)

    def read_for(self, tokenizer: Any) -> None:
        """Take the tokenizer's `read`. Raises UsageError where it has none."""
        reader = own_reader(tokenizer)
        if reader is None:
            fault = f"is read by the tokenizer's read(path), which {type(tokenizer).__name__} does not have"
            raise UsageError(f"{self.path} {fault}; write it, or give another --tokenizer")
        self.read = reader
        self.header = reader.check

    def described(self, headers: Sequence[None]) -> str:
        """The tokenizer that reads them."""
        return f"read by {self.read}"


def tried(look: Callable[[Path], Any], paths: Sequence[Path]) -> dict[Path, Any]:
    """Finds of `look` in at most `LOOKED_AT` files, evenly from first to last, except in faulty ones."""
    found = {}
    for path in paths[:: -(-len(paths) // LOOKED_AT) or 1]:
        with suppress(DataError):
            found[path] = look(path)
    return found
