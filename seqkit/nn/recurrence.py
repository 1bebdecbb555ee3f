"""Layers of torch's recurrent networks: their start, and the ways to run them over a batch.

b batch · n tokens · d width · t real tokens of the batch · g gates of all units of a layer
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from einops import rearrange
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqkit.interfaces import Embedded
from seqkit.nn.precision import float32_or_more

State = tuple[Tensor, ...]
"""State of a layer after a token: the hidden state [b d], and the memory [b d] of an LSTM."""

Run = Callable[[nn.RNNBase, Tensor, State | None], tuple[Tensor, State | None]]
"""Runs one layer: outputs and state from the layer, its inputs and the state before them (None: zeros)."""


class RecurrentLayer(nn.Module):
    """One layer of torch's recurrent networks, bare or on a residual branch behind a norm.

    cell: a network of one layer. residual: True: x + dropout(cell(norm(x))), as the layers of a pre-norm Transformer
    (Xiong et al. 2020); False: dropout(cell(x)). dropout: probability of dropping an entry of the cell's output.
    The cell starts with orthogonal recurrent weights for each gate (Saxe et al. 2014), input weights after Glorot and
    Bengio (2010), equation 16, and zero biases; the forget gate of an LSTM with a bias of 1 (Jozefowicz et al. 2015).
    torch's own start draws all of them uniformly within d^-1/2.
    """

    def __init__(self, cell: nn.RNNBase, *, residual: bool, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(cell.input_size) if residual else nn.Identity()
        self.cell = cell
        self.residual = residual
        self.dropout = nn.Dropout(dropout)
        init_cell(cell)

    def forward(self, x: Tensor, run: Run, state: State | None) -> tuple[Tensor, State | None]:
        """Outputs, in the shape of x, and the state after them. run: how to run the cell (`run_layers`)."""
        branch, state = run(self.cell, self.norm(x), state)
        branch = self.dropout(branch)
        return (x + branch if self.residual else branch), state


@torch.no_grad()
def init_cell(cell: nn.RNNBase) -> None:
    """Initialise the weights of a recurrent network (`RecurrentLayer` says how)."""
    for name, parameter in cell.named_parameters():
        if parameter.ndim == 2:
            init = nn.init.orthogonal_ if "_hh_" in name else nn.init.xavier_uniform_
            for gate in parameter.split(cell.hidden_size):
                wide = torch.empty_like(gate, dtype=float32_or_more(gate.dtype))
                gate.copy_(init(wide))  # torch makes no orthogonal matrix in half precision
        else:
            parameter.zero_()
            if cell.mode == "LSTM" and "_ih_" in name:
                parameter[cell.hidden_size : 2 * cell.hidden_size] = 1.0


def run_layers(
    layers: nn.ModuleList, x: Tensor, embedded: Embedded, states: list[Any] | None = None
) -> Tensor:
    """Outputs [b n d] of `RecurrentLayer`s, one above the other, over x [b n d]; of any value where padded.

    embedded: says which columns of x are real. states: state of each layer before x, replaced by that after the last
    real token; None: from zeros, and no state is wanted.
    Padding is on the right, so from left to right it changes no output. In two directions, and for the states,
    sequences are packed: padding costs nothing, but an accelerator waits until their lengths are read on the CPU
    (`pack_padded_sequence`).
    Raises ValueError for an example without tokens, where sequences are packed.
    """
    valid = embedded.valid
    goes_both_ways = cast(RecurrentLayer, layers[0]).cell.bidirectional
    if is_exporting():
        if states is not None:
            raise ValueError(
                "an exported graph continues no state of a recurrent network; export it without a cache"
            )
        return _through(layers, x, partial(_masked, valid), None)
    if x.shape[1] == 1 and not goes_both_ways:
        real = valid if embedded.is_padded else None
        return rearrange(
            _through(layers, x[:, 0], partial(one_token, real), states), "b d -> b 1 d"
        )
    is_whole = not embedded.is_padded and not _needs_packing(x)
    needs_no_lengths = x.is_cuda and not goes_both_ways and states is None
    # tensors without data are taken to have no padding
    if valid.is_meta or is_whole or needs_no_lengths:
        return _through(layers, x, _all_tokens, states)
    lengths = valid.sum(dim=1).cpu()
    if bool((lengths == 0).any()):
        raise ValueError("an example has no real token; a recurrent network needs at least one")
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    outputs = _through(layers, packed.data, partial(_packed, packed), states)
    return pad_packed_sequence(
        packed._replace(data=outputs), batch_first=True, total_length=x.shape[1]
    )[0]


def _through(layers: nn.ModuleList, x: Tensor, run: Run, states: list[Any] | None) -> Tensor:
    for i, layer in enumerate(layers):
        x, state = layer(x, run, None if states is None else states[i])
        if states is not None:
            states[i] = state
    return x


def _all_tokens(cell: nn.RNNBase, x: Tensor, state: State | None) -> tuple[Tensor, State | None]:
    """x: [b n d], all real."""
    outputs, after = cell(x, _given(state))
    return outputs, _taken(after)


def _packed(
    packed: Any, cell: nn.RNNBase, x: Tensor, state: State | None
) -> tuple[Tensor, State | None]:
    """x: [t d], the real tokens in the order of a packed sequence."""
    outputs, after = cell(packed._replace(data=x), _given(state))
    return outputs.data, _taken(after)


def one_token(
    real: Tensor | None, cell: nn.RNNBase, x: Tensor, state: State | None
) -> tuple[Tensor, State]:
    """x: [b d]. real: [b 1] bool, False: padding, which leaves the state; None: all are.

    oneDNN's LSTM orders its weights anew at each call, which costs more than one step of the cell.
    """
    weights: Any = (cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0)
    if state is None:
        zero = x.new_zeros(x.shape[0], cell.hidden_size)
        state = (zero, zero) if cell.mode == "LSTM" else (zero,)
    if cell.mode == "LSTM":
        after: State = torch.lstm_cell(x, state, *weights)
    else:
        step = torch.gru_cell if cell.mode == "GRU" else torch.rnn_tanh_cell
        after = (step(x, state[0], *weights),)
    if real is not None:
        after = tuple(torch.where(real, new, old) for new, old in zip(after, state))
    return after[0], after


def _masked(valid: Tensor, cell: nn.RNNBase, x: Tensor, _state: None) -> tuple[Tensor, None]:
    """x: [b n d], in an exported graph, which continues no state."""
    return run_masked(cell, x, valid), None


def _given(state: State | None) -> Any:
    """A state as torch's networks of one layer take it."""
    if state is None:
        return None
    parts = tuple(rearrange(part, "b d -> 1 b d") for part in state)
    return parts if len(parts) == 2 else parts[0]


def _taken(state: Any) -> State | None:
    """A state as torch's networks of one layer give it; None for two directions, which are not continued."""
    parts = state if isinstance(state, tuple) else (state,)
    if parts[0].shape[0] == 2:
        return None
    return tuple(rearrange(part, "1 b d -> b d") for part in parts)


def _needs_packing(x: Tensor) -> bool:
    """Whether torch's fused LSTM, which takes unpacked sequences, fails: in bfloat16 on a CPU that has none."""
    if x.device.type != "cpu" or not (
        x.dtype == torch.bfloat16 or torch.is_autocast_enabled("cpu")
    ):
        return False
    return not bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


# ── token by token, as one operation of an exported graph for every length ──────────────────────────────────────────
# packed sequences cannot be exported; the loops here can, with equal outputs


def is_exporting() -> bool:
    """Whether `torch.export` traces (not strictly); torch 2.11's own question is true in `torch.compile`, too."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def check_not_exporting(name: str, instead: str) -> None:
    """Raise ValueError in `torch.export`. name: what a graph for every length cannot hold. instead: what it can."""
    if is_exporting():
        raise ValueError(f"{name} is no graph for every length; {instead} is")


def scan_tokens(
    step: Callable[[Any, tuple[Tensor, ...]], tuple[Any, Tensor]],
    state: Any,
    inputs: tuple[Tensor, ...],
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


def _one_way(
    layers: nn.RNNBase, name: str, x: Tensor, valid: Tensor, *, is_reversed: bool
) -> Tensor:
    """A layer in one direction. name: end of its weights' names."""
    w, u, of_w, of_u = (
        getattr(layers, f"{kind}_{name}")
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    gates = nn.functional.linear(x, w, of_w)
    real = rearrange(valid, "b n -> b n 1")
    if is_reversed:
        gates = gates.flip(1)
        real = real.flip(1)
    cell = CELLS[layers.mode]
    size = layers.hidden_size

    def step(
        state: tuple[Tensor, Tensor], token: tuple[Tensor, ...]
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
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
    r, z, n = gates.chunk(3, dim=-1)
    r_, z_, n_ = recurrent.chunk(3, dim=-1)
    new = (n + (r + r_).sigmoid() * n_).tanh()
    kept = (z + z_).sigmoid()
    hidden = (1 - kept) * new + kept * memory
    return hidden, hidden.clone()


def _rnn(gates: Tensor, recurrent: Tensor, _memory: Tensor) -> tuple[Tensor, Tensor]:
    hidden = (gates + recurrent).tanh()
    return hidden, hidden.clone()


CELLS = {"LSTM": _lstm, "GRU": _gru, "RNN_TANH": _rnn}
"""Next hidden state and memory by `nn.RNNBase.mode`, with the order of gates that torch documents."""
