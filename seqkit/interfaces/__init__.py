"""The types that every part of seqkit exchanges. READ FIRST.

    raw ─encode→ Tokens ─collate→ TokenBatch ─Embedder→ Embedded ─Backbone→ hidden ─Head→ prediction ─Objective→ loss
        Tokenizer (CPU, in       content, positions,   [b n d]           [b n d]
        the data loader)         adjacency, valid

Tokenizer and objective hold no weights and know a modality or a task. Embedder, backbone and head hold weights and know
neither. Data flows one way; no stage depends on a later one.

`tokens` has the data, `base` the base classes of what it flows through.
"""

from seqkit.interfaces.base import (
    IGNORE,
    Backbone,
    Cache,
    LabeledBatch,
    LossOutput,
    ModelInput,
    Objective,
    PredictionObjective,
    Stateful,
    Tokenizer,
)
from seqkit.interfaces.tokens import Adjacency, Embedded, TokenBatch, Tokens, TokenSpec

__all__ = [
    "IGNORE",
    "Adjacency",
    "Backbone",
    "Cache",
    "Embedded",
    "LabeledBatch",
    "LossOutput",
    "ModelInput",
    "Objective",
    "PredictionObjective",
    "Stateful",
    "TokenBatch",
    "TokenSpec",
    "Tokenizer",
    "Tokens",
]
