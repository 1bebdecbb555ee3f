"""One renderer per modality: how reports draw a tokenizer's tokens, and what they call them.

A new modality adds one file here and one line to `RENDERERS`.
"""

from __future__ import annotations

from importlib import import_module

from seqkit.interfaces import Tokenizer
from seqkit.report.modality.base import Renderer, attended, picture

__all__ = ["RENDERERS", "Renderer", "attended", "find_renderer", "picture"]

RENDERERS = {
    "seqkit.tokenizers.text:Text": "seqkit.report.modality.text:TextRenderer",
    "seqkit.tokenizers.image:Patches": "seqkit.report.modality.image:ImageRenderer",
    "seqkit.tokenizers.audio:LogMel": "seqkit.report.modality.audio:AudioRenderer",
    "seqkit.tokenizers.audio:AudioTokenizer": "seqkit.report.modality.base:Renderer",
    "seqkit.tokenizers.graph:Graph": "seqkit.report.modality.graph:GraphRenderer",
    "seqkit.tokenizers.molecule:Molecule": "seqkit.report.modality.graph:MoleculeRenderer",
    "seqkit.tokenizers.cells:Cells": "seqkit.report.modality.cells:CellsRenderer",
    "seqkit.tokenizers.join:Join": "seqkit.report.modality.join:JoinRenderer",
    "seqkit.tokenizers.given:Ids": "seqkit.report.modality.base:Renderer",
    "seqkit.tokenizers.given:Series": "seqkit.report.modality.base:Renderer",
    "seqkit.runs.frozen_encoder:FrozenEncoder": "seqkit.report.modality.base:Renderer",
}
"""Renderer of each tokenizer class and its subclasses, imported when it is needed."""


def find_renderer(tokenizer: Tokenizer) -> Renderer:
    """The renderer of the tokenizer's class or its nearest base class; the generic one where none is listed."""
    for cls in type(tokenizer).__mro__:
        path = RENDERERS.get(f"{cls.__module__}:{cls.__qualname__}")
        if path is not None:
            module, _, name = path.partition(":")
            renderer: Renderer = getattr(import_module(module), name)(tokenizer)
            return renderer
    return Renderer(tokenizer)
