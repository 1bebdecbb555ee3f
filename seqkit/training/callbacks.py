"""Lightning's callbacks as a recipe names them (`trainer.callbacks`): same names and arguments, with defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning import callbacks as lightning
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from seqkit.errors import UsageError


class EarlyStopping(lightning.EarlyStopping):
    """Ends training when a metric has stopped to improve for `patience` validations.

    monitor: a column of metrics.csv, such as valid/loss or valid/accuracy. mode: min or max. min_delta: the smallest
    change that counts.
    """

    def __init__(
        self, monitor: str = "valid/loss", *, patience: int = 3, min_delta: float = 0.0, mode: str = "min"
    ) -> None:
        _check_mode(mode)
        super().__init__(monitor=monitor, patience=patience, min_delta=min_delta, mode=mode)


class ModelCheckpoint(lightning.ModelCheckpoint):
    """Further weights beside the run's own checkpoints, in the run's folder `checkpoints`.

    monitor: a column of metrics.csv; None: the newest. save_top_k: how many are kept. mode: min or max.
    every_n_epochs: how often one is looked for.
    """

    def __init__(
        self, monitor: str | None = None, *, save_top_k: int = 1, mode: str = "min", every_n_epochs: int = 1
    ) -> None:
        _check_mode(mode)
        try:
            super().__init__(
                monitor=monitor,
                save_top_k=save_top_k,
                mode=mode,
                every_n_epochs=every_n_epochs,
                filename="user-{epoch}-{step}",
                save_weights_only=True,
            )
        except MisconfigurationException as error:
            raise ValueError(" ".join(str(error).split())) from error

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back in a run folder that may have been moved."""
        super().load_state_dict(in_folder(state_dict, self.dirpath))


class EMA(lightning.EMAWeightAveraging):
    """Exponential moving average of the weights, which are validated and become the run's (Polyak and Juditsky 1992).

    decay: decay of the average in an update. every_n_steps: optimizer steps between updates. start_step: first update.
    """

    def __init__(self, decay: float = 0.999, *, every_n_steps: int = 1, start_step: int = 0) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"decay is {decay}; give a share above 0 and below 1")
        if every_n_steps < 1 or start_step < 0:
            raise ValueError(f"every_n_steps is {every_n_steps} and start_step {start_step}; give >= 1 and >= 0")
        super().__init__(decay=decay, update_every_n_steps=every_n_steps, update_starting_at_step=start_step)

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Validate the weights as they are before the first update, when there is no average."""
        average = self._average_model
        if average is not None and int(average.n_averaged) == 0:
            average.module.load_state_dict(pl_module.state_dict())
        super().on_validation_epoch_start(trainer, pl_module)

    def check_steps(self, num_steps: int) -> None:
        """Raise UsageError if no step updates the average: the run's weights would be the first ones."""
        first = next((step for step in range(num_steps) if self.should_update(step_idx=step)), None)
        if first is None:
            raise UsageError(
                f"trainer.callbacks: EMA has start_step {self.update_starting_at_step} and every_n_steps "
                f"{self.update_every_n_steps}, but training has {num_steps} steps, so nothing would be averaged; "
                "give a smaller start_step, or train longer"
            )


class LearningRateMonitor(lightning.LearningRateMonitor):
    """Logs each parameter group's learning rate, momentum and weight decay; metrics.csv has `lr` already."""

    def __init__(self, *, log_momentum: bool = False, log_weight_decay: bool = False) -> None:
        super().__init__(logging_interval="step", log_momentum=log_momentum, log_weight_decay=log_weight_decay)


class DeviceStatsMonitor(lightning.DeviceStatsMonitor):
    """Memory and load of the device, and of the CPU with `cpu_stats` (needs psutil)."""

    def __init__(self, *, cpu_stats: bool | None = None) -> None:
        super().__init__(cpu_stats=cpu_stats)


def in_folder(state: Mapping[str, Any], folder: str | Path | None) -> dict[str, Any]:
    """State of a Lightning `ModelCheckpoint` as if its files had always been in `folder`.

    If the run folder was moved, Lightning forgets the best score, so that worse weights replace the best.
    """

    def here(path: str) -> str:
        return str(Path(folder or "") / Path(path).name) if path else path

    paths = ("best_model_path", "kth_best_model_path", "last_model_path")
    return {
        **state,
        "dirpath": None if folder is None else str(folder),
        **{name: here(state[name]) for name in paths if name in state},
        "best_k_models": {here(path): score for path, score in state.get("best_k_models", {}).items()},
    }


def check_monitors(callbacks: list[Any], known: list[str]) -> None:
    """Raise UsageError if a callback monitors something other than the known metrics."""
    from seqkit.errors import suggest

    for callback in callbacks:
        monitor = getattr(callback, "monitor", None)
        if monitor is not None and monitor not in known:
            fault = f"trainer.callbacks: {type(callback).__name__} monitors {monitor!r}"
            if monitor.startswith("valid/") and not any(name.startswith("valid/") for name in known):
                raise UsageError(f"{fault}, but the data has no validation split; give --data.valid_fraction 0.1")
            raise UsageError(f"{fault}; {suggest(monitor, known)}")


def _check_mode(mode: str) -> None:
    if mode not in ("min", "max"):
        raise ValueError(f"mode is {mode!r}; give min or max")
