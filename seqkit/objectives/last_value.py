"""Last value of a series' window, to which a network adds the changes that it predicts.

b batch · w windows · m tokens · f features · p steps of a patch · k targets
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from einops import rearrange, reduce
from torch import Tensor

from seqkit.interfaces import FittedState, TokenBatch, Tokens
from seqkit.interfaces.base import Shortcut


class LastValue(Shortcut):
    """y = x_last + spread * network(x - x_last), as in NLinear (Zeng et al. 2023, section 4.1), so a shift of a series
    shifts its forecast.

    state: as `learned` gives it. mean, std: of the targets, [k].
    """

    scale: Tensor
    spread: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, state: FittedState, mean: list[float], std: list[float]):
        super().__init__()
        self.column = list(state["column"])
        known = {"scale": state["scale"], "spread": state["spread"], "mean": mean, "std": std}
        for name, values in known.items():
            self.register_buffer(name, torch.tensor(values), persistent=False)

    def differences(self, batch: TokenBatch) -> TokenBatch:
        """The batch with each step less the last of its window, in units of training."""
        last = rearrange(self._last(batch), "b f -> b 1 1 f")
        moved = (patches_of(batch.content, self.scale.shape[0]) - last) / self.scale
        return batch.replace(content=rearrange(moved, "b m p f -> b m (p f)"))

    def forward(self, outputs: Tensor, batch: TokenBatch) -> Tensor:
        """Standardised forecasts [b k] from a network's outputs [b k] and its batch, not its differences."""
        last = self._last(batch)[:, self.column]
        return (last - self.mean) / self.std + outputs * self.spread

    def _last(self, batch: TokenBatch) -> Tensor:
        """The last step of each window, [b f]."""
        rows = torch.arange(batch.content.shape[0], device=batch.content.device)
        end = batch.valid.sum(dim=1) - 1
        return patches_of(batch.content, self.scale.shape[0])[rows, end, -1]


def patches_of(content: Tensor, num_features: int) -> Tensor:
    """Steps [... m p f] of tokens [... m (p f)]."""
    return rearrange(content, "... m (p f) -> ... m p f", f=num_features)


def learned(
    windows: Iterable[Tokens], targets: Tensor, num_features: int, std: list[float]
) -> FittedState:
    """State of a `LastValue`, from training windows and their targets [w k] float64, where NaN is unknown.

    scale: root mean squared difference of each feature's steps from the last. column: feature whose last value is
    nearest to each target. spread: root mean squared change from there to the target, in its standard deviations.
    """
    last = []
    squares = []
    for one in windows:
        steps = patches_of(one.content.double(), num_features)
        last.append(steps[-1, -1])
        squares.append(reduce((steps - last[-1]).square(), "m p f -> f", "mean"))
    errors = rearrange(targets, "w k -> w k 1") - rearrange(torch.stack(last), "w f -> w 1 f")
    best = errors.square().nanmean(dim=0).min(dim=-1)
    scale = torch.stack(squares).mean(dim=0).sqrt()
    spread = best.values.sqrt() / torch.tensor(std, dtype=torch.float64)
    return {
        "scale": scale.masked_fill(scale == 0, 1.0).tolist(),
        "column": best.indices.tolist(),
        "spread": spread.masked_fill(spread == 0, 1.0).tolist(),
    }
