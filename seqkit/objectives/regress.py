"""One or more numbers for every sequence or every token.

b batch · n tokens · k targets
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.contract import DataError, Objective, Prepared, Score, TokenBatch
from seqkit.embed import Embedder
from seqkit.heads import PerSequence, PerToken, Pool


class Regress(Objective):
    """Squared or Huber error of standardised targets; metrics are in the target's own unit.

    per: "sequence" (labels: a number, or k of them) or "token" (one for each token, or k: tensors [n] or [n k]).
    loss: "squared", or "huber" (linear beyond one standard deviation: outliers pull less). Mean and deviation of the
    targets are fitted on the training labels.
    A target that is NaN counts for nothing.
    """

    labelled = True

    def __init__(
        self,
        *,
        per: Literal["sequence", "token"] = "sequence",
        pool: Pool = "mean",
        loss: Literal["squared", "huber"] = "squared",
    ):
        self.per, self.pool, self.loss = per, pool, loss
        self.mean: list[float] = []
        self.deviation: list[float] = []

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Learn mean and standard deviation of each target."""
        rows = torch.cat([self._rows(label) for label in labels])
        known = [column[~column.isnan()] for column in rows.T]
        if any(len(column) == 0 for column in known):
            raise DataError("a target has no value in the training data; check the label column")
        self.mean = [float(column.mean()) for column in known]
        self.deviation = [float(column.std(correction=0)) or 1.0 for column in known]

    def encode_label(self, label: Any) -> Tensor:
        """Numbers [k], or per token [n k]. Raises DataError where they are not as many as in the training data."""
        rows = self._rows(label).float()
        if rows.shape[1] != len(self.mean):
            raise DataError(f"label has {rows.shape[1]} targets; give {len(self.mean)}, as in the training data")
        return rows[0] if self.per == "sequence" else rows

    def _rows(self, label: Any) -> Tensor:
        """A label as float64 [m k]: one row, or one for each token."""
        try:
            numbers = torch.as_tensor(label, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"label is {label!r}; give a number, or a tensor of them") from error
        if self.per == "sequence":
            return rearrange(numbers, "... -> 1 (...)")
        if numbers.ndim not in (1, 2):
            raise DataError(f"label has shape {list(numbers.shape)}; give one for each token, [n] or [n k]")
        return rearrange(numbers, "n -> n 1") if numbers.ndim == 1 else numbers

    def state(self) -> dict[str, Any]:
        """Mean and deviation per target."""
        return {"mean": self.mean, "deviation": self.deviation} if self.mean else {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take back mean and deviation."""
        self.mean, self.deviation = [float(x) for x in state["mean"]], [float(x) for x in state["deviation"]]

    def head(self, embedder: nn.Module) -> nn.Module:
        """Standardised numbers [b k] or [b n k]."""
        assert isinstance(embedder, Embedder)
        if not self.mean:
            raise ValueError("Regress does not know its targets yet; call fit(labels, names) before building the model")
        if self.per == "token":
            return PerToken(embedder.dim, len(self.mean))
        return PerSequence(embedder.dim, len(self.mean), pool=self.pool)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> Prepared:
        """Reads everything; the target is the label, [b k] or [b n k]."""
        shape = [*(batch.valid.shape if self.per == "token" else batch.valid.shape[:1]), len(self.mean)]
        if label is not None and list(label.shape) == shape[:-1] and shape[-1] == 1:
            label = label[..., None]
        if label is None or list(label.shape) != shape:
            got = "none" if label is None else f"{list(label.shape)}"
            raise DataError(f"labels are {got}; regression per {self.per} needs numbers {shape}")
        return Prepared(batch, None, label.float())

    def score(self, prediction: Tensor, target: Tensor) -> Score:
        """Sum of errors of standardised targets over those that are not NaN."""
        mean, deviation = (prediction.new_tensor(x, dtype=torch.float32) for x in (self.mean, self.deviation))
        known = ~target.isnan()
        standard = ((target - mean) / deviation)[known]
        error = F.mse_loss if self.loss == "squared" else F.huber_loss
        loss = error(prediction.float()[known], standard, reduction="sum")
        return Score(loss, known.sum(), (prediction.detach().float() * deviation + mean)[known], target[known])

    def constant(self, targets: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
        """Always the mean of the training targets, which is zero once standardised."""
        return torch.zeros_like

    def metrics(self) -> dict[str, Any]:
        """Root mean squared and mean absolute error, in the target's unit."""
        from torchmetrics import MeanAbsoluteError, MeanSquaredError

        return {"rmse": MeanSquaredError(squared=False), "mae": MeanAbsoluteError()}

    def answer(self, prediction: Tensor) -> list[Any]:
        """Numbers in the target's unit; one target per example is a plain number."""
        numbers = (prediction * prediction.new_tensor(self.deviation) + prediction.new_tensor(self.mean)).tolist()
        return [x[0] for x in numbers] if self.per == "sequence" and len(self.mean) == 1 else numbers
