"""Graphs from files: GraphML, a folder with edges.csv and nodes.csv, and tensors (NumPy's npz, safetensors).

n nodes · e edges
"""

from __future__ import annotations

import logging
import math
import zipfile
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from seqkit.data.formats import GRAPH, TABLE, advice_on
from seqkit.data.io import read_text
from seqkit.data.tables.cells import AMBIGUOUS, exact_number, is_missing
from seqkit.data.tables.columns import Cells, all_fit, number_form, settled
from seqkit.data.tables.schema import Column
from seqkit.errors import DataError, one_line

if TYPE_CHECKING:
    from seqkit.data.tables.rows import Rows

log = logging.getLogger("seqkit")

MAX_TEXT_BYTES = 2**28
"""Most bytes of GraphML."""

MAX_XML_ELEMENTS = 5_000_000
"""Most elements of GraphML, which take about a kilobyte of memory each while they are read."""

MAX_TENSOR_BYTES = 2**33
"""Most bytes of all tensors of a file, unpacked."""

MAX_CATEGORIES = 10_000
"""Most categories of nodes and types of edges in tensors; they become one-hot, or rows of a table."""

SOURCE_NAMES = ("source", "src", "from")
TARGET_NAMES = ("target", "dst", "to")
ID_NAMES = ("id", "node", "node_id", "name")

MASKS = ("train_mask", "val_mask", "valid_mask", "test_mask")

ARRAYS = ("x", "edge_index", "y", "edge_type", *MASKS)
"""Names of arrays, as PyG has them."""


@dataclass
class RawGraph:
    """A graph as a file has it.

    ids: names of the nodes. edges: [2 e] int64, source and target. attributes, edge_attributes: a value or None for
    each node or edge, by name; labels and masks of tensors are y, train_mask, val_mask, test_mask. x: features
    [n f] or categories [n] of tensors. edge_types: [e] of tensors. forms: of attributes whose numbers are as people
    write them, such as 3M, which may also be names of classes.
    """

    ids: list[str]
    edges: np.ndarray
    directed: bool = False
    attributes: dict[str, list[Any]] = field(default_factory=dict)
    edge_attributes: dict[str, list[Any]] = field(default_factory=dict)
    x: np.ndarray | None = None
    edge_types: np.ndarray | None = None
    forms: dict[str, str] = field(default_factory=dict)


def read_graph(path: str) -> RawGraph:
    """The graph of a file, or of a folder with edges.csv and nodes.csv.

    Raises DataError, in one line with the file and what to do, where there is none, or it is too large.
    """
    file = Path(path).expanduser()
    suffix = file.suffix.lower()
    if file.is_dir():
        return _read_tables(file)
    if TABLE.fits(file.name):
        return _read_tables(file.parent)
    if suffix == ".graphml":
        return _read_graphml(file)
    if suffix in GRAPH.suffixes:
        return _from_arrays(_read_tensors(file), file)
    formats = ", ".join(GRAPH.suffixes)
    others = advice_on(file.name) or "; save it as one of them, or as edges.csv and nodes.csv"
    raise DataError(f"{file} ends in none of {formats}{others}")


# ── GraphML ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_graphml(path: Path) -> RawGraph:
    """A graph with the defaults of its attributes. Raises DataError for what joins no two nodes of one graph.

    networkx ignores defaults, adds nodes that only an edge names, merges nodes of one id and leaves out hyperedges.
    """
    root = _xml(path)
    elements = {
        kind: list(root.iter(kind)) for kind in ("graph", "node", "edge", "hyperedge", "port")
    }
    if len(elements["graph"]) != 1:
        raise DataError(
            f"{path} has {len(elements['graph'])} elements <graph>; save one graph as GraphML"
        )
    if elements["hyperedge"] or elements["port"]:
        raise DataError(
            f"{path} has a <hyperedge> or a <port>, which joins no two nodes; write it as edges"
        )
    ids = [node.get("id", "") for node in elements["node"]]
    index = {name: i for i, name in enumerate(ids)}
    if "" in index or len(index) < len(ids):
        again = one_line(Counter(ids).most_common(1)[0][0])
        raise DataError(
            f"{path}: a <node> has no id, or that of another ({again!r}); give each an id of its own"
        )
    is_directed = elements["graph"][0].get("edgedefault") == "directed"
    other = "false" if is_directed else "true"
    pairs = []
    for edge in elements["edge"]:
        ends = [edge.get("source", ""), edge.get("target", "")]
        if not index.keys() >= {*ends}:
            named = " and ".join(repr(one_line(end)) for end in ends)
            raise DataError(
                f"{path}: an <edge> joins {named}, one of which is no node; add it, or take the edge out"
            )
        if edge.get("directed", "").lower() == other:
            raise DataError(
                f"{path} has directed and undirected edges; write all as edgedefault says"
            )
        pairs.append([index[end] for end in ends])
    attributes, edge_attributes = (_attributes(path, root, kind) for kind in ("node", "edge"))
    return RawGraph(ids, _edges(pairs), is_directed, attributes, edge_attributes)


def _edges(pairs: Sequence[Sequence[int]]) -> np.ndarray:
    return np.ascontiguousarray(np.array(pairs, np.int64).reshape(-1, 2).T)


def _xml(path: Path) -> ElementTree.Element:
    """The elements of a UTF-8 file of XML, without namespaces. Raises DataError for one that is more than data."""
    if path.is_file() and path.stat().st_size > MAX_TEXT_BYTES:
        raise DataError(
            f"{path} has more than {MAX_TEXT_BYTES:,} bytes; save edge_index, x and y as npz"
        )
    text = read_text(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DataError(
            f"{path} declares a document type or entity, which a graph needs none of; take it out"
        )
    if text.count("<") > 2 * MAX_XML_ELEMENTS:
        raise DataError(
            f"{path} has more than {MAX_XML_ELEMENTS:,} elements; save edge_index, x and y as npz"
        )
    try:
        root = ElementTree.fromstring(text)  # noqa: S314, without entities it is data
    except ElementTree.ParseError as error:
        raise DataError(f"{path} is no XML ({error}); save the graph again") from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _attributes(path: Path, root: ElementTree.Element, kind: str) -> dict[str, list[Any]]:
    """Values of each attribute of all nodes or edges: as given, else its default, else None. kind: of the element."""
    keys = {
        key.get("id", ""): key for key in root.iter("key") if key.get("for", "all") in (kind, "all")
    }
    names = {identity: key.get("attr.name") or identity for identity, key in keys.items()}
    elements = list(root.iter(kind))
    columns: dict[str, list[Any]] = {}
    for i, element in enumerate(elements):
        for data in element.findall("data"):
            identity = data.get("key", "")
            if identity not in keys:
                raise DataError(
                    f"{path}: a <{kind}> has the key {one_line(identity)!r}, which no <key> declares"
                )
            columns.setdefault(names[identity], [None] * len(elements))[i] = _typed(
                path, keys[identity], data.text
            )
    for identity, key in keys.items():
        if (default := _typed(path, key, key.findtext("default"))) is not None:
            given = columns.get(names[identity], [None] * len(elements))
            columns[names[identity]] = [default if value is None else value for value in given]
    return columns


def _typed(path: Path, key: ElementTree.Element, text: str | None) -> Any:
    """The value of an attribute; None: it has none."""
    text = (text or "").strip()
    kind = key.get("attr.type", "string")
    if not text:
        return None
    try:
        if kind == "boolean":
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return {"int": int, "long": int, "float": float, "double": float}.get(kind, str)(text)
    except (KeyError, ValueError):
        name = one_line(key.get("attr.name") or key.get("id", ""))
        raise DataError(
            f"{path}: {name} is {one_line(text)[:50]!r}, which is no {kind}; correct it"
        ) from None


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_tables(folder: Path) -> RawGraph:
    """The graph of edges.csv and nodes.csv, or of tables of other formats with these names."""
    edges, nodes = (_table(folder, stem) for stem in ("edges", "nodes"))
    identity = next(
        (name for one in ID_NAMES for name in nodes.names if name.lower() == one), nodes.names[0]
    )
    ids = [str(cell).strip() for cell in nodes.columns[identity]]
    index = {name: i for i, name in reversed([*enumerate(ids)])}
    if len(index) < len(ids):
        row = next(i for i, name in enumerate(ids) if index[name] != i)
        raise DataError(
            f"{nodes.place(row)}: node {one_line(ids[row])!r} has two lines; delete one"
        )
    ends = [
        next((name for name in edges.names if name.lower() in names), "")
        for names in (SOURCE_NAMES, TARGET_NAMES)
    ]
    if not all(ends):
        raise DataError(
            f"{edges.name} has no columns source and target; name the two ends of its edges so"
        )
    pairs = list(zip(*([str(cell).strip() for cell in edges.columns[end]] for end in ends)))
    for row, pair in enumerate(pairs):
        if unknown := [name for name in pair if name not in index]:
            named = f"node {one_line(unknown[0])!r}, which {nodes.name} lacks"
            raise DataError(
                f"{edges.place(row)}: an edge names {named}; add it, or take the edge out"
            )
    joined = _edges([(index[source], index[target]) for source, target in pairs])
    attributes, forms = _values(nodes, [identity])
    return RawGraph(ids, joined, False, attributes, _values(edges, ends)[0], forms=forms)


def _values(rows: Rows, others: Collection[str]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Values of all columns but others, by the rules of tables for a whole column; None: a cell holds nothing.

    Numbers that programs write are numbers; those that people write stay texts, with their form.
    """
    cells = {name: Cells(rows.columns[name]) for name in rows.names if name not in others}
    numbers = {}
    for name, one in cells.items():
        one.fill(AMBIGUOUS)
        form = number_form(one)
        if form is not None and name not in rows.categories and all_fit(one.counts, form):
            numbers[name] = Column(name, "number", form=form)
    numbers |= {column.name: column for column in settled(numbers.values(), cells)}
    forms = {}
    values = {}
    for name, one in cells.items():
        missing = AMBIGUOUS if name in numbers else ()
        values[name] = [None if is_missing(cell, missing) else cell for cell in rows.columns[name]]
        if name not in numbers:
            continue
        form = numbers[name].form
        if all(_is_plain(cell, form) for cell in one.counts):
            values[name] = [
                exact_number(cell.replace(",", ".")) if isinstance(cell, str) else cell
                for cell in values[name]
            ]
        else:
            forms[name] = form
    return values, forms


def _table(folder: Path, stem: str) -> Rows:
    from seqkit.data.tables.read import read_tables  # brings pyarrow

    found = [
        file for file in folder.iterdir() if file.stem.lower() == stem and TABLE.fits(file.name)
    ]
    if len(found) != 1:
        raise DataError(
            f"{folder} holds {len(found)} tables called {stem}; a graph is edges.csv and nodes.csv"
        )
    rows = read_tables(str(found[0]))
    if rows.faults:
        raise DataError(rows.faults[0])
    if not len(rows):
        raise DataError(f"{found[0]} has no rows; give each of the {stem} a line")
    return rows


def _is_plain(cell: Any, form: str) -> bool:
    """Whether a number has digits and a decimal sign alone."""
    if not isinstance(cell, str):
        return True
    return cell.strip().lstrip("+-").replace(form or ".", "", 1).isdecimal()


# ── tensors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Arrays by name; no file is unpickled, and none of more than `MAX_TENSOR_BYTES` is unpacked."""
    if not path.is_file():
        raise DataError(f"there is no file {path}; check the path")
    try:
        size = path.stat().st_size
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                size = max(size, sum(member.file_size for member in archive.infolist()))
        if size > MAX_TENSOR_BYTES:
            raise DataError(
                f"{path} unpacks to {size:,} bytes; {MAX_TENSOR_BYTES:,} are the most; give a part"
            )
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
        from safetensors.numpy import load_file

        return load_file(path)
    except DataError:
        raise
    except Exception as error:  # two libraries, on a file that may hold anything
        reason = one_line(error)[:150]
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}: {reason}); save plain tensors again"
        ) from None


def _from_arrays(given: dict[str, np.ndarray], path: Path) -> RawGraph:
    """The graph of arrays under the names of PyG. Raises DataError where shapes do not fit."""
    for name in ("train", "val", "test"):
        if name in given:
            given[f"{name}_mask"] = given.pop(name)
    if unused := sorted(one_line(name) for name in given if name not in ARRAYS):
        log.warning("%s: not used are %s", path, ", ".join(unused[:20]))
    edges, x, y, types = (given.get(name) for name in ("edge_index", "x", "y", "edge_type"))
    if edges is None or edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        found = "there is none"
        if edges is not None:
            found = f"it is {list(edges.shape)} {edges.dtype}"
        raise DataError(f"{path} needs edge_index as [2 e] integers, source and target; {found}")
    sizes = {len(array) if array.ndim else 0 for array in (x, y) if array is not None}
    if len(sizes) != 1:
        fault = "x and y have different numbers of nodes"
        if not sizes:
            fault = "there is neither x nor y"
        raise DataError(
            f"{path}: {fault}, so the number of nodes is unknown; give x [n f] and y [n]"
        )
    (n,) = sizes
    if x is not None and (x.ndim not in (1, 2) or x.dtype.kind not in "iufb"):
        raise DataError(f"{path}: x is {list(x.shape)} {x.dtype}; give [n f] numbers")
    if types is not None and (types.dtype.kind not in "iu" or types.shape != edges.shape[1:]):
        raise DataError(
            f"{path}: edge_type is {list(types.shape)} {types.dtype}; give [{edges.shape[1]}] integers"
        )
    for name, codes in (("x", x), ("edge_type", types)):
        if codes is None or codes.ndim > 1 or codes.dtype.kind not in "iu":
            continue
        if int(codes.max(initial=0)) >= max(n, MAX_CATEGORIES):
            raise DataError(
                f"{path}: {name} has categories up to {codes.max():,}; number them from 0 on"
            )
    attributes: dict[str, list[Any]] = {}
    if y is not None:
        attributes["y"] = _labels(path, y)
    for name in MASKS:
        if (mask := given.get(name)) is not None:
            if mask.shape != (n,) or not np.isin(mask, (0, 1)).all():
                raise DataError(
                    f"{path}: {name} is {list(mask.shape)}; give [{n}] true or false, one split alone"
                )
            attributes[name] = mask.astype(bool).tolist()
    edges = np.ascontiguousarray(edges).astype(np.int64)
    # PyG stores each edge of an undirected graph both ways
    directed = not np.array_equal(
        np.unique(edges[0] * n + edges[1]), np.unique(edges[1] * n + edges[0])
    )
    if types is not None:
        types = types.astype(np.int64)
    return RawGraph([str(i) for i in range(n)], edges, directed, attributes, x=x, edge_types=types)


def _labels(path: Path, y: np.ndarray) -> list[Any]:
    """The class of each node, None where it is negative or NaN."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "iufb":
        raise DataError(
            f"{path}: y is {list(y.shape)} {y.dtype}; give [n] integers, a class for each node"
        )
    if y.dtype.kind == "b":
        y = y.astype(np.int64)
    values = y.tolist()
    return [value if math.isfinite(value) and value >= 0 else None for value in values]
