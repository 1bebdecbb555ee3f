"""Transformer blocks: attention and MLP with residual connections; pre-norm, post-norm, parallel.

b batch · n tokens · d width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

from seqkit.nn.attention.context import AttentionContext, AttentionFeature
from seqkit.nn.attention.kv_cache import LayerCache
from seqkit.nn.attention.multi_head import AttentionLayer, MultiHeadAttention
from seqkit.nn.mlp import MLP, PaddingAwareMLP
from seqkit.nn.residual import Residual


class BaseBlock(nn.Module, ABC):
    """Base class of blocks: the components that pre-norm, post-norm and parallel blocks share.

    attention: attention layer, `(dim, num_heads) -> AttentionLayer`. mlp: MLP, `dim -> nn.Module`. norm: norm,
    `dim -> nn.Module`. residual: residual connection, `dim -> nn.Module`. A variant is another component passed in.
    attention_norm: norm before attention, if it differs (ModernBERT's first block has none there); None: `norm`.
    cross_attention: True: cross-attention to a memory between attention and MLP (the decoder of an encoder–decoder).
    zero_init: True: the output projections start at zero, so that a pre-norm or parallel block starts as the identity
    (Goyal et al. 2017, section 5.1).
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        attention: Callable[[int, int], AttentionLayer] = MultiHeadAttention,
        mlp: Callable[[int], nn.Module] = MLP,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        residual: Callable[[int], nn.Module] = Residual,
        cross_attention: bool = False,
        zero_init: bool = False,
        attention_norm: Callable[[int], nn.Module] | None = None,
    ):
        super().__init__()
        self.attention_norm = (attention_norm or norm)(dim)
        self.attention, self.attention_residual = attention(dim, num_heads), residual(dim)
        if cross_attention:
            self.cross_norm = norm(dim)
            self.cross_attention = attention(dim, num_heads).for_cross_attention()
            self.cross_residual = residual(dim)
        self.mlp_norm, self.mlp, self.mlp_residual = norm(dim), mlp(dim), residual(dim)
        self.has_cross_attention, self.zero_init = cross_attention, zero_init

    @property
    def supports(self) -> AttentionFeature:
        """The features that its attention supports."""
        return self.attention.supports

    def check_supported(self, required: AttentionFeature) -> None:
        """Raise ValueError where its attention does not support a required feature."""
        self.attention.check_supported(required)

    def init_cache(self, max_tokens: int) -> LayerCache:
        """An empty cache of its attention."""
        return self.attention.init_cache(max_tokens)

    @abstractmethod
    def forward(self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None) -> Tensor:
        """[b n d] from x [b n d]. context: its `cross` is set if the block has cross-attention.

        cache: cache of this layer; None: there is none.
        """

    def feed_forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """The MLP's output [b n d]; a mixture of experts also gets `query_valid`, so that padding is not routed."""
        return self.mlp(x, context.query_valid) if isinstance(self.mlp, PaddingAwareMLP) else self.mlp(x)


class PreNormBlock(BaseBlock):
    """Pre-norm: x + attention(norm(x)), then x + mlp(norm(x)) (Xiong et al. 2020, figure 1b).

    >>> import torch
    >>> PreNormBlock(16, 4)(torch.randn(2, 5, 16), AttentionContext(is_causal=True)).shape
    torch.Size([2, 5, 16])
    """

    def forward(self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None) -> Tensor:
        x = self.attention_residual(x, self.attention(self.attention_norm(x), context, cache))
        if context.cross is not None:
            x = self.cross_residual(x, self.cross_attention(self.cross_norm(x), context.cross, cache))
        return self.mlp_residual(x, self.feed_forward(self.mlp_norm(x), context))


class PostNormBlock(BaseBlock):
    """Post-norm: norm(x + attention(x)), then norm(x + mlp(x)) (Vaswani et al. 2017, section 3.1; BERT)."""

    def forward(self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None) -> Tensor:
        x = self.attention_norm(self.attention_residual(x, self.attention(x, context, cache)))
        if context.cross is not None:
            x = self.cross_norm(self.cross_residual(x, self.cross_attention(x, context.cross, cache)))
        return self.mlp_norm(self.mlp_residual(x, self.feed_forward(x, context)))


class ParallelBlock(BaseBlock):
    """Parallel: x + attention(norm(x)) + mlp(norm(x)) (Wang and Komatsuzaki 2021, GPT-J; PaLM, Chowdhery et al. 2022,
    section 2).

    shared_norm: True: one norm for all branches, cross-attention included, computed once (GPT-J, PaLM, Falcon, Phi);
    False: a norm for each (GPT-NeoX; Black et al. 2022, section 2.1). The other arguments are those of `BaseBlock`.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        attention: Callable[[int, int], AttentionLayer] = MultiHeadAttention,
        mlp: Callable[[int], nn.Module] = MLP,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        residual: Callable[[int], nn.Module] = Residual,
        cross_attention: bool = False,
        zero_init: bool = False,
        shared_norm: bool = False,
    ):
        super().__init__(
            dim,
            num_heads,
            attention=attention,
            mlp=mlp,
            norm=norm,
            residual=residual,
            cross_attention=cross_attention,
            zero_init=zero_init,
        )
        self.shared_norm = shared_norm
        if shared_norm:
            self.mlp_norm = self.attention_norm
            if cross_attention:
                self.cross_norm = self.attention_norm

    def forward(self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None) -> Tensor:
        normed = self.attention_norm(x)
        y = self.attention_residual(x, self.attention(normed, context, cache))
        if context.cross is not None:
            query = normed if self.shared_norm else self.cross_norm(x)
            y = self.cross_residual(y, self.cross_attention(query, context.cross, cache))
        return self.mlp_residual(y, self.feed_forward(normed if self.shared_norm else self.mlp_norm(x), context))
