"""A stack of blocks: one backbone for all modalities.

b batch · n tokens · m tokens of another sequence · p axes · d width · h heads
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from einops import rearrange
from torch import Tensor, nn

from seqkit.contract import Backbone, Cache, Embedded, TokenSpec
from seqkit.layers.block import Block, Blocks
from seqkit.layers.memory import LayerMemory
from seqkit.layers.position import AttentionPosition
from seqkit.layers.reading import Source
from seqkit.layers.residual import Residual
from seqkit.mask import who_reads_memory, who_reads_whom


class LayersCache(Cache):
    """What every layer keeps, which columns so far are real and where they stand, and the other sequence, if any."""

    def __init__(self, layers: list[LayerMemory]):
        self.num_tokens = 0
        self.layers = layers
        self.valid: Tensor | None = None
        self.positions: Tensor | None = None
        self.memory: Embedded | None = None

    @property
    def past(self) -> tuple[Tensor, Tensor] | None:
        """valid [b t] and positions [b t p] of what was read, or None at the start."""
        return None if self.valid is None or self.positions is None else (self.valid, self.positions)

    def append(self, valid: Tensor, positions: Tensor) -> None:
        """Count the columns valid [b n] as read."""
        past = self.past
        self.valid = valid if past is None else torch.cat([past[0], valid], dim=1)
        self.positions = positions if past is None else torch.cat([past[1], positions], dim=1)
        self.num_tokens += valid.shape[1]

    def select(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        for layer in self.layers:
            layer.select(rows)
        if self.valid is not None and self.positions is not None:
            self.valid, self.positions = self.valid[rows], self.positions[rows]
        if self.memory is not None:
            self.memory = Embedded(self.memory.hidden[rows], self.memory.positions[rows], self.memory.valid[rows])


class Transformer(Backbone):
    """causal=True: a decoder, causal=False: an encoder; with blocks that cross, it reads another sequence too.

    block: `(dim, num_heads) -> Blocks`; a variant is another block passed in. norm: of the last output.
    input_norm: of what comes in (BERT); None: not.
    position: what attention knows of positions (`Rotary()`); None: they must be added by the Embedder.
    Weights start as GPT-2's: normal with std 0.02, branches' outputs divided by sqrt(2 depth) (Radford et al. 2019,
    section 2.3).
    Raises ValueError if dim is not a multiple of num_heads, or attention cannot do what causal, position or blocks ask.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        *,
        num_heads: int = 8,
        causal: bool = False,
        block: Callable[[int, int], Blocks] = Block,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        input_norm: Callable[[int], nn.Module] | None = None,
        position: AttentionPosition | None = None,
    ):
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth={depth}; a transformer needs at least one block")
        self.dim, self.num_heads, self.causal = dim, num_heads, causal
        self.blocks = nn.ModuleList(block(dim, num_heads) for _ in range(depth))
        self.norm = norm(dim)
        self.input_norm = input_norm(dim) if input_norm is not None else None
        self.position = position
        self._declare()
        self._start()

    @property
    def _blocks(self) -> list[Blocks]:
        return cast("list[Blocks]", list(self.blocks))

    def _declare(self) -> None:
        """What it can honour is what its attention can; what it needs and cannot have is refused."""
        first = self._blocks[0]
        needed = {"causal" if self.causal else "both ways"}
        if self.position is not None:
            needed |= self.position.needs
            self.position.check(self.num_heads, self.dim // self.num_heads)
        if first.crosses:
            needed |= {"source"}
        for block in self._blocks:
            block.refuse_unless_honoured(needed)
        self._needed = frozenset(needed)
        honours, self.dense = first.honours, first.dense
        self.reads_links, self.reads_segments = "links" in honours, "segments" in honours
        self.steps = "cache" in honours
        self.reads_memory = first.crosses
        self.reads_positions = self.position is not None

    def _start(self) -> None:
        for name, module in self.blocks.named_modules():
            pointwise = isinstance(module, nn.Conv1d) and module.kernel_size == (1,)  # a linear layer by another name
            if isinstance(module, nn.Linear) or pointwise:
                shrink = (2 * len(self.blocks)) ** -0.5 if name.endswith(".out") else 1.0
                nn.init.normal_(module.weight, std=0.02 * shrink)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for layer, block in enumerate(self.blocks):
            for name, module in block.named_modules():
                if isinstance(module, Residual):
                    module.at_depth(layer / max(len(self.blocks) - 1, 1))
                if getattr(block, "zero_init", False) and name.split(".")[-1] == "out":
                    nn.init.zeros_(module.get_parameter("weight"))

    def check(self, spec: TokenSpec) -> None:
        """Raise ValueError if rotary heads have no channel pair for each axis, or links go unheard or are missed."""
        if self.position is not None:
            self.position.check_axes(spec.num_axes, self.dim // self.num_heads)
        if spec.num_links:
            for block in self._blocks:
                block.refuse_unless_honoured(self._needed | {"links"})
        elif any(block.needs_links for block in self._blocks):
            raise ValueError(
                "this attention goes along links, and these tokens have none; use the mechanism ScaledDotProduct"
            )

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden vectors [b n d], zero where padded."""
        kept = None if cache is None else _mine(cache)
        self.refuse_unread(embedded)
        reading = who_reads_whom(
            embedded,
            causal=self.causal,
            num_heads=self.num_heads,
            channels=self.dim // self.num_heads,
            position=self.position,
            past=None if kept is None else kept.past,
            dense=self.dense,
        )
        source = self._source(embedded, kept)
        x = embedded.hidden if self.input_norm is None else self.input_norm(embedded.hidden)
        for layer, block in enumerate(self.blocks):
            x = block(x, reading, None if kept is None else kept.layers[layer], source)
        if kept is not None:
            kept.append(embedded.valid, embedded.positions)
        return self.norm(x).masked_fill(~rearrange(embedded.valid, "b n -> b n 1"), 0.0)

    def refuse_unread(self, embedded: Embedded) -> None:
        """Raise ValueError for packed sequences or links that its attention would pass over."""
        if embedded.segments is not None and not self.reads_segments:
            raise ValueError("this attention cannot keep packed sequences apart; give each sequence its own row")
        if embedded.links is not None and not self.reads_links:
            raise ValueError("this attention cannot keep to links; use the mechanism ScaledDotProduct")

    def _source(self, embedded: Embedded, kept: LayersCache | None) -> Source | None:
        """The other sequence, remembered from the first step on."""
        memory = embedded.memory if kept is None or kept.memory is None else kept.memory
        if (memory is not None) != self.reads_memory:
            wants = "reads another sequence, and was given none" if self.reads_memory else "reads no other sequence"
            raise ValueError(f"this Transformer {wants}; blocks that cross go with `Embedded.memory`")
        if memory is None:
            return None
        if kept is not None:
            kept.memory = memory
        reading = who_reads_memory(Embedded(embedded.hidden, embedded.positions, embedded.valid, memory=memory),
                                   dense=self.dense)  # fmt: skip
        return Source(memory.hidden, reading)

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache. Raises ValueError if not causal: later tokens would change earlier ones."""
        if not self.causal:
            raise ValueError(
                "this Transformer is not causal, so nothing it has read can be kept; build it with causal=True"
            )
        if not self.steps:
            raise ValueError("this attention cannot go on step by step; generate with use_cache=False")
        return LayersCache([block.init_memory(max_tokens) for block in self._blocks])


def _mine(cache: Cache) -> LayersCache:
    if not isinstance(cache, LayersCache):
        raise ValueError(f"a Transformer was given a {type(cache).__name__}; make its cache with init_cache")
    return cache
