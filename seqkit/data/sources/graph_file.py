"""Your own graph, in a file: nodes with features and labels, some of them known.

n nodes · f features · e edges
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqkit.data.graph_files import RawGraph, read_graph
from seqkit.data.source import DataSource, Sample, Splits, stratified
from seqkit.errors import DataError, one_line, suggest
from seqkit.interfaces import IGNORE
from seqkit.raw import GraphData

log = logging.getLogger("seqkit")

TARGET_NAMES = ("label", "class", "y", "target", "club", "category", "subject", "field", "community", "group")
"""Attributes that are taken for the label, where they hold classes."""

SPLIT_NAMES = ("split", "set", "mask")
SPLITS = {
    "train": "train", "training": "train", "test": "test", "testing": "test",
    "val": "valid", "valid": "valid", "validation": "valid", "dev": "valid",
}  # fmt: skip
MASK_NAMES = {"train_mask": "train", "val_mask": "valid", "valid_mask": "valid", "test_mask": "test"}

MAX_WORDS = 100
"""Categories of an attribute that becomes one-hot features."""

MAX_INDEXED = 4_096
"""Nodes of a graph without features up to which each is told by its index."""

VALID_FRACTION = 0.1
"""Of the labelled nodes, for validation, where the file says no split."""


class GraphFile(DataSource):
    """Your own graph: GraphML, GEXF, an edge list with a table of nodes, or tensors (npz, safetensors).

    path: the file, or a folder with edges.csv and nodes.csv. nodes: table of the nodes of an edge list, of which the
    edges go both ways. target: attribute of the nodes that holds their class; None: guessed by name. Nodes without one
    are unlabelled. features: attributes to use; None: all but target and split; []: none. Numbers are standardised,
    words are categories; without any, a node is told by its index, or by its degree where the graph is large.
    edge_type: attribute of the edges whose values are their types. split: attribute that names the split of a node;
    None: masks train_mask, val_mask and test_mask, or an attribute called split, where there are any. Otherwise
    test_fraction of the labelled nodes are test and a tenth validation, by class, in SHA-256 order of the seed.
    """

    def __init__(
        self,
        path: str,
        *,
        nodes: str | None = None,
        target: str | None = None,
        features: list[str] | None = None,
        edge_type: str | None = None,
        split: str | None = None,
        test_fraction: float = 0.2,
        seed: int = 0,
    ):
        if not 0 < test_fraction < 1 - VALID_FRACTION:
            raise ValueError(f"test_fraction is {test_fraction}; give a number above 0 and below {1 - VALID_FRACTION}")
        self.path, self.nodes, self.target, self.features = path, nodes, target, features
        self.edge_type, self.split, self.test_fraction, self.seed = edge_type, split, test_fraction, seed

    def splits(self) -> Splits:
        """One sample each, the same graph with other nodes labelled. Says in a line each what was read, and how.

        Raises DataError where the file cannot be read, or no attribute holds classes.
        """
        raw = read_graph(self.path, self.nodes)
        label, names, used = self._labels(raw)
        parts, rule = self._parts(raw, label, used)
        graph, told, edges_told = self._graph(raw, used)
        self._say(raw, label, names, [told, edges_told, rule])
        train, valid, test = (parts[name] for name in ("train", "valid", "test"))
        unseen = set(label[test].tolist()) - set(label[train].tolist())
        if unseen:
            shown = ", ".join(one_line(names[i]) for i in sorted(unseen)[:5])
            raise DataError(
                f"{self.path}: no training node has the class {shown}, and test nodes have; label one, or draw another "
                "split with --data.seed"
            )
        samples = [Sample(graph, label.masked_fill(~part, IGNORE)) for part in (train, valid, test)]
        return Splits([samples[0]], [samples[2]], [samples[1]] if bool(valid.any()) else None, names)

    def nodes_of(self, path: str) -> tuple[GraphData, list[str]]:
        """A graph as this one is prepared for training, and the names of its nodes.

        Raises DataError for another file than that of training, unless its features are numbers as they stand there
        (x), or it has none: standardised attributes, categories and indices mean something in their own file alone.
        """
        is_own = Path(path).expanduser().resolve() == Path(self.path).expanduser().resolve()
        raw = read_graph(path, self.nodes if is_own else None)
        used: list[str] = []
        if is_own:
            label, _, used = self._labels(raw)
            self._parts(raw, label, used)
        graph, _, _ = self._graph(raw, used)
        means_the_same = graph.nodes.ndim == 2 and (graph.nodes.shape[1] == 0 or "x" in raw.arrays)
        if not is_own and (self.features or not means_the_same):
            raise DataError(
                f"{path}: features are made of all nodes of {self.path}, so those of another file would mean "
                "something else; give that file, or train on a file with numbers x (.npz, .safetensors)"
            )
        return graph, raw.ids or [str(i) for i in range(raw.num_nodes)]

    def _graph(self, raw: RawGraph, used: Sequence[str]) -> tuple[GraphData, str, str]:
        """The graph without labels, and what its features and edge types are, in words."""
        features, told = self._features(raw, used)
        types, edges_told = self._edge_types(raw)
        try:
            return GraphData(features, torch.from_numpy(raw.edges), types, directed=raw.directed), told, edges_told
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from None

    # ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _labels(self, raw: RawGraph) -> tuple[Tensor, list[str], list[str]]:
        """Classes [n] with IGNORE where there is none, their names, and the attributes that are used up by it."""
        if "y" in raw.arrays and self.target is None:
            return (*self._label_array(raw), [])
        if self.target is not None and self.target not in raw.attributes:
            known = [one_line(name) for name in raw.attributes]
            raise DataError(
                f"{self.path}: nodes have no attribute {one_line(self.target)!r}; {suggest(self.target, known)}"
            )
        target = self.target or self._guess(raw)
        values = raw.attributes[target]
        fault = _no_classes(values)
        if fault is not None:
            raise DataError(
                f"{self.path}: {one_line(target)} {fault}, so it holds no classes; name another with --data.target"
            )
        names = sorted({_word(value) for value in values if not _is_missing(value)}, key=_in_order)
        index = {name: i for i, name in enumerate(names)}
        label = [IGNORE if _is_missing(value) else index[_word(value)] for value in values]
        if self.target is None:
            raw.notes.append(f"the label is {one_line(target)!r} by its name; to choose: --data.target")
        return torch.tensor(label), names, [target]

    def _guess(self, raw: RawGraph) -> str:
        fitting = [name for name in raw.attributes if name.lower() in TARGET_NAMES]
        fitting = [name for name in fitting if _no_classes(raw.attributes[name]) is None]
        if len(fitting) == 1:
            return fitting[0]
        found = ", ".join(one_line(name) for name in list(raw.attributes)[:20]) or "none"
        if not raw.attributes:
            advice = (
                "give a table of nodes with --data.nodes FILE" if raw.edges.size else "give nodes an attribute label"
            )
            raise DataError(f"{self.path}: nodes have no attributes, so no labels; {advice}")
        fit = "several attributes may be the label" if fitting else "no attribute is named as a label"
        raise DataError(
            f"{self.path}: {fit} ({', '.join(map(one_line, fitting)) or found}); name it: --data.target NAME"
        )

    def _label_array(self, raw: RawGraph) -> tuple[Tensor, list[str]]:
        y = raw.arrays["y"]
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.ndim != 1 or y.dtype.kind not in "iufb":
            raise DataError(f"{self.path}: y is {list(y.shape)} {y.dtype}; give [n] integers, a class for each node")
        known = np.isfinite(y) & (y >= 0) if y.dtype.kind == "f" else y >= 0
        if bool((y[known] % 1 != 0).any()):
            raise DataError(f"{self.path}: y holds fractions, so it holds no classes; give integers")
        values: list[Any] = [int(value) if ok else None for value, ok in zip(y, known)]
        fault = _no_classes(values)
        if fault is not None:
            raise DataError(f"{self.path}: y {fault}, so it holds no classes")
        highest = max(value for value in values if value is not None)
        return torch.tensor([IGNORE if value is None else value for value in values]), [
            str(i) for i in range(highest + 1)
        ]

    # ── splits ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _parts(self, raw: RawGraph, label: Tensor, used: list[str]) -> tuple[dict[str, Tensor], str]:
        """The labelled nodes of each split, [n] bool, and the rule in words."""
        known = label != IGNORE
        given = self._given_parts(raw, used)
        if given is None:
            nodes = known.nonzero()[:, 0].tolist()
            classes = label[known].tolist()
            rest, test = stratified(classes, self.test_fraction, self.seed)
            share = VALID_FRACTION / (1 - self.test_fraction)
            train, valid = stratified([classes[i] for i in rest], share, self.seed)
            chosen = {"train": [rest[i] for i in train], "valid": [rest[i] for i in valid], "test": test}
            parts = {name: _mask(len(label), [nodes[i] for i in places]) for name, places in chosen.items()}
            rule = f"by class, SHA-256 with seed {self.seed}"
        else:
            parts, rule = given
            parts = {name: part & known for name, part in parts.items()}
            for one, other in (("train", "test"), ("train", "valid"), ("valid", "test")):
                both = int((parts[one] & parts[other]).sum())
                if both:
                    raise DataError(f"{self.path}: {both:,} nodes are in {one} and in {other}; correct the masks")
        for name in ("train", "test"):
            if not bool(parts[name].any()):
                raise DataError(
                    f"{self.path}: no labelled node is left for the {name} split; label more nodes (two of a class at "
                    "least), or give the splits with --data.split"
                )
        counts = ", ".join(f"{int(part.sum()):,} {name}" for name, part in parts.items())
        return parts, f"labelled nodes: {counts}, {rule}"

    def _given_parts(self, raw: RawGraph, used: list[str]) -> tuple[dict[str, Tensor], str] | None:
        empty = torch.zeros(raw.num_nodes, dtype=torch.bool)
        masks = {name: raw.arrays[name] for name in ("train", "valid", "test") if name in raw.arrays}
        if self.split is None and masks:
            if "train" not in masks or "test" not in masks:
                raise DataError(f"{self.path} has the mask {', '.join(masks)} alone; give train_mask and test_mask")
            return {
                n: torch.from_numpy(masks[n]) if n in masks else empty for n in ("train", "valid", "test")
            }, "by masks"
        by_name = {MASK_NAMES[name]: name for name in raw.attributes if name in MASK_NAMES}
        if self.split is None and "train" in by_name and "test" in by_name:
            used += by_name.values()
            parts = {
                split: torch.tensor([_word(value) in ("1", "true") for value in raw.attributes[name]])
                for split, name in by_name.items()
            }
            return {"train": empty, "valid": empty, "test": empty} | parts, "by masks"
        names = [name for name in raw.attributes if name.lower() in SPLIT_NAMES and name not in used]
        column = self.split or next((name for name in names if _names_splits(raw.attributes[name])), None)
        if column is None:
            return None
        if column not in raw.attributes:
            raise DataError(
                f"{self.path}: nodes have no attribute {one_line(column)!r}; {suggest(column, raw.attributes)}"
            )
        values = raw.attributes[column]
        if not _names_splits(values):
            odd = next(_word(v) for v in values if not _is_missing(v) and str(v).strip().lower() not in SPLITS)
            raise DataError(
                f"{self.path}: {one_line(column)} is {one_line(odd)!r} at a node; write train, valid, test or nothing"
            )
        used.append(column)
        split = [SPLITS.get(str(value).strip().lower()) for value in values]
        return {
            name: torch.tensor([one == name for one in split]) for name in ("train", "valid", "test")
        }, f"by attribute {one_line(column)}"

    # ── features ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _features(self, raw: RawGraph, used: Sequence[str]) -> tuple[Tensor, str]:
        """Features [n f], or categories [n] where there are none, and what they are, in words."""
        if "x" in raw.arrays and self.features is None:
            x = raw.arrays["x"]
            if x.ndim not in (1, 2) or x.dtype.kind not in "iufb":
                raise DataError(f"{self.path}: x is {list(x.shape)} {x.dtype}; give [n f] numbers")
            if x.ndim == 1 and x.dtype.kind in "iu":
                return torch.from_numpy(x.astype(np.int64)), "x are categories"
            x = x.reshape(len(x), -1).astype(np.float32)
            return torch.from_numpy(x), f"x as it is ({x.shape[1]:,} features)"
        wanted = [name for name in raw.attributes if name not in used] if self.features is None else self.features
        columns: list[np.ndarray] = []
        told: list[str] = []
        left_out: list[str] = []
        for name in wanted:
            if name not in raw.attributes:
                raise DataError(
                    f"{self.path}: nodes have no attribute {one_line(name)!r}; {suggest(name, raw.attributes)}"
                )
            made, what = self._columns(name, raw.attributes[name], is_chosen=self.features is not None)
            columns += made
            (told if made else left_out).append(f"{one_line(name)} ({what})")
        if columns:
            words = "features: " + ", ".join(told[:8]) + (", …" if len(told) > 8 else "")
        elif raw.num_nodes <= MAX_INDEXED and self.features is None:
            words = "nodes have no features and are told by their index, so that what is learned is of this graph alone"
        else:
            words = "nodes have no features and are told by their degree"
        if left_out:
            words += "; not used: " + ", ".join(left_out[:8]) + (", …" if len(left_out) > 8 else "")
        if columns:
            return torch.from_numpy(np.stack(columns, axis=1).astype(np.float32)), words
        indexed = raw.num_nodes <= MAX_INDEXED and self.features is None
        return torch.arange(raw.num_nodes) if indexed else torch.zeros(raw.num_nodes, 0), words

    def _columns(self, name: str, values: list[Any], *, is_chosen: bool) -> tuple[list[np.ndarray], str]:
        """Feature columns [n] of an attribute, and what it is; no columns: it cannot be used."""
        present = [value for value in values if not _is_missing(value)]
        missing = np.array([_is_missing(value) for value in values])
        gap = [missing.astype(np.float32)] if missing.any() and present else []
        lacking = f", missing at {int(missing.sum()):,} nodes, which a column says" if gap else ""
        if present and all(isinstance(value, bool | int | float) for value in present):
            try:
                numbers = np.array([0.0 if _is_missing(value) else float(value) for value in values])
            except OverflowError:
                numbers = np.array([math.inf])
            if not np.isfinite(numbers).all():
                raise DataError(f"{self.path}: {one_line(name)} of a node is infinite; correct it, or leave it empty")
            distinct = np.unique(numbers[~missing])
            is_identity = name.lower() in ("id", "index", "node_id") and len(distinct) == len(values)
            if is_identity and not is_chosen:
                return [], "a different number at each node"
            if len(distinct) < 2 and not gap:
                return [], "the same at all nodes"
            if set(distinct.tolist()) <= {0.0, 1.0}:
                return [numbers, *gap], f"0 or 1{lacking}"
            mean, std = numbers[~missing].mean(), numbers[~missing].std() or 1.0
            return [np.where(missing, 0.0, (numbers - mean) / std), *gap], f"standardised{lacking}"
        words = sorted({_word(value) for value in present})
        if len(words) < 2:
            return [], "the same at all nodes" if words else "empty"
        if len(words) > MAX_WORDS or (len(words) > len(values) / 2 and not is_chosen):
            if is_chosen:
                raise DataError(
                    f"{self.path}: {one_line(name)} has {len(words):,} different words, and {MAX_WORDS} are the "
                    "most; leave it out of --data.features"
                )
            return [], f"{len(words):,} different words"
        at = np.array([_word(value) for value in values])
        one_hot = [((at == word) & ~missing).astype(np.float32) for word in words]
        return [*one_hot, *gap], f"{len(words)} categories{lacking}"

    def _edge_types(self, raw: RawGraph) -> tuple[Tensor | None, str]:
        if "edge_type" in raw.arrays and self.edge_type is None:
            types = raw.arrays["edge_type"]
            return torch.from_numpy(types), f"{len(np.unique(types))} edge types"
        names = [one_line(name) for name in raw.edge_attributes if name != "id"]
        if self.edge_type is None:
            return None, f"attributes of edges are not used ({', '.join(names[:5])}); --data.edge_type" if names else ""
        if self.edge_type not in raw.edge_attributes:
            raise DataError(
                f"{self.path}: edges have no attribute {one_line(self.edge_type)!r}; {suggest(self.edge_type, names)}"
            )
        values = raw.edge_attributes[self.edge_type]
        words = sorted({_word(value) for value in values if not _is_missing(value)}, key=_in_order)
        if any(_is_missing(value) for value in values) or len(words) > MAX_WORDS:
            fault = "is missing on some edges" if len(words) <= MAX_WORDS else f"has {len(words):,} values"
            raise DataError(
                f"{self.path}: {one_line(self.edge_type)} {fault}; a type is one of {MAX_WORDS} on every edge"
            )
        index = {word: i for i, word in enumerate(words)}
        return torch.tensor([index[_word(value)] for value in values]), f"{len(words)} edge types"

    def _say(self, raw: RawGraph, label: Tensor, names: list[str], told: Sequence[str]) -> None:
        source, target = raw.edges
        loops = int((source == target).sum())
        low, high = (source, target) if raw.directed else (np.minimum(source, target), np.maximum(source, target))
        keys = (low * max(raw.num_nodes, 1) + high)[source != target]
        num_unique = len(np.unique(keys))
        isolated = raw.num_nodes - len(np.unique(raw.edges[:, source != target]))
        counts = Counter(label[label != IGNORE].tolist())
        shown = ", ".join(f"{one_line(names[i])} {count:,}" for i, count in counts.most_common(7))
        again = len(keys) - (2 if raw.is_both_ways else 1) * num_unique
        what = [
            f"{raw.num_nodes:,} nodes",
            f"{num_unique:,} {'directed' if raw.directed else 'undirected'} edges",
            *([f"{loops:,} loops left out"] if loops else []),
            *([f"{again:,} edges given again count once"] if again else []),
            *([f"{isolated:,} nodes without edges"] if isolated else []),
            *([f"{int((label == IGNORE).sum()):,} unlabelled"] if bool((label == IGNORE).any()) else []),
        ]
        log.warning("%s: %s; classes: %s", self.path, ", ".join(what), shown + (", …" if len(counts) > 7 else ""))
        for line in (*raw.notes, *told):
            if line:
                log.warning("%s: %s", self.path, line)


def _mask(n: int, nodes: Sequence[int]) -> Tensor:
    mask = torch.zeros(n, dtype=torch.bool)
    mask[list(nodes)] = True
    return mask


def _is_missing(value: Any) -> bool:
    return (
        value is None
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, float) and math.isnan(value))
    )


def _word(value: Any) -> str:
    """A value as the name of a class: 2.0 as 2."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _in_order(word: str) -> tuple[int, float, str]:
    """Numbers by size, before words by letter."""
    try:
        return 0, float(word), word
    except ValueError:
        return 1, 0.0, word


def _no_classes(values: Sequence[Any]) -> str | None:
    """Why these are no classes; None: they are."""
    known = [value for value in values if not _is_missing(value)]
    counts = Counter(map(_word, known))
    if len(counts) < 2:
        return f"has {len(counts)} value"
    if any(isinstance(value, float) and not value.is_integer() for value in known):
        return "holds fractions"
    if len(counts) > max(2, len(known) / 2):
        return f"has {len(counts):,} different values at {len(known):,} nodes"
    return None


def _names_splits(values: Sequence[Any]) -> bool:
    known = {str(value).strip().lower() for value in values if not _is_missing(value)}
    return bool(known) and known <= SPLITS.keys()
