"""A recurrent network that writes one sequence from another, told of it by one vector or by attention.

b batch · n tokens written · m tokens read · d width · l layers
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from seqkit.backbones.recurrent import RecurrentState, along
from seqkit.contract import Backbone, Cache, Embedded
from seqkit.layers.memory import LayerMemory
from seqkit.layers.reading import refuse_unless_honoured
from seqkit.mask import who_reads_memory


class DecoderState(Cache):
    """The state after the last real token, the sequence that is read, and its keys and values if there is attention."""

    def __init__(self, keys: LayerMemory | None):
        self.num_tokens = 0
        self.recurrent = RecurrentState()
        self.memory: Embedded | None = None
        self.keys = keys

    def select(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        self.recurrent.select(rows)
        if self.memory is not None:
            self.memory = Embedded(self.memory.hidden[rows], self.memory.positions[rows], self.memory.valid[rows])
        if self.keys is not None:
            self.keys.select(rows)


class RecurrentDecoder(Backbone):
    """GRU or LSTM layers s that write from `Embedded.memory`, h_1 … h_m, whose summary is c = tanh(W [h_1, h_m] + b).

    Both ends, as a network in both directions has read everything forwards at h_m and backwards at h_1. In step t, with
    y_t the embedded token before the one to be said (and brackets for vectors end to end):

        s_0 = tanh(V c + b')           in every layer (Cho et al. 2014, appendix A.1.1)
        c_t = c                        without attention (the same), or
        c_t = Attention(s_{t-1}, h)    of the last layer's state (Bahdanau et al. 2015, equations 5 and 6)
        s_t = cell(s_{t-1}, [y_t, c_t])
        out = tanh(U [s_t, c_t, y_t] + b'')    in the place of their maxout

    attention: `(dim, num_heads) -> nn.Module`, Bahdanau's where its mechanism is Additive; None: without.
    dropout: of each layer's output, while training. An LSTM's cells start at zero.
    Raises ValueError for sizes below 1, an unknown cell, or an attention that cannot read another sequence.
    Refuses links and segments: a state is carried along all tokens in order.
    """

    causal, ordered, reads_memory = True, True, True

    def __init__(
        self,
        dim: int,
        depth: int = 1,
        *,
        cell: Literal["GRU", "LSTM"] = "GRU",
        attention: Callable[[int, int], nn.Module] | None = None,
        num_heads: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__()
        if dim < 1 or depth < 1:
            raise ValueError(f"dim={dim}, depth={depth}; a recurrent network needs at least one unit and one layer")
        if cell not in ("GRU", "LSTM"):
            raise ValueError(f"cell={cell!r}; choose 'GRU' or 'LSTM'")
        self.dim, self.depth = dim, depth
        self.summary, self.start = nn.Linear(2 * dim, dim), nn.Linear(dim, depth * dim)
        between = dropout if depth > 1 else 0.0  # torch drops between layers only, and warns if there is no between
        layers = nn.GRU if cell == "GRU" else nn.LSTM
        self.layers: nn.RNNBase = layers(2 * dim, dim, depth, batch_first=True, dropout=between)
        self.attention = None if attention is None else attention(dim, num_heads)
        if self.attention is not None:
            name = type(getattr(self.attention, "mechanism", self.attention)).__name__
            refuse_unless_honoured(name, getattr(self.attention, "honours", frozenset()), {"source"})
        self.out, self.dropout = nn.Linear(3 * dim, dim), nn.Dropout(dropout)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden vectors [b n d], zero where padded.

        Raises ValueError for links, segments, no sequence to read, or an example without tokens.
        """
        if embedded.links is not None or embedded.segments is not None:
            raise ValueError("RecurrentDecoder writes tokens in order and cannot honour links or segments")
        if cache is not None and not isinstance(cache, DecoderState):
            raise ValueError(f"a RecurrentDecoder was given a {type(cache).__name__}; make its cache with init_cache")
        kept = self.init_cache(1) if cache is None else cache
        if kept.memory is None:
            kept.memory = embedded.memory
        if kept.memory is None:
            raise ValueError("this RecurrentDecoder reads another sequence, and was given none: `Embedded.memory`")
        summary = self._summary(kept.memory)
        if kept.num_tokens == 0:
            kept.recurrent.state = self._start(summary)
        if self.attention is None:
            hidden, read = self._at_once(embedded, summary, kept)
        else:
            hidden, read = self._in_steps(embedded, kept)
        kept.num_tokens += embedded.valid.shape[1]
        said = self.out(torch.cat([self.dropout(hidden), read, embedded.hidden], dim=-1)).tanh()
        return said.masked_fill(~rearrange(embedded.valid, "b n -> b n 1"), 0.0)

    def _summary(self, memory: Embedded) -> Tensor:
        """[b d] from both ends of what is read."""
        rows, last = torch.arange(len(memory.valid), device=memory.valid.device), memory.valid.sum(dim=1) - 1
        return self.summary(torch.cat([memory.hidden[:, 0], memory.hidden[rows, last]], dim=-1)).tanh()

    def _start(self, summary: Tensor) -> Any:
        state = rearrange(self.start(summary).tanh(), "b (l d) -> l b d", l=self.depth).contiguous()
        return (state, torch.zeros_like(state)) if isinstance(self.layers, nn.LSTM) else state

    def _at_once(self, embedded: Embedded, summary: Tensor, kept: DecoderState) -> tuple[Tensor, Tensor]:
        """States [b n d], and the one vector that each step reads."""
        read = rearrange(summary, "b d -> b 1 d").expand_as(embedded.hidden)
        x = torch.cat([embedded.hidden, read], dim=-1)
        hidden, kept.recurrent.state = along(self.layers, x, embedded.valid, kept.recurrent.state)
        return hidden, read

    def _in_steps(self, embedded: Embedded, kept: DecoderState) -> tuple[Tensor, Tensor]:
        """States [b n d] and what each step reads [b n d]: what it asks depends on the state before it."""
        assert self.attention is not None
        assert kept.memory is not None
        dense = bool(getattr(getattr(self.attention, "mechanism", self.attention), "dense", True))
        reading = who_reads_memory(replace(embedded, memory=kept.memory), dense=dense)
        padded = not bool(embedded.valid.all())
        states, reads = [], []
        for t in range(embedded.valid.shape[1]):
            before = kept.recurrent.state
            top = rearrange((before[0] if isinstance(before, tuple) else before)[-1], "b d -> b 1 d")
            now = replace(reading, valid=embedded.valid[:, t : t + 1])
            read = self.attention(top, now, kept.keys, kept.memory.hidden)
            output, after = self.layers(torch.cat([embedded.hidden[:, t : t + 1], read], dim=-1), before)
            kept.recurrent.state = _where(embedded.valid[:, t], after, before) if padded else after
            states.append(output)
            reads.append(read)
        return torch.cat(states, dim=1), torch.cat(reads, dim=1)

    def init_cache(self, max_tokens: int) -> DecoderState:
        """An empty state."""
        return DecoderState(None if self.attention is None else self.attention.init_memory(max_tokens))  # type: ignore[operator]


def _where(real: Tensor, after: Any, before: Any) -> Any:
    """The state [l b d] after a step of the examples whose token is real, [b] bool, and before it of the others."""
    if isinstance(after, tuple):
        return tuple(_where(real, a, b) for a, b in zip(after, before))
    return torch.where(rearrange(real, "b -> 1 b 1"), after, before)
