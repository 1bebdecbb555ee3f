"""The types that every part of seqkit exchanges. READ FIRST.

    raw ─encode→ Tokens ─collate→ TokenBatch ─Embedder→ Embedded ─Backbone→ hidden ─Head→ prediction ─Objective→ loss
        Tokenizer (CPU, in       content, positions,   [b n d]           [b n d]
        the data loader)         adjacency, valid

Tokenizer and objective hold no weights and know a modality or a task. Embedder, backbone and head hold weights and know
neither. Data flows one way; no stage depends on a later one.

`tokens` has the data of an example, `batch` that of several, `spec` its shape, `base` the base classes of what it flows
through.
"""

from seqkit.interfaces.base import (
    IGNORE,
    Backbone,
    Cache,
    FittedState,
    LabeledBatch,
    LossOutput,
    ModelInput,
    Objective,
    PredictionObjective,
    Stateful,
    Tokenizer,
)
from seqkit.interfaces.batch import Embedded, TokenBatch
from seqkit.interfaces.spec import TokenSpec
from seqkit.interfaces.tokens import Adjacency, Tokens

__all__ = [
    "IGNORE",
    "Adjacency",
    "Backbone",
    "Cache",
    "Embedded",
    "FittedState",
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
