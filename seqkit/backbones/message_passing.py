"""Message passing along the edges of graphs, in O(edges): GIN, GCN and APPNP.

b batch · n tokens (nodes) · d width · N = b n tokens of the whole batch · e edges · t edge types
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Adjacency, Backbone, Cache, Embedded, TokenSpec
from seqkit.nn.block import MLP
from seqkit.nn.checks import check_at_least, check_probability
from seqkit.nn.padding import zero_padded
from seqkit.nn.precision import float32_or_more


class Edges(NamedTuple):
    """The edges of a batch. source, target: [e], indices into its N tokens. edge_type: [e], from 1.

    masked: [e] bool, True: no message goes along this edge. It stays in place, since choosing edges by their type would
    make an accelerator wait.
    """

    source: Tensor
    target: Tensor
    edge_type: Tensor
    masked: Tensor

    def rows(self, num_edge_types: int) -> Tensor:
        """Row of each edge, [e], in a table of so many types; masked edges may have later types."""
        return (self.edge_type - 1).clamp(max=num_edge_types - 1)


def edges_of(adjacency: Adjacency, valid: Tensor | None, max_edge_type: int | None) -> Edges:
    """Edges of a batch, masked from padding and beyond `max_edge_type`. valid: [b n] bool; None: all are real."""
    source, target = adjacency.edge_index
    if valid is None:
        masked = torch.zeros_like(source, dtype=torch.bool)
    else:
        masked = ~rearrange(valid, "b n -> (b n)")[source]
    if max_edge_type is not None:
        masked = masked | (adjacency.edge_type > max_edge_type)
    return Edges(source, target, adjacency.edge_type, masked)


class SumOverEdges(nn.Module):
    """Sum of the messages that arrive at each token, in float32 at least."""

    def forward(self, messages: Tensor, target: Tensor, num_tokens: int) -> Tensor:
        """[N d] from messages [e d]. target: [e]."""
        wide = float32_or_more(messages.dtype)
        total = messages.new_zeros((num_tokens, messages.shape[1]), dtype=wide)
        return total.index_add(0, target, messages.to(wide)).to(messages.dtype)

    def uncounted_flops(self, messages: Tensor) -> int:
        """An addition for each entry of a message, which torch's counter does not see."""
        return messages.numel()


class GINConvolution(nn.Module):
    """MLP((1 + eps) x_i + sum over neighbours j of x_j) with a learned eps (Xu et al. 2019, equation 4.1).

    With edge types the sum is of relu(x_j + embedding of the edge's type), after Hu et al. 2020 and equal to
    `GINEConv` of PyG 2.8. The MLP has two layers with a ReLU between, and an inner width of twice the outer.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim
        self.eps = nn.Parameter(torch.zeros(()))
        self.mlp = MLP(dim, ratio=2.0, activation=nn.ReLU)
        self.edge_embedding: nn.Embedding | None = None
        self.sum = SumOverEdges()

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        messages = x.index_select(0, edges.source)
        if self.edge_embedding is not None:
            messages = (
                messages + self.edge_embedding(edges.rows(self.edge_embedding.num_embeddings))
            ).relu()
        messages = messages.masked_fill(rearrange(edges.masked, "e -> e 1"), 0.0)
        return self.mlp((1 + self.eps) * x + self.sum(messages, edges.target, x.shape[0]))

    def add_edge_types(self, num_edge_types: int) -> None:
        self.edge_embedding = nn.Embedding(num_edge_types, self.dim)


class NormalisedAdjacency:
    """GCN's adjacency of a batch, a_ij / sqrt(deg_i deg_j), in float32 at least; `adjacency @ x` mixes x [N d].

    a_ij is 1, with log_edge_weight [t] the exponential of the edge type's; a_ii is the weight of the self-loop or,
    where there is none, 1. x: [N d], of which length, dtype and device are used. total: sums over edges.
    """

    def __init__(
        self, edges: Edges, x: Tensor, log_edge_weight: Tensor | None, total: SumOverEdges
    ):
        wide = float32_or_more(x.dtype)
        weight = torch.ones_like(edges.edge_type, dtype=wide)
        if log_edge_weight is not None:
            weight = (
                log_edge_weight.to(wide).exp().index_select(0, edges.rows(len(log_edge_weight)))
            )
        weight = weight.masked_fill(edges.masked, 0.0)
        # a self-loop takes the place of the token's own 1; a sum over none of them, where they are masked, leaves it
        replaced = ((edges.source == edges.target) & ~edges.masked).to(wide)
        own = torch.ones(x.shape[0], dtype=wide, device=x.device).index_add(
            0, edges.target, -replaced
        )
        inverse_root = own.index_add(0, edges.target, weight).rsqrt()
        self.edges = edges
        self.total = total
        self.weight, self.own, self.inverse_root = (
            rearrange(t, "n -> n 1") for t in (weight, own, inverse_root)
        )

    def __matmul__(self, x: Tensor) -> Tensor:
        # symmetric normalisation in two steps, by the source's degree before the sum and the target's after it
        scaled = x * self.inverse_root
        messages = scaled.index_select(0, self.edges.source) * self.weight
        return (
            scaled * self.own + self.total(messages, self.edges.target, x.shape[0])
        ) * self.inverse_root


class _AlongEdges(Backbone):
    """Base class of backbones that pass messages along `Embedded.adjacency`, from the source of an edge to its target.

    An edge from a token to itself has its type, as any other.
    max_edge_type: largest edge type that messages go along; None: all types.
    """

    supports_adjacency = True
    causal = False
    # a norm stands before GIN's convolutions; GCN and APPNP scale with their input
    needs_unit_inputs = False

    def __init__(self, dim: int, depth: int, *, max_edge_type: int | None, dropout: float):
        super().__init__()
        check_at_least(1, dim=dim, depth=depth, max_edge_type=max_edge_type)
        check_probability("dropout", dropout)
        self.dim = dim
        self.max_edge_type = max_edge_type
        self.num_edge_types = 0

    @abstractmethod
    def run(self, x: Tensor, edges: Edges) -> Tensor:
        """Hidden states [N d] from x [N d]."""

    @abstractmethod
    def add_edge_types(self, num_edge_types: int) -> None:
        """Tell that many edge types apart; called once, with 2 or more."""

    def check_supported(self, spec: TokenSpec) -> None:
        """Raise ValueError for tokens without adjacency, or with fewer edge types than `max_edge_type`."""
        name = type(self).__name__
        if not spec.num_edge_types:
            raise ValueError(
                f"{name} passes messages along edges, and these tokens have no adjacency; use Transformer, "
                "or leave out model.adjacency=ignore if that is set"
            )
        if self.max_edge_type is not None and self.max_edge_type > spec.num_edge_types:
            raise ValueError(
                f"{name} has max_edge_type={self.max_edge_type}, and these tokens have edge types 1 to "
                f"{spec.num_edge_types}; make it one of them, or null for all"
            )

    def add_edge_bias(self, num_edge_types: int) -> None:
        """Tell edge types apart, where messages go along more than one.

        Raises ValueError if it has parameters for another number of types.
        """
        if self.max_edge_type is None:
            used = num_edge_types
        else:
            used = min(num_edge_types, self.max_edge_type)
        if self.num_edge_types not in (0, used):
            raise ValueError(
                f"this {type(self).__name__} is for other edge types; build one for each model"
            )
        if self.num_edge_types == 0 and used > 1:
            self.add_edge_types(used)
        self.num_edge_types = used

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded. Raises ValueError for segments, a cache, or no adjacency."""
        name = type(self).__name__
        if embedded.adjacency is None:
            raise ValueError(
                f"{name} passes messages along edges, and these tokens have no adjacency; use Transformer"
            )
        if embedded.segments is not None or cache is not None:
            raise ValueError(
                f"{name} does not support segments or a cache; give each graph its own row"
            )
        edges = edges_of(embedded.adjacency, embedded.valid, self.max_edge_type)
        x = self.run(rearrange(embedded.hidden, "b n d -> (b n) d"), edges)
        hidden = rearrange(x, "(b n) d -> b n d", b=embedded.hidden.shape[0])
        return zero_padded(hidden, embedded.valid)


class GIN(_AlongEdges):
    """Graph isomorphism network (Xu et al. 2019), with several edge types GINE (after Hu et al. 2020).

    Layer: x_i + dropout(MLP((1 + eps) x_i + sum over the sources j of edges j -> i of x_j)), x being normalised before;
    with edge types of relu(x_j + embedding of the type), one table a layer. A norm follows the last layer. The norm
    acts on the channels of each token, where the paper has a batch norm, which would mix the graphs of a batch. The
    residual connection is ours. Sums can count equal neighbours, which means and attention cannot (Xu et al. 2019,
    theorem 3 and section 5.2).
    depth: number of layers. max_edge_type: largest edge type that messages go along; None: all types.
    norm: norm of each layer's input and of the last output. dropout: probability of dropping an entry of a layer's
    output.
    Time O(e d + n d^2) and memory O((e + n) d) for each layer; there is no [n n] tensor.
    Use it for molecules and other graphs whose degrees matter, or as the baseline that has no attention. It needs an
    adjacency, of which it uses the edges and their types. It is bidirectional only, and refuses segments and caches.
    Messages go along all edges of the adjacency. For the graph's own edges alone, where a tokenizer adds pairs by their
    distance (Molecule does by default), set `tokenizer.encodings` to [], which also saves the others' cost, or
    `max_edge_type` to the last type of the graph's own (5 for Molecule).
    Raises ValueError for sizes or a `max_edge_type` below 1.

    >>> from seqkit.interfaces import Adjacency, Embedded
    >>> path = Adjacency(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.ones(4, dtype=torch.int64))
    >>> x = Embedded(torch.randn(1, 3, 8), torch.zeros(1, 3, 0), torch.ones(1, 3, dtype=torch.bool), path)
    >>> GIN(8)(x).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        dim: int,
        depth: int = 3,
        *,
        max_edge_type: int | None = None,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        dropout: float = 0.0,
    ):
        super().__init__(dim, depth, max_edge_type=max_edge_type, dropout=dropout)
        self.convolutions = nn.ModuleList(GINConvolution(dim) for _ in range(depth))
        self.norms = nn.ModuleList(norm(dim) for _ in range(depth))
        self.dropout = nn.Dropout(dropout)
        self.norm = norm(dim)

    def run(self, x: Tensor, edges: Edges) -> Tensor:
        for norm, convolution in zip(self.norms, self.convolutions):
            x = x + self.dropout(convolution(norm(x), edges))
        hidden: Tensor = self.norm(x)
        return hidden

    def add_edge_types(self, num_edge_types: int) -> None:
        for convolution in self.convolutions:
            convolution.add_edge_types(num_edge_types)  # type: ignore[union-attr, operator]


class _Propagation(_AlongEdges):
    """Base class of GCN and APPNP: messages go along the normalised adjacency, with a learned weight of each type."""

    log_edge_weight: nn.Parameter | None

    def __init__(self, dim: int, depth: int, *, max_edge_type: int | None, dropout: float):
        super().__init__(dim, depth, max_edge_type=max_edge_type, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        self.sum = SumOverEdges()

    def adjacency(self, edges: Edges, x: Tensor) -> NormalisedAdjacency:
        return NormalisedAdjacency(edges, x, self.log_edge_weight, self.sum)

    def add_edge_types(self, num_edge_types: int) -> None:
        self.log_edge_weight = nn.Parameter(torch.zeros(num_edge_types))


class GCN(_Propagation):
    """Graph convolutional network (Kipf and Welling 2017, equation 9), with neither norms nor residual connections.

    Layer: A W h, with a ReLU between layers, A being the adjacency with self-loops, a_ij / sqrt(deg_i deg_j)
    (`NormalisedAdjacency`; a_ij is 1, with several edge types a learned weight of the type). The W of the first layer
    is the linear layer of the embedder, and that of the last layer the head's, as a propagation and a linear layer may
    change places, but for the embedder's bias; dropout acts behind the first W. So depth 2 has no weights of its own.
    It smooths over neighbours and cannot count them.
    depth: number of layers. dropout: probability of dropping an entry of a layer's input.
    Time O(e d + n d^2) and memory O((e + n) d) for each layer; there is no [n n] tensor.
    Use it for labels of nodes where neighbours tend to be alike (citation graphs), or as the baseline of graph
    networks. Adjacency, other support and `max_edge_type` are as in `GIN`.
    Raises ValueError for sizes or a `max_edge_type` below 1.
    """

    def __init__(
        self, dim: int, depth: int = 2, *, max_edge_type: int | None = None, dropout: float = 0.0
    ):
        super().__init__(dim, depth, max_edge_type=max_edge_type, dropout=dropout)
        self.depth = depth
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth - 2))
        for layer in self.layers:  # outputs then scale with inputs, however small these are
            nn.init.zeros_(layer.get_parameter("bias"))
        self.log_edge_weight = None

    def run(self, x: Tensor, edges: Edges) -> Tensor:
        adjacency = self.adjacency(edges, x)
        for layer in range(self.depth):
            if layer > 0:
                x = x.relu()
            x = self.dropout(x)
            if 0 < layer < self.depth - 1:
                x = self.layers[layer - 1](x)
            x = (adjacency @ x).to(x.dtype)
        return x


class APPNP(_Propagation):
    """Personalised propagation of neural predictions (Gasteiger, Bojchevski and Günnemann 2019).

    An MLP makes z of each token alone; then num_steps times h <- (1 - alpha) A h + alpha z, from h = z (equations 5 and
    6), A being GCN's normalised adjacency, self-loops included. Neighbours of up to num_steps hops count without more
    weights to learn, and a token's own z keeps a share of alpha. The head after it is linear: it gives the same
    predictions as before the propagation, where the paper has it, but for its bias.
    depth: number of hidden layers of the MLP, x <- relu(W dropout(x) + b), from the ReLU of the embedding, the paper's
    own first layer. num_steps: hops that messages go. alpha: probability of the personalised PageRank to return to the
    token itself. learn_weights: whether the weights of A^k z, one for each number of hops k, are learned from these on:
    a negative one tells a token from neighbours that are unlike it (GPR-GNN; Chien et al. 2021, equation 1). dropout:
    probability of dropping an entry of a layer's input. With several edge types those of A are weighted as in `GCN`.
    Time O(num_steps e d + depth n d^2) and memory O((num_steps e + n) d); there is no [n n] tensor.
    Use it where few nodes are labelled and neighbours tend to be alike (citation graphs), with learn_weights also where
    they are not. Adjacency, other support and `max_edge_type` are as in `GIN`.
    Raises ValueError for sizes, steps or a `max_edge_type` below 1, and alpha outside [0, 1).
    """

    def __init__(
        self,
        dim: int,
        depth: int = 1,
        *,
        num_steps: int = 10,
        alpha: float = 0.1,
        learn_weights: bool = False,
        max_edge_type: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(dim, depth, max_edge_type=max_edge_type, dropout=dropout)
        check_at_least(1, num_steps=num_steps)
        check_probability("alpha", alpha)
        self.num_steps = num_steps
        self.alpha = alpha
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        weights = alpha * (1 - alpha) ** torch.arange(num_steps + 1.0)
        weights[-1] = (1 - alpha) ** num_steps  # what equation 6 comes to
        self.weights = nn.Parameter(weights) if learn_weights else None
        self.log_edge_weight = None

    def run(self, x: Tensor, edges: Edges) -> Tensor:
        z = x.relu()
        for layer in self.layers:
            z = layer(self.dropout(z)).relu()
        adjacency = self.adjacency(edges, z)
        h = z
        if self.weights is not None:
            total = self.weights[0] * z
            for weight in self.weights[1:]:
                h = adjacency @ h
                total = total + weight * h
            return total.to(x.dtype)
        for _ in range(self.num_steps):
            h = (1 - self.alpha) * (adjacency @ h) + self.alpha * z
        return h.to(x.dtype)
