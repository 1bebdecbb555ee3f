"""The training step as CUDA graphs: loss, backward pass, clipping and optimizer in two launches."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from pytorch_lightning import Callback
from pytorch_lightning.loops.optimization.automatic import ClosureResult
from pytorch_lightning.profilers import PassThroughProfiler
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor

from seqkit.errors import UsageError, one_line
from seqkit.generation.captured import Captured, leaves, sync_debug_mode
from seqkit.training.module import MicroBatch, Outcome
from seqkit.training.muon import Muon
from seqkit.training.parallel import is_sharded
from seqkit.training.step_log import StepLog

log = logging.getLogger("seqkit")

WARM_UP = 3
"""Steps of a kind of batch before its graph: they compile, and allocate workspaces and optimizer states."""

MOST_KINDS = 16
"""Kinds of batches with a graph; the others run launch by launch."""

LAUNCH_SHARE = 0.5
"""Least share of a step's time that its launches take, for a graph to pay."""

Compute = Captured[tuple[MicroBatch, Tensor]]
"""Loss and gradient of a step, and its number of real tokens."""

MEMORY_SHARE = 0.45
"""Most of the device's memory that a step may take, since graphs keep their memory beside that of validation."""

OWN = ("seqkit.", "pytorch_lightning.")
PLAIN = (bool, int, float, str, Tensor)
"""Packages whose callbacks leave a model's settings alone, and the types of settings."""

IN_A_STEP = (
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)
"""Hooks of callbacks that a replayed step does not call."""


class StepGraph(Callback):
    """Replays the training step as CUDA graphs, so that the host launches two graphs and not thousands of kernels.

    A kind of batch (its shapes, and the state of model and optimizer that a graph holds as constants) gets its graphs
    after WARM_UP steps. Replayed steps compute the same bits as the others: learning rates are read from the device in
    both, and random numbers are those of the device's generator.
    mode: True: replay, "auto": where it pays, False: never.
    Raises UsageError for True where a replay cannot be right; with "auto", a line of the log says why there is none.
    """

    def __init__(self, mode: bool | Literal["auto"] = "auto"):
        self.mode = mode
        self.num_replayed = 0
        self._reason = ""
        self._times: Counter[Hashable] = Counter()
        """How often each kind of batch came, up to WARM_UP."""
        self._graphs: dict[Hashable, tuple[Compute, Captured[Outcome]]] = {}
        self._batch: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take over the steps, unless a replay cannot be right."""
        if self.mode is False or (self.mode == "auto" and pl_module.device.type != "cuda"):
            return
        reason = obstacle(trainer, pl_module)
        if reason and self.mode is True:
            raise UsageError(f"trainer.cuda_graph: {reason}; leave it out")
        if reason:
            self._give_up(reason)
            return
        self._trainer = trainer
        self._module = pl_module
        self._parameters = list(pl_module.model.parameters())
        self._modules = list(pl_module.model.modules())
        self._rates = torch.zeros(
            len(trainer.optimizers[0].param_groups), device=pl_module.device
        ).unbind()
        self._pool = torch.cuda.graph_pool_handle()
        pl_module.run_step = self._step

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the batch."""
        self._batch = batch
        self._index = batch_idx

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Free the graphs and their memory."""
        self._graphs = {}
        self._batch = None

    def _give_up(self, reason: str) -> None:
        self._reason = reason
        self._graphs = {}
        log.info("trainer.cuda_graph: no step is replayed, since %s", reason)

    def _step(self, optimizer: Any, closure: Any) -> None:
        """One step: replayed, or launched kernel by kernel."""
        if self._reason:
            self._launch(optimizer, closure)
            return
        inputs, kind = self._kind(optimizer)
        if self._times[kind] == WARM_UP and kind not in self._graphs:
            self._capture(inputs, kind, optimizer, closure)
        if kind in self._graphs:
            self._replay(kind, inputs, optimizer, closure)
        elif kind not in self._times and len(self._times) == MOST_KINDS:
            self._launch(optimizer, closure)
            if not self._graphs:
                self._give_up("batches differ in shape, or settings change")
        else:
            self._times[kind] += 1
            if self._times[kind] < WARM_UP:
                self._launch(optimizer, closure)
            elif reason := self._measure(lambda: self._launch(optimizer, closure)):
                self._give_up(reason)

    def _launch(self, optimizer: Any, closure: Callable[[], Any]) -> None:
        closure()
        self._set_rates(optimizer)
        self._update(optimizer)

    def _set_rates(self, optimizer: Any) -> None:
        """Let the schedule follow the step before, and write this one's learning rates to the device."""
        self._module.settle()
        for callback in self._trainer.callbacks:
            if isinstance(callback, StepLog):
                callback.on_before_optimizer_step(self._trainer, self._module, optimizer.optimizer)
        for rate, group in zip(self._rates, optimizer.param_groups):
            rate.fill_(group["lr"])

    def _update(self, optimizer: Any) -> None:
        """From the gradient of the summed loss to the new weights."""
        module = self._module
        trainer = self._trainer
        own = optimizer.optimizer
        module.on_before_optimizer_step(own)
        module.configure_gradient_clipping(
            own, trainer.gradient_clip_val, trainer.gradient_clip_algorithm
        )
        with _on_device(own.param_groups, self._rates, capturable=module.is_captured):
            own.step()

    def _kind(self, optimizer: Any) -> tuple[list[Tensor], Hashable]:
        """Tensors of the batch that a graph takes as input, and all that it holds as constants."""
        inputs: list[Tensor] = []
        known: list[tuple[Any, ...]] = []
        for value in leaves(self._batch):
            if not isinstance(value, Tensor):
                known.append((repr(value),))
            elif value.device == self._module.device:
                inputs.append(value)
                known.append((value.shape, value.dtype))
            else:
                known.append((repr(value.tolist()),))
        for group in optimizer.param_groups:
            for name, value in group.items():
                if name not in ("params", "lr"):
                    known.append((name, repr(value)))
        if any(not type(one).__module__.startswith(OWN) for one in self._trainer.callbacks):
            # they may change between two steps what a step itself does not change (`_measure`)
            for one in (*self._modules, self._module.objective):
                held = [*vars(one).values(), *getattr(one, "_buffers", {}).values()]
                plain = [x for x in held if isinstance(x, PLAIN)]
                known.append(tuple(id(x) if isinstance(x, Tensor) else x for x in plain))
        weights = tuple((p.data_ptr(), p.requires_grad) for p in self._parameters)
        return inputs, (tuple(known), weights, tuple(module.training for module in self._modules))

    def _measure(self, step: Callable[[], None]) -> str:
        """Why this step, which is run, must not be replayed, or does not pay."""
        model = self._module.model
        objective = self._module.objective
        before = _host_state(model, objective)
        torch.cuda.synchronize()
        started = time.perf_counter()
        with sync_debug_mode("warn") as said:
            step()
        launching = time.perf_counter() - started
        torch.cuda.synchronize()
        took = time.perf_counter() - started
        after = _host_state(model, objective)
        changed = [name for name, value in after.items() if not _same(before.get(name), value)]
        waits = [one for one in said if "synchronizing CUDA operation" in str(one.message)]
        if changed:
            return f"{changed[0]} changes in each"
        if waits:
            return f"each waits for the device ({waits[0].filename}, line {waits[0].lineno})"
        if self.mode == "auto" and launching < LAUNCH_SHARE * took:
            return f"launching takes {1000 * launching:.1f} of its {1000 * took:.1f} ms"
        total = torch.cuda.get_device_properties(self._module.device).total_memory
        share = torch.cuda.max_memory_allocated() / total
        if self.mode == "auto" and share > MEMORY_SHARE:
            return f"each takes {100 * share:.0f} % of the device's memory"
        return ""

    def _capture(
        self, inputs: list[Tensor], kind: Hashable, optimizer: Any, closure: Callable[[], Any]
    ) -> None:
        """Make the graphs of a kind from its step, which does not run. If that fails, give up; the step may run."""
        module = self._module
        module.settle()
        tokens = dict(module._num_tokens)
        losses = dict(module.losses)
        module._num_tokens[module.task] = 0
        module.is_captured = True
        generator = torch.cuda.default_generators[module.device.index]
        numbers = generator.clone_state()

        def compute() -> tuple[MicroBatch, Tensor]:
            closure()
            return module._step[0], module._num_tokens[module.task]

        def update() -> Outcome:
            self._update(optimizer)
            return module.outcome

        try:
            computed = Captured(compute, inputs, self._pool)
            self._graphs[kind] = computed, Captured(update, (), self._pool)
        except Exception as error:
            generator.graphsafe_set_state(numbers)  # a capture that fails leaves its own in use
            self._give_up(f"its capture fails: {one_line(str(error))[:200]}")
            return
        finally:
            module.is_captured = False
            module._num_tokens = tokens
            module.losses = losses
            module._step = []
        if not self.num_replayed:
            log.info(
                "trainer.cuda_graph: steps are replayed, from step %d on", self._trainer.global_step
            )

    def _replay(
        self, kind: Hashable, inputs: list[Tensor], optimizer: Any, closure: Callable[[], Any]
    ) -> None:
        module = self._module
        compute, update = self._graphs[kind]
        micro_batch, num_tokens = compute(inputs)
        self._set_rates(optimizer)  # while the device is busy
        values = update(()).values.clone()
        self.num_replayed += 1
        module._num_tokens[module.task] = module._num_tokens[module.task] + num_tokens
        module.step_loss, module.gradient_norm = values[3:]
        replayed = MicroBatch(values[3], micro_batch.count, self._index)
        module.conclude(Outcome(values, [replayed]), skips_itself=True)
        # else Lightning says that the closure did not run
        closure._result = ClosureResult(micro_batch.loss)  # type: ignore[attr-defined]


def obstacle(trainer: Any, module: Any) -> str:
    """Why the steps of a training cannot be replayed; empty if nothing is known."""
    if module.device.type != "cuda":
        return "there is no CUDA device"
    if trainer.world_size > 1 or is_sharded(module.model):
        return "several processes train, or weights are sharded"
    if trainer.accumulate_grad_batches > 1:
        return "gradients are accumulated over batches"
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        return "float16 scales its gradients on the host"
    if len(module.tasks) > 1 or module._auxiliary:
        return "the model has several tasks, or auxiliary losses"
    if not isinstance(trainer.profiler, PassThroughProfiler):
        return "the profiler looks at each of its operations"
    for callback in trainer.callbacks:
        if not isinstance(callback, StepLog) and any(
            is_overridden(hook, callback, Callback) for hook in IN_A_STEP
        ):
            return f"the callback {type(callback).__name__} looks into it"
    for one in getattr(trainer.optimizers[0], "optimizers", trainer.optimizers):
        if not isinstance(one, Muon) and not (
            isinstance(one, torch.optim.AdamW) and one.defaults.get("fused")
        ):
            return f"{type(one).__name__} takes its learning rate from the host"
    return ""


@contextmanager
def _on_device(
    groups: list[dict[str, Any]], rates: tuple[Tensor, ...], *, capturable: bool
) -> Iterator[None]:
    """Context in which optimizers read their learning rates from the device, and may be captured."""
    kept = [dict(group) for group in groups]
    for group, rate in zip(groups, rates):
        group |= {"lr": rate} | ({"capturable": capturable} if "capturable" in group else {})
    try:
        yield
    finally:
        for group, before in zip(groups, kept):
            group |= before


def _host_state(model: torch.nn.Module, objective: Any) -> dict[str, Any]:
    """Attributes of modules and objective, and the CPU's random states: no graph changes them as a step does."""
    states = [random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()]  # noqa: NPY002
    found = {
        "the CPU's random state": repr(states),
        **{f"objective.{k}": x for k, x in vars(objective).items()},
    }
    for path, module in model.named_modules():
        found |= {
            f"{path}.{name}": value for name, value in {**vars(module), **module._buffers}.items()
        }
    return found


def _same(before: Any, after: Any) -> bool:
    return before is after or (isinstance(after, PLAIN[:-1]) and before == after)
