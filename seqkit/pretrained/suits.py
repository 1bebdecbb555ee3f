"""Whether a foreign model suits a recipe: what it reads, and which tokens each token sees."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqkit.data.kinds import KIND_OF_TOKENIZER, KINDS
from seqkit.errors import DataError
from seqkit.pretrained.config_file import NAME, ConfigFile
from seqkit.pretrained.family import Settings, class_of
from seqkit.pretrained.folder import own_task
from seqkit.registry.commands import command

READS = {
    "text": "texts",
    "image": "images",
    "audio": "sounds",
    "video": "videos",
    "smiles": "molecules",
    "series": "series",
    "parts": "several parts",
    "graph": "graphs",
}
"""Examples in words, by the kind that a tokenizer reads."""

OF_NO_COLUMN = {"Join": "parts", "Graph": "graph"}
"""Kind of examples that are no column of a table, by tokenizer."""

CAUSAL = {"NextToken": True, "Masked": False}
"""Whether a token may see only those before it, by task."""

RECIPES = {
    "NextToken": "text/char-lm",
    "Masked": "text/masked-lm",
    "Seq2Seq": "text/translate",
    "Classify token": "text/tag",
    "Contrastive": "multimodal/clip",
}
"""Recipes of texts and of pairs by task; any other model has the recipe of its kind."""


def check_suits(
    name: str, folder: Path, found: Settings, task: str | None, tokenizer: object
) -> None:
    """Raise DataError where a recipe cannot train a model, with what that is and the nearest recipe that can.

    name: as the model was given. found: as of `settings`, for the task. tokenizer: that section of the recipe; None:
    the model reads data that the recipe does not name.
    """
    own = _kind(found["tokenizer"])
    why = _why(found["model"]["backbone"], task, own, _kind(tokenizer))
    if why and own:
        recipe = RECIPES.get(own_task(folder) or "")
        if own in KINDS and (own != "text" or task == "Classify" or recipe is None):
            recipe = KINDS[own].recipe
        config = ConfigFile(folder / NAME)
        raise DataError(
            f"{name} is a {class_of(config) or config.model_type}, {why}; the nearest that works is "
            f"`{command('fit', recipe, '--model.init', name)}`"
        )


def _kind(tokenizer: Any) -> str | None:
    """Kind of the examples that a tokenizer reads; None: it is not known."""
    name = tokenizer.get("type") if isinstance(tokenizer, Mapping) else tokenizer
    return (OF_NO_COLUMN | KIND_OF_TOKENIZER).get(str(name))


def _why(backbone: Settings, task: str | None, own: str | None, wanted: str | None) -> str:
    """The reason why a recipe cannot train a model; empty: there is none."""
    if own and wanted and own != wanted:
        return f"which reads {READS[own]}, and the recipe has {READS[wanted]}"
    kind = backbone["type"]
    if kind == "Towers" and task != "Contrastive":
        return f"which encodes each part by itself, and {task} needs them together"
    if task == "Seq2Seq" and kind != "EncoderDecoder":
        return "which is no encoder with a decoder, and Seq2Seq needs one"
    is_causal = backbone.get("causal", False)
    if CAUSAL.get(task or "", is_causal) != is_causal:
        sides = ("tokens on both sides", "only tokens before it")
        return f"in which a token sees {sides[is_causal]}, and {task} needs {sides[not is_causal]}"
    return ""
