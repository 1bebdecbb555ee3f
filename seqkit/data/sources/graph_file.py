"""Your own graph, in a file: nodes with features and labels, some of them known.

n nodes · f features · e edges
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqkit.data.graph_files import RawGraph, exact_number, read_graph
from seqkit.data.sample import Sample, Splits
from seqkit.data.source import DataSource
from seqkit.data.splits import SPLIT_NAMES, stratified
from seqkit.data.tables.schema import AMBIGUOUS, is_missing, number
from seqkit.errors import DataError, one_line, suggest
from seqkit.interfaces import IGNORE
from seqkit.raw import GraphData

log = logging.getLogger("seqkit")

TARGET_NAMES = ("label", "class", "y", "target", "club", "category", "subject", "field", "community", "group")
"""Attributes that are taken for the label, where they hold classes."""

SPLIT_ATTRIBUTES = ("split", "set", "mask")
MASK_NAMES = {"train_mask": "train", "val_mask": "valid", "valid_mask": "valid", "test_mask": "test"}

MAX_WORDS = 100
"""Most categories of an attribute that becomes one-hot features, and most edge types."""

MAX_INDEXED = 4_096
"""Most nodes of a graph whose index is a feature."""

VALID_FRACTION = 0.1
"""Share of the labelled nodes that is for validation, where the file says no split."""


class GraphFile(DataSource):
    """Your own graph: GraphML, GEXF, an edge list with a table of nodes, or tensors (npz, safetensors).

    path: the file, or a folder with edges.csv and nodes.csv. nodes: table of the nodes of an edge list, of which the
    edges go both ways. target: attribute of the nodes that holds their class; None: guessed by name. Nodes without one
    are unlabelled. features: attributes to use; None: all but target and split; []: none. Numbers are standardised,
    words are categories. index: True: a node's index is one-hot beside its features, so a model learns where in this
    graph a node is; False: it is not, and a node without features has its degree alone. None: of a graph with
    features, True if that is better on the validation nodes by more than chance (`index_helps`); of one without, True
    if `features` is None; False beyond `MAX_INDEXED` nodes.
    edge_type: attribute of the edges whose values are their types. split: attribute that names the split of a node;
    None: masks train_mask, val_mask and test_mask, or an attribute called split, where there are any. test_fraction:
    share of the labelled nodes that is test where the file has no split; a tenth is validation then, by class. seed:
    seed of that split, in SHA-256 order.
    """

    def __init__(
        self,
        path: str,
        *,
        nodes: str | None = None,
        target: str | None = None,
        features: list[str] | None = None,
        index: bool | None = None,
        edge_type: str | None = None,
        split: str | None = None,
        test_fraction: float = 0.2,
        seed: int = 0,
    ):
        if not 0 < test_fraction < 1 - VALID_FRACTION:
            raise ValueError(f"test_fraction is {test_fraction}; give a number above 0 and below {1 - VALID_FRACTION}")
        self.path, self.nodes, self.target, self.features, self.index = path, nodes, target, features, index
        self.edge_type, self.split, self.test_fraction, self.seed = edge_type, split, test_fraction, seed

    def splits(self) -> Splits:
        """One sample each, the same graph with other nodes labelled. Says in a line each what was read, and how.

        Raises DataError where the file cannot be read, or no attribute holds classes.
        """
        raw = read_graph(self.path, self.nodes)
        label, names, used = self._labels(raw)
        parts, rule = self._parts(raw, label, used)
        graph, *said = self._graph(raw, used, label, parts)
        self._say(raw, label, names, [*said, rule])
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

    def decided(self) -> dict[str, Any]:
        """Whether nodes have their index beside their features, once `splits` was called."""
        return {} if self.index is None else {"index": self.index}

    def nodes_of(self, path: str) -> tuple[GraphData, list[str]]:
        """A graph as this one is prepared for training, and the names of its nodes.

        Raises DataError for another file than that of training, unless its features are numbers as they stand there
        (x), or it has none: standardised attributes, categories and indices mean something in their own file alone.
        """
        is_own = Path(path).expanduser().resolve() == Path(self.path).expanduser().resolve()
        raw = read_graph(path, self.nodes if is_own else None)
        used = ["y", *MASK_NAMES]
        parts: dict[str, Tensor] = {}
        label = torch.full((raw.num_nodes,), IGNORE)
        if is_own:
            label, _, used = self._labels(raw)
            parts, _ = self._parts(raw, label, used)
        graph, *_ = self._graph(raw, used, label, parts)
        means_the_same = graph.nodes.ndim == 2 and (graph.nodes.shape[1] == 0 or raw.x is not None)
        if not is_own and (self.index or self.features or not means_the_same):
            raise DataError(
                f"{path}: features are made of all nodes of {self.path}, so those of another file would mean "
                "something else; give that file, or train with --data.index false on a file with numbers x (.npz, "
                ".safetensors)"
            )
        return graph, raw.ids or [str(i) for i in range(raw.num_nodes)]

    def _graph(
        self, raw: RawGraph, used: Sequence[str], label: Tensor, parts: dict[str, Tensor]
    ) -> tuple[GraphData, str, str, str]:
        """The graph without labels, and in words its features, their index and its edge types."""
        features, said = self._features(raw, used)
        types, edges_said = self._edge_types(raw)
        try:
            graph = GraphData(features, torch.from_numpy(raw.edges), types, directed=raw.directed)
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from None
        nodes, index_said = self._with_index(graph, label, parts)
        return replace(graph, nodes=nodes), said, index_said, edges_said

    # ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _labels(self, raw: RawGraph) -> tuple[Tensor, list[str], list[str]]:
        """Classes [n] with IGNORE where there is none, their names, and the attributes that are used up by it."""
        name = self._attribute(raw.attributes, self.target, "nodes") if self.target else self._guess(raw)
        values = raw.attributes[name]
        fault = _no_classes(values)
        if fault is not None:
            raise DataError(
                f"{self.path}: {one_line(name)} {fault}, so it holds no classes; name another with --data.target"
            )
        # classes are numbered as they occur: a label of 10^8 is not 10^8 classes
        counts = Counter(_word(value) for value in values if not is_missing(value))
        names = sorted(counts, key=_in_order)
        codes = {name: i for i, name in enumerate(names)}
        label = [IGNORE if is_missing(value) else codes[_word(value)] for value in values]
        if self.target is None:
            raw.notes.append(f"the label is {one_line(name)!r} by its name; to choose: --data.target")
        return torch.tensor(label), names, [name, *(name for name in raw.attributes if name in MASK_NAMES)]

    def _attribute(self, attributes: dict[str, list[Any]], name: str, of: str) -> str:
        """The name of an attribute. Raises DataError where there is none such."""
        if name not in attributes:
            near = suggest(name, map(one_line, attributes))
            raise DataError(f"{self.path}: {of} have no attribute {one_line(name)!r}; {near}")
        return name

    def _guess(self, raw: RawGraph) -> str:
        named = [name for name in raw.attributes if name.lower() in TARGET_NAMES]
        fitting = [name for name in named if _no_classes(raw.attributes[name]) is None] or named
        if len(fitting) == 1:
            return fitting[0]
        if not raw.attributes:
            advice = (
                "give a table of nodes with --data.nodes FILE" if raw.edges.size else "give nodes an attribute label"
            )
            raise DataError(f"{self.path}: nodes have no attributes, so no labels; {advice}")
        fit = "several attributes may be the label" if fitting else "no attribute is named as a label"
        found = ", ".join(map(one_line, fitting or list(raw.attributes)[:20]))
        raise DataError(f"{self.path}: {fit} ({found}); name it: --data.target NAME")

    # ── splits ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _parts(self, raw: RawGraph, label: Tensor, used: list[str]) -> tuple[dict[str, Tensor], str]:
        """The labelled nodes of each split, [n] bool, and the rule in words."""
        known = label != IGNORE
        parts, rule = self._given_parts(raw, used)
        if not parts:
            nodes, classes = known.nonzero()[:, 0], label[known].tolist()
            rest, test = stratified(classes, self.test_fraction, self.seed)
            share = VALID_FRACTION / (1 - self.test_fraction)
            train, valid = stratified([classes[i] for i in rest], share, self.seed)
            chosen = {"train": [rest[i] for i in train], "valid": [rest[i] for i in valid], "test": test}
            parts = {name: _mask(len(label), nodes[places]) for name, places in chosen.items()}
            rule = f"by class, SHA-256 with seed {self.seed}"
        parts = {name: parts.get(name, torch.zeros_like(known)) & known for name in ("train", "valid", "test")}
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

    def _given_parts(self, raw: RawGraph, used: list[str]) -> tuple[dict[str, Tensor], str]:
        """Nodes of each split that the file names, [n] bool, and the rule in words; none: the file has no splits."""
        masks = {MASK_NAMES[name]: name for name in raw.attributes if name in MASK_NAMES}
        if self.split is None and masks:
            if "train" not in masks or "test" not in masks:
                raise DataError(f"{self.path} has the mask {', '.join(masks)} alone; give train_mask and test_mask")
            return {
                split: torch.tensor([_word(value).lower() in ("1", "true") for value in raw.attributes[name]])
                for split, name in masks.items()
            }, "by masks"
        column = self.split and self._attribute(raw.attributes, self.split, "nodes")
        for name in raw.attributes if column is None else ():
            if name.lower() in SPLIT_ATTRIBUTES and name not in used and not _odd_split(raw.attributes[name]):
                column = name
                break
        if column is None:
            return {}, ""
        values = raw.attributes[column]
        if odd := _odd_split(values):
            raise DataError(
                f"{self.path}: {one_line(column)} is {one_line(odd)!r} at a node; write train, valid, test or nothing"
            )
        used.append(column)
        split = [SPLIT_NAMES.get(str(value).strip().lower()) for value in values]
        return {
            name: torch.tensor([one == name for one in split]) for name in ("train", "valid", "test")
        }, f"by attribute {one_line(column)}"

    # ── features ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _features(self, raw: RawGraph, used: Sequence[str]) -> tuple[Tensor, str]:
        """Features [n f], or categories [n], and what they are, in words."""
        if raw.x is not None and self.features is None:
            if raw.x.ndim == 1 and raw.x.dtype.kind in "iu":
                return torch.from_numpy(raw.x.astype(np.int64)), "x are categories"
            x = raw.x.reshape(raw.num_nodes, -1).astype(np.float32)
            return torch.from_numpy(x), f"x as it is ({x.shape[1]:,} features)"
        wanted = [name for name in raw.attributes if name not in used] if self.features is None else self.features
        columns: list[np.ndarray] = []
        taken: list[str] = []
        left_out: list[str] = []
        for name in wanted:
            values = raw.attributes[self._attribute(raw.attributes, name, "nodes")]
            made, what = self._columns(name, values, is_chosen=self.features is not None)
            columns += made
            (taken if made else left_out).append(f"{one_line(name)} ({what})")
        said = f"features: {_few(taken)}" if taken else "nodes have no features"
        if left_out:
            said += f"; not used: {_few(left_out)}"
        stacked = np.stack(columns, axis=1) if columns else np.zeros((raw.num_nodes, 0))
        return torch.from_numpy(stacked.astype(np.float32)), said

    def _with_index(self, graph: GraphData, label: Tensor, parts: dict[str, Tensor]) -> tuple[Tensor, str]:
        """Features with the nodes' index, where it is wanted or helps, and why, in words."""
        features, n, said = graph.nodes, len(graph.nodes), ""
        has_features = features.ndim == 1 or features.shape[1] > 0
        if self.index is None and n <= MAX_INDEXED and has_features and parts:
            without, beside = index_helps(graph, label, parts, self.seed)
            # more than the standard error of the difference: a coin does not cost the use on other graphs
            num_better, num_worse = int((beside & ~without).sum()), int((without & ~beside).sum())
            self.index = num_better - num_worse > math.sqrt(num_better + num_worse)
            said = (
                f" ({int(beside.sum())} of {len(beside):,} validation nodes right with it and {int(without.sum())} "
                "without, by a regression over features and neighbours; --data.index)"
            )
        elif self.index is None:
            self.index = n <= MAX_INDEXED and not has_features and self.features is None
        if self.index and n > MAX_INDEXED:
            raise DataError(f"{self.path} has {n:,} nodes, and {MAX_INDEXED:,} are the most for an index; leave it out")
        if not self.index:
            return features, f"nodes have no index{said}" if has_features else "nodes have their degree alone"
        alone = " beside their features" if has_features else " alone"
        said = f"nodes have their index{alone}, so the model learns this graph and no other{said}"
        if not has_features:
            return torch.arange(n), said
        features = torch.nn.functional.one_hot(features).float() if features.ndim == 1 else features
        return torch.cat([features, torch.eye(n)], dim=1), said

    def _columns(self, name: str, values: list[Any], *, is_chosen: bool) -> tuple[list[np.ndarray], str]:
        """Feature columns [n] of an attribute, and what it is; no columns: it cannot be used."""
        present = [value for value in values if not is_missing(value)]
        parsed = _numbers(values) if present else None
        missing = np.array([is_missing(value) for value in values]) if parsed is None else np.isnan(parsed)
        gap = [missing.astype(np.float32)] if missing.any() and present else []
        lacking = f", missing at {int(missing.sum()):,} nodes, which a column says" if gap else ""
        if parsed is not None:
            numbers = np.where(missing, 0.0, parsed)
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
        if raw.edge_types is not None and self.edge_type is None:
            return torch.from_numpy(raw.edge_types), f"{len(np.unique(raw.edge_types))} edge types"
        names = [one_line(name) for name in raw.edge_attributes if name != "id"]
        if self.edge_type is None:
            return None, f"attributes of edges are not used ({', '.join(names[:5])}); --data.edge_type" if names else ""
        values = raw.edge_attributes[self._attribute(raw.edge_attributes, self.edge_type, "edges")]
        words = sorted({_word(value) for value in values if not is_missing(value)}, key=_in_order)
        if any(is_missing(value) for value in values) or len(words) > MAX_WORDS:
            fault = "is missing on some edges" if len(words) <= MAX_WORDS else f"has {len(words):,} values"
            raise DataError(
                f"{self.path}: {one_line(self.edge_type)} {fault}; a type is one of {MAX_WORDS} on every edge"
            )
        index = {word: i for i, word in enumerate(words)}
        return torch.tensor([index[_word(value)] for value in values]), f"{len(words)} edge types"

    def _say(self, raw: RawGraph, label: Tensor, names: list[str], more: Sequence[str]) -> None:
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
        for line in (*raw.notes, *more):
            if line:
                log.warning("%s: %s", self.path, line)


def _mask(n: int, nodes: Tensor) -> Tensor:
    mask = torch.zeros(n, dtype=torch.bool)
    mask[nodes] = True
    return mask


def _word(value: Any) -> str:
    """A value as the name of a class: 2.0 as 2."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _numbers(values: Sequence[Any]) -> np.ndarray | None:
    """Values [n] as numbers, NaN where they are missing; None: they are words. Beside numbers, 007 is a number, too."""
    if all(value is None or isinstance(value, str) for value in values):
        return None
    try:
        found = [
            math.nan if is_missing(value, AMBIGUOUS) else float(value) if isinstance(value, bool) else number(value)
            for value in values
        ]
    except OverflowError:
        return np.array([math.inf])
    return None if None in found else np.array(found, float)


def _in_order(word: str) -> tuple[int, float, str]:
    """Numbers by size, before words by letter."""
    value = exact_number(word)
    return (1, 0, word) if value is None else (0, value, word)


def _no_classes(values: Sequence[Any]) -> str | None:
    """Why these are no classes; None: they are."""
    known = [value for value in values if not is_missing(value)]
    counts = Counter(map(_word, known))
    if len(counts) < 2:
        return f"has {len(counts)} value"
    if any(isinstance(value, float) and not value.is_integer() for value in known):
        return "holds fractions"
    if len(counts) > max(2, len(known) / 2):
        return f"has {len(counts):,} different values at {len(known):,} nodes"
    return None


def _odd_split(values: Sequence[Any]) -> str | None:
    """The first value that names no split, or "" where all are missing; None: they name splits."""
    known = [value for value in values if not is_missing(value)]
    odd = [_word(value) for value in known if str(value).strip().lower() not in {*SPLIT_NAMES, *AMBIGUOUS}]
    return odd[0] if odd else None if known else ""


def _few(said: Sequence[str]) -> str:
    return ", ".join(said[:8]) + (", …" if len(said) > 8 else "")


def index_helps(graph: GraphData, label: Tensor, parts: dict[str, Tensor], seed: int) -> tuple[Tensor, Tensor]:
    """Which validation nodes are classified rightly by features alone, and with the node's index beside them: [v] bool.

    Kernel ridge regression onto the classes: Gaussian kernels of a node's features and of their average over neighbours
    of neighbours, as in simplified graph convolution (Wu et al. 2019); of an index that average is label propagation.
    Either has its best ridge. Without validation nodes a fifth of the training nodes stand in.
    """
    n, features, edges = len(label), graph.nodes, graph.edges
    train, valid = (parts[name].nonzero()[:, 0] for name in ("train", "valid"))
    if len(valid) == 0:
        kept, held_out = stratified(label[train].tolist(), 0.2, seed)
        train, valid = train[kept], train[held_out]
    chosen = torch.cat([train, valid])
    inputs = torch.nn.functional.one_hot(features).float() if features.ndim == 1 else features
    pairs = torch.cat([edges, edges.flip(0), torch.arange(n).expand(2, n)], dim=1)
    scale = torch.zeros(n).index_add_(0, pairs[0], torch.ones(pairs.shape[1])).rsqrt()
    smooth = torch.zeros(n, n).index_put_((pairs[0], pairs[1]), scale[pairs[0]] * scale[pairs[1]], accumulate=True)
    shares = (smooth @ (smooth @ torch.eye(n)[:, chosen])).T  # of every node in the average of each chosen one
    own, averaged = (_gaussian_kernel(rows) for rows in (inputs[chosen], shares @ inputs))
    propagated = (shares @ shares.T).double()
    propagated /= propagated.diagonal().mean()
    classes = torch.nn.functional.one_hot(label[train]).double()
    mean, num = classes.mean(dim=0), len(train)
    best = []
    for kernel in (own + averaged, own + averaged + propagated):
        right = []
        for ridge in (0.01, 0.1, 1.0):
            weights = torch.linalg.solve(kernel[:num, :num] + ridge * torch.eye(num), classes - mean)
            right.append((kernel[num:, :num] @ weights + mean).argmax(dim=1) == label[valid])
        best.append(max(right, key=lambda one: int(one.sum())))
    return best[0], best[1]


def _gaussian_kernel(rows: Tensor) -> Tensor:
    """Gaussian kernel of rows [m f] whose width is their mean distance: [m m] float64."""
    squared = torch.cdist(rows.double(), rows.double()) ** 2
    return torch.exp(-squared / squared.mean().clamp(min=1e-12))
