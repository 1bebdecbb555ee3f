"""GPS block: attention and message passing in one layer.

b batch · n tokens (nodes) · d width
"""

from __future__ import annotations

from collections.abc import Callable

from einops import rearrange
from torch import Tensor, nn

from seqkit.backbones.message_passing import GINConvolution, edges_of
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.kv_cache import LayerCache
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import MLP, BaseBlock, Residual
from seqkit.nn.checks import check_at_least

_UNSUPPORTED = (
    AttentionFeature.CAUSAL | AttentionFeature.REACH | AttentionFeature.SEGMENTS | AttentionFeature.CACHE
    | AttentionFeature.CROSS_ATTENTION
)  # fmt: skip


class GPSBlock(BaseBlock):
    """Attention and GIN's messages side by side: x + attention(y) + messages(y), y = norm(x), then x + mlp(norm(x)).

    Rampášek et al. 2022 (General, Powerful, Scalable graph transformer), equations 3 to 5, with the norm before each
    branch, where the paper has a batch norm behind it, and MLP and convolution of this package (`GINConvolution`).
    max_edge_type: largest edge type that messages go along; None: all types. With ShortestPath in the encodings make it
    the last type of the graph's own (5 for Molecule), so that attention sees all nodes and messages go along edges.
    The other arguments are those of `BaseBlock`. It needs an adjacency, and is bidirectional only.
    Raises ValueError for a `max_edge_type` below 1, and, when a model is built, where messages go along every edge that
    attention goes along: no token would then attend beyond its neighbours. `EdgeAttention` says that this is meant.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        attention: Callable[[int, int], MultiHeadAttention] = MultiHeadAttention,
        mlp: Callable[[int], nn.Module] = MLP,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        residual: Callable[[int], nn.Module] = Residual,
        max_edge_type: int | None = None,
    ):
        super().__init__(dim, num_heads, attention=attention, mlp=mlp, norm=norm, residual=residual)
        check_at_least(1, max_edge_type=max_edge_type)
        self.max_edge_type = max_edge_type
        self.convolution = GINConvolution(dim)
        self.convolution_residual = residual(dim)
        self.attention.supports &= ~_UNSUPPORTED
        self.attends_along_edges = self.attention.needs_adjacency
        self.attention.needs_adjacency = True

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        assert context.adjacency is not None
        y = self.attention_norm(x)
        edges = edges_of(context.adjacency, context.key_valid, self.max_edge_type)
        messages = self.convolution(rearrange(y, "b n d -> (b n) d"), edges)
        x = self.attention_residual(x, self.attention(y, context, cache))
        x = self.convolution_residual(x, rearrange(messages, "(b n) d -> b n d", b=x.shape[0]))
        return self.mlp_residual(x, self.feed_forward(self.mlp_norm(x), context))

    def add_edge_types(self, num_edge_types: int) -> None:
        """Tell edge types apart, where messages go along several. Raises ValueError for types that do not fit."""
        used = num_edge_types if self.max_edge_type is None else self.max_edge_type
        if used > num_edge_types:
            raise ValueError(
                f"max_edge_type={used}, and these tokens have edge types 1 to {num_edge_types}; use those"
            )
        if used == num_edge_types and not self.attends_along_edges:
            raise ValueError(
                f"GPSBlock sends messages along all edge types, 1 to {used}, so attention sees neighbours alone; give "
                "it max_edge_type, the last type of the graph's own, with ShortestPath in tokenizer.encodings, or the "
                "mechanism EdgeAttention"
            )
        if used > 1 and self.convolution.edge_embedding is None:
            self.convolution.add_edge_types(used)
