"""Optimizers and learning-rate schedules of a recipe: small objects that build torch's own.

An `OptimizerFactory` builds a `torch.optim.Optimizer` for a model, a `Schedule` an `LRScheduler` for an optimizer.
"""

from __future__ import annotations

import copy
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from seqkit.errors import UsageError
from seqkit.training import muon
from seqkit.training.widths import input_widths, matrices

log = logging.getLogger("seqkit")

BELOW = ("input_norm", "positions", "edge_biases")
"""Components of a backbone that its first block takes its input from, or attends by; those of other names follow."""


class OptimizerFactory(ABC):
    """Builds an optimizer for a model's parameters."""

    @abstractmethod
    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """An optimizer over all trainable parameters of `model`."""


class AdamW(OptimizerFactory):
    """Adam with decoupled weight decay (`torch.optim.AdamW`).

    Only matrices decay (embedding tables, convolutions and stacks of matrices among them), not biases and norms.
    layer_decay: factor on the learning rate from each block to the one below it, for fine-tuning (Clark et al. 2020,
    appendix B): the head trains with `lr`, block i of n with lr · layer_decay^(n + 1 - i), the embedder as block 0.
    base_width: width at which `lr` was chosen, so that it serves at other widths (Yang et al. 2022, table 3: μP for
    Adam, but initial weights stay as they are): the matrices of backbone and head train with lr · base_width / width,
    all else with `lr`. Their weight decay is divided by the same factor, so that a step shrinks them as much at each
    width (Dey et al. 2025, CompleteP).
    """

    def __init__(
        self,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.1,
        layer_decay: float | None = None,
        base_width: int | None = None,
    ):
        check_width(base_width)
        if layer_decay is not None and not 0 < layer_decay <= 1:
            raise ValueError(
                f"layer_decay={layer_decay} is a factor; make it above 0 and at most 1"
            )
        self.lr = lr
        self.betas = betas
        self.weight_decay = weight_decay
        self.layer_decay = layer_decay
        self.base_width = base_width
        # torch refuses wrong numbers now, before data is read
        self.build_for([nn.Parameter(torch.ones(1, 1))])

    @property
    def needs_model(self) -> bool:
        """Whether rates depend on where in a model a parameter is."""
        return self.layer_decay is not None or self.base_width is not None

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Optimizer with two groups, with decay and without; with `layer_decay`, two for each block.

        `base_width` makes groups of their own for matrices of each other width.
        Raises UsageError for `layer_decay` and a model without blocks, and for `base_width` as `input_widths`.
        """
        factors = rate_factors(model, self.base_width)
        if self.layer_decay is None:
            return self.build_for(_trainable(model), factors)
        by_name = depths(model)
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        last = max(by_name.values())
        groups = []
        for depth in sorted(set(by_name.values()), reverse=True):
            own = [p for name, p in named if by_name[name] == depth]
            groups += self._groups(own, self.lr * self.layer_decay ** (last - depth), factors)
        return self._of(groups)

    def build_for(
        self, parameters: list[nn.Parameter], factors: Mapping[nn.Parameter, float] | None = None
    ) -> torch.optim.Optimizer:
        """Optimizer of a list of parameters. factors: on their rates (`rate_factors`); None: all are 1."""
        return self._of(self._groups(parameters, self.lr, factors or {}))

    def _groups(
        self, parameters: list[nn.Parameter], lr: float, factors: Mapping[nn.Parameter, float]
    ) -> list[dict[str, Any]]:
        groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
        for p in sorted(parameters, key=lambda p: p.ndim < 2):  # those that decay are first
            groups.setdefault((p.ndim >= 2, factors.get(p, 1.0)), []).append(p)
        return [
            {
                "params": own,
                "lr": lr * factor,
                "weight_decay": self.weight_decay / factor if decays else 0.0,
            }
            for (decays, factor), own in groups.items()
        ]

    def _of(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            groups, lr=self.lr, betas=self.betas, weight_decay=self.weight_decay, fused=True
        )


class Muon(OptimizerFactory):
    """Muon for the backbone's matrices, AdamW for the rest: tables, head, biases, norms, and what has more axes
    (convolutions, mixers' matrices of each head).

    It is `torch.optim.Muon`, but in float32 on a CPU (`seqkit.training.muon`).
    lr: of Muon, whose updates have the size that AdamW's would (its `match_rms_adamw`). adamw: for the rest.
    ns_steps: Newton-Schulz iterations that make an update nearly orthogonal; fewer are faster and less exact.
    base_width: as of `AdamW`, for the head; the factor of Muon's own rate is sqrt(base_width / width), since the norm
    of its updates as linear maps grows with sqrt(width), that of AdamW's with the width (Yang et al. 2023).
    """

    def __init__(
        self,
        lr: float = 1e-3,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        adamw: AdamW | None = None,
        base_width: int | None = None,
    ):
        check_width(base_width)
        self.adamw = AdamW(lr) if adamw is None else adamw
        if not isinstance(self.adamw, AdamW) or self.adamw.needs_model:
            raise ValueError(
                "adamw is not seqkit's AdamW, or has a layer_decay, and Muon trains the blocks, or a base_width, which "
                "is Muon's own"
            )
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.ns_steps = ns_steps
        self.base_width = base_width
        # torch refuses wrong numbers now, before data is read
        self._of([nn.Parameter(torch.ones(1, 1))], {})

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Both optimizers as one.

        Raises ValueError if the backbone has no matrix, and UsageError for `base_width` as `input_widths`.
        """
        backbone = getattr(model, "backbone", model)
        factors = rate_factors(model, self.base_width)
        own = [p for p in matrices(backbone) if p.requires_grad]
        if not own:
            if _trainable(backbone):
                raise ValueError("Muon found no matrix in the backbone; use AdamW")
            return self.adamw.build_for(_trainable(model), factors)  # the backbone is frozen
        taken = set(own)
        rest = [p for p in _trainable(model) if p not in taken]
        others = {"adamw": self.adamw.build_for(rest, factors)} if rest else {}
        return CombinedOptimizer({"muon": self._of(own, factors), **others})

    def _of(
        self, parameters: list[nn.Parameter], factors: Mapping[nn.Parameter, float]
    ) -> torch.optim.Optimizer:
        groups: dict[float, list[nn.Parameter]] = {}
        for p in parameters:
            groups.setdefault(math.sqrt(factors.get(p, 1.0)), []).append(p)
        return muon.Muon(
            [
                {"params": own, "lr": self.lr * x, "weight_decay": self.weight_decay / x}
                for x, own in groups.items()
            ],
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            ns_steps=self.ns_steps,
            adjust_lr_fn="match_rms_adamw",
        )


class TorchOptimizer(OptimizerFactory):
    """An optimizer class of torch (or with its interface) over all trainable parameters, with its keyword arguments.

    >>> TorchOptimizer(torch.optim.SGD, lr=0.1).build(nn.Linear(2, 3)).param_groups[0]["lr"]
    0.1
    """

    def __init__(self, cls: type[torch.optim.Optimizer], **arguments: Any):
        self.cls = cls
        self.arguments = arguments
        # it refuses wrong arguments now, before data is read
        cls([nn.Parameter(torch.ones(1, 1))], **arguments)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        return self.cls(_trainable(model), **self.arguments)


def check_width(base_width: int | None) -> None:
    """Raise ValueError for a width below 1."""
    if base_width is not None and base_width < 1:
        raise ValueError(f"base_width={base_width} is the width of a model; make it 1 or more")


def rate_factors(model: nn.Module, base_width: int | None) -> dict[nn.Parameter, float]:
    """Factor base_width / width of AdamW's rate, by matrix; of other parameters it is 1. None: of all."""
    if base_width is None:
        return {}
    return {p: base_width / width for p, width in input_widths(model).items()}


def depths(model: nn.Module) -> dict[str, int]:
    """Depth of each parameter of a model by name: 0 in embedder and `BELOW`, i in block i from 1, n + 1 behind them.

    An encoder and a decoder are counted each by itself, so that their last blocks are as deep.
    Raises UsageError for a model whose backbone has no blocks, or, in a mixture, for several models.
    """
    backbone = getattr(model, "backbone", model)
    modules = backbone.named_modules(prefix="backbone")
    stacks = {
        name: module.blocks
        for name, module in modules
        if isinstance(getattr(module, "blocks", None), nn.ModuleList)
    }
    if not stacks or not hasattr(model, "embedder"):
        raise UsageError(
            f"{type(backbone).__name__} has no blocks of which one lies below the other; leave out layer_decay, or use "
            "Transformer"
        )
    last = max(len(blocks) for blocks in stacks.values()) + 1
    found: dict[str, int] = {}
    for name, _ in model.named_parameters():
        found[name] = 0 if "embedder" in name.partition(".")[0] else last
        for stack, blocks in stacks.items():
            if not name.startswith(f"{stack}."):
                continue
            component, *words = name.removeprefix(f"{stack}.").split(".")
            if component == "blocks":
                found[name] = last - len(blocks) + int(words[0])
            elif component in BELOW:
                found[name] = last - len(blocks) - 1
    return found


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


class CombinedOptimizer(torch.optim.Optimizer):
    """Several optimizers as one: over disjoint parameters, or one for each task of a mixture.

    Each task's optimizer has a state of its own for the shared parameters, so the momentum of one task moves nothing in
    the steps of another.
    task: gives the name of the optimizer that steps, read when the closure has run; None: all of them step.
    """

    def __init__(
        self, by_name: dict[str, torch.optim.Optimizer], task: Callable[[], str] | None = None
    ):
        self.by_name = by_name
        self.task = task
        self.optimizers = list(by_name.values())
        parameters = {
            id(p): p
            for one in self.optimizers
            for group in one.param_groups
            for p in group["params"]
        }
        super().__init__(list(parameters.values()), {})
        self._take_groups()

    def _take_groups(self) -> None:
        """Share the very dicts of the optimizers: a schedule that sets `lr` here sets it there."""
        self.param_groups = [group for one in self.optimizers for group in one.param_groups]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Run the closure once, then step the optimizers."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for name, optimizer in self.by_name.items():
            if self.task is None or name == self.task():
                optimizer.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """States of the optimizers by name."""
        return {name: optimizer.state_dict() for name, optimizer in self.by_name.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, optimizer in self.by_name.items():
            optimizer.load_state_dict(state_dict[name])
        self._take_groups()


def parts_of(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """The optimizers of a combined one; else the optimizer itself."""
    if isinstance(optimizer, CombinedOptimizer):
        return optimizer.optimizers
    return [optimizer]


class Schedule(ABC):
    """Builds a learning-rate scheduler, which is stepped, without a metric, once an optimizer step."""

    @abstractmethod
    def build(self, optimizer: torch.optim.Optimizer, num_steps: int) -> LRScheduler:
        """Scheduler of `optimizer` for a training of `num_steps` optimizer steps."""


class WarmupSchedule(Schedule):
    """Factor on the learning rate as a function of the step, after linear warm-up.

    warmup_steps: the factor first rises linearly from about 0 to 1. In a training of which that is more than half,
    warm-up takes a tenth of the steps instead, and a warning says so.
    """

    def __init__(self, *, warmup_steps: int = 0):
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps={warmup_steps} counts steps; make it 0 or more")
        self.warmup_steps = warmup_steps

    def build(self, optimizer: torch.optim.Optimizer, num_steps: int) -> LRScheduler:
        """LambdaLR of `factor`, with the warm-up that `fitted` gives."""
        schedule = self.fitted(num_steps)
        if schedule is not self:
            line = "schedule: warmup_steps=%d is more than half of the %d steps of this training, so warm-up takes %d"
            log.warning(line, self.warmup_steps, num_steps, schedule.warmup_steps)
        return LambdaLR(optimizer, lambda step: schedule.factor(step, num_steps))

    def fitted(self, num_steps: int) -> WarmupSchedule:
        """This schedule, or one whose warm-up is a tenth of `num_steps`, if its own is more than half of them."""
        if 2 * self.warmup_steps <= num_steps:
            return self
        shorter = copy.copy(self)
        shorter.warmup_steps = num_steps // 10
        return shorter

    def factor(self, step: int, num_steps: int) -> float:
        """Factor at `step` (from 0) of `num_steps`, with exactly `warmup_steps` of warm-up."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        return self.after_warmup(step, num_steps)

    @abstractmethod
    def after_warmup(self, step: int, num_steps: int) -> float:
        """Factor after warm-up."""


def check_floor(floor: float) -> None:
    """Raise ValueError for a floor outside 0 to 1."""
    if not 0 <= floor <= 1:
        raise ValueError(f"floor={floor} is a share of the learning rate; make it 0 to 1")


class Cosine(WarmupSchedule):
    """Warm-up, then half a cosine from 1 to `floor` (Loshchilov and Hutter 2017, equation 5, one period)."""

    def __init__(self, *, warmup_steps: int = 0, floor: float = 0.1):
        super().__init__(warmup_steps=warmup_steps)
        check_floor(floor)
        self.floor = floor

    def after_warmup(self, step: int, num_steps: int) -> float:
        """`floor` at the last step and after it."""
        done = min(1.0, (step - self.warmup_steps) / max(1, num_steps - self.warmup_steps))
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * done))


class WSD(WarmupSchedule):
    """Warm-up, a stable part at 1, then a decay to `floor` (WSD; Hu et al. 2024, MiniCPM).

    decay_fraction: share of the steps in which it decays, at the earliest from the end of warm-up. Its shape, 1 - sqrt
    of the share that is done, its length and the floor of 0 are those of Hägele et al. (2024).
    """

    def __init__(self, *, warmup_steps: int = 0, decay_fraction: float = 0.2, floor: float = 0.0):
        super().__init__(warmup_steps=warmup_steps)
        if not 0 < decay_fraction <= 1:
            raise ValueError(
                f"decay_fraction={decay_fraction} is a share of the steps; make it above 0 and at most 1, or use "
                "Constant"
            )
        check_floor(floor)
        self.decay_fraction = decay_fraction
        self.floor = floor

    def after_warmup(self, step: int, num_steps: int) -> float:
        """`floor` at the last step and after it."""
        decay_steps = min(self.decay_fraction * num_steps, num_steps - self.warmup_steps)
        steps_left = max(0, num_steps - step)
        if steps_left >= decay_steps:
            return 1.0
        done = 1 - steps_left / decay_steps
        return self.floor + (1 - self.floor) * (1 - math.sqrt(done))


class InverseSqrt(WarmupSchedule):
    """Warm-up, then sqrt(warmup_steps / step) (Vaswani et al. 2017, equation 3, scaled to reach 1)."""

    def after_warmup(self, step: int, num_steps: int) -> float:
        """1 at the end of warm-up; with no warm-up, 1 / sqrt(step + 1)."""
        return math.sqrt(max(1, self.warmup_steps) / (step + 1))


class Constant(WarmupSchedule):
    """Warm-up, then 1."""

    def after_warmup(self, step: int, num_steps: int) -> float:
        return 1.0


class TorchSchedule(Schedule):
    """Scheduler class of `torch.optim.lr_scheduler`, with its keyword arguments."""

    def __init__(self, cls: type[LRScheduler], **arguments: Any):
        self.cls = cls
        self.arguments = arguments
        # it refuses wrong arguments now, before data is read; some schedule the momentum
        cls(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9), **arguments)

    def build(self, optimizer: torch.optim.Optimizer, num_steps: int) -> LRScheduler:
        """Scheduler, whose arguments alone say how long it is. Raises ValueError if it ends before `num_steps`."""
        scheduler = self.cls(optimizer, **self.arguments)
        if isinstance(scheduler, OneCycleLR) and scheduler.total_steps < num_steps:
            raise ValueError(
                f"OneCycleLR ends after {scheduler.total_steps} steps; give total_steps {num_steps}"
            )
        return scheduler
