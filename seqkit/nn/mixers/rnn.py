"""Recurrent cells as mixers: torch's LSTM, GRU and RNN, a layer of them.

b batch · n tokens · d width
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from seqkit.interfaces import Embedded
from seqkit.interfaces.batch import Padding
from seqkit.nn.mixers.base import StateMixer
from seqkit.nn.recurrence import RecurrentLayer, State, run_layers


class _RecurrentMixer(StateMixer):
    """A recurrent layer as wide as the model, initialised as in `RecurrentLayer`."""

    cell: ClassVar[type[nn.LSTM | nn.GRU | nn.RNN]]

    def __init__(self, dim: int, num_heads: int = 1):
        super().__init__(dim, num_heads)
        own = self.cell(dim, dim, batch_first=True)
        self.layers = nn.ModuleList([RecurrentLayer(own, residual=False, dropout=0.0)])

    def mix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        return run_layers(self.layers, x, _columns(x, valid))

    def step(
        self, x: Tensor, valid: Tensor | None, state: State | None
    ) -> tuple[Tensor, State | None]:
        states = [state]
        y = run_layers(self.layers, x, _columns(x, valid), states)
        return y, states[0]


def _columns(x: Tensor, valid: Tensor | None) -> Embedded:
    real = x.new_ones(x.shape[:2]).bool() if valid is None else valid
    columns = Embedded(x, x.new_zeros(*x.shape[:2], 1), real)
    return columns.know(Padding(valid is not None, real.numel()))


class LSTMMixer(_RecurrentMixer):
    """A layer of long short-term memory (Hochreiter and Schmidhuber 1997; `torch.nn.LSTM`)."""

    cell = nn.LSTM


class GRUMixer(_RecurrentMixer):
    """A layer of gated recurrent units (Cho et al. 2014; `torch.nn.GRU`)."""

    cell = nn.GRU


class RNNMixer(_RecurrentMixer):
    """A layer of an Elman network with tanh (Elman 1990; `torch.nn.RNN`)."""

    cell = nn.RNN
