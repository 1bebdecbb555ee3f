"""Recurrent backbones: RNN, GRU and LSTM by torch's own layers.

b batch · n tokens · d width
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from seqkit.backbones.sequence import SequenceBackbone, StateCache
from seqkit.interfaces import Embedded
from seqkit.nn.checks import check_at_least, check_probability
from seqkit.nn.recurrence import RecurrentLayer, run_layers


class _Recurrent(SequenceBackbone):
    """torch's recurrent layers over the real tokens of each sequence, one after the other.

    depth: number of layers. causal: True: left to right, all of the width; False: bidirectional, half of the width each
    way. residual: True: each layer is a branch behind a norm, as a Transformer's are, and a norm follows the last one
    (`RecurrentLayer`); False: bare layers, torch's own stack. dropout: dropout of each branch, or between bare layers.
    Raises ValueError for an odd dim of a bidirectional network.
    Adjacency is refused: the state is carried along all tokens in order, and begins anew in each packed sequence.
    """

    is_recurrent = True
    cell: ClassVar[type[nn.LSTM | nn.GRU | nn.RNN]]

    def __init__(
        self,
        dim: int,
        depth: int = 2,
        *,
        causal: bool = False,
        residual: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_at_least(1, dim=dim, depth=depth)
        if not causal and dim % 2:
            raise ValueError(
                f"dim={dim} is odd, so two directions cannot have half of it each; make it even"
            )
        check_probability("dropout", dropout)
        self.dim = dim
        self.causal = causal
        self.needs_unit_inputs = not residual
        self.blocks = nn.ModuleList()
        for layer in range(depth):
            cell = self.cell(
                dim, dim if causal else dim // 2, batch_first=True, bidirectional=not causal
            )
            # the last bare layer's output is not dropped, as in torch
            drops = residual or layer < depth - 1
            self.blocks.append(
                RecurrentLayer(cell, residual=residual, dropout=dropout if drops else 0.0)
            )
        self.norm = nn.LayerNorm(dim) if residual else nn.Identity()

    def run(self, embedded: Embedded, cache: StateCache | None) -> Tensor:
        states = None if cache is None else cache.states
        hidden: Tensor = self.norm(run_layers(self.blocks, embedded.hidden, embedded, states))
        return hidden

    def new_cache(self) -> StateCache:
        return StateCache(len(self.blocks))


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; `torch.nn.LSTM`).

    >>> import torch
    >>> from seqkit.interfaces import Embedded
    >>> x = Embedded(torch.randn(2, 7, 8), torch.zeros(2, 7, 1), torch.ones(2, 7, dtype=torch.bool))
    >>> LSTM(8)(x).shape, LSTM(8, depth=1, causal=True).blocks[0].cell
    (torch.Size([2, 7, 8]), LSTM(8, 8, batch_first=True))
    """

    cell = nn.LSTM


class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al. 2014; `torch.nn.GRU`)."""

    cell = nn.GRU


class RNN(_Recurrent):
    """Elman network with tanh (Elman 1990; `torch.nn.RNN`)."""

    cell = nn.RNN
