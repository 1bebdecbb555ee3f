"""Several yes-or-no labels per sequence, any of which may be unknown.

b batch · k labels
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqkit.errors import DataError, one_line
from seqkit.interfaces import FittedState, LossOutput, ModelInput, TokenBatch, TokenSpec
from seqkit.nn.mlp import Transform
from seqkit.nn.pooling import Pool
from seqkit.objectives.labels import LabelObjective

if TYPE_CHECKING:
    from torchmetrics import Metric


class MultiLabel(LabelObjective):
    """Multi-label classification: binary cross-entropy of k yes-or-no labels, in nats; a label that is NaN is left out.

    Labels are 0, 1 or NaN (unknown), a list of k for each example, such as twelve assays of which a molecule went
    through some.
    pool: how a sequence's hidden states become one vector.
    transform: layers between hidden states and the head's output layer (`nn.heads.Transform`); None: none.

    >>> objective = MultiLabel()
    >>> objective.fit([[1, 0], [0, float("nan")]], ["toxic", "soluble"])
    >>> objective.decode(torch.zeros(1, 2))
    [[0.5, 0.5]]
    """

    def __init__(
        self,
        *,
        pool: Pool = "mean",
        transform: Callable[[int], Transform] | None = None,
    ):
        super().__init__("sequence", pool, transform)
        self.shares: list[float] = []
        self.label_names: list[str] = []

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Learns the share of yes among the known values of each label, and the names of several labels.

        names: of the labels, one for each; or of the two classes that a single label tells apart.
        Raises DataError if a label is neither 0 nor 1, or is never known.
        """
        rows = torch.stack([_row(label) for label in labels])
        are_lists = not any(isinstance(label, int | float) for label in labels)
        if names is not None and are_lists and len(names) == rows.shape[1]:
            self.label_names = list(names)
        elif names is not None and len(names) > 2:
            raise DataError(
                f"a sample has one of {len(names)} classes; use Classify, MultiLabel is for yes or no"
            )
        known = ~rows.isnan()
        if not bool(known.any(dim=0).all()):
            place = int((~known.any(dim=0)).nonzero()[0])
            name = self.label_names[place] if self.label_names else f"label {place}"
            raise DataError(f"{one_line(name)} is unknown in all of the training data")
        self.shares = (rows.nan_to_num().sum(dim=0) / known.sum(dim=0)).tolist()

    def encode_target(self, label: Any) -> Tensor:
        """Labels [k]. Raises DataError if k is not that of the training data, or a label is neither 0, 1 nor NaN."""
        row = _row(label).float()
        if len(row) != len(self.shares):
            raise DataError(
                f"a sample has {len(row)} labels; give {len(self.shares)}, as in the training data"
            )
        return row

    def state(self) -> FittedState:
        """Share of yes of each label, and the names of the labels if they have some."""
        found: dict[str, object] = {}
        if self.shares:
            found["shares"] = self.shares
        if self.label_names:
            found["names"] = self.label_names
        return found

    def load_state(self, state: FittedState) -> None:
        """Restores shares and names."""
        self.shares = [float(x) for x in state["shares"]]
        self.label_names = [str(name) for name in state.get("names", [])]
        if self.label_names and len(self.label_names) != len(self.shares):
            raise ValueError(
                f"there are {len(self.label_names)} names for {len(self.shares)} labels"
            )

    @property
    def num_outputs(self) -> int:
        """Number of labels; 0 before `fit`."""
        return len(self.shares)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """The batch as it is; the target is the labels, [b k]."""
        return self._input(batch, label, len(self.shares), dtype=torch.float32)

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Binary cross-entropy of logits [b k], summed over the labels that are known.

        preds and target are [b k], with NaN in target where a label is unknown.
        """
        known = ~target.isnan()
        each = F.binary_cross_entropy_with_logits(
            prediction.float(), target.nan_to_num(), reduction="none"
        )
        # unknown labels count zero: no selection, which an accelerator would wait for
        loss = torch.where(known, each, 0.0).sum()
        if training:
            return LossOutput(loss, known.sum())
        return LossOutput(loss, known.sum(), prediction.detach(), target)

    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """Constant prediction: the log-odds of each label in training, with half an example added to yes and to no."""
        rows = torch.cat([target.reshape(-1, len(self.shares)) for target in targets]).double()
        known = (~rows.isnan()).sum(dim=0)
        odds = torch.logit((rows.nan_to_num().sum(dim=0) + 0.5) / (known + 1)).float()
        return lambda target: odds.to(target.device).expand_as(target)

    def metrics(self, spec: TokenSpec) -> dict[str, Metric]:
        """Area under the ROC curve, mean of the labels; share of known labels that are predicted right."""
        from seqkit.objectives.metrics import LabelAccuracy, MeanArea

        return {"auroc": MeanArea("roc"), "accuracy": LabelAccuracy()}

    def probabilities(self, prediction: Tensor) -> Tensor:
        """Probability of yes for each label, [b k]."""
        return prediction.float().sigmoid()

    def decode(self, prediction: Tensor) -> list[Any]:
        """Probabilities of yes: a list with one for each label, or a number if there is one label, for each example."""
        chances = self.probabilities(prediction).tolist()
        if len(self.shares) == 1:
            return [row[0] for row in chances]
        return chances


def _row(label: Any) -> Tensor:
    """Labels [k] as float64. Raises DataError if one is neither 0, 1 nor NaN."""
    try:
        row = torch.as_tensor(label, dtype=torch.float64).reshape(-1)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"label is {label!r}; give 0, 1 or NaN for each of several labels"
        ) from error
    wrong = row[~row.isnan() & (row != 0) & (row != 1)]
    if len(wrong):
        raise DataError(
            f"a label is {float(wrong[0]):g}; give 0, 1 or nothing (unknown), or use Regress for numbers"
        )
    return row
