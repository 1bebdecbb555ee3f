"""Optimisers and learning-rate schedules of a recipe: small objects that build torch's own.

An `OptimizerFactory` builds a `torch.optim.Optimizer` for a model, a `Schedule` an `LRScheduler` for an optimiser.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau


class OptimizerFactory(ABC):
    """Builds an optimiser for a model's parameters."""

    @abstractmethod
    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """An optimiser over all trainable parameters of `model`."""


class AdamW(OptimizerFactory):
    """Adam with decoupled weight decay (`torch.optim.AdamW`).

    Only matrices decay (embedding tables among them), not biases and norms.
    """

    def __init__(self, lr: float = 1e-3, *, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.1):
        _not_negative(lr=lr, weight_decay=weight_decay)
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas={betas} are decay rates; make each at least 0 and below 1")
        self.lr, self.betas, self.weight_decay = lr, betas, weight_decay

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Two groups: with decay and without."""
        return self.build_for(_trainable(model))

    def build_for(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """The same for a list of parameters."""
        groups = [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW([g for g in groups if g["params"]], lr=self.lr, betas=self.betas, fused=True)


class Muon(OptimizerFactory):
    """Muon for the backbone's matrices (`torch.optim.Muon`), AdamW for the rest: embeddings, head, biases, norms.

    lr: of Muon, whose updates have the size that AdamW's would (its `match_rms_adamw`). adamw: for the rest.
    ns_steps: Newton-Schulz iterations that make an update nearly orthogonal; fewer are faster and less exact.
    """

    def __init__(
        self,
        lr: float = 1e-3,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        adamw: AdamW | None = None,
    ):
        _not_negative(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if not 1 <= ns_steps < 100:
            raise ValueError(f"ns_steps={ns_steps} counts iterations; 5 is usual, 1 to 99 are taken")
        self.lr, self.momentum, self.weight_decay, self.ns_steps = lr, momentum, weight_decay, ns_steps
        self.adamw = adamw or AdamW(lr)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Both as one optimiser. Raises ValueError if the backbone has no matrix."""
        backbone = getattr(model, "backbone", model)
        matrices = [p for p in _trainable(backbone) if p.ndim == 2]
        if not matrices:
            raise ValueError("Muon found no matrix in the backbone; use AdamW")
        taken = set(map(id, matrices))
        rest = [p for p in _trainable(model) if id(p) not in taken]
        muon = torch.optim.Muon(
            matrices,
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            ns_steps=self.ns_steps,
            adjust_lr_fn="match_rms_adamw",
        )
        return CombinedOptimizer([muon, self.adamw.build_for(rest)] if rest else [muon])


class TorchOptimizer(OptimizerFactory):
    """An optimiser class of torch (or with its interface) over all trainable parameters, with its keyword arguments.

    Raises ValueError where the class refuses them.
    """

    def __init__(self, cls: type[torch.optim.Optimizer], **arguments: Any):
        self.cls, self.arguments = cls, arguments
        try:  # on a parameter that stands for all, so that a wrong argument is refused before any data is read
            cls([nn.Parameter(torch.zeros(1, 1))], **arguments)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{cls.__name__} refuses its arguments: {' '.join(str(error).split())}") from error

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """One parameter group."""
        return self.cls(_trainable(model), **self.arguments)


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}={value}; make it 0 or more, and finite")


class CombinedOptimizer(torch.optim.Optimizer):
    """Several optimisers over disjoint parameters, stepped, scheduled and saved as one."""

    def __init__(self, optimizers: list[torch.optim.Optimizer]):
        self.optimizers = optimizers
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        super().__init__([{"params": group["params"], "lr": group["lr"]} for group in groups], {})
        self.param_groups = groups  # the very dicts of the optimisers: a schedule that sets `lr` here sets it there

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Run the closure once, then step each optimiser."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The states of the optimisers, in order."""
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        for optimizer, state in zip(self.optimizers, state_dict["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self.param_groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]


class Schedule(ABC):
    """Builds a learning-rate scheduler, which is stepped once an optimiser step."""

    @abstractmethod
    def build(self, optimizer: torch.optim.Optimizer, num_steps: int) -> LRScheduler:
        """A scheduler of `optimizer` for a training of `num_steps` optimiser steps."""


class WarmupSchedule(Schedule):
    """A factor on the learning rate as a function of the step, after linear warm-up.

    warmup_steps: the factor first rises linearly from about 0 to 1.
    """

    def __init__(self, *, warmup_steps: int = 0):
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps={warmup_steps} counts steps; make it 0 or more")
        self.warmup_steps = warmup_steps

    def build(self, optimizer: torch.optim.Optimizer, num_steps: int) -> LRScheduler:
        """A LambdaLR of `factor`."""
        return LambdaLR(optimizer, lambda step: self.factor(step, num_steps))

    def factor(self, step: int, num_steps: int) -> float:
        """The factor at `step` (from 0) of `num_steps`."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        return self.after_warmup(step, num_steps)

    @abstractmethod
    def after_warmup(self, step: int, num_steps: int) -> float:
        """The factor once warm-up is over."""


class Cosine(WarmupSchedule):
    """Warm-up, then half a cosine from 1 to `floor` (Loshchilov and Hutter 2017, equation 5, one period)."""

    def __init__(self, *, warmup_steps: int = 0, floor: float = 0.1):
        super().__init__(warmup_steps=warmup_steps)
        self.floor = floor

    def after_warmup(self, step: int, num_steps: int) -> float:
        """`floor` at the last step and after it."""
        done = min(1.0, (step - self.warmup_steps) / max(1, num_steps - self.warmup_steps))
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * done))


class InverseSqrt(WarmupSchedule):
    """Warm-up, then sqrt(warmup_steps / step) (Vaswani et al. 2017, equation 3, scaled to reach 1)."""

    def after_warmup(self, step: int, num_steps: int) -> float:
        """1 at the end of warm-up; with no warm-up, 1 / sqrt(step + 1)."""
        return math.sqrt(max(1, self.warmup_steps) / (step + 1))


class Constant(WarmupSchedule):
    """Warm-up, then 1."""

    def after_warmup(self, step: int, num_steps: int) -> float:
        """1."""
        return 1.0


class TorchSchedule(Schedule):
    """A scheduler class of `torch.optim.lr_scheduler`, with its keyword arguments.

    Raises ValueError for an unknown or missing argument, or a scheduler that needs a metric.
    """

    def __init__(self, cls: type[LRScheduler], **arguments: Any):
        if issubclass(cls, ReduceLROnPlateau):
            raise ValueError(f"{cls.__name__} needs a metric in every step; use Cosine, or a scheduler that needs none")
        try:
            inspect.signature(cls).bind(None, **arguments)
        except TypeError as error:
            raise ValueError(f"{cls.__name__} refuses its arguments: {error}") from error
        self.cls, self.arguments = cls, arguments

    def build(self, optimizer: torch.optim.Optimizer, num_steps: int) -> LRScheduler:
        """The scheduler; its arguments alone say how long it is. Raises ValueError where it refuses them."""
        try:
            return self.cls(optimizer, **self.arguments)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.cls.__name__} refuses its arguments: {' '.join(str(error).split())}") from error
