"""Attention decoder: any causal backbone attends to an encoder's output on top of its hidden states.

b batch · n tokens of the target · m tokens of the source · d width
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqkit.backbones.decoder import DecoderCache, checked
from seqkit.interfaces import Backbone, Cache, Embedded
from seqkit.nn.attention.context import cross_attention_context
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.padding import zero_padded


class AttentionDecoder(Backbone):
    """A causal backbone as the decoder of an `EncoderDecoder`, by attention to the encoder's output h_1 … h_m.

    With s_t the hidden states of `backbone` over the target's tokens (brackets concatenate; Luong et al. 2015, section
    3.1, equation 5, global attention):

        c_t = Attention(s_t, h)
        out_t = tanh(W [c_t, s_t])

    Attention is the only way from the encoder to the decoder: unlike there, no state of the encoder starts the
    decoder's, so encoder and decoder may be of any two kinds. There is no input feeding (section 3.3) either, so that
    all tokens are computed at once where the backbone can.
    backbone: causal network over the target, whose width is the decoder's. num_heads: number of attention heads.
    attention: attention layer, `(dim, num_heads) -> MultiHeadAttention`.
    Time and memory are the backbone's, and O(n m d + (n + m) d^2) of the attention, which stores no scores where SDPA
    runs fused. Use it to compare recurrent, convolutional and state-space networks as decoders.
    Adjacency of the target is refused (the source's is the encoder's). Packed targets, if the backbone supports them,
    attend to the encoder's output of their row.
    Raises ValueError for a backbone that is not causal or has cross-attention already, heads that do not fit, or an
    attention that does not support cross-attention.
    """

    causal = True
    is_encoder_decoder = True

    def __init__(
        self,
        backbone: Backbone,
        *,
        num_heads: int = 1,
        attention: Callable[[int, int], MultiHeadAttention] = MultiHeadAttention,
    ):
        super().__init__()
        if not backbone.causal or backbone.is_encoder_decoder:
            raise ValueError(
                f"the backbone of an AttentionDecoder ({type(backbone).__name__}) should be causal and take one "
                "sequence; build it with causal=True and without cross-attention"
            )
        self.backbone = backbone
        self.dim = backbone.dim
        self.num_heads = num_heads
        self.uses_positions = backbone.uses_positions
        self.supports_segments = backbone.supports_segments
        self.is_recurrent = backbone.is_recurrent
        self.ignores_order = backbone.ignores_order
        self.needs_unit_inputs = backbone.needs_unit_inputs
        self.attention = attention(self.dim, num_heads).for_cross_attention()
        self.attention.check_supported(AttentionFeature.CROSS_ATTENTION)
        self.out = nn.Linear(2 * self.dim, self.dim)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded.

        Raises ValueError for adjacency, no source, packed targets with a cache, or what the backbone refuses.
        """
        memory, cache = checked(self, embedded, cache)
        states = self.backbone(
            embedded.replace(source=None, memory=None), None if cache is None else cache.inner
        )
        context = cross_attention_context(
            embedded.valid, memory, needs_mask=self.attention.needs_mask
        )
        attended = self.attention(states, context, None if cache is None else cache.attention)
        if cache is not None:
            cache.num_tokens += states.shape[1]
        output = self.out(torch.cat([attended, states], dim=-1)).tanh()
        return zero_padded(output, embedded.valid)

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache. Raises ValueError where the backbone has none."""
        inner = self.backbone.init_cache(max_tokens)
        return DecoderCache(type(self), inner, self.attention.init_cache(max_tokens))
