"""Learning rate and batch size of a recipe, found by short trainings of copies of its model.

They are trainings by `TrainingModule` under Lightning's Trainer, so precision, clipping and accumulation are the
recipe's. They write no file, and leave the model and the random numbers as they were.
"""

from __future__ import annotations

import copy
import gc
import itertools
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from pytorch_lightning import Callback, seed_everything
from pytorch_lightning.utilities.seed import isolate_rng
from torch.utils.data import DataLoader

from seqkit.analysis import units
from seqkit.analysis.peak_memory import peak_bytes
from seqkit.data.module import DataModule
from seqkit.errors import DivergedError, UsageError, is_out_of_memory
from seqkit.runs.prepare import Prepared
from seqkit.runs.run import compile_blocks
from seqkit.training.available_memory import available_memory
from seqkit.training.interrupt import StopSignals
from seqkit.training.recompute import activation_checkpointing
from seqkit.training.trainer import SHARDED, make_trainer, silence_lightning, train

LOWEST, HIGHEST, NUM_RATES = 1e-6, 10.0, 100
"""Learning rates that are tried: seven decades, on which AdamW, Muon, SGD and Adadelta have theirs."""

DIVERGED = 4.0
"""Multiple of the lowest smoothed loss at which the sweep ends, as in Lightning's finder."""

WITHIN = 1.1
"""Factor on the best time per example: the smallest batch within it is suggested."""

FASTER = 0.95
"""Share of the best time per example before it, below which a doubled batch is faster."""

SHARE_OF_MEMORY = 0.9
"""Expected share of the remaining memory that the next batch may take."""

TIMED_BATCHES, TIMED_EXAMPLES = 3, 16
"""Number of batches, and of examples, on which a batch size is timed at least."""


# ── learning rate ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RateCurve:
    """The loss while the learning rate rises.

    rates, losses: learning rate of the first parameter group, and mean loss per prediction, of each optimizer step;
    other groups keep their ratio to the first. initial: losses of the initial weights in the same steps, with the same
    batches, masks and dropout. base: learning rate of the first group in the configuration. suggestion: suggested rate;
    None: the loss falls nowhere by more than its noise. ended: reason why the sweep ended, in words.
    """

    rates: Sequence[float]
    losses: Sequence[float]
    initial: Sequence[float]
    base: float
    suggestion: float | None
    ended: str

    @property
    def smoothed(self) -> list[float]:
        """Losses compared with those of the initial weights, smoothed over half a decade on both sides.

        Without the comparison, easy and hard batches hide a fall of a few percent.
        """
        return smooth(_compared(self.losses, self.initial), points_of_a_decade(self.rates))


def _compared(losses: Sequence[float], initial: Sequence[float]) -> list[float]:
    mean = statistics.fmean(initial)
    return [loss - before + mean for loss, before in zip(losses, initial)]


def find_learning_rate(
    prepared: Prepared,
    *,
    low: float = LOWEST,
    high: float = HIGHEST,
    num_steps: int = NUM_RATES,
    signals: StopSignals | None = None,
) -> RateCurve:
    """Trains a copy of the model while the learning rate rises exponentially from `low` to `high` (Smith 2017).

    The schedule is left out: the suggestion is for its highest rate. Batches come as in a training, epoch after epoch;
    a first training at rate 0 measures how hard each is. With several devices, one makes their steps by accumulation.
    The same seed gives the same curve.
    Raises UsageError for a range or a number of steps that cannot be tried, or an optimizer without a learning rate.
    """
    if not 0 < low < high < math.inf:
        raise UsageError(f"the learning rates go from {low:g} to {high:g}; give two numbers above 0, lower one first")
    if num_steps < 20:
        raise UsageError(f"{num_steps} steps are too few to see where the loss falls; give 20 or more")
    rates = [low * (high / low) ** (step / (num_steps - 1)) for step in range(num_steps)]
    reference, _ = _swept(prepared, [0.0] * num_steps, signals)
    sweep, ended = _swept(prepared, rates, signals, reference.losses)
    rates, initial = rates[: len(sweep.losses)], reference.losses[: len(sweep.losses)]
    suggestion = suggest(rates, _compared(sweep.losses, initial)) if rates else None
    return RateCurve(rates, sweep.losses, initial, sweep.base, suggestion, ended)


def _swept(
    prepared: Prepared, rates: Sequence[float], signals: StopSignals | None, initial: Sequence[float] = ()
) -> tuple[_Sweep, str]:
    """A training with these learning rates, and the reason why it ended. initial: losses of the initial weights."""
    sweep, ended = _Sweep(rates, initial, signals), "all were tried"
    with _trial(prepared) as tried:
        trainer = make_trainer(_settings(prepared) | {"max_steps": len(rates)}, logger=False, callbacks=[sweep])
        module = tried.training_module(len(rates))
        module.schedule, module.skip_nonfinite = None, 0
        try:
            train(trainer, module, prepared.data.train_dataloader(), None)
        except DivergedError:
            ended = f"loss or gradient are not finite at {rates[len(sweep.losses)]:.1e}"
    if sweep.has_diverged:
        ended = f"the loss has risen to {DIVERGED:g} times its lowest"
    return sweep, ended


def suggest(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """The rate at which the loss falls fastest over the logarithm of the rate, before its lowest point.

    The slope is that of a straight line (least squares) through the points of a decade. Returns None if noise explains
    the fall to the lowest point, or there are too few points.
    """
    width = points_of_a_decade(rates)
    if len(losses) < 2 * width:
        return None
    smoothed = smooth(losses, width)
    lowest = min(range(len(smoothed)), key=smoothed.__getitem__)
    steps = [later - earlier for earlier, later in itertools.pairwise(losses[: 2 * width])]
    noise = statistics.pstdev(steps) / math.sqrt(2 * width)  # of a mean over `width` points, by their differences
    if smoothed[0] - smoothed[lowest] <= 3 * noise or lowest == 0:
        return None
    half = width // 2
    middles = range(half, min(len(losses) - half, lowest + 1))
    slopes = {i: statistics.linear_regression(range(width), losses[i - half : i - half + width]).slope for i in middles}
    return rates[min(slopes, key=slopes.__getitem__)] if slopes else None


def points_of_a_decade(rates: Sequence[float]) -> int:
    """Number of rates from one to ten times it: odd, and at least 5."""
    if len(rates) < 2:
        return 5
    return max(5, round(1 / math.log10(rates[1] / rates[0])) | 1)


def smooth(losses: Sequence[float], width: int) -> list[float]:
    """Means over the `width` points around each, fewer at both ends."""
    half = width // 2
    return [statistics.fmean(losses[max(0, i - half) : i + half + 1]) for i in range(len(losses))]


class _OneTraining(Callback):
    """Callback of a short training that a signal ends at once."""

    def __init__(self, signals: StopSignals | None):
        self.signals = signals

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Replaces the signal handlers that Lightning has just set."""
        if self.signals is not None:
            self.signals.install_again()


class _Sweep(_OneTraining):
    """Sets the learning rate of each optimizer step, and records its loss."""

    def __init__(self, rates: Sequence[float], initial: Sequence[float], signals: StopSignals | None):
        super().__init__(signals)
        self.rates, self.initial, self.losses, self.has_diverged = rates, initial, list[float](), False
        self.base, self._bases, self._lowest = 0.0, list[float](), math.inf

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Records the rates of the configuration."""
        super().on_train_start(trainer, pl_module)
        self._bases = [float(group["lr"]) for group in trainer.optimizers[0].param_groups]
        self.base = next((base for base in self._bases if base > 0), 0.0)
        if self.base == 0:
            raise UsageError("the learning rate is 0, which no factor makes larger; give --optimizer.lr above 0")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Sets the rate."""
        factor = self.rates[trainer.global_step] / self.base
        for group, base in zip(trainer.optimizers[0].param_groups, self._bases):
            group["lr"] = base * factor

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Records the loss, and stops if it has risen too far."""
        if trainer.fit_loop.epoch_loop._should_accumulate():
            return
        loss = float(pl_module.step_loss)
        if not math.isfinite(loss):  # float16, whose scaler leaves the step out
            self.has_diverged = trainer.should_stop = True
            return
        self.losses.append(loss)
        if not self.initial:
            return
        width, compared = points_of_a_decade(self.rates), _compared(self.losses, self.initial[: len(self.losses)])
        if len(compared) >= width:
            now = statistics.fmean(compared[-width:])
            self._lowest = min(self._lowest, now)
            if now > self._lowest + (DIVERGED - 1) * abs(self._lowest):
                self.has_diverged = trainer.should_stop = True


# ── batch size ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class BatchTrial:
    """Measured cost of a batch size.

    size: value of the key. examples: number of examples of the largest batch. seconds: time of a training step per
    example, by the clock that decides. wall_seconds, processor_seconds: the same by each clock. peak: bytes of all
    tensors in a step on the longest examples.
    """

    size: int
    examples: int
    seconds: float
    wall_seconds: float
    processor_seconds: float
    peak: int


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """Batch sizes that were tried.

    key: key of the data section. suggestion: suggested size; None: not even the smallest fits. ended: reason why no
    larger one was tried, in words.
    """

    key: str
    trials: Sequence[BatchTrial]
    suggestion: int | None
    ended: str


def find_batch_size(
    prepared: Prepared, *, available: int | None = None, signals: StopSignals | None = None
) -> BatchSizes:
    """Doubles the batch until memory would not hold the next one, or two doublings are no faster per example.

    A size is tried on the longest examples, so that the largest batch of a training fits, with a learning rate of 0.
    Before the next size, its peak is estimated from the last one's, so that the kernel has no reason to kill the
    process. The clock that decides is processor time if torch has one thread, else wall time. If the data has
    `tokens_per_batch`, that is doubled. A batch is that of one device.
    available: bytes; None: memory that this machine, its container or the GPU has left, asked before each size.
    """
    data, key = prepared.data, "batch_size"
    lengths = list(data.train_dataloader().examples.lengths)
    size = 1
    if data.tokens_per_batch is not None:
        key, size = "tokens_per_batch", max(lengths)
    settings = _settings(prepared) | {"accumulate_grad_batches": 1}
    weights = sum(weight.nbytes for weight in prepared.model.parameters())
    trials: list[BatchTrial] = []
    expected = 4 * weights  # weights, gradients and two moments, before anything is known of the activations
    while True:
        where, left = ("memory", available) if available is not None else available_memory(settings["accelerator"])
        if expected > SHARE_OF_MEMORY * left:
            ended = f"{key} {size:,} would take about {units.size(expected)}, and {where} has {units.size(left)} left"
            break
        try:
            trial = _try_batch(prepared, settings, (key, size), signals)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            ended = f"{key} {size:,} is out of memory"
            break
        trials.append(trial)
        if trial.examples >= len(lengths):
            ended = f"all {len(lengths):,} training examples are one batch"
            break
        if _is_no_faster(trials):
            ended = "two doublings made it no faster per example"
            break
        expected, size = trial.peak + max(trial.peak - weights, 0), 2 * size
        if key == "batch_size":
            size = min(size, len(lengths))
    gc.collect()
    best = min((trial.seconds for trial in trials), default=0.0)
    fitting = [trial.size for trial in trials if trial.seconds <= WITHIN * best]
    return BatchSizes(key, trials, fitting[0] if fitting else None, ended)


def _is_no_faster(trials: Sequence[BatchTrial]) -> bool:
    """Whether neither of the last two is faster than the best before them."""
    before = [trial.seconds for trial in trials[:-2]]
    return bool(before) and all(trial.seconds >= FASTER * min(before) for trial in trials[-2:])


def _try_batch(
    prepared: Prepared, settings: dict[str, Any], sized: tuple[str, int], signals: StopSignals | None
) -> BatchTrial:
    """Measures the memory of a step on the longest examples, then the time of steps on usual ones."""
    key, size = sized
    with _trial(prepared) as tried:
        longest, usual = _batches(prepared.data, key, size)

        def steps(batches: Sequence[Any]) -> _Clock:
            clock = _Clock(signals)
            trainer = make_trainer(settings | {"max_steps": len(batches)}, logger=False, callbacks=[clock])
            module = tried.training_module(len(batches))
            module.schedule, module.skip_nonfinite = None, len(batches)
            loader: Any = DataLoader(list(batches), batch_size=None, collate_fn=lambda batch: batch)  # type: ignore[arg-type]
            train(trainer, module, loader, None)
            return clock

        peak = peak_bytes(lambda: steps([longest]), list(tried.model.parameters()))
        clock = steps([longest, *usual])
    gc.collect()
    number = sum(len(tokens) for tokens, _ in usual)
    wall, processor = sum(clock.wall[1:]) / number, sum(clock.processor[1:]) / number  # the first one warms up
    by_processor = torch.get_num_threads() == 1 and not clock.on_gpu
    return BatchTrial(size, len(longest[0]), processor if by_processor else wall, wall, processor, peak)


def _batches(data: DataModule, key: str, size: int) -> tuple[Any, list[Any]]:
    """A batch of the longest examples, and usual batches, as a training with that size has them."""
    sized = copy.copy(data)  # shares the encoded examples
    setattr(sized, key, size)
    if key == "tokens_per_batch":
        sized.batch_size = len(sized.train_dataloader().examples)
    loader = sized.train_dataloader()
    lengths, indices = list(loader.examples.lengths), loader.batch_indices()
    longest = max(indices, key=lambda batch: len(batch) * max(lengths[i] for i in batch))
    if key == "batch_size":  # in another epoch, the longest ones may meet
        longest = sorted(range(len(lengths)), key=lengths.__getitem__)[-size:]
    full = [batch for batch in indices if len(batch) == size] if key == "batch_size" else indices
    full = full or indices
    number = max(TIMED_BATCHES, -(-TIMED_EXAMPLES // len(full[0])))
    return loader.examples[0, longest], [loader.examples[0, full[i % len(full)]] for i in range(number)]


class _Clock(_OneTraining):
    """Times each training batch, with a learning rate of 0."""

    def __init__(self, signals: StopSignals | None):
        super().__init__(signals)
        self.wall, self.processor, self.on_gpu = list[float](), list[float](), False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Sets the rate to 0: no step changes a weight, so none diverges."""
        super().on_train_start(trainer, pl_module)
        self.on_gpu = trainer.strategy.root_device.type == "cuda"
        for group in trainer.optimizers[0].param_groups:
            group["lr"] = 0.0

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Starts both clocks."""
        self._started = self._now()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Reads both clocks."""
        wall, processor = self._now()
        self.wall.append(wall - self._started[0])
        self.processor.append(processor - self._started[1])

    def _now(self) -> tuple[float, float]:
        if self.on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter(), time.process_time()


# ── short trainings ──────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _trial(prepared: Prepared) -> Iterator[Prepared]:
    """A copy of the model with the same data; random numbers begin with the seed, and are restored at the end."""
    failure: BaseException | None = None
    with isolate_rng():
        try:
            seed_everything(prepared.seed, verbose=False)
            tried = replace(prepared, model=copy.deepcopy(prepared.model).train())
            compile_blocks(tried)
            recomputes = prepared.built.trainer["activation_checkpointing"]
            with silence_lightning(), activation_checkpointing(tried.model, enabled=recomputes):
                yield tried
        except BaseException as error:  # which would pass `isolate_rng` before it has put anything back
            failure = error
    if failure is not None:
        raise failure


def _settings(prepared: Prepared) -> dict[str, Any]:
    """Trainer settings of the recipe for a short training with the same steps, on one device, that writes nothing."""
    given = prepared.built.trainer
    if given["strategy"] == SHARDED:
        raise UsageError(f"tuning runs on one device, with whole weights; give --trainer.strategy auto, not {SHARDED}")
    world_size = make_trainer(given, logger=False, callbacks=[]).world_size
    return {
        **given,
        "devices": 1,
        "num_nodes": 1,
        "strategy": "auto",
        "accumulate_grad_batches": given["accumulate_grad_batches"] * world_size,
        "max_epochs": -1,  # as many as the steps take
        **dict.fromkeys(("max_time", "callbacks", "logger", "profiler")),
        **dict.fromkeys(("limit_val_batches", "log_every_n_steps"), 0),
        "enable_progress_bar": False,
    }
