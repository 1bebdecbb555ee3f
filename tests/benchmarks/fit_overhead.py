"""What a step of `seqkit fit` costs beyond a bare loop over the same batches, as a ratio of processor time.

    OMP_NUM_THREADS=1 python tests/benchmarks/fit_overhead.py [--rounds 15]

Both train the model of text/char-lm with 4 layers of width 128 (12 windows of 64 tokens) and with 6 of width 384 (8 of
256). `fit` is the whole of `seqkit fit` between two optimizer steps: the loader, Lightning's loop and hooks, the guard,
metrics.csv, checkpoints by time, signals. The bare loop takes batches of the same loader: targets, forward, loss,
backward, norm and clipping, optimizer, learning rate. It trains a copy of the model inside a callback of the run, in
turns of STEPS steps with it, so that a busy machine slows both alike; the ratio is taken within a round. No speed is
asserted.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import torch
from pytorch_lightning import Callback
from rich.console import Console
from rich.table import Table

from seqkit.config import complete
from seqkit.registry import register
from seqkit.runs.run import run

STEPS = 20
WARM_UP = 5
SIZES = {
    "d 128": [],
    "d 384": ["--model.backbone.dim", "384", "--model.backbone.depth", "6", "--model.backbone.num_heads", "6",
              "--data.window", "256", "--data.batch_size", "8"],
}  # fmt: skip


class DoneError(Exception):
    """All rounds are measured: what follows training is not waited for."""


@register("callback")
class Turns(Callback):
    """Lets the bare loop and `fit` take turns. seconds: of a step of each, one pair a round, of the newest run."""

    seconds: ClassVar[list[tuple[float, float]]] = []

    def __init__(self, rounds: int):
        self.rounds = rounds
        self.seconds.clear()
        self._bare: Iterator[None] = iter(())
        self._started, self._count = 0.0, -WARM_UP

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._bare = self._loop(trainer, pl_module)
        for _ in range(WARM_UP):
            next(self._bare)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        now = time.process_time()
        self._count += 1
        if self._count > 0 and self._count % STEPS == 0:
            ours = (now - self._started) / STEPS
            began = time.process_time()
            for _ in range(STEPS):
                next(self._bare)
            self.seconds.append((ours, (time.process_time() - began) / STEPS))
            if len(self.seconds) == self.rounds:
                raise DoneError
        if self._count % STEPS == 0:
            self._started = time.process_time()

    def _loop(self, trainer: Any, pl_module: Any) -> Iterator[None]:
        """One step each time."""
        model, objective = copy.deepcopy(pl_module.model), pl_module.objective
        parameters = list(model.parameters())
        optimizer = pl_module.optimizer.build(model)
        scheduler = pl_module.schedule.build(optimizer, pl_module.num_steps)
        for batch in itertools.chain.from_iterable(itertools.repeat(trainer.train_dataloader)):
            inputs = objective.prepare(*batch)
            output = objective.loss(model(inputs.batch, inputs.masked), inputs.target, training=True)
            optimizer.zero_grad()
            (output.loss / output.count).backward()
            torch.nn.utils.clip_grad_norm_(parameters, trainer.gradient_clip_val)
            optimizer.step()
            scheduler.step()
            yield


def measure(words: list[str], rounds: int) -> list[tuple[float, float]]:
    """Seconds of a step of `fit` and of the bare loop, a pair a round."""
    steps = str(WARM_UP + STEPS * (rounds + 1))
    words = [*words, "--trainer.max_steps", steps, "--trainer.enable_progress_bar", "false"]
    words += ["--data.valid_fraction", "0", "--trainer.weights", "last"]
    words += ["--trainer.callbacks", f"[{{type: Turns, rounds: {rounds}}}]"]
    with tempfile.TemporaryDirectory() as folder, suppress(DoneError):
        run(complete("text/char-lm", None, words), Path(folder) / "run")
    return Turns.seconds


def main() -> None:
    """Measure both sizes and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=15)
    args = options.parse_args()
    table = Table("size", "fit, ms a step", "bare loop, ms a step", "ratio: median", "lowest", "highest")
    for name, words in SIZES.items():
        seconds = measure(words, args.rounds)
        ratios = sorted(ours / bare for ours, bare in seconds)
        ours, bare = (1000 * statistics.median(column) for column in zip(*seconds))
        table.add_row(
            name,
            f"{ours:.1f}",
            f"{bare:.1f}",
            f"{statistics.median(ratios):.3f}",
            f"{ratios[0]:.3f}",
            f"{ratios[-1]:.3f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
