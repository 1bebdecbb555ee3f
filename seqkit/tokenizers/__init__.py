"""Tokenizers: each cuts one kind of raw example into tokens. A name brings its module when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqkit.tokenizers.audio import LogMel, Waveform
    from seqkit.tokenizers.bpe import BPE
    from seqkit.tokenizers.graph import Graph, GraphData
    from seqkit.tokenizers.image import Patches
    from seqkit.tokenizers.molecule import Molecule
    from seqkit.tokenizers.text import Bytes, Characters, Words

__all__ = ["BPE", "Bytes", "Characters", "Graph", "GraphData", "LogMel", "Molecule", "Patches", "Waveform", "Words"]

_RAW = {"Waveform": "seqkit.tokenizers.audio", "GraphData": "seqkit.tokenizers.graph"}  # what goes in, not registered


def __getattr__(name: str) -> Any:
    if name in _RAW:
        return getattr(import_module(_RAW[name]), name)
    if not name.startswith("_"):
        from seqkit.registry import parts

        part = parts("tokenizer").get(name)
        if part is not None:
            return part.load()
    raise AttributeError(f"module 'seqkit.tokenizers' has no attribute {name!r}")
