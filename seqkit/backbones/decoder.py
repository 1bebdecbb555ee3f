"""Parts that decoders of an encoder–decoder share: their cache, and access to the encoder's output.

b batch
"""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from seqkit.interfaces import Backbone, Cache, Embedded
from seqkit.nn.attention.kv_cache import LayerCache, encoder_output, reordered


class DecoderCache(Cache):
    """The cache of the network over the target, the encoder's output, and its keys and values if there is attention."""

    def __init__(self, owner: type, inner: Any, attention: LayerCache | None):
        self.owner = owner
        self.num_tokens = 0
        self.inner = inner
        self.attention = attention
        self.memory: Embedded | None = None

    def reorder(self, rows: Tensor) -> None:
        self.inner.reorder(rows)
        self.memory = reordered(self.memory, rows)
        if self.attention is not None:
            self.attention.reorder(rows)


def checked(
    decoder: Backbone, embedded: Embedded, cache: Cache | None
) -> tuple[Embedded, DecoderCache | None]:
    """The encoder's output, and the decoder's cache, which keeps it, if there is one.

    Raises ValueError where there is none, for adjacency of the target (the source's is the encoder's), for packed
    targets with a cache, or for another cache.
    """
    name = type(decoder).__name__
    if embedded.adjacency is not None:
        raise ValueError(f"{name} does not support adjacency of the target; leave it out")
    if embedded.segments is not None and cache is not None:
        raise ValueError(f"{name} has no cache of packed targets; give each a row of its own")
    if cache is not None and cache.owner is not type(decoder):
        raise ValueError(
            f"{name} was given a {type(cache).__name__}; make its cache with init_cache"
        )
    memory = encoder_output(embedded, cache)
    if memory is None:
        raise ValueError(f"this {name} attends to an encoder's output, and was given no source")
    return memory, cast("DecoderCache | None", cache)
