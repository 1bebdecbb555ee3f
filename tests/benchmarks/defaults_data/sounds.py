"""Sounds in folders of their classes, mono at 8 kHz."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.defaults_data.case import (
    Case,
    distinct,
    each_class,
    files_case,
    split,
    split_groups,
)
from tests.benchmarks.defaults_data.packages import debian

TUNE = {
    "audio/chirps": lambda: _chirps(),
    "audio/drums": lambda: _drums(),
    "audio/words": lambda: _words(),
}
JUDGE = {
    "audio/alphabets": lambda: _alphabets(),
    "audio/rhythms": lambda: _rhythms(),
    "audio/intervals": lambda: _intervals(),
}
RATE = 8_000


def _sounds(
    name: str, rows: list[np.ndarray], targets: list[Any], is_test: np.ndarray | None = None
) -> Case:
    return files_case(
        "audio", rows, targets, split(len(rows), name) if is_test is None else is_test, save_sound
    )


def save_sound(path: Path, samples: np.ndarray) -> None:
    import soundfile

    soundfile.write(path, samples.astype(np.float32), RATE)


def _chirps() -> Case:
    """Course of a pitch, in noise: up, down, up and down, constant."""
    random, rate = np.random.default_rng(1), RATE
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(480):
        name = ("up", "down", "bow", "flat")[i % 4]
        at = np.linspace(0, 1, rate // 2)
        course = {
            "up": at,
            "down": 1 - at,
            "bow": 1 - np.abs(2 * at - 1),
            "flat": np.full_like(at, 0.5),
        }[name]
        pitch = random.uniform(300, 900) * (1 + random.uniform(0.3, 1.0) * course)
        wave = np.sin(2 * math.pi * np.cumsum(pitch) / rate)
        rows.append(0.2 * wave + random.normal(0, random.uniform(0.02, 0.3), wave.shape))
        targets.append(name)
    return _sounds("chirps", rows, targets)


def recording(path: Path, seconds: float) -> np.ndarray:
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
    for path in sorted(
        (debian("hydrogen-drumkits") / "usr/share/hydrogen/data/drumkits").glob("*/*.*")
    ):
        name = path.name.lower()
        named = [part for part, form in parts.items() if re.search(form, name)]
        if len(named) == 1 and path.suffix in (".wav", ".flac", ".aiff"):
            rows.append(recording(path, 1.0))
            found.append((path.parent.name, named[0]))
    rows, found = distinct(rows, found)
    return _sounds(
        "drums", rows, [part for _, part in found], split_groups([kit for kit, _ in found], "drums")
    )


def _words() -> Case:
    """Language of a word that is read aloud (KTuberling's), one voice for each of six languages."""
    place = debian("ktuberling-data") / "usr/share/ktuberling/sounds"
    languages = {
        "ca": "catalan",
        "da": "danish",
        "fr": "french",
        "lt": "lithuanian",
        "ru": "russian",
    }
    languages |= {"uk": "ukrainian"}
    found = [
        (recording(path, 1.5), name)
        for code, name in languages.items()
        for path in sorted((place / code).glob("*.*"))
    ]
    return _sounds("words", *each_class(found, 200))


def _alphabets() -> Case:
    """Language of a letter that is read aloud (KLettres'), one voice for each of eight languages."""
    place, languages = (
        debian("klettres-data") / "usr/share/klettres",
        ("cs", "da", "de", "he", "hu", "lt", "nb", "ru"),
    )
    found = [
        (recording(path, 1.2), code)
        for code in languages
        for path in sorted((place / code / "alpha").glob("*"))
    ]
    return _sounds("alphabets", *each_class(found, 40))


def _rhythms() -> Case:
    """Rhythm of clicks of any tempo and pitch, in noise: even, in twos, in threes, or at random; seed 11."""
    random = np.random.default_rng(11)
    accents = {"even": [1.0], "twos": [1.0, 0.3], "threes": [1.0, 0.3, 0.3]}
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(480):
        name, wave, at = (*accents, "random")[i % 4], np.zeros(2 * RATE), random.uniform(0, 0.2)
        beat, pitch, n = random.uniform(0.12, 0.25), random.uniform(400, 2000), 0
        while at < 1.9:
            start, time = int(at * RATE), np.arange(800) / RATE
            strength = (
                random.uniform(0.2, 1.0)
                if name == "random"
                else accents[name][n % len(accents[name])]
            )
            wave[start : start + 800] += (
                strength * np.sin(2 * math.pi * pitch * time) * np.exp(-40 * time)
            )
            at, n = at + beat, n + 1
        rows.append(0.4 * wave + random.normal(0, random.uniform(0.005, 0.05), len(wave)))
        targets.append(name)
    return _sounds("rhythms", rows, targets)


def _intervals() -> Case:
    """Two notes of any pitch after one another, with harmonics: a third, a fifth or an octave, up or down; seed 12."""
    random, time = np.random.default_rng(12), np.arange(RATE // 2) / RATE
    steps = {"third": 4, "fifth": 7, "octave": 12}
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(480):
        name, way = list(steps)[i % 3], (1, -1)[i // 3 % 2]
        low = random.uniform(200, 400)
        notes = [low, low * 2 ** (steps[name] / 12)][::way]
        decay = np.exp(-time * random.uniform(2, 8))
        wave = [
            sum(np.sin(2 * math.pi * h * note * time) / h for h in (1, 2, 3)) * decay
            for note in notes
        ]
        rows.append(
            0.2 * np.concatenate(wave) + random.normal(0, random.uniform(0.005, 0.05), RATE)
        )
        targets.append(f"{name} {'up' if way == 1 else 'down'}")
    return _sounds("intervals", rows, targets)
