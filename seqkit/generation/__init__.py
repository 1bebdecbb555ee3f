"""Generation: autoregressive decoding by sampling or beam search, with a KV cache or without."""

from seqkit.generation.any_tokens import continue_examples, continue_tokens
from seqkit.generation.beam_search import BeamSearch, Hypothesis, beam_search
from seqkit.generation.prompts_to_text import generate_texts, stream_text
from seqkit.generation.sampling import Sampling
from seqkit.generation.stream import generate, greedy, stream

__all__ = [
    "BeamSearch",
    "Hypothesis",
    "Sampling",
    "beam_search",
    "continue_examples",
    "continue_tokens",
    "generate",
    "generate_texts",
    "greedy",
    "stream",
    "stream_text",
]
