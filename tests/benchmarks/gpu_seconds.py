"""Seconds of training on one GPU until the loss on tiny-shakespeare's last tenth is nanoGPT's published 1.4697.

    SEQKIT_DATA=FOLDER python tests/benchmarks/gpu_seconds.py          # reads FOLDER/tinyshakespeare/input.txt

Ours: `seqkit fit text/char-lm` with nanoGPT's width, depth, windows, batch and dropout, its own block, and Muon with
half of the recipe's rate. The peer: a plain torch model of nanoGPT's shape, initialisation and settings
(`config/train_shakespeare_char.py`), compiled, in bfloat16, whose batches are cut on the device. Both are validated on
the whole tenth every EVERY steps. The clock stands still meanwhile, and is read twice: with and without the first
WARM_UP steps, which compile and capture. One seed each.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import torch
from gpu_training import DoneError, Plain
from pytorch_lightning import Callback
from torch import nn

from seqkit.config import complete
from seqkit.data.sample import Sample, Splits
from seqkit.data.source import DataSource
from seqkit.registry import register
from seqkit.runs.run import run

TARGET, EVERY, WARM_UP = 1.4697, 50, 20
WIDTH, DEPTH, HEADS, WINDOW, BATCH, DROPOUT = 384, 6, 6, 256, 64, 0.2
WORDS = (
    f"--data shakespeare-tenth --data.window {WINDOW} --data.batch_size {BATCH} "
    f"--model.backbone.dim {WIDTH} --model.backbone.depth {DEPTH} --model.backbone.num_heads {HEADS} "
    f"--model.backbone.dropout {DROPOUT} --optimizer.lr 0.005 --optimizer.adamw.lr 0.003 "
    f"--trainer.val_check_interval {EVERY} --trainer.limit_val_batches null --trainer.weights last "
    "--trainer.enable_progress_bar false --trainer.callbacks [SecondsToLoss]"
)


def text() -> str:
    return (Path(os.environ["SEQKIT_DATA"]) / "tinyshakespeare" / "input.txt").read_text()


@register("data_source", "shakespeare-tenth")
class ShakespeareTenth(DataSource):
    """nanoGPT's split: the first 90 % train, the rest validates."""

    def splits(self) -> Splits:
        whole = text()
        cut = int(0.9 * len(whole))
        rest = [Sample(whole[cut:])]
        return Splits(train=[Sample(whole[:cut])], valid=rest, test=rest)


class Clock:
    """Counts the seconds of training, with and without those of the first steps."""

    def __init__(self) -> None:
        self.seconds, self.first, self.started = 0.0, 0.0, time.perf_counter()

    def stop(self) -> None:
        torch.cuda.synchronize()
        self.seconds += time.perf_counter() - self.started

    def start(self) -> None:
        self.started = time.perf_counter()

    def warm(self) -> None:
        self.stop()
        self.first = self.seconds
        self.start()

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.seconds - self.first:.2f} s without the first {WARM_UP} steps"


@register("callback")
class SecondsToLoss(Callback):
    """Ends the run when the validation loss is reached. said: what it took."""

    said: ClassVar[str] = "not reached"

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.clock = Clock()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == WARM_UP:
            self.clock.warm()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.global_step:
            self.clock.stop()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.global_step:
            return
        loss = float(trainer.callback_metrics["valid/loss"])
        print(f"ours, step {trainer.global_step}: {loss:.4f}, {self.clock}", flush=True)
        if loss <= TARGET:
            type(self).said = f"step {trainer.global_step}, {self.clock}"
            raise DoneError
        self.clock.start()


def ours(steps: int, words: list[str]) -> str:
    given = [*WORDS.split(), "--trainer.max_steps", str(steps), *words]
    with tempfile.TemporaryDirectory() as folder, suppress(DoneError):
        run(complete("text/char-lm", None, given), Path(folder) / "run")
    return SecondsToLoss.said


def peer(steps: int) -> str:
    whole = text()
    letters = {letter: i for i, letter in enumerate(sorted(set(whole)))}
    ids = torch.tensor([letters[letter] for letter in whole], device="cuda")
    train, rest = ids.split([int(0.9 * len(ids)), len(ids) - int(0.9 * len(ids))])
    torch.manual_seed(1)
    model = Plain(DEPTH, HEADS, WIDTH, len(letters), BATCH, WINDOW, dropout=DROPOUT)
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            nn.init.normal_(
                weight, std=0.02 / math.sqrt(2 * DEPTH) if "out" in name or "down" in name else 0.02
            )
    model = model.cuda()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim == 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
    compiled, columns = torch.compile(model), torch.arange(WINDOW + 1, device="cuda")
    windows = rest[: len(rest) // WINDOW * WINDOW + 1].unfold(0, WINDOW + 1, WINDOW)
    clock = Clock()
    for step in range(steps):
        decayed = 0.5 * (1 + math.cos(math.pi * max(0, step - 100) / 4900))
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (step + 1) / 101 if step < 100 else 1e-4 + 9e-4 * decayed
        at = torch.randint(len(train) - WINDOW, (BATCH, 1), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(train[at + columns])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step + 1 == WARM_UP:
            clock.warm()
        if (step + 1) % EVERY == 0:
            clock.stop()
            model.eval()
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                losses = [float(model(part)) * len(part) for part in windows.split(BATCH)]
            model.train()
            if sum(losses) / len(windows) <= TARGET:
                return f"step {step + 1}, {clock}"
            clock.start()
    return f"not reached in {steps} steps"


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--steps", type=int, default=1000, help="of our training; the peer's schedule is of 5,000"
    )
    options.add_argument("--only", choices=["ours", "peer"])
    options.add_argument("--words", default="", help="more settings of `seqkit fit`, in one string")
    args = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # what `fit` chose
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    if args.only != "peer":
        print("ours:", ours(args.steps, args.words.split()), flush=True)
    if args.only != "ours":
        print("peer:", peer(3000), flush=True)


if __name__ == "__main__":
    main()
