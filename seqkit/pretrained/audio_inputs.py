"""Feature extractors of pretrained models of sound: what they make of a waveform, as settings of a tokenizer.

Source: the feature extractors of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqkit.errors import DataError, suggest
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.processors import NESTED, PLAIN, has_section

RATE = 16_000


def audio_settings(folder: Path) -> dict[str, Any]:
    """The section `tokenizer` of a recipe for the sounds of a foreign model, without the sizes of its first layers.

    folder: with `preprocessor_config.json` or `processor_config.json` of transformers.
    Raises DataError for a feature extractor that is not read, or a setting of it.
    """
    nested = has_section(folder / NESTED, "feature_extractor")
    path = folder / (NESTED if nested else PLAIN)
    config = ConfigFile(
        path,
        kinds=("feature_extractor_type",),
        section="feature_extractor" if nested else None,
    )
    kind = config.model_type
    if kind not in EXTRACTORS:
        raise DataError(
            f"{path}: the feature extractor {kind} is not read; {suggest(kind, EXTRACTORS)}"
        )
    found = EXTRACTORS[kind](config)
    config.warn_of_unread()
    return found


def sounds(folder: Path, kind: str, sizes: dict[str, int]) -> dict[str, Any]:
    """`audio_settings` of a model whose tokenizer is of that kind. sizes: values that its tables need.

    Raises DataError, beside what that raises, for another kind or other values.
    """
    found = audio_settings(folder)
    if found["type"] != kind or any(found[name] != size for name, size in sizes.items()):
        sized = "".join(f", {name}={size}" for name, size in sizes.items())
        raise DataError(
            f"{folder}: its feature extractor is {found}, and the model is for {kind}{sized}"
        )
    return found


def _whisper(config: ConfigFile) -> dict[str, Any]:
    for value, name in (
        (RATE, "sampling_rate"),
        (160, "hop_length"),
        (400, "n_fft"),
        ("right", "padding_side"),
    ):
        config.must_be(value, name)
    config.must_be(0.0, "padding_value", "dither")
    return {
        "type": "WhisperMel",
        "num_mels": config.size("feature_size", 80),
        "seconds": config.size("chunk_length", 30),
    }


def _wav2vec2(config: ConfigFile) -> dict[str, Any]:
    config.must_be(1, "feature_size")
    config.must_be(0.0, "padding_value")
    return {
        "type": "SampleWindows",
        "sample_rate": config.size("sampling_rate", RATE),
        "normalize": _flag(config, "do_normalize"),
    }


def _flag(config: ConfigFile, name: str) -> bool:
    value = config.get(name, True)
    if not isinstance(value, bool):
        raise config.refused(name, "true or false")
    return value


EXTRACTORS: dict[str, Callable[[ConfigFile], dict[str, Any]]] = {
    "WhisperFeatureExtractor": _whisper,
    "Wav2Vec2FeatureExtractor": _wav2vec2,
}
"""Readers by the name of the class."""
