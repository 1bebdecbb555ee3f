"""The head of decoders whose output layer is their table of ids (transformers 5.23)."""

from __future__ import annotations

from seqkit.pretrained.family import Head
from seqkit.pretrained.rows import alias

TIED = Head(
    ("LMHeadModel", "DoubleHeadsModel", "ForCausalLM"),
    lambda _: {"type": "NextToken", "tied": True},
    lambda _: alias("embedder.content.weight", "lm_head.weight"),
)
