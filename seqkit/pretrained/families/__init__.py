"""Families of models by the `model_type` of their `config.json`. Sources: the modules of transformers 5.23.

`docs/families.md` has the same backbones with the equations that they come from.
"""

from __future__ import annotations

from seqkit.errors import DataError, one_line, suggest
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.audio import WAVES
from seqkit.pretrained.families.bart import BARTS
from seqkit.pretrained.families.deberta import DEBERTA
from seqkit.pretrained.families.encoders import ENCODERS
from seqkit.pretrained.families.hybrids import HYBRIDS
from seqkit.pretrained.families.llama import DECODERS
from seqkit.pretrained.families.mamba import FALCON_MAMBA, MAMBA, MAMBA2
from seqkit.pretrained.families.modernbert import MODERNBERT
from seqkit.pretrained.families.pairs import PAIRS
from seqkit.pretrained.families.t5 import DEFAULTS as T5_TYPES
from seqkit.pretrained.families.t5 import T5, WHOLE_T5
from seqkit.pretrained.families.vision import VISION
from seqkit.pretrained.families.whisper import WHISPER, WHOLE_WHISPER
from seqkit.pretrained.families.xlstm import XLSTM
from seqkit.pretrained.family import Family

FAMILIES: dict[str, Family] = {
    **ENCODERS,
    "deberta-v2": DEBERTA,
    "modernbert": MODERNBERT,
    "mamba": MAMBA,
    "mamba2": MAMBA2,
    "falcon_mamba": FALCON_MAMBA,
    "xlstm": XLSTM,
    "whisper": WHISPER,
    **dict.fromkeys(T5_TYPES, T5),
    **{name: encoder for name, (encoder, _) in BARTS.items()},
    **VISION,
    **WAVES,
    **PAIRS,
    **DECODERS,
    **HYBRIDS,
}


WHOLE: dict[str, Family] = {
    **dict.fromkeys(T5_TYPES, WHOLE_T5),
    **{name: whole for name, (_, whole) in BARTS.items()},
    "whisper": WHOLE_WHISPER,
}
"""Encoder and decoder together, for `Seq2Seq`; for any other objective `FAMILIES` has the encoder alone."""


def family_of(config: ConfigFile, task: str | None) -> Family:
    """The family of a model for a task (`task_of`).

    Raises DataError for a model type that is not read, with those that are.
    """
    found = FAMILIES.get(config.model_type)
    if found is None:
        advice = suggest(config.model_type, FAMILIES)
        if not advice.startswith("did you mean"):
            advice = f"docs/pretrained.md lists the {len(FAMILIES)} that are"
        raise DataError(
            f"{config.path}: the model type {one_line(config.model_type)} is not read; {advice}"
        )
    if task == "Seq2Seq":
        return WHOLE.get(config.model_type, found)
    return found
