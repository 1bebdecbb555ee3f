"""Metrics and the mean loss, as torchmetrics. Imported late: torchmetrics takes seconds to import.

b batch · a references · t tokens · m predictions · f features
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, PearsonCorrCoef, SpearmanCorrCoef
from torchmetrics.classification import (
    BinaryCalibrationError,
    MulticlassCalibrationError,
    MulticlassF1Score,
    MulticlassPrecision,
    MulticlassRecall,
)
from torchmetrics.text import CHRFScore

from seqkit.interfaces import IGNORE, LossOutput

NUM_BINS = 15
"""Bins of equal width of a calibration error, and of a reliability diagram."""

# ── metrics by the names that a recipe gives ─────────────────────────────────────────────────────────────────────────


def of_classes(names: Sequence[str], num_classes: int, positive: int = 1) -> dict[str, Any]:
    """Metrics of classification by the names of `seqkit.objectives.classify.ClassMetric`; the keys are as reported.

    Means over classes ("macro") weigh each class alike. Areas under curves are one class against the rest. These and
    the balanced accuracy leave out a class of which the data has no example, as scikit-learn does.
    positive: of two classes, the one that `seqkit.objectives.classify.OF_POSITIVE` are of, as in scikit-learn.
    """
    k, is_binary = num_classes, num_classes == 2
    table: dict[str, tuple[str, Callable[[], Any]]] = {
        "Accuracy": ("accuracy", Accuracy),
        "BalancedAccuracy": ("balanced_accuracy", lambda: BalancedAccuracy(k)),
        "MacroF1": ("macro_f1", lambda: MulticlassF1Score(k, average="macro")),
        "Precision": (
            "precision",
            lambda: PositiveRate(positive, "predicted") if is_binary else MulticlassPrecision(k, average="macro"),
        ),
        "Recall": (
            "recall",
            lambda: PositiveRate(positive, "actual") if is_binary else MulticlassRecall(k, average="macro"),
        ),
        "MatthewsCorrCoef": ("matthews", lambda: MatthewsCorrCoef(k)),
        "AUROC": ("auroc", lambda: MeanArea("roc")),
        "AveragePrecision": (
            "average_precision",
            lambda: MeanArea("precision-recall", only=positive if is_binary else None),
        ),
        "CalibrationError": (
            "calibration_error",
            lambda: (
                PositiveCalibrationError(positive)
                if is_binary
                else MulticlassCalibrationError(k, n_bins=NUM_BINS, norm="l1")
            ),
        ),
        "BrierScore": ("brier", BrierScore),
    }
    return _build(table, names)


def of_numbers(names: Sequence[str]) -> dict[str, Any]:
    """Metrics of regression, by the names of `seqkit.objectives.regress.NumberMetric`, of all targets together."""
    table: dict[str, tuple[str, Callable[[], Any]]] = {
        "RMSE": ("rmse", lambda: MeanSquaredError(squared=False)),
        "MAE": ("mae", MeanAbsoluteError),
        "R2Score": ("r2", R2Score),
        "SpearmanCorrCoef": ("spearman", SpearmanCorrCoef),
        "PearsonCorrCoef": ("pearson", PearsonCorrCoef),
    }
    return _build(table, names)


def of_ids(names: Sequence[str]) -> dict[str, Any]:
    """Metrics of predicted ids, by the names of `seqkit.objectives.next_token.TokenMetric`."""
    table: dict[str, tuple[str, Callable[[], Any]]] = {
        "Accuracy": ("accuracy", Accuracy),
        "Perplexity": ("perplexity", Perplexity),
    }
    return _build(table, names)


def of_texts(names: Sequence[str], decode: Callable[[Tensor], str]) -> dict[str, Any]:
    """Metrics of generated sequences, by the names of `seqkit.objectives.seq2seq.TextMetric`. decode: ids to text."""
    table: dict[str, tuple[str, Callable[[], Any]]] = {
        "TokenErrorRate": ("token_error", TokenErrorRate),
        "SequenceErrorRate": ("sequence_error", SequenceErrorRate),
        "CHRFScore": ("chrf", lambda: GeneratedCHRF(decode)),
    }
    return _build(table, names)


def _build(table: dict[str, tuple[str, Callable[[], Any]]], names: Sequence[str]) -> dict[str, Any]:
    """Builds the named metrics of a table, by the names of their results; each name counts once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Metric .* will save all targets and predictions in the buffer")
        return {table[name][0]: table[name][1]() for name in dict.fromkeys(names)}


def needs_probabilities(metric: Any) -> bool:
    """Whether a metric is of the probabilities of the classes, not of the predictions."""
    return isinstance(metric, MeanArea | MulticlassCalibrationError | PositiveCalibrationError | BrierScore)


def update(metric: Any, output: LossOutput) -> None:
    """Update a metric with what it measures: the loss, the probabilities of the classes, or the predictions."""
    if isinstance(metric, MeanLoss | Perplexity):
        metric.update(output.loss, output.count)
    elif output.target is None or not output.target.numel():
        return
    elif needs_probabilities(metric):
        assert output.probabilities is not None, "the objective that has this metric keeps them"
        metric.update(output.probabilities, output.target)
    else:
        metric.update(output.preds, output.target)


# ── metrics ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Ratio(Metric):
    """Base class of metrics that divide a sum over all batches and devices by a count."""

    full_state_update = False
    total_dtype = torch.int64
    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0, dtype=self.total_dtype), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def compute(self) -> Tensor:
        """Total over count; NaN if nothing was counted."""
        return (self.total / self.count).float()


class Accuracy(Ratio):
    """Share of predicted ids that equal their target, whatever the number of classes."""

    higher_is_better = True

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: ids of one shape."""
        self.total += (preds == target).sum()
        self.count += target.numel()


class ClassCounts(Metric):
    """Base class of metrics of the predictions, the targets and the hits of each of k classes."""

    higher_is_better = True
    full_state_update = False
    predicted: Tensor
    actual: Tensor
    hits: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        for name in ("predicted", "actual", "hits"):
            self.add_state(name, torch.zeros(num_classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: classes of one shape."""
        for counts, ids in ((self.predicted, preds), (self.actual, target), (self.hits, target[preds == target])):
            counts += torch.bincount(ids.flatten(), minlength=len(counts))


class BalancedAccuracy(ClassCounts):
    """Mean recall of the classes that have a target, as scikit-learn's balanced_accuracy_score.

    torchmetrics' own counts a class without a target as 0 if it is predicted.
    """

    def compute(self) -> Tensor:
        """1/m for a constant prediction if m classes have targets; NaN without any."""
        known = self.actual > 0
        return (self.hits[known] / self.actual[known]).mean()


class PositiveRate(ClassCounts):
    """Hits of one of two classes among those predicted (precision) or those actual (recall); 0 where there is none."""

    def __init__(self, positive: int, among: Literal["predicted", "actual"]) -> None:
        super().__init__(2)
        self.positive, self.among = positive, among

    def compute(self) -> Tensor:
        """Between 0 and 1."""
        return (self.hits / getattr(self, self.among).clamp(min=1))[self.positive]


class MatthewsCorrCoef(ClassCounts):
    """Correlation of predicted and actual classes (Gorodkin 2004), as scikit-learn's matthews_corrcoef.

    torchmetrics' own is above 0 for a constant prediction of two classes: it replaces the zero denominator.
    """

    def compute(self) -> Tensor:
        """Between -1 and 1; 0 if all predictions, or all targets, are of one class."""
        predicted, actual = self.predicted.double(), self.actual.double()
        total = actual.sum()
        covariance = self.hits.sum() * total - predicted @ actual
        variances = (total**2 - predicted.square().sum()) * (total**2 - actual.square().sum())
        return torch.where(variances > 0, covariance / variances.sqrt(), 0.0).float()


class LabelAccuracy(Ratio):
    """Share of known yes-or-no labels that are predicted right: logits above 0 are yes; targets are 0, 1 or NaN."""

    higher_is_better = True

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds: logits, target: labels, of one shape."""
        known = ~target.isnan()
        self.total += (((preds > 0) == (target > 0.5)) & known).sum()
        self.count += known.sum()


class MeanArea(Metric):
    """Area under a curve of each class against the rest, mean over the classes of which it is defined.

    curve: "roc": of classes that some, and not all, examples are of. "precision-recall": the average precision, of
    classes that some examples are of. torchmetrics' own takes 0 for the area of a class without examples.
    only: the class whose area alone is computed; None: all.
    """

    higher_is_better = True
    full_state_update = False
    shares: list[Tensor]
    target: list[Tensor]

    def __init__(self, curve: Literal["roc", "precision-recall"], only: int | None = None) -> None:
        super().__init__()
        self.curve, self.only = curve, only
        self.add_state("shares", [], dist_reduce_fx="cat")
        self.add_state("target", [], dist_reduce_fx="cat")

    def update(self, shares: Tensor, target: Tensor) -> None:
        """shares: probabilities of the classes [m k], target: classes [m]."""
        self.shares.append(shares.float())
        self.target.append(target)

    def compute(self) -> Tensor:
        """The mean area, between 0 and 1; NaN if no class has one."""
        from torchmetrics.functional.classification import binary_auroc, binary_average_precision
        from torchmetrics.utilities import dim_zero_cat

        shares, target = dim_zero_cat(self.shares), dim_zero_cat(self.target)
        area = binary_auroc if self.curve == "roc" else binary_average_precision
        known = target.unique().tolist()
        if self.curve == "roc" and len(known) == 1:
            known = []
        areas = [area(shares[:, k], (target == k).long()) for k in known if self.only in (None, k)]
        return torch.stack(areas).mean() if areas else shares.new_tensor(torch.nan)


class PositiveCalibrationError(BinaryCalibrationError):
    """Expected calibration error of the probability of one of two classes: its mean against the class's share."""

    def __init__(self, positive: int) -> None:
        super().__init__(n_bins=NUM_BINS, norm="l1")
        self.positive = positive

    def update(self, shares: Tensor, target: Tensor) -> None:
        """shares: probabilities of the classes [m 2], target: classes [m]."""
        super().update(shares[:, self.positive].float(), (target == self.positive).long())


class BrierScore(Ratio):
    """Mean squared distance of the probabilities from 1 for the target class and 0 for the others (Brier 1950).

    It is summed over three classes or more. Of two classes it is that of one of them, which is the same for both, as in
    scikit-learn's brier_score_loss.
    """

    higher_is_better = False
    total_dtype = torch.float64

    def update(self, shares: Tensor, target: Tensor) -> None:
        """shares: probabilities of the classes [m k], target: classes [m]."""
        k = shares.shape[-1]
        distances = (shares.double() - torch.nn.functional.one_hot(target, k)).square().sum()
        self.total += distances / 2 if k == 2 else distances
        self.count += len(target)


class MeanAUROC(Metric):
    """Area under the ROC curve of yes-or-no labels, mean over those that have both answers; NaN if none has.

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
        """The mean area, between 0 and 1; 0.5 for any constant prediction."""
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

    It equals torchmetrics' R2Score with multioutput="variance_weighted", with sums in float64.
    """

    higher_is_better = True
    full_state_update = False
    error: Tensor
    count: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (("error", []), ("count", []), ("total", [1]), ("squares", [1])):
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: [m f]."""
        target = target.double()
        self.error += (preds.double() - target).square().sum()
        self.count += len(target)
        self.total = self.total + target.sum(dim=0)
        self.squares = self.squares + target.square().sum(dim=0)

    def compute(self) -> Tensor:
        """R², at most 1; NaN if all targets are equal, but for rounding."""
        variation = (self.squares - self.total.square() / self.count).sum()
        varies = variation > 1e-14 * self.squares.sum()
        return torch.where(varies, 1 - self.error / variation, torch.nan).float()


class TokenErrorRate(Ratio):
    """Insertions, deletions and substitutions to the nearest reference, over the length of that reference.

    Both are summed over all examples first, as in word and phoneme error rates. If two references are equally near, the
    shorter one counts. The rate is above 1 if much more than a reference is generated.
    """

    higher_is_better = False

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds: generated ids [b t], IGNORE after the end. target: references [b a t]; a row of IGNORE is none."""
        from torchmetrics.functional.text import edit_distance

        for generated, padded in zip(preds.tolist(), target.tolist()):
            references = _references(padded)
            distances = edit_distance([_as_text(generated)] * len(references), references, reduction="none").tolist()
            errors, length = min(zip(distances, map(len, references)))
            self.total += int(errors)
            self.count += length


class SequenceErrorRate(Ratio):
    """Share of generated sequences that equal none of their references."""

    higher_is_better = False

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: as in `TokenErrorRate`."""
        for generated, padded in zip(preds.tolist(), target.tolist()):
            self.total += _as_text(generated) not in _references(padded)
            self.count += 1


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


class MeanLoss(Ratio):
    """Sum of losses over the number of predictions."""

    higher_is_better = False
    total_dtype = torch.float64

    def update(self, loss: Tensor, count: Tensor) -> None:
        """loss, count: sum and number of predictions of one batch."""
        self.total += loss.double()
        self.count += count


class Perplexity(MeanLoss):
    """Exponential of the mean loss: the number of equally likely tokens among which a choice would be as hard."""

    def compute(self) -> Tensor:
        """Perplexity, at least 1."""
        return (self.total / self.count).exp().float()
