"""Which layers work on each token by itself, so that they may get the real tokens of a batch in one row."""

from __future__ import annotations

from torch import nn

from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import MLP, ParallelBlock, PostNormBlock, PreNormBlock, Residual
from seqkit.nn.mlp import GatedMLP, QuickGELU, ReLUSquared
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.norm import ZeroCenteredRMSNorm

TOKENWISE = {
    MLP, GatedMLP, MixtureOfExperts, PreNormBlock, PostNormBlock, ParallelBlock, QuickGELU, ReLUSquared, Residual,
    ZeroCenteredRMSNorm, nn.Dropout, nn.GELU, nn.Identity, nn.LayerNorm, nn.Linear, nn.ModuleList, nn.RMSNorm, nn.ReLU,
    nn.SiLU, nn.Sigmoid, nn.Tanh,
}  # fmt: skip
"""Exact types: a subclass may do anything. What is not among them is taken to mix tokens."""


def is_tokenwise(layer: nn.Module) -> bool:
    """Whether a layer and all in it work on each token by itself, or are an attention that takes a packed row."""
    if type(layer) is MultiHeadAttention:
        return all(type(own) in (nn.Linear, type(None)) for own in (layer.qkv_proj, layer.q_proj, layer.out_proj))
    return type(layer) in TOKENWISE and all(is_tokenwise(child) for child in layer.children())
