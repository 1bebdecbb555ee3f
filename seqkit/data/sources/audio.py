"""Your own recordings: one sample is a `Waveform` ([c t] in [-1, 1] and its rate in Hz), its label a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqkit.data.formats import AUDIO
from seqkit.data.io import audio_header, read_audio
from seqkit.data.sample import Splits
from seqkit.data.sources.folder import ClassFolder, FileKind


class AudioFolder(ClassFolder):
    """Your own recordings: `<path>/<class>/*.wav|flac|ogg|mp3`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    Recordings keep their rates, and the tokenizer resamples. classes: folder whose name is the class of a file: "last",
    the one that it is in; "first", the one at the top; or "none". path: the folder. test_fraction, seed: share of each
    class that is test where no folders name the splits, and the seed of its choice.
    skip_bad: most files to leave out because they cannot be read; above 0, each is read once beforehand.
    """

    _tokenizer_rate: int | None = None

    def splits(self) -> Splits:
        """Files are read on access; their headers are looked at now. Raises DataError for a faulty folder or file."""
        kind = FileKind(AUDIO.suffixes, read_audio, audio_header, self._described, "recordings")
        return self._of(kind)

    def read_for(self, tokenizer: Any) -> None:
        """Keeps the tokenizer's rate, which the log names."""
        self._tokenizer_rate = getattr(tokenizer, "sample_rate", None)

    def _described(self, headers: Sequence[tuple[int, int, int]]) -> str:
        """Lengths, sample rates and channels of the recordings, in words."""
        seconds = sorted(samples / rate for samples, rate, _ in headers)
        rates, channels = ({header[i] for header in headers} for i in (1, 2))
        wanted = self._tokenizer_rate
        is_resampled = wanted is not None and rates != {wanted}
        return (
            f"{seconds[0]:.3g} to {seconds[-1]:.3g} s, median {seconds[len(seconds) // 2]:.3g} s, "
            f"{' and '.join(_CHANNELS.get(c, f'{c} channels') for c in sorted(channels))}, "
            f"at {', '.join(map(str, sorted(rates)[:6]))}{', …' if len(rates) > 6 else ''} Hz"
            f"{f', resampled to {wanted} Hz (--tokenizer.sample_rate)' if is_resampled else ''}"
        )


_CHANNELS = {1: "mono", 2: "stereo"}
