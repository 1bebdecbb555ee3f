"""Regression of one or more numbers per sequence or per token.

b batch · n tokens · k targets
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError, UsageError, one_line
from seqkit.interfaces import (
    FittedState,
    LossOutput,
    ModelInput,
    TokenBatch,
    Tokenizer,
    Tokens,
    TokenSpec,
)
from seqkit.interfaces.base import Shortcut
from seqkit.nn.mlp import Transform
from seqkit.nn.pooling import Pool
from seqkit.objectives.labels import LabelObjective, Level, on_device, plain
from seqkit.objectives.last_value import LastValue, learned
from seqkit.tokenizers.given import Series

if TYPE_CHECKING:
    from torchmetrics import Metric

NumberMetric = Literal["RMSE", "MAE", "R2Score", "SpearmanCorrCoef", "PearsonCorrCoef"]
"""Names of metrics, as in torchmetrics: `seqkit.objectives.metrics.build_metrics`."""

LARGE_OFFSET = 2**12
"""Mean of a target, in standard deviations, from which on float32 loses more than three of its seven digits to it."""


def large_offset(mean: float, std: float) -> float:
    """The mean where float32 would lose digits to it, else 0."""
    return mean if abs(mean) > LARGE_OFFSET * std else 0.0


class Regress(LabelObjective):
    """Regression: squared or Huber error of standardised targets; metrics are in the target's own unit.

    Mean and standard deviation of the targets are fitted on the training labels. A target that is NaN is left out.
    level: what has a label: the whole "sequence" (a number, or k of them) or each "token" (tensors [n] or [n k]).
    pool: how a sequence's hidden states become one vector.
    loss: "squared", or "huber": linear beyond one standard deviation, so that outliers weigh less.
    metrics: metrics that are measured beside the loss and the RMSE, over all targets together; None: MAE, and for a
    single target R2Score.
    transform: layers between hidden states and the head's output layer (`nn.heads.Transform`); None: none.
    forecast: True: the targets are the next values of a series, in its unit; the network reads the differences to the
    window's last step, and predicts changes from its last value (`objectives.last_value`).
    Raises ValueError for a forecast of each token.

    >>> objective = Regress()
    >>> objective.fit([10.0, 30.0], None)
    >>> objective.decode(torch.tensor([[0.0], [1.0]]))
    [20.0, 30.0]
    """

    primary_metric = "rmse"

    def __init__(
        self,
        *,
        level: Level = "sequence",
        pool: Pool = "mean",
        loss: Literal["squared", "huber"] = "squared",
        metrics: list[NumberMetric] | None = None,
        transform: Callable[[int], Transform] | None = None,
        forecast: bool = False,
    ):
        super().__init__(level, pool, transform)
        if forecast and level == "token":
            raise ValueError(
                "forecast=True predicts what follows a whole window; leave level=token out"
            )
        self.forecast = forecast
        self.windows: Series | None = None
        self.learned: dict[str, Any] = {}
        self.chosen_metrics = metrics
        self._error = F.mse_loss if loss == "squared" else F.huber_loss
        self.mean: list[float] = []
        self.std: list[float] = []

    def plain_label(self, label: Any) -> Any:
        """A label as the data module keeps it: a number, a list or a tensor. Raises DataError for anything else."""
        known = plain(label)
        if not isinstance(known, int | float):
            self._rows(known)
        return known

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Learns mean and standard deviation of each target."""
        labels = list(labels)
        if self.forecast and names and all(isinstance(label, int) for label in labels):
            raise UsageError(
                f"a forecast learns the values that follow each window, and the data has classes ({len(names)}); give "
                "windows with --data FILE and --data.target, or --preset etth1"
            )
        if self.level == "sequence" and all(isinstance(label, float) for label in labels):
            # as below, at once
            rows = rearrange(torch.tensor(labels, dtype=torch.float64), "m -> m 1")
        else:
            rows = torch.cat([self._rows(label) for label in labels])
        known = [column[~column.isnan()] for column in rows.T]
        if any(len(column) == 0 for column in known):
            raise DataError("a target has no value in the training data; check the label column")
        self.mean = [float(column.mean()) for column in known]
        self.std = [float(column.std(correction=0)) or 1.0 for column in known]

    @property
    def follows_time(self) -> bool:
        return self.forecast

    def read_from(self, tokenizer: Tokenizer) -> None:
        """For a forecast, the tokenizer of its windows. Raises UsageError for another one, or one that scales them."""
        if not self.forecast:
            return
        if not isinstance(tokenizer, Series) or tokenizer.normalize is not None:
            raise UsageError(
                "model.objective.forecast=true reads windows as --tokenizer Series, with normalize=null"
            )
        self.windows = tokenizer

    def fit_inputs(self, examples: Iterable[tuple[Tokens, Any]]) -> None:
        """For a forecast, learns how far a window's steps and its targets are from its last step."""
        if self.windows is None:
            return
        tokens, labels = zip(*examples)
        targets = torch.cat([self._rows(label) for label in labels])
        self.learned = learned(tokens, targets, self.windows.width, self.std)

    def shortcut(self) -> Shortcut | None:
        """The last value of a forecast, to which the network's outputs are added."""
        if not self.learned:
            return None
        return LastValue(self.learned, self.mean, self.std)

    @property
    def center(self) -> list[float]:
        """Number that is taken off each target before it becomes float32: its mean, where its spread is far smaller.

        Beside 1.7e12, as milliseconds since 1970 are, float32 knows steps of 131,072 alone.
        """
        return list(map(large_offset, self.mean, self.std))

    @property
    def centred_mean(self) -> list[float]:
        """Mean of each target as `encode_target` gives it."""
        return [mean - center for mean, center in zip(self.mean, self.center)]

    def encode_target(self, label: Any) -> Tensor:
        """Targets [k], or per token [n k], less `center`. Raises DataError if k is not that of the training data."""
        rows = self._rows(label)
        if rows.shape[1] != len(self.mean):
            raise DataError(
                f"label has {rows.shape[1]} targets; give {len(self.mean)}, as in the training data"
            )
        if any(self.center):
            rows = rows - torch.tensor(self.center, dtype=rows.dtype)
        if self.level == "sequence":
            return rows[0].float()
        return rows.float()

    def in_unit(self, target: Tensor) -> Tensor:
        """Targets as `encode_target` gives them, [... k], in their own unit: with `center`, float64 on the CPU."""
        return target.cpu().double() + torch.tensor(self.center, dtype=torch.float64)

    def _rows(self, label: Any) -> Tensor:
        """A label as float64 [m k]: one row, or one for each token."""
        if self.level == "sequence" and isinstance(label, float):
            return torch.tensor([[label]], dtype=torch.float64)  # as below, in a tenth of the time
        try:
            numbers = torch.as_tensor(label, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DataError(
                f"label is {one_line(repr(label)[:60])}; give a number, or a tensor of them"
            ) from error
        if self.level == "sequence":
            return rearrange(numbers, "... -> 1 (...)")
        if numbers.ndim not in (1, 2):
            raise DataError(
                f"label has shape {list(numbers.shape)}; give one for each token, [n] or [n k]"
            )
        if numbers.ndim == 1:
            return rearrange(numbers, "n -> n 1")
        return numbers

    def state(self) -> FittedState:
        """Mean and standard deviation of each target; of a forecast, also what `LastValue` knows."""
        found: dict[str, object] = {}
        if self.mean:
            found |= {"mean": self.mean, "std": self.std}
        if self.learned:
            found["last_value"] = self.learned
        return found

    def load_state(self, state: FittedState) -> None:
        """Restores what `state` gave. Raises UsageError for the forecast of an earlier version."""
        if "forecast" in state:
            raise UsageError(
                "the forecast holds ridge regression, as earlier versions put it into the network; train again"
            )
        self.learned = dict(state.get("last_value", {}))
        self.mean = [float(x) for x in state["mean"]]
        self.std = [float(x) for x in state["std"]]

    @property
    def num_outputs(self) -> int:
        """Number of targets; 0 before `fit`."""
        return len(self.mean)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """The batch as it is; the target is the label, [b k] or [b n k]. A single target needs no axis."""
        if (
            label is not None
            and len(self.mean) == 1
            and label.ndim == (2 if self.level == "token" else 1)
        ):
            label = label[..., None]
        return self._input(batch, label, len(self.mean), dtype=torch.float32)

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Error of standardised predictions [b k] or [b n k], summed over the targets that are not NaN."""
        mean, std = (on_device(x, prediction.device) for x in (self.centred_mean, self.std))
        known = ~target.isnan()
        prediction = prediction.float()
        # unknown targets differ by zero: no selection, which an accelerator would wait for
        standardised = torch.where(known, (target - mean) / std, prediction.detach())
        loss = self._error(prediction, standardised, reduction="sum")
        if training:
            return LossOutput(loss, known.sum())
        # less `center`, which no metric needs and float32 cannot hold
        found = prediction.detach() * std + mean
        return LossOutput(loss, known.sum(), found[known], target[known])

    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """Constant prediction: the mean of the training targets, which is zero when standardised."""
        return torch.zeros_like

    def metrics(self, spec: TokenSpec) -> dict[str, Metric]:
        """Root mean squared error, in the target's unit, and the chosen metrics."""
        from seqkit.objectives.metrics import build_metrics

        usual = ["MAE", "R2Score"] if len(self.mean) == 1 else ["MAE"]
        return build_metrics(
            ["RMSE", *(usual if self.chosen_metrics is None else self.chosen_metrics)]
        )

    def absolute_errors(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Distance of standardised predictions from targets, both [b k] or [b n k], in the target's unit.

        NaN where the target is unknown, infinite where the prediction is not finite.
        """
        mean, std = (on_device(x, prediction.device) for x in (self.centred_mean, self.std))
        distance = (prediction.float() * std + mean - target).abs()
        return torch.where(target.isnan(), target, distance.nan_to_num(torch.inf, torch.inf))

    def decode(self, prediction: Tensor) -> list[Any]:
        """Predictions in the target's unit: a list for each example, or a number if it has a single target."""
        mean, std = (torch.tensor(x, dtype=torch.float64) for x in (self.mean, self.std))
        numbers = (prediction.cpu().double() * std + mean).tolist()
        if self.level == "sequence" and len(self.mean) == 1:
            return [x[0] for x in numbers]
        return numbers
