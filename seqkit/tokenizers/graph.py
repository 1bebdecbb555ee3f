"""Graphs: one token per node, with an adjacency along edges; nodes have no order and so no position.

n nodes · f features · e edges
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.raw import GraphData, describe_tensor
from seqkit.tokenizers.adjacency import MAX_EDGES
from seqkit.tokenizers.graph_encodings import Degree, GraphEncoding, Structure

_SIZES = ("num_features", "num_categories", "num_edge_types", "num_edge_features")


class Graph(Tokenizer):
    """The nodes of a graph as tokens that attend along its edges.

    num_features: width of the nodes' feature vectors; or num_categories: number of node categories, one-hot in the
    content. Neither: nodes differ by their encodings alone. num_edge_types: number of types that an edge may have.
    num_edge_features: width of the edges' feature vectors, which need the encoding EdgeTokens.
    num_features None: all these sizes are those of the training data; directed None: so is the direction.
    encodings: what the structure adds, such as [Degree, RandomWalk] (`seqkit.tokenizers.graph_encodings`); None:
    [Degree]. Edge types of the adjacency: 1 to num_edge_types for direct edges by type, then those of ShortestPath: one
    for 2 hops, for 3, and so on. directed: True: a node attends to those that have an edge to it.
    Edge weights and self-loops are ignored. When: networkx graphs, PyG-like objects; large ones without ShortestPath.
    Raises ValueError if the content would be empty, or if features do not fit together.
    """

    def __init__(
        self,
        num_features: int | None = 0,
        num_categories: int = 0,
        *,
        num_edge_types: int = 1,
        num_edge_features: int = 0,
        directed: bool | None = False,
        encodings: Sequence[GraphEncoding] | None = None,
    ) -> None:
        if (num_features or 0) < 0 or num_categories < 0 or (num_features != 0 and num_categories):
            raise ValueError(
                f"{num_features=}, {num_categories=}; give nodes either feature vectors or categories"
            )
        if num_edge_types < 1 or num_edge_features < 0:
            raise ValueError(
                f"{num_edge_types=}, {num_edge_features=}; give at least one type and no negative number"
            )
        self.num_features = num_features or 0
        self.num_categories = num_categories
        self.directed = bool(directed)
        self.num_edge_types = num_edge_types
        self.num_edge_features = num_edge_features
        self.encodings = encodings
        # as they were given: None is learned
        self._num_features = num_features
        self._directed = directed
        self._is_fitted = None not in (num_features, directed)
        structure = self._structure  # raises where an encoding comes twice
        if num_edge_features and not structure.has_edge_tokens:
            raise ValueError(
                f"{num_edge_features=} needs tokens of edges; add EdgeTokens to the encodings"
            )
        if num_features is not None and not self._width:
            raise ValueError(
                "nodes without features, categories and encodings have no content; add Degree"
            )

    @property
    def _structure(self) -> Structure:
        encodings = (Degree(),) if self.encodings is None else self.encodings
        return Structure(encodings, num_edge_types=self.num_edge_types, directed=self.directed)

    @property
    def _width(self) -> int:
        """Features of a token, 0 where it has no content."""
        return self.num_features + self.num_categories + self._structure.width

    def fit(self, raws: Sequence[Any]) -> None:
        """Learn what was left open from graphs of the training data.

        Raises DataError where one is no graph, or they differ in their features.
        """
        if None not in (self._num_features, self._directed):
            return
        graphs = [as_graph_data(raw, directed=self.directed) for raw in raws]
        if self._directed is None:
            self.directed = any(graph.directed for graph in graphs)
        if self._num_features is None:
            self._fit_sizes(graphs)
        self._is_fitted = True

    def _fit_sizes(self, graphs: Sequence[GraphData]) -> None:
        widths = {_num_features(graph) for graph in graphs}
        if len(widths) > 1:
            kinds = ["categories" if width is None else f"{width} features" for width in widths]
            raise DataError(
                f"the graphs differ in their nodes: {', '.join(sorted(kinds))}; give all of them the same"
            )
        self.num_features = widths.pop() or 0
        self.num_categories = max(
            (_highest(graph.nodes) + 1 for graph in graphs if graph.nodes.ndim == 1), default=0
        )
        self.num_edge_types = max(1, *(_highest(graph.edge_types) + 1 for graph in graphs))
        vectors = [graph.edge_features for graph in graphs]
        self.num_edge_features = max((x.shape[1] for x in vectors if x is not None), default=0)
        if not self._width:
            raise DataError(
                "the nodes have no features: no content; train with --tokenizer.encodings [Degree]"
            )

    def state(self) -> dict[str, int]:
        """Fitted sizes and direction; empty where all was given."""
        names: list[str] = []
        if self._is_fitted and self._num_features is None:
            names += _SIZES
        if self._is_fitted and self._directed is None:
            names.append("directed")
        return {name: getattr(self, name) for name in names}

    def load_state(self, state: dict[str, int]) -> None:
        """Take back sizes and direction. Raises ValueError where they are something else."""
        if not state:
            return
        for name in _SIZES:
            value = state.get(name, getattr(self, name))
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_EDGES:
                raise ValueError(f"the state has {name}={value!r}; it is a number from 0 on")
            setattr(self, name, value)
        self.directed = bool(state.get("directed", self.directed))
        self._is_fitted = True

    @property
    def was_fitted(self) -> bool:
        """True: sizes and direction are known, given or fitted."""
        return self._is_fitted

    @property
    def spec(self) -> TokenSpec:
        """Vectors without axes, with an adjacency. Raises ValueError before `fit` where sizes were left open."""
        if not self._is_fitted:
            raise ValueError(
                "Graph does not know the sizes of its nodes yet; call fit(graphs), or give num_features"
            )
        return self._structure.spec(self.num_features + self.num_categories, self.num_edge_features)

    def encode(self, raw: Any, /) -> Tokens:
        """A graph as node vectors [n f] in the order of its nodes; positions [n 0]; an adjacency, maybe empty.

        raw: `GraphData`; a networkx graph (node attribute `x`, edge attributes `type` and `x`, all optional); an object
        with `x`, `edge_index`, `edge_attr` as PyG's.
        Raises DataError where it is none of these or does not fit the tokenizer's settings.
        """
        _ = self.spec  # raises before fit
        data = as_graph_data(raw, directed=self.directed)
        if data.directed and not self.directed:
            raise DataError(
                "the graph is directed, the tokenizer is not; train with --tokenizer.directed true"
            )
        if (highest := _highest(data.edge_types)) >= self.num_edge_types:
            raise DataError(
                f"an edge has type {highest}; correct it, or train with --tokenizer.num_edge_types {highest + 1}"
            )
        structure = self._structure
        vectors = data.edge_features
        if not data.edges.shape[1]:
            vectors = torch.zeros(0, self.num_edge_features)
        given = 0 if vectors is None else vectors.shape[1]
        if given and not structure.has_edge_tokens:
            raise DataError(
                f"edges carry {given} features; drop them, or train with EdgeTokens in --tokenizer.encodings"
            )
        if given != self.num_edge_features:
            raise DataError(
                f"edges carry {given} features; train with --tokenizer.num_edge_features {given}"
            )
        return structure.encode(
            self._features(data.nodes),
            data.edges,
            data.edge_types,
            one_way=data.directed,
            edge_features=vectors,
        )

    def decode(self, tokens: Tokens) -> GraphData:
        """The graph again: its edges sorted, each once (both ways unless directed) and without self-loops.

        Raises ValueError for tokens without adjacency, or of edges or a virtual node.
        """
        if self._structure.has_edge_tokens or self._structure.has_virtual_node:
            raise ValueError(
                "decode takes tokens of nodes alone; leave out EdgeTokens and VirtualNode"
            )
        if tokens.adjacency is None:
            raise ValueError("tokens have no adjacency; decode takes what Graph.encode gave")
        direct = tokens.adjacency.edge_type <= self.num_edge_types
        source, target = tokens.adjacency.edge_index[:, direct]
        types = tokens.adjacency.edge_type[direct] - 1
        order = (source * len(tokens) + target).argsort()
        nodes = tokens.content[:, : self.num_features + self.num_categories]
        if self.num_categories:
            nodes = nodes.argmax(dim=1)
        return GraphData(
            nodes,
            torch.stack([source, target])[:, order],
            types[order],
            directed=self.directed,
        )

    def _features(self, nodes: Tensor) -> Tensor:
        if nodes.ndim == 1:
            highest = int(nodes.max())
            if highest >= self.num_categories:
                raise DataError(
                    f"a node has category {highest}; train with --tokenizer.num_categories {highest + 1}"
                )
            return (rearrange(nodes, "n -> n 1") == torch.arange(self.num_categories)).float()
        if nodes.shape[1] != self.num_features or self.num_categories:
            n = nodes.shape[1]
            raise DataError(
                f"nodes carry {n} features; train with --tokenizer.num_features {n} --tokenizer.num_categories 0"
            )
        return nodes.float()


def _num_features(graph: GraphData) -> int | None:
    """Features of a node; None: it has a category."""
    return graph.nodes.shape[1] if graph.nodes.ndim == 2 else None


def _highest(numbers: Tensor | None) -> int:
    """The largest of categories or types; -1 where there are none."""
    if numbers is None or not len(numbers):
        return -1
    return int(numbers.max())


def as_graph_data(raw: Any, *, directed: bool) -> GraphData:
    """Any accepted form of a graph; `directed` is for forms without direction of their own. Raises DataError."""
    if isinstance(raw, GraphData):
        return raw
    if hasattr(raw, "edge_index"):
        return _from_pyg(raw, directed)
    if hasattr(raw, "adj") and hasattr(raw, "is_directed"):
        return _from_networkx(raw)
    raise DataError(
        f"{type(raw).__name__} is not a graph; give GraphData, networkx's, or one with x and edge_index"
    )


def _from_networkx(graph: Any) -> GraphData:
    index = {node: i for i, node in enumerate(graph)}
    pairs = [(index[source], index[target]) for source, target in graph.edges()]
    edges = rearrange(torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2), "e end -> end e")
    given = {
        "x": [x for _, x in graph.nodes(data="x")],
        "type": [x for *_, x in graph.edges(data="type")],
        "x of edges": [x for *_, x in graph.edges(data="x")],
    }
    for name, values in given.items():
        missing = sum(value is None for value in values)
        if 0 < missing < len(values):
            raise DataError(
                f"{missing} of {len(values)} have no attribute {name!r}; give it to all of them or to none"
            )
    nodes, types, vectors = (
        _numbers(x) if x and x[0] is not None else None for x in given.values()
    )
    return GraphData(
        _nodes(nodes, len(index)), edges, types, graph.is_directed(), _vectors(vectors)
    )


def _from_pyg(graph: Any, directed: bool) -> GraphData:
    x = getattr(graph, "x", None)
    types = getattr(graph, "edge_attr", None)
    if x is None and getattr(graph, "num_nodes", None) is None:
        raise DataError(
            "the graph has neither x nor num_nodes; set num_nodes, since edges do not show isolated nodes"
        )
    vectors = None
    if types is not None:
        types = _numbers(types)
        if types.ndim == 2 and types.shape[1] == 1:
            types = rearrange(types, "e 1 -> e")
        if types.is_floating_point() or types.ndim == 2:
            vectors = _vectors(types)
            types = None
        elif types.ndim == 1:
            types = types.long()
        else:
            raise DataError(
                f"edge_attr is {describe_tensor(types)}; give types [e] or features [e k], or None"
            )
    if x is None:
        nodes = _nodes(None, int(graph.num_nodes))
    else:
        nodes = _nodes(_numbers(x), len(x))
    return GraphData(nodes, graph.edge_index, types, directed, vectors)


def _nodes(values: Tensor | None, num_nodes: int) -> Tensor:
    """Features [n f] float of nodes, or categories [n] int64 where each has one integer; None: [n 0]."""
    if values is None:
        if not 0 <= num_nodes <= MAX_EDGES:  # a mistyped number must not allocate all memory
            raise DataError(f"the graph would have {num_nodes} nodes; give 1 to {MAX_EDGES}")
        return torch.zeros(num_nodes, 0)
    if values.is_floating_point() or (values.ndim == 2 and values.shape[1] > 1):
        return (rearrange(values, "n -> n 1") if values.ndim == 1 else values).float()
    return (rearrange(values, "n 1 -> n") if values.ndim == 2 else values).long()


def _vectors(values: Tensor | None) -> Tensor | None:
    """Features [e k] of edges; a single number each is one feature."""
    if values is None:
        return None
    return (rearrange(values, "e -> e 1") if values.ndim == 1 else values).float()


def _numbers(values: Any) -> Tensor:
    """A tensor, an array, or a list of numbers, tensors or arrays, as a tensor."""
    try:
        if isinstance(values, list):
            return torch.stack([torch.as_tensor(value) for value in values])
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"node features or edge types are not numbers, as many for each: {error}"
        ) from None
