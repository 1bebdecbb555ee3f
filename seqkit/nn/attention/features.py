"""Features that attention layers may support, and the error where one does not."""

from __future__ import annotations

import enum


class AttentionFeature(enum.Flag):
    """Features that an attention layer may support. Padding is not among them: every layer must mask it.

    They combine as flags: CAUSAL | CACHE, and ALL_FEATURES & ~ROTARY.
    """

    BIDIRECTIONAL = enum.auto()
    """A query may attend to keys before and after it."""
    CAUSAL = enum.auto()
    """A query attends to no later key."""
    REACH = enum.auto()
    """The batch says how far each query attends (`Embedded.reach`), as in a prefix-LM."""
    UNORDERED = enum.auto()
    """Tokens are a set: their columns do not matter."""
    ADJACENCY = enum.auto()
    """Tokens attend only along the edges of a graph."""
    SEGMENTS = enum.auto()
    """Sequences packed into one row do not attend to each other."""
    ROTARY = enum.auto()
    """Queries and keys are rotated by their positions, so scores must be computed from their dot products."""
    BIAS = enum.auto()
    """`attn_mask` may be floats, which are added to the scores (`ALiBi`, `T5Bias`)."""
    CROSS_ATTENTION = enum.auto()
    """Queries and keys come from different sequences, so n and m may differ."""
    CACHE = enum.auto()
    """Generation token by token: new keys and values are appended to those in a cache."""
    GROUPED_QUERY = enum.auto()
    """There are fewer key/value heads than query heads (`repeat_kv`)."""


ALL_FEATURES = ~AttentionFeature(0)

WORDING = {
    AttentionFeature.BIDIRECTIONAL: "bidirectional attention (causal=False)",
    AttentionFeature.CAUSAL: "causal attention (causal=True)",
    AttentionFeature.REACH: "causality that comes with the batch (causal=None)",
    AttentionFeature.UNORDERED: "tokens without an order (sets), since it uses which column a token is in",
    AttentionFeature.ADJACENCY: "adjacency (the edges of graphs)",
    AttentionFeature.SEGMENTS: "segments (packed sequences)",
    AttentionFeature.ROTARY: "rotary positions (Rotary)",
    AttentionFeature.BIAS: "a bias on attention scores (ALiBi, T5Bias)",
    AttentionFeature.CROSS_ATTENTION: "cross-attention",
    AttentionFeature.CACHE: "a KV cache",
    AttentionFeature.GROUPED_QUERY: "grouped-query attention (num_kv_heads below num_heads)",
}
"""Feature names for error messages."""


def check_supported(
    name: str,
    supports: AttentionFeature,
    required: AttentionFeature,
    instead: str = "use the mechanism ScaledDotProductAttention",
) -> None:
    """Raise ValueError if a required feature is not supported.

    name: name of the component. instead: advice in the error; by default, to use the mechanism with all features.
    """
    missing = [WORDING[feature] for feature in AttentionFeature if feature in required & ~supports]
    if missing:
        raise ValueError(f"{name} does not support {' nor '.join(missing)}; {instead}")
