"""Graphs and molecules: each token as a node, and the adjacency as a matrix of edge types.

n nodes · k nodes that are drawn · e edges · l layers · h heads
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from einops import reduce
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure

from seqkit.interfaces import Tokens
from seqkit.report.figures import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, STYLE, VERMILION, new_figure
from seqkit.report.modality.base import HEAT, AttentionSummary, Renderer, color_bar, text_color
from seqkit.tokenizers.graph import Graph
from seqkit.tokenizers.molecule import BONDS, Molecule

MAX_NODES = 40
"""At most this many nodes of a graph are drawn, from around the first."""

FEW_NODES = 20
"""An overlay of at most this many nodes is drawn small."""

_GREY = "#8795a3"
_ELEMENTS = {"N": BLUE, "O": VERMILION, "S": ORANGE, "F": GREEN, "Cl": GREEN, "Br": PURPLE, "I": PURPLE, "P": SKY}


class Layout(NamedTuple):
    """A drawn graph. nodes: [k] indices of the drawn tokens. coordinates: [k 2]. names: of each drawn node.

    edge_index: [2 e], (source, target) among the drawn nodes, counted as these are; edges of more than one hop are left
    out.
    """

    nodes: np.ndarray
    coordinates: np.ndarray
    edge_index: np.ndarray
    names: list[str]


class NodeRenderer(Renderer, ABC):
    """Base of graphs and molecules: nodes coloured by the attention that they receive.

    numbered: True: each node's index is printed beside its name.
    """

    numbered: ClassVar[bool]
    size = (1.7, 1.5)
    note = "Each picture is the graph: dots are nodes, lines are edges."
    overlay_note = "A line between two nodes is the wider the more they attend to each other."

    tokenizer: Graph | Molecule

    def thumbnail(self, tokens: Tokens, axes: Axes, raw: Any = None) -> None:
        """The graph without names; of tokens alone, which may have no edges, their features."""
        if raw is None:
            super().thumbnail(tokens, axes)
            return
        layout = self.layout(raw, self.tokenizer.encode(raw))
        axes.add_collection(LineCollection(list(layout.coordinates[layout.edge_index.T]), colors=_GREY, linewidths=1))
        xs, ys = layout.coordinates.T
        axes.scatter(xs, ys, s=14, c=[_ELEMENTS.get(name, _GREY) for name in layout.names], zorder=2)
        axes.margins(0.08)
        axes.set(xticks=[], yticks=[], aspect="equal")

    @abstractmethod
    def layout(self, raw: Any, tokens: Tokens) -> Layout:
        """The nodes that are drawn, and their places."""

    def overlay(self, raw: Any, tokens: Tokens, summary: AttentionSummary) -> Figure:
        """The graph for rollout and each layer: nodes coloured, edges as wide as the attention along them."""
        layout, scale = self.layout(raw, tokens), summary.scale()
        nodes, coordinates = layout.nodes, layout.coordinates
        few = len(nodes) <= FEW_NODES
        matrices = [summary.rollout, *reduce(summary.weights, "l h n m -> l n m", "mean")]
        source, target = nodes[layout.edge_index]
        columns = min(len(matrices), 3 if few else 2)
        rows = -(-len(matrices) // columns)
        broad, tall = np.maximum(np.ptp(coordinates, axis=0), 1e-9)
        side = 2.6 if few else 4.2
        height = side * float(np.clip(tall / broad, 0.5, 1.5))
        with rc_context(STYLE):
            figure, axes = new_figure(side * columns + 0.9, (height + 0.25) * rows, rows=rows, columns=columns)
            for ax in axes:
                ax.set_axis_off()
            for ax, (title, received), weights in zip(axes, summary.rows.items(), matrices):
                both_ways = (weights[target, source] + weights[source, target]) / 2
                widths = 0.3 + 4 * np.sqrt(both_ways)
                lines = list(coordinates[layout.edge_index.T])
                ax.add_collection(LineCollection(lines, colors=_GREY, linewidths=widths))
                heat, size = scale(received[nodes]), 120 if few else 140
                xs, ys = coordinates.T
                ax.scatter(xs, ys, s=size, c=HEAT(heat), edgecolors=_GREY, linewidths=0.5, zorder=2)
                for i, ((x, y), name) in enumerate(zip(coordinates, layout.names)):
                    ax.text(x, y, name, ha="center", va="center", fontsize=6.5, color=text_color(heat[i]), zorder=3)
                    if self.numbered:
                        ax.annotate(str(i), (x, y), (6, 4), textcoords="offset points", fontsize=5.5)
                ax.set_title(title, loc="center", fontsize=8.5)
                ax.margins(0.12)
                ax.set_aspect("equal")
            if len(nodes) < len(tokens):
                figure.supxlabel(f"{len(nodes)} of {len(tokens):,} nodes are drawn", fontsize=8)
            color_bar(figure, axes, summary, height=height * rows)
        return figure


class GraphRenderer(NodeRenderer):
    """The nodes around the first one, placed by a spring layout."""

    tokenizer: Graph
    numbered = False

    def picture(self, raw: Any, tokens: Tokens) -> Figure:
        """The graph beside its adjacency matrix."""
        layout, num_direct = self.layout(raw, tokens), self.tokenizer.num_edge_types
        direct = ["edge"] if num_direct == 1 else [f"edge type {i}" for i in range(num_direct)]
        drawn = f" ({len(layout.nodes)} of {len(tokens)} drawn)" if len(layout.nodes) < len(tokens) else ""
        with rc_context(STYLE):
            figure, (left, right) = new_figure(9.6, 4.6, columns=2)
            _draw_edges(left, tokens, layout, num_direct)
            xs, ys = layout.coordinates.T
            left.scatter(xs, ys, s=130 if len(tokens) < 100 else 280, color=BLUE, zorder=2)
            for (x, y), name in zip(layout.coordinates, layout.names):
                left.text(x, y, name, ha="center", va="center", color="#ffffff", fontsize=6.5)
            left.set_axis_off()
            left.set_title(f"{len(tokens)} nodes = tokens of {tokens.content.shape[1]} features{drawn}")
            types = [*direct, *_hop_types(self.tokenizer, num_direct, "hops")]
            _adjacency_matrix(figure, right, tokens, layout.nodes, layout.names, types)
        return figure

    def layout(self, raw: Any, tokens: Tokens) -> Layout:
        """Up to MAX_NODES nodes, adjacent ones near each other; the same every time."""
        import networkx

        nodes = _nearby(tokens, self.tokenizer.num_edge_types)
        edge_index, edge_type = _subgraph(tokens, nodes)
        edge_index = edge_index[:, edge_type <= self.tokenizer.num_edge_types]
        graph = networkx.Graph()
        graph.add_nodes_from(range(len(nodes)))
        graph.add_edges_from(edge_index.T.tolist())
        spring = networkx.spring_layout(graph, seed=1, iterations=200)
        coordinates = np.stack([spring[i] for i in range(len(nodes))])
        return Layout(nodes, coordinates, edge_index, [str(i) for i in nodes])


class MoleculeRenderer(NodeRenderer):
    """The structural formula, atoms numbered."""

    tokenizer: Molecule
    numbered = True
    note = "Each picture is the structural formula."

    def small_svg(self, raw: Any, tokens: Tokens) -> str:
        """The structural formula as rdkit draws it, in the colour of the page's text."""
        from rdkit.Chem.Draw.rdMolDraw2D import MolDraw2DSVG, PrepareAndDrawMolecule

        width, height = self.size
        drawing: Any = MolDraw2DSVG(round(96 * width), round(96 * height))
        drawing.drawOptions().useBWAtomPalette()
        drawing.drawOptions().clearBackground = False
        PrepareAndDrawMolecule(drawing, _molecule(raw))
        drawing.FinishDrawing()
        text: str = drawing.GetDrawingText()
        return text[text.index("<svg") :].replace("#000000", "currentColor")

    def picture(self, raw: Any, tokens: Tokens) -> Figure:
        """The structural formula beside the adjacency matrix of its first MAX_NODES atoms."""
        layout, shown = self.layout(raw, tokens), np.arange(min(len(tokens), MAX_NODES))
        with rc_context(STYLE):
            figure, (left, right) = new_figure(9.6, 4.4, columns=2)
            _draw_edges(left, tokens, layout, len(BONDS))
            xs, ys = layout.coordinates.T
            left.scatter(xs, ys, s=150, color="#ffffff", edgecolors="#9aa5b1", linewidths=0.6, zorder=2)
            for i, ((x, y), symbol) in enumerate(zip(layout.coordinates, layout.names)):
                color = _ELEMENTS.get(symbol, INK)
                left.text(x, y, symbol, ha="center", va="center", color=color, fontsize=8, weight="bold")
                left.annotate(str(i), (x, y), (6.5, 5), textcoords="offset points", fontsize=6)
            # a bond is about 1.5 long
            left.set(aspect="equal", xlim=(xs.min() - 1, xs.max() + 1), ylim=(ys.min() - 1, ys.max() + 1))
            left.set_axis_off()
            left.set_title(f"{len(tokens)} atoms = tokens of {tokens.content.shape[1]} features")
            labels = [f"{layout.names[i]}{i}" for i in shown]
            types = [*BONDS, *_hop_types(self.tokenizer, len(BONDS), "bonds")]
            _adjacency_matrix(figure, right, tokens, shown, labels, types)
        return figure

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """Element and index."""
        return [f"{symbol}{i}" for i, symbol in enumerate(_depiction(raw)[1])]

    def layout(self, raw: Any, tokens: Tokens) -> Layout:
        """All atoms, as rdkit depicts them."""
        nodes = np.arange(len(tokens))
        edge_index, edge_type = _subgraph(tokens, nodes)
        coordinates, symbols = _depiction(raw)
        return Layout(nodes, coordinates, edge_index[:, edge_type <= len(BONDS)], symbols)


def _depiction(raw: Any) -> tuple[np.ndarray, list[str]]:
    """Coordinates [n 2] of a molecule's atoms, a bond about 1.5 long, and their elements."""
    from rdkit.Chem import rdDepictor

    molecule = _molecule(raw)
    rdDepictor.Compute2DCoords(molecule)
    coordinates = np.asarray(molecule.GetConformer().GetPositions())[:, :2]
    return coordinates, [atom.GetSymbol() for atom in molecule.GetAtoms()]


def _molecule(raw: Any) -> Any:
    """A copy of an rdkit molecule, or the molecule of a SMILES."""
    from rdkit import Chem

    return Chem.MolFromSmiles(raw.strip()) if isinstance(raw, str) else Chem.Mol(raw)


# ── adjacency ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _nearby(tokens: Tokens, num_direct: int) -> np.ndarray:
    """Up to MAX_NODES nodes, sorted: breadth first along direct edges from node 0, then from the next one not found."""
    (source, target), edge_type = _subgraph(tokens, np.arange(len(tokens)))
    source, target = source[edge_type <= num_direct], target[edge_type <= num_direct]
    found: list[int] = []
    queue: list[int] = []
    for start in range(len(tokens)):
        queue.append(start)
        while queue and len(found) < MAX_NODES:
            node = queue.pop(0)
            if node not in found:
                found.append(node)
                queue += source[target == node].tolist()
    return np.sort(found)


def _subgraph(tokens: Tokens, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges among the given nodes, counted as these are: edge_index [2 e] (source, target) and edge_type [e]."""
    if tokens.adjacency is None:
        return np.zeros((2, 0), np.int64), np.zeros(0, np.int64)
    edge_index, edge_type = tokens.adjacency.edge_index.numpy(), tokens.adjacency.edge_type.numpy()
    place = np.full(len(tokens), -1)
    place[nodes] = np.arange(len(nodes))
    inside = (place[edge_index] >= 0).all(axis=0)
    return place[edge_index[:, inside]], edge_type[inside]


def _hop_types(tokenizer: Graph | Molecule, num_direct: int, unit: str) -> list[str]:
    """Names of the edge types beyond a direct edge."""
    count = tokenizer.spec.num_edge_types - num_direct
    names = [f"{hop} {unit}" for hop in range(2, count + 2)]
    further = tokenizer.max_distance is None or tokenizer.max_distance > tokenizer.max_hops
    if names and tokenizer.max_hops == count + 1 and further:
        names[-1] += " or more"
    return names


def _type_colors(count: int) -> list[Any]:
    few = [VERMILION, BLUE, GREEN, PURPLE, ORANGE]
    if count <= len(few):
        return few[:count]
    # the first edge types differ most, hops fade
    return [*few, *colormaps["Greys"](np.linspace(0.75, 0.25, count - len(few)))]


def _draw_edges(axes: Axes, tokens: Tokens, layout: Layout, num_types: int) -> None:
    """Lines between nodes, coloured by edge type where there are several."""
    colors, lines = _type_colors(num_types), list(layout.coordinates[layout.edge_index.T])
    if len(colors) > 1:
        _, types = _subgraph(tokens, layout.nodes)
        drawn = [colors[i - 1] for i in types[types <= num_types]]
        axes.add_collection(LineCollection(lines, colors=drawn, linewidths=1.6))
    else:
        axes.add_collection(LineCollection(lines, colors="#9aa5b1", linewidths=0.9))


def _adjacency_matrix(
    figure: Figure, axes: Axes, tokens: Tokens, nodes: np.ndarray, labels: Sequence[str], types: Sequence[str]
) -> None:
    """Edge type of each query (row) and key (column): white is masked, pale blue the token itself."""
    edge_index, edge_type = _subgraph(tokens, nodes)
    n = len(labels)
    source, target = edge_index
    table = np.zeros((n, n), np.int64)
    table[target, source] = edge_type + 1
    table[np.arange(n), np.arange(n)] = 1
    colors = ListedColormap(["#ffffff", "#bfe3f7", *_type_colors(len(types))])
    norm = BoundaryNorm(np.arange(len(types) + 3) - 0.5, len(types) + 2)
    image = axes.imshow(table, cmap=colors, norm=norm, interpolation="nearest")
    step = max(1, n // 20)
    axes.set_xticks(range(0, n, step), labels[::step], rotation=90, fontsize=6)
    axes.set_yticks(range(0, n, step), labels[::step], fontsize=6)
    axes.set(xlabel="key (edge source)", ylabel="query (edge target)")
    axes.set_title(f"adjacency: {len(edge_type):,} of {n * n:,} pairs, {len(types)} edge type{'s' * (len(types) != 1)}")
    bar = figure.colorbar(image, ax=axes, shrink=0.9, ticks=range(len(types) + 2))
    bar.ax.set_yticklabels(["masked", "itself", *types], fontsize=6.5)
    bar.ax.tick_params(length=0)
