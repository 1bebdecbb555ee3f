"""Transformer blocks: attention and MLP with residual connections; pre-norm, post-norm, parallel.

b batch · n tokens · d width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.kv_cache import LayerCache
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.checks import check_above_0, check_probability
from seqkit.nn.dropout import InheritedDropout
from seqkit.nn.mixers.base import Mixer

Activation = Callable[[], nn.Module]
"""Builds an activation: nn.GELU, or partial(nn.GELU, approximate="tanh") as in GPT-2."""


class PaddingAwareMLP(nn.Module, ABC):
    """Base class of MLPs that get the padding mask, since padding must not be processed (mixture of experts)."""

    @abstractmethod
    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """[b n d] from x [b n d]. valid: [b n] bool, True = real; None: all real."""


class MLP(nn.Module):
    """Two linear layers with an activation between (Vaswani et al. 2017, equation 2, with ReLU).

    ratio: inner width / dim. activation: activation between the layers. bias: whether the layers have one.
    dropout: dropout of the inner width. Raises ValueError if there is no inner width.

    >>> MLP(8, ratio=4)
    MLP(
      (up_proj): Linear(in_features=8, out_features=32, bias=True)
      (activation): GELU(approximate='none')
      (dropout): Dropout(p=0.0, inplace=False)
      (down_proj): Linear(in_features=32, out_features=8, bias=True)
    )
    """

    layer: Callable[..., nn.Module] = nn.Linear

    def __init__(
        self,
        dim: int,
        *,
        ratio: float = 4.0,
        activation: Activation = nn.GELU,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        inner = round(dim * ratio)
        if inner < 1:
            raise ValueError(
                f"ratio={ratio} makes an inner width of {inner} out of dim={dim}; it should be at least 1"
            )
        self.up_proj = self.layer(dim, inner, bias=bias)
        self.activation = activation()
        self.dropout = nn.Dropout(dropout)
        self.down_proj = self.layer(inner, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [... d]."""
        return self.down_proj(self.dropout(self.activation(self.up_proj(x))))


class Residual(InheritedDropout):
    """x + branch, with dropout, stochastic depth and layer scale on the branch.

    dropout: dropout of the branch's entries; None: the backbone's. drop_path: probability that an example skips the
    branch (stochastic depth; Huang et al. 2016; timm's `DropPath`), growing linearly from 0 in the first layer to this
    in the last, as there. layer_scale: initial value of a learned factor per channel (Touvron et al. 2021, CaiT,
    section 2.1); None: no factor. scale: a factor that stays (`residual_multiplier` of Granite). norm: norm of the
    branch's output before all of these, `dim -> nn.Module` (Gemma 2, OLMo 2; Liu et al. 2022, Swin v2, section 3.2:
    res-post-norm); None: none.
    Raises ValueError for probabilities outside [0, 1), or a scale that is not above 0.

    >>> Residual(2, layer_scale=0.1)(torch.ones(1, 1, 2), torch.ones(1, 1, 2))
    tensor([[[1.1000, 1.1000]]], grad_fn=<AddBackward0>)
    """

    def __init__(
        self,
        dim: int,
        *,
        dropout: float | None = None,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        norm: Callable[[int], nn.Module] | None = None,
        scale: float = 1.0,
    ):
        super().__init__(dropout)
        check_probability("drop_path", drop_path)
        check_above_0(scale=scale)
        self.max_drop_path = drop_path
        self.fixed_scale = scale
        self.drop_path: nn.Module | None = None
        if drop_path:
            from timm.layers import DropPath  # timm takes seconds to import

            self.drop_path = DropPath(drop_path)
        self.scale = None
        if layer_scale is not None:
            self.scale = nn.Parameter(torch.full((dim,), float(layer_scale)))
        self.norm = norm(dim) if norm is not None else None

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        """x, branch: [b n d]."""
        if self.norm is not None:
            branch = self.norm(branch)
        if self.dropout:
            branch = F.dropout(branch, self.dropout, self.training)
        if self.scale is not None:
            branch = branch * self.scale
        if self.fixed_scale != 1:
            branch = branch * self.fixed_scale
        if self.drop_path is not None:
            branch = self.drop_path(branch)
        return x + branch

    def set_drop_path(self, depth_fraction: float) -> None:
        """Set the probability by the layer's depth, 0 for the first to 1 for the last; the backbone calls it once."""
        if self.drop_path is not None:
            self.drop_path.drop_prob = self.max_drop_path * depth_fraction  # type: ignore[assignment]


class BaseBlock(nn.Module, ABC):
    """Base class of blocks: the components that pre-norm, post-norm and parallel blocks share.

    attention: attention layer or another mixer, `(dim, num_heads) -> Mixer`. mlp: MLP, `dim -> nn.Module`; None: the
    block has none (Mamba). norm: norm, `dim -> nn.Module`. residual: residual connection, `dim -> nn.Module`. A variant
    is another component passed in.
    attention_norm: norm before attention, if it differs (ModernBERT's first block has none there); None: `norm`.
    cross_attention: True: cross-attention to a memory between attention and MLP (the decoder of an encoder–decoder).
    zero_init: True: the output projections start at zero, so that a pre-norm or parallel block starts as the identity
    (Goyal et al. 2017, section 5.1). The branch of a mixer without one (LSTM, GRU, RNN, SLSTM, and MinGRU and MinLSTM
    without `expand`) starts as it does without zero_init.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        attention: Callable[[int, int], Mixer] = MultiHeadAttention,
        mlp: Callable[[int], nn.Module] | None = MLP,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        residual: Callable[[int], nn.Module] = Residual,
        cross_attention: bool = False,
        zero_init: bool = False,
        attention_norm: Callable[[int], nn.Module] | None = None,
    ):
        super().__init__()
        self.attention_norm = (attention_norm or norm)(dim)
        self.attention = attention(dim, num_heads)
        self.attention_residual = residual(dim)
        if cross_attention:
            self.cross_norm = norm(dim)
            over_memory = attention(dim, num_heads)
            if not isinstance(over_memory, MultiHeadAttention):
                over_memory = MultiHeadAttention(dim, num_heads)
            self.cross_attention = over_memory.for_cross_attention()
            self.cross_residual = residual(dim)
        self.has_mlp = mlp is not None
        if mlp is not None:
            self.mlp_norm = norm(dim)
            self.mlp = mlp(dim)
            self.mlp_residual = residual(dim)
        self.has_cross_attention = cross_attention
        self.zero_init = zero_init

    @abstractmethod
    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        """[b n d] from x [b n d]. context: its `cross` is set if the block has cross-attention.

        cache: cache of this layer; None: there is none.
        """

    def add_edge_types(self, num_edge_types: int) -> None:
        """Tell that many edge types apart, beside the attention (called by the backbone)."""

    def feed_forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """The MLP's output [b n d]; a mixture of experts also gets `query_valid`, so that padding is not routed."""
        if not isinstance(self.mlp, PaddingAwareMLP):
            return self.mlp(x)
        valid = context.query_valid
        if valid is not None and context.packing is not None:
            valid = context.packing.pack(valid)
        return self.mlp(x, valid)


class PreNormBlock(BaseBlock):
    """Pre-norm: x + attention(norm(x)), then x + mlp(norm(x)) (Xiong et al. 2020, figure 1b).

    >>> import torch
    >>> PreNormBlock(16, 4)(torch.randn(2, 5, 16), AttentionContext(is_causal=True)).shape
    torch.Size([2, 5, 16])
    """

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        x = self.attention_residual(x, self.attention(self.attention_norm(x), context, cache))
        if context.cross is not None:
            x = self.cross_residual(
                x, self.cross_attention(self.cross_norm(x), context.cross, cache)
            )
        if not self.has_mlp:
            return x
        return self.mlp_residual(x, self.feed_forward(self.mlp_norm(x), context))


class PostNormBlock(BaseBlock):
    """Post-norm: norm(x + attention(x)), then norm(x + mlp(x)) (Vaswani et al. 2017, section 3.1; BERT)."""

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        x = self.attention_norm(self.attention_residual(x, self.attention(x, context, cache)))
        if context.cross is not None:
            x = self.cross_norm(
                self.cross_residual(x, self.cross_attention(x, context.cross, cache))
            )
        if not self.has_mlp:
            return x
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
        attention: Callable[[int, int], Mixer] = MultiHeadAttention,
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

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        normed = self.attention_norm(x)
        y = self.attention_residual(x, self.attention(normed, context, cache))
        if context.cross is not None:
            query = normed if self.shared_norm else self.cross_norm(x)
            y = self.cross_residual(y, self.cross_attention(query, context.cross, cache))
        inner = normed if self.shared_norm else self.mlp_norm(x)
        return self.mlp_residual(y, self.feed_forward(inner, context))
