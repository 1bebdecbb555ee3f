"""A decoding step of a recurrent network: its cells alone, without batches, masks and positions.

b sequences · v vocabulary · d width
"""

from __future__ import annotations

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.backbones.rnn import GRU, LSTM, RNN
from seqkit.backbones.sequence import StateCache
from seqkit.generation.packed import function_of, has_known_ends, head_function
from seqkit.interfaces import Cache
from seqkit.model import Model
from seqkit.nn.embedder import Embedder
from seqkit.nn.position.absolute import NoPosition
from seqkit.nn.recurrence import RecurrentLayer, one_token

NORMS = (nn.LayerNorm, nn.Identity)
"""Norms of the blocks and behind them."""


class RecurrentStep:
    """Computes the logits of a recurrent model for one new token of each sequence.

    It takes less than half the time of the modules, which make a batch of each token (6 layers of 128, one sequence).
    num_sequences: number of sequences that weights are packed for; steps may have any number.
    """

    is_proven = True

    def __init__(self, model: Model, num_sequences: int):
        embedder = cast(Embedder, model.embedder)
        backbone = cast(LSTM, model.backbone)
        self._table = cast(nn.Embedding, embedder.content).weight
        self._scale = embedder.scale
        blocks = cast("list[RecurrentLayer]", list(backbone.blocks))
        self._layers = [
            (function_of(block.norm, num_sequences), block.cell, block.residual) for block in blocks
        ]
        self._norm = function_of(backbone.norm, num_sequences)
        self._head = head_function(model, num_sequences)

    def state(self, cache: Cache, _positions: Tensor) -> Cache:
        """The cache itself: the modules' states are also those of a step."""
        return cache

    def __call__(self, ids: Tensor, cache: StateCache) -> Tensor:
        """Logits [b v] after one more token: ids [b]."""
        x = F.embedding(ids, self._table) * self._scale
        for i, (norm, cell, residual) in enumerate(self._layers):
            branch, cache.states[i] = one_token(None, cell, norm(x), cache.states[i])
            if residual:
                branch = x + branch
            x = branch
        cache.num_tokens += 1
        return self._head(self._norm(x))


def is_recurrent(model: Model) -> bool:
    """Whether a `RecurrentStep` writes out all of the model."""
    if not has_known_ends(model) or type(model.backbone) not in (LSTM, GRU, RNN):
        return False
    embedder = cast(Embedder, model.embedder)
    backbone = cast(LSTM, model.backbone)
    blocks = cast("list[RecurrentLayer]", list(backbone.blocks))
    return (
        type(embedder.position) is NoPosition
        and embedder.norm is None
        and embedder.projection is None
        and all(type(block) is RecurrentLayer and type(block.norm) in NORMS for block in blocks)
        and type(backbone.norm) in NORMS
    )
