"""Recorded digits: one sample is a `Waveform` ([c t] in [-1, 1] and its rate in Hz), its label a class."""

import re
from pathlib import Path

from seqkit.data import DataSource, Sample, Splits, read_audio
from seqkit.data.download import find, missing
from seqkit.errors import DataError, suggest

CLONE = "git clone https://github.com/Jakobovski/free-spoken-digit-dataset and copy its folder `recordings` there"


class Fsdd(DataSource):
    """`fsdd`, Free Spoken Digit Dataset: 3,000 recordings of ten digits by six speakers, 50 takes each, mono, 8 kHz.

    held_out: a speaker, all of whose recordings are test (leave one speaker out); None: the official split, in which
    takes 0 to 4 are test. folder: folder of the recordings `{digit}_{speaker}_{take}.wav`; None: in the data folder.
    """

    def __init__(self, held_out: str | None = None, *, folder: str | None = None):
        self.held_out, self.folder = held_out, folder

    def splits(self) -> Splits:
        """Raises DataError where recordings are missing or unreadable, ValueError for an unknown speaker."""
        speakers, train, test = set[str](), list[Sample](), list[Sample]()
        for path in self._recordings():
            match = re.fullmatch(r"([0-9])_(.+)_([0-9]+)", path.stem)
            if match is None:
                raise DataError(
                    f"{path} is not named {{digit}}_{{speaker}}_{{take}}.wav; rename it or take it out"
                )
            speakers.add(match[2])
            is_test = int(match[3]) < 5 if self.held_out is None else match[2] == self.held_out
            # one speaker is no sample of speakers
            group = match[2] if is_test and self.held_out is None else None
            (test if is_test else train).append(
                Sample(read_audio(path), int(match[1]), group, path.name)
            )
        if self.held_out is not None and self.held_out not in speakers:
            raise ValueError(
                f"there is no speaker {self.held_out!r} to hold out; {suggest(self.held_out, speakers)}"
            )
        return Splits(train, test, None, [str(d) for d in range(10)])

    def _recordings(self) -> list[Path]:
        folder = find("fsdd/recordings") if self.folder is None else Path(self.folder)
        if folder is None:
            raise missing("fsdd/recordings", CLONE)
        paths = sorted(folder.glob("*.wav"))
        if not paths or (self.folder is None and len(paths) != 3000):
            raise DataError(f"{folder} holds {len(paths)} WAV files, not FSDD's 3,000; {CLONE}")
        return paths
