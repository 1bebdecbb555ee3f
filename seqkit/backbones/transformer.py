"""A stack of blocks: one backbone for all modalities.

b batch · n tokens · p axes · d width · h heads
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from einops import rearrange
from torch import Tensor, nn

from seqkit.contract import Backbone, Cache, Embedded, TokenSpec
from seqkit.layers.attention import KeysValues
from seqkit.layers.block import Block
from seqkit.layers.position import AttentionPosition
from seqkit.mask import who_reads_whom


class KeyValueCache(Cache):
    """Keys and values of every layer, and which of their columns are real and where they stand."""

    def __init__(self, depth: int, max_tokens: int):
        self.num_tokens, self.max_tokens = 0, max_tokens
        self.layers = [KeysValues(max_tokens) for _ in range(depth)]
        self.valid: Tensor | None = None
        self.positions: Tensor | None = None

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


class Transformer(Backbone):
    """Pre-norm transformer; causal=True: a decoder, causal=False: an encoder. Reads links and segments.

    block: `(dim, num_heads) -> nn.Module`; a variant is another block passed in. norm: of the last output.
    position: what attention knows of positions (`Rotary()`); None: they must be added by the Embedder.
    Weights start as GPT-2's: normal with std 0.02, branches' outputs divided by sqrt(2 depth) (Radford et al. 2019,
    section 2.3).
    Raises ValueError if dim is not a multiple of num_heads.
    """

    reads_links = True
    reads_segments = True

    def __init__(
        self,
        dim: int,
        depth: int,
        *,
        num_heads: int = 8,
        causal: bool = False,
        block: Callable[[int, int], nn.Module] = Block,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        position: AttentionPosition | None = None,
    ):
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth={depth}; a transformer needs at least one block")
        self.dim, self.num_heads, self.causal = dim, num_heads, causal
        self.blocks = nn.ModuleList(block(dim, num_heads) for _ in range(depth))
        self.norm = norm(dim)
        self.position = position
        self.reads_positions = position is not None
        self._start()

    def _start(self) -> None:
        for name, module in self.blocks.named_modules():
            if isinstance(module, nn.Linear):
                shrink = (2 * len(self.blocks)) ** -0.5 if name.endswith(".out") else 1.0
                nn.init.normal_(module.weight, std=0.02 * shrink)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for block in self.blocks:
            if getattr(block, "zero_init", False):
                for name in ("attention.out.weight", "mlp.out.weight"):
                    nn.init.zeros_(block.get_parameter(name))

    def check(self, spec: TokenSpec) -> None:
        """Raise ValueError if rotary heads have no channel pair for each axis of the tokens."""
        if self.position is not None:
            self.position.rotation(torch.zeros(1, 1, spec.num_axes), self.dim // self.num_heads)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden vectors [b n d], zero where padded."""
        past = _mine(cache).past if cache is not None else None
        reading = who_reads_whom(
            embedded,
            causal=self.causal,
            num_heads=self.num_heads,
            channels=self.dim // self.num_heads,
            position=self.position,
            past=past,
        )
        x = embedded.hidden
        for layer, block in enumerate(self.blocks):
            x = block(x, reading, None if cache is None else (_mine(cache).layers[layer], cache.num_tokens))
        if cache is not None:
            _mine(cache).append(embedded.valid, embedded.positions)
        return self.norm(x).masked_fill(~rearrange(embedded.valid, "b n -> b n 1"), 0.0)

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty key/value cache. Raises ValueError if not causal: later tokens would change earlier ones."""
        if not self.causal:
            raise ValueError(
                "this Transformer is not causal, so nothing it has read can be kept; build it with causal=True"
            )
        return KeyValueCache(len(self.blocks), max_tokens)


def _mine(cache: Cache) -> KeyValueCache:
    if not isinstance(cache, KeyValueCache):
        raise ValueError(f"a Transformer was given a {type(cache).__name__}; make its cache with init_cache")
    return cache
