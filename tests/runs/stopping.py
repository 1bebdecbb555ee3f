"""Runs that are stopped on purpose, and what has to be equal afterwards: of the tests and the fault injections."""

import csv
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback

from seqkit.config import complete
from seqkit.runs import run as run_module
from seqkit.runs.mixture import load

TEXT = "To be, or not to be, that is the question.\n" * 40

WORDS: dict[str, dict[str, Any]] = {
    "image/digits": {
        "data.augment": None,
        "data.limit": 40,
        "model.backbone.dim": 16,
        "model.backbone.depth": 1,
        "model.backbone.num_heads": 2,
        "model.dropout": 0.2,
        "data.batch_size": 7,
        "data.valid_fraction": 0.2,
    },
    "text/char-lm": {
        "data.limit": 24,
        "data.batch_size": 5,
        "data.window": 9,
        "data.valid_fraction": 0.1,
        "trainer.val_check_interval": None,
        "trainer.check_val_every_n_epoch": 1,
    },
    "graph/karate": {},
}


class Kick(Callback):
    """Sends a signal to this process in an optimizer step, or in the validation after it.

    step: number of optimizer steps when it has ended. twice: send another one immediately.
    """

    def __init__(
        self, step: int, phase: str = "train", number: int = signal.SIGTERM, *, twice: bool = False
    ):
        self.step: int | None = step
        self.phase, self.number, self.twice = phase, number, twice

    def on_before_optimizer_step(self, trainer, module, optimizer):
        if self.phase == "train" and self.step is not None and trainer.global_step == self.step - 1:
            self._send()

    def on_validation_batch_start(self, trainer, module, batch, index, loader=0):
        if (
            self.phase == "valid"
            and trainer.global_step == self.step
            and not trainer.sanity_checking
        ):
            self._send()

    def _send(self):
        self.step = None
        for _ in range(1 + self.twice):
            os.kill(os.getpid(), self.number)


@contextmanager
def with_callback(callback: Callback) -> Iterator[None]:
    """Every run that begins inside has this callback, before all others."""
    before = run_module.RunSetup

    class WithCallback(before):
        def trainer(self, validates):
            made = super().trainer(validates)
            made.callbacks.insert(0, callback)
            return made

    run_module.RunSetup = WithCallback
    try:
        yield
    finally:
        run_module.RunSetup = before


def config(recipe: str, **words: Any) -> dict[str, Any]:
    """A complete configuration that trains in a second. words: keys with `__` for a dot."""
    common = {
        "trainer.enable_progress_bar": False,
        "trainer.log_every_n_steps": 1,
        "trainer.weights": "last",
    }
    words = {**common, **WORDS[recipe], **words}
    return complete(
        recipe, "debug", {name.replace("__", "."): value for name, value in words.items()}
    )


def rows(folder: Path) -> list[dict[str, str]]:
    """metrics.csv without what depends on the clock."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [
            {name: value for name, value in row.items() if value and "per_second" not in name}
            for row in csv.DictReader(file)
        ]


def differences(one: Path, other: Path) -> str:
    """What differs between two trained runs, of weights (to the bit) and logged rows; empty where nothing does."""
    first, second = load(one).model.state_dict(), load(other).model.state_dict()
    if first.keys() != second.keys():
        return "the weights have other names"
    if wrong := [name for name in first if not torch.equal(first[name], second[name])]:
        return f"{len(wrong)} of {len(first)} weights differ, {wrong[0]} among them"
    return "" if rows(one) == rows(other) else "metrics.csv differs"
