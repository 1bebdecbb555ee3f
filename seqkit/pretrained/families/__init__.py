"""Families of models by the `model_type` of their `config.json`. Sources: the modules of transformers 5.23.

`docs/families.md` has the same backbones with the equations that they come from.
"""

from __future__ import annotations

from seqkit.errors import suggest
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.audio import AST, HUBERT, RESEMBLYZER, WAV2VEC2, WHISPER
from seqkit.pretrained.families.encoders import BERT, DISTILBERT, ELECTRA, ROBERTA
from seqkit.pretrained.families.gpt import BLOOM, GPT2, NEOX, OPT, PHI
from seqkit.pretrained.families.llama import KINDS, LLAMA
from seqkit.pretrained.families.mamba import MAMBA
from seqkit.pretrained.families.modernbert import MODERNBERT
from seqkit.pretrained.families.pairs import PAIRS
from seqkit.pretrained.families.vision import DEIT, DINOV2, TIMM, VIT, VIT_OF_TIMM
from seqkit.pretrained.family import Family

FAMILIES: dict[str, Family] = {
    "bert": BERT, "roberta": ROBERTA, "xlm-roberta": ROBERTA, "distilbert": DISTILBERT, "electra": ELECTRA,
    "modernbert": MODERNBERT, "gpt2": GPT2, "gpt_neox": NEOX,
    "opt": OPT, "bloom": BLOOM, "phi": PHI, "mamba": MAMBA, "vit": VIT, "deit": DEIT, "dinov2": DINOV2,
    "audio-spectrogram-transformer": AST, "wav2vec2": WAV2VEC2, "hubert": HUBERT, "whisper": WHISPER,
    "resemblyzer": RESEMBLYZER, **PAIRS, **dict.fromkeys(KINDS, LLAMA),
}  # fmt: skip


def family_of(config: ConfigFile) -> Family:
    """The family of a model. Raises DataError for a model type that is not read, with those that are."""
    found = VIT_OF_TIMM if TIMM.fullmatch(config.model_type) else FAMILIES.get(config.model_type)
    if found is None:
        known = f"{', '.join(FAMILIES)}, or the ViT of timm ({suggest(config.model_type, FAMILIES)})"
        raise config.refused("model_type", known)
    return found
