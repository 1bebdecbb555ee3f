"""One renderer per modality: how reports draw a tokenizer's tokens, and what they call them.

A new modality adds one file here and one line to `RENDERERS`.
"""

from __future__ import annotations

from seqkit.interfaces import Tokenizer
from seqkit.report.modality.audio import AudioRenderer
from seqkit.report.modality.base import Renderer, attended, picture
from seqkit.report.modality.cells import CellsRenderer
from seqkit.report.modality.graph import GraphRenderer, MoleculeRenderer
from seqkit.report.modality.image import ImageRenderer
from seqkit.report.modality.join import JoinRenderer
from seqkit.report.modality.series import SeriesRenderer
from seqkit.report.modality.text import TextRenderer
from seqkit.tokenizers import Cells, CharNGrams, Graph, Join, LogMel, Molecule, Patches, Series
from seqkit.tokenizers.text import Text
from seqkit.tokenizers.video import Tubelets

__all__ = ["RENDERERS", "Renderer", "attended", "find_renderer", "picture"]

RENDERERS: dict[type, type[Renderer]] = {
    Text: TextRenderer, CharNGrams: TextRenderer, Patches: ImageRenderer, LogMel: AudioRenderer,
    Graph: GraphRenderer, Molecule: MoleculeRenderer, Cells: CellsRenderer, Join: JoinRenderer,
    Tubelets: ImageRenderer, Series: SeriesRenderer,
}  # fmt: skip
"""Renderer of each tokenizer class and its subclasses; all others have the generic one."""


def find_renderer(tokenizer: Tokenizer) -> Renderer:
    """The renderer of the tokenizer's class or its nearest base class; the generic one where none is listed."""
    return next((RENDERERS[cls] for cls in type(tokenizer).__mro__ if cls in RENDERERS), Renderer)(
        tokenizer
    )
