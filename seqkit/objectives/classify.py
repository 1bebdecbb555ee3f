"""Classification of sequences or of tokens.

b batch · n tokens · k classes
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from seqkit.errors import DataError, one_line
from seqkit.interfaces import IGNORE, FittedState, LossOutput, ModelInput, TokenBatch, TokenSpec
from seqkit.interfaces.tokens import may_read
from seqkit.nn.mlp import Transform
from seqkit.nn.pooling import Pool
from seqkit.objectives.labels import (
    OF_PROBABILITIES,
    REPORTED,
    LabelObjective,
    Level,
    on_device,
    plain,
)
from seqkit.objectives.losses import checked_smoothing, class_counts, cross_entropy, frequencies

if TYPE_CHECKING:
    from torchmetrics import Metric

ClassMetric = Literal[
    "Accuracy", "BalancedAccuracy", "MacroF1", "Precision", "Recall", "MatthewsCorrCoef", "AUROC", "AveragePrecision",
    "CalibrationError", "BrierScore",
]  # fmt: skip
"""Names of metrics as in torchmetrics (`seqkit.objectives.metrics.build_metrics`)."""

MainMetric = Literal[
    "Accuracy",
    "Loss",
    "BalancedAccuracy",
    "MacroF1",
    "MatthewsCorrCoef",
    "AUROC",
    "AveragePrecision",
]
"""Metrics by which models may be compared."""

BINARY_METRICS = {"precision", "recall", "average_precision", "calibration_error"}
"""Reported names of the metrics that measure the positive class if there are two classes."""


class Classify(LabelObjective):
    """Classification: cross-entropy of class labels, in nats; tokens labelled IGNORE (-100) are left out.

    level: what is classified: the whole "sequence" or each "token".
    pool: how a sequence's hidden states become one vector.
    label_smoothing: share of the target that is spread over all classes in training (Szegedy et al. 2016, section 7).
    metrics: metrics beside the loss and the accuracy; None: MacroF1.
    class_weights: weights of the classes in the training loss, in the order of their names, or "balanced": inversely
    proportional to their frequencies in training, 1 on average over the labels.
    transform: layers between hidden states and the head's output layer (`nn.heads.Transform`); None: none.
    positive: name of the positive one of two classes, for precision, recall, average precision and calibration error;
    None: the rarer one in training, or the second if both are equally frequent.
    main: the metric that chooses the best weights and compares runs, measured even if `metrics` does not name it;
    None: the accuracy, or with class weights the balanced accuracy. `seqkit compare` uses the loss in place of any
    other metric but the accuracy.

    >>> objective = Classify()
    >>> objective.fit([0, 1, 1], ["ant", "bee"])
    >>> objective.decode(torch.tensor([[0.3, 0.1], [-2.0, 2.0]]))
    ['ant', 'bee']
    """

    def __init__(
        self,
        *,
        level: Level = "sequence",
        pool: Pool = "mean",
        label_smoothing: float = 0.0,
        metrics: list[ClassMetric] | None = None,
        class_weights: Literal["balanced"] | list[float] | None = None,
        transform: Callable[[int], Transform] | None = None,
        positive: str | int | None = None,
        main: MainMetric | None = None,
    ):
        super().__init__(level, pool, transform)
        self.label_smoothing = checked_smoothing(label_smoothing)
        if isinstance(class_weights, list) and not all(0 < x < math.inf for x in class_weights):
            raise ValueError(
                f"class_weights is {class_weights}; give finite numbers above 0, or balanced"
            )
        self.chosen_metrics: list[str] = [
            "Accuracy",
            *(("MacroF1",) if metrics is None else metrics),
        ]
        if main is None:
            main = "Accuracy" if class_weights is None else "BalancedAccuracy"
        if main not in ("Loss", *self.chosen_metrics):
            self.chosen_metrics.append(main)
        self.primary_metric = REPORTED[main]
        self.class_weights = class_weights
        self.positive = None if positive is None else str(positive)  # 1 is the class "1"
        self.positive_class: int | None = None
        self.names: list[str] = []
        self.weights: list[float] = []

    def plain_label(self, label: Any) -> Any:
        """A label as the data module keeps it: a number or a tensor. Raises DataError for anything else."""
        known = plain(label)
        if not isinstance(known, int | float | Tensor):
            if self.level == "token":
                each = "an int64 tensor [n] of class numbers"
            else:
                each = "the number of a class, from 0"
            raise DataError(f"label is {one_line(repr(label)[:60])}; give {each}")
        return known

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Learns names (without `names`, numbers) and loss weights of the classes, and which of two is positive."""
        if any(torch.as_tensor(label).is_floating_point() for label in labels):
            raise DataError("the targets are numbers; Classify needs class names, use Regress")
        highest = max((int(torch.as_tensor(label).max()) for label in labels), default=-1)
        if names is None:
            names = [str(i) for i in range(highest + 1)]
        if highest >= len(names):
            raise DataError(
                f"a label is class {highest}, but there are {len(names)} classes, 0 to {len(names) - 1}"
            )
        if len(names) < 2:
            raise DataError(
                f"the training labels hold {len(names)} class; classification needs two or more"
            )
        self.names = list(names)
        self.positive_class = None
        if len(self.names) == 2:
            counts = class_counts(map(torch.as_tensor, labels), 2)
            self.positive_class = int(counts[1] <= counts[0])
        self._choose_positive()
        if self.class_weights == "balanced":
            # n / (k n_c) for class c with n_c of n labels, as scikit-learn's "balanced"; 1 if n_c is 0
            numbers = class_counts(map(torch.as_tensor, labels), len(self.names)).tolist()
            self.weights = [sum(numbers) / (len(numbers) * n) if n else 1.0 for n in numbers]
        elif self.class_weights is not None:
            if len(self.class_weights) != len(self.names):
                raise DataError(
                    f"model.objective.class_weights has {len(self.class_weights)} numbers, and there are "
                    f"{len(self.names)} classes ({', '.join(self.names[:12])}); give one for each, in this order"
                )
            self.weights = [float(x) for x in self.class_weights]

    def _choose_positive(self) -> None:
        """Set the positive class that `positive` names. Raises DataError if it is not one of two classes."""
        if self.positive is None:
            return
        if len(self.names) != 2 or self.positive not in self.names:
            raise DataError(
                f"model.objective.positive is {self.positive!r}, and the classes are {', '.join(self.names[:12])}; "
                "give the name of one of two classes, or leave it out"
            )
        self.positive_class = self.names.index(self.positive)

    def state(self) -> FittedState:
        """Names of the classes, their weights if any, and the number of the positive one of two."""
        found: dict[str, object] = {}
        if self.names:
            found["names"] = self.names
        if self.weights:
            found["weights"] = self.weights
        if self.positive_class is not None:
            found["positive"] = self.positive_class
        return found

    def load_state(self, state: FittedState) -> None:
        """Restores names and weights of the classes, and the positive one of two (by default the second)."""
        self.names = [str(name) for name in state["names"]]
        self.positive_class = None
        if len(self.names) == 2:
            self.positive_class = int(state.get("positive", 1))
        if self.positive_class not in (None, 0, 1):
            raise ValueError(
                f"the positive class is number {self.positive_class}; of two classes it is 0 or 1"
            )
        self._choose_positive()
        self.weights = [float(x) for x in state.get("weights", [])]
        if self.weights and len(self.weights) != len(self.names):
            raise ValueError(f"there are {len(self.weights)} weights for {len(self.names)} classes")

    @property
    def num_outputs(self) -> int:
        """Number of classes; 0 before `fit`."""
        return len(self.names)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """The unchanged batch, with the label [b] or [b n] as target; on a CPU, class numbers are checked."""
        inputs = self._input(batch, label, dtype=torch.long)
        label = inputs.target
        known = label[label != IGNORE] if may_read(label) else label[:0]
        if len(known) and not 0 <= int(known.min()) <= int(known.max()) < len(self.names):
            found = f"labels run from {int(known.min())} to {int(known.max())}"
            raise DataError(f"{found}; there are classes 0 to {len(self.names) - 1}")
        return inputs

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Cross-entropy of logits [b k] or [b n k], summed over the targets that are not IGNORE."""
        weights = None
        if training and self.weights:
            weights = on_device(self.weights, prediction.device)
        return cross_entropy(
            prediction,
            target,
            label_smoothing=self.label_smoothing,
            training=training,
            weights=weights,
            keep_probabilities=not OF_PROBABILITIES.isdisjoint(self.chosen_metrics),
        )

    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """Constant prediction: the frequencies of the classes in training."""
        return frequencies(targets, len(self.names))

    def metrics(self, spec: TokenSpec) -> dict[str, Metric]:
        """Accuracy and the chosen metrics."""
        from seqkit.objectives.metrics import build_metrics

        return build_metrics(
            self.chosen_metrics, num_classes=len(self.names), positive=self.positive_class
        )

    @property
    def positive_name(self) -> str | None:
        """Name of the positive one of two classes; None if there are more classes."""
        if self.positive_class is None:
            return None
        return self.names[self.positive_class]

    @property
    def classes(self) -> list[str]:
        """Names of the classes, as learned from the training labels."""
        return list(self.names)

    def probabilities(self, prediction: Tensor) -> Tensor:
        """Softmax of logits [b k] or [b n k]."""
        return prediction.float().softmax(dim=-1)

    def decode(self, prediction: Tensor) -> list[Any]:
        """Name of the likeliest class of each example; for tokens, a list of names."""

        def named(index: Any) -> Any:
            if isinstance(index, list):
                return [named(i) for i in index]
            return self.names[index]

        return named(prediction.argmax(dim=-1).tolist())
