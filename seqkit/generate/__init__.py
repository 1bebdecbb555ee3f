"""Continue sequences token by token, drawn or searched for: with every causal backbone, with a cache or without."""

from seqkit.generate.loop import complete, generate
from seqkit.generate.sampling import Sampling
from seqkit.generate.search import BeamSearch, Hypothesis, beam_search
from seqkit.generate.text import stream_text, write_texts

__all__ = [
    "BeamSearch",
    "Hypothesis",
    "Sampling",
    "beam_search",
    "complete",
    "generate",
    "stream_text",
    "write_texts",
]
