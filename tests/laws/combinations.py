"""Transformers of every registered mechanism with every position, and the features that each combination requires."""

from functools import partial

from torch import nn

from seqkit.backbones import Transformer
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import ParallelBlock, PostNormBlock, PreNormBlock
from seqkit.nn.position.bias import ALiBi, T5Bias
from seqkit.nn.position.rotary import Rotary
from seqkit.registry import find

DIM, HEADS = 24, 3
SETTINGS = {
    "TopKAttention": {"k": 9},
    "SlidingWindowAttention": {"size": 3},
    "LinformerAttention": {"max_tokens": 16, "rank": 5},
    "PerformerAttention": {"num_features": 7},
    "LSHAttention": {"bucket_size": 4, "num_rounds": 2},
}
"""Arguments of mechanisms; most of them are required."""
POSITIONS = {
    "none": lambda: None,
    "Rotary": Rotary,
    "ALiBi": ALiBi,
    "T5Bias": partial(T5Bias, HEADS, num_buckets=8, max_distance=9),
}
BLOCKS = (PreNormBlock, PostNormBlock, ParallelBlock)
NORMS = (nn.LayerNorm, nn.RMSNorm)


def supports(name):
    """The features that the mechanism of that name supports."""
    return find("mechanism", name).load().supports


def build(name, position, causal, block, norm, num_axes=1, depth=2):
    mechanism = partial(find("mechanism", name).load(), **SETTINGS.get(name, {}))
    return Transformer(
        DIM,
        depth,
        num_heads=HEADS,
        causal=causal,
        block=partial(block, attention=partial(MultiHeadAttention, mechanism=mechanism), norm=norm),
        norm=norm,
        position=POSITIONS[position](),
    )


def required(position, causal, modality):
    """The features that the combination requires of attention."""
    features = AttentionFeature.CAUSAL if causal else AttentionFeature.BIDIRECTIONAL
    made = POSITIONS[position]()
    if made is not None:
        features |= made.requires
    return features | (AttentionFeature.ADJACENCY if modality == "graph" else AttentionFeature(0))
