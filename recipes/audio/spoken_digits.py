"""Spoken digits in synthetic voices: list of clips, synthesis by espeak-ng, cached file.

t samples
"""

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from seqkit import Waveform
from seqkit.data import DataSource, Sample, Splits
from seqkit.data.download import find, writable
from seqkit.data.source import import_optional
from seqkit.data.workers import one_thread
from seqkit.errors import DataError
from seqkit.files import write_atomic
from seqkit.progress import track

SAMPLE_RATE = 8000
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ACCENTS = ("en-us", "en-us-nyc", "en", "en-gb-scotland", "en-gb-x-rp", "en-029")
# espeak-ng's voice variants, without its robots, whispers and near copies
TRAIN_VOICES = (
    "Alex", "Alicia", "Andrea", "Annie", "Denis", "Diogo", "Gene", "Henrique", "Jacky", "Lee", "Marco", "Michael",
    "Mike", "Nguyen", "adam", "anika", "antonio", "aunty", "belinda", "boris", "ed", "f1", "f2", "f4", "grandma",
    "gustave", "ian", "iven", "john", "klatt", "linda", "m1", "m2", "m4", "m5", "m7", "m8", "marcelo", "max",
    "michel", "norbert", "paul", "quincy", "rob", "shelby", "steph", "victor", "zac",
)  # fmt: skip
TEST_VOICES = (
    "Andy",
    "Mario",
    "Storm",
    "f3",
    "f5",
    "grandpa",
    "kaukovalta",
    "m3",
    "m6",
    "miguel",
    "sandro",
    "travis",
)


class SpokenDigits(DataSource):
    """`spoken-digits`: ten English digits in synthetic voices, 8 kHz, made once with espeak-ng (offline) and cached.

    takes: number of recordings of each digit and voice, each with an accent, speed and pitch of its own; 5 make 2,400
    training clips in 48 voices and 600 test clips in 12 other voices. The clips are the same on every machine.
    The rate is 8 kHz, as a digit's formants lie below 4 kHz and FSDD, the recorded counterpart, has that rate.
    """

    def __init__(self, *, takes: int = 5):
        if not 1 <= takes <= 1000:
            raise ValueError(
                f"takes is {takes}; give the number of recordings of each digit and voice, 1 to 1000"
            )
        self.takes = takes

    def splits(self) -> Splits:
        """Raises DataError if espeakng-loader is missing or has not one of the voices."""
        plan, train, test = list(_plan(self.takes)), list[Sample](), list[Sample]()
        for i, ((voice, digit, *_), clip) in enumerate(zip(plan, _clips(plan), strict=True)):
            wave = Waveform(torch.from_numpy(clip.astype(np.float32) / 32768)[None], SAMPLE_RATE)
            sample = Sample(wave, digit, name=f"clip {i}: {WORDS[digit]}, voice {voice}")
            variant = voice.partition("+")[2]
            if variant in TEST_VOICES:
                test.append(sample._replace(group=variant))
            else:
                train.append(sample)
        return Splits(train, test, None, [str(d) for d in range(10)])


def _plan(takes: int) -> Iterator[tuple[str, int, int, int]]:
    """(voice, digit, words a minute, pitch) of every clip; drawn by hash, so they are the same on every machine."""
    for variant in (*TRAIN_VOICES, *TEST_VOICES):
        for digit in range(10):
            for take in range(takes):
                draw = sha256(f"{variant} {digit} {take}".encode()).digest()
                yield (
                    f"{ACCENTS[draw[0] % len(ACCENTS)]}+{variant}",
                    digit,
                    110 + draw[1] % 101,
                    20 + draw[2] % 61,
                )


def _clips(plan: list[tuple[str, int, int, int]]) -> list[np.ndarray]:
    """[t] int16 at 8 kHz for each clip, from the cached file or synthesised now (seconds) and cached."""
    key = sha256(json.dumps([SAMPLE_RATE, plan]).encode()).hexdigest()[:12]
    name = f"spoken-digits/v1-{key}.npz"
    try:
        with np.load(io.BytesIO((find(name) or Path()).read_bytes()), allow_pickle=False) as arrays:
            return np.split(arrays["samples"], arrays["ends"][:-1])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # none yet, or damaged
        with one_thread():
            clips = list(
                track(_at_8khz(_synthesised(plan)), "synthesising spoken digits", len(plan))
            )
    content = io.BytesIO()
    np.savez(content, samples=np.concatenate(clips), ends=np.cumsum([len(clip) for clip in clips]))
    write_atomic(writable(name), content.getvalue())
    return clips


def _synthesised(plan: list[tuple[str, int, int, int]]) -> Iterator[np.ndarray]:
    """[t] int16 at 22,050 Hz, clip by clip."""
    import_optional("espeakng_loader", "audio")
    lines = "".join(
        json.dumps([voice, WORDS[digit], rate, pitch]) + "\n" for voice, digit, rate, pitch in plan
    )
    command = [sys.executable, "-P", str(Path(__file__).with_name("espeak.py"))]
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=False)  # noqa: S603, our own file
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise DataError(
            f"the digits could not be synthesised: {reason.splitlines()[-1]}; reinstall espeakng-loader"
        )
    stream = io.BytesIO(done.stdout)
    while count := stream.read(4):
        yield np.frombuffer(stream.read(2 * int.from_bytes(count, "little")), dtype="<i2")


def _at_8khz(clips: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """[t] int16 at 8 kHz, without the silence before and after the word (below 1 % of its peak, 20 ms kept)."""
    from torchaudio.transforms import Resample

    resample, edge = Resample(22050, SAMPLE_RATE), SAMPLE_RATE // 50
    for clip in clips:
        samples: Tensor = resample(torch.from_numpy(clip.astype(np.float32)))
        loud = (samples.abs() > 0.01 * samples.abs().max()).nonzero()
        samples = samples[max(int(loud[0]) - edge, 0) : int(loud[-1]) + edge]
        yield samples.round().clamp(-32768, 32767).to(torch.int16).numpy()
