"""Spoken digits in synthetic voices: list of clips, synthesis, cached file.

t samples
"""

from __future__ import annotations

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

from seqkit.data.download import find, writable
from seqkit.data.sample import Sample, Samples
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
TEST_VOICES = ("Andy", "Mario", "Storm", "f3", "f5", "grandpa", "kaukovalta", "m3", "m6", "miguel", "sandro", "travis")


def spoken_digits(takes: int) -> tuple[Samples, Samples]:
    """Training and test samples, from the cached file or synthesised now (seconds) and cached.

    Raises DataError if the synthesiser is missing or fails.
    """
    plan = list(_plan(takes))
    key = sha256(json.dumps([SAMPLE_RATE, plan]).encode()).hexdigest()[:12]
    name = f"spoken-digits/v1-{key}.npz"
    path = find(name)
    clips = _load(path, len(plan)) if path is not None else None
    if clips is None:
        with one_thread():
            clips = list(track(_at_8khz(_synthesise(plan)), "synthesising spoken digits", len(plan)))
        _save(writable(name), clips)
    return _samples(plan, clips)


def _plan(takes: int) -> Iterator[tuple[str, int, int, int]]:
    """(voice, digit, words a minute, pitch) of every clip; drawn by hash, so they are the same on every machine."""
    for variant in (*TRAIN_VOICES, *TEST_VOICES):
        for digit in range(10):
            for take in range(takes):
                draw = sha256(f"{variant} {digit} {take}".encode()).digest()
                yield f"{ACCENTS[draw[0] % len(ACCENTS)]}+{variant}", digit, 110 + draw[1] % 101, 20 + draw[2] % 61


def _synthesise(plan: list[tuple[str, int, int, int]]) -> Iterator[np.ndarray]:
    """[t] int16 at 22,050 Hz, clip by clip."""
    import_optional("espeakng_loader", "audio")
    lines = "".join(json.dumps([voice, WORDS[digit], rate, pitch]) + "\n" for voice, digit, rate, pitch in plan)
    command = [sys.executable, "-P", str(Path(__file__).with_name("espeak.py"))]
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=False)  # noqa: S603, our own file
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise DataError(f"the digits could not be synthesised: {reason.splitlines()[-1]}; reinstall espeakng-loader")
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


def _samples(plan: list[tuple[str, int, int, int]], clips: list[np.ndarray]) -> tuple[Samples, Samples]:
    from seqkit.raw import Waveform

    spoken, voices = [], [voice.partition("+")[2] for voice, *_ in plan]
    for i, ((voice, digit, *_), clip) in enumerate(zip(plan, clips, strict=True)):
        wave = Waveform(torch.from_numpy(clip.astype(np.float32) / 32768)[None], SAMPLE_RATE)
        spoken.append(Sample(wave, digit, name=f"clip {i}: {WORDS[digit]}, voice {voice}"))
    train = [sample for sample, voice in zip(spoken, voices) if voice not in TEST_VOICES]
    test = [sample._replace(group=voice) for sample, voice in zip(spoken, voices) if voice in TEST_VOICES]
    return Samples.of(train), Samples.of(test)


def _save(path: Path, clips: list[np.ndarray]) -> None:
    """Write all clips to one file."""
    content = io.BytesIO()
    np.savez(content, samples=np.concatenate(clips), ends=np.cumsum([len(clip) for clip in clips]))
    write_atomic(path, content.getvalue())


def _load(path: Path, num_clips: int) -> list[np.ndarray] | None:
    """The clips of a cached file, or None where it is damaged (they are then made again)."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            samples, ends = arrays["samples"], arrays["ends"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if samples.dtype != np.int16 or len(ends) != num_clips or ends[-1] != len(samples):
        return None
    return np.split(samples, ends[:-1])
