"""The classical methods for each kind of data: features of raw examples, and estimators of scikit-learn on them.

m rows · f features
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import ensemble, svm
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV, RidgeCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer
from torch import Tensor

from seqkit.classical import images
from seqkit.classical.features import (
    Cells,
    cepstra,
    log_mels,
    molecule,
    of_each,
    scaled,
    statistics_of_tokens,
)
from seqkit.classical.forecasts import forecasts, windows_of
from seqkit.classical.method import Candidate, Method
from seqkit.classical.nodes import node_features
from seqkit.classical.series import Kernels, Values, statistics_of_series
from seqkit.interfaces import Tokenizer
from seqkit.objectives import Regress
from seqkit.raw import Waveform
from seqkit.tokenizers import Cells as CellTokens
from seqkit.tokenizers import Join, Molecule, Series

NUM_WORDS = 300
"""Number of words, the most frequent ones, that become features of the texts in rows of several parts."""

MAX_BOOSTED = 20_000_000
"""Most rows x features x outputs for which trees are boosted, which takes seconds then."""

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
        ("1-nearest-neighbour", KNeighborsRegressor(1)),
        ("1-nearest-neighbour", KNeighborsClassifier(1)),
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
    rows: Any, fitted: np.ndarray, target: Tensor, tokenizer: Tokenizer, objective: Any
) -> Iterator[Candidate]:
    """Yields the methods for a kind of data.

    rows: all examples, or the graph of the nodes. fitted: the rows on which features that are learned, such as a
    vocabulary, are fitted. target: of all rows, of which those of fitted nodes alone are read.
    """
    if getattr(objective, "follows_time", False):
        windows = windows_of(rows)
        for name, estimator in forecasts(windows):
            yield Candidate(Method(name, estimator, objective), windows)
        return
    given: Any
    if isinstance(rows, list):
        given = [rows[i] for i in fitted]
        table = _table(tokenizer, given)
    else:
        table = _of_nodes(rows, fitted, target)
        given = rows = np.arange(len(rows.nodes))
    for name, transformer, keys in table:
        features = transformer.fit(given).transform(rows)
        for key in keys:
            size = np.prod(features.shape) * objective.num_outputs
            method = ESTIMATORS[key][not isinstance(objective, Regress)]
            if method and (key != "boosting" or size <= MAX_BOOSTED):
                kind, estimator = method
                yield Candidate(Method(f"{kind} on {name}", estimator, objective), features)


def _kind(tokenizer: Tokenizer, raw: Any) -> str:
    """Kind of data, as `_table` names it. raw: one of the examples."""
    by_tokenizer = {CellTokens: "cells", Molecule: "molecules", Series: "series"}
    for known, kind in by_tokenizer.items():
        if isinstance(tokenizer, known):
            return kind
    if isinstance(raw, str):
        return "texts"
    if isinstance(raw, Waveform):
        return "sounds"
    if isinstance(raw, Tensor):
        return {3: "images", 4: "clips"}.get(raw.ndim, "tokens")
    return "tokens"


def _table(tokenizer: Tokenizer, given: list[Any]) -> Table:
    """The methods for examples, of which those of training are given, the cheaper ones first."""
    if isinstance(tokenizer, Join):
        return _of_parts(tokenizer, [dict(tokenizer.runs(raw)) for raw in given])
    match _kind(tokenizer, given[0]):
        case "texts":
            return _of_texts()
        case "images":
            return _of_images()
        case "clips":
            pixels = of_each(lambda clip: clip.flatten().numpy())
            return [
                ("a frame and frame differences", pixels, ["hard", "soft"]),
                ("a frame and frame differences", scaled(pixels), ["linear"]),
            ]
        case "sounds":
            return [
                ("MFCC statistics", scaled(of_each(cepstra)), ["hard", "linear", "soft", "forest"]),
                ("log-mel frames", scaled(of_each(log_mels)), ["hard"]),
            ]
        case "molecules":
            name = "RDKit's descriptors and Morgan counts"
            return [(name, scaled(of_each(molecule)), ["forest", "hard", "boosting"])]
        case "series":
            return [
                ("random convolution kernels", scaled(Kernels()), ["ridge"]),
                ("values", Values(), ["nearest"]),
                ("values", scaled(Values()), ["linear"]),
                ("statistics", scaled(of_each(statistics_of_series)), ["hard", "forest"]),
            ]
        case "cells":
            return [("cells", scaled(Cells()), ["linear", "forest", "hard", "boosting"])]
    tokens = scaled(of_each(lambda raw: statistics_of_tokens(tokenizer, raw)))
    return [("statistics of the tokens", tokens, ["forest", "linear"])]


def _of_texts() -> Table:
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    letters = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(2, 5))
    keys = ["loose", "margin"]
    return [
        ("TF-IDF of words", words, keys),
        ("TF-IDF of letters", letters, keys),
        ("TF-IDF of words and letters", make_union(words, letters), keys),
    ]


def _of_images() -> Table:
    pixels = FunctionTransformer(images.pixels)
    gradients = FunctionTransformer(images.gradients)
    colours = FunctionTransformer(images.colours)
    return [
        ("pixels", pixels, ["hard", "soft"]),
        ("gradients", gradients, ["hard", "soft"]),
        ("gradients and colours", scaled(make_union(gradients, colours)), ["hard", "forest"]),
        ("colours", colours, ["forest"]),
        ("pixels", scaled(pixels), ["linear"]),
    ]


def _of_parts(tokenizer: Join, given: list[dict[str, Any]]) -> Table:
    """Methods on the features of all parts together; a part of another kind has none.

    A row without a part has the features of the first training example that has it, and a feature that says so.
    """
    words = CountVectorizer(binary=True, max_features=NUM_WORDS)
    drawn = make_union(FunctionTransformer(images.gradients), FunctionTransformer(images.colours))
    known = {
        "cells": Cells(),
        "texts": words,
        "molecules": of_each(molecule),
        "images": drawn,
        "sounds": of_each(cepstra),
        "series": of_each(statistics_of_series),
    }
    kinds = []
    parts = []
    for name, own in tokenizer.parts.items():
        first = next((row[name] for row in given if name in row), None)
        kind = _kind(own, first)
        if kind in known and first is not None:
            kinds.append(kind)
            read = FunctionTransformer(partial(_part, tokenizer, name, first))
            parts.append(make_pipeline(read, clone(known[kind])))
    if not parts:
        return []
    present = of_each(
        lambda raw: np.isin(list(tokenizer.parts), [x for x, _ in tokenizer.runs(raw)])
    )
    dense = FunctionTransformer(_dense, accept_sparse=True)
    both = scaled(make_pipeline(make_union(*parts, present), dense))
    name = " and ".join(dict.fromkeys(kinds))
    return [(name, both, ["linear", "forest", "hard", "boosting"])]


def _part(tokenizer: Join, name: str, first: Any, rows: list[Any]) -> list[Any]:
    """The part of each row, or else the first one."""
    return [dict(tokenizer.runs(raw)).get(name, first) for raw in rows]


def _dense(features: Any) -> np.ndarray:
    return features.toarray() if sparse.issparse(features) else features


def _of_nodes(graph: Any, fitted: np.ndarray, target: Tensor) -> Table:
    own, votes, place = node_features(graph, fitted, target)
    near = sparse.hstack([own, votes]).tocsr()
    far = sparse.hstack([near, place]).tocsr()
    structure = np.hstack([votes, place])
    if own.shape[1] <= NUM_WORDS:
        structure = far.toarray()
    name = "features and classes of neighbours"
    table = [
        ("label propagation", votes[:, -(votes.shape[1] // 3) :], ["loose"]),
        (name, near, ["linear", "loose"]),
        (f"{name}, and eigenvectors", far, ["linear"]),
        (f"{name}, and eigenvectors", structure, ["forest"]),
    ]
    return [(name, FunctionTransformer(x.__getitem__), keys) for name, x, keys in table]
