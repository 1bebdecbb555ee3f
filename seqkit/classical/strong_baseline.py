"""The strong baseline of a model: the best of some classical methods on features of raw examples, found in seconds.

Each kind of data has its methods (`seqkit.classical`), most of scikit-learn. The one with the best main metric
on held-out rows of the training and validation splits is then fitted on all of these rows. Of the test split, labels
are read for n-grams and nearest texts alone.

n tokens, time steps or nodes · m rows: examples or nodes · v validation examples · k classes, labels or targets
"""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqkit.classical.n_grams import n_grams
from seqkit.data.module import DataModule
from seqkit.data.splits import shuffled
from seqkit.interfaces import IGNORE
from seqkit.objectives import Classify, MultiLabel, NextToken, Regress, Seq2Seq
from seqkit.progress import track
from seqkit.raw import GraphData

if TYPE_CHECKING:
    from seqkit.classical.member import Member, NodeMember
    from seqkit.classical.method import Candidate

MAX_FITTED = 5_000
"""Most examples on which a method is fitted; others are left out at random."""

MAX_WINDOWS = 50_000
"""Most windows of a forecast on which a method is fitted: ridge regression of so many takes seconds."""

MAX_NEIGHBOURS = 20_000
"""Most texts among which the nearest is sought; others are left out at random."""


class Found(NamedTuple):
    """The best method.

    name: of the method and its features. num_train: number of rows fitted, for n-grams of tokens. member: what predicts
    from raw examples, fitted on training and validation rows; None: n-grams, nearest texts, which have metrics of the
    test split in its place.
    valid: predictions [v k] for all validation examples, in order, by the same method fitted on training rows alone;
    None: there is no validation split, or no member. Of nodes they are predictions [n k] for all of them.
    """

    name: str
    num_train: int
    metrics: dict[str, float]
    seconds: float = 0.0
    member: Member | NodeMember | None = None
    valid: Tensor | None = None


def strong_baseline(data: DataModule) -> Found | None:
    """The best method; None: no method is known for such data."""
    started = time.perf_counter()
    objective = data.objective
    found = None
    if type(objective) is NextToken and data.tokenizer.spec.ids and data.window is not None:
        found = Found(**n_grams(data, objective))
    elif isinstance(objective, Classify | Regress | MultiLabel):
        if getattr(objective, "level", "sequence") == "token":
            found = _of_nodes(data, objective)
        else:
            found = _of_examples(data, objective)
    elif isinstance(objective, Seq2Seq) and isinstance(data.splits().test[0].raw, str):
        found = _of_neighbours(data, objective)
    if found is None:
        return None
    return found._replace(seconds=round(time.perf_counter() - started, 1))


def _of_examples(data: DataModule, objective: Any) -> Found | None:
    """The best method for examples with a target each."""
    # scikit-learn takes a second to import
    from sklearn.base import clone

    from seqkit.classical.member import Member, kind_of, read
    from seqkit.classical.method import folds, wanted_of
    from seqkit.classical.methods import candidates

    splits = data.splits()
    tokenizer = data.tokenizer
    kind = kind_of(tokenizer, splits.train[0].raw)
    places = [(part, i) for part in (splits.train, splits.valid or ()) for i in range(len(part))]
    # in the order of the parts, as a forecast is chosen by the latest windows
    most = MAX_WINDOWS if objective.follows_time else MAX_FITTED
    chosen = sorted(shuffled(len(places), 0)[:most])
    rows = []
    labels = []
    groups = []
    for part, i in (places[place] for place in chosen):
        sample = part[i]
        rows.append(read(kind, tokenizer, sample.raw))
        labels.append(torch.as_tensor(objective.encode_target(sample.label)))
        groups.append(sample.group)
    target = torch.stack(labels)
    wanted = wanted_of(target, objective)
    held_out = folds(target.numpy(), objective, None if groups[0] is None else np.array(groups))
    best = _best(candidates(kind, rows, tokenizer, objective), target, held_out, objective)
    if best is None:
        return None
    method, features, transformer = best
    member = Member(kind, transformer, method.fit(features, wanted), tokenizer)
    valid = None
    if splits.valid:
        num_train = int(np.searchsorted(chosen, len(splits.train)))
        own = clone(transformer).fit(rows[:num_train])
        fitted = copy.copy(method).fit(own.transform(rows[:num_train]), wanted[:num_train])
        valid = Member(kind, own, fitted, tokenizer).predict([x.raw for x in splits.valid])
    return Found(method.name, len(rows), {}, member=member, valid=valid)


def _of_nodes(data: DataModule, objective: Any) -> Found | None:
    """The best method for the nodes of one graph, whose labels are of classes."""
    splits = data.splits()
    parts = [part for part in (splits.train, splits.valid, splits.test) if part]
    is_one = all(len(part) == 1 and isinstance(part[0].raw, GraphData) for part in parts)
    if not is_one or not isinstance(objective, Classify):
        return None
    from seqkit.classical.member import NodeMember, digest_of
    from seqkit.classical.method import folds
    from seqkit.classical.methods import node_candidates

    graph: Any = splits.test[0].raw
    digest = digest_of(graph)
    if any(digest_of(part[0].raw) != digest for part in parts):
        return None
    train_labels = [torch.as_tensor(part.labels[0]) for part in parts[:-1]]
    # nodes of other splits have the label IGNORE, which is less than any class
    target = torch.stack(train_labels).amax(dim=0)
    nodes, train = (
        (labels != IGNORE).nonzero()[:, 0].numpy() for labels in (target, train_labels[0])
    )
    held_out = folds(target[nodes].numpy(), objective)
    found = node_candidates(graph, nodes, target, objective)
    best = _best(found, target[nodes], held_out, objective)
    if best is None:
        return None
    method, features, all_features = best
    table = method.fit(features, target[nodes].numpy()).predict(all_features)
    valid = None
    if splits.valid:
        again = node_candidates(graph, train, target, objective)
        _, features, all_features = next(x for x in again if x.method.name == method.name)
        fitted = copy.copy(method).fit(features, target[train].numpy())
        valid = fitted.predict(all_features)
    return Found(method.name, len(nodes), {}, member=NodeMember(table, digest), valid=valid)


def _best(found: Any, target: Tensor, held_out: Any, objective: Any) -> Candidate | None:
    from seqkit.classical.method import best_of

    return best_of(track(found, "classical methods", None), target, held_out, objective)


def _of_neighbours(data: DataModule, objective: Seq2Seq) -> Found:
    """Result of predicting, for each test text, the target of the nearest training or validation text."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neighbors import NearestNeighbors

    splits = data.splits()
    metrics = objective.generation_metrics()
    known = [sample for part in (splits.train, splits.valid or ()) for sample in part]
    known = [known[i] for i in shuffled(len(known), 0)[:MAX_NEIGHBOURS]]
    letters = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(2, 5))
    nearest = NearestNeighbors(n_neighbors=1, metric="cosine").fit(
        letters.fit_transform([x.raw for x in known])
    )
    found = nearest.kneighbors(
        letters.transform([x.raw for x in splits.test]), return_distance=False
    )[:, 0]
    for i, sample in zip(found, splits.test):
        for metric in metrics.values():
            metric.update(
                objective.encode_target(known[i].label)[:1],
                objective.encode_target(sample.label)[None],
            )
    values = {name: float(metric.compute()) for name, metric in metrics.items()}
    return Found("the nearest text's target, by TF-IDF of letters", len(known), values)
