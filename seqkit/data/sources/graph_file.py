"""Your own graph, in a file: nodes with features and labels, some of them known.

n nodes · f features · e edges
"""

from __future__ import annotations

import logging
import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqkit.data.graph_files import MASKS, RawGraph, read_graph
from seqkit.data.notes import Caution, listed
from seqkit.data.sample import Sample, Splits
from seqkit.data.source import Arguments, DataSource, check_test_fraction
from seqkit.data.spectrum import eigenvectors
from seqkit.data.spellings import alike, one_spelling
from seqkit.data.splits import SPLIT_NAMES, stratified
from seqkit.data.tables.cells import AMBIGUOUS, exact_number, is_missing, number, short, word_of
from seqkit.errors import DataError, one_line, suggest
from seqkit.interfaces import IGNORE
from seqkit.raw import GraphData
from seqkit.tokenizers.graph_encodings import adjacency_of

log = logging.getLogger("seqkit")

TARGET_NAMES = (
    "label",
    "class",
    "y",
    "target",
    "club",
    "category",
    "subject",
    "field",
    "community",
    "group",
)
"""Attributes that are taken for the label, where they hold classes."""

MAX_WORDS = 100
"""Most categories of an attribute that becomes one-hot features, and most edge types."""

LEAST_EIGENVECTORS = 8
"""Eigenvectors of nodes that have no features; as many as there are classes, if these are more."""

_NAMES = ("train", "valid", "test")

VALID_FRACTION = 0.1
"""Share of the labelled nodes that is for validation, where the file says no split."""


class GraphFile(DataSource):
    """Your own graph: GraphML, a folder with edges.csv and nodes.csv, or tensors (npz, safetensors).

    path: the file or folder. target: attribute of the nodes that holds their class; None: guessed by name. Nodes
    without one are unlabelled. features: attributes to use; None: all but target and split; []: none. Numbers are
    standardised, words are categories, a tensor x stays as it is. eigenvectors: number of the graph's eigenvectors
    beside the features (`seqkit.data.spectrum`), which say where in this graph a node is; 0: none; None:
    `LEAST_EIGENVECTORS`, or as many as classes, for nodes without features, otherwise 0. edge_type: attribute of edges
    whose values are their types. split: attribute that names the split of a node; None: masks train_mask, val_mask and
    test_mask, or an attribute called split, where there are any. test_fraction: share of the labelled nodes that is
    test where the file has no split; a tenth is validation then, by class. seed: of that split, in SHA-256 order.
    """

    def __init__(
        self,
        path: str,
        *,
        target: str | None = None,
        features: list[str] | None = None,
        eigenvectors: int | None = None,
        edge_type: str | None = None,
        split: str | None = None,
        test_fraction: float = 0.2,
        seed: int = 0,
    ):
        check_test_fraction(test_fraction, below=1 - VALID_FRACTION)
        if eigenvectors is not None and eigenvectors < 0:
            raise ValueError(
                f"eigenvectors is {eigenvectors}; give their number, 0 for none, or leave it out"
            )
        self.path = path
        self.target = target
        self.features = features
        self.eigenvectors = eigenvectors
        self.edge_type = edge_type
        self.split = split
        self.test_fraction = test_fraction
        self.seed = seed

    def decided(self) -> Arguments:
        """The number of eigenvectors; a run keeps it."""
        return {"eigenvectors": self.eigenvectors}

    def splits(self) -> Splits:
        """One sample each, the same graph with other nodes labelled. Says in a line each what was read, and how.

        Raises DataError where the file cannot be read, no attribute holds classes, or a split would have no labels.
        """
        raw = read_graph(self.path)
        target, label, names = self._labels(raw)
        split, rule, used = self._split_of(raw, label)
        graph, said = self._graph(raw, {target, *used}, num_classes=len(names))
        parts = {
            name: label.masked_fill(torch.tensor([one != name for one in split]), IGNORE)
            for name in _NAMES
        }
        counts = {name: int((part != IGNORE).sum()) for name, part in parts.items()}
        lines = [_described(raw, label, names), *said]
        count_of = Counter(names[i] for i in label[label != IGNORE].tolist())
        if twins := alike(count_of):
            log.warning(Caution(f"{self.path}: classes {twins}"))
        if not self.target:
            by_name = f"the label is {one_line(target)!r} by its name; to choose: --data.target"
            lines.insert(1, by_name)
        sizes = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        for line in filter(None, [*lines, f"labelled nodes: {sizes}, {rule}"]):
            log.warning("%s: %s", self.path, line)
        for name in ("train", "test"):
            if not counts[name]:
                fault = f"no labelled node is left for the {name} split"
                raise DataError(
                    f"{self.path}: {fault}; label two of a class at least, or give --data.split"
                )
        unseen = set(parts["test"].tolist()) - set(parts["train"].tolist()) - {IGNORE}
        if unseen:
            shown = listed([names[i] for i in sorted(unseen)], 5)
            raise DataError(
                f"{self.path}: no training node has the class {shown}, and test nodes have; label one"
            )
        train, valid, test = ([Sample(graph, part)] for part in parts.values())
        return Splits(train, test, valid if counts["valid"] else None, names, rule)

    def nodes_of(self, path: str) -> tuple[GraphData, list[str]]:
        """A graph as this one is prepared for training, and the names of its nodes.

        Raises DataError for another file than that of training, unless its features are numbers as they stand there
        (x), or it has none: standardised attributes, categories and indices mean something in their own file alone.
        """
        if self.eigenvectors is None:
            self.splits()
        raw = read_graph(path)
        if Path(path).expanduser().resolve() == Path(self.path).expanduser().resolve():
            target, label, _ = self._labels(raw)
            return self._graph(raw, {target, *self._split_of(raw, label)[2]})[0], raw.ids
        graph, _ = self._graph(raw, {"y", *MASKS})
        means_the_same = graph.nodes.ndim == 2 and (graph.nodes.shape[1] == 0 or raw.x is not None)
        if self.eigenvectors or self.features or self.edge_type or not means_the_same:
            fault = f"features are made of all nodes of {self.path}, so those of another file mean something else"
            raise DataError(
                f"{path}: {fault}; give that file, or train with --data.eigenvectors 0 on numbers x (.npz)"
            )
        return graph, raw.ids

    def _labels(self, raw: RawGraph) -> tuple[str, Tensor, list[str]]:
        """The attribute with the classes, the class of each node [n], IGNORE where there is none, and their names."""
        named = [name for name in raw.attributes if name.lower() in TARGET_NAMES]
        fitting = [name for name in named if not _no_classes(raw.attributes[name])] or named
        if self.target is None and len(fitting) != 1:
            found = ", ".join(map(one_line, fitting or [*raw.attributes][:20])) or "there are none"
            which = f"which attribute of the nodes is their label ({found})?"
            holding = [name for name, values in raw.attributes.items() if not _no_classes(values)]
            first = shlex.quote([*fitting, *holding, "NAME"][0])
            raise DataError(f"{self.path}: {which} name it: --data.target {first}")
        name = self.target or fitting[0]
        values = self._values(raw.attributes, name, "nodes")
        if fault := _no_classes(values):
            raise DataError(
                f"{self.path}: {one_line(name)} {fault}, so it holds no classes; give --data.target"
            )
        words = ["" if is_missing(value) else _word(value) for value in values]
        spelling = one_spelling({word for word in words if word})
        # classes are numbered as they occur: a label of 10^8 is not 10^8 classes
        names = sorted({*spelling.values()}, key=_in_order)
        codes = {name: i for i, name in enumerate(names)}
        label = [codes[spelling[word]] if word else IGNORE for word in words]
        return name, torch.tensor(label), names

    def _values(self, attributes: dict[str, list[Any]], name: str, of: str) -> list[Any]:
        """The values of an attribute. Raises DataError where there is none such."""
        if name not in attributes:
            near = suggest(name, map(one_line, attributes))
            raise DataError(f"{self.path}: {of} have no attribute {one_line(name)!r}; {near}")
        return attributes[name]

    def _split_of(self, raw: RawGraph, label: Tensor) -> tuple[list[str], str, list[str]]:
        """The split of each node, "" for none, the rule in words, and the attributes that say it."""
        used = [name for name in raw.attributes if name in MASKS]
        if self.split is None and used:
            split = _by_masks({name: raw.attributes[name] for name in used})
            rule = "by masks"
        elif self.split or "split" in raw.attributes:
            used = [self.split or "split"]
            words = [_word(value) for value in self._values(raw.attributes, used[0], "nodes")]
            split = [
                "" if is_missing(word, AMBIGUOUS) else SPLIT_NAMES.get(word.lower(), word)
                for word in words
            ]
            rule = f"by attribute {one_line(used[0])}"
        else:
            used = []
            split = self._by_class(label)
            rule = f"by class, SHA-256 with seed {self.seed}"
        odd = next((name for name in split if name not in ("", *_NAMES)), None)
        if odd is not None:
            where = f"{self.path}: {', '.join(map(one_line, used))}"
            raise DataError(
                f"{where}: a node is in {one_line(odd)!r}; write one of train, valid, test, or nothing"
            )
        return split, rule, used

    def _by_class(self, label: Tensor) -> list[str]:
        """The split of each node: of each class some labelled nodes are test, and a tenth is validation."""
        nodes = (label != IGNORE).nonzero()[:, 0].tolist()
        rest, test = stratified(label[nodes].tolist(), self.test_fraction, self.seed)
        share = VALID_FRACTION / (1 - self.test_fraction)
        _, valid = stratified([int(label[nodes[i]]) for i in rest], share, self.seed)
        split = [""] * len(label)
        for i in rest:
            split[nodes[i]] = "train"
        for i in valid:
            split[nodes[rest[i]]] = "valid"
        for i in test:
            split[nodes[i]] = "test"
        return split

    def _graph(
        self, raw: RawGraph, used: set[str], num_classes: int = 0
    ) -> tuple[GraphData, list[str]]:
        """The graph without labels, and in words its features, their eigenvectors and its edge types."""
        features, said = self._features(raw, used)
        types, edges_said = self._edge_types(raw)
        try:
            graph = GraphData(features, torch.from_numpy(raw.edges), types, raw.directed)
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from None
        nodes, spectrum_said = self._with_eigenvectors(graph, num_classes)
        return replace(graph, nodes=nodes), [said, spectrum_said, edges_said]

    def _features(self, raw: RawGraph, used: set[str]) -> tuple[Tensor, str]:
        """Features [n f], or categories [n], and what they are, in words."""
        if raw.x is not None and self.features is None:
            if raw.x.ndim == 1 and raw.x.dtype.kind in "iu":
                return torch.from_numpy(raw.x.astype(np.int64)), "x are categories"
            x = raw.x.reshape(len(raw.ids), -1).astype(np.float32)
            return torch.from_numpy(x), f"x as it is ({x.shape[1]:,} features)"
        wanted = self.features
        if wanted is None:
            wanted = [name for name in raw.attributes if name not in used]
        columns: list[np.ndarray] = [np.zeros((len(raw.ids), 0))]
        taken: list[str] = []
        left_out: list[str] = []
        for name in wanted:
            values = self._values(raw.attributes, name, "nodes")
            made, what = self._columns(name, values, raw.forms.get(name))
            columns.append(made)
            told = taken if made.shape[1] else left_out
            told.append(f"{name} ({what})")
        if left_out and self.features is not None:
            raise DataError(
                f"{self.path}: no feature is {', '.join(map(one_line, left_out))}; leave it out of --data.features"
            )
        said = "nodes have no features"
        if taken:
            said = f"features: {listed(taken)}"
        if left_out:
            said += f"; not used: {listed(left_out)}"
        return torch.from_numpy(np.concatenate(columns, axis=1).astype(np.float32)), said

    def _columns(self, name: str, values: list[Any], form: str | None) -> tuple[np.ndarray, str]:
        """Features [n f] of an attribute, and what they are; f = 0: it cannot be used. form: of numbers in texts."""
        is_words = form is None and all(isinstance(value, str | None) for value in values)
        numbers = [] if is_words else [_number(value, form or "") for value in values]
        if numbers and None not in numbers:
            column = np.array(numbers, float)
            missing = np.isnan(column)
            if np.isinf(column).any():
                raise DataError(
                    f"{self.path}: {one_line(name)} of a node is infinite; correct it, or leave it empty"
                )
            distinct = set(column[~missing].tolist())
            what = "0 or 1"
            if not distinct <= {0.0, 1.0}:
                what = "standardised"
                if form is not None:
                    longest = max(values, key=lambda value: len(str(value or "")))
                    what += f", {short(longest)} is read as {number(longest, form):.15g}"
                if len(distinct) > 1:
                    column = (column - column[~missing].mean()) / column[~missing].std()
            made = np.where(missing, 0.0, column)[:, None]
        else:
            missing = np.array([is_missing(value) for value in values])
            words = np.array([_word(value) for value in values])
            distinct = set(words[~missing].tolist())
            what = f"{len(distinct):,} categories"
            if len(distinct) > min(MAX_WORDS, len(values) / 2):
                return np.zeros((len(values), 0)), f"{len(distinct):,} different words"
            made = (words[:, None] == np.array(sorted(distinct) or [""])) & ~missing[:, None]
        if len(distinct) < 2:
            return np.zeros((len(values), 0)), "the same at all nodes" if distinct else "empty"
        if missing.any():
            what += f", missing at {int(missing.sum()):,} nodes, which a column says"
            made = np.concatenate([made, missing[:, None]], axis=1)
        return made, what

    def _with_eigenvectors(self, graph: GraphData, num_classes: int) -> tuple[Tensor, str]:
        """Features of the nodes, with eigenvectors where they are wanted or all that there is, and a sentence."""
        features = graph.nodes
        is_bare = features.ndim == 2 and features.shape[1] == 0
        usual = max(LEAST_EIGENVECTORS, num_classes)
        if self.eigenvectors is None and not is_bare:
            self.eigenvectors = 0
            said = "the graph's eigenvectors are not used (docs/data/graphs.md)"
            return features, said
        if self.eigenvectors is None:
            self.eigenvectors = usual
        if self.eigenvectors == 0:
            return features, "nodes have their degree alone" if is_bare else ""
        if features.ndim == 1:
            features = torch.nn.functional.one_hot(features).float()
        adjacency = adjacency_of(graph.edges.numpy(), len(features))
        vectors = torch.from_numpy(eigenvectors(adjacency, self.eigenvectors))
        said = (
            f"nodes get the graph's first {self.eigenvectors} eigenvectors, so the model learns this graph and no "
            "other (without: --data.eigenvectors 0)"
        )
        return torch.cat([features, vectors], dim=1), said

    def _edge_types(self, raw: RawGraph) -> tuple[Tensor | None, str]:
        """The type of each edge [e], None: there is one, and a sentence."""
        if self.edge_type is None and raw.edge_types is not None:
            types = torch.from_numpy(raw.edge_types)
            return types, f"{len(types.unique())} edge types"
        if self.edge_type is None:
            names = ", ".join(map(one_line, [*raw.edge_attributes][:5]))
            unused = f"attributes of edges are not used ({names}); --data.edge_type"
            return None, unused if names else ""
        values = self._values(raw.edge_attributes, self.edge_type, "edges")
        words = sorted(set(map(_word, values)), key=_in_order)
        if any(map(is_missing, values)) or len(words) > MAX_WORDS:
            fault = f"has {len(words):,} values, or none on some edges; a type is one of {MAX_WORDS} on every edge"
            raise DataError(f"{self.path}: {one_line(self.edge_type)} {fault}")
        index = {word: i for i, word in enumerate(words)}
        return torch.tensor([index[_word(value)] for value in values]), f"{len(words)} edge types"


def _described(raw: RawGraph, label: Tensor, names: list[str]) -> str:
    """Numbers of nodes, edges and labels, and what of them does not count, in words."""
    n = len(raw.ids)
    source, target = raw.edges
    is_loop = source == target
    ordered = (source * n + target)[~is_loop]
    if raw.directed:
        pairs = ordered
    else:
        pairs = (np.minimum(source, target) * n + np.maximum(source, target))[~is_loop]
    counts = Counter(names[i] for i in label[label != IGNORE].tolist())
    left_out = {
        "loops left out": int(is_loop.sum()),
        "edges given again count once": len(ordered) - len(np.unique(ordered)),
        "nodes without edges": n - len(np.unique(raw.edges[:, ~is_loop])),
        "unlabelled": n - counts.total(),
    }
    kind = "directed" if raw.directed else "undirected"
    what = [f"{n:,} nodes", f"{len(np.unique(pairs)):,} {kind} edges"]
    what += [f"{count:,} {said}" for said, count in left_out.items() if count]
    classes = [f"{name} {count:,}" for name, count in counts.most_common()]
    return f"{', '.join(what)}; classes: {listed(classes, 7)}"


def _by_masks(masks: dict[str, list[Any]]) -> list[str]:
    """The split of each node; those of several, joined, where masks overlap."""
    split: list[list[str]] = [[] for _ in next(iter(masks.values()))]
    for mask, values in masks.items():
        for own, value in zip(split, values):
            if _word(value).lower() in ("1", "true"):
                own.append(SPLIT_NAMES[mask.removesuffix("_mask")])
    return [" and ".join(own) for own in split]


def _word(value: Any) -> str:
    """A value as the name of a class: 2.0 as 2, true, nothing as an empty word."""
    return "" if value is None else word_of(value)


def _number(value: Any, form: str) -> float | None:
    """A value as a number, NaN where it is missing; None: it is none. Beside numbers, - is missing."""
    if is_missing(value, AMBIGUOUS):
        return math.nan
    return float(value) if isinstance(value, bool) else number(value, form)


def _in_order(word: str) -> tuple[int, float, str]:
    """Numbers by size, before words by letter."""
    value = exact_number(word)
    return (1, 0, word) if value is None else (0, value, word)


def _no_classes(values: Sequence[Any]) -> str:
    """Reason why these are no classes; empty: they are."""
    known = [value for value in values if not is_missing(value)]
    num = len(set(map(_word, known)))
    if num < 2:
        return f"has {num} value"
    if any(isinstance(value, float) and not value.is_integer() for value in known):
        return "holds fractions"
    if num > max(2, len(known) / 2):
        return f"has {num:,} different values at {len(known):,} nodes"
    return ""
