"""Videos: GIFs, folders of frames, and MP4 and its like by PyAV, of which the sampled frames are decoded.

t frames · c channels · h height · w width
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.data.formats import IMAGE, VIDEO
from seqkit.data.io import MAX_PIXELS, image_header, open_image, read_bytes, read_image
from seqkit.data.source import import_optional
from seqkit.data.sources.folder import ClassFolder
from seqkit.data.sources.folder_kinds import between
from seqkit.data.splits import SPLIT_NAMES
from seqkit.data.walk import Walked, suffix_of, walk
from seqkit.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

FRAMES = tuple(suffix for suffix in IMAGE.suffixes if suffix not in VIDEO.suffixes)
"""Suffixes of the frames in a folder that is one video; a GIF is a video itself."""

CONTAINERS = {4: (b"ftyp", "mov"), 0: (b"\x1aE\xdf\xa3", "matroska")}
"""FFmpeg's formats by the bytes at an offset. No other is tried: playlists would open other files and addresses."""

Video = tuple[int, Callable[[Sequence[int]], Iterator[Tensor]]]
"""Number of frames, and a function that decodes those of some ascending indices, each [c h w] in [0, 1]."""


def read_clip(
    path: str | Path,
    channels: int = 3,
    sample: Callable[[int], Sequence[int]] | None = None,
    resized: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """The sampled frames of a video as [t c h w] in [0, 1]: a file, or a folder of images, in the order of their names.

    channels: 1 grey, 3 red, green, blue. sample: gives the ascending indices of a clip's frames for the number of the
    video's; None: the run takes no videos. resized: is called with each frame.
    Images and MP4 decode the sampled frames (MP4 from the key frame before each); GIF also those before them, whose
    changes they are, one at a time. Raises DataError where the video is missing, truncated, too short for `sample`, or
    has frames of unlike sizes.
    """
    path = Path(path)
    if sample is None:
        raise DataError(
            f"{path} is a video, and these examples are none; give a tokenizer of clips, such as Tubelets"
        )
    with _opened(path, channels) as (num_frames, decode):
        return torch.stack(
            [frame if resized is None else resized(frame) for frame in decode(sample(num_frames))]
        )


def clip_header(path: str | Path, sample: Callable[[int], Sequence[int]] | None = None) -> int:
    """Number of frames of a video. Raises as `read_clip`, but for frames that are damaged inside."""
    with _opened(Path(path), 3) as (num_frames, _):
        if sample is not None:
            sample(num_frames)
        return num_frames


def with_folders_of_frames(below: Walked) -> tuple[Walked, list[str]]:
    """The same files, but in place of those of a folder of frames the folder; and the names of all videos."""
    folders = {name.rpartition("/")[0] for name in below.files if suffix_of(name) in FRAMES}
    others = [name for name in below.files if suffix_of(name) not in FRAMES]
    files = sorted([*others, *folders], key=lambda name: name.split("/"))
    kept = [name for name in below.folders if name not in folders]
    fitting = [name for name in files if name in folders or VIDEO.fits(name)]
    return Walked(files, kept, below.num_hidden, below.skipped), fitting


def holds_clips(root: Path, names: Sequence[str]) -> bool:
    """Whether a folder of these files holds videos: MP4 and its like, GIFs that move, or folders of frames.

    The latter are below the folders of the classes, numbered and of one size: `wave/clip7/frame_001.png`.
    """
    fitting = [name for name in names if VIDEO.fits(name)]
    if any(suffix_of(name) != ".gif" for name in fitting):
        return True
    folders: dict[str, list[str]] = {}
    for name in (name for name in names if suffix_of(name) in FRAMES):
        folder, _, file = name.rpartition("/")
        folders.setdefault(folder, []).append(Path(file).stem)
    found = [*folders] or fitting
    some = [root / name for name in found[:: -(-len(found) // 5) or 1]]
    if not folders:
        return any(map(_moves, some))
    depths = {
        folder.count("/") - (folder.split("/")[0].lower() in SPLIT_NAMES) for folder in folders
    }
    return min(depths) > 0 and all(map(_are_numbered, folders.values())) and all(map(_moves, some))


def _are_numbered(stems: Sequence[str]) -> bool:
    """Whether two names or more end in numbers that follow each other."""
    numbers = sorted(int(found[0]) for stem in stems if (found := re.search(r"\d+$", stem)))
    return len(numbers) > 1 and numbers == [*range(numbers[0], numbers[0] + len(stems))]


def _moves(path: Path) -> bool:
    with suppress(DataError):
        return clip_header(path) > 1
    return False


@contextmanager
def _opened(path: Path, channels: int) -> Iterator[Video]:
    """A video of which nothing is decoded yet. Raises DataError for whatever goes wrong with it inside `with`."""
    start = b"" if path.is_dir() else read_bytes(path, 12)
    format = next(
        (name for at, (mark, name) in CONTAINERS.items() if start[at:].startswith(mark)), ""
    )
    try:
        if path.is_dir():
            yield _of_folder(path, channels)
        elif start.startswith(b"GIF"):
            # PIL reads what is left, and says nothing
            if not read_bytes(path).rstrip(b"\0").endswith(b";"):
                raise DataError("is truncated: a GIF ends with a semicolon; copy it again")
            with open_image(path) as file:
                yield getattr(file, "n_frames", 1), partial(_of_gif, file, channels)
        elif format:
            with _of_av(path, format, channels) as video:
                yield video
        else:
            raise DataError("is no video; give MP4, MOV, MKV, WebM, GIF, or a folder of images")
    except DataError as error:
        raise error if str(path) in str(error) else DataError(f"{path} {error}") from None


def _of_folder(path: Path, channels: int) -> Video:
    files = [
        file
        for file in path.iterdir()
        if suffix_of(file.name) in FRAMES and not file.name.startswith(".")
    ]
    if not files:
        raise DataError(
            f"holds no frames; give a folder of {', '.join(FRAMES)} files, or take it out"
        )
    files.sort(
        key=lambda file: (
            [int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", file.name)],
            file.name,  # 1.png and 01.png
        )
    )
    first = image_header(files[0])[:2]
    for file in files:
        if (size := image_header(file)[:2]) != first:
            found, other = ("{} × {}".format(*one) for one in (size, first))
            raise DataError(
                f"{file} is {found} pixels, and {files[0].name} beside it {other}; give frames of one size"
            )
    return len(files), lambda indices: (read_image(files[i], channels) for i in indices)


@contextmanager
def _of_av(path: Path, format: str, channels: int) -> Iterator[Video]:
    av = import_optional("av", "video")
    try:
        with av.open(str(path), format=format) as container:
            if not container.streams.video:
                raise DataError("has no pictures, only sound; take it out")
            stream = container.streams.video[0]
            if stream.width * stream.height > MAX_PIXELS:
                raise DataError(
                    f"has frames of more than {MAX_PIXELS / 1e6:g} megapixels; make them smaller"
                )
            packets = [
                (p.pts, p.is_keyframe)
                for p in container.demux(stream)
                if p.size and p.pts is not None
            ]
            if len(packets) < stream.frames:
                raise DataError(
                    f"is truncated: it declares {stream.frames} frames and holds {len(packets)}"
                )
            times = sorted(pts for pts, _ in packets)
            keys = sorted(pts for pts, is_key in packets if is_key)

            def decode(indices: Sequence[int]) -> Iterator[Tensor]:  # no frame twice
                last = -math.inf
                decoded = cast(Iterator[Any], iter(()))
                for wanted in (times[i] for i in indices):
                    key = max((time for time in keys if time <= wanted), default=times[0])
                    if key > last:
                        container.seek(key, stream=stream)
                        decoded = container.decode(stream)
                    frame = next(
                        (
                            frame
                            for frame in decoded
                            if frame.pts is not None and frame.pts >= wanted
                        ),
                        None,
                    )
                    if frame is None:
                        raise EOFError("its data ends too early")
                    last = frame.pts
                    # as phones write it
                    yield _tensor(frame.to_image().rotate(frame.rotation, expand=True), channels)

            yield len(times), decode
    except (av.error.FFmpegError, EOFError) as error:
        raise DataError(
            f"cannot be read as a video ({getattr(error, 'strerror', error)}); copy it again"
        ) from error


def _of_gif(file: Image.Image, channels: int, indices: Sequence[int]) -> Iterator[Tensor]:
    for index in indices:
        file.seek(index)  # a frame is a change of the one before it
        yield _tensor(file.convert("RGBA"), channels)


def _tensor(image: Image.Image, channels: int) -> Tensor:
    """[c h w] in [0, 1] of 8 bits."""
    pixels = np.asarray(
        image.convert("RGB").convert("L" if channels == 1 else "RGB"), dtype=np.float32
    )
    return torch.from_numpy(
        rearrange(pixels, "h w -> 1 h w" if pixels.ndim == 2 else "h w c -> c h w") / 255
    )


class VideoFolder(ClassFolder):
    """Your own videos: `<path>/<class>/*.mp4|gif|…`, or `<path>/<class>/<video>/*.png|…`, or below `train` and `test`.

    A folder of images is one video, in the order of the numbers in their names. Of each video, the frames that the
    tokenizer samples are decoded. path, test_fraction, seed, skip_bad: as of `ClassFolder`.
    """

    suffixes = VIDEO.suffixes
    plural = "videos"
    read: Any = staticmethod(read_clip)
    header: Any = staticmethod(clip_header)

    def read_for(self, tokenizer: Any) -> None:
        """Take the tokenizer's frames, channels and size."""
        self.read = partial(VIDEO.read_for, tokenizer=tokenizer)
        self.header = partial(clip_header, sample=getattr(tokenizer, "sample", None))

    def found(self, root: Path) -> tuple[Walked, list[str]]:
        """Files below the folder, where a folder of images is one file, and the names of the videos."""
        return with_folders_of_frames(walk(root))

    def described(self, headers: Sequence[int]) -> str:
        """Numbers of frames."""
        return between(headers, "frames")
