"""Graphs: one token per node, links along edges; there is no order and so no position.

n nodes · f features · e edges
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from seqkit.contract import DataError, Tokenizer, Tokens, TokenSpec
from seqkit.tokenizers.links import MAX_LINKS, link, merge_edges, num_kinds


@dataclass(frozen=True, slots=True)
class GraphData:
    """A graph with features or categories on its nodes and, if it has them, types on its edges.

    nodes: [n f] float, f = 0 for nodes that are all alike; or [n] int64 >= 0, a category each.
    edges: [2 e] int64 (source, target), indices of nodes. edge_types: [e] int64 >= 0, or None: all of one type.
    directed: False: an edge goes both ways, listed once or twice.
    Raises DataError where there are no nodes, an edge names a node that is not there, or a field is not as said here.
    """

    nodes: Tensor
    edges: Tensor
    edge_types: Tensor | None = None
    directed: bool = False

    def __post_init__(self) -> None:
        nodes, edges, types = self.nodes, self.edges, self.edge_types
        features = nodes.ndim == 2 and nodes.is_floating_point()
        if not features and not (nodes.ndim == 1 and nodes.dtype == torch.int64):
            raise DataError(f"nodes are {_kind(nodes)}; give [n f] float features or [n] int64 categories")
        n = len(nodes)
        if n == 0:
            raise DataError("the graph has no nodes; drop it")
        if features and not bool(torch.isfinite(nodes).all()):
            row = int((~torch.isfinite(nodes)).any(dim=1).nonzero()[0])
            raise DataError(f"features of node {row} are not finite (NaN or infinite); clean them or drop the node")
        if not features and int(nodes.min()) < 0:
            raise DataError(f"a node has category {int(nodes.min())}; categories count from 0")
        if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype != torch.int64:
            raise DataError(f"edges are {_kind(edges)}; give [2 e] int64, a column (source, target) per edge")
        if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= n):
            wrong = int(edges.min()) if int(edges.min()) < 0 else int(edges.max())
            raise DataError(f"an edge names node {wrong}, but there are nodes 0 to {n - 1}")
        if types is not None and (types.shape != edges.shape[1:] or types.dtype != torch.int64):
            raise DataError(f"edge_types are {_kind(types)}; give [{edges.shape[1]}] int64, one per edge")
        if types is not None and len(types) and int(types.min()) < 0:
            raise DataError(f"an edge has type {int(types.min())}; types count from 0")


class Graph(Tokenizer):
    """The nodes of a graph as tokens that read along its edges.

    num_features: width of the nodes' feature vectors; or num_categories: how many kinds of node, one-hot in the
    content. Neither: nodes are told apart by their degree alone. num_edge_types: how many types an edge may have.
    reach: hops that a link may span; None: any, so every pair that a path joins. max_hops: from here on hop counts
    share one kind. Kinds of link: 1 to num_edge_types for direct edges by type, then one for 2 hops, for 3, and so on.
    degree: True: log(1 + number of neighbours) is appended to the content, without which attention along links cannot
    count; of a directed graph in- and out-degree. directed: True: a node reads those that have an edge to it.
    Edge weights are not read. When: networkx graphs, edge lists, PyG-like objects; large ones with reach=1.
    Raises ValueError if the content would be empty or both features and categories are given.
    """

    def __init__(
        self,
        num_features: int = 0,
        num_categories: int = 0,
        *,
        num_edge_types: int = 1,
        reach: int | None = 1,
        max_hops: int = 8,
        degree: bool = True,
        directed: bool = False,
    ) -> None:
        if num_features < 0 or num_categories < 0 or (num_features and num_categories):
            raise ValueError(
                f"num_features={num_features} and num_categories={num_categories}; nodes carry either feature vectors "
                "or categories: set one of them, or none for a graph whose nodes are alike"
            )
        if not (num_features or num_categories or degree):
            raise ValueError("nodes without features, categories and degree have no content; set one, or degree=True")
        self.num_features, self.num_categories = num_features, num_categories
        self.num_edge_types, self.reach, self.max_hops = num_edge_types, reach, max_hops
        self.degree, self.directed = degree, directed
        self._num_links = num_kinds(num_edge_types, reach, max_hops)

    def __repr__(self) -> str:
        return (
            f"Graph({self.num_features}, {self.num_categories}, num_edge_types={self.num_edge_types}, "
            f"reach={self.reach}, max_hops={self.max_hops}, degree={self.degree}, directed={self.directed})"
        )

    @property
    def spec(self) -> TokenSpec:
        """Vectors without axes, with links."""
        width = self.num_features + self.num_categories + self.degree * (2 if self.directed else 1)
        return TokenSpec(num_features=width, num_axes=0, num_links=self._num_links)

    def encode(self, raw: Any, /) -> Tokens:
        """A graph as node vectors [n f] in the order of its nodes; positions [n 0]; links, maybe none of them.

        raw: `GraphData`; a networkx graph (node attribute `x`, edge attribute `type`, both optional); an object with
        `x`, `edge_index`, `edge_attr` as PyG's; a tuple (nodes, edges), nodes also as a number; a list of edges.
        Raises DataError where it is none of these or does not fit the numbers that the tokenizer was built with.
        """
        data = as_graph_data(raw, directed=self.directed)
        if data.directed and not self.directed:
            raise DataError("the graph is directed, the tokenizer is not; set directed=True, or make it undirected")
        if data.edge_types is not None and len(data.edge_types) and int(data.edge_types.max()) >= self.num_edge_types:
            wrong = int(data.edge_types.max())
            raise DataError(
                f"an edge has type {wrong}, but the tokenizer has num_edge_types={self.num_edge_types}; "
                f"set num_edge_types={wrong + 1}, or correct the edge"
            )
        n = len(data.nodes)
        edges, types = merge_edges(data.edges, data.edge_types, n, directed=data.directed)
        content = [self._features(data.nodes)]
        if self.degree:
            ends = (edges[1], edges[0]) if self.directed else (edges[1],)
            content += [rearrange(torch.log1p(end.bincount(minlength=n).float()), "n -> n 1") for end in ends]
        links = link(edges, types, n, num_edge_types=self.num_edge_types, reach=self.reach, max_hops=self.max_hops)
        return Tokens(torch.cat(content, dim=1), torch.zeros(n, 0), links)

    def decode(self, tokens: Tokens) -> GraphData:
        """The graph again: its edges sorted, each once (both ways unless directed) and without loops."""
        if tokens.links is None:
            raise ValueError("tokens have no links; decode takes what Graph.encode gave")
        direct = tokens.links.kinds <= self.num_edge_types
        (target, source), types = tokens.links.edges[:, direct], tokens.links.kinds[direct] - 1
        order = (source * len(tokens) + target).argsort()
        nodes = tokens.content[:, : self.num_features + self.num_categories]
        return GraphData(
            nodes.argmax(dim=1) if self.num_categories else nodes,
            torch.stack([source, target])[:, order],
            types[order],
            directed=self.directed,
        )

    def _features(self, nodes: Tensor) -> Tensor:
        if nodes.dtype == torch.int64:
            if not self.num_categories:
                raise DataError(
                    f"nodes carry categories (up to {int(nodes.max())}), but the tokenizer has num_categories=0; "
                    f"set num_categories={int(nodes.max()) + 1}"
                )
            wrong = int(nodes.max())
            if wrong >= self.num_categories:
                raise DataError(
                    f"a node has category {wrong}, but the tokenizer has num_categories={self.num_categories}; "
                    f"set num_categories={wrong + 1}, or correct the node"
                )
            return (rearrange(nodes, "n -> n 1") == torch.arange(self.num_categories)).float()
        if nodes.shape[1] != self.num_features or self.num_categories:
            raise DataError(
                f"nodes carry {nodes.shape[1]} features; the tokenizer has num_features={self.num_features}, "
                f"num_categories={self.num_categories}: set num_features={nodes.shape[1]} and num_categories=0"
            )
        return nodes.float()


def as_graph_data(raw: Any, *, directed: bool) -> GraphData:
    """Any accepted form of a graph; `directed` is for those that do not say it themselves. Raises DataError."""
    if isinstance(raw, GraphData):
        return raw
    if hasattr(raw, "edge_index"):
        return _from_pyg(raw, directed)
    if hasattr(raw, "adj") and hasattr(raw, "is_directed"):
        return _from_networkx(raw)
    if isinstance(raw, tuple) and len(raw) == 2:
        edges = raw[1] if isinstance(raw[1], Tensor) else _pairs(raw[1])
        nodes = _alike(raw[0]) if isinstance(raw[0], int) else _nodes(raw[0])
        return GraphData(nodes, edges, directed=directed)
    if isinstance(raw, list):
        edges = _pairs(raw)
        return GraphData(_alike(int(edges.max()) + 1 if edges.numel() else 0), edges, directed=directed)
    raise DataError(
        f"{type(raw).__name__} is not a graph; give GraphData, a networkx graph, an object with x and edge_index, "
        "a tuple (nodes, edges) or a list of edges"
    )


def _from_networkx(graph: Any) -> GraphData:
    index = {node: i for i, node in enumerate(graph)}
    values = [data.get("x") for _, data in graph.nodes(data=True)]
    missing = sum(value is None for value in values)
    if missing and missing < len(values):
        raise DataError(f"{missing} of {len(values)} nodes have no attribute 'x'; give it to all of them or to none")
    nodes = _alike(len(values)) if missing == len(values) else _nodes(values)
    found = [(index[u], index[v], data.get("type")) for u, v, data in graph.edges(data=True)]
    types = None
    if any(kind is not None for _, _, kind in found):
        if not all(isinstance(kind, int) and not isinstance(kind, bool) for _, _, kind in found):
            raise DataError("edge attribute 'type' is missing or not an int on some edges; give all an int from 0 on")
        types = torch.tensor([kind for _, _, kind in found])
    return GraphData(nodes, _pairs([(u, v) for u, v, _ in found]), types, directed=graph.is_directed())


def _from_pyg(graph: Any, directed: bool) -> GraphData:
    x, attributes = getattr(graph, "x", None), getattr(graph, "edge_attr", None)
    if x is None and getattr(graph, "num_nodes", None) is None:
        raise DataError("the graph has neither x nor num_nodes; set num_nodes, edges do not tell of isolated nodes")
    nodes = _alike(int(graph.num_nodes)) if x is None else _nodes(x)
    if attributes is not None:
        if attributes.ndim == 2 and attributes.shape[1] == 1:
            attributes = rearrange(attributes, "e 1 -> e")
        if attributes.ndim != 1 or attributes.is_floating_point():
            raise DataError(
                f"edge_attr is {_kind(attributes)}; links have kinds, so give [e] int64 types, or set edge_attr=None"
            )
        attributes = attributes.long()
    return GraphData(nodes, graph.edge_index, attributes, directed=directed)


def _alike(num_nodes: int) -> Tensor:
    """Nodes without features [n 0]; a mistyped index must not ask for all memory."""
    if not 0 <= num_nodes <= MAX_LINKS:
        raise DataError(f"the graph would have {num_nodes} nodes; give 1 to {MAX_LINKS}, indices counting from 0")
    return torch.zeros(num_nodes, 0)


def _nodes(values: Any) -> Tensor:
    """Node features [n f] float, or categories [n] int64 where values are one integer per node."""
    if len(values) == 0:
        return _alike(0)
    try:
        if not isinstance(values, Tensor):
            array = hasattr(values, "__array_interface__")
            values = torch.as_tensor(values) if array else torch.stack([torch.as_tensor(value) for value in values])
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"node features are not numbers, as many for each node: {error}") from None
    if values.is_floating_point() or (values.ndim == 2 and values.shape[1] > 1):
        return (rearrange(values, "n -> n 1") if values.ndim == 1 else values).float()
    return (rearrange(values, "n 1 -> n") if values.ndim == 2 else values).long()


def _pairs(edges: Any) -> Tensor:
    """[2 e] int64 of pairs (source, target)."""
    pairs = list(edges)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 and all(map(_index, pair)) for pair in pairs):
        raise DataError("edges are not all pairs of ints; give (source, target) by the index of the node")
    if not pairs:
        return torch.zeros(2, 0, dtype=torch.int64)
    return rearrange(torch.tensor(pairs, dtype=torch.int64), "e end -> end e", end=2)


def _index(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) <= MAX_LINKS


def _kind(x: Tensor) -> str:
    return f"{list(x.shape)} {str(x.dtype).removeprefix('torch.')}"
