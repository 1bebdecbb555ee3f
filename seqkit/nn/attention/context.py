"""Input of attention layers beside the tokens: mask, positions and structure, the same for all layers of a kind.

b batch · n queries · m keys (n, or with a cache all columns so far) · h heads · c channels of one head · p axes
r channel pairs · d width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seqkit.interfaces import Adjacency, Embedded
from seqkit.nn.attention.mask import (
    Mask,
    bias_of_edges,
    causal_mask,
    dense,
    dense_edge_types,
    edge_mask,
    padding_mask,
    reach_mask,
    segment_mask,
)  # fmt: skip
from seqkit.nn.packing import Packing
from seqkit.nn.position.base import RelativePosition
from seqkit.nn.position.disentangled import DisentangledPosition, Distances
from seqkit.nn.segments import SegmentRows


@dataclass(frozen=True, slots=True)
class AttentionContext:
    """Mask, positions and structure of one attention call, the same for all layers of a kind.

    Mechanisms that score every pair use `attn_mask` as it is; the others use the other fields.
    attn_mask: [b|1 h|1 n|1 m] bool (True = may attend) or float (added to the scores, -inf = masked); None: no mask
    beside `is_causal`.
    is_causal: True: token i attends to tokens <= i. For mechanisms that take a mask, only if attn_mask is None and
    n == m, since SDPA aligns its causal mask top-left.
    rotary: [b 1 n r] complex numbers that rotate r channel pairs of queries and keys; their modulus is one, unless they
    also scale; None: no rotation.
    query_valid, key_valid: [b n] and [b m] bool, True = real. None: all real.
    adjacency: as in `Embedded`, for mechanisms that attend along edges. edge_bias: [1 + num_edge_types, h], added to
    the scores of edges of each type; row 0 is added to the score of a token with itself.
    cross: context of the block's cross-attention, if it has one. memory: in that context, the encoder's output [b m d],
    from which keys and values are computed; None: self-attention.
    packing: the layer's input is the row [1 t d] of this packing; masks and the other fields are of the padded batch.
    is_plain: True: padding and causality are all that masks pairs, and no bias is added.
    segments: where the packed sequences of the batch are, for layers that take no mask; None: they are not packed, or
    `attn_mask` keeps them apart.
    distances: what queries and keys are compared with, beside each other; None: nothing.
    """

    attn_mask: Tensor | None = None
    is_causal: bool = False
    rotary: Tensor | None = None
    query_valid: Tensor | None = None
    key_valid: Tensor | None = None
    adjacency: Adjacency | None = None
    edge_bias: Tensor | None = None
    cross: AttentionContext | None = None
    memory: Tensor | None = None
    packing: Packing | None = None
    is_plain: bool = False
    segments: SegmentRows | None = None
    distances: Distances | None = None


class Past(NamedTuple):
    """Columns in a cache: valid [b t], positions [b t p], and whether some of them are padding."""

    valid: Tensor
    positions: Tensor
    is_padded: bool

    @classmethod
    def with_columns(cls, past: Past | None, embedded: Embedded) -> Past:
        """The columns of a past, if there is one, and those of `embedded`."""
        own = cls(embedded.valid, embedded.positions, embedded.is_padded)
        if past is None:
            return own
        return cls(
            torch.cat([past.valid, own.valid], dim=1),
            torch.cat([past.positions, own.positions], dim=1),
            past.is_padded or own.is_padded,
        )


def attention_context(
    embedded: Embedded,
    *,
    causal: bool,
    num_heads: int,
    head_dim: int,
    position: RelativePosition | None = None,
    edge_bias: Tensor | None = None,
    past: Past | None = None,
    needs_mask: bool = True,
) -> AttentionContext:
    """The context of self-attention over `embedded`, with heads of `head_dim` channels.

    edge_bias: [1 + num_edge_types, h], as in `AttentionContext`. past: columns in the cache, which are keys too.
    needs_mask: False: the attention makes no [n m] scores, so no mask is made either.
    If nothing is masked, there is no mask: SDPA is fastest without one. Sequences are padded on the right, so a real
    causal query never attends to padding. Padded queries may attend to anything: backbones return zeros there.
    Raises ValueError for adjacency, segments or reach with a past: only plain sequences are generated step by step.
    """
    adjacency = embedded.adjacency
    segments = embedded.segments
    reach = embedded.reach
    is_plain = adjacency is None and segments is None and reach is None
    if past is not None and not is_plain:
        raise ValueError(
            "a cache supports plain sequences only; encode graphs and packed sequences without one"
        )
    valid, positions, is_padded = Past.with_columns(past, embedded)
    b, n = embedded.valid.shape
    m = valid.shape[1]
    rotary = bias = compared = None
    if position is not None:
        if position.rotates:
            rotary = position.rotary(embedded.positions, head_dim)
        if position.has_bias:
            bias = position.bias(embedded.positions, positions, num_heads)
        if isinstance(position, DisentangledPosition):
            compared = position.distances(embedded.positions, positions)
    masks: list[Mask] = []
    if reach is not None:
        masks.append(reach_mask(reach))
    if segments is not None:
        masks.append(segment_mask(segments))
    if adjacency is not None and needs_mask:
        edge_types = dense_edge_types(adjacency, b, n)
        masks.append(edge_mask(edge_types, embedded.graphs))
        if edge_bias is not None:
            by_type = bias_of_edges(edge_bias, edge_types, embedded.graphs)
            bias = by_type if bias is None else bias + by_type
    is_plain = is_plain and n == m and bias is None
    # torch's kernels are causal without a mask where queries and keys are the same columns
    is_plain_causal = causal and is_plain
    if causal and n > 1 and not is_plain_causal:
        masks.append(causal_mask)
    if is_padded and not is_plain_causal:
        masks.append(padding_mask(valid))

    attn_mask = dense(masks, b, n, m, valid.device) if masks and needs_mask else None
    # padding has no edges, and ONNX's softmax over no key is NaN
    if attn_mask is not None and adjacency is not None:
        attn_mask = attn_mask | torch.eye(n, dtype=torch.bool, device=valid.device)
    if bias is not None:
        # on CPUs without AVX2, torch's kernel misreads a mask of a narrower dtype than the queries (torch 2.11)
        bias = bias.to(torch.promote_types(bias.dtype, embedded.hidden.dtype))
        if attn_mask is None:
            attn_mask = bias
        else:
            attn_mask = bias.masked_fill(~attn_mask, -torch.inf)
    return AttentionContext(
        attn_mask,
        is_causal=causal if not needs_mask else is_plain_causal,
        rotary=rotary,
        query_valid=embedded.valid if embedded.is_padded else None,
        key_valid=valid if is_padded else None,
        adjacency=adjacency,
        edge_bias=edge_bias,
        is_plain=is_plain,
        segments=None if segments is None or needs_mask else SegmentRows.of(segments, valid),
        distances=compared,
    )


def cross_attention_context(
    valid: Tensor, memory: Embedded, *, needs_mask: bool = True
) -> AttentionContext:
    """The context of cross-attention from tokens, valid [b n], to all real tokens of the memory."""
    b, m = memory.valid.shape
    device = memory.valid.device
    attn_mask = None
    if needs_mask and memory.is_padded:
        attn_mask = dense([padding_mask(memory.valid)], b, 1, m, device)
    key_valid = memory.valid if memory.is_padded else None
    return AttentionContext(attn_mask, query_valid=valid, key_valid=key_valid, memory=memory.hidden)
