"""Checkpoints from which training resumes bit for bit: two callbacks, with `ResumableLoader`, for any LightningModule.

A checkpoint is written at the end of a training batch in which the optimizer stepped. If a validation or the end of the
epoch follows that batch, it runs after resuming; Lightning alone would leave it out (exact in 1 of 8 cases).
"""

from __future__ import annotations

import copy
import logging
import math
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import Checkpoint, WeightAveraging

from seqkit.data.batching import fold_seed
from seqkit.errors import DataError, DivergedError
from seqkit.registry.commands import command
from seqkit.training import checkpoint_files
from seqkit.training.checkpoint_files import RESUME, Content, newest_good
from seqkit.training.checkpoint_io import VerifiedCheckpointIO
from seqkit.training.interrupt import StopSignals
from seqkit.training.metrics_csv import MetricsCSV
from seqkit.training.module import TrainingModule
from seqkit.training.parallel import ShardedStrategy, local_part
from seqkit.training.private_names import end_epoch, is_accumulating, validation_follows

log = logging.getLogger("seqkit")

KEY = "resume"
"""Key of what `RandomState` adds to a checkpoint."""

FORMAT = 3
"""Version of the format of a run's checkpoints; other versions are not resumed."""


class RandomState(Callback):
    """Adds to a checkpoint the random states of every process, and whether a validation or an epoch's end follows.

    Random states are those of torch (CPU and CUDA), NumPy and Python. A checkpoint without them is refused.
    """

    def __init__(self) -> None:
        self._loaded: dict[str, Any] | None = None
        self._snapshot: Content | None = None

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Content) -> None:
        """Add the state at the end of the last training batch, even during a validation."""
        if self._snapshot is not None and trainer.validating:
            checkpoint.update(copy.deepcopy(self._snapshot))
        else:
            checkpoint[KEY] = _state(trainer)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Content) -> None:
        """Keep the state until training starts, since hooks before that may draw random numbers."""
        if KEY not in checkpoint:
            raise DataError(
                "the checkpoint has no random states: train with the callback RandomState from the start"
            )
        self._loaded = checkpoint[KEY]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Restore random states, then run the validation or the epoch's end that followed the batch."""
        if self._loaded is None:
            return
        state = self._loaded
        self._loaded = None
        _set_rng(state["rng"][trainer.global_rank])
        if state["validation_follows"] or state["epoch_ends"]:
            _finish_batch(trainer, pl_module, state)
        if state["epoch_ends"]:
            # else Lightning does not count the next epoch as begun, and the next resume has a wrong epoch
            trainer.fit_loop.reset_restart_stage()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep a copy of the state if a validation follows, since that may be interrupted."""
        self._snapshot = None
        if is_point(trainer, pl_module) and validation_follows(trainer):
            loops = {
                "fit_loop": trainer.fit_loop.state_dict(),
                "validate_loop": trainer.validate_loop.state_dict(),
                "test_loop": trainer.test_loop.state_dict(),
                "predict_loop": trainer.predict_loop.state_dict(),
            }
            callbacks = {
                one.state_key: state for one in trainer.callbacks if (state := one.state_dict())
            }
            self._snapshot = copy.deepcopy({"loops": loops, "callbacks": callbacks})
            self._snapshot[KEY] = _state(trainer)

    def can_save_in_validation(self, trainer: Any) -> bool:
        """Whether the state before this validation can be written; averaged weights would be in its place."""
        averages = any(isinstance(callback, WeightAveraging) for callback in trainer.callbacks)
        return self._snapshot is not None and trainer.world_size == 1 and not averages


class ResumePoints(Checkpoint):
    """Writes checkpoints by time and by steps, only at points from which training resumes (`is_point`).

    Files are written by `VerifiedCheckpointIO`, whole or not at all; `newest` is the path to give to `Trainer.fit`.
    every_n_steps, every_minutes: intervals between checkpoints; None: none. keep: number of checkpoints that are kept.
    signals: signals that stop a `TrainingModule` with a last checkpoint; None: Lightning handles signals.
    Raises DivergedError instead of writing weights that are not finite.

    >>> points = ResumePoints("no-such-folder", every_n_steps=100)
    >>> points.newest is None
    True
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        every_n_steps: int | None = None,
        every_minutes: float | None = None,
        keep: int = 1,
        signals: StopSignals | None = None,
    ):
        self.folder = Path(folder)
        self.every_n_steps = every_n_steps
        self.every_minutes = every_minutes
        self.keep = keep
        self.signals = signals
        self._since = 0.0

    @property
    def newest(self) -> Path | None:
        """Newest checkpoint that is undamaged; None if there is none."""
        found = newest_good(self.folder)
        return None if found is None else found.path

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Write through `VerifiedCheckpointIO`."""
        trainer.strategy.checkpoint_io = VerifiedCheckpointIO(self.keep)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Install the signal handlers again, since Lightning has just set its own."""
        if self.signals is not None:
            self.signals.install_again()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Install the signal handlers again, since a resumed run has no sanity check."""
        self.on_sanity_check_start(trainer, pl_module)
        self._since = time.monotonic()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write a checkpoint if one is due, and stop if a signal was received."""
        if not is_point(trainer, pl_module):
            return
        if self.signals is not None and pl_module.stop_agreed:
            self._save_and_stop(trainer, self.signals)
        if self._is_due(trainer):
            self._save(trainer)

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Stop at a signal during a long validation, with a checkpoint of the state before it."""
        if self.signals is not None and self.signals.received is not None:
            states = [
                callback for callback in trainer.callbacks if isinstance(callback, RandomState)
            ]
            if all(state.can_save_in_validation(trainer) for state in states):
                self._save_and_stop(trainer, self.signals)

    def _is_due(self, trainer: Any) -> bool:
        """Whether a checkpoint is due, by time on the clock of the first process."""
        if self.every_minutes is not None:
            now = time.monotonic()
            if trainer.strategy.broadcast(now - self._since >= 60 * self.every_minutes):
                self._since = now
                return True
        return self.every_n_steps is not None and trainer.global_step % self.every_n_steps == 0

    def _save(self, trainer: Any) -> None:
        if isinstance(trainer.lightning_module, TrainingModule):
            trainer.lightning_module.settle()  # the schedule waits for it, and is saved
        check_finite_weights(trainer)
        trainer.save_checkpoint(self.folder / f"{RESUME}-step={trainer.global_step}.ckpt")

    def _save_and_stop(self, trainer: Any, signals: StopSignals) -> None:
        """Write a checkpoint with all processes; the first then raises Interrupted, the others SystemExit."""
        self._save(trainer)
        if not trainer.is_global_zero:
            raise SystemExit(0)  # the first process reports why
        if signals.received is None:  # another process was asked to stop
            signals.received = signal.SIGTERM
        then = f"go on with: {command('fit', '--resume', self.folder.parent)}"
        if failure := trainer.strategy.checkpoint_io.failure:
            then = f"no checkpoint could be written: {failure}"
        num_steps = trainer.lightning_module.num_steps
        raise signals.interrupted(
            f"stopped after step {trainer.global_step} of {num_steps}; {then}"
        )


def check_finite_weights(trainer: Any) -> None:
    """Raise DivergedError if a weight is not finite; with sharded weights, on all processes alike."""
    weights = trainer.lightning_module.state_dict()
    wrong = [
        name
        for name, weight in weights.items()
        if weight.is_floating_point() and not bool(local_part(weight).isfinite().all())
    ]
    if isinstance(trainer.strategy, ShardedStrategy):
        wrong = [name for theirs in _gather(trainer, wrong) for name in theirs]
    if wrong:
        raise DivergedError(
            f"{wrong[0].removeprefix('model.')} is not finite after step {trainer.global_step}, though every gradient "
            "was; lower the learning rate"
        )


class RunFacts(Callback):
    """Adds the facts that a resumed run is checked against: its length, data, configuration, and rows of metrics.csv.

    digests: returns the SHA-256 of configuration and splits. seconds_before: seconds of training before this process.
    """

    def __init__(self, digests: Callable[[], Mapping[str, str]]):
        self.digests = digests
        self.seconds_before = 0.0
        self._started = time.perf_counter()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Seed each rank differently for dropout, and start the clock."""
        if trainer.world_size > 1:
            torch.manual_seed(fold_seed(pl_module.seed, trainer.global_rank))
        self._started = time.perf_counter()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Content) -> None:
        num_rows = 0
        for logger in trainer.loggers if trainer.is_global_zero else ():
            logger.save()
            if isinstance(logger, MetricsCSV):
                num_rows = logger.synced()  # the rows up to here must not be lost with the process
        checkpoint["run"] = {
            "format": FORMAT,
            "num_steps": pl_module.num_steps,
            "seconds": self.seconds_before + time.perf_counter() - self._started,
            "num_rows": num_rows,
            "versions": _versions(),
            **self.digests(),
        }

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Content) -> None:
        self.seconds_before = float(checkpoint["run"]["seconds"])


def check_resumable(content: Content, found: checkpoint_files.Checkpoint) -> None:
    """Raise DataError if a checkpoint has another format, or another step than its name.

    Logs other versions of torch and Lightning.
    """
    facts = content.get("run", {})
    what = ""
    if facts.get("format") != FORMAT or KEY not in content:
        what = f"has format {facts.get('format')}, but this version resumes format {FORMAT}"
    elif content["global_step"] != found.step:
        what = f"is of step {found.step} by its name, but of step {content['global_step']} by its content"
    if what:
        raise DataError(
            f"{found.path} {what}; resume with the version that wrote it, or train again"
        )
    known = facts.get("versions", {})
    for name, version in _versions().items():
        if known.get(name) != version:
            log.warning(
                "%s was written with %s %s, and %s goes on: the rest may differ in its last digits",
                found.path,
                name,
                known.get(name, "of an unknown version"),
                version,
            )


def _versions() -> dict[str, str]:
    """Versions of what trains: with the same, a resumed run is equal bit for bit."""
    return {"torch": str(torch.__version__), "pytorch-lightning": pl.__version__}


def is_point(trainer: Any, pl_module: Any) -> bool:
    """Whether training can resume from the end of this batch: the optimizer stepped, and more steps follow."""
    goes_on = trainer.global_step < getattr(pl_module, "num_steps", math.inf)
    return goes_on and not is_accumulating(trainer)


def _state(trainer: Any) -> dict[str, Any]:
    return {
        "rng": _gather(trainer, _rng()),
        "validation_follows": validation_follows(trainer),
        "epoch_ends": bool(trainer.is_last_batch),
        "epoch": trainer.current_epoch,
    }


def _finish_batch(trainer: Any, pl_module: Any, state: dict[str, Any]) -> None:
    """Run the validation and the epoch's end that followed a batch, as Lightning's loops do."""
    progress = trainer.fit_loop.epoch_progress.current
    epoch_loop = trainer.fit_loop.epoch_loop
    # the epoch that Lightning logs
    after = progress.completed
    progress.completed = state["epoch"]
    try:
        if state["validation_follows"]:
            trainer.validating = True
            epoch_loop.val_loop.setup_data()
            epoch_loop.val_loop.restarting = False
            epoch_loop.val_loop.run()
            trainer.training = True
            pl_module.train()
        if state["epoch_ends"]:
            end_epoch(trainer, pl_module)
    finally:
        progress.completed = after


def _gather(trainer: Any, state: Any) -> list[Any]:
    """The values of all ranks, in their order."""
    if trainer.world_size == 1:
        return [state]
    states: list[Any] = [None] * trainer.world_size
    torch.distributed.all_gather_object(states, state)
    return states


def _rng() -> dict[str, Any]:
    """Random states of this process as plain data and tensors, which `torch.load(weights_only=True)` loads."""
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
