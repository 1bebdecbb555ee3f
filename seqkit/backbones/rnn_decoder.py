"""Recurrent decoder: a GRU or LSTM that generates one sequence from another, by a summary vector or by attention.

b batch · n tokens of the target · m tokens of the source · d width · l layers
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from seqkit.backbones.decoder import DecoderCache, checked
from seqkit.backbones.sequence import StateCache
from seqkit.interfaces import Backbone, Cache, Embedded
from seqkit.interfaces.batch import Padding
from seqkit.nn.attention.context import cross_attention_context
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.kv_cache import reordered
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.checks import check_at_least, check_probability
from seqkit.nn.padding import zero_padded
from seqkit.nn.recurrence import RecurrentLayer, State, run_layers
from seqkit.nn.segments import SegmentRows


class RNNDecoder(Backbone):
    """Recurrent decoder over the encoder's output h_1 … h_m (`Embedded.memory`), with c = tanh(W [h_1, h_m] + b).

    The summary c has both ends, as a bidirectional network has seen everything at h_m forwards and at h_1 backwards.
    In step t, with y_t the embedding of the token before the one to be predicted (brackets concatenate):

        s_0 = tanh(V c + b')           in every layer (Cho et al. 2014, appendix A.1.1)
        c_t = c                        without attention (the same), or
        c_t = Attention(s_{t-1}, h)    of the last layer's state (Bahdanau et al. 2015, equations 5 and 6)
        s_t = cell(s_{t-1}, [y_t, c_t])
        out = tanh(U [s_t, c_t, y_t] + b'')    in the place of their maxout

    depth: number of layers. cell: "GRU" or "LSTM". num_heads: number of attention heads. attention: attention layer,
    `(dim, num_heads) -> MultiHeadAttention`, Bahdanau's where its mechanism is AdditiveAttention; None: without.
    dropout: dropout of each layer's output. An LSTM's cell states start at zero.
    Raises ValueError for sizes below 1, an unknown cell, or an attention that does not support cross-attention.
    Adjacency is refused: the state is carried along all tokens in order. Packed targets each begin with s_0 of their
    row's encoder output, and attend to that.
    """

    causal = True
    is_recurrent = True
    is_encoder_decoder = True
    supports_segments = True

    def __init__(
        self,
        dim: int,
        depth: int = 1,
        *,
        cell: Literal["GRU", "LSTM"] = "GRU",
        attention: Callable[[int, int], MultiHeadAttention] | None = None,
        num_heads: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_at_least(1, dim=dim, depth=depth)
        if cell not in ("GRU", "LSTM"):
            raise ValueError(f"cell={cell!r}; choose 'GRU' or 'LSTM'")
        check_probability("dropout", dropout)
        self.dim = dim
        self.depth = depth
        self.summary = nn.Linear(2 * dim, dim)
        self.start = nn.Linear(dim, depth * dim)
        self.cell = nn.GRU if cell == "GRU" else nn.LSTM
        self.blocks = nn.ModuleList()
        for layer in range(depth):
            one = self.cell(2 * dim if layer == 0 else dim, dim, batch_first=True)
            # `dropout` drops the last layer's output
            if layer < depth - 1:
                between = dropout
            else:
                between = 0.0
            self.blocks.append(RecurrentLayer(one, residual=False, dropout=between))
        if attention is None:
            self.attention = None
        else:
            self.attention = attention(dim, num_heads).for_cross_attention()
        if self.attention is not None:
            self.attention.check_supported(AttentionFeature.CROSS_ATTENTION)
        self.out = nn.Linear(3 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded.

        Raises ValueError for adjacency, no source, or packed targets with a cache.
        """
        memory, given = checked(self, embedded, cache)
        if embedded.segments is not None:
            rows = SegmentRows.of(embedded.segments, embedded.valid)
            return rows.map(lambda own: self._of_rows(own, embedded, memory))
        own_cache = self.init_cache(1) if given is None else given
        summary = self._summary(memory)
        if own_cache.num_tokens == 0:
            own_cache.inner.states = self._initial_states(summary)
        if self.attention is None:
            hidden, attended = self._all_steps(embedded, summary, own_cache)
        else:
            hidden, attended = self._step_by_step(embedded, memory, own_cache)
        own_cache.num_tokens += embedded.valid.shape[1]
        output = self.out(
            torch.cat([self.dropout(hidden), attended, embedded.hidden], dim=-1)
        ).tanh()
        return zero_padded(output, embedded.valid)

    def _of_rows(self, rows: SegmentRows, packed: Embedded, memory: Embedded) -> Tensor:
        """Hidden states [s m d] of packed targets, each with the encoder's output of its row of the batch."""
        own_memory = reordered(memory, rows.batch_row)
        return self.forward(rows.embedded(packed).replace(memory=own_memory))

    def _summary(self, memory: Embedded) -> Tensor:
        """[b d] from both ends of the encoder's output."""
        rows = torch.arange(len(memory.valid), device=memory.valid.device)
        last = memory.valid.sum(dim=1) - 1
        return self.summary(
            torch.cat([memory.hidden[:, 0], memory.hidden[rows, last]], dim=-1)
        ).tanh()

    def _initial_states(self, summary: Tensor) -> list[State]:
        hidden = [one.contiguous() for one in self.start(summary).tanh().chunk(self.depth, dim=-1)]
        return [(one, torch.zeros_like(one)) if self.cell is nn.LSTM else (one,) for one in hidden]

    def _all_steps(
        self, embedded: Embedded, summary: Tensor, cache: DecoderCache
    ) -> tuple[Tensor, Tensor]:
        """States [b n d], and the summary that every step gets."""
        attended = rearrange(summary, "b d -> b 1 d").expand_as(embedded.hidden)
        x = torch.cat([embedded.hidden, attended], dim=-1)
        return run_layers(self.blocks, x, embedded, cache.inner.states), attended

    def _step_by_step(
        self, embedded: Embedded, memory: Embedded, cache: DecoderCache
    ) -> tuple[Tensor, Tensor]:
        """States [b n d] and attention outputs [b n d]: a step's query depends on the state before it."""
        attention = self.attention
        assert attention is not None
        context = cross_attention_context(embedded.valid, memory, needs_mask=attention.needs_mask)
        hidden = []
        outputs = []
        for t in range(embedded.valid.shape[1]):
            column = slice(t, t + 1)
            valid = embedded.valid[:, column]
            query = rearrange(cache.inner.states[-1][0], "b d -> b 1 d")
            attended = attention(query, replace(context, query_valid=valid), cache.attention)
            x = torch.cat([embedded.hidden[:, column], attended], dim=-1)
            token = Embedded(x, embedded.positions[:, column], valid)
            token.know(Padding(embedded.is_padded, valid.numel()))
            hidden.append(run_layers(self.blocks, x, token, cache.inner.states))
            outputs.append(attended)
        return torch.cat(hidden, dim=1), torch.cat(outputs, dim=1)

    def init_cache(self, max_tokens: int) -> DecoderCache:
        if self.attention is None:
            attention = None
        else:
            attention = self.attention.init_cache(max_tokens)
        return DecoderCache(type(self), StateCache(self.depth), attention)
