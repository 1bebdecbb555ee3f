"""What surrounds a model costs: loading, preparing and Lightning, as shares of a training step's processor time.

    OMP_NUM_THREADS=1 python tests/benchmarks/glue.py                    # four recipes, every backbone
    OMP_NUM_THREADS=1 python tests/benchmarks/glue.py image GRU          # rows that hold all of the words

A row is a recipe with a backbone. Columns, in milliseconds of processor time and, behind them, per cent of a whole step
(of the bare step for `backbone`):

    step       the objective's `prepare`, forward, loss, backward, clipping and optimizer, in a bare loop
    backbone   of that, the backbone's forward and backward
    load       one batch from the training loader, augmentation switched off; the mean over an epoch
    augmented  the same with the recipe's augmentation; a dash where it has none
    around     what a step of `Trainer.fit` takes beside the model's forward, the backward pass, clipping and optimizer:
               `prepare`, the loss, logging, hooks, Lightning's loop; the median over steps
    glue       load (augmented, where the recipe augments) + around, of load + a step of `Trainer.fit`

The bare steps of all backbones of a recipe take turns. No speed is asserted: machines are noisy.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn

from seqkit.analysis.speed import Candidate, Cost, Training, measure
from seqkit.config import build, complete
from seqkit.data.module import DataModule
from seqkit.model import Model
from seqkit.registry import components
from seqkit.runs.prepare import untrained
from seqkit.training.module import TrainingModule
from seqkit.training.trainer import make_trainer, silence_lightning

RECIPES = {
    "text/char-lm": ["--data.source", "tinyshakespeare"],
    "image/digits": [],
    "audio/spoken-digits": ["--data.source", "fsdd"],
    "graph/solubility": [],
}
PRESETS = {"Transformer": None, "GRU": "gru", "LSTM": "lstm"}
"""Those that recipes have sizes for; the others take the Transformer's width and depth."""

OTHERS = ("TCN", "Mamba", "S4D", "LinearTransformer", "GIN", "GCN")
ALONG_EDGES = ("Transformer", "GIN", "GCN")
NUM_BATCHES = 5
STEPS_IN_LIGHTNING = 40


def configuration(recipe: str, backbone: str) -> dict[str, Any]:
    """The recipe with that backbone. Raises ValueError where it refuses it."""
    if backbone in PRESETS:
        return complete(recipe, PRESETS[backbone], RECIPES[recipe])
    words = ["--model.backbone", backbone, "--optimizer", "AdamW"]  # Muon takes no convolutions
    if recipe.startswith("graph/") and backbone not in ALONG_EDGES:
        words += ["--model.adjacency", "ignore"]
    return complete(recipe, None, [*words, *RECIPES[recipe]])


def loading(data: DataModule) -> float:
    """Seconds a batch, the mean over an epoch of the training loader."""
    loader = data.train_dataloader()
    started = time.process_time()
    count = sum(1 for _ in loader)
    return (time.process_time() - started) / count


class Timer(pl.Callback):
    """Processor seconds of each step of `Trainer.fit`: all of it, and what is around model, backward and optimizer."""

    def __init__(self) -> None:
        self.steps, self.around = list[float](), list[float]()
        self._step_started, self._started, self._inside = 0.0, 0.0, 0.0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        pl_module.model.register_forward_pre_hook(lambda *_: self._begin())
        pl_module.model.register_forward_hook(lambda *_: self._end())
        trainer.optimizers[0].register_step_post_hook(lambda *_: self._end())
        self._step_started = time.process_time()

    def on_before_backward(self, *_: Any) -> None:
        self._begin()

    def on_after_backward(self, *_: Any) -> None:
        self._end()

    def on_before_optimizer_step(self, *_: Any) -> None:
        self._begin()  # scaling and clipping are between this hook and the optimizer's own step

    def on_train_batch_end(self, *_: Any) -> None:
        now = time.process_time()
        self.steps.append(now - self._step_started)
        self.around.append(now - self._step_started - self._inside)
        self._step_started, self._inside = now, 0.0

    def _begin(self) -> None:
        self._started = time.process_time()

    def _end(self) -> None:
        self._inside += time.process_time() - self._started


class Stopwatch:
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

    def __enter__(self) -> Stopwatch:
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


def backbone_share(candidate: Candidate) -> float:
    """Share of a bare step that the backbone takes, the median over steps on the batches."""
    training, shares = Training(candidate), []
    for batch in (candidate.batches[0], *candidate.batches):
        started = training.now()
        with Stopwatch(training.model.backbone, training.now) as watch:
            training.step(batch)
        shares.append(watch.seconds / (training.now() - started))
    return statistics.median(shares[1:])  # the first step loads what is loaded at first use


def in_lightning(config: dict[str, Any], model: Model, data: DataModule, batches: Sequence[Any]) -> tuple[float, float]:
    """Seconds of a step of `Trainer.fit` over batches that are there already, and of that what is around the model."""
    built = build(config)
    timer = Timer()
    with tempfile.TemporaryDirectory() as folder, silence_lightning():
        settings = {**built.trainer, "max_epochs": 1, "max_steps": -1, "enable_progress_bar": False}
        trainer = make_trainer(settings, logger=CSVLogger(folder, name="", version=""), callbacks=[timer])
        module = TrainingModule(
            model,
            data.objective,
            optimizer=built.optimizer,
            schedule=built.schedule,
            num_steps=1000,  # of the schedule: longer than any recipe's warm-up
        )
        steps = list(itertools.islice(itertools.cycle(batches), STEPS_IN_LIGHTNING))
        trainer.fit(module, train_dataloaders=torch.utils.data.DataLoader(steps, batch_size=None))  # type: ignore[arg-type]
    return statistics.median(timer.steps[5:]), statistics.median(timer.around[5:])


def rows(recipe: str, backbones: Sequence[str], seconds: float) -> list[str]:
    """Rows of the table; a backbone that the recipe refuses is left out, and said."""
    ready: dict[str, tuple[dict[str, Any], Model, DataModule]] = {}
    for name in backbones:
        try:
            config = configuration(recipe, name)
            ready[name] = (config, *untrained(config))
        except ValueError as error:
            print(f"{recipe} {name}: {error}", file=sys.stderr)
    if not ready:
        return []
    some = next(iter(ready.values()))
    augmented = loading(some[2]) if some[2].augment else None
    some[2].augment = []
    some[2]._datasets.clear()
    load = loading(some[2])
    batches = list(itertools.islice(some[2].train_dataloader(), NUM_BATCHES))
    candidates = {
        name: Candidate(model, data.objective, build(config).optimizer, batches, clip=1.0)
        for name, (config, model, data) in ready.items()
    }
    costs = measure(candidates, seconds=seconds * len(candidates))
    return [
        row(
            recipe,
            name,
            costs[name],
            backbone_share(candidates[name]),
            load,
            augmented,
            *in_lightning(config, model, data, batches),
        )
        for name, (config, model, data) in ready.items()
    ]


def row(
    recipe: str,
    name: str,
    cost: Cost,
    backbone: float,
    load: float,
    augmented: float | None,
    step: float,
    around: float,
) -> str:
    bare = cost.step_seconds
    glue = around + (load if augmented is None else augmented)
    whole = step + glue - around  # a step of `Trainer.fit` has `around` in it
    cells = [f"{1000 * bare:.2f}", f"{100 * backbone:.0f} %"]
    for value in (load, augmented, around, glue):
        cells.append("–" if value is None else f"{1000 * value:.2f} ({100 * value / whole:.1f} %)")
    return f"| {recipe} | {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only rows whose recipe and backbone hold all of these")
    parser.add_argument("--seconds", type=float, default=6.0, help="processor time of the bare steps of one row")
    args = parser.parse_args()
    known = [name for name in (*PRESETS, *OTHERS) if name in components("backbone")]
    print("| recipe | model | step | backbone | load | augmented | around | glue |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for recipe in RECIPES:
        chosen = [name for name in known if all(word in f"{recipe} {name}" for word in args.words)]
        for line in rows(recipe, chosen, args.seconds) if chosen else []:
            print(line, flush=True)


if __name__ == "__main__":
    main()
