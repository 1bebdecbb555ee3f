"""Audio: one sample is a `Waveform` ([c t] in [-1, 1] and its rate in Hz), its label a class."""

from __future__ import annotations

import re
from pathlib import Path

from seqkit.data.download import find, missing
from seqkit.data.io import read_audio
from seqkit.data.sample import Sample, Splits
from seqkit.data.source import DataSource
from seqkit.data.sources.speech import spoken_digits
from seqkit.errors import DataError, suggest

DIGITS = [str(d) for d in range(10)]


class Fsdd(DataSource):
    """`fsdd`, Free Spoken Digit Dataset: 3,000 recordings of ten digits by six speakers, 50 takes each, mono, 8 kHz.

    held_out: a speaker, all of whose recordings are test (leave one speaker out); None: the official split, in which
    takes 0 to 4 are test. folder: folder of the recordings `{digit}_{speaker}_{take}.wav`; None: in the data folder.
    """

    def __init__(self, held_out: str | None = None, *, folder: str | None = None):
        self.held_out, self.folder = held_out, folder

    def splits(self) -> Splits:
        """Raises DataError where recordings are missing or unreadable, ValueError for an unknown speaker."""
        rows = [(*self._parse(path), path) for path in self._recordings()]
        speakers = sorted({speaker for _, speaker, _, _ in rows})
        if self.held_out is not None and self.held_out not in speakers:
            raise ValueError(f"there is no speaker {self.held_out!r} to hold out; {suggest(self.held_out, speakers)}")
        train, test = list[int](), list[int]()
        for i, (_, speaker, take, _) in enumerate(rows):
            (test if (take < 5 if self.held_out is None else speaker == self.held_out) else train).append(i)
        if not train or not test:
            raise DataError(
                f"{rows[0][3].parent} has {len(train)} training and {len(test)} test recordings; both need some"
            )
        samples = [Sample(read_audio(path), digit, name=path.name) for digit, _, _, path in rows]
        of_test = [samples[i]._replace(group=rows[i][1] if self.held_out is None else None) for i in test]
        return Splits([samples[i] for i in train], of_test, None, DIGITS)

    def _recordings(self) -> list[Path]:
        name = "fsdd/recordings"
        folder = Path(self.folder) if self.folder is not None else find(name)
        clone = (
            "git clone https://github.com/Jakobovski/free-spoken-digit-dataset and copy its folder `recordings` there"
        )
        if folder is None:
            raise missing(name, clone)
        paths = sorted(folder.glob("*.wav"))
        if not paths:
            raise DataError(f"{folder} holds no WAV files; {clone}")
        if self.folder is None and len(paths) != 3000:
            raise DataError(f"{folder} holds {len(paths)} recordings, not FSDD's 3,000; {clone}")
        return paths

    def _parse(self, path: Path) -> tuple[int, str, int]:
        match = re.fullmatch(r"([0-9])_(.+)_([0-9]+)", path.stem)
        if match is None:
            raise DataError(f"{path} is not named {{digit}}_{{speaker}}_{{take}}.wav; rename it or take it out")
        return int(match[1]), match[2], int(match[3])


class SpokenDigits(DataSource):
    """`spoken-digits`: ten English digits in synthetic voices, 8 kHz, made once with espeak-ng (offline) and cached.

    takes: number of recordings of each digit and voice, each with an accent, speed and pitch of its own; 5 make 2,400
    training clips in 48 voices and 600 test clips in 12 other voices. The clips are the same on every machine.
    The rate is 8 kHz, as a digit's formants lie below 4 kHz and FSDD, the recorded counterpart, has that rate.
    """

    def __init__(self, *, takes: int = 5):
        if not 1 <= takes <= 1000:
            raise ValueError(f"takes is {takes}; give the number of recordings of each digit and voice, 1 to 1000")
        self.takes = takes

    def splits(self) -> Splits:
        """Raises DataError if espeakng-loader is missing or has not one of the voices."""
        train, test = spoken_digits(self.takes)
        return Splits(train, test, None, DIGITS)
