"""Structural encodings of graphs: a list of them adds to the content, edges and tokens of graphs and molecules.

n nodes · e edges · f features · w columns of an encoding · k eigenvectors · m nodes of a component · d width
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.errors import DataError
from seqkit.interfaces import Adjacency, Tokens, TokenSpec
from seqkit.tokenizers.adjacency import (
    add_unreachable,
    build_adjacency,
    merge_edges,
    num_adjacency_types,
)
from seqkit.tokenizers.settings import check_counts

if TYPE_CHECKING:
    from scipy import sparse

_START_NODES = 256  # whose walks are computed together: memory is n times this, never n x n
_DENSE_NODES = 256  # up to here all eigenvectors at once are as fast as some


class GraphEncoding:
    """Base class of entries of `encodings`. Here: columns of numbers that are appended to the content of each token.

    Whether the numbers depend on the order of the nodes is what the relabelling law asks: they must not.
    """

    def width(self, *, directed: bool) -> int:
        """Number of columns w. directed: whether the tokenizer's graphs are."""
        return 0

    def columns(self, edges: Tensor, num_nodes: int, *, directed: bool) -> Tensor:
        """[n w] float32. edges: [2 e] (source, target) without repetition and self-loops, both ways if undirected."""
        return torch.zeros(num_nodes, 0)


@dataclass(frozen=True)
class Degree(GraphEncoding):
    """log(1 + number of neighbours), without which attention along edges cannot count; if directed, in and out.

    When: nearly always; the default of `Graph`.
    """

    def width(self, *, directed: bool) -> int:
        return 2 if directed else 1

    def columns(self, edges: Tensor, num_nodes: int, *, directed: bool) -> Tensor:
        ends = (edges[1], edges[0]) if directed else (edges[1],)
        return torch.stack(
            [torch.log1p(end.bincount(minlength=num_nodes).float()) for end in ends], dim=1
        )


@dataclass(frozen=True)
class RandomWalk(GraphEncoding):
    """Probabilities that a random walk is back at its start after 1 to num_steps steps (RWSE).

    Dwivedi et al. 2022 (Graph Neural Networks with Learnable Structural and Positional Representations), equation 6:
    the diagonal of (A D^-1)^k. A walk follows the direction of edges and ends at a node without any.
    When: graphs that message passing cannot tell apart (rings). Time O(num_steps n e), memory O(n).
    Raises ValueError for num_steps below 1.
    """

    num_steps: int = 16

    def __post_init__(self) -> None:
        check_counts(num_steps=self.num_steps)

    def width(self, *, directed: bool) -> int:
        return self.num_steps

    def columns(self, edges: Tensor, num_nodes: int, *, directed: bool) -> Tensor:
        from scipy import sparse

        source, target = edges.numpy()
        degree = np.bincount(source, minlength=num_nodes)
        to_source = sparse.csr_matrix(
            (1 / degree[source], (target, source)), (num_nodes, num_nodes)
        )
        found = np.zeros((num_nodes, self.num_steps), np.float32)
        for first in range(0, num_nodes, _START_NODES):
            start = np.arange(first, min(first + _START_NODES, num_nodes))
            # of the walks from each start that are at each node
            share = np.zeros((num_nodes, len(start)))
            share[start, start - first] = 1
            for step in range(self.num_steps):
                share = to_source @ share
                found[start, step] = share[start, start - first]
        return torch.from_numpy(found)


@dataclass(frozen=True)
class Laplacian(GraphEncoding):
    """First num_eigenvectors eigenvectors of the normalised Laplacian behind the constant one, with variance 1.

    Dwivedi and Bresson 2020, section 2. Each connected component has its own, and 0 where it has no more (m - 1);
    directions are ignored. In training each has a random sign for each graph, since its sign means nothing; otherwise
    the sum of its cubes is positive. Where an eigenvalue is double, as in rings, the vectors depend
    on the order of the nodes: the relabelling law fails there.
    When: places in a large graph matter. Raises ValueError for num_eigenvectors below 1.
    """

    num_eigenvectors: int = 8

    def __post_init__(self) -> None:
        check_counts(num_eigenvectors=self.num_eigenvectors)

    def width(self, *, directed: bool) -> int:
        return self.num_eigenvectors

    def columns(self, edges: Tensor, num_nodes: int, *, directed: bool) -> Tensor:
        from scipy.sparse.csgraph import connected_components

        adjacency = adjacency_of(edges.numpy(), num_nodes)
        _, component = connected_components(adjacency, directed=False)
        order = np.argsort(component, kind="stable")
        found = np.zeros((num_nodes, self.num_eigenvectors), np.float32)
        for nodes in np.split(order, np.cumsum(np.bincount(component))[:-1]):
            if len(nodes) > 1:
                vectors = _eigenvectors(
                    adjacency[nodes][:, nodes], min(self.num_eigenvectors, len(nodes) - 1)
                )
                found[nodes, : vectors.shape[1]] = vectors
        return torch.from_numpy(found)


@dataclass(frozen=True)
class ShortestPath(GraphEncoding):
    """Edges between nodes that a path joins, typed by its number of hops: a bias of attention, as in Graphormer.

    Ying et al. 2021, equation 6. max_distance: most hops between adjacent nodes; None: any. max_hops: from here on hop
    counts share one edge type. unreachable: True: all other pairs are adjacent, too, with the last edge type, so every
    node attends to the whole graph; False: they are masked.
    When: small graphs; it makes up to n^2 edges. Raises ValueError on counts below 1.
    """

    max_distance: int | None = None
    max_hops: int = 8
    unreachable: bool = True

    def __post_init__(self) -> None:
        num_adjacency_types(1, self.max_distance, self.max_hops)  # raises on counts below 1


@dataclass(frozen=True)
class EdgeTokens(GraphEncoding):
    """Edges as tokens behind the nodes, each adjacent to its two ends, which are no longer adjacent themselves.

    TokenGT (Kim et al. 2022) gives tokens the identifiers of their nodes and attends everywhere; here the adjacency
    says which tokens an edge joins, which no order of the nodes changes. Other encodings see the edges as nodes.
    When: edges have vectors (`GraphData.edge_features`), which become their content. Labels are of whole graphs.
    """


@dataclass(frozen=True)
class VirtualNode(GraphEncoding):
    """A last token that is adjacent to every other, both ways, with an edge type of its own (Gilmer et al. 2017, 5.2).

    When: message passing over few hops should see the whole graph. Labels are of whole graphs.
    """


class Structure:
    """Tokens of graphs by a list of encodings, which `Graph` and `Molecule` share.

    num_edge_types: of the graphs' edges. directed: whether these have a direction.
    Raises ValueError where an encoding comes twice.
    """

    def __init__(
        self,
        encodings: Sequence[GraphEncoding],
        *,
        num_edge_types: int,
        directed: bool = False,
    ):
        for name, times in Counter(type(one).__name__ for one in encodings).items():
            if times > 1:
                raise ValueError(f"encodings has {name} {times} times; keep one")
        self.encodings = tuple(encodings)
        self.num_edge_types = num_edge_types
        self.directed = directed
        self.has_edge_tokens = any(isinstance(one, EdgeTokens) for one in encodings)
        self.has_virtual_node = any(isinstance(one, VirtualNode) for one in encodings)
        self.paths = ShortestPath(1, unreachable=False)
        for one in encodings:
            if isinstance(one, ShortestPath):
                self.paths = one
        num_types = num_adjacency_types(
            num_edge_types, self.paths.max_distance, self.paths.max_hops
        )
        self.num_types = num_types + self.paths.unreachable  # without that of a virtual node

    @property
    def width(self) -> int:
        """Number of columns that the encodings append."""
        return sum(one.width(directed=self.directed) for one in self.encodings)

    def spec(self, num_features: int, num_edge_features: int = 0) -> TokenSpec:
        """Spec of tokens of nodes, and of edges, with that many features of their own."""
        before = num_features + (1 + num_edge_features) * self.has_edge_tokens
        total = before + self.width + self.has_virtual_node
        embedder = None
        for one in self.encodings:
            width = one.width(directed=self.directed)
            if isinstance(one, Laplacian):
                embedder = partial(RandomSigns, total, before, width)
            before += width
        return TokenSpec(
            num_features=total,
            num_axes=0,
            num_edge_types=self.num_types + self.has_virtual_node,
            embedder=embedder,
        )

    def encode(
        self,
        nodes: Tensor,
        edges: Tensor,
        types: Tensor | None,
        *,
        one_way: bool = False,
        edge_features: Tensor | None = None,
    ) -> Tokens:
        """Tokens of a graph: nodes [n f] in their order, then edges, then the virtual node.

        edges: [2 e]; types: [e] or None; edge_features: [e k] or None. one_way: whether the edges of this graph have a
        direction.
        Raises DataError where edges of different types or features join the same nodes.
        """
        content = nodes
        if self.has_edge_tokens:
            edges, types, content = _with_edge_tokens(
                nodes, edges, types, edge_features, one_way=one_way
            )
        n = len(content)
        edges, types = merge_edges(edges, types, n, directed=one_way)
        columns = [one.columns(edges, n, directed=self.directed) for one in self.encodings]
        content = torch.cat([content, *columns], dim=1)
        adjacency = build_adjacency(
            edges,
            types,
            n,
            num_edge_types=self.num_edge_types,
            max_distance=self.paths.max_distance,
            max_hops=self.paths.max_hops,
        )
        if self.paths.unreachable:
            adjacency = add_unreachable(adjacency, n, self.num_types)
        if self.has_virtual_node:
            content = F.pad(content, (0, 1, 0, 1))
            content[-1, -1] = 1.0
            there = torch.stack([torch.arange(n), torch.full((n,), n)])
            index = torch.cat([adjacency.edge_index, there, there.flip(0)], dim=1)
            own_type = torch.full((2 * n,), self.num_types + 1)
            adjacency = Adjacency(index, torch.cat([adjacency.edge_type, own_type]))
        return Tokens(content, torch.zeros(len(content), 0), adjacency)


def _with_edge_tokens(
    nodes: Tensor,
    edges: Tensor,
    types: Tensor | None,
    edge_features: Tensor | None,
    *,
    one_way: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Edges from and to tokens of edges, their types, and content: of nodes, of edges, whether the token is an edge."""
    n = len(nodes)
    num_edges = edges.shape[1]
    given = torch.zeros(num_edges, 0) if edge_features is None else edge_features.float()
    kinds = torch.zeros(num_edges) if types is None else types
    rows, kind = torch.cat([kinds[:, None].double(), given.double()], dim=1).unique(
        dim=0, return_inverse=True
    )
    (source, target), kind = merge_edges(edges, kind, n, directed=one_way)
    if not one_way:
        source, target, kind = (x[source < target] for x in (source, target, kind))
    token = n + torch.arange(len(kind))
    found = rows[kind]
    halves = torch.cat([torch.stack([source, token]), torch.stack([token, target])], dim=1)
    content = F.pad(nodes, (0, 1 + given.shape[1], 0, len(kind)))
    content[n:, nodes.shape[1] : -1] = found[:, 1:].float()
    content[n:, -1] = 1.0
    return halves, found[:, 0].long().repeat(2), content


def adjacency_of(edges: np.ndarray, n: int) -> sparse.csr_matrix:
    """Adjacency [n n] of edges [2 e], 0 or 1, both ways and without self-loops."""
    from scipy import sparse

    source, target = edges[:, edges[0] != edges[1]]
    found = sparse.coo_matrix((np.ones(len(source)), (source, target)), shape=(n, n)).tocsr()
    return ((found + found.T) > 0).astype(np.float64)


def _eigenvectors(adjacency: sparse.csr_matrix, k: int) -> np.ndarray:
    """Eigenvectors [m k] of a connected graph with m > k nodes: those of the largest eigenvalues of the normalised
    adjacency, which are the smallest of the Laplacian, without the first."""
    from scipy import sparse
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    m = adjacency.shape[0]
    scale = sparse.diags(np.asarray(adjacency.sum(axis=1)).ravel() ** -0.5)
    normalised = scale @ adjacency @ scale
    if m <= max(_DENSE_NODES, k + 2):
        _, vectors = np.linalg.eigh(normalised.toarray())
        vectors = vectors[:, ::-1][:, 1 : k + 1]
    else:
        start = np.random.default_rng(0).normal(size=m)  # ARPACK's own start is random
        try:
            values, vectors = eigsh(normalised, k=k + 1, which="LA", v0=start)
        except ArpackNoConvergence:
            raise DataError(
                f"eigenvectors of {m:,} connected nodes do not converge; leave out Laplacian"
            ) from None
        vectors = vectors[:, np.argsort(-values, kind="stable")[1:]]
    # the largest entry may have an opposite as large
    sign = np.where((vectors**3).sum(axis=0) < 0, -1.0, 1.0)
    return vectors * sign * np.sqrt(m)


class RandomSigns(nn.Linear):
    """Linear layer over content [b n f]; in training `num` columns from `first` on have a random sign per example.

    Dwivedi and Bresson 2020, section 2.
    """

    def __init__(self, num_features: int, first: int, num: int, dim: int):
        super().__init__(num_features, dim)
        self.first = first
        self.num = num

    def forward(self, content: Tensor) -> Tensor:
        """Embeddings [b n d]."""
        if self.training:
            drawn = torch.randint(0, 2, (len(content), self.num), device=content.device)
            signs = F.pad(
                2 * drawn - 1, (self.first, content.shape[-1] - self.first - self.num), value=1
            )
            content = content * rearrange(signs, "b f -> b 1 f").to(content.dtype)
        return super().forward(content)
