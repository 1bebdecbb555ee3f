"""Metrics and the mean loss, as torchmetrics. Imported late: torchmetrics takes seconds to import.

b batch · a references · t tokens · m predictions · f features · k classes
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import (
    MeanAbsoluteError,
    MeanSquaredError,
    Metric,
    PearsonCorrCoef,
    SpearmanCorrCoef,
)
from torchmetrics.classification import (
    BinaryCalibrationError,
    MulticlassCalibrationError,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassPrecision,
    MulticlassRecall,
)
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_average_precision,
)
from torchmetrics.text import CHRFScore, WordErrorRate
from torchmetrics.utilities import dim_zero_cat

from seqkit.interfaces import IGNORE, LossOutput
from seqkit.objectives.labels import OF_PROBABILITIES, OF_WORDS, REPORTED

NUM_BINS = 15
"""Bins of equal width of a calibration error, and of a reliability diagram."""


def build_metrics(
    names: Sequence[str],
    *,
    num_classes: int = 2,
    positive: int | None = None,
    decode: Callable[[Tensor], str] = str,
) -> dict[str, Metric]:
    """Metrics by their names in a recipe (torchmetrics' own); the keys are as reported. Each name counts once.

    Means over classes ("macro") weigh each class alike. Areas under curves are one class against the rest. These and
    the balanced accuracy leave out a class of which the data has no example, as scikit-learn does.
    positive: of two classes, the one that `seqkit.objectives.classify.BINARY_METRICS` are of, as in scikit-learn; None:
    they are means over classes, too. decode: ids of a generated sequence to its text, for metrics of words.

    >>> list(build_metrics(["MacroF1", "AUROC"], num_classes=3))
    ['macro_f1', 'auroc']
    """
    k = num_classes
    p = positive
    table: dict[str, Callable[[], Metric]] = {
        "Accuracy": Accuracy,
        "BalancedAccuracy": lambda: CountMetric(k, balanced_accuracy),
        "MacroF1": lambda: MulticlassF1Score(k, average="macro"),
        "Precision": lambda: MulticlassPrecision(k, average="macro"),
        "Recall": lambda: MulticlassRecall(k, average="macro"),
        "MatthewsCorrCoef": lambda: CountMetric(k, matthews),
        "AUROC": lambda: MeanArea("roc"),
        "AveragePrecision": lambda: MeanArea("precision-recall"),
        "CalibrationError": lambda: MulticlassCalibrationError(k, n_bins=NUM_BINS, norm="l1"),
        "BrierScore": BrierScore,
        "RMSE": lambda: MeanSquaredError(squared=False),
        "MAE": MeanAbsoluteError,
        "R2Score": R2Score,
        "SpearmanCorrCoef": SpearmanCorrCoef,
        "PearsonCorrCoef": PearsonCorrCoef,
        "Perplexity": Perplexity,
        "TokenErrorRate": TokenErrorRate,
        "SequenceErrorRate": SequenceErrorRate,
        "WordErrorRate": GeneratedWER,
        "WordF1": WordF1,
        "CHRFScore": GeneratedCHRF,
    }
    if p is not None:
        table |= {
            "Precision": lambda: CountMetric(
                k, lambda counts: counts[p, p] / counts[:, p].sum().clamp(min=1)
            ),
            "Recall": lambda: CountMetric(
                k, lambda counts: counts[p, p] / counts[p].sum().clamp(min=1)
            ),
            "AveragePrecision": lambda: MeanArea("precision-recall", only=p),
            "CalibrationError": lambda: PositiveCalibrationError(p),
        }
    built: dict[str, Metric] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Metric .* will save all targets and predictions in the buffer"
        )
        for name in names:
            metric = table[name]()
            metric.needs_probabilities = name in OF_PROBABILITIES  # type: ignore[assignment]
            if name in OF_WORDS:
                metric.decode = decode  # type: ignore[assignment]
            built[REPORTED[name]] = metric
    return built


def needs_probabilities(metric: Any) -> bool:
    """Whether a metric is of the probabilities of the classes, not of the predictions."""
    return bool(getattr(metric, "needs_probabilities", False))


def update(metric: Any, output: LossOutput) -> None:
    """Update a metric with what it measures: the loss, the probabilities of the classes, or the predictions."""
    if isinstance(metric, MeanLoss):
        metric.update(output.loss, output.count)
    elif output.target is not None and output.target.numel():
        metric.update(
            output.probabilities if needs_probabilities(metric) else output.preds, output.target
        )


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
    """Share of predicted ids that equal their target; torchmetrics' own has one number of classes for all fields."""

    higher_is_better = True

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: ids of one shape."""
        self.total += (preds == target).sum()
        self.count += target.numel()


class CountMetric(MulticlassConfusionMatrix):
    """A function of the confusion matrix. value: counts [k k] of actual (rows) and predicted classes, to the value."""

    higher_is_better = True

    def __init__(self, num_classes: int, value: Callable[[Tensor], Tensor]) -> None:
        super().__init__(num_classes)
        self.value = value

    def compute(self) -> Tensor:
        """The value of all updates."""
        return self.value(self.confmat)


def balanced_accuracy(counts: Tensor) -> Tensor:
    """Mean recall of the classes that have a target, as scikit-learn's balanced_accuracy_score; NaN without any.

    torchmetrics' own counts a class without a target as 0 if it is predicted.
    """
    actual = counts.sum(dim=1)
    return (counts.diagonal() / actual)[actual > 0].mean()


def matthews(counts: Tensor) -> Tensor:
    """Correlation of predicted and actual classes (Gorodkin 2004), as scikit-learn's matthews_corrcoef.

    It is 0 if all predictions, or all targets, are of one class. torchmetrics' own is 0.4 for a constant prediction of
    13 examples of one class and 3 of another.
    """
    counts = counts.double()
    total = counts.sum()
    actual = counts.sum(dim=1)
    predicted = counts.sum(dim=0)
    covariance = counts.trace() * total - predicted @ actual
    variances = (total**2 - predicted.square().sum()) * (total**2 - actual.square().sum())
    return torch.where(variances > 0, covariance / variances.sqrt(), 0.0).float()


class LabelAccuracy(Accuracy):
    """Share of known yes-or-no labels that are predicted right: logits above 0 are yes; targets are 0, 1 or NaN."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds: logits, target: labels, of one shape."""
        known = ~target.isnan()
        super().update(preds[known] > 0, target[known] > 0.5)


class MeanArea(Metric):
    """Area under a curve of each class against the rest, or of each yes-or-no label; mean over those that have one.

    curve: "roc": of classes and labels that some, and not all, examples have. "precision-recall": the average
    precision, of those that some examples have. torchmetrics' own takes 0 for the area of a class without examples.
    only: the class whose area alone is computed; None: all.
    Unknown labels (NaN) are left out, as MoleculeNet does (Wu et al. 2018, section 3.4).
    """

    higher_is_better = True
    full_state_update = False
    scores: list[Tensor]
    target: list[Tensor]

    def __init__(self, curve: Literal["roc", "precision-recall"], only: int | None = None) -> None:
        super().__init__()
        self.curve = curve
        self.only = only
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("target", [], dist_reduce_fx="cat")

    def update(self, scores: Tensor, target: Tensor) -> None:
        """scores: probabilities or logits [m k]. target: classes [m] int64, or labels [m k], 0, 1 or NaN."""
        self.scores.append(scores.float())
        self.target.append(target)

    def compute(self) -> Tensor:
        """The mean area, between 0 and 1, 0.5 of "roc" for any constant prediction; NaN if there is none."""
        scores = dim_zero_cat(self.scores)
        target = dim_zero_cat(self.target)
        area = binary_auroc if self.curve == "roc" else binary_average_precision
        areas = []
        for k in range(scores.shape[1]) if self.only is None else [self.only]:
            labels = (target == k).float() if target.ndim == 1 else target[:, k]
            known = ~labels.isnan()
            answers = labels[known].long()
            if answers.any() and (self.curve != "roc" or not answers.all()):
                areas.append(area(scores[known, k], answers))
        if areas:
            return torch.stack(areas).mean()
        return scores.new_tensor(torch.nan)


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


class R2Score(Metric):
    """R²: 1 - squared error / squared distance from each feature's mean; 0 for predicting the mean, 1 for no error.

    It equals torchmetrics' R2Score with multioutput="variance_weighted", whose sums in float32 lose targets far from 0.
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


class OfTexts:
    """Mixin of metrics that compare generated texts with their references; without a reference, one does not count.

    preds: generated ids [b t], IGNORE after the end. target: references [b a t]; a row of IGNORE is none.
    """

    @staticmethod
    def decode(ids: Tensor) -> str:
        """Text of ids [n]. Here a character for each id, as torchmetrics compares characters."""
        return "".join(map(chr, ids.tolist()))

    def examples(self, preds: Tensor, target: Tensor) -> Iterator[tuple[str, list[str]]]:
        """Text and references of each example that has a reference."""
        for generated, rows in zip(preds, target):
            references = [
                self.decode(row[row != IGNORE]) for row in rows if bool((row[:1] != IGNORE).any())
            ]
            if references:
                yield self.decode(generated[generated != IGNORE]), references


class TokenErrorRate(OfTexts, Ratio):
    """Insertions, deletions and substitutions to the nearest reference, over the length of that reference.

    Both are summed over all examples first, as in word and phoneme error rates. If two references are equally near, the
    shorter one counts. The rate is above 1 if much more than a reference is generated.
    """

    higher_is_better = False

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: as in `OfTexts`."""
        from torchmetrics.functional.text import edit_distance

        for generated, references in self.examples(preds, target):
            distances = edit_distance(
                [generated] * len(references), references, reduction="none"
            ).tolist()
            errors, length = min(zip(distances, map(len, references)))
            self.total += int(errors)
            self.count += length


class SequenceErrorRate(OfTexts, Ratio):
    """Share of generated sequences that equal none of their references."""

    higher_is_better = False

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: as in `OfTexts`."""
        for generated, references in self.examples(preds, target):
            self.total += generated not in references
            self.count += 1


class WordF1(OfTexts, Ratio):
    """F1 of the words of generated texts, whatever their order, over the words of all texts.

    It is the measure of names in code2seq (Alon et al. 2019, arXiv:1808.01400, section 4.1).
    Of several references the one that shares most words counts.
    """

    higher_is_better = True

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds, target: as in `OfTexts`."""
        for generated, references in self.examples(preds, target):
            own = Counter(generated.split())
            others = [Counter(text.split()) for text in references]
            best = max(others, key=lambda other: (own & other).total())
            self.total += 2 * (own & best).total()
            self.count += own.total() + best.total()


class GeneratedCHRF(OfTexts, CHRFScore):
    """chrF++ of generated texts, between 0 and 1 (Popović 2017): F-score of letter and word n-grams, recall twice."""

    def update(self, preds: Tensor, target: Tensor) -> None:  # type: ignore[override]  # ids in place of texts
        """preds, target: as in `OfTexts`."""
        if found := list(self.examples(preds, target)):
            super().update(*map(list, zip(*found)))


class GeneratedWER(OfTexts, WordErrorRate):
    """Word error rate of generated texts, as torchmetrics has it; of several references, the nearest."""

    def update(self, preds: Tensor, target: Tensor) -> None:  # type: ignore[override]  # ids in place of texts
        """preds, target: as in `OfTexts`."""
        from torchmetrics.functional.text import word_error_rate

        for generated, references in self.examples(preds, target):
            nearest = min(references, key=lambda one: word_error_rate(generated, one))
            super().update([generated], [nearest])


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
