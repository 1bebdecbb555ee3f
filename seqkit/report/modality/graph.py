"""Graphs and molecules: each token as a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from seqkit.errors import one_line
from seqkit.interfaces import Tokens
from seqkit.report.figures import (
    BLUE,
    CATEGORIES,
    INK,
    STYLE,
    legend_above,
    new_figure,
    shortened,
)
from seqkit.report.modality.base import WARM, Look, Renderer
from seqkit.tokenizers.graph import Graph
from seqkit.tokenizers.molecule import BONDS, Molecule

MAX_NODES = 40
MAX_ANSWERED = 300
"""At most this many nodes of a graph are drawn, from around the first, and with answers."""

MARKERS = "osD^"
"""Marks of predicted classes, the first for as many as there are colours."""

_GREY = "#8795a3"


class GraphRenderer(Renderer):
    """The nodes around the first one, coloured by the attention that they receive."""

    tokenizer: Graph | Molecule
    unit = "nodes"
    size = (1.7, 1.5)
    note = "Each picture is the graph: dots are nodes, lines are edges."

    def draw(
        self, axes: Axes, raw: Any, tokens: Tokens, received: np.ndarray | None = None
    ) -> None:
        """Nodes and edges, with names where attention is drawn; of tokens without an example, their features."""
        if raw is None:
            super().draw(axes, raw, tokens, received)
            return
        if tokens.adjacency is None:
            tokens = self.tokenizer.encode(raw)
        graph = self._nearby(tokens)
        places = self.places(raw, graph)
        lines = [(places[one], places[other]) for one, other in graph.edges]
        axes.add_collection(LineCollection(lines, colors=_GREY, linewidths=1, zorder=0))
        xs, ys = np.array([places[node] for node in graph]).T
        look: dict[str, Any] = {"s": 14, "c": BLUE}
        if received is not None:
            look = {"s": 160, "c": WARM.to_rgba(received[list(graph)])}
            self.mark_tokens(axes, raw, tokens)
        axes.scatter(xs, ys, edgecolors=_GREY, linewidths=0.5, **look)
        axes.margins(0.08)
        axes.set(xticks=[], yticks=[])
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_frame_on(False)

    def mark_tokens(self, axes: Axes, raw: Any, tokens: Tokens) -> None:
        """Names beside the nodes."""
        graph = self._nearby(tokens)
        names = self.token_names(raw, tokens)
        places = self.places(raw, graph)
        for node in graph:
            axes.annotate(names[node], places[node], (6, 5), textcoords="offset points", fontsize=8)
        axes.set_xlabel(_drawn(graph, tokens))

    def height(self, tokens: Tokens) -> float:
        """4.2 inches."""
        return 4.2

    def places(self, raw: Any, graph: Any) -> dict[int, Any]:
        """Coordinates of the nodes of a networkx graph, those of an edge near each other; the same every time."""
        import networkx

        spring: dict[int, Any] = networkx.spring_layout(graph, seed=1, iterations=200)
        return spring

    @rc_context({**STYLE, "legend.fontsize": 10})
    def answered(
        self, raw: Any, right: np.ndarray, preds: np.ndarray, names: Sequence[str]
    ) -> Figure:
        """The graph with its answers: right [n] is 1 for a right node, -1 for a wrong one, and 0 where none was asked.

        preds: [n] predicted classes, by whose `names` asked nodes are coloured. Wrong ones have a ring. Of a large
        graph, those around the first wrong node are drawn.
        """
        tokens = self.tokenizer.encode(raw)
        graph = self._nearby(tokens, MAX_ANSWERED, int(np.argmin(right)))
        places = self.places(raw, graph)
        figure, (axes,) = new_figure(4.6, 4.2)
        lines = [(places[one], places[other]) for one, other in graph.edges]
        axes.add_collection(
            LineCollection(lines, colors=_GREY, linewidths=0.5, alpha=0.6, zorder=0)
        )

        def dots(is_drawn: np.ndarray, label: str, **look: Any) -> None:
            found = [places[node] for node in graph if is_drawn[node]]
            if found:
                axes.scatter(*np.array(found).T, label=f"{label} ({len(found):,})", **look)

        dots(right == 0, "not a test node", s=10, c=_GREY, linewidths=0)
        for i, name in enumerate(shortened([one_line(name) for name in names], 24)):
            look = {
                "c": CATEGORIES[i % len(CATEGORIES)],
                "marker": MARKERS[i // len(CATEGORIES) % len(MARKERS)],
            }
            dots((right != 0) & (preds == i), name, s=30, linewidths=0, **look)
        dots(right < 0, "wrong", s=70, facecolors="none", edgecolors=INK, linewidths=1.2)
        legend_above(figure, axes)
        axes.set(xticks=[], yticks=[], xlabel=_drawn(graph, tokens))
        axes.set_frame_on(False)
        return figure

    def _nearby(self, tokens: Tokens, most_nodes: int = MAX_NODES, start: int = 0) -> Any:
        """Edges of one hop among up to so many nodes, breadth first from one, then from the next one not found."""
        import networkx

        graph = networkx.Graph()
        graph.add_nodes_from(range(len(tokens)))
        if tokens.adjacency is not None:
            if isinstance(self.tokenizer, Molecule):
                most = len(BONDS)
            else:
                most = self.tokenizer.num_edge_types
            graph.add_edges_from(
                tokens.adjacency.edge_index[:, tokens.adjacency.edge_type <= most].T.tolist()
            )
        order = list(networkx.bfs_tree(graph, start))
        for part in networkx.connected_components(graph):
            if start not in part:
                order += networkx.bfs_tree(graph, min(part))
        return graph.subgraph(order[:most_nodes])


class MoleculeRenderer(GraphRenderer):
    """The structural formula, atoms numbered."""

    tokenizer: Molecule
    note = "Each picture is the structural formula."

    def small_svg(self, raw: Any, tokens: Tokens) -> str:
        """The structural formula as rdkit draws it, in the colour of the page's text."""
        if raw is None:
            return super().small_svg(raw, tokens)
        from rdkit.Chem.Draw.rdMolDraw2D import MolDraw2DSVG, PrepareAndDrawMolecule

        width, height = self.size
        drawing: Any = MolDraw2DSVG(round(96 * width), round(96 * height))
        drawing.drawOptions().useBWAtomPalette()
        drawing.drawOptions().clearBackground = False
        PrepareAndDrawMolecule(drawing, _molecule(raw))
        drawing.FinishDrawing()
        text: str = drawing.GetDrawingText()
        return text[text.index("<svg") :].replace("#000000", "currentColor")

    def look(self, raw: Any, tokens: Tokens) -> Look:
        """The structural formula, of a SMILES, too."""
        return Look(self.small_svg(raw, tokens))

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """Element and index."""
        if raw is None:
            return super().token_names(raw, tokens)
        atoms = [f"{atom.GetSymbol()}{i}" for i, atom in enumerate(_molecule(raw).GetAtoms())]
        return [*atoms, *map(str, range(len(atoms), len(tokens)))]

    def places(self, raw: Any, graph: Any) -> dict[int, Any]:
        """Coordinates of the atoms as rdkit depicts them, a bond about 1.5 long."""
        from rdkit.Chem import rdDepictor

        molecule = _molecule(raw)
        rdDepictor.Compute2DCoords(molecule)
        found = dict(enumerate(np.asarray(molecule.GetConformer().GetPositions())[:, :2]))
        # bonds that are tokens, a virtual node
        others = [node for node in graph if node not in found]
        between = {
            node: [found[end] for end in graph[node] if end in found] or [*found.values()]
            for node in others
        }
        return found | {node: np.mean(ends, axis=0) for node, ends in between.items()}


def _drawn(graph: Any, tokens: Tokens) -> str:
    """How many nodes are drawn, if not all."""
    if len(graph) < len(tokens):
        return f"{len(graph)} of {len(tokens):,} nodes are drawn"
    return ""


def _molecule(raw: Any) -> Any:
    """A copy of an rdkit molecule, or the molecule of a SMILES."""
    from rdkit import Chem

    if isinstance(raw, str):
        return Chem.MolFromSmiles(raw.strip())
    return Chem.Mol(raw)
