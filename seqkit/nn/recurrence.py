"""Layers of torch's recurrent networks: their start, and the ways to run them over a batch.

b batch · n tokens · d width · t real tokens of the batch · g gates of all units of a layer
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

import torch
from einops import rearrange
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqkit.interfaces import Embedded
from seqkit.nn.padding import reversed_rows
from seqkit.nn.precision import float32_or_more

State = tuple[Tensor, ...]
"""State of a layer after a token: the hidden state [b d], and the memory [b d] of an LSTM."""

Run = Callable[[nn.RNNBase, Tensor, State | None], tuple[Tensor, State | None]]
"""Runs one layer: outputs and state from the layer, its inputs and the state before them (None: zeros)."""


SHUT = 1e4
"""Its negative shuts a gate: the sigmoids are 1 and 0 in every precision."""


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

    embedded: says which columns of x are real; x must be finite in the others. states: state of each layer before x,
    replaced by that after the last real token (a row without any keeps its own); None: from zeros, and none is wanted.
    All columns are run at once: padding, on the right, changes no output before it. On a CPU, packed sequences take 2
    to 12 times as long (RNN, LSTM; width 128, a fifth padded), since torch steps through them without oneDNN's kernel.
    On a GPU, two directions and the states of an LSTM are packed, for which the CPU waits for the lengths: cuDNN takes
    packed sequences directly, and would copy the weights of one direction at each call.
    """
    valid = embedded.valid
    first = cast(RecurrentLayer, layers[0]).cell
    goes_both_ways = first.bidirectional
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
    # tensors without data are taken to have no padding
    is_padded = embedded.is_padded and not valid.is_meta
    wants_memory = first.mode == "LSTM" and states is not None
    packs = is_padded and x.is_cuda and (goes_both_ways or wants_memory)
    if packs or _needs_packing(x):
        return _through_packed(layers, x, valid, states)
    if is_padded and (goes_both_ways or states is not None):
        return _through(layers, x, partial(_padded_tokens, valid), states)
    return _through(layers, x, _all_tokens, states)


def _through_packed(
    layers: nn.ModuleList, x: Tensor, valid: Tensor, states: list[Any] | None
) -> Tensor:
    """Outputs [b n d] of layers over packed sequences, of which torch wants one token at least."""
    lengths = valid.sum(dim=1).clamp(min=1).cpu()
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    outputs = _through(layers, packed.data, partial(_packed, packed, valid), states)
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


@torch.compiler.disable  # it would unroll torch's functions into a graph of all tokens
def _padded_tokens(
    valid: Tensor, cell: nn.RNNBase, x: Tensor, state: State | None
) -> tuple[Tensor, State | None]:
    """x: [b n d], padded on the right. state: as `run_layers` has it, of one direction."""
    if cell.bidirectional:
        zeros = _zeros(cell, x)
        forwards, _ = _run_direction(cell, "l0", x, zeros)
        backwards, _ = _run_direction(cell, "l0_reverse", reversed_rows(x, valid), zeros)
        return torch.cat([forwards, reversed_rows(backwards, valid)], dim=-1), None
    if state is None:
        state = _zeros(cell, x)
    padding = ~rearrange(valid, "b n -> b n 1")
    outputs, after = _run_direction(cell, "l0", x, state, padding.to(x.dtype))
    last = (valid.sum(dim=1) - 1).clamp(min=0)
    hidden = outputs[torch.arange(len(x), device=x.device), last]
    return outputs, _kept(valid, state, (hidden, *after[1:]))


def _run_direction(
    cell: nn.RNNBase, name: str, x: Tensor, state: State, padding: Tensor | None = None
) -> tuple[Tensor, State]:
    """Outputs and state of one direction over all columns of x [b n d]. name: end of its weights' names.

    padding: [b n 1], 1 where padded: as one more input of an LSTM it shuts the input gate and opens the forget gate, so
    that the memory after all columns is that after the last real token; None: nothing is padded.
    """
    w, *others = _weights(cell, name)
    parts = [rearrange(part, "b d -> 1 b d") for part in state]
    rest = (True, 1, 0.0, cell.training, False, True)  # biases, layers, …, batch first
    if cell.mode != "LSTM":
        run = torch.gru if cell.mode == "GRU" else torch.rnn_tanh
        outputs, hidden = run(x, parts[0], [w, *others], *rest)
        return outputs, (hidden[0],)
    if padding is not None:
        x = torch.cat([x, padding], dim=-1)
        shut = w.new_tensor([-SHUT, SHUT, 0.0, 0.0]).repeat_interleave(cell.hidden_size)
        w = torch.cat([w, rearrange(shut, "g -> g 1")], dim=-1)
    outputs, hidden, memory = torch.lstm(x, parts, [w, *others], *rest)
    return outputs, (hidden[0], memory[0])


def _kept(valid: Tensor, before: State, after: State) -> State:
    """The state after the columns valid [b n]: that before them in rows without a real token."""
    has_any = valid.any(dim=1, keepdim=True)
    return tuple(torch.where(has_any, new, old) for new, old in zip(after, before, strict=True))


def _packed(
    packed: Any, valid: Tensor, cell: nn.RNNBase, x: Tensor, state: State | None
) -> tuple[Tensor, State | None]:
    """x: [t d], the real tokens in the order of a packed sequence, of rows that are valid [b n]."""
    outputs, given = cell(packed._replace(data=x), _given(state))
    after = _taken(given)
    if after is not None:
        after = _kept(valid, state or tuple(torch.zeros_like(part) for part in after), after)
    return outputs.data, after


def one_token(
    real: Tensor | None, cell: nn.RNNBase, x: Tensor, state: State | None
) -> tuple[Tensor, State]:
    """x: [b d]. real: [b 1] bool, False: padding, which leaves the state; None: all are.

    oneDNN's LSTM orders its weights anew at each call, which costs more than one step of the cell.
    """
    weights: Any = _weights(cell, "l0")
    if state is None:
        state = _zeros(cell, x)
    if cell.mode == "LSTM":
        after: State = torch.lstm_cell(x, state, *weights)
    else:
        step = torch.gru_cell if cell.mode == "GRU" else torch.rnn_tanh_cell
        after = (step(x, state[0], *weights),)
    if real is not None:
        after = _kept(real, state, after)
    return after[0], after


def _masked(valid: Tensor, cell: nn.RNNBase, x: Tensor, _state: None) -> tuple[Tensor, None]:
    """x: [b n d], in an exported graph, which continues no state."""
    return run_masked(cell, x, valid), None


def _weights(cell: nn.RNNBase, name: str) -> list[Tensor]:
    """Weights of inputs and states, and their biases. name: end of their names, as `l0_reverse`."""
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [getattr(cell, f"{kind}_{name}") for kind in kinds]


def _zeros(cell: nn.RNNBase, x: Tensor) -> State:
    """The state before the first token of x [b …]."""
    zero = x.new_zeros(len(x), cell.hidden_size)
    return (zero, zero) if cell.mode == "LSTM" else (zero,)


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
    inputs: Iterable[Tensor],
    dim: int = 1,
) -> tuple[Tensor, Any]:
    """Outputs of `step(state, inputs of a token) -> (state, output)`, and the last state.

    dim: axis of inputs and outputs that counts the tokens.
    """

    def apart(state: Any, token: tuple[Tensor, ...]) -> tuple[Any, Tensor]:
        state, output = step(state, token)
        return state, output.clone()  # torch refuses a state that is an output, too

    # strides of a token that depend on how many there are would fix their number
    by_token = tuple(x.movedim(dim, 0).contiguous() for x in inputs)
    last, outputs = scan(apart, state, by_token)
    return outputs.movedim(0, dim), last


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
    w, u, of_w, of_u = _weights(layers, name)
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
        return (hidden, memory), hidden

    zero = x.new_zeros(x.shape[0], size)
    hidden, _ = scan_tokens(step, (zero, zero.clone()), (gates, real))
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
