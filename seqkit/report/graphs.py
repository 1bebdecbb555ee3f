"""Pictures of linked tokens: the graph or molecule beside its matrix of links, by kind.

n nodes · l links
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure

from seqkit.contract import Tokens
from seqkit.report.figures import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, STYLE, VERMILION, blank
from seqkit.report.pictures import picture
from seqkit.tokenizers.graph import Graph
from seqkit.tokenizers.molecule import BONDS, Molecule

MAX_NODES = 40
"""Of a larger graph only so many nodes around the first are drawn."""

_ELEMENTS = {
    "C": INK,
    "N": BLUE,
    "O": VERMILION,
    "S": ORANGE,
    "F": GREEN,
    "Cl": GREEN,
    "Br": PURPLE,
    "I": PURPLE,
    "P": SKY,
}


@picture.register
def _(tokenizer: Graph, _raw: Any, tokens: Tokens) -> Figure:
    direct = tokenizer.num_edge_types
    nodes = _nearby(tokens, direct)
    edges, kinds = _among(tokens, nodes)
    places = _spread(len(nodes), edges[:, kinds <= direct])
    names = ["edge"] if direct == 1 else [f"edge type {i}" for i in range(direct)]
    some = f" ({len(nodes)} of {len(tokens)} drawn)" if len(nodes) < len(tokens) else ""
    with rc_context(STYLE):
        figure, (left, right) = blank(9.6, 4.6, columns=2)
        _edges(left, places, edges[:, kinds <= direct], kinds[kinds <= direct], direct)
        left.scatter(places[:, 0], places[:, 1], s=130 if len(tokens) < 100 else 280, color=BLUE, zorder=2)
        for i, (x, y) in enumerate(places):
            left.text(x, y, str(nodes[i]), ha="center", va="center", color="#ffffff", fontsize=6.5)
        left.set_axis_off()
        left.set_title(f"{len(tokens)} nodes = tokens of {tokens.content.shape[1]} features{some}")
        _matrix(figure, right, edges, kinds, [str(i) for i in nodes], [*names, *_hops(tokenizer, direct, "hops")])
    return figure


@picture.register
def _(tokenizer: Molecule, raw: Any, tokens: Tokens) -> Figure:
    places, symbols = _drawn(raw)
    nodes = np.arange(min(len(tokens), MAX_NODES))
    edges, kinds = _among(tokens, nodes)
    bonds, bond_kinds = _among(tokens, np.arange(len(tokens)))
    with rc_context(STYLE):
        figure, (left, right) = blank(9.6, 4.4, columns=2)
        near = bond_kinds <= len(BONDS)
        _edges(left, places, bonds[:, near], bond_kinds[near], len(BONDS))
        left.scatter(places[:, 0], places[:, 1], s=150, color="#ffffff", edgecolors="#9aa5b1", linewidths=0.6, zorder=2)
        for i, ((x, y), symbol) in enumerate(zip(places, symbols)):
            left.text(
                x, y, symbol, ha="center", va="center", color=_ELEMENTS.get(symbol, INK), fontsize=8, weight="bold"
            )
            left.annotate(str(i), (x, y), (6.5, 5), textcoords="offset points", fontsize=6)
        (x, y), (right_end, top) = places.min(axis=0) - 1, places.max(axis=0) + 1  # a bond is about 1.5 long
        left.set(aspect="equal", xlim=(x, right_end), ylim=(y, top))
        left.set_axis_off()
        left.set_title(f"{len(tokens)} atoms = tokens of {tokens.content.shape[1]} features")
        labels = [f"{symbols[i]}{i}" for i in nodes]
        _matrix(figure, right, edges, kinds, labels, [*BONDS, *_hops(tokenizer, len(BONDS), "bonds")])
    return figure


def graph_layout(
    tokenizer: Graph | Molecule, raw: Any, tokens: Tokens
) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray]:
    """Places [n 2] of the nodes that are drawn, edges [2 e] between them, their names, and which tokens they are."""
    direct = len(BONDS) if isinstance(tokenizer, Molecule) else tokenizer.num_edge_types
    nodes = np.arange(len(tokens)) if isinstance(tokenizer, Molecule) else _nearby(tokens, direct)
    edges, kinds = _among(tokens, nodes)
    edges = edges[:, kinds <= direct]
    if isinstance(tokenizer, Molecule):
        places, names = _drawn(raw)
        return places, edges, names, nodes
    return _spread(len(nodes), edges), edges, [str(i) for i in nodes], nodes


def _spread(n: int, edges: np.ndarray) -> np.ndarray:
    """Places [n 2] of nodes, linked ones near each other; the same every time."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges.T.tolist())
    layout = networkx.spring_layout(graph, seed=1, iterations=200)
    return np.stack([layout[i] for i in range(n)])


def _drawn(raw: Any) -> tuple[np.ndarray, list[str]]:
    """Places [n 2] of a molecule's atoms, a bond about 1.5 long, and their elements."""
    from rdkit import Chem
    from rdkit.Chem import rdDepictor

    molecule = Chem.MolFromSmiles(raw) if isinstance(raw, str) else Chem.Mol(raw)
    rdDepictor.Compute2DCoords(molecule)
    places = np.asarray(molecule.GetConformer().GetPositions())[:, :2]
    return places, [atom.GetSymbol() for atom in molecule.GetAtoms()]


def _nearby(tokens: Tokens, direct: int) -> np.ndarray:
    """The first nodes that a walk from node 0 meets, in their own order; where it ends, the next node goes on."""
    edges, kinds = _links(tokens)
    pairs = edges[:, kinds <= direct]
    found: list[int] = []
    for start in range(len(tokens)):
        waiting = [start]
        while waiting and len(found) < MAX_NODES:
            node = waiting.pop(0)
            if node not in found:
                found.append(node)
                waiting += pairs[1, pairs[0] == node].tolist()
        if len(found) >= MAX_NODES:
            break
    return np.sort(found)


def _links(tokens: Tokens) -> tuple[np.ndarray, np.ndarray]:
    if tokens.links is None:
        return np.zeros((2, 0), np.int64), np.zeros(0, np.int64)
    return tokens.links.edges.numpy(), tokens.links.kinds.numpy()


def _among(tokens: Tokens, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Links [2 l] between the given nodes only, counted as these are, and their kinds [l]."""
    edges, kinds = _links(tokens)
    place = np.full(len(tokens), -1)
    place[nodes] = np.arange(len(nodes))
    inside = (place[edges] >= 0).all(axis=0)
    return place[edges[:, inside]], kinds[inside]


def _hops(tokenizer: Graph | Molecule, direct: int, what: str) -> list[str]:
    """Names of the kinds of link beyond an edge."""
    count = tokenizer.spec.num_links - direct
    names = [f"{hop} {what}" for hop in range(2, count + 2)]
    if names and tokenizer.max_hops == count + 1 and (tokenizer.reach is None or tokenizer.reach > tokenizer.max_hops):
        names[-1] += " or more"
    return names


def _colors(count: int) -> list[Any]:
    few = [VERMILION, BLUE, GREEN, PURPLE, ORANGE]
    if count <= len(few):
        return few[:count]
    # the first kinds differ most, hops fade
    return [*few, *colormaps["Greys"](np.linspace(0.75, 0.25, count - len(few)))]


def _edges(axes: Axes, places: np.ndarray, edges: np.ndarray, kinds: np.ndarray, num_kinds: int) -> None:
    """Lines between nodes, coloured by kind of link where there are several."""
    colors = _colors(num_kinds)
    if len(colors) > 1:
        lines = LineCollection(list(places[edges.T]), colors=[colors[kind - 1] for kind in kinds], linewidths=1.6)
    else:
        lines = LineCollection(list(places[edges.T]), colors="#9aa5b1", linewidths=0.9)
    axes.add_collection(lines)


def _matrix(
    figure: Figure, axes: Axes, edges: np.ndarray, kinds: np.ndarray, labels: Sequence[str], names: Sequence[str]
) -> None:
    """Who (row) reads whom (column): white may not, pale blue is the token itself, then the kinds of link."""
    n = len(labels)
    table = np.zeros((n, n), np.int64)
    table[edges[0], edges[1]] = kinds + 1
    table[np.arange(n), np.arange(n)] = 1
    colors = ListedColormap(["#ffffff", "#bfe3f7", *_colors(len(names))])
    norm = BoundaryNorm(np.arange(len(names) + 3) - 0.5, len(names) + 2)
    image = axes.imshow(table, cmap=colors, norm=norm, interpolation="nearest")
    step = max(1, n // 20)
    axes.set_xticks(range(0, n, step), labels[::step], rotation=90, fontsize=6)
    axes.set_yticks(range(0, n, step), labels[::step], fontsize=6)
    axes.set(xlabel="read", ylabel="reader")
    axes.set_title(f"links: {len(kinds)} of {n * n} pairs, {len(names)} kind{'s' * (len(names) != 1)}")
    bar = figure.colorbar(image, ax=axes, shrink=0.9, ticks=range(len(names) + 2))
    bar.ax.set_yticklabels(["may not read", "itself", *names], fontsize=6.5)
    bar.ax.tick_params(length=0)
