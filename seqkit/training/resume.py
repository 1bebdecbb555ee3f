"""Checkpoints from which a training goes on, bit for bit.

Each is written at the end of a training batch after which the optimizer stepped. A validation or the end of the epoch
that follows it runs again after resuming; Lightning by itself would leave it out (exact in 1 of 8 cases).
"""

from __future__ import annotations

import copy
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import ModelCheckpoint, WeightAveraging

from seqkit.data.batching import fold_seed
from seqkit.errors import DataError, DivergedError
from seqkit.interfaces import Objective, TokenSpec
from seqkit.training.callbacks import in_folder
from seqkit.training.checkpoint_files import BEST, RESUME, Checkpoint
from seqkit.training.interrupt import StopSignals
from seqkit.training.metrics_csv import MetricsCSV
from seqkit.training.module import RELATIVE_LOSS, Task
from seqkit.training.parallel import ShardedStrategy, local_part

KEY = "resume"
"""Key of what this module adds to a checkpoint."""

FORMAT = 2
"""Number of the format of checkpoints; another one is not resumed."""

STEPS = (
    "loops", "fit_loop", "epoch_loop.automatic_optimization.optim_progress", "optimizer", "step", "total", "completed",
)  # fmt: skip
"""Where Lightning takes the number of optimizer steps from."""


def check_complete(content: Mapping[str, Any], found: Checkpoint, expected: Mapping[str, Any]) -> None:
    """Raise DataError if a checkpoint is of another format, or lacks what an exact resume needs.

    expected: `structure` of the training that goes on. Lightning says nothing of most that is missing, and goes on
    from step 0, or with fresh moments of the optimizer; of the rest its errors have several lines.
    """
    facts, what = content.get("run"), None
    missing = list(_missing(expected, content))
    if isinstance(facts, Mapping) and facts.get("format", FORMAT) != FORMAT:
        what = f"has format {facts['format']}, but this version resumes format {FORMAT}"
    counted = content.get("training")
    if isinstance(counted, Mapping) and counted.get("num_skipped", 0) >= found.step:  # the optimizer made no step
        missing = [name for name in missing if not name.startswith("optimizer_states")]
    by_task = counted.get("num_tokens") if isinstance(counted, Mapping) else None
    for task in (name for name, number in by_task.items() if not number) if isinstance(by_task, Mapping) else ():
        missing = [name for name in missing if not name.startswith(f"optimizer_states.0.tasks.{task}")]  # nor for it
    if what is None and missing:
        what = f"has no {missing[0]}" + (f" (and {len(missing) - 1} more)" if len(missing) > 1 else "")
    for place in (("global_step",), (KEY, "step"), STEPS) if what is None else ():
        if (step := reduce(getitem, place, content)) != found.step:
            what = f"is of step {found.step} by its name, but of step {step} by {'.'.join(place)}"
    if what is not None:
        raise DataError(f"{found.path} {what}; resume with the version that wrote it, or train again")


def structure(trainer: Any, module: Any, data_sha256: Mapping[str, str]) -> dict[str, Any]:
    """Nested keys, each with some value, of a checkpoint of this training after an optimizer step."""
    weights = module.state_dict()
    averages = {"current_model_state": weights, "averaging_state": {}}
    has_average = any(isinstance(callback, WeightAveraging) for callback in trainer.callbacks)
    precision = trainer.precision_plugin
    return {
        "pytorch-lightning_version": "",
        "epoch": 0,
        "global_step": 0,
        "state_dict": weights,
        "loops": {"fit_loop": trainer.fit_loop.state_dict()},
        "callbacks": {callback.state_key: state for callback in trainer.callbacks if (state := callback.state_dict())},
        "optimizer_states": [_optimizer_state(module)],
        "lr_schedulers": [{"last_epoch": 0, "base_lrs": []}] if module.schedule is not None else [],
        "training": {"num_tokens": 0, "num_skipped": 0, "losses": {}},
        "run": {"format": FORMAT, "num_steps": 0, "seconds": 0.0, "data_sha256": data_sha256},
        KEY: {
            **dict.fromkeys(("validation_follows", "epoch_ends", "epoch", "step")),
            "rng": [{**_rng(), "cuda": []}],
            "metrics": dict.fromkeys(("rows", "sha256")),
        },
        **(averages if has_average else {}),
        **({type(precision).__qualname__: state} if (state := precision.state_dict()) else {}),
    }


def _optimizer_state(module: Any) -> dict[str, Any]:
    """State of a module's optimizer after a step, on weights of one element each in place of the module's own."""
    model = module.model
    tensors = {id(buffer): buffer for buffer in model.buffers()}
    for weight in model.parameters():
        tensors[id(weight)] = torch.nn.Parameter(torch.zeros([1] * weight.ndim), requires_grad=weight.requires_grad)
    small = copy.deepcopy(model, tensors)
    optimizer = module.build_optimizer(small)
    for weight in small.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step(lambda: torch.zeros(()))
    return cast("dict[str, Any]", optimizer.state_dict())


def _missing(expected: Any, found: Any, name: str = "") -> Iterator[str]:
    """Yield the names of all that one nested value has and another lacks."""
    if isinstance(expected, Mapping):
        keys = list(expected) if isinstance(found, Mapping) else []
        if not isinstance(found, Mapping) or (found == {} and any(isinstance(key, int) for key in keys)):
            yield name
        for key in keys:
            if key in found:
                yield from _missing(expected[key], found[key], f"{name}.{key}".lstrip("."))
            elif not isinstance(key, int):  # of parameters by number, torch has no state where there was no gradient
                yield f"{name}.{key}".lstrip(".")
    elif isinstance(expected, list | tuple):
        if not isinstance(found, list | tuple):
            yield name
        else:
            for i, one in enumerate(expected):
                yield from _missing(one, found[i], f"{name}.{i}") if i < len(found) else [f"{name}.{i}"]


class ResumeState(Callback):
    """Adds what Lightning leaves out of a checkpoint: random numbers of every rank, what was still to be done, facts.

    data_sha256: gives the SHA-256 of the splits, which a resumed run is compared with. seconds_before: seconds that
    were trained before this process.
    """

    def __init__(self, data_sha256: Callable[[], dict[str, str]], signals: StopSignals):
        self.data_sha256, self.signals = data_sha256, signals
        self.seconds_before = 0.0
        self._started = time.perf_counter()
        self._loaded: dict[str, Any] | None = None
        self._snapshot: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Let ranks draw different random numbers for dropout."""
        if trainer.world_size > 1:
            torch.manual_seed(fold_seed(pl_module.seed, trainer.global_rank))
        self._started = time.perf_counter()

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the signals back from Lightning, which has just set its own handlers."""
        self.signals.install_again()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Add the state at the end of the last training batch, also during a validation."""
        metrics: dict[str, Any] = {}
        for logger in trainer.loggers if trainer.is_global_zero else ():
            logger.save()
            if isinstance(logger, MetricsCSV):
                metrics = logger.synced()  # the rows up to here must not be lost with the process
        if self._snapshot is not None and trainer.validating:
            checkpoint.update(copy.deepcopy(self._snapshot))
        else:
            checkpoint[KEY] = self._state(trainer)
        checkpoint[KEY]["metrics"] = metrics
        checkpoint["run"] = {
            "format": FORMAT,
            "num_steps": pl_module.num_steps,
            "seconds": self.seconds_before + time.perf_counter() - self._started,
            "data_sha256": self.data_sha256(),
        }

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Keep the state until training starts: whatever runs before may draw random numbers."""
        self._loaded, self.seconds_before = checkpoint[KEY], float(checkpoint["run"]["seconds"])

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Restore random numbers, then do what followed the batch."""
        self.signals.install_again()  # a resumed run has no sanity check
        if self._loaded is None:
            return
        state, self._loaded = self._loaded, None
        _set_rng(state["rng"][trainer.global_rank])
        if state["validation_follows"] or state["epoch_ends"]:
            _finish_batch(trainer, pl_module, state)
        if state["epoch_ends"]:
            # else Lightning does not count the next epoch as begun, and mistakes the next resume's epoch for another
            trainer.fit_loop.reset_restart_stage()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Remember the point if a validation follows, which may be interrupted."""
        self._snapshot = None
        if is_point(trainer, pl_module) and _validation_follows(trainer):
            loops = copy.deepcopy(trainer._checkpoint_connector._get_loops_state_dict())
            callbacks = {c.state_key: copy.deepcopy(c.state_dict()) for c in trainer.callbacks if c.state_dict()}
            self._snapshot = {"loops": loops, "callbacks": callbacks, KEY: self._state(trainer)}

    def can_save_in_validation(self, trainer: Any) -> bool:
        """Whether the state before this validation can be written; averaged weights are swapped in meanwhile."""
        averages = any(isinstance(callback, WeightAveraging) for callback in trainer.callbacks)
        return self._snapshot is not None and trainer.world_size == 1 and not averages

    def _state(self, trainer: Any) -> dict[str, Any]:
        return {
            "rng": _gather(trainer, _rng()),
            "validation_follows": _validation_follows(trainer),
            "epoch_ends": bool(trainer.is_last_batch),
            "epoch": trainer.current_epoch,
            "step": trainer.global_step,
        }


def is_point(trainer: Any, pl_module: Any) -> bool:
    """Whether the end of this batch is a point to resume from: the optimizer stepped, and training goes on."""
    return not trainer.fit_loop.epoch_loop._should_accumulate() and trainer.global_step < pl_module.num_steps


def mode_of(objective: Objective, spec: TokenSpec) -> str:
    """Whether more of an objective's primary metric is better, `max`, or less, `min`, as the metric itself says."""
    metric = (objective.metrics(spec) | objective.generation_metrics()).get(objective.primary_metric)
    return "max" if getattr(metric, "higher_is_better", False) else "min"


def best_weights(folder: Path, tasks: Mapping[str, Task], *, averages: bool) -> ModelCheckpoint:
    """Callback that keeps the weights with the best validation metric: the objective's primary one, or `RELATIVE_LOSS`
    of several tasks.

    averages: whether a callback validates averaged weights. It puts them into complete checkpoints alone, so weights
    by themselves would be others than those that were validated.
    """
    monitor, mode = RELATIVE_LOSS, "min"
    if len(tasks) == 1:
        ((prefix, task),) = tasks.items()
        monitor, mode = f"valid/{prefix}{task.objective.primary_metric}", mode_of(task.objective, task.model.spec)
    return _BestWeights(
        dirpath=folder,
        filename=f"{BEST}-{{step}}",
        monitor=monitor,
        mode=mode,
        save_top_k=1,
        save_weights_only=not averages,
        save_on_train_epoch_end=False,
        enable_version_counter=False,
    )


class _BestWeights(ModelCheckpoint):
    """Keeps the later of equally good weights: a share of few examples is often the same, and they have learned longer.

    FSDD: 270 validation examples, 98.5 % after 8 of 20 epochs and at the end.
    """

    def check_monitor_top_k(self, trainer: Any, current: torch.Tensor | None = None) -> bool:
        """Whether these weights are to be kept."""
        is_as_good = current is not None and bool(self.best_model_path) and bool(current == self.best_model_score)
        return is_as_good or super().check_monitor_top_k(trainer, current)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back in a run folder that may have been moved."""
        super().load_state_dict(in_folder(state_dict, self.dirpath))


class FinalValidation(Callback):
    """Validates the weights of the last step, at which no validation need be due.

    Without it, a training of fewer steps than lie between two validations would have no best weights.
    """

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Ask Lightning to stop, before which it validates if it has not just done so."""
        trainer.should_stop = trainer.should_stop or trainer.global_step >= pl_module.num_steps


class ResumePoints(ModelCheckpoint):
    """Lightning's ModelCheckpoint, by time and by number of steps, at points to resume from (`is_point`) alone.

    It also ends training when a signal asks for it: every rank writes, or takes part in, a last checkpoint.
    every_n_steps, every_minutes: intervals between checkpoints; None: none. The CheckpointIO decides which files stay.
    Raises DivergedError instead of writing weights that are not finite.
    """

    def __init__(
        self,
        folder: Path,
        state: ResumeState,
        signals: StopSignals,
        *,
        every_n_steps: int | None = None,
        every_minutes: float | None = None,
    ):
        super().__init__(
            dirpath=folder,
            filename=f"{RESUME}-{{step}}",
            monitor=None,
            save_top_k=-1,
            train_time_interval=None if every_minutes is None else timedelta(minutes=every_minutes),
            every_n_epochs=0,
            save_on_train_epoch_end=False,
            enable_version_counter=False,
        )
        # Lightning's constructor takes one trigger; its hook looks at both
        self._every_n_train_steps = every_n_steps or 0
        self.folder, self.state, self.signals = folder, state, signals

    def state_dict(self) -> dict[str, Any]:
        """Nothing: what stays on disk is not decided here."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do nothing."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write a checkpoint if one is due, and stop if a signal was received."""
        if not is_point(trainer, pl_module):
            return
        if pl_module.stop_agreed:
            self.save_and_stop(trainer)
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Stop for a signal in a long validation, with the state before it."""
        if self.signals.received is not None and self.state.can_save_in_validation(trainer):
            self.save_and_stop(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Do nothing: what a validation changes belongs to the batch that comes after."""

    def save_and_stop(self, trainer: Any) -> None:
        """Write a checkpoint and raise Interrupted."""
        self._save_checkpoint(trainer, self.format_checkpoint_name({"step": torch.tensor(trainer.global_step)}))
        signals = self.signals
        if not trainer.is_global_zero:
            raise SystemExit(0)  # the first process says why
        if signals.received is None:  # another process was asked to stop
            signals.received = signal.SIGTERM
        failure = trainer.strategy.checkpoint_io.failure
        where = f"stopped after step {trainer.global_step} of {trainer.lightning_module.num_steps}"
        then = f"go on with: seqkit fit --resume {self.folder.parent}"
        raise signals.interrupted(f"{where}; {f'no checkpoint could be written: {failure}' if failure else then}")

    def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
        check_finite_weights(trainer)
        super()._save_checkpoint(trainer, filepath)


def check_finite_weights(trainer: Any) -> None:
    """Raise DivergedError if a weight is not finite; if it is sharded, on all processes."""
    weights = trainer.lightning_module.model.state_dict()
    wrong = [
        name
        for name, weight in weights.items()
        if weight.is_floating_point() and not bool(local_part(weight).isfinite().all())
    ]
    if isinstance(trainer.strategy, ShardedStrategy):
        wrong = [name for theirs in _gather(trainer, wrong) for name in theirs]
    if wrong:
        raise DivergedError(
            f"{wrong[0]} is not finite after step {trainer.global_step}, though every gradient was; "
            "lower the learning rate"
        )


def _validation_follows(trainer: Any) -> bool:
    loop = trainer.fit_loop
    return bool(loop.epoch_loop._should_check_val_fx(loop._data_fetcher))


def _finish_batch(trainer: Any, pl_module: Any, state: dict[str, Any]) -> None:
    """Run the validation and the end of the epoch that followed a batch, as Lightning's loops do."""
    progress, epoch_loop = trainer.fit_loop.epoch_progress.current, trainer.fit_loop.epoch_loop
    after, progress.completed = progress.completed, state["epoch"]  # the epoch that is logged and shown
    try:
        if state["validation_follows"]:
            trainer.validating = True
            epoch_loop.val_loop.setup_data()
            epoch_loop.val_loop.restarting = False
            epoch_loop.val_loop.run()
            trainer.training = True
            pl_module.train()
        if state["epoch_ends"]:
            trainer._logger_connector.epoch_end_reached()
            for monitors in (False, True):  # as Lightning: those that monitor a metric come last
                for callback in trainer.callbacks:
                    if isinstance(callback, ModelCheckpoint) == monitors:
                        callback.on_train_epoch_end(trainer, pl_module)
    finally:
        progress.completed = after


def _gather(trainer: Any, state: Any) -> list[Any]:
    """Values of all ranks."""
    if trainer.world_size == 1:
        return [state]
    states: list[Any] = [None] * trainer.world_size
    torch.distributed.all_gather_object(states, state)
    return states


def _rng() -> dict[str, Any]:
    """Random states of this process as plain data and tensors, which `weights_only` loads."""
    version, internal, gauss = random.getstate()
    numpy: Any = np.random.get_state(legacy=True)  # noqa: NPY002  (of users' components)
    name, keys, position, has_gauss, cached = numpy
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": [version, list(internal), gauss],
        "numpy": [name, keys.tolist(), int(position), int(has_gauss), float(cached)],
    }


def _set_rng(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
