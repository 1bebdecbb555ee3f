"""The strong baseline of a model: the best of some classical methods on features of raw examples, found in seconds.

Each kind of data has its methods (`seqkit.classical`), most of scikit-learn. The one with the best main metric
on held-out rows of the training and validation splits is then fitted on all of these rows, and evaluated on the test
split.

n tokens, time steps or nodes · m rows: examples or nodes · k classes, labels or targets
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqkit.classical.n_grams import n_grams
from seqkit.data.module import DataModule
from seqkit.data.sample import Sample
from seqkit.data.source import import_optional
from seqkit.data.splits import shuffled
from seqkit.interfaces import IGNORE
from seqkit.objectives import Classify, MultiLabel, NextToken, Regress, Seq2Seq
from seqkit.progress import track
from seqkit.raw import GraphData

MAX_FITTED = 5_000
"""Most examples on which a method is fitted; others are left out at random."""

MAX_NEIGHBOURS = 20_000
"""Most texts among which the nearest is sought; others are left out at random."""


def strong_baseline(data: DataModule) -> tuple[dict[str, Any] | None, Tensor | None]:
    """The best method's result, and its predictions [m k] for the test split as a model's head gives them.

    The result is None if no method is known for such data; the predictions are also None for n-grams and texts.
    name: of the method and its features. num_train: number of training rows, for n-grams of tokens.
    metrics: the objective's own and the loss, on the test split. Metrics of probabilities are left out if the method
    has no probabilities, and so is a loss that is not finite: a forest gives some classes the probability 0.
    Raises DataError if scikit-learn is missing.
    """
    started = time.perf_counter()
    objective = data.objective
    found = None
    prediction = None
    if type(objective) is NextToken and data.tokenizer.spec.ids and data.window is not None:
        found = n_grams(data, objective)
    elif isinstance(objective, Classify | Regress | MultiLabel):
        import_optional("sklearn", "baselines")
        found, prediction = _of_labels(data, objective)
    elif isinstance(objective, Seq2Seq) and isinstance(data.splits().test[0].raw, str):
        import_optional("sklearn", "baselines")
        found = _of_neighbours(data, objective)
    if found is not None:
        found["seconds"] = round(time.perf_counter() - started, 1)
    return found, prediction


def _of_labels(data: DataModule, objective: Any) -> tuple[dict[str, Any] | None, Tensor | None]:
    """Result and predictions, as of `strong_baseline`, for examples with a target each or for nodes of one graph."""
    # scikit-learn may be missing
    from seqkit.classical.method import best_of, folds, metrics_of
    from seqkit.classical.methods import candidates

    splits = data.splits()
    groups = None
    parts = [part for part in (splits.train, splits.valid, splits.test) if part]
    raw: Any = splits.test[0].raw
    rows: Any
    if getattr(objective, "level", "sequence") == "token":
        is_one_graph = isinstance(raw, GraphData) and max(map(len, parts)) == 1
        if not is_one_graph or not isinstance(objective, Classify):
            return None, None
        *train_labels, test_labels = (torch.as_tensor(part.labels[0]) for part in parts)
        # nodes of other splits have the label IGNORE, which is less than any class
        fitted_labels = torch.stack(train_labels).amax(dim=0)
        target = torch.maximum(fitted_labels, test_labels)
        rows = raw
        fitted = (fitted_labels != IGNORE).nonzero()[:, 0].numpy()
        test = (test_labels != IGNORE).nonzero()[:, 0].numpy()
    else:
        samples = [_small(sample) for part in parts[:-1] for sample in part]
        # in the order of the parts, as a forecast is chosen by the latest windows
        samples = [samples[i] for i in sorted(shuffled(len(samples), 0)[:MAX_FITTED])]
        if samples[0].group is not None:
            groups = np.array([sample.group for sample in samples])
        fitted, test = np.split(np.arange(len(samples) + len(splits.test)), [len(samples)])
        samples = [*samples, *map(_small, splits.test)]
        rows = [sample.raw for sample in samples]
        target = torch.stack(
            [torch.as_tensor(objective.encode_target(sample.label)) for sample in samples]
        )
    wanted = target
    if isinstance(objective, Regress):
        wanted = (target - torch.tensor(objective.centred_mean)) / torch.tensor(objective.std)
    found = candidates(rows, fitted, wanted, data.tokenizer, objective)
    held_out = folds(fitted, target[fitted].numpy(), objective, groups)
    best = best_of(track(found, "classical methods", None), wanted, target, held_out, objective)
    if best is None:
        return None, None
    method, features = best
    method.fit(features[fitted], wanted[fitted].numpy())
    prediction = method.predict(features[test])
    metrics = metrics_of(objective, prediction, target[test])
    return {"name": method.name, "metrics": metrics, "num_train": len(fitted)}, prediction


def _small(sample: Sample) -> Sample:
    """A clip [t c h w] as a frame and its changes, so that all clips fit into memory; other samples as they are."""
    if isinstance(sample.raw, Tensor) and sample.raw.ndim == 4:
        from seqkit.classical.images import frame_changes

        return sample._replace(raw=frame_changes(sample.raw))
    return sample


def _of_neighbours(data: DataModule, objective: Seq2Seq) -> dict[str, Any]:
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
    return {
        "name": "the nearest text's target, by TF-IDF of letters",
        "metrics": values,
        "num_train": len(known),
    }
