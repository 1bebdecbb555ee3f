"""Strings of spoken digits: recordings of one speaker, three to seven of them, joined with pauses.

t samples
"""

from collections.abc import Iterator, Sequence
from random import Random

import torch

from seqkit import Waveform
from seqkit.data import DataSource, Sample, Splits
from seqkit.recipes.audio.fsdd import Fsdd
from seqkit.recipes.audio.spoken_digits import WORDS, SpokenDigits

VALID_TAKES = range(5, 10)
"""FSDD's takes of the validation strings; the official split has takes 0 to 4 for test."""


class DigitStrings(DataSource):
    """`digit-strings`: three to seven digits of one speaker with pauses of 0 to 0.4 s; the label is their words.

    A round takes every recording of a speaker once, in an order of its own. The test split has one, so each of FSDD's
    300 test recordings is in one string. Validation has takes 5 to 9 of FSDD, which training then lacks, or a sixth of
    the voices. A pause is noise 60 dB below full scale.
    digits: where the recordings are from: `fsdd`, or `spoken-digits`, synthesised voices.
    held_out: of FSDD, a speaker, all of whose recordings are test; None: the official split.
    rounds: number of rounds of the training split. folder: of FSDD's recordings, as of `fsdd`.
    """

    def __init__(
        self,
        digits: str = "fsdd",
        *,
        held_out: str | None = None,
        rounds: int = 3,
        folder: str | None = None,
    ):
        if digits not in ("fsdd", "spoken-digits"):
            raise ValueError(f"digits={digits!r}; choose 'fsdd' or 'spoken-digits'")
        if digits != "fsdd" and (held_out is not None or folder is not None):
            raise ValueError("held_out and folder are of FSDD; leave them out with spoken-digits")
        if not 1 <= rounds <= 1000:
            raise ValueError(
                f"rounds={rounds} says how often training takes a recording; give 1 to 1000"
            )
        self.digits, self.held_out, self.rounds, self.folder = digits, held_out, rounds, folder

    def splits(self) -> Splits:
        """Raises as the source of the recordings."""
        is_fsdd = self.digits == "fsdd"
        made = (Fsdd(self.held_out, folder=self.folder) if is_fsdd else SpokenDigits()).splits()
        train, valid = list[Sample](), list[Sample]()
        voices = sorted({speaker_of(sample) for sample in made.train})
        for sample in made.train:
            is_valid = (
                take_of(sample) in VALID_TAKES if is_fsdd else speaker_of(sample) in voices[::6]
            )
            (valid if is_valid else train).append(sample)
        by_speaker = is_fsdd and self.held_out is not None  # one speaker is no sample of speakers
        strings = [
            list(_strings(samples, split, rounds))
            for split, samples, rounds in (
                ("train", train, self.rounds),
                ("test", made.test, 1),
                ("valid", valid, 1),
            )
        ]
        strings[1] = [
            sample._replace(group=None) if by_speaker else sample for sample in strings[1]
        ]
        return Splits(*strings)


def speaker_of(sample: Sample) -> str:
    """The speaker or voice of a recording."""
    return sample.name.split("_")[1] if "_" in sample.name else sample.name.rpartition("voice ")[2]


def take_of(sample: Sample) -> int:
    """The take of a recording of FSDD."""
    return int(sample.name.removesuffix(".wav").rpartition("_")[2])


def _strings(samples: Sequence[Sample], split: str, rounds: int) -> Iterator[Sample]:
    speakers: dict[str, list[Sample]] = {}
    for sample in samples:
        speakers.setdefault(speaker_of(sample), []).append(sample)
    for speaker, own in sorted(speakers.items()):
        for number in range(rounds):
            random = Random(f"{split} {speaker} {number}")  # noqa: S311  draws strings, no secrets
            order = random.sample(own, len(own))
            while order:
                # the last string of a round may be shorter
                taken, order = order[: (k := random.randint(3, 7))], order[k:]
                yield _joined(taken, random)._replace(group=speaker)


def _joined(taken: Sequence[Sample], random: Random) -> Sample:
    """One recording of several, with a pause between two."""
    generator = torch.Generator().manual_seed(random.getrandbits(62))
    rate, pieces = taken[0].raw.sample_rate, list[torch.Tensor]()
    for sample in taken:
        pause = int(random.uniform(0, 0.4) * rate) if pieces else 0
        pieces += [1e-3 * torch.randn(1, pause, generator=generator), sample.raw.samples]
    words = " ".join(WORDS[sample.label] for sample in taken)
    return Sample(
        Waveform(torch.cat(pieces, dim=1), rate),
        words,
        name=" ".join(sample.name for sample in taken),
    )
