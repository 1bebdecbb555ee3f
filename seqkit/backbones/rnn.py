"""Recurrent backbones: RNN, GRU and LSTM by torch's own layers, packed.

b batch · n tokens · d width
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqkit.backbones.sequence import SequenceBackbone
from seqkit.interfaces import Cache, Embedded
from seqkit.nn.recurrence import is_exporting, run_masked


class RNNCache(Cache):
    """The hidden state after the last real token of each example."""

    def __init__(self) -> None:
        self.num_tokens = 0
        self.state: Any = None

    def reorder(self, rows: Tensor) -> None:
        if isinstance(self.state, tuple):
            self.state = tuple(one[:, rows].contiguous() for one in self.state)
        elif self.state is not None:
            self.state = self.state[:, rows].contiguous()


class _Recurrent(SequenceBackbone):
    """torch's recurrent layers over packed sequences, so that padding neither counts nor costs.

    depth: number of layers. causal: True: left to right, all of the width; False: bidirectional, half of the width each
    way. dropout: dropout between layers. Raises ValueError for an odd dim of a bidirectional network.
    Adjacency and segments are refused: the state is carried along all tokens in order.
    """

    is_recurrent = True
    cell: ClassVar[type[nn.LSTM | nn.GRU | nn.RNN]]

    def __init__(self, dim: int, depth: int = 2, *, causal: bool = False, dropout: float = 0.0):
        super().__init__()
        if dim < 1 or depth < 1:
            raise ValueError(f"dim={dim}, depth={depth}; a recurrent network needs at least one unit and one layer")
        if not causal and dim % 2:
            raise ValueError(f"dim={dim} is odd, so two directions cannot have half of it each; make it even")
        self.dim, self.causal = dim, causal
        self.layers = self.cell(
            dim,
            dim if causal else dim // 2,
            depth,
            batch_first=True,
            bidirectional=not causal,
            dropout=dropout if depth > 1 else 0.0,  # torch drops between layers only, and warns if there is no between
        )

    def run(self, embedded: Embedded, cache: RNNCache | None) -> Tensor:
        if cache is None:
            return run_rnn(self.layers, embedded.hidden, embedded, None, wants_state=False)[0]
        hidden, cache.state = run_rnn(self.layers, embedded.hidden, embedded, cache.state)
        return hidden

    def new_cache(self) -> RNNCache:
        return RNNCache()


def run_rnn(
    layers: nn.RNNBase, x: Tensor, embedded: Embedded, state: Any, *, wants_state: bool = True
) -> tuple[Tensor, Any]:
    """torch's recurrent layers over x [b n d]: outputs, of any value where padded, and the state after the last real
    token, which may be that after padding where wants_state is False.

    embedded: says which columns of x are real. Padding is on the right, so from left to right it changes no output. In
    two directions, and for the state, sequences are packed: padding costs nothing, but an accelerator waits until
    their lengths are read on the CPU (`pack_padded_sequence`).
    Raises ValueError for an example without tokens, where sequences are packed.
    """
    valid = embedded.valid
    if is_exporting():
        return run_masked(layers, x, valid), None
    is_whole = not embedded.is_padded and not _needs_packing(x)
    goes_right = x.is_cuda and not layers.bidirectional and not wants_state
    if valid.is_meta or is_whole or goes_right:  # tensors without data are taken to have no padding
        outputs: tuple[Tensor, Any] = layers(x, state)
        return outputs
    n, lengths = valid.shape[1], valid.sum(dim=1).cpu()
    if bool((lengths == 0).any()):
        raise ValueError("an example has no real token; a recurrent network needs at least one")
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    packed, state = layers(packed, state)
    hidden, _ = pad_packed_sequence(packed, batch_first=True, total_length=n)
    return hidden, state


def _needs_packing(x: Tensor) -> bool:
    """Whether torch's fused LSTM, which takes unpacked sequences, fails: in bfloat16 on a CPU that has none."""
    if x.device.type != "cpu" or not (x.dtype == torch.bfloat16 or torch.is_autocast_enabled("cpu")):
        return False
    return not bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; `torch.nn.LSTM`).

    >>> from seqkit.interfaces import Embedded
    >>> x = Embedded(torch.randn(2, 7, 8), torch.zeros(2, 7, 1), torch.ones(2, 7, dtype=torch.bool))
    >>> LSTM(8)(x).shape, LSTM(8, causal=True).layers
    (torch.Size([2, 7, 8]), LSTM(8, 8, num_layers=2, batch_first=True))
    """

    cell = nn.LSTM


class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al. 2014; `torch.nn.GRU`)."""

    cell = nn.GRU


class RNN(_Recurrent):
    """Elman network with tanh (Elman 1990; `torch.nn.RNN`)."""

    cell = nn.RNN
