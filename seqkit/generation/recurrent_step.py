"""A decoding step of a recurrent network: its cells alone, without batches, masks and positions.

b sequences · v vocabulary · d width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.backbones.rnn import GRU, LSTM, RNN
from seqkit.backbones.sequence import StateCache
from seqkit.interfaces import Cache
from seqkit.model import Model
from seqkit.nn.embedder import Embedder
from seqkit.nn.heads import TiedHead, TokenHead
from seqkit.nn.position.absolute import NoPosition
from seqkit.nn.recurrence import RecurrentLayer, one_token

NORMS = (nn.LayerNorm, nn.Identity)
"""Norms that a step writes out."""


class RecurrentStep:
    """Computes the logits of a recurrent model for one new token of each sequence.

    It takes less than half the time of the modules, which make a batch of each token (6 layers of 128, one sequence).
    """

    is_static = False

    def __init__(self, model: Model):
        embedder, backbone = cast(Embedder, model.embedder), cast(LSTM, model.backbone)
        blocks = cast("list[RecurrentLayer]", list(backbone.blocks))
        head = cast("TokenHead | TiedHead", model.head)
        self._table, self._scale = cast(nn.Embedding, embedder.content).weight, embedder.scale
        self._layers = [(_norm(block.norm), block.cell, block.residual) for block in blocks]
        self._last_norm = _norm(backbone.norm)
        output = head.linear if isinstance(head, TokenHead) else head.table
        bias = head.linear.bias if isinstance(head, TokenHead) else head.bias
        product = partial(F.linear, weight=cast(Tensor, output.weight), bias=bias)
        self._head = lambda x: head._outputs(x, product)

    def state(self, cache: Cache, _positions: Tensor) -> Cache:
        """The cache itself: the modules' states are also those of a step."""
        return cache

    def __call__(self, ids: Tensor, cache: StateCache) -> Tensor:
        """Logits [b v] after one more token: ids [b]."""
        x = F.embedding(ids, self._table)
        if self._scale != 1:
            x = x * self._scale
        for i, (norm, cell, residual) in enumerate(self._layers):
            branch, cache.states[i] = one_token(None, cell, norm(x), cache.states[i])
            x = x + branch if residual else branch
        cache.num_tokens += 1
        return self._head(self._last_norm(x))


def _norm(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """LayerNorm's or Identity's `forward`, without what a call of a module takes beside it."""
    if isinstance(module, nn.Identity):
        return lambda x: x
    norm = cast(nn.LayerNorm, module)
    shape, weight, bias, eps = list(norm.normalized_shape), norm.weight, norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)


def is_recurrent(model: Model) -> bool:
    """Whether a `RecurrentStep` computes what the model does: its parts are exactly of the classes that it knows."""
    embedder = model.embedder
    if type(model.backbone) not in (LSTM, GRU, RNN):
        return False
    blocks = cast("list[RecurrentLayer]", list(cast(nn.ModuleList, model.backbone.blocks)))
    return (
        type(model) is Model
        and type(embedder) is Embedder
        and type(embedder.content) is nn.Embedding
        and embedder.content.max_norm is None  # else lookups change the table
        and type(embedder.position) is NoPosition
        and embedder.norm is None
        and embedder.projection is None
        and all(type(block) is RecurrentLayer and type(block.norm) in NORMS for block in blocks)
        and type(model.backbone.norm) in NORMS
        and type(model.head) in (TokenHead, TiedHead)
        and type(getattr(model.head, "linear", None)) in (nn.Linear, type(None))
    )
