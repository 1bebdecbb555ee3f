"""Linear forecast of a series' next values, to which a network adds what it learns of the errors.

b batch · w windows · m tokens · n time steps · f features · p steps of a patch · k targets
"""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch
from seqkit.interfaces.base import Shortcut
from seqkit.tokenizers.given import Series

MAX_NUMBERS = 2e7
"""Most numbers of the training windows that the regression takes; of more windows it takes some, evenly spread."""


class LinearForecast(Shortcut):
    """y = x_last + W (x - x_last) + c: ridge regression on the differences from a window's last step.

    As NLinear (Zeng et al. 2023, "Are Transformers effective for time series forecasting?"), but fitted in closed form.
    The network reads the same differences and adds its outputs times the spread of the errors, so a shift of a series
    shifts the sum of both. windows: the tokenizer. state: as `fitted` gives it.
    """

    weight: Tensor
    bias: Tensor
    scale: Tensor
    mean: Tensor
    std: Tensor
    errors: Tensor

    def __init__(self, windows: Series, state: dict[str, Any]):
        super().__init__()
        self.windows = windows
        self.num_tokens = int(state["num_tokens"])
        self.column = list(state["column"])
        for name in ("weight", "bias", "scale", "mean", "std", "errors"):
            self.register_buffer(name, torch.tensor(state[name]), persistent=False)

    def differences(self, batch: TokenBatch) -> TokenBatch:
        """The batch with each step less the last of its window, in units of training. Raises DataError as `forward`."""
        patches, last = self._patches(batch)
        content = rearrange(
            (patches - rearrange(last, "b f -> b 1 1 f")) / self.scale, "b m p f -> b m (p f)"
        )
        return batch.replace(content=content)

    def forward(self, outputs: Tensor, batch: TokenBatch) -> Tensor:
        """Standardised forecasts [b k] from a network's outputs [b k] and its batch, not its differences.

        Raises DataError where windows have other lengths than in training.
        """
        _, last = self._patches(batch)
        steps = self.windows.joined(self.differences(batch).content)
        linear = rearrange(steps, "b n f -> b (n f)") @ self.weight + self.bias
        return (last[:, self.column] - self.mean) / self.std + linear + outputs * self.errors

    def _patches(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        if batch.is_padded or batch.content.shape[1] != self.num_tokens:
            raise DataError(
                f"a forecast reads windows as long as those of training ({self.num_tokens} tokens); cut them to it, or "
                "train with model.objective.forecast=false"
            )
        patches = rearrange(batch.content, "b m (p f) -> b m p f", f=self.windows.width)
        return patches, patches[:, -1, -1]


def fitted(
    windows: Series, contents: Tensor, targets: Tensor, num_valid: int, mean: Tensor, std: Tensor
) -> dict[str, Any]:
    """State of a `LinearForecast`.

    contents: tokens [w m (p f)] of training and validation windows. targets: [w k] float64; windows with a NaN are left
    out. num_valid: how many of the last windows choose the penalty; they are not fitted. mean, std: [k] of the targets.
    """
    every = max(1, int(contents.numel() // MAX_NUMBERS))
    known = ~targets.isnan().any(dim=1)
    is_train = (torch.arange(len(targets)) < len(targets) - num_valid)[known][::every]
    steps = windows.joined(contents[known][::every]).double()
    targets = targets[known][::every]
    last = rearrange(steps[:, -1], "w f -> w 1 f")
    column = (rearrange(targets, "w k -> w k 1") - last).square().mean(dim=0).argmin(dim=-1)
    moved = steps - last
    scale = moved.square().mean(dim=(0, 1)).sqrt()
    scale = scale.masked_fill(scale == 0, 1.0)
    x = rearrange(moved / scale, "w n f -> w (n f)")
    y = (targets - last[:, 0, column]) / std
    middle = x[is_train].mean(dim=0)
    bias = y[is_train].mean(dim=0)
    x = x - middle
    y = y - bias
    values, vectors = torch.linalg.eigh(x[is_train].T @ x[is_train])
    along = vectors.T @ (x[is_train].T @ y[is_train])
    held_out = is_train if bool(is_train.all()) else ~is_train

    def weights(penalty: Tensor) -> Tensor:
        return vectors @ (along / rearrange(values.clamp(min=0) + penalty, "q -> q 1"))

    def errors_of(weight: Tensor) -> Tensor:
        return (x[held_out] @ weight - y[held_out]).square()

    penalties = torch.logspace(-3, 5, 17, dtype=torch.float64)
    weight = min(map(weights, penalties), key=lambda tried: float(errors_of(tried).mean()))
    errors = errors_of(weight).mean(dim=0).sqrt()
    found = {
        "weight": weight,
        "bias": bias - middle @ weight,
        "scale": scale,
        "mean": mean,
        "std": std,
        "errors": errors,
    }
    plain = {name: value.float().tolist() for name, value in found.items()}
    return {"num_tokens": contents.shape[1], "column": column.tolist(), **plain}
