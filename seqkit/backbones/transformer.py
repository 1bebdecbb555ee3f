"""Transformer: a stack of attention blocks, one backbone for all modalities.

b batch · n tokens · m tokens of the memory · p axes · d width · h heads
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Backbone, Cache, Embedded, TokenSpec
from seqkit.nn.attention.context import AttentionContext, AttentionFeature, Memory
from seqkit.nn.attention.kv_cache import LayerCache
from seqkit.nn.attention.mask import attention_context, cross_attention_context
from seqkit.nn.block import BaseBlock, PreNormBlock
from seqkit.nn.dropout import InheritedDropout, check_probability
from seqkit.nn.position.base import RelativePosition
from seqkit.nn.residual import Residual

OUTPUT_PROJECTIONS = ("out_proj", "down_proj")
"""The last linear layer of a branch, whose output is added to the residual stream."""


class TransformerCache(Cache):
    """A cache for each layer, padding and positions of the columns so far, and the encoder's output, if any."""

    def __init__(self, layers: list[LayerCache]):
        self.num_tokens = 0
        self.layers = layers
        self.valid: Tensor | None = None
        self.positions: Tensor | None = None
        self.memory: Embedded | None = None

    @property
    def past(self) -> tuple[Tensor, Tensor] | None:
        """valid [b t] and positions [b t p] of the columns so far, or None at the start."""
        return None if self.valid is None or self.positions is None else (self.valid, self.positions)

    def append(self, valid: Tensor, positions: Tensor) -> None:
        """Add columns, valid [b n] and positions [b n p]."""
        past = self.past
        self.valid = valid if past is None else torch.cat([past[0], valid], dim=1)
        self.positions = positions if past is None else torch.cat([past[1], positions], dim=1)
        self.num_tokens += valid.shape[1]

    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        for layer in self.layers:
            layer.reorder(rows)
        if self.valid is not None and self.positions is not None:
            self.valid, self.positions = self.valid[rows], self.positions[rows]
        if self.memory is not None:
            self.memory = Embedded(self.memory.hidden[rows], self.memory.positions[rows], self.memory.valid[rows])


class Transformer(Backbone):
    """Transformer (Vaswani et al. 2017): an encoder, with causal=True a decoder.

    With cross-attention in its blocks it is the decoder of an encoder–decoder.

    block: `(dim, num_heads) -> BaseBlock`; a variant is another block passed in. norm: of the last output.
    input_norm: of the embeddings (BERT); None: none. position: positions inside attention (`Rotary()`); None: they are
    added to the embeddings. dropout: of residual branches and attention weights, unless a component has its own.
    Weights are initialised as GPT-2's: normal with std 0.02, output projections divided by sqrt(2 depth) (Radford et
    al. 2019, section 2.3).
    Raises ValueError if dim is not a multiple of num_heads, or attention does not support what causal, position or
    blocks require.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        *,
        num_heads: int = 8,
        causal: bool = False,
        block: Callable[[int, int], BaseBlock] = PreNormBlock,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        input_norm: Callable[[int], nn.Module] | None = None,
        position: RelativePosition | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth={depth}; a transformer needs at least one block")
        check_probability("dropout", dropout)
        self.dim, self.num_heads, self.causal = dim, num_heads, causal
        self.blocks = nn.ModuleList(block(dim, num_heads) for _ in range(depth))
        self.norm = norm(dim)
        self.input_norm = input_norm(dim) if input_norm is not None else None
        self.position = position
        self._declare_support()
        self._init_weights()
        for module in self.blocks.modules():
            if isinstance(module, InheritedDropout):
                module.inherit_dropout(dropout)

    @property
    def _blocks(self) -> list[BaseBlock]:
        return cast("list[BaseBlock]", list(self.blocks))

    def _declare_support(self) -> None:
        """The backbone supports what its attention does; a required feature that it does not support is refused."""
        first = self._blocks[0]
        required = AttentionFeature.CAUSAL if self.causal else AttentionFeature.BIDIRECTIONAL
        if self.position is not None:
            required |= self.position.requires
            self.position.check_heads(self.num_heads, self.dim // self.num_heads)
        if first.has_cross_attention:
            required |= AttentionFeature.CROSS_ATTENTION
        for block in self._blocks:
            block.check_supported(required)
        self._required = required
        self.needs_mask = first.attention.needs_mask
        self.supports_adjacency = AttentionFeature.ADJACENCY in first.supports
        self.supports_segments = AttentionFeature.SEGMENTS in first.supports
        self.supports_cache = AttentionFeature.CACHE in first.supports
        self.is_encoder_decoder = first.has_cross_attention
        self.uses_positions = self.position is not None

    def _init_weights(self) -> None:
        for name, module in self.blocks.named_modules():
            pointwise = isinstance(module, nn.Conv1d) and module.kernel_size == (1,)  # a linear layer by another name
            if isinstance(module, nn.Linear) or pointwise:
                shrink = (2 * len(self.blocks)) ** -0.5 if name.endswith(OUTPUT_PROJECTIONS) else 1.0
                nn.init.normal_(module.weight, std=0.02 * shrink)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for layer, block in enumerate(self._blocks):
            for name, module in block.named_modules():
                if isinstance(module, Residual):
                    module.set_drop_path(layer / max(len(self.blocks) - 1, 1))
                if block.zero_init and name.endswith(OUTPUT_PROJECTIONS):
                    nn.init.zeros_(module.get_parameter("weight"))

    def check_supported(self, spec: TokenSpec) -> None:
        """Raise ValueError if the position does not support the axes, or adjacency is unsupported or missing."""
        if self.position is not None:
            self.position.check_axes(spec.num_axes, self.dim // self.num_heads)
        if spec.num_edge_types:
            for block in self._blocks:
                block.check_supported(self._required | AttentionFeature.ADJACENCY)
        elif any(block.attention.needs_adjacency for block in self._blocks):
            raise ValueError(
                "this attention attends along edges, and these tokens have no adjacency; "
                "use the mechanism ScaledDotProductAttention"
            )

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded."""
        own_cache = None if cache is None else _checked(cache)
        self.check_batch(embedded)
        context = attention_context(
            embedded,
            causal=self.causal,
            num_heads=self.num_heads,
            head_dim=self.dim // self.num_heads,
            position=self.position,
            past=None if own_cache is None else own_cache.past,
            needs_mask=self.needs_mask,
        )
        memory = self._memory(embedded, own_cache)
        x = embedded.hidden if self.input_norm is None else self.input_norm(embedded.hidden)
        for layer, block in enumerate(self.blocks):
            x = block(x, context, None if own_cache is None else own_cache.layers[layer], memory)
        if own_cache is not None:
            own_cache.append(embedded.valid, embedded.positions)
        return self.norm(x).masked_fill(~rearrange(embedded.valid, "b n -> b n 1"), 0.0)

    def check_batch(self, embedded: Embedded) -> None:
        """Raise ValueError for packed sequences or an adjacency that its attention would ignore."""
        if embedded.segments is not None and not self.supports_segments:
            raise ValueError("this attention does not support segments; give each packed sequence its own row")
        if embedded.adjacency is not None and not self.supports_adjacency:
            raise ValueError("this attention does not support adjacency; use the mechanism ScaledDotProductAttention")

    def _memory(self, embedded: Embedded, cache: TransformerCache | None) -> Memory | None:
        """The encoder's output, or without an encoder the embedded source; kept in the cache from the first step on."""
        memory = embedded.source if embedded.memory is None else embedded.memory
        if cache is not None and cache.memory is not None:
            memory = cache.memory
        if (memory is not None) != self.is_encoder_decoder:
            wants = "has cross-attention, and was given no source" if memory is None else "has no cross-attention"
            raise ValueError(f"this Transformer {wants}; blocks with cross_attention=True go with a batch's `source`")
        if memory is None:
            return None
        if cache is not None:
            cache.memory = memory
        context: AttentionContext = cross_attention_context(embedded.valid, memory.valid, needs_mask=self.needs_mask)
        return Memory(memory.hidden, context)

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache. Raises ValueError if not causal: later tokens would change earlier ones."""
        if not self.causal:
            raise ValueError("this Transformer is not causal, so it has no cache; build it with causal=True")
        if not self.supports_cache:
            raise ValueError("this attention has no cache; generate with use_cache=False")
        return TransformerCache([block.init_cache(max_tokens) for block in self._blocks])


def _checked(cache: Cache) -> TransformerCache:
    if not isinstance(cache, TransformerCache):
        raise ValueError(f"a Transformer was given a {type(cache).__name__}; make its cache with init_cache")
    return cache
