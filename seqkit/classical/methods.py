"""The classical methods for each kind of data: features of raw examples, and estimators of scikit-learn on them.

m rows · f features
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import ensemble, svm
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV, RidgeCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_union
from torch import Tensor

from seqkit.classical.features import Cells, Counts, OfEach, Parts, Tfidf, scaled
from seqkit.classical.forecasts import Windows, forecasts
from seqkit.classical.images import Images
from seqkit.classical.member import kind_of
from seqkit.classical.method import Candidate, Method
from seqkit.classical.nodes import node_features
from seqkit.classical.series import Kernels, Values
from seqkit.interfaces import Tokenizer
from seqkit.objectives import Classify, Regress
from seqkit.tokenizers.cells import Row

NUM_WORDS = 300
"""Number of words, the most frequent ones, that become features of the texts in rows of several parts."""

MAX_SIZES = {"boosting": 20e6, "forest": 100e6, "soft": 20e6, "hard": 20e6}
"""Most rows x features x fits for which an estimator is tried: about a minute of one core. The first on each features
is always tried."""

Table = list[tuple[str, Any, Sequence[str]]]
"""Name of features, their transformer as in scikit-learn, and the estimators to try on them (`ESTIMATORS`)."""


_PENALTIES = np.logspace(-2, 4, 7)
_RIDGE = ("ridge regression", RidgeCV(_PENALTIES))
_LEAF = {"min_samples_leaf": 5, "random_state": 1}

ESTIMATORS: dict[str, tuple[tuple[str, Any] | None, tuple[str, Any]]] = {
    "linear": (_RIDGE, ("logistic regression (C 1)", LogisticRegression(max_iter=500))),
    "loose": (_RIDGE, ("logistic regression (C 10)", LogisticRegression(C=10, max_iter=500))),
    "ridge": (_RIDGE, ("a ridge classifier", RidgeClassifierCV(_PENALTIES))),
    "margin": (None, ("a linear SVM", svm.LinearSVC(random_state=1))),
    "nearest": (
        ("1-nearest-neighbour", KNeighborsRegressor(1, algorithm="brute")),
        ("1-nearest-neighbour", KNeighborsClassifier(1, algorithm="brute")),
    ),
    "forest": (
        ("a random forest", ensemble.RandomForestRegressor(100, max_features=0.2, random_state=1)),
        ("a random forest", ensemble.RandomForestClassifier(100, random_state=1)),
    ),
    "boosting": (
        ("gradient boosting", ensemble.HistGradientBoostingRegressor(**_LEAF)),
        ("gradient boosting", ensemble.HistGradientBoostingClassifier(**_LEAF)),
    ),
    "soft": (("an RBF-SVM (C 1)", svm.SVR(C=1)), ("an RBF-SVM (C 1)", svm.SVC(C=1))),
    "hard": (("an RBF-SVM (C 10)", svm.SVR(C=10)), ("an RBF-SVM (C 10)", svm.SVC(C=10))),
}
"""Printed name and estimator for numbers, if there is one, and for classes."""


def candidates(
    kind: str, rows: Sequence[Any], tokenizer: Tokenizer, objective: Any
) -> Iterator[Candidate]:
    """Yields the methods for a kind of data. rows: what they may be fitted to, as `read` gives it."""
    if getattr(objective, "follows_time", False):
        transformer = Windows().fit(rows)
        windows = transformer.transform(rows)
        for name, estimator in forecasts(windows):
            yield Candidate(Method(name, estimator, objective), windows, transformer)
        return
    for name, transformer, keys in _table(kind, rows, tokenizer):
        features = transformer.fit(rows).transform(rows)
        for method in _methods(name, features, keys, objective):
            yield Candidate(method, features, transformer)


def node_candidates(
    graph: Any, fitted: np.ndarray, target: Tensor, objective: Any
) -> Iterator[Candidate]:
    """Yields the methods for nodes. fitted: nodes of whose target [n] features are made."""
    for name, features, keys in _of_nodes(graph, fitted, target):
        for method in _methods(name, features, keys, objective):
            yield Candidate(method, features[fitted], features)


def _methods(name: str, features: Any, keys: Sequence[str], objective: Any) -> Iterator[Method]:
    is_number = isinstance(objective, Regress)
    found = [(key, one) for key in keys if (one := ESTIMATORS[key][not is_number])]
    for i, (key, (kind, estimator)) in enumerate(found):
        # all but boosting tell several classes apart in one fit
        is_one = isinstance(objective, Classify) and key != "boosting"
        size = np.prod(features.shape) * (1 if is_one else objective.num_outputs)
        if i == 0 or size <= MAX_SIZES.get(key, math.inf):
            yield Method(f"{kind} on {name}", estimator, objective)


def _table(kind: str, rows: Sequence[Any], tokenizer: Any) -> Table:
    """The methods for examples, the cheaper ones first."""
    match kind:
        case "parts":
            return _of_parts(tokenizer.parts, rows)
        case "texts":
            return _of_texts()
        case "images":
            return _of_images()
        case "clips":
            pixels = OfEach("values")
            return [
                ("a frame and frame differences", pixels, ["hard", "soft"]),
                ("a frame and frame differences", scaled(pixels), ["linear"]),
            ]
        case "sounds":
            cepstra = scaled(OfEach("cepstra"))
            return [
                ("MFCC statistics", cepstra, ["hard", "linear", "soft", "forest"]),
                ("log-mel frames", scaled(OfEach("log_mels")), ["hard"]),
            ]
        case "molecules":
            name = "RDKit's descriptors and Morgan counts"
            return [(name, scaled(OfEach("molecule")), ["forest", "hard", "boosting"])]
        case "series":
            return [
                ("random convolution kernels", scaled(Kernels()), ["ridge"]),
                ("values", Values(), ["nearest"]),
                ("values", scaled(Values()), ["linear"]),
                ("statistics", scaled(OfEach("series")), ["hard", "forest"]),
            ]
        case "cells":
            return [("cells", scaled(Cells()), ["linear", "forest", "hard", "boosting"])]
    return [("statistics of the tokens", scaled(OfEach("values")), ["forest", "linear"])]


def _of_texts() -> Table:
    words = Tfidf(sublinear_tf=True, ngram_range=(1, 2))
    letters = Tfidf(sublinear_tf=True, analyzer="char_wb", ngram_range=(2, 5))
    keys = ["loose", "margin"]
    return [
        ("TF-IDF of words", words, keys),
        ("TF-IDF of letters", letters, keys),
        ("TF-IDF of words and letters", make_union(words, letters), keys),
    ]


def _of_images() -> Table:
    both = make_union(Images("gradients"), Images("colours"))
    return [
        ("pixels", Images("pixels"), ["hard", "soft"]),
        ("gradients", Images("gradients"), ["hard", "soft"]),
        ("gradients and colours", scaled(both), ["hard", "forest"]),
        ("colours", Images("colours"), ["forest"]),
        ("pixels", scaled(Images("pixels")), ["linear"]),
    ]


def _of_parts(parts: Mapping[str, Tokenizer], rows: Sequence[Row]) -> Table:
    """Methods on the features of all parts together; a part of another kind has none."""
    known = {
        "cells": Cells(),
        "texts": Counts(binary=True, max_features=NUM_WORDS),
        "molecules": OfEach("molecule"),
        "images": make_union(Images("gradients"), Images("colours")),
        "sounds": OfEach("cepstra"),
        "series": OfEach("series"),
    }
    kinds = {}
    for name, own in parts.items():
        first = next((row[name] for row in rows if name in row), None)
        kind = kind_of(own, first)
        if kind in known and first is not None:
            kinds[name] = kind
    if not kinds:
        return []
    chosen = {name: known[kind] for name, kind in kinds.items()}
    name = " and ".join(dict.fromkeys(kinds.values()))
    both = scaled(Parts(chosen, list(parts)))
    return [(name, both, ["linear", "forest", "hard", "boosting"])]


def _of_nodes(graph: Any, fitted: np.ndarray, target: Tensor) -> Table:
    """Methods for nodes; in place of a transformer stand the features of all nodes."""
    own, votes, place = node_features(graph, fitted, target)
    near = sparse.hstack([own, votes]).tocsr()
    far = sparse.hstack([near, place]).tocsr()
    structure = np.hstack([votes, place])
    if own.shape[1] <= NUM_WORDS:
        structure = far.toarray()
    name = "features and classes of neighbours"
    return [
        ("label propagation", votes[:, -(votes.shape[1] // 3) :], ["loose"]),
        (name, near, ["linear", "loose"]),
        (f"{name}, and eigenvectors", far, ["linear"]),
        (f"{name}, and eigenvectors", structure, ["forest"]),
    ]
