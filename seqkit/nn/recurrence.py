"""torch's recurrent layers token by token, as one operation of an exported graph for every length.

Packed sequences cannot be exported. These recurrences can, and give the same.

b batch · n tokens · g gates of all units of a layer
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from einops import rearrange
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan


def is_exporting() -> bool:
    """Whether `torch.export` traces (not strictly); torch 2.11's own question is true in `torch.compile`, too."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def check_not_exporting(name: str, instead: str) -> None:
    """Raise ValueError in `torch.export`. name: what a graph for every length cannot hold. instead: what it can."""
    if is_exporting():
        raise ValueError(f"{name} is no graph for every length; {instead} is")


def scan_tokens(
    step: Callable[[Any, tuple[Tensor, ...]], tuple[Any, Tensor]], state: Any, inputs: tuple[Tensor, ...]
) -> Tensor:
    """Outputs [b n …] of `step(state, inputs of a token [b …]) -> (state, output)`. inputs: [b n …] each."""
    by_token = tuple(x.transpose(0, 1) for x in inputs)
    return cast(Tensor, scan(step, state, by_token)[1]).transpose(0, 1)


def run_masked(layers: nn.RNNBase, x: Tensor, valid: Tensor) -> Tensor:
    """Outputs [b n d] of torch's recurrent layers over x [b n d] from zero; padding, valid [b n], leaves the state."""
    ways = ("", "_reverse") if layers.bidirectional else ("",)
    for i in range(layers.num_layers):
        outputs = [_one_way(layers, f"l{i}{way}", x, valid, is_reversed=bool(way)) for way in ways]
        x = torch.cat(outputs, dim=-1)
    return x


def _one_way(layers: nn.RNNBase, name: str, x: Tensor, valid: Tensor, *, is_reversed: bool) -> Tensor:
    """A layer in one direction. name: end of its weights' names."""
    w, u, of_w, of_u = (getattr(layers, f"{kind}_{name}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    gates, real = nn.functional.linear(x, w, of_w), rearrange(valid, "b n -> b n 1")
    if is_reversed:
        gates, real = gates.flip(1), real.flip(1)
    cell, size = CELLS[layers.mode], layers.hidden_size

    def step(state: tuple[Tensor, Tensor], token: tuple[Tensor, ...]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        gates, real = token
        new = cell(gates, nn.functional.linear(state[0], u, of_u), state[1])
        hidden, memory = (torch.where(real, after, before) for after, before in zip(new, state))
        return (hidden, memory), hidden.clone()

    zero = x.new_zeros(x.shape[0], size)
    hidden = scan_tokens(step, (zero, zero.clone()), (gates, real))
    return hidden.flip(1) if is_reversed else hidden


def _lstm(gates: Tensor, recurrent: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = (gates + recurrent).chunk(4, dim=-1)
    memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
    return o.sigmoid() * memory.tanh(), memory


def _gru(gates: Tensor, recurrent: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """`memory` is the hidden state, which the cell has beside nothing else."""
    (r, z, n), (r_, z_, n_) = gates.chunk(3, dim=-1), recurrent.chunk(3, dim=-1)
    new, kept = (n + (r + r_).sigmoid() * n_).tanh(), (z + z_).sigmoid()
    hidden = (1 - kept) * new + kept * memory
    return hidden, hidden.clone()


def _rnn(gates: Tensor, recurrent: Tensor, _memory: Tensor) -> tuple[Tensor, Tensor]:
    hidden = (gates + recurrent).tanh()
    return hidden, hidden.clone()


CELLS = {"LSTM": _lstm, "GRU": _gru, "RNN_TANH": _rnn}
"""Next hidden state and memory by `nn.RNNBase.mode`, with the order of gates that torch documents."""
