"""Families of models by the `model_type` of their `config.json`. Sources: the modules of transformers 5.23.

`docs/families.md` has the same backbones with the equations that they come from.
"""

from __future__ import annotations

from seqkit.errors import DataError, one_line, suggest
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.audio import HUBERT, WAV2VEC2
from seqkit.pretrained.families.bart import (
    BART,
    MARIAN,
    PEGASUS,
    WHOLE_BART,
    WHOLE_MARIAN,
    WHOLE_PEGASUS,
)
from seqkit.pretrained.families.encoders import BERT, ROBERTA
from seqkit.pretrained.families.llama import DECODERS
from seqkit.pretrained.families.mamba import MAMBA
from seqkit.pretrained.families.modernbert import MODERNBERT
from seqkit.pretrained.families.pairs import PAIRS
from seqkit.pretrained.families.t5 import T5, WHOLE_T5
from seqkit.pretrained.families.vision import DEIT, DINOV2, VIT
from seqkit.pretrained.families.whisper import WHISPER, WHOLE_WHISPER
from seqkit.pretrained.family import Family

FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "modernbert": MODERNBERT,
    "mamba": MAMBA,
    "vit": VIT,
    "deit": DEIT,
    "dinov2": DINOV2,
    "wav2vec2": WAV2VEC2,
    "hubert": HUBERT,
    "whisper": WHISPER,
    "t5": T5,
    "mt5": T5,
    "bart": BART,
    "marian": MARIAN,
    "pegasus": PEGASUS,
    **PAIRS,
    **DECODERS,
}


WHOLE: dict[str, Family] = {
    "t5": WHOLE_T5,
    "mt5": WHOLE_T5,
    "bart": WHOLE_BART,
    "marian": WHOLE_MARIAN,
    "pegasus": WHOLE_PEGASUS,
    "whisper": WHOLE_WHISPER,
}
"""Encoder and decoder together, for `Seq2Seq`; for any other objective `FAMILIES` has the encoder alone."""


def family_of(config: ConfigFile, task: str | None) -> Family:
    """The family of a model for a task (`task_of`).

    Raises DataError for a model type that is not read, with those that are.
    """
    found = FAMILIES.get(config.model_type)
    if found is None:
        raise DataError(
            f"{config.path}: the model type {one_line(config.model_type)} is not read; "
            f"{suggest(config.model_type, FAMILIES)}"
        )
    if task == "Seq2Seq":
        return WHOLE.get(config.model_type, found)
    return found
