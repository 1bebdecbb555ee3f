"""Sounds in folders of their classes, mono at 8 kHz."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.defaults_data.case import Case, distinct, each_class, files_case, split, split_groups
from tests.benchmarks.defaults_data.packages import debian

DRAWS = {
    1: {"audio/waveforms": lambda: _waveforms(), "audio/chirps": lambda: _chirps()},
    2: {
        "audio/drums": lambda: _drums(),
        "audio/words": lambda: _words(),
        "audio/vowels": lambda: _vowels(),
        "audio/chords": lambda: _chords(),
    },
}
RATE = 8_000


def _sounds(name: str, rows: list[np.ndarray], targets: list[Any], is_test: np.ndarray | None = None) -> Case:
    return files_case("audio", rows, targets, split(len(rows), name) if is_test is None else is_test, _save_sound)


def _save_sound(path: Path, samples: np.ndarray) -> None:
    import soundfile

    soundfile.write(path, samples.astype(np.float32), RATE)


def _waveforms() -> Case:
    """Form of a wave of any pitch, in noise: sine, square, saw, triangle."""
    random, rate = np.random.default_rng(0), RATE
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(480):
        name = ("sine", "square", "saw", "triangle")[i % 4]
        time = np.arange(rate // 2) / rate * random.uniform(150, 600) + random.uniform()
        phase = time % 1
        wave = {
            "sine": np.sin(2 * math.pi * phase),
            "square": np.sign(phase - 0.5),
            "saw": 2 * phase - 1,
            "triangle": 4 * np.abs(phase - 0.5) - 1,
        }[name]
        rows.append(0.2 * wave + random.normal(0, random.uniform(0.02, 0.2), wave.shape))
        targets.append(name)
    return _sounds("waveforms", rows, targets)


def _chirps() -> Case:
    """Course of a pitch, in noise: up, down, up and down, constant."""
    random, rate = np.random.default_rng(1), RATE
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(480):
        name = ("up", "down", "bow", "flat")[i % 4]
        at = np.linspace(0, 1, rate // 2)
        course = {"up": at, "down": 1 - at, "bow": 1 - np.abs(2 * at - 1), "flat": np.full_like(at, 0.5)}[name]
        pitch = random.uniform(300, 900) * (1 + random.uniform(0.3, 1.0) * course)
        wave = np.sin(2 * math.pi * np.cumsum(pitch) / rate)
        rows.append(0.2 * wave + random.normal(0, random.uniform(0.02, 0.3), wave.shape))
        targets.append(name)
    return _sounds("chirps", rows, targets)


def _recording(path: Path, seconds: float) -> np.ndarray:
    """The first seconds of a file, mono at 8 kHz, from where it is first louder than a hundredth of its peak."""
    import soundfile
    from scipy.signal import resample_poly

    samples, rate = soundfile.read(path, always_2d=True)
    wave = resample_poly(samples.mean(1), RATE, rate)
    loud = np.flatnonzero(np.abs(wave) > 0.01 * np.abs(wave).max())
    return np.clip(wave[loud[0] : loud[0] + round(seconds * RATE)], -1, 1).astype(np.float32)


def _drums() -> Case:
    """Which part of a drum kit is struck; the test's kits are not among the training ones."""
    parts = {
        "kick": r"kick|bassdrum|^bd|_bd",
        "snare": r"snare|^sd|^sn\d*_|_sn_",
        "hat": r"hat|hh",
        "tom": r"(?<!s)tom|^tm|^f?t\d?_",
        "cymbal": r"crash|ride|splash|china|^rd|^cc_",
    }
    found: list[tuple[str, str]] = []
    rows: list[np.ndarray] = []
    for path in sorted((debian("hydrogen-drumkits") / "usr/share/hydrogen/data/drumkits").glob("*/*.*")):
        name = path.name.lower()
        named = [part for part, form in parts.items() if re.search(form, name)]
        if len(named) == 1 and path.suffix in (".wav", ".flac", ".aiff"):
            rows.append(_recording(path, 1.0))
            found.append((path.parent.name, named[0]))
    rows, found = distinct(rows, found)
    return _sounds("drums", rows, [part for _, part in found], split_groups([kit for kit, _ in found], "drums"))


def _words() -> Case:
    """Language of a word that is read aloud (KTuberling's), one voice for each of six languages."""
    place = debian("ktuberling-data") / "usr/share/ktuberling/sounds"
    languages = {"ca": "catalan", "da": "danish", "fr": "french", "lt": "lithuanian", "ru": "russian"}
    languages |= {"uk": "ukrainian"}
    found = [
        (_recording(path, 1.5), name) for code, name in languages.items() for path in sorted((place / code).glob("*.*"))
    ]
    return _sounds("words", *each_class(found, 200))


def _vowels() -> Case:
    """Vowel of a syllable of a consonant and a vowel, read aloud in four languages (KLettres')."""
    place = debian("klettres-data") / "usr/share/klettres"
    found: list[tuple[np.ndarray, str]] = []
    for language in ("es", "it", "ml", "pt_BR"):
        for path in sorted((place / language / "syllab").glob("*.ogg")):
            syllable = re.fullmatch(r"[^aeiou]+(a+|e+|i+|o+|u+)", path.stem)
            if syllable:
                found.append((_recording(path, 1.0), syllable[1][0]))
    return _sounds("vowels", *each_class(found, len(found)))


def _chords() -> Case:
    """Kind of a chord on any root and in any inversion, of decaying harmonics, in noise; seed 3."""
    random = np.random.default_rng(3)
    steps = {"major": (0, 4, 7), "minor": (0, 3, 7), "diminished": (0, 3, 6), "augmented": (0, 4, 8)}
    at = np.arange(RATE) / RATE
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(600):
        name = list(steps)[i % 4]
        root, lowest, wave = random.uniform(130, 260), random.integers(3), np.zeros(RATE)
        for note, step in enumerate(steps[name]):
            pitch = root * 2 ** (step / 12 + int(note < lowest))
            for harmonic in range(1, 5):
                phase = 2 * math.pi * (pitch * harmonic * at + random.uniform())
                wave += np.sin(phase) * np.exp(-at * random.uniform(1, 4)) / harmonic
        rows.append(0.1 * wave + random.normal(0, random.uniform(0.005, 0.05), RATE))
        targets.append(name)
    return _sounds("chords", rows, targets)
