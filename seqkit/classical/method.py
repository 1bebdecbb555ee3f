"""A classical method: an estimator of scikit-learn that predicts what the head of a model predicts, and its choice.

m rows: examples or nodes · f features · k classes, labels or targets
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, TimeSeriesSplit
from torch import Tensor

from seqkit.interfaces import IGNORE
from seqkit.objectives import Classify, MultiLabel, Regress
from seqkit.objectives.metrics import MeanLoss, update

MAX_REPEATED = 1_000
"""Most rows for which each fifth is held out once; if there are more, one fifth alone is."""

LEAST_SHARE = 1e-3
"""Least probability of a class, as a forest gives some classes none."""

SCALES = np.logspace(-1.5, 1.5, 13).tolist()
"""Factors of logits, of which the one of least loss on held-out rows is taken: scores of an SVM become logits."""


class Method:
    """An estimator of scikit-learn, fitted for each label or target on the rows where it is known.

    scale: factor of its log-probabilities or scores.
    """

    def __init__(self, name: str, estimator: Any, objective: Any) -> None:
        self.name = name
        self.estimator = estimator
        self.objective = objective
        self.scale = 1.0
        self.fitted: list[Any] = []

    def fit(self, rows: Any, target: np.ndarray) -> Method:
        """Fits features [m f] to targets [m] or [m k]: classes, yes or no (NaN: unknown), or standardised numbers.

        Windows of series [m n c] are fitted to all their targets together, in the targets' unit.
        """
        self.fitted = []
        if rows.ndim == 3:
            known = ~np.isnan(target).any(axis=1)
            numbers = target * self.objective.std + self.objective.mean
            self.fitted.append(clone(self.estimator).fit(rows[known], numbers[known]))
            return self
        is_number = isinstance(self.objective, Regress)
        for column in target.reshape(len(target), -1).T:
            known = ~np.isnan(column) & (is_number | (column != IGNORE))
            values = column[known] if is_number else column[known].astype(int)
            if is_number or len(np.unique(values)) > 1:
                self.fitted.append(clone(self.estimator).fit(rows[known], values))
            else:
                counts = np.bincount(values, minlength=self.num_classes)
                self.fitted.append(counts + 0.5)
        return self

    def predict(self, rows: Any) -> Tensor:
        """Predictions [m k] for features [m f] as a model's head gives them: log-probabilities, logits or numbers."""
        if rows.ndim == 3:
            numbers = self.fitted[0].predict(rows) - self.objective.mean
            return torch.from_numpy(numbers / self.objective.std).float()
        found = [torch.from_numpy(self._of(one, rows)).float() for one in self.fitted]
        if isinstance(self.objective, Classify):
            return found[0]
        if isinstance(self.objective, MultiLabel):
            found = [one[:, 1] - one[:, 0] for one in found]
        return torch.stack(found, dim=1)

    @property
    def num_classes(self) -> int:
        """Classes that an estimator tells apart; of a label yes and no."""
        return self.objective.num_outputs if self.is_classifier else 2

    @property
    def is_classifier(self) -> bool:
        """True: one estimator tells all classes apart; else there is one for each label or target."""
        return isinstance(self.objective, Classify)

    def _of(self, estimator: Any, rows: Any) -> np.ndarray:
        """Numbers [m], or logits [m k]. estimator: fitted; or shares of classes [k], half a row more for each."""
        if isinstance(self.objective, Regress):
            return estimator.predict(rows)
        shares = np.full((rows.shape[0], self.num_classes), LEAST_SHARE)
        if isinstance(estimator, np.ndarray):
            shares[:] = estimator
        elif hasattr(estimator, "predict_proba"):
            shares[:, estimator.classes_] = estimator.predict_proba(rows).clip(LEAST_SHARE)
        else:
            scores = estimator.decision_function(rows)
            if scores.ndim == 1:
                scores = np.stack([-scores, scores], axis=1)
            # an SVM's scores reach the number of classes
            below = scores - scores.max(axis=1, keepdims=True)
            shares[:, estimator.classes_] = np.exp(below.clip(-50))
        return self.scale * np.log(shares)


def wanted_of(target: Tensor, objective: Any) -> np.ndarray:
    """Targets as methods are fitted to them: numbers are standardised."""
    if isinstance(objective, Regress):
        target = (target - torch.tensor(objective.centred_mean)) / torch.tensor(objective.std)
    return target.numpy()


class Candidate(NamedTuple):
    """A method with the features of all rows that it may be fitted to: [m f], or windows [m n c].

    source: fitted transformer of raw examples; of nodes, the features of all nodes [n f].
    """

    method: Method
    features: Any
    source: Any


Folds = list[tuple[np.ndarray, np.ndarray]]
"""Rows to fit and rows held out, several times."""


def folds(target: np.ndarray, objective: Any, groups: np.ndarray | None = None) -> Folds:
    """Folds of the rows of these targets, of which each row is held out at most once.

    For what follows time, the latter half in four parts, each with all rows before it. Otherwise fifths at random, by
    class, or of whole groups if there are five.
    """
    m = len(target)
    follows_time = getattr(objective, "follows_time", False) and m >= 10
    chosen: Any = KFold(min(5, m), shuffle=True, random_state=0)
    if follows_time:
        chosen = TimeSeriesSplit(4, test_size=m // 8)
    elif groups is not None and len(set(groups)) >= 5:
        chosen = GroupKFold(5, shuffle=True, random_state=0)
    elif isinstance(objective, Classify) and np.bincount(target).max() >= 5:
        chosen = StratifiedKFold(5, shuffle=True, random_state=0)
    found = list(chosen.split(target, target, groups))
    return found if follows_time or m <= MAX_REPEATED else found[:1]


def best_of(
    candidates: Iterable[Candidate], target: Tensor, parts: Folds, objective: Any
) -> Candidate | None:
    """The candidate whose predictions for held-out rows are best by the objective's main metric.

    Of those that are within a standard error of it, the one of least loss. None: there is no candidate. No clock stops
    the search: a run on a slow machine has the same method.
    """
    wanted = wanted_of(target, objective)
    truth = target[np.concatenate([aside for _, aside in parts])]
    own = objective.metrics(None).get(objective.primary_metric)
    sign = 1 if getattr(own, "higher_is_better", False) else -1
    scored: list[tuple[float, float, Candidate]] = []
    for candidate in candidates:
        method, features, _ = candidate
        found = []
        for rest, aside in parts:
            method.fit(features[rest], wanted[rest])
            found.append(method.predict(features[aside]))
        prediction = torch.cat(found)
        if not isinstance(objective, Regress):
            losses = [_smoothed_loss(x * prediction, truth, objective) for x in SCALES]
            method.scale = SCALES[int(np.argmin(losses))]
        metrics = finite(metrics_of(objective, method.scale * prediction, truth))
        value = sign * metrics.get(objective.primary_metric, -sign * math.inf)
        scored.append((value, -metrics.get("loss", math.inf), candidate))
    if not scored:
        return None
    highest = max(value for value, *_ in scored)
    error = 0.0
    if sign > 0 and 0 < highest < 1:
        error = math.sqrt(highest * (1 - highest) / len(truth))
    near = [one for one in scored if one[0] >= highest - error]
    return max(near, key=lambda one: one[1])[2]


def _smoothed_loss(outputs: Tensor, target: Tensor, objective: Any) -> float:
    """Mean loss of logits, of each target 1 / (m + 2) spread evenly, as in `runs.calibration.best_temperature`.

    Where all answers are right, the largest factor would be of least loss otherwise.
    """
    share = 1 / (len(target) + 2)
    if isinstance(objective, Classify):
        return float(F.cross_entropy(outputs, target, label_smoothing=share))
    return float(objective.loss(outputs, target + share * (0.5 - target)).loss)


def metrics_of(objective: Any, prediction: Tensor, target: Tensor) -> dict[str, float]:
    """The loss and the objective's metrics of these predictions; NaN: it is undefined."""
    found = {}
    for name, metric in {"loss": MeanLoss(), **objective.metrics(None)}.items():
        update(metric, objective.loss(prediction, target))
        found[name] = float(metric.compute())
    return found


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are finite: a loss is not where a method gives a class the probability 0."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
