"""Feature extractors of pretrained models of sound: what they make of a waveform, as settings of a tokenizer.

Source: the feature extractors of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqkit.errors import DataError, suggest
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import Settings
from seqkit.pretrained.processors import config_of

RATE = 16_000


def audio_settings(folder: Path) -> Settings:
    """The section `tokenizer` of a recipe for the sounds of a foreign model, without the sizes of its first layers.

    folder: with `preprocessor_config.json` or `processor_config.json` of transformers.
    Raises DataError for a feature extractor that is not read, or a setting of it.
    """
    config = config_of(folder, "feature_extractor", ("feature_extractor_type",))
    kind = config.model_type
    if kind not in EXTRACTORS:
        raise DataError(
            f"{config.path}: the feature extractor {kind} is not read; {suggest(kind, EXTRACTORS)}"
        )
    found = EXTRACTORS[kind](config)
    config.log_unread()
    return found


def sounds(folder: Path, kind: str, sizes: dict[str, int]) -> Settings:
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


def _whisper(config: ConfigFile) -> Settings:
    config.must_be(RATE, "sampling_rate")
    config.must_be(160, "hop_length")
    config.must_be(400, "n_fft")
    config.must_be("right", "padding_side")
    config.must_be(0.0, "padding_value", "dither")
    return {
        "type": "WhisperMel",
        "num_mels": config.size("feature_size", 80),
        "seconds": config.size("chunk_length", 30),
    }


def _wav2vec2(config: ConfigFile) -> Settings:
    config.must_be(1, "feature_size")
    config.must_be(0.0, "padding_value")
    return {
        "type": "SampleWindows",
        "sample_rate": config.size("sampling_rate", RATE),
        "normalize": config.flag("do_normalize", True),
    }


EXTRACTORS: dict[str, Callable[[ConfigFile], Settings]] = {
    "WhisperFeatureExtractor": _whisper,
    "Wav2Vec2FeatureExtractor": _wav2vec2,
}
"""Readers by the name of the class."""
