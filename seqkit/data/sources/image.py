"""Your own images: one sample is [c h w] in [0, 1], its label a class.

c channels · h height · w width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from seqkit.data.formats import IMAGE
from seqkit.data.io import image_header, read_image
from seqkit.data.sample import Splits
from seqkit.data.sources.folder import ClassFolder, ClassNames, FileKind
from seqkit.errors import UsageError


class ImageFolder(ClassFolder):
    """Your own images: `<path>/<class>/*.png|jpg|…`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    channels: 1 grey or 3 colours; None: the tokenizer's number. Images are resized when they are read, as the tokenizer
    does, so that augmentations work on small ones; those of a `Resize` with a larger size than crop stay as they are
    until then.
    classes: folder whose name is the class of a file: "last", the one that it is in; "first", the one at the top; or
    "none". path: the folder. test_fraction, seed: share of each class that is test where no folders name the splits,
    and the seed of its choice.
    skip_bad: most files to leave out because they cannot be read; above 0, each is read once beforehand.
    """

    def __init__(
        self,
        path: str,
        *,
        channels: int | None = None,
        test_fraction: float = 0.2,
        seed: int = 0,
        classes: ClassNames = "last",
        skip_bad: int = 0,
    ):
        super().__init__(path, test_fraction=test_fraction, seed=seed, classes=classes, skip_bad=skip_bad)
        self.channels = channels
        self._num_channels = 3 if channels is None else channels
        self._resized: Callable[[Tensor], Tensor] | None = None
        self._rule = ""

    def splits(self) -> Splits:
        """Files are read on access; their headers are looked at now. Raises DataError for a faulty folder or file."""
        read = partial(_read_resized, channels=self._num_channels, resized=self._resized)
        kind = FileKind(IMAGE.suffixes, read, image_header, self._described, "images")
        return self._of(kind)

    def read_for(self, tokenizer: Any) -> None:
        """Take the tokenizer's channels and size. Raises UsageError where other channels were asked for."""
        from seqkit.tokenizers import Patches  # brings torchvision

        if not isinstance(tokenizer, Patches):
            return
        if self.channels is None and tokenizer.channels in (1, 3):
            self._num_channels = tokenizer.channels
        elif self.channels not in (None, tokenizer.channels):
            raise UsageError(
                f"images are read with {self.channels} channels, and the tokenizer takes {tokenizer.channels}; give "
                f"--tokenizer.channels {self.channels}, or leave data.source.channels out"
            )
        if (resizing := tokenizer.resizing) is not None:
            if resizing.keeps_its_result:  # others would be resized twice
                self._resized = tokenizer.resized
            part = "their middle is" if tokenizer.crop or resizing.crop else "they are"
            size = f"a shorter side of {resizing.size}" if tokenizer.size is None else "{} × {}".format(*tokenizer.size)
            self._rule = f"; {part} resized to {size} (--tokenizer.resize)"

    def _described(self, headers: Sequence[tuple[int, int, bool]]) -> str:
        """Sizes of the images, in words, and how many have transparency."""
        found = [(height, width) for height, width, _ in headers]
        small, large = (f"{h} × {w}" for h, w in (f(found, key=lambda size: size[0] * size[1]) for f in (min, max)))
        sizes = small if len(set(found)) == 1 else f"from {small} to {large}"
        num_transparent = sum(is_transparent for *_, is_transparent in headers)
        dropped = f"; the transparency of {num_transparent:,} is dropped" if num_transparent else ""
        colour = "in grey" if self._num_channels == 1 else "in colour"
        return f"{sizes} pixels, read {colour}{self._rule}{dropped}"


def _read_resized(path: Path, channels: int, resized: Callable[[Tensor], Tensor] | None) -> Tensor:
    image = read_image(path, channels)
    return image if resized is None else resized(image)
