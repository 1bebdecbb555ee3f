"""Families of models by the `model_type` of their `config.json`. Sources: the modules of transformers 5.23.

`docs/families.md` has the same backbones with the equations that they come from.
"""

from __future__ import annotations

from seqkit.errors import suggest
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.audio import AST, HUBERT, WAV2VEC2, WHISPER
from seqkit.pretrained.families.encoders import BERT, DISTILBERT, ROBERTA
from seqkit.pretrained.families.gpt2 import GPT2
from seqkit.pretrained.families.llama import LLAMA
from seqkit.pretrained.families.vision import DEIT, DINOV2, VIT
from seqkit.pretrained.family import Family

FAMILIES: dict[str, Family] = {
    "bert": BERT, "roberta": ROBERTA, "xlm-roberta": ROBERTA, "distilbert": DISTILBERT, "gpt2": GPT2,
    "vit": VIT, "deit": DEIT, "dinov2": DINOV2,
    "audio-spectrogram-transformer": AST, "wav2vec2": WAV2VEC2, "hubert": HUBERT, "whisper": WHISPER,
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "smollm3", "olmo2"), LLAMA),
}  # fmt: skip


def family_of(config: ConfigFile) -> Family:
    """The family of a model. Raises DataError for a model type that is not read, with those that are."""
    found = FAMILIES.get(config.model_type)
    if found is None:
        raise config.refused("model_type", f"{', '.join(FAMILIES)} ({suggest(config.model_type, FAMILIES)})")
    return found
