"""One training step of a candidate, and where its time goes: loading, masks and targets, model, optimizer.

The clock on the CPU is the processor time of the process, over all its threads, which does not count waiting for a busy
core. On CUDA it is wall time, read after the device has finished what it was asked for.
"""

from __future__ import annotations

import copy
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from seqkit.interfaces import Objective, TokenBatch
from seqkit.model import Model
from seqkit.nn.moe import AuxiliaryLoss
from seqkit.training.optim import OptimizerFactory

LabeledBatch = tuple[TokenBatch, Tensor | None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to be measured, with what trains it.

    batches: what the loader yields; a round trains on each of them once. loader: to measure what loading costs, a
    batch a round; None: it is not measured, and counts as free. clip: the largest norm of the gradient; None: it is not
    clipped.
    """

    model: Model
    objective: Objective
    optimizer: OptimizerFactory
    batches: Sequence[LabeledBatch]
    loader: Iterable[LabeledBatch] | None = None
    clip: float | None = 1.0


@dataclass(frozen=True, slots=True)
class StepShares:
    """Where the time of a training step goes; the shares add up to 1.

    load: reading a batch from the loader. prepare: the objective's masks and targets. ends: embedder, head and loss,
    forward and backward. backbone: its forward and backward. update: scaling and clipping the gradient, the optimizer.
    """

    load: float
    prepare: float
    ends: float
    backbone: float
    update: float

    @classmethod
    def mean(cls, shares: Sequence[StepShares]) -> StepShares:
        """Of several, whose sum is 1 as each one's is."""
        return cls(*(statistics.fmean(getattr(one, part.name) for one in shares) for part in fields(cls)))

    @property
    def glue(self) -> float:
        """Loading and preparing: what is neither the model nor its optimizer."""
        return self.load + self.prepare

    @property
    def outside_backbone(self) -> float:
        """All but the backbone."""
        return 1.0 - self.backbone


class Training:
    """A candidate's training on a copy of its model, step by step as `TrainingModule` under Lightning does it."""

    def __init__(self, candidate: Candidate):
        self.model = copy.deepcopy(candidate.model).train()
        self.device = next(self.model.parameters()).device
        self.objective, self.clip = candidate.objective, candidate.clip
        self.optimizer = candidate.optimizer.build(self.model)
        self.batches = [self.on_device(batch) for batch in candidate.batches]
        self.num_tokens = [int(self.objective.prepare(*batch).batch.valid.sum()) for batch in self.batches]
        self._auxiliary = [module for module in self.model.modules() if isinstance(module, AuxiliaryLoss)]
        self._stream: Iterator[LabeledBatch] | None = None
        if candidate.loader is not None:
            self._stream = itertools.chain.from_iterable(itertools.repeat(candidate.loader))  # epoch after epoch

    def now(self) -> float:
        """Seconds of the clock."""
        if self.device.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def load(self) -> LabeledBatch:
        """A batch of the loader; without one, the first of the batches."""
        return self.batches[0] if self._stream is None else self.on_device(next(self._stream))

    def on_device(self, batch: LabeledBatch) -> LabeledBatch:
        tokens, label = batch
        return tokens.to(self.device), None if label is None else label.to(self.device)

    def step(self, batch: LabeledBatch, mark: Callable[[str], None] | None = None) -> None:
        """One optimizer step. mark: gets the name of each part of it when that part ends."""
        mark = mark or _unmarked
        inputs = self.objective.prepare(*batch)
        mark("prepare")
        output = self.objective.loss(self.model(inputs.batch, inputs.masked), inputs.target, training=True)
        loss = output.loss
        if self.device.type == "cpu":
            bool(torch.isfinite(loss.detach()))  # looked at in every step, as training does
        if self._auxiliary:
            loss = loss + output.count * torch.stack([module.aux_loss() for module in self._auxiliary]).sum()
        loss.backward()
        mark("model")
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, 1.0 / output.count.clamp(min=1))
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        mark("update")

    def held(self, batch: LabeledBatch) -> list[Tensor]:
        """All tensors that exist between steps: weights, buffers, state of the optimizer, the batch."""
        state = [t for one in self.optimizer.state.values() for t in one.values() if isinstance(t, Tensor)]
        tokens, label = batch
        parts = [tokens.content, tokens.positions, tokens.valid, *([] if label is None else [label])]
        return [*self.model.parameters(), *self.model.buffers(), *state, *parts]

    def shares(self) -> StepShares:
        """Of one step, with what loading its batch takes."""
        marks = [("", self.now())]

        def mark(part: str) -> None:
            marks.append((part, self.now()))

        batch = self.load()
        mark("load")
        with _Stopwatch(self.model.backbone, self.now) as watch:
            self.step(batch, mark)
        took = {part: end - start for (_, start), (part, end) in itertools.pairwise(marks)}
        total = marks[-1][1] - marks[0][1]
        return StepShares(
            took["load"] / total,
            took["prepare"] / total,
            (took["model"] - watch.seconds) / total,
            watch.seconds / total,
            took["update"] / total,
        )


class _Stopwatch:
    """Times a backbone's forward pass, and its backward pass: from the gradient of its output to that of its input."""

    def __init__(self, backbone: nn.Module, now: Callable[[], float]):
        self._now, self._handles = now, list[Any]()
        self._backbone = backbone
        self._forward_seconds, self._started = 0.0, 0.0
        self._backward: list[float] = []

    @property
    def seconds(self) -> float:
        backward = self._backward[-1] - self._backward[0] if self._backward else 0.0
        return self._forward_seconds + backward

    def __enter__(self) -> _Stopwatch:
        self._handles = [
            self._backbone.register_forward_pre_hook(self._before),
            self._backbone.register_forward_hook(self._after),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, _module: nn.Module, args: Any) -> None:
        embedded = args[0]
        for part in (embedded, embedded.source):
            if part is not None and part.hidden.requires_grad:
                part.hidden.register_hook(self._reached)
        self._started = self._now()

    def _after(self, _module: nn.Module, _args: Any, output: Tensor) -> None:
        self._forward_seconds = self._now() - self._started
        if output.requires_grad:
            output.register_hook(self._reached)

    def _reached(self, _gradient: Tensor) -> None:
        self._backward.append(self._now())


def _unmarked(_: str) -> None:
    pass
