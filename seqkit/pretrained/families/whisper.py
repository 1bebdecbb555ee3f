"""Whisper (transformers 5.23): two convolutions over log-mel frames and an encoder, alone or with its decoder."""

from __future__ import annotations

from pathlib import Path

from seqkit.errors import DataError
from seqkit.pretrained.audio_inputs import sounds
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.encoder_decoder import (
    SIDES,
    Generation,
    Kind,
    lacks_decoder,
    writes,
    written_state,
)
from seqkit.pretrained.family import Family, Head, Settings, learned
from seqkit.pretrained.rows import Rows, alias, module, tensor

LAYERS = Kind(384, 4, 6, 1536, dropout=0.0, is_pre_norm=True, has_key_bias=False)


def _encoder(config: ConfigFile) -> Settings:
    """Section `model` of the encoder alone."""
    config.must_be(False, "scale_embedding")
    LAYERS.settings(config, "decoder")  # its keys are read, though nothing is made of them
    _longest(config)
    return {
        "position": learned(_num_tokens(config)),
        "dropout": LAYERS.dropout_of(config),
        "backbone": LAYERS.settings(config, "encoder"),
    }


def _whole(config: ConfigFile) -> Settings:
    """Section `model` of encoder and decoder."""
    config.must_be(True, "tie_word_embeddings")
    found = _encoder(config)
    sides = {side: LAYERS.settings(config, side) for side in SIDES}
    return {
        **found,
        "positions": {"source": found["position"]},
        "position": learned(_longest(config)),
        "backbone": {"type": "EncoderDecoder", **sides},
    }


def _num_tokens(config: ConfigFile) -> int:
    """Tokens of the encoder, 50 a second. Raises DataError for parts of a second."""
    found = config.size("max_source_positions", 1500)
    if found % 50:
        raise config.refused("max_source_positions", "a multiple of 50: whole seconds")
    return found


def _longest(config: ConfigFile) -> int:
    """Positions of the decoder."""
    return config.size("max_target_positions", 448)


def _encoder_rows(config: ConfigFile, embedder: str, backbone: str) -> Rows:
    return [
        *module(f"{embedder}.content.conv1", "encoder.conv1"),
        *module(f"{embedder}.content.conv2", "encoder.conv2"),
        *tensor(f"{embedder}.position.tables.0", "encoder.embed_positions.weight"),
        *LAYERS.rows(config, "encoder", backbone),
    ]


def _whole_table(config: ConfigFile) -> Rows:
    return [
        *_encoder_rows(config, "source_embedder", "backbone.encoder"),
        *tensor(TABLE, "decoder.embed_tokens.weight"),
        *tensor("embedder.position.tables.0", "decoder.embed_positions.weight"),
        *LAYERS.rows(config, "decoder", "backbone.decoder"),
    ]


def _inputs(folder: Path, config: ConfigFile) -> Settings:
    sizes = {"num_mels": config.size("num_mel_bins", 80), "seconds": _num_tokens(config) // 50}
    return sounds(folder, "WhisperMel", sizes)


def _start(config: ConfigFile) -> list[int]:
    """First ids of a transcript: its start, English, the task, and that it has no times.

    Where the files name no languages, what they force to stand first.
    """
    held = Generation(config)
    first = held.one_id("decoder_start_token_id", 50257)
    forced = held.get("forced_decoder_ids")
    languages = held.get("lang_to_id")
    tasks = held.get("task_to_id")
    untimed = held.get("no_timestamps_token_id")
    if isinstance(languages, dict) and isinstance(tasks, dict):
        named = [languages.get("<|en|>"), tasks.get("transcribe"), untimed]
    elif forced:
        named = [i for _, i in sorted(forced)]
    else:
        named = [untimed]
    found = [first, *(i for i in named if i is not None)]
    if not all(type(i) is int and i >= 0 for i in found):
        raise DataError(f"{held.path}: a transcript begins with {found}, and what is read is ids")
    return found


def _objective(config: ConfigFile) -> Settings:
    section = writes(config, _start(config), 50256, 51865, [220, 50256])
    return {**section, "tied": True, "bias": False}


def _most(config: ConfigFile) -> int:
    return max(1, _longest(config) - len(_start(config)))


TABLE = "embedder.content.weight"
SEQ2SEQ = Head(
    ("ForConditionalGeneration",),
    _objective,
    lambda _: alias(TABLE, "proj_out.weight"),
    written_state(_most),
)
WHISPER = Family(
    _encoder,
    lambda config: _encoder_rows(config, "embedder", "backbone"),
    "model.",
    {},
    ("decoder.", "proj_out.", "projector.", "classifier.", "layer_weights"),
    _inputs,
    lacks_decoder,
)
WHOLE_WHISPER = Family(_whole, _whole_table, "model.", {"Seq2Seq": SEQ2SEQ}, (), _inputs)
