"""Folders of videos by class: files, or folders of frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from seqkit.data.clips import clip_header, read_clip, with_folders_of_frames
from seqkit.data.formats import VIDEO
from seqkit.data.sources.folder import ClassFolder
from seqkit.data.walk import Walked, walk


class VideoFolder(ClassFolder):
    """Your own videos: `<path>/<class>/*.mp4|mov|mkv|webm|gif`, `<path>/<class>/<video>/*.png|jpg|…`, or below `train`
    and `test`.

    A folder of images is one video, in the order of the numbers in their names. Of each video, the frames that the
    tokenizer samples are decoded, at its size and with its channels. path, test_fraction, seed, skip_bad: as of
    `ClassFolder`.
    """

    suffixes, plural = VIDEO.suffixes, "videos"
    read: Any = staticmethod(read_clip)
    header: Any = staticmethod(clip_header)

    def read_for(self, tokenizer: Any) -> None:
        """Take the frames, size and channels that the tokenizer takes."""
        self.read = partial(VIDEO.read_for, tokenizer=tokenizer)
        self.header = partial(clip_header, sample=getattr(tokenizer, "sample", None))

    def found(self, root: Path) -> tuple[Walked, list[str]]:
        """All that is below the folder, where a folder of images is one video."""
        return with_folders_of_frames(walk(root))

    def described(self, headers: Sequence[int]) -> str:
        """Numbers of frames."""
        low, high = min(headers), max(headers)
        return f"of {low:,} frames" if low == high else f"of {low:,} to {high:,} frames"
