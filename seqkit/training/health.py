"""Figures of a training's health: gradient norm by layer, loss spikes.

`seqkit doctor` takes them, and a callback logs norms. Nothing here changes a model.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from math import exp, inf, isfinite
from math import log as ln
from typing import Any

import torch
from pytorch_lightning import Callback
from torch import Tensor, nn

from seqkit.training.parallel import whole_tensor
from seqkit.training.private_names import is_accumulating

EXPLODING_NORM = 1_000.0
"""Norm of a gradient (of the mean loss) above which it explodes. The median of 40 steps is 0.01 to 3.3 in the recipes,
and 184 for solubility, where a sum over atoms gives squared errors of hundreds at first."""

VANISHING_SHARE = 1e-3
"""Share of the largest gradient norm in a stack of layers below which a layer's has vanished. The recipes have 0.095 to
1 in each of 40 steps; eight sigmoid layers without residual connections have 3e-7."""

SPIKE_FACTOR = 2.0
SPIKE_SPREADS = 6.0
SPIKE_WINDOW = 16
"""Bounds of a spike: a loss of this many times the median of the losses before it (a window), and this many spreads
(median absolute deviation, as a standard deviation) above it in logarithms. The first alone would find spikes in
solubility, whose losses differ by a factor of 10 from batch to batch; with both no recipe has one in 40 steps."""


def layer_of(name: str) -> str:
    """Layer of a parameter by its name: up to the first number in it, or without its last part.

    `backbone.blocks.0.mlp.up_proj.weight` is of `backbone.blocks.0`, `backbone.layers.weight_ih_l1_reverse` (a
    stack of torch) of `backbone.layers.1`, `head.linear.weight` of `head.linear`.
    """
    words = name.split(".")
    numbers = [i for i, word in enumerate(words) if word.isdigit()]
    stacked = re.search(r"^(.*)\.(?:weight|bias)_\w*?_l(\d+)(?:_reverse)?$", name)
    if stacked and not numbers:
        return f"{stacked[1]}.{stacked[2]}"
    return ".".join(words[: numbers[0] + 1] if numbers else words[:-1]) or name


def gradient_norms(model: nn.Module) -> dict[str, float]:
    """Norm of the gradient of each layer (`layer_of`), after a backward pass; 0 if there is no gradient."""
    layers: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        own = layers.setdefault(layer_of(name), [])
        if parameter.grad is not None:
            own.append(parameter.grad)
    norms = [
        whole_tensor(torch.nn.utils.get_total_norm(gradients))
        for gradients in layers.values()
        if gradients
    ]
    # one wait for an accelerator
    found = iter(torch.stack([norm.float() for norm in norms]).tolist() if norms else ())
    return {layer: next(found) if gradients else 0.0 for layer, gradients in layers.items()}


def total_norm(norms: Mapping[str, float]) -> float:
    """Norm of the whole gradient, from the norms by layer."""
    return sum(norm * norm for norm in norms.values()) ** 0.5


def vanishing_layers(norms: Mapping[str, float]) -> list[str]:
    """Layers whose gradient has vanished beside that of the others of their stack (`blocks.0`, `blocks.1`, …).

    Layers with no gradient at all are not among them: they are not trained, which is another fault.
    """
    stacks: dict[str, dict[str, float]] = {}
    for layer, norm in norms.items():
        stack, _, last = layer.rpartition(".")
        if last.isdigit() and norm > 0:
            stacks.setdefault(stack, {})[layer] = norm
    return [
        layer
        for own in stacks.values()
        for layer, norm in own.items()
        if norm < VANISHING_SHARE * max(own.values())
    ]


def loss_spikes(losses: Sequence[float]) -> list[int]:
    """Steps at which the loss jumps far above those of the SPIKE_WINDOW steps before, or is not finite.

    None is in the first half of a window, which has nothing to be compared with.
    """
    return [
        step
        for step, loss in enumerate(losses)
        if is_spike(losses[max(0, step - SPIKE_WINDOW) : step], loss)
    ]


def is_spike(before: Sequence[float], loss: float) -> bool:
    """Whether a loss jumps far above those before it, of which SPIKE_WINDOW / 2 must be finite."""
    finite = [one for one in before if isfinite(one)]
    return not isfinite(loss) or (len(finite) >= SPIKE_WINDOW // 2 and loss > highest_usual(finite))


def highest_usual(losses: Sequence[float]) -> float:
    """Largest loss that is no spike after these finite ones."""
    is_positive = min(losses) > 0
    values = [ln(loss) for loss in losses] if is_positive else list(losses)
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(one - middle) for one in values)
    if not is_positive:  # a log-density may be below zero, where a factor means nothing
        return middle + max(abs(middle), SPIKE_SPREADS * spread)
    highest = middle + max(ln(SPIKE_FACTOR), SPIKE_SPREADS * spread)
    return exp(highest) if highest < 700 else inf


class GradientNorms(Callback):
    """Logs the norm of each layer's gradient of the mean loss, before clipping, as `grad_norm/LAYER`.

    every_n_steps: optimizer steps between two rows; the last step has one, too.
    """

    def __init__(self, *, every_n_steps: int = 100) -> None:
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps is {every_n_steps}; give 1 or more optimizer steps")
        self.every_n_steps = every_n_steps

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Note the norms of the gradient of the summed loss; the training module divides it later."""
        step = trainer.global_step + 1
        self._norms = {}
        if step % self.every_n_steps == 0 or step == pl_module.num_steps:
            self._norms = gradient_norms(pl_module.model)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write the row."""
        if is_accumulating(trainer) or not self._norms:
            return
        whole = total_norm(self._norms)
        now = float(pl_module.gradient_norm)
        if isfinite(whole) and isfinite(now):
            row = {
                f"grad_norm/{layer}": norm * (now / whole if whole else 0.0)
                for layer, norm in self._norms.items()
            }
            for logger in trainer.loggers:
                logger.log_metrics(row, step=trainer.global_step - 1)
