"""Metrics and the mean loss, as torchmetrics. Imported late: torchmetrics takes seconds to import.

b batch · a references · t tokens · m predictions · f features
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, PearsonCorrCoef, SpearmanCorrCoef
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassAveragePrecision,
    MulticlassCalibrationError,
    MulticlassF1Score,
    MulticlassMatthewsCorrCoef,
    MulticlassPrecision,
    MulticlassRecall,
)
from torchmetrics.text import CHRFScore

from seqkit.interfaces import IGNORE, LossOutput

# ── metrics by the names that a recipe gives ─────────────────────────────────────────────────────────────────────────


def of_classes(names: Sequence[str], num_classes: int) -> dict[str, Any]:
    """Metrics of classification, by the names of `seqkit.objectives.classify.ClassMetric`; the keys are as reported.

    Means over classes ("macro") weigh each class alike. Areas under curves are one class against the rest, and leave
    out a class of which the data has no example.
    """
    k = num_classes
    table: dict[str, tuple[str, Callable[[], Any]]] = {
        "Accuracy": ("accuracy", Accuracy),
        "BalancedAccuracy": ("balanced_accuracy", lambda: MulticlassAccuracy(k, average="macro")),
        "MacroF1": ("macro_f1", lambda: MulticlassF1Score(k, average="macro")),
        "Precision": ("precision", lambda: MulticlassPrecision(k, average="macro")),
        "Recall": ("recall", lambda: MulticlassRecall(k, average="macro")),
        "MatthewsCorrCoef": ("matthews", lambda: MulticlassMatthewsCorrCoef(k)),
        "AUROC": ("auroc", lambda: MulticlassAUROC(k, average="macro")),
        "AveragePrecision": ("average_precision", lambda: MulticlassAveragePrecision(k, average="macro")),
        "CalibrationError": ("calibration_error", lambda: MulticlassCalibrationError(k, n_bins=15, norm="l1")),
    }
    return _made(table, names)


def of_numbers(names: Sequence[str]) -> dict[str, Any]:
    """Metrics of regression, by the names of `seqkit.objectives.regress.NumberMetric`, of all targets together."""
    table: dict[str, tuple[str, Callable[[], Any]]] = {
        "RMSE": ("rmse", lambda: MeanSquaredError(squared=False)),
        "MAE": ("mae", MeanAbsoluteError),
        "R2Score": ("r2", R2Score),
        "SpearmanCorrCoef": ("spearman", SpearmanCorrCoef),
        "PearsonCorrCoef": ("pearson", PearsonCorrCoef),
    }
    return _made(table, names)


def of_ids(names: Sequence[str]) -> dict[str, Any]:
    """Metrics of predicted ids, by the names of `seqkit.objectives.next_token.TokenMetric`."""
    table: dict[str, tuple[str, Callable[[], Any]]] = {
        "Accuracy": ("accuracy", Accuracy),
        "Perplexity": ("perplexity", Perplexity),
    }
    return _made(table, names)


def of_texts(names: Sequence[str], decode: Callable[[Tensor], str]) -> dict[str, Any]:
    """Metrics of generated sequences, by the names of `seqkit.objectives.seq2seq.TextMetric`. decode: ids to text."""
    table: dict[str, tuple[str, Callable[[], Any]]] = {
        "TokenErrorRate": ("token_error", TokenErrorRate),
        "SequenceErrorRate": ("sequence_error", SequenceErrorRate),
        "CHRFScore": ("chrf", lambda: GeneratedCHRF(decode)),
    }
    return _made(table, names)


def _made(table: dict[str, tuple[str, Callable[[], Any]]], names: Sequence[str]) -> dict[str, Any]:
    """Metrics by the names of their results, each once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Metric .* will save all targets and predictions in the buffer")
        return {table[name][0]: table[name][1]() for name in dict.fromkeys(names)}


def update(metric: Any, output: LossOutput) -> None:
    """Give a metric what it is of: the loss, the probabilities of the classes, or the predictions."""
    if isinstance(metric, MeanLoss | Perplexity):
        metric.update(output.loss, output.count)
    elif output.target is None or not output.target.numel():
        return
    elif isinstance(metric, MulticlassAUROC | MulticlassAveragePrecision | MulticlassCalibrationError):
        assert output.probabilities is not None, "the objective that has this metric keeps them"
        metric.update(output.probabilities, output.target)
    else:
        metric.update(output.preds, output.target)


# ── metrics ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Accuracy(Metric):
    """Share of predicted ids that equal their target, whatever the number of classes."""

    higher_is_better = True
    full_state_update = False
    correct: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("correct", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: ids of one shape."""
        self.correct += (preds == target).sum()
        self.count += target.numel()

    def compute(self) -> Tensor:
        """Between 0 and 1."""
        return self.correct / self.count


class LabelAccuracy(Accuracy):
    """Share of known yes-or-no labels that are told right: logits above zero are yes, targets 0, 1 or NaN (unknown)."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds: logits, target: labels, of one shape."""
        known = ~target.isnan()
        self.correct += (((preds > 0) == (target > 0.5)) & known).sum()
        self.count += known.sum()


class MeanAUROC(Metric):
    """Area under the ROC curve of yes-or-no labels, mean over those that have both answers; NaN where none has.

    Unknown labels (NaN) are left out, as MoleculeNet does (Wu et al. 2018, section 3.4).
    """

    higher_is_better = True
    full_state_update = False
    preds: list[Tensor]
    target: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("preds", [], dist_reduce_fx="cat")
        self.add_state("target", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds: logits [m k], target: 0, 1 or NaN [m k]."""
        self.preds.append(preds.float())
        self.target.append(target.float())

    def compute(self) -> Tensor:
        """Between 0 and 1; 0.5 for any constant."""
        from torchmetrics.functional.classification import binary_auroc
        from torchmetrics.utilities import dim_zero_cat

        preds, target = dim_zero_cat(self.preds), dim_zero_cat(self.target)
        areas = []
        for logits, labels in zip(preds.T, target.T):
            known = ~labels.isnan()
            if len(labels[known].unique()) == 2:
                areas.append(binary_auroc(logits[known], labels[known].long()))
        return torch.stack(areas).mean() if areas else preds.new_tensor(torch.nan)


class R2Score(Metric):
    """R²: 1 - squared error / squared distance from each feature's mean; 0 for predicting the mean, 1 for no error.

    As torchmetrics' R2Score with multioutput="variance_weighted", for any number of features.
    """

    higher_is_better = True
    full_state_update = False
    error: Tensor
    count: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("error", "count"):
            self.add_state(name, torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        for name in ("total", "squares"):
            self.add_state(name, torch.zeros(1, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: [m f]."""
        target = target.double()
        self.error += (preds.double() - target).square().sum()
        self.count += len(target)
        self.total = self.total + target.sum(dim=0)
        self.squares = self.squares + target.square().sum(dim=0)

    def compute(self) -> Tensor:
        """At most 1."""
        variation = (self.squares - self.total.square() / self.count).sum()
        return (1 - self.error / variation).float()


class TokenErrorRate(Metric):
    """Insertions, deletions and substitutions to the nearest reference, over the length of that reference.

    Both are summed over all examples first, as in word and phoneme error rates. Of two references as near, the shorter
    counts. Above 1 where much more than a reference is generated.
    """

    higher_is_better = False
    full_state_update = False
    errors: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("errors", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds: generated ids [b t], IGNORE after the end. target: references [b a t]; a row of IGNORE is none."""
        from torchmetrics.functional.text import edit_distance

        for generated, padded in zip(preds.tolist(), target.tolist()):
            references = _references(padded)
            distances = edit_distance([_as_text(generated)] * len(references), references, reduction="none").tolist()
            errors, length = min(zip(distances, map(len, references)))
            self.errors += int(errors)
            self.count += length

    def compute(self) -> Tensor:
        """0 where every sequence equals a reference."""
        return self.errors / self.count


class SequenceErrorRate(Metric):
    """Share of generated sequences that equal none of their references."""

    higher_is_better = False
    full_state_update = False
    wrong: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("wrong", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: as in `TokenErrorRate`."""
        for generated, padded in zip(preds.tolist(), target.tolist()):
            self.wrong += _as_text(generated) not in _references(padded)
            self.count += 1

    def compute(self) -> Tensor:
        """Between 0 and 1."""
        return self.wrong / self.count


class GeneratedCHRF(CHRFScore):
    """chrF++ of generated texts, between 0 and 1 (Popović 2017): F-score of letter and word n-grams, recall twice.

    decode: ids [n] to text.
    """

    def __init__(self, decode: Callable[[Tensor], str]) -> None:
        super().__init__()
        self.decode = decode

    def update(self, preds: Tensor, target: Tensor) -> None:  # type: ignore[override]  # ids in place of texts
        """preds, target: as in `TokenErrorRate`."""
        texts = [self.decode(row[row != IGNORE]) for row in preds]
        references = [[self.decode(row[row != IGNORE]) for row in rows if int(row[0]) != IGNORE] for rows in target]
        super().update(texts, references)


def _references(rows: list[list[int]]) -> list[str]:
    """The references among padded rows."""
    return [_as_text(ids) for ids in rows if ids[0] != IGNORE]


def _as_text(ids: list[int]) -> str:
    """A character for each id, as torchmetrics compares characters; IGNORE is left out."""
    return "".join(chr(i) for i in ids if i != IGNORE)


class MeanLoss(Metric):
    """Sum of losses over the number of predictions, over all batches and devices."""

    higher_is_better = False
    full_state_update = False
    loss: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("loss", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, loss: Tensor, count: Tensor) -> None:
        """One batch's sum and count."""
        self.loss += loss.double()
        self.count += count

    def compute(self) -> Tensor:
        """NaN if nothing was predicted."""
        return (self.loss / self.count).float()


class Perplexity(MeanLoss):
    """exp of the mean loss: of so many tokens, equally likely, a choice would be as hard."""

    def compute(self) -> Tensor:
        """At least 1."""
        return (self.loss / self.count).exp().float()
