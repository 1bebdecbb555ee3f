"""Graphs from files: GraphML, GEXF, edge lists with a table of nodes, and tensors (NumPy's npz, safetensors).

n nodes · e edges
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from seqkit.data.source import import_optional
from seqkit.errors import DataError, one_line
from seqkit.files import decoded, read_small

XML = (".graphml", ".gexf")
EDGES = (".edges", ".edgelist")
TABLES = (".csv", ".tsv", *EDGES)
TENSORS = (".npz", ".safetensors", ".pt", ".pth")
SUFFIXES = (*XML, *EDGES, *TENSORS)
"""Of the files that are graphs, whatever they are named for; a .csv file is one beside a table of nodes."""

MAX_XML_BYTES = 2**30
MAX_XML_NODES, MAX_XML_EDGES = 500_000, 2_000_000
"""Of GraphML and GEXF, which take about 2 kB of memory for each node and edge while they are read."""

MAX_XML_DEPTH = 32
MAX_TABLE_BYTES, MAX_ROWS = 2**30, 10_000_000
MAX_TENSOR_BYTES = 2**33
"""Of all tensors of a file, unpacked."""

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


@dataclass
class RawGraph:
    """A graph as a file has it.

    num_nodes; edges [2 e] int64. is_both_ways: it is undirected, and each edge is there once in either direction.
    attributes: of the nodes, by name, a value or None for each. edge_attributes: as those. ids: of the nodes, as the
    file names them; empty: it has numbers alone. arrays: what a file of tensors has under the names of PyG and DGL:
    x, y, edge_type, train, valid, test. notes: what was read otherwise than it stands there, a line each.
    """

    num_nodes: int
    edges: np.ndarray
    directed: bool = False
    is_both_ways: bool = False
    attributes: dict[str, list[Any]] = field(default_factory=dict)
    edge_attributes: dict[str, list[Any]] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_graph(path: str, nodes: str | None = None) -> RawGraph:
    """The graph of a file, or of a folder with edges.csv and nodes.csv. nodes: table of nodes of an edge list.

    Raises DataError, in one line with the file and what to do, where there is none, or it is too large.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        file, table = _tables_of(file)
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


def _tables_of(folder: Path) -> tuple[Path, Path]:
    found = {}
    for stem in ("edges", "nodes"):
        files = [f for f in sorted(folder.iterdir()) if f.stem.lower() == stem and f.suffix.lower() in TABLES]
        if len(files) != 1:
            raise DataError(f"{folder} holds {len(files)} tables called {stem}; a graph is edges.csv and nodes.csv")
        found[stem] = files[0]
    return found["edges"], found["nodes"]


# ── GraphML and GEXF ─────────────────────────────────────────────────────────────────────────────────────────────────


class _Survey:
    """What an XML file declares, before networkx reads it: its size, and the faults that networkx would not name.

    networkx adds a node that only an edge names, merges nodes of one id, and takes the first of several graphs.
    """

    def __init__(self, path: Path):
        self.path, self.depth, self.num_graphs = path, 0, 0
        self.nodes: set[str] = set()
        self.ends: list[tuple[str, int]] = []
        self.num_edges = 0
        self.directions: set[str] = set()
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._start, self._end
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.EntityDeclHandler = self._doctype

    def read(self, data: bytes) -> None:
        """Raises DataError with the line."""
        try:
            self.parser.Parse(data, True)
        except expat.ExpatError as error:
            raise DataError(
                f"{self.path}, line {error.lineno}: this is no XML ({error}); save the graph again"
            ) from None
        if self.num_graphs == 0:
            raise DataError(f"{self.path} has no element <graph>; save it as GraphML or GEXF")
        for node, line in self.ends:
            if node not in self.nodes:
                raise DataError(
                    f"{self.path}, line {line}: an edge names node {one_line(node)!r}, which is not there; add it, "
                    "or take the edge out"
                )

    def _fault(self, what: str) -> DataError:
        return DataError(f"{self.path}, line {self.parser.CurrentLineNumber}: {what}")

    def _doctype(self, *_: Any) -> None:
        raise self._fault("a document type or entity is declared, which a graph needs none of; take it out")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_XML_DEPTH:
            raise self._fault(f"elements are nested {self.depth} deep, and {MAX_XML_DEPTH} are read at most")
        kind = name.rpartition(":")[2]
        if kind == "graph":
            self.num_graphs += 1
            if self.num_graphs > 1:
                raise self._fault("a second <graph>; give a file for each graph")
        elif kind == "node":
            identity = attributes.get("id")
            if identity is None:
                raise self._fault("a <node> has no id; give it one")
            if identity in self.nodes:
                raise self._fault(f"node {one_line(identity)!r} is there a second time; take one out")
            self.nodes.add(identity)
            if len(self.nodes) > MAX_XML_NODES:
                raise self._fault(_too_many("nodes", MAX_XML_NODES))
        elif kind == "edge":
            self.num_edges += 1
            if self.num_edges > MAX_XML_EDGES:
                raise self._fault(_too_many("edges", MAX_XML_EDGES))
            line = self.parser.CurrentLineNumber
            for end in ("source", "target"):
                if end not in attributes:
                    raise self._fault(f"an <edge> has no {end}; give it one")
                self.ends.append((attributes[end], line))
        elif kind in ("hyperedge", "port"):
            raise self._fault(f"a <{kind}>, which joins no two nodes; write it as edges")

    def _end(self, name: str) -> None:
        self.depth -= 1


def _too_many(what: str, most: int) -> str:
    return f"there are more than {most:,} {what}, and XML takes 2 kB for each; save edge_index, x and y as npz"


def _read_xml(path: Path) -> RawGraph:
    data = _contents(path, MAX_XML_BYTES)
    _Survey(path).read(data)
    networkx = import_optional("networkx", "graph")
    # of parallel edges it would keep the last alone
    read = partial(networkx.read_graphml, force_multigraph=True)
    if path.suffix.lower() == ".gexf":
        read = networkx.read_gexf
    try:
        graph = read(BytesIO(data))
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


def _by_name(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Values of each attribute in the order of the rows, None where a row lacks it; positions and colours left out."""
    names = dict.fromkeys(name for row in rows for name in row if name != "viz")
    return {str(name): [_plain(row.get(name)) for row in rows] for name in names}


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | type(None)) else str(value)


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_tables(path: Path, nodes: Path | None) -> RawGraph:
    ends_of, rows = _edge_rows(path)
    index: dict[str, int] = {}
    attributes: dict[str, list[Any]] = {}
    if nodes is not None:
        index, attributes = _node_table(nodes)
    source, target = ends_of
    pairs: list[int] = []
    kept: list[dict[str, Any]] = []
    for line, row in rows:
        for column in (source, target):
            name = row[column]
            if nodes is None:
                index.setdefault(name, len(index))
            elif name not in index:
                raise DataError(
                    f"{path}, line {line}: an edge names node {one_line(name)!r}, which {nodes} lacks; add it, or "
                    "take the edge out"
                )
            pairs.append(index[name])
        kept.append({column: _number(value) for column, value in row.items() if column not in ends_of})
    edges = np.array(pairs, np.int64).reshape(-1, 2).T
    return RawGraph(
        len(index),
        np.ascontiguousarray(edges),
        attributes=attributes,
        edge_attributes=_by_name(kept),
        ids=list(index),
    )


def _edge_rows(path: Path) -> tuple[tuple[str, str], Iterator[tuple[int, dict[str, str]]]]:
    """Names of the two columns of nodes, and (line, row) of every edge."""
    lines = _lines(path)
    first_line, first = next(lines, (0, []))
    if len(first) < 2:
        raise DataError(f"{path} has no two columns; give an edge a line: source,target")
    lower = [name.lower() for name in first]
    ends = [next((i for i, name in enumerate(lower) if name in names), None) for names in (SOURCE_NAMES, TARGET_NAMES)]
    if None not in ends:
        header = first
        source, target = (header[i] for i in ends if i is not None)
    else:
        header = ["source", "target", *(f"column {i + 3}" for i in range(len(first) - 2))]
        source, target = header[:2]
    if len(set(header)) < len(header):
        raise DataError(f"{path}, line {first_line}: two columns have the same name; rename one")

    def rows() -> Iterator[tuple[int, dict[str, str]]]:
        if header is not first:
            yield first_line, dict(zip(header, first))
        for line, cells in lines:
            if len(cells) != len(header):
                raise DataError(f"{path}, line {line} has {len(cells)} cells and the first {len(header)}; correct it")
            yield line, dict(zip(header, cells))

    return (source, target), rows()


def _node_table(path: Path) -> tuple[dict[str, int], dict[str, list[Any]]]:
    lines = _lines(path)
    first_line, header = next(lines, (0, []))
    lower = [name.lower() for name in header]
    identity = next((lower.index(name) for name in ID_NAMES if name in lower), 0)
    if not header or len(set(header)) < len(header):
        raise DataError(
            f"{path}, line {first_line}: the table of nodes needs a header of different names, such as id,label"
        )
    index: dict[str, int] = {}
    columns: list[list[Any]] = [[] for _ in header]
    for line, cells in lines:
        if len(cells) != len(header):
            raise DataError(f"{path}, line {line} has {len(cells)} cells and the header {len(header)}; correct it")
        if cells[identity] in index:
            raise DataError(
                f"{path}, line {line}: node {one_line(cells[identity])!r} is there a second time; take one out"
            )
        index[cells[identity]] = len(index)
        for column, cell in zip(columns, cells):
            column.append(_number(cell))
    if not index:
        raise DataError(f"{path} has a header and no nodes; give a node a line")
    return index, {name: column for i, (name, column) in enumerate(zip(header, columns)) if i != identity}


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of a delimited file; separator as in its first line, else blanks. Comments (#) are left out."""
    try:
        text = decoded(_contents(path, MAX_TABLE_BYTES))
    except ValueError as error:
        raise error if isinstance(error, DataError) else DataError(f"{path}: {error}") from None
    lines = text.splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    separator = max("\t,;", key=first.count)
    blanks = not first.count(separator)
    reader = csv.reader((line for line in lines), delimiter=separator)
    found = 0
    try:
        for cells in reader:
            if not cells or not any(cell.strip() for cell in cells) or cells[0].startswith("#"):
                continue
            found += 1
            if found > MAX_ROWS:
                raise DataError(
                    f"{path} has more than {MAX_ROWS:,} rows; save the graph as npz with edge_index, x and y"
                )
            yield reader.line_num, cells[0].split() if blanks else [cell.strip() for cell in cells]
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num + 1}: {error}; give a table of text") from error


def _number(cell: str) -> Any:
    """A cell as None, a number, or the text that it is."""
    if cell == "" or cell.lower() in ("na", "nan", "null", "none"):
        return None
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


# ── tensors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    suffix = path.suffix.lower()
    size = _size(path)
    if size > MAX_TENSOR_BYTES:
        raise DataError(
            f"{path} has {size:,} bytes, and {MAX_TENSOR_BYTES:,} are read at most; give a part of the graph"
        )
    if suffix in (".npz", ".pt", ".pth"):
        _check_zip(path)
    try:
        if suffix == ".npz":
            with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
                return {name: found[name] for name in found.files}
        if suffix == ".safetensors":
            from safetensors.torch import load_file

            return {name: tensor.numpy() for name, tensor in load_file(path).items()}
        return _plain_tensors(path)
    except DataError:
        raise
    except Exception as error:  # three libraries, on a file that may hold anything
        reason = one_line(error)[:150]
        raise DataError(f"{path} cannot be read ({type(error).__name__}: {reason}); {_ADVICE}") from error


_ADVICE = "save tensors: np.savez('graph.npz', x=x, edge_index=edge_index, y=y, train_mask=…, val_mask=…, test_mask=…)"


def _plain_tensors(path: Path) -> dict[str, np.ndarray]:
    """A .pt file of plain tensors by name. Anything else in it would run code when it is loaded, and is refused."""
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        raise DataError(f"{path} is a pickle of objects, which would run code; {_ADVICE}") from None
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise DataError(f"{path} holds no tensors by name; {_ADVICE}")
    return {str(name): tensor.numpy() for name, tensor in found.items()}


def _check_zip(path: Path) -> None:
    """Raise DataError unless the file is a ZIP archive that unpacks to a bounded size."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        raise DataError(f"{path} is no archive of arrays; {_ADVICE}") from None
    if unpacked > MAX_TENSOR_BYTES:
        raise DataError(
            f"{path} unpacks to {unpacked:,} bytes, and {MAX_TENSOR_BYTES:,} are read at most; give a part of the graph"
        )


def _from_arrays(arrays: dict[str, np.ndarray], path: Path) -> RawGraph:
    """Arrays under the names of PyG and DGL. Raises DataError where shapes do not fit."""
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
    found = {"x": first(FEATURES), "y": first(LABELS), "edge_type": first(EDGE_TYPES)}
    found |= {split: first(names) for split, names in MASKS.items()}
    present = {name: array for name, array in found.items() if array is not None}
    sizes = {name: len(array) if array.ndim else 0 for name, array in present.items() if name in ("x", "y")}
    if not sizes:
        raise DataError(f"{path} has neither x nor y, so that isolated nodes are unknown; {_ADVICE}")
    n = next(iter(sizes.values()))
    for split in MASKS:  # a list of nodes is a mask, too
        mask = present.get(split)
        if mask is None:
            continue
        if mask.ndim == 1 and mask.dtype.kind in "iu" and not (len(mask) == n and mask.max(initial=0) <= 1):
            if len(mask) and not 0 <= int(mask.min()) <= int(mask.max()) < n:
                raise DataError(f"{path}: the nodes of the {split} split run to {int(mask.max())}, and there are {n}")
            mask = np.isin(np.arange(n), mask)
        if mask.shape != (n,):
            raise DataError(f"{path}: the mask of the {split} split is {list(mask.shape)}; give [{n}], one split alone")
        present[split] = mask.astype(bool)
    if len(set(sizes.values())) > 1:
        raise DataError(f"{path}: x has {sizes['x']} nodes and y {sizes['y']}; give a row for each node")
    types = present.get("edge_type")
    notes = []
    if types is not None and (types.dtype.kind not in "iu" or types.reshape(-1).shape != edges.shape[1:]):
        notes.append(
            f"edge attributes {list(types.shape)} {types.dtype} are not used: edges have integer types [e] or none"
        )
        del present["edge_type"]
    elif types is not None:
        present["edge_type"] = types.reshape(-1).astype(np.int64)
    try:
        edges = np.ascontiguousarray(edges).astype(np.int64)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path}: edge_index cannot be read ({error}); give int64") from None
    is_symmetric = _is_symmetric(edges, n)
    return RawGraph(n, edges, not is_symmetric, is_symmetric, arrays=present, notes=notes)


def _is_symmetric(edges: np.ndarray, n: int) -> bool:
    """Whether every edge is there both ways, as PyG and DGL store undirected graphs."""
    if edges.size and (int(edges.min()) < 0 or int(edges.max()) >= n):
        return True  # an edge outside, which is said where the graph is made
    forward = np.unique(edges[0] * n + edges[1])
    return np.array_equal(forward, np.unique(edges[1] * n + edges[0]))


def _size(path: Path) -> int:
    try:
        if not path.is_file():
            raise FileNotFoundError
        return path.stat().st_size
    except OSError:
        raise DataError(f"there is no file {path}; check the path") from None


def _contents(path: Path, most: int) -> bytes:
    if (size := _size(path)) > most:
        raise DataError(f"{path} has {size:,} bytes, and {most:,} are read at most; save the graph as npz")
    try:
        data = read_small(path, most)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); give a file that you may read") from error
    if not data.strip():
        raise DataError(f"{path} is empty; save the graph again")
    return data
