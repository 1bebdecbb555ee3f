"""Figures of a training's health: gradient norm by layer, attention entropy by head, loss spikes.

`seqkit doctor` takes them before a training; two callbacks log norms and say spikes in one. Nothing here changes a
model.

b batch · h heads · n queries · m keys
"""

from __future__ import annotations

import logging
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import exp, inf, isfinite
from math import log as ln
from typing import Any

import torch
from einops import rearrange, reduce
from pytorch_lightning import Callback
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.training.module import STABILIZERS

log = logging.getLogger("seqkit")

EXPLODING_NORM = 1_000.0
"""Norm of a gradient (of the mean loss) above which it explodes. The median of 40 steps is 0.01 to 3.3 in the recipes,
and 184 in graph/solubility, where a sum over atoms gives squared errors of hundreds at first."""

VANISHING_SHARE = 1e-3
"""Share of the largest gradient norm in a stack of layers below which a layer's has vanished. The recipes have 0.095 to
1 in each of 40 steps; eight sigmoid layers without residual connections have 3e-7."""

COLLAPSED_AT_START = 0.5
"""Share of its largest possible entropy below which a head has collapsed before any training: initial scores are small,
so the recipes have 0.84 (with QK-norm) to 1.0."""

COLLAPSED = 0.02
"""Share for a trained model, of which a head may be sharp by right: 40 steps leave the recipes at 0.47 to 1.0, and a
head that always attends to the token before it is near 0. A model all of whose heads are below has collapsed."""

INDIFFERENT = 1e-8
"""Divergence from attention that ignores content (a share of its entropy) below which a head does so. The recipes have
6e-6 to 0.2 at the start and 2e-5 to 0.5 after 40 steps; a temperature of 10,000 gives 2e-11."""

NOTHING = 1e-12
"""Factor on queries and keys that leaves no score, and yet an order among scores."""

SPIKE_FACTOR, SPIKE_SPREADS, SPIKE_WINDOW = 2.0, 6.0, 16
"""Bounds of a spike: a loss of this many times the median of the losses before it (a window), and this many spreads
(median absolute deviation, as a standard deviation) above it in logarithms. The first alone would find spikes in
graph/solubility, whose losses differ by a factor of 10 from batch to batch; with both no recipe has one in 40 steps."""


def layer_of(name: str) -> str:
    """Layer of a parameter by its name: up to the first number in it, or without its last part.

    `backbone.blocks.0.mlp.up_proj.weight` is of `backbone.blocks.0`, `backbone.layers.weight_ih_l1_reverse` (a
    recurrent network of torch) of `backbone.layers.1`, `head.linear.weight` of `head.linear`.
    """
    if stacked := re.search(r"^(.*)\.(?:weight|bias)_\w*?_l(\d+)(?:_reverse)?$", name):
        return f"{stacked[1]}.{stacked[2]}"
    words = name.split(".")
    numbers = [i for i, word in enumerate(words) if word.isdigit()]
    return ".".join(words[: numbers[0] + 1] if numbers else words[:-1]) or name


def gradient_norms(model: nn.Module) -> dict[str, float]:
    """Norm of the gradient of each layer (`layer_of`), after a backward pass; 0 if there is no gradient."""
    layers: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        own = layers.setdefault(layer_of(name), [])
        if parameter.grad is not None:
            own.append(parameter.grad)
    norms = [_whole(torch.nn.utils.get_total_norm(gradients)) for gradients in layers.values() if gradients]
    found = iter(torch.stack([norm.float() for norm in norms]).tolist() if norms else ())  # one wait for an accelerator
    return {layer: next(found) if gradients else 0.0 for layer, gradients in layers.items()}


def _whole(norm: Tensor) -> Tensor:
    """Norm over all processes of sharded gradients; all take part."""
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


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
        layer for own in stacks.values() for layer, norm in own.items() if norm < VANISHING_SHARE * max(own.values())
    ]


@dataclass(frozen=True)
class HeadEntropy:
    """Attention entropy of the heads of one module, over the real queries of the forward passes that were recorded.

    name: name of the module, such as `backbone.blocks.0.attention`. entropy: [h], as a share of what the same attention
    has if all scores are equal: 0: one key; 1: the content does not matter. divergence: [h], Kullback-Leibler, from the
    weights of equal scores, as a share of the same; it tells 1 - 1e-6 from 1, which rounding hides in `entropy`.
    """

    name: str
    entropy: Tensor
    divergence: Tensor


@contextmanager
def record_attention_entropy(model: nn.Module) -> Iterator[list[HeadEntropy]]:
    """Context in which forward passes of `model` record the entropy of their attention; the list has it at its end.

    The weights are computed again, for one module at a time, so the model's output does not change. Left out are
    mechanisms without attention weights or with ones below 0, and modules whose queries may all attend to one key only.
    """
    sums: dict[str, Tensor] = {}  # by module: [3 h], entropy, divergence, largest entropy
    found: list[HeadEntropy] = []
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, MultiHeadAttention):
                hooks.callback(module.mechanism.register_forward_hook(partial(_record, name, sums)).remove)
        try:
            yield found
        finally:
            for name, (entropy, divergence, largest) in sums.items():
                if bool((largest > 0).any()):
                    largest = largest.clamp(min=1e-12)
                    found.append(HeadEntropy(name, entropy / largest, divergence / largest))


def _record(name: str, sums: dict[str, Tensor], mechanism: Any, args: tuple[Any, ...], _output: Tensor) -> None:
    q, k, _, context = args[:4]
    assert isinstance(context, AttentionContext)
    with torch.no_grad():
        try:
            weights = mechanism.attention_weights(q, k, context)
        except ValueError:  # by its interface: this mechanism has none
            return
        if bool((weights < 0).any()):  # a mixture (Linformer), which has no entropy
            return
        # queries and keys of next to no size leave masks and biases, and of the k best keys which they are
        plain = _shares(mechanism.attention_weights(NOTHING * q, NOTHING * k, context))
        weights = _shares(weights)
    logs = torch.where(weights > 0, plain.clamp(min=torch.finfo(plain.dtype).tiny).log(), 0.0)
    divergence = (torch.special.xlogy(weights, weights) - weights * logs).sum(dim=-1)
    each = torch.stack([_entropy(weights), divergence, _entropy(plain)])
    if context.query_valid is not None:
        each = each * rearrange(context.query_valid, "b n -> 1 b 1 n")
    new = reduce(each, "which b h n -> which h", "sum")
    sums[name] = sums[name] + new if name in sums else new


def _shares(weights: Tensor) -> Tensor:
    """Attention weights [b h n m] in float64, each row with the sum 1: rounding of the sum would look like entropy."""
    wide = weights.double()
    return wide / wide.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)


def _entropy(weights: Tensor) -> Tensor:
    """[b h n], in nats."""
    return -torch.special.xlogy(weights, weights).sum(dim=-1)


def collapsed_layers(heads: Sequence[HeadEntropy], threshold: float = COLLAPSED) -> list[str]:
    """Modules all of whose heads attend to next to nothing but one key."""
    return [one.name for one in heads if bool((one.entropy < threshold).all())]


def indifferent_layers(heads: Sequence[HeadEntropy]) -> list[str]:
    """Names of modules of which no head looks at the content."""
    return [one.name for one in heads if bool((one.divergence < INDIFFERENT).all())]


def loss_spikes(losses: Sequence[float]) -> list[int]:
    """Steps at which the loss jumps far above those of the SPIKE_WINDOW steps before, or is not finite.

    None is in the first half of a window, which has nothing to be compared with.
    """
    return [step for step, loss in enumerate(losses) if is_spike(losses[max(0, step - SPIKE_WINDOW) : step], loss)]


def is_spike(before: Sequence[float], loss: float) -> bool:
    """Whether a loss jumps far above those before it, of which SPIKE_WINDOW / 2 must be finite."""
    finite = [one for one in before if isfinite(one)]
    return not isfinite(loss) or (len(finite) >= SPIKE_WINDOW // 2 and loss > highest_usual(finite))


def highest_usual(losses: Sequence[float]) -> float:
    """Largest loss that is no spike after these finite ones."""
    if min(losses) <= 0:  # a log-density may be below zero, where a factor means nothing
        middle = statistics.median(losses)
        spread = 1.4826 * statistics.median(abs(loss - middle) for loss in losses)
        return middle + max(abs(middle), SPIKE_SPREADS * spread)
    logs = [ln(loss) for loss in losses]
    middle = statistics.median(logs)
    spread = 1.4826 * statistics.median(abs(one - middle) for one in logs)
    highest = middle + max(ln(SPIKE_FACTOR), SPIKE_SPREADS * spread)
    return exp(highest) if highest < 700 else inf


class LossSpikes(Callback):
    """Warns once if the training loss jumps (`is_spike`) and stays as high.

    The median of SPIKE_WINDOW / 2 losses is compared with the SPIKE_WINDOW losses before: a hard batch alone is not
    worth a line. Losses are read when a row is logged, since a reading waits for an accelerator.
    """

    def __init__(self) -> None:
        self.losses: list[Any] = []
        """Losses of the last optimizer steps, those that were not read yet as tensors."""
        self.has_warned = False

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Note the loss of an optimizer step, and look at those since the last row."""
        if self.has_warned or trainer.fit_loop.epoch_loop._should_accumulate():
            return
        self.losses.append(pl_module.step_loss)
        if trainer.global_step % (trainer.log_every_n_steps or SPIKE_WINDOW):
            return
        self.losses, num_after = [float(loss) for loss in self.losses], SPIKE_WINDOW // 2
        for jump in range(SPIKE_WINDOW, len(self.losses) - num_after + 1):
            before = self.losses[jump - SPIKE_WINDOW : jump]
            after = statistics.median_low(self.losses[jump : jump + num_after])
            if is_spike(before, after):
                self.has_warned = True
                if trainer.is_global_zero:
                    step, usual = trainer.global_step - len(self.losses) + jump, statistics.median(before)
                    line = "step %d: the loss jumps from %.3g to %.3g and stays there; if it does not come down, %s"
                    log.warning(line, step, usual, after, STABILIZERS)
                return
        self.losses = self.losses[-SPIKE_WINDOW - num_after + 1 :]

    def state_dict(self) -> dict[str, Any]:
        """Losses of the last steps, and whether the line was said."""
        return {"losses": [float(loss) for loss in self.losses], "has_warned": self.has_warned}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.losses, self.has_warned = list(state_dict["losses"]), state_dict["has_warned"]


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

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write the row."""
        if trainer.fit_loop.epoch_loop._should_accumulate() or not self._norms:
            return
        whole, now = total_norm(self._norms), float(pl_module.gradient_norm)
        if isfinite(whole) and isfinite(now):
            row = {f"grad_norm/{layer}": norm * (now / whole if whole else 0.0) for layer, norm in self._norms.items()}
            for logger in trainer.loggers:
                logger.log_metrics(row, step=trainer.global_step - 1)
