"""Recurrent backbones: RNN, GRU and LSTM by torch's own layers, packed.

b batch · n tokens · d width
"""

from __future__ import annotations

from typing import Any, ClassVar

from einops import rearrange
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqkit.interfaces import Backbone, Cache, Embedded


class RNNCache(Cache):
    """The hidden state after the last real token of each example."""

    def __init__(self) -> None:
        self.num_tokens = 0
        self.state: Any = None

    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        if isinstance(self.state, tuple):
            self.state = tuple(one[:, rows].contiguous() for one in self.state)
        elif self.state is not None:
            self.state = self.state[:, rows].contiguous()


class _Recurrent(Backbone):
    """torch's recurrent layers over packed sequences, so that padding neither counts nor costs.

    causal=True: left to right, all of the width. causal=False: bidirectional, half of the width each way.
    dropout: between layers. Raises ValueError for an odd dim of a bidirectional network.
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

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded.

        Raises ValueError for adjacency, segments or an example without tokens.
        """
        if embedded.adjacency is not None or embedded.segments is not None:
            raise ValueError(
                f"{type(self).__name__} does not support adjacency or segments; it runs over the tokens in order"
            )
        if cache is not None and not isinstance(cache, RNNCache):
            raise ValueError(
                f"{type(self).__name__} was given a {type(cache).__name__}; make its cache with init_cache"
            )
        hidden, state = run_rnn(self.layers, embedded.hidden, embedded, None if cache is None else cache.state)
        if cache is not None:
            cache.state, cache.num_tokens = state, cache.num_tokens + hidden.shape[1]
        return hidden

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache. Raises ValueError if not causal: the other direction starts at the end."""
        if not self.causal:
            raise ValueError(
                f"this {type(self).__name__} is bidirectional, so it has no cache; build it with causal=True"
            )
        return RNNCache()


def run_rnn(layers: nn.RNNBase, x: Tensor, embedded: Embedded, state: Any) -> tuple[Tensor, Any]:
    """torch's recurrent layers over x [b n d]: outputs, zero where padded, and the state after the last real token.

    embedded: says which columns of x are real. Sequences are padded on the right, which costs nothing, but lengths are
    read on the CPU (`pack_padded_sequence`), which an accelerator waits for.
    Raises ValueError for an example without tokens.
    """
    valid = embedded.valid
    if valid.is_meta or not embedded.is_padded:  # tensors without data are taken to have no padding
        outputs: tuple[Tensor, Any] = layers(x, state)
        return outputs
    n, lengths = valid.shape[1], valid.sum(dim=1).cpu()
    if bool((lengths == 0).any()):
        raise ValueError("an example has no real token; a recurrent network needs at least one")
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    packed, state = layers(packed, state)
    hidden, _ = pad_packed_sequence(packed, batch_first=True, total_length=n)
    return hidden.masked_fill(~rearrange(valid, "b n -> b n 1"), 0.0), state


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; `torch.nn.LSTM`)."""

    cell = nn.LSTM


class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al. 2014; `torch.nn.GRU`)."""

    cell = nn.GRU


class RNN(_Recurrent):
    """Elman network with tanh (Elman 1990; `torch.nn.RNN`)."""

    cell = nn.RNN
