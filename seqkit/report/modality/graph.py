"""Graphs and molecules: each token as a node.

n nodes · k nodes that are drawn · e edges
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from seqkit.interfaces import Tokens
from seqkit.report.figures import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from seqkit.report.modality.base import WARM, Renderer
from seqkit.tokenizers.graph import Graph
from seqkit.tokenizers.molecule import BONDS, Molecule

MAX_NODES = 40
"""At most this many nodes of a graph are drawn, from around the first."""

_GREY = "#8795a3"
_ELEMENTS = {"N": BLUE, "O": VERMILION, "S": ORANGE, "F": GREEN, "Cl": GREEN, "Br": PURPLE, "I": PURPLE, "P": SKY}


class GraphRenderer(Renderer):
    """The nodes around the first one, coloured by the attention that they receive."""

    tokenizer: Graph | Molecule
    size = (1.7, 1.5)
    note = "Each picture is the graph: dots are nodes, lines are edges."

    def draw(self, axes: Axes, raw: Any, tokens: Tokens, received: np.ndarray | None = None) -> None:
        """Nodes and edges, with names where attention is drawn; of tokens without an example, their features."""
        if raw is None:
            super().draw(axes, raw, tokens, received)
            return
        tokens = tokens if tokens.adjacency is not None else self.tokenizer.encode(raw)
        edges = self._direct_edges(tokens)
        nodes = _nearby(edges, len(tokens))
        places = self.coordinates(raw, edges, nodes)
        inside = np.isin(edges, nodes).all(axis=0)
        lines = list(places[np.searchsorted(nodes, edges[:, inside]).T])
        axes.add_collection(LineCollection(lines, colors=_GREY, linewidths=1, zorder=0))
        if received is None:
            size, colors = (
                14,
                [_ELEMENTS.get(name.rstrip("0123456789"), _GREY) for name in self._names(raw, tokens, nodes)],
            )
        else:
            size, colors = 160, WARM.to_rgba(received[nodes])
        axes.scatter(*places.T, s=size, c=colors, edgecolors=_GREY, linewidths=0.5)
        if received is not None:
            self.mark_tokens(axes, raw, tokens)
        axes.margins(0.08)
        axes.set(xticks=[], yticks=[])
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_frame_on(False)

    def mark_tokens(self, axes: Axes, raw: Any, tokens: Tokens) -> None:
        """Names beside the nodes."""
        nodes = _nearby(self._direct_edges(tokens), len(tokens))
        for place, name in zip(axes.collections[-1].get_offsets(), self._names(raw, tokens, nodes)):
            axes.annotate(name, place, (6, 5), textcoords="offset points", fontsize=8)
        if len(nodes) < len(tokens):
            axes.set_xlabel(f"{len(nodes)} of {len(tokens):,} nodes are drawn")

    def height(self, tokens: Tokens) -> float:
        """4.2 inches."""
        return 4.2

    def coordinates(self, raw: Any, edges: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Places [k 2] of nodes [k], those of an edge near each other; the same every time. edges: [2 e]."""
        import networkx

        graph = networkx.Graph()
        graph.add_nodes_from(nodes.tolist())
        graph.add_edges_from(edges[:, np.isin(edges, nodes).all(axis=0)].T.tolist())
        spring = networkx.spring_layout(graph, seed=1, iterations=200)
        return np.stack([spring[i] for i in nodes.tolist()])

    def _names(self, raw: Any, tokens: Tokens, nodes: np.ndarray) -> list[str]:
        """Names of the drawn nodes."""
        names = self.token_names(raw, tokens)
        return [names[i] for i in nodes.tolist()]

    def _direct_edges(self, tokens: Tokens) -> np.ndarray:
        """(source, target) of the edges of one hop: [2 e]."""
        if tokens.adjacency is None:
            return np.zeros((2, 0), np.int64)
        most = len(BONDS) if isinstance(self.tokenizer, Molecule) else self.tokenizer.num_edge_types
        edges: np.ndarray = tokens.adjacency.edge_index[:, tokens.adjacency.edge_type <= most].numpy()
        return edges


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

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """Element and index."""
        if raw is None:
            return super().token_names(raw, tokens)
        return [f"{atom.GetSymbol()}{i}" for i, atom in enumerate(_molecule(raw).GetAtoms())]

    def coordinates(self, raw: Any, edges: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Places of atoms as rdkit depicts them, a bond about 1.5 long."""
        from rdkit.Chem import rdDepictor

        molecule = _molecule(raw)
        rdDepictor.Compute2DCoords(molecule)
        places: np.ndarray = np.asarray(molecule.GetConformer().GetPositions())[nodes, :2]
        return places


def _molecule(raw: Any) -> Any:
    """A copy of an rdkit molecule, or the molecule of a SMILES."""
    from rdkit import Chem

    return Chem.MolFromSmiles(raw.strip()) if isinstance(raw, str) else Chem.Mol(raw)


def _nearby(edges: np.ndarray, num_nodes: int) -> np.ndarray:
    """Up to MAX_NODES nodes, sorted: breadth first along edges from node 0, then from the next one not found."""
    source, target = edges
    found: list[int] = []
    queue: list[int] = []
    for start in range(num_nodes):
        queue.append(start)
        while queue and len(found) < MAX_NODES:
            node = queue.pop(0)
            if node not in found:
                found.append(node)
                queue += source[target == node].tolist()
    return np.sort(found)
