"""Graphs from files: GraphML, GEXF, edge lists with a table of nodes, and tensors (NumPy's npz, safetensors).

n nodes · e edges
"""

from __future__ import annotations

import csv
import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from seqkit.data.source import import_optional
from seqkit.data.tables.schema import is_missing, number
from seqkit.errors import DataError, one_line
from seqkit.files import decoded, read_small

XML = (".graphml", ".gexf")
EDGES = (".edges", ".edgelist")
TABLES = (".csv", ".tsv", *EDGES)
TENSORS = (".npz", ".safetensors", ".pt", ".pth")
SUFFIXES = (*XML, *EDGES, *TENSORS)
"""Suffixes of graph files; a .csv file is a graph where a table of nodes comes with it."""

MAX_TEXT_BYTES = 2**28
"""Most bytes of GraphML, GEXF and tables."""

MAX_XML_ELEMENTS = 5_000_000
"""Most elements of GraphML and GEXF, which take about a kilobyte of memory each while they are read."""

MAX_TENSOR_BYTES = 2**33
"""Most bytes of all tensors of a file, unpacked."""

MAX_CATEGORIES = 10_000
"""Most categories of nodes and types of edges in tensors; they become one-hot, or rows of a table."""

SOURCE_NAMES = ("source", "src", "from", "start", "u", "node1", "source_id", "citing")
TARGET_NAMES = ("target", "dst", "to", "end", "v", "node2", "target_id", "cited")
ID_NAMES = ("id", "node", "node_id", "nodeid", "name", "index")

FEATURES = ("x", "feat", "features", "node_feat", "attr")
EDGE_ENDS = ("edge_index", "edges")
LABELS = ("y", "label", "labels")
EDGE_TYPES = ("edge_type", "edge_types", "edge_attr", "etype")
MASKS = {
    "train": ("train_mask", "train"),
    "valid": ("val_mask", "valid_mask", "validation_mask", "val", "valid"),
    "test": ("test_mask", "test"),
}

_ADVICE = "save tensors: np.savez('graph.npz', x=x, edge_index=edge_index, y=y, train_mask=…, val_mask=…, test_mask=…)"


@dataclass
class RawGraph:
    """A graph as a file has it.

    num_nodes; edges [2 e] int64. is_both_ways: it is undirected, and each edge is there once in either direction.
    attributes, edge_attributes: a value or None for each node or edge, by name; labels and masks of tensors are y,
    train_mask, valid_mask and test_mask. x: features [n f] or categories [n] of tensors. edge_types: [e] of tensors.
    ids: names of the nodes in the file; empty: it has numbers alone. notes: what was read otherwise than it stands
    there, a line each.
    """

    num_nodes: int
    edges: np.ndarray
    directed: bool = False
    is_both_ways: bool = False
    attributes: dict[str, list[Any]] = field(default_factory=dict)
    edge_attributes: dict[str, list[Any]] = field(default_factory=dict)
    x: np.ndarray | None = None
    edge_types: np.ndarray | None = None
    ids: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_graph(path: str, nodes: str | None = None) -> RawGraph:
    """The graph of a file, or of a folder with edges.csv and nodes.csv. nodes: table of nodes of an edge list.

    Raises DataError, in one line with the file and what to do, where there is none, or it is too large.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        file, table = (_table_in(file, stem) for stem in ("edges", "nodes"))
        nodes = nodes or str(table)
    suffix = file.suffix.lower()
    if nodes is not None and suffix not in TABLES:
        raise DataError(f"{file} has its nodes inside, so nodes={nodes} has no meaning; leave --data.nodes out")
    if suffix in XML:
        return _read_xml(file)
    if suffix in TABLES:
        return _read_tables(file, None if nodes is None else Path(nodes).expanduser())
    if suffix in TENSORS:
        return _from_arrays(_read_tensors(file), file)
    raise DataError(f"{file} ends in none of {', '.join((*SUFFIXES, '.csv'))}; save the graph as one of them")


def _table_in(folder: Path, stem: str) -> Path:
    files = [f for f in folder.iterdir() if f.stem.lower() == stem and f.suffix.lower() in TABLES]
    if len(files) != 1:
        raise DataError(f"{folder} holds {len(files)} tables called {stem}; a graph is edges.csv and nodes.csv")
    return files[0]


def _text(path: Path) -> str:
    """A UTF-8 file of at most `MAX_TEXT_BYTES`."""
    try:
        text = decoded(read_small(path, MAX_TEXT_BYTES))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path") from None
    except ValueError as error:
        raise error if isinstance(error, DataError) else DataError(f"{path}: {error}") from None
    if not text.strip():
        raise DataError(f"{path} is empty; save the graph again")
    return text


# ── GraphML and GEXF ─────────────────────────────────────────────────────────────────────────────────────────────────


def _read_xml(path: Path) -> RawGraph:
    text = _text(path)
    _check_xml(path, text)
    networkx = import_optional("networkx", "graph")
    # of parallel edges a simple graph would keep the last alone
    read = partial(networkx.read_graphml, force_multigraph=True)
    try:
        graph = (networkx.read_gexf if path.suffix.lower() == ".gexf" else read)(BytesIO(text.encode()))
    except Exception as error:  # its readers raise whatever a wrong attribute leads to
        reason = one_line(error)[:200]
        raise DataError(f"{path} cannot be read ({type(error).__name__}: {reason}); save the graph again") from error
    index = {node: i for i, node in enumerate(graph)}
    found = list(graph.edges(data=True))
    edges = np.array([(index[u], index[v]) for u, v, _ in found], np.int64).reshape(-1, 2).T
    return RawGraph(
        len(index),
        np.ascontiguousarray(edges),
        directed=graph.is_directed(),
        attributes=_by_name([values for _, values in graph.nodes(data=True)]),
        edge_attributes=_by_name([values for _, _, values in found]),
        ids=[str(node) for node in graph],
    )


def _check_xml(path: Path, text: str) -> None:
    """Raise DataError for XML of which networkx would silently make another graph, or which is more than data.

    networkx adds a node that only an edge names, merges nodes of one id, takes the first of several graphs, and leaves
    out hyperedges. Python's parser expands entities, and takes any codec that the file declares.
    """
    encoding = re.match(r"""\s*<\?xml[^>]*encoding\s*=\s*["']([^"']*)""", text)
    if "\0" in text or (encoding and encoding[1].lower() not in ("utf-8", "us-ascii")):
        named = encoding[1] if encoding else "UTF-16"
        raise DataError(f"{path} has the encoding {one_line(named)!r}; save it as UTF-8")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DataError(f"{path} declares a document type or entity, which a graph needs none of; take it out")
    if text.count("<") > 2 * MAX_XML_ELEMENTS:
        raise DataError(f"{path} has more than {MAX_XML_ELEMENTS:,} elements; save edge_index, x and y as npz")
    try:
        root = ElementTree.fromstring(text.encode())  # noqa: S314, without entities it is data
    except ElementTree.ParseError as error:
        raise DataError(f"{path} is no XML ({error}); save the graph again") from None
    found: dict[str, list[dict[str, str]]] = {kind: [] for kind in ("graph", "node", "edge", "hyperedge", "port")}
    for element in root.iter():
        kind = str(element.tag).rpartition("}")[2]
        if kind in found:
            found[kind].append(element.attrib)
    if len(found["graph"]) != 1:
        raise DataError(f"{path} has {len(found['graph'])} elements <graph>; save one graph as GraphML or GEXF")
    if found["hyperedge"] or found["port"]:
        raise DataError(f"{path} has a <hyperedge> or a <port>, which joins no two nodes; write it as edges")
    ids = Counter(node.get("id") for node in found["node"])
    for identity, count in ids.items():
        if identity is None or count > 1:
            what = "has no id" if identity is None else f"{one_line(identity)!r} is there {count} times"
            raise DataError(f"{path}: a <node> {what}; give each an id of its own")
    for edge in found["edge"]:
        for end in ("source", "target"):
            if edge.get(end) not in ids:
                named = f"{end} {one_line(edge[end])!r}, which is no node" if end in edge else f"no {end}"
                raise DataError(f"{path}: an <edge> has {named}; add it, or take the edge out")


def _by_name(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Values of each attribute in the order of the rows, None where a row lacks it; positions and colours left out."""
    names = dict.fromkeys(name for row in rows for name in row if name != "viz")
    return {str(name): [_plain(row.get(name)) for row in rows] for name in names}


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | type(None)) else str(value)


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_tables(path: Path, nodes: Path | None) -> RawGraph:
    """An edge list; without a table of nodes, the nodes are those that its edges name."""
    index, attributes = ({}, {}) if nodes is None else _node_table(nodes)
    rows = list(_rows(path))
    first = rows[0][1]
    if len(first) < 2:
        raise DataError(f"{path} has no two columns; give an edge a line: source,target")
    lower = [name.lower() for name in first]
    ends = [next((i for i, name in enumerate(lower) if name in names), None) for names in (SOURCE_NAMES, TARGET_NAMES)]
    if None in ends:  # there is no header
        ends, header = [0, 1], [f"column {i + 1}" for i in range(len(first))]
    else:
        _, header = rows.pop(0)
        _check_header(path, header)
    pairs: list[int] = []
    for line, cells in rows:
        for end in ends:
            name = cells[end or 0]
            if nodes is None:
                index.setdefault(name, len(index))
            elif name not in index:
                raise DataError(
                    f"{path}, line {line}: an edge names node {one_line(name)!r}, which {nodes} lacks; add it, or "
                    "take the edge out"
                )
            pairs.append(index[name])
    edges = np.array(pairs, np.int64).reshape(-1, 2).T
    others = {name: [_value(cells[i]) for _, cells in rows] for i, name in enumerate(header) if i not in ends}
    return RawGraph(
        len(index), np.ascontiguousarray(edges), attributes=attributes, edge_attributes=others, ids=list(index)
    )


def _node_table(path: Path) -> tuple[dict[str, int], dict[str, list[Any]]]:
    """The place of each node by its name, and the values of each other column."""
    (_, header), *rows = _rows(path)
    _check_header(path, header)
    lower = [name.lower() for name in header]
    identity = next((lower.index(name) for name in ID_NAMES if name in lower), 0)
    index: dict[str, int] = {}
    for line, cells in rows:
        if cells[identity] in index:
            raise DataError(f"{path}, line {line}: node {one_line(cells[identity])!r} has two lines; delete one")
        index[cells[identity]] = len(index)
    if not index:
        raise DataError(f"{path} has a header and no nodes; give a node a line")
    return index, {name: [_value(c[i]) for _, c in rows] for i, name in enumerate(header) if i != identity}


def _check_header(path: Path, header: Sequence[str]) -> None:
    if len(set(header)) < len(header):
        raise DataError(f"{path}: two columns have the same name in the header; rename one, such as id,label")


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of a delimited file, at least one; separator as in its first line, else blanks. Comments (#) are
    left out. Raises DataError for a row with another number of cells than the first."""
    lines = _text(path).splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    separator = max("\t,;", key=first.count)
    width = None
    reader = csv.reader(lines, delimiter=separator)
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells) or cells[0].startswith("#"):
                continue
            cells = [cell.strip() for cell in cells] if separator in first else cells[0].split()
            width = width or len(cells)
            if len(cells) != width:
                raise DataError(
                    f"{path}, line {reader.line_num} has {len(cells)} cells and the first {width}; correct it"
                )
            yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num + 1}: {error}; give a table of text") from error
    if width is None:
        raise DataError(f"{path} holds only comments; give an edge or a node a line")


def _value(cell: str) -> Any:
    """Value of a cell: None if it is missing, a number if it is one, else its text. 007 and 1_000 are texts."""
    if is_missing(cell):
        return None
    value = exact_number(cell)
    return cell if value is None or re.fullmatch(r"[-+]?0\d+", cell) else value


# ── tensors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Arrays by name; no file is unpickled, and none of more than `MAX_TENSOR_BYTES` is unpacked."""
    if not path.is_file():
        raise DataError(f"there is no file {path}; check the path")
    suffix, size = path.suffix.lower(), path.stat().st_size
    try:
        if suffix != ".safetensors":
            with path.open("rb") as file, zipfile.ZipFile(file) as archive:
                size = max(size, sum(member.file_size for member in archive.infolist()))
        if size > MAX_TENSOR_BYTES:
            raise DataError(
                f"{path} unpacks to {size:,} bytes, and {MAX_TENSOR_BYTES:,} are read at most; give a part of the graph"
            )
        if suffix == ".npz":
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        if suffix == ".safetensors":
            from safetensors.numpy import load_file

            return load_file(path)
        import torch

        found = torch.load(path, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except Exception as error:  # three libraries, on a file that may hold anything
        reason = "it may hold code" if "weights_only" in str(error) else one_line(error)[:150]
        raise DataError(f"{path} cannot be read ({type(error).__name__}: {reason}); {_ADVICE}") from None
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise DataError(f"{path} holds no tensors by name; {_ADVICE}")
    return {str(name): tensor.numpy() for name, tensor in found.items()}


def _from_arrays(arrays: dict[str, np.ndarray], path: Path) -> RawGraph:
    """The graph of arrays under the names of PyG and DGL. Raises DataError where shapes do not fit."""
    by_name = {name.lower(): array for name, array in arrays.items()}

    def first(names: Sequence[str]) -> np.ndarray | None:
        return next((by_name[name] for name in names if name in by_name), None)

    edges = first(EDGE_ENDS)
    if edges is None and "src" in by_name and "dst" in by_name:
        edges = np.stack([by_name["src"], by_name["dst"]])
    if edges is None:
        known = ", ".join(sorted(map(one_line, arrays))[:20]) or "nothing"
        raise DataError(f"{path} has no edge_index; it holds {known}: {_ADVICE}")
    if edges.ndim == 2 and edges.shape[1] == 2 and edges.shape[0] != 2:
        edges = edges.T
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise DataError(
            f"{path}: edge_index is {list(edges.shape)} {edges.dtype}; give [2 e] integers, source and target"
        )
    edges = np.ascontiguousarray(edges).astype(np.int64)
    x, y, types = first(FEATURES), first(LABELS), first(EDGE_TYPES)
    sizes = {len(array) if array.ndim else 0 for array in (x, y) if array is not None}
    if len(sizes) != 1:
        fault = "x and y have different numbers of nodes" if sizes else "there is neither x nor y"
        raise DataError(f"{path}: {fault}, so the number of nodes is unknown; {_ADVICE}")
    (n,) = sizes
    if x is not None and (x.ndim not in (1, 2) or x.dtype.kind not in "iufb"):
        raise DataError(f"{path}: x is {list(x.shape)} {x.dtype}; give [n f] numbers")
    for name, numbers in (("x", x if x is not None and x.ndim == 1 else None), ("edge_type", types)):
        if numbers is not None and numbers.dtype.kind in "iu" and int(numbers.max(initial=0)) >= max(n, MAX_CATEGORIES):
            raise DataError(f"{path}: {name} has categories up to {numbers.max():,}; number them from 0 on")
    attributes = {} if y is None else {"y": _labels(path, y)}
    for split, names in MASKS.items():
        if (mask := first(names)) is not None:
            attributes[f"{split}_mask"] = _mask(path, split, mask, n).tolist()
    notes = []
    if types is not None and not (types.dtype.kind in "iu" and types.size == edges.shape[1]):
        notes.append(
            f"edge attributes {list(types.shape)} {types.dtype} are not used: edges have integer types [e] or none"
        )
        types = None
    types = None if types is None else types.reshape(-1).astype(np.int64)
    is_both_ways = _is_symmetric(edges, n)
    return RawGraph(n, edges, not is_both_ways, is_both_ways, attributes, x=x, edge_types=types, notes=notes)


def _labels(path: Path, y: np.ndarray) -> list[Any]:
    """The class of each node, None where it is negative or NaN."""
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1 or y.dtype.kind not in "iufb":
        raise DataError(f"{path}: y is {list(y.shape)} {y.dtype}; give [n] integers, a class for each node")
    values = (y.astype(np.int64) if y.dtype.kind == "b" else y).tolist()
    return [value if isfinite(value) and value >= 0 else None for value in values]


def _mask(path: Path, split: str, mask: np.ndarray, n: int) -> np.ndarray:
    """The nodes of a split, [n] bool, from a mask or a list of nodes."""
    if mask.ndim == 1 and mask.dtype.kind in "iu" and not (len(mask) == n and mask.max(initial=0) <= 1):
        if len(mask) and not 0 <= int(mask.min()) <= int(mask.max()) < n:
            raise DataError(f"{path}: the nodes of the {split} split run to {int(mask.max())}, and there are {n}")
        mask = np.isin(np.arange(n), mask)
    if mask.shape != (n,):
        raise DataError(f"{path}: the mask of the {split} split is {list(mask.shape)}; give [{n}], one split alone")
    return mask.astype(bool)


def _is_symmetric(edges: np.ndarray, n: int) -> bool:
    """Whether every edge is there both ways, as PyG and DGL store undirected graphs."""
    if edges.size and (int(edges.min()) < 0 or int(edges.max()) >= n):
        return True  # an edge outside, which is said where the graph is made
    forward = np.unique(edges[0] * n + edges[1])
    return np.array_equal(forward, np.unique(edges[1] * n + edges[0]))


def exact_number(text: str) -> int | float | None:
    value = number(text)
    if value is None or not math.isfinite(value):
        return None
    try:
        return int(text)
    except ValueError:
        return value
