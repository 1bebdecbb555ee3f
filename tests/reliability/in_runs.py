"""Faults of a running training: it is stopped or killed, or its numbers are not finite."""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback
from reliability.forked import (
    CRASHED,
    SECONDS,
    Case,
    Ended,
    Lost,
    Silent,
    command,
    fit_words,
    forked,
    started,
)
from runs.stopping import Kick, differences, with_callback

from seqkit.files import read_mapping
from seqkit.training.checkpoint_files import newest_good
from seqkit.training.checkpoint_io import read_checkpoint

BACKBONES = ("Transformer", "GRU")
RECIPES = ("text/char-lm", "image/digits", "audio/spoken-digits", "graph/karate")

# ── exact resume ─────────────────────────────────────────────────────────────────────────────────────────────────────

PER_EPOCH = {"text/char-lm": 5, "image/digits": 6, "audio/spoken-digits": 4, "graph/karate": 1}
"""Optimizer steps of an epoch of the runs in `forked.SMALL`; looked at in every try."""


def resumes(data: Path, workers: tuple[int, ...] = (0, 2)) -> Iterator[Case]:
    """Each case is a whole run, and the same one stopped and resumed at three points."""
    for recipe in RECIPES:
        for backbone in BACKBONES:
            for num_workers in workers:
                for end in ("steps", "epochs"):
                    yield from _resumes_of(data, recipe, backbone, num_workers, end)
    for recipe in ("text/char-lm", "image/digits"):
        yield from _resumes_of(data, recipe, "Transformer of experts", 0, "epochs")


def _resumes_of(
    data: Path, recipe: str, backbone: str, num_workers: int, end: str
) -> Iterator[Case]:
    per_epoch = PER_EPOCH[recipe]
    bound = {"trainer__max_epochs": -1, "trainer__max_steps": 2 * per_epoch + 2}
    if end == "epochs":
        bound = {"trainer__max_epochs": 3, "trainer__max_steps": -1}
    words = {**bound, "data__num_workers": num_workers, **backbone_words(recipe, backbone)}
    whole = data / f"whole-{recipe.replace('/', '-')}-{backbone}-{num_workers}-{end}"
    points = {
        "in an epoch": per_epoch + 1 if per_epoch > 1 else 1,
        "at the last step of an epoch": per_epoch if per_epoch > 1 else 2,
    }
    if recipe != "graph/karate":  # its nodes for validation are left out here
        points |= {"in the validation": per_epoch, "after the validation": per_epoch + 1}
    for where, step in points.items():
        name = f"{recipe}, {backbone}, {num_workers} workers, by {end}, stopped {where}"
        phase = "valid" if where == "in the validation" else "train"
        yield Case(name, partial(_resumed_equals, data, recipe, words, whole, Kick(step, phase)))


def backbone_words(recipe: str, backbone: str) -> dict[str, Any]:
    """Words that give a recipe this backbone, in the size of the short runs."""
    if backbone == "Transformer":
        return {}
    if backbone == "Transformer of experts":
        return {"model__backbone__block__mlp": "{type: MixtureOfExperts, num_experts: 3}"}
    return {
        "model__backbone": f"{{type: {backbone}, dim: 16, depth: 1, dropout: 0.2}}", "model__backbone__dim": 16,
        "model__backbone__depth": 1, **({"model__backbone__causal": "true"} if recipe == "text/char-lm" else {}),
        **({"model__adjacency": "ignore"} if recipe == "graph/karate" else {}),
    }  # fmt: skip


def whole_run(data: Path, recipe: str, words: dict[str, Any], whole: Path) -> Path:
    """The run that is never stopped, made once."""
    if not (whole / "summary.json").exists():
        whole.parent.mkdir(parents=True, exist_ok=True)
        ended = forked(command(*fit_words(recipe, whole, data, **words)), whole.parent)
        if ended.code != 0:
            raise RuntimeError(f"the whole run of {recipe} does not train: {ended.said[-300:]}")
    return whole


def _resumed_equals(
    data: Path, recipe: str, words: dict[str, Any], whole: Path, kick: Kick, folder: Path
) -> None:
    whole_run(data, recipe, words, whole)
    run = folder / "run"

    def stop() -> int:
        with with_callback(kick):
            return command(*fit_words(recipe, run, data, **words))()

    step, ends = kick.step, PER_EPOCH[recipe]
    stopped = forked(stop, folder)
    if stopped.code != 128 + signal.SIGTERM or f"stopped after step {step} of" not in stopped.said:
        raise Lost(f"stopping ended with {stopped.code}: {stopped.said[-300:]!r}")
    found = newest_good(run / "checkpoints")
    if found is None or read_checkpoint(found.path)["resume"]["epoch_ends"] != (step % ends == 0):
        raise Lost("it was not stopped at the point that was meant")
    resume_to_the_end(run, whole, folder)


def resume_to_the_end(run: Path, whole: Path, folder: Path) -> None:
    """Resume a run; raises Lost where it does not end as the whole one."""
    ended = forked(command("fit", "--resume", str(run)), folder)
    if ended.code != 0:
        raise Lost(f"resuming ended with {ended.code}: {ended.said[-300:]!r}")
    if wrong := differences(whole, run):
        raise Silent(f"it ended otherwise than the whole run: {wrong}")


def repeats(data: Path) -> Iterator[Case]:
    """The same command twice."""
    for recipe in RECIPES:
        for backbone in BACKBONES:
            yield Case(
                f"{recipe}, {backbone}",
                partial(_repeated, data, recipe, backbone_words(recipe, backbone)),
            )


def _repeated(data: Path, recipe: str, words: dict[str, Any], folder: Path) -> None:
    runs = [folder / name for name in ("one", "other")]
    for run in runs:
        if (ended := forked(command(*fit_words(recipe, run, data, **words)), folder)).code != 0:
            raise Lost(ended.said[-300:])
    if wrong := differences(*runs):
        raise Silent(wrong)


# ── three kills, and every example once ──────────────────────────────────────────────────────────────────────────────


class Examples(Callback):
    """Writes the examples of every training batch to a file: a line for each, with the step that it belongs to."""

    def __init__(self, path: Path):
        self.path = path

    def on_train_batch_start(self, trainer, module, batch, index):
        loader = trainer.train_dataloader
        names = loader.epoch_batches.own()[index]
        line = {
            "step": trainer.global_step,
            "epoch": trainer.current_epoch,
            "examples": list(map(int, names)),
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def killed_thrice(data: Path, number: int) -> Iterator[Case]:
    """Three kills at random times in a run, and a checkpoint every one to three steps."""
    generator = random.Random(5)
    for i in range(number):
        recipe = ("text/char-lm", "image/digits", "audio/spoken-digits")[i % 3]
        yield Case(f"{recipe}, {i % 3 + 1} steps a checkpoint", partial(_killed_thrice, data, recipe, i % 3 + 1,
                                                                       generator.randrange(2**31)))  # fmt: skip


def _killed_thrice(data: Path, recipe: str, every: int, seed: int, folder: Path) -> None:
    generator = random.Random(seed)
    words = {"trainer__max_epochs": 20, "trainer__max_steps": -1, "data__num_workers": 0}
    whole = whole_run(data, recipe, words, data / f"whole-{recipe.replace('/', '-')}-twenty")
    run, used = folder / "run", folder / "used"
    fit = fit_words(recipe, run, data, **words, trainer__checkpoint_every_n_steps=every)
    num_steps = read_mapping(whole / "summary.json")["steps"]

    def work(words: list[str]) -> Callable[[], int]:
        def inner() -> int:
            with with_callback(Examples(used)):
                return command(*words)()

        return inner

    for kill in range(3):
        before = newest_good(run / "checkpoints")
        until = num_steps * (kill + 1) / 4 * generator.uniform(0.7, 1.1)
        process = started(
            work(["fit", "--resume", str(run)] if kill else fit), folder / f"said-{kill}"
        )
        deadline = time.monotonic() + SECONDS
        while _steps_on_disk(run) < until:
            if time.monotonic() > deadline or os.waitpid(process.pid, os.WNOHANG)[0]:
                raise Lost(f"it ended by itself: {process.said.read_text()[-300:]!r}")
            time.sleep(0.003)
        time.sleep(generator.uniform(0, 0.03))
        os.kill(process.pid, signal.SIGKILL)
        if process.ended().code != -signal.SIGKILL:
            raise Lost("it ended by itself")
        found = newest_good(run / "checkpoints")
        if found is None or (before is not None and found.step < before.step):
            raise Lost("the last good checkpoint is gone")
        _keep_until(used, found.step)
    ended = forked(work(["fit", "--resume", str(run)]), folder)
    if ended.code != 0:
        raise Lost(f"resuming ended with {ended.code}: {ended.said[-300:]!r}")
    if wrong := differences(whole, run):
        raise Silent(f"it ended otherwise than the whole run: {wrong}")
    _check_each_once(used, num_steps)


def _steps_on_disk(run: Path) -> int:
    names = [path.name for path in run.glob("checkpoints/resume-step=*.ckpt.json")]
    return max((int(name.removeprefix("resume-step=").split(".")[0]) for name in names), default=0)


def _keep_until(used: Path, step: int) -> None:
    """Leave out what was trained after the checkpoint that the next process goes on from."""
    lines = []
    for line in used.read_text().splitlines():
        try:
            known = json.loads(line)
        except ValueError:  # cut by the kill
            continue
        if known["step"] < step:
            lines.append(line)
    used.write_text("".join(f"{line}\n" for line in lines))


def _check_each_once(used: Path, num_steps: int) -> None:
    epochs: dict[int, list[int]] = {}
    lines = [json.loads(line) for line in used.read_text().splitlines()]
    if [line["step"] for line in lines] != list(range(num_steps)):
        raise Silent("a step was trained twice or left out")
    for line in lines:
        epochs.setdefault(line["epoch"], []).extend(line["examples"])
    everything = sorted(epochs[0])
    for epoch, examples in epochs.items():
        if sorted(examples) != everything or len(set(examples)) != len(examples):
            raise Silent(f"epoch {epoch} did not use each example once")


# ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────────────

SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGKILL")
PHASES = {
    "reading data": ("seqkit.data.module", "DataModule", "setup"),
    "first step": 1,
    "mid epoch": 7,
    "last step of an epoch": 10,
    "validation": 10,
    "writing a checkpoint": ("seqkit.training.checkpoint_io", None, "sha256_of"),
    "testing": ("seqkit.training.module", "TrainingModule", "test_step"),
    "writing the page": ("seqkit.report.page", None, "write_report"),
}
"""Phase: the optimizer step in which the signal arrives, or the function before which it does."""


def signals(data: Path) -> Iterator[Case]:
    """Every signal in every phase, once and twice; a run can be killed but once."""
    for name in SIGNALS:
        for phase in PHASES:
            for twice in (False, True) if name != "SIGKILL" else (False,):
                words = f"{name}{', twice' * twice}, {phase}"
                yield Case(words, partial(_signal, data, getattr(signal, name), phase, twice))


def _signal(data: Path, number: int, phase: str, twice: bool, folder: Path) -> None:
    words = {"trainer__max_steps": 12, "data__num_workers": 0}
    whole = whole_run(data, "text/char-lm", words, data / "whole-signals")
    run = folder / "run"
    fit = fit_words("text/char-lm", run, data, **words, trainer__checkpoint_every_n_steps=2)

    def work() -> int:
        where = PHASES[phase]
        if isinstance(where, int):
            with with_callback(
                Kick(where, "valid" if phase == "validation" else "train", number, twice=twice)
            ):
                return command(*fit, report=True)()
        _send_before(*where, [number] * (1 + twice))
        return command(*fit, report=True)()

    ended = forked(work, folder)
    _check_code(ended, number, twice, phase)
    if phase == "reading data":
        if run.exists():
            raise Lost("a folder is left, though nothing was trained")
        return
    summary = read_mapping(run / "summary.json") if (run / "summary.json").exists() else {}
    if phase in ("testing", "writing the page"):
        if summary.get("state") != ("trained" if phase == "testing" else "finished"):
            raise Lost(f"the summary says {summary.get('state')}")
        then = forked(
            command("evaluate" if phase == "testing" else "report", str(run), report=True), folder
        )
        if then.code != 0 or not (run / "report.html").exists() or differences(whole, run):
            raise Lost(f"it could not be finished: {then.said[-300:]!r}")
        return
    if summary:
        raise Silent(f"the summary says {summary.get('state')}")
    found = newest_good(run / "checkpoints")
    # one that was killed before its first checkpoint begins anew
    may_lack = phase in ("first step", "writing a checkpoint") and (
        twice or number == signal.SIGKILL
    )
    if found is None and not may_lack:
        raise Lost("there is no good checkpoint")
    resume_to_the_end(run, whole, folder)


def _check_code(ended: Ended, number: int, twice: bool, phase: str) -> None:
    """128 + n, as a shell shows it: by exit, or by dying of the signal."""
    if ended.code not in (128 + number, -number):
        raise Lost(f"the exit code is {ended.code}: {ended.said[-200:]!r}")
    if "Traceback" in ended.said:
        raise Lost(f"a traceback: {ended.said[-200:]!r}")
    if not twice and number != signal.SIGKILL and phase != "writing the page":
        name = signal.Signals(number).name
        if ended.code != 128 + number or name not in ended.said:
            raise Lost(f"it does not say what stopped it: {ended.said[-200:]!r}")


def _send_before(module: str, owner: str | None, name: str, numbers: list[int]) -> None:
    """Make a function of seqkit send signals to its own process when it is first called."""
    from importlib import import_module

    place = import_module(module)
    place = place if owner is None else getattr(place, owner)
    before = getattr(place, name)
    waiting = list(numbers)

    def sends(*arguments: Any, **named: Any) -> Any:
        while waiting:
            os.kill(os.getpid(), waiting.pop())
        return before(*arguments, **named)

    setattr(place, name, sends)


# ── numbers that are not finite ──────────────────────────────────────────────────────────────────────────────────────

LAST = 12
"""Optimizer steps of the runs into which numbers that are not finite are put."""

PLACES = ("input", "label", "loss", "gradient", "parameter")


class NotFinite(Callback):
    """Puts a number that is not finite into a training, at one optimizer step (counted from 1)."""

    def __init__(self, place: str, value: float, step: int):
        self.place, self.value, self.step = place, value, step
        self.is_on = False

    def on_train_start(self, trainer, module):
        if self.place == "gradient":
            parameter = next(p for p in module.parameters() if p.requires_grad)
            parameter.register_hook(
                lambda gradient: torch.full_like(gradient, self.value) if self.is_on else gradient
            )
        if self.place == "loss":
            loss = module.objective.loss
            module.objective.loss = lambda *a, **k: self._spoiled(loss(*a, **k))

    def _spoiled(self, output):
        return replace(output, loss=output.loss * self.value) if self.is_on else output

    def on_train_batch_start(self, trainer, module, batch, index):
        self.is_on = trainer.global_step == self.step - 1
        if self.is_on and self.place == "input":
            batch[0].content.view(-1)[0] = self.value
        if self.is_on and self.place == "label":
            batch[1].view(-1)[0] = self.value

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if self.place == "parameter" and trainer.global_step == self.step:
            with torch.no_grad():
                next(module.parameters()).view(-1)[0] = self.value
        self.is_on = False


def not_finite(data: Path) -> Iterator[Case]:
    """NaN and infinity in the first, a middle and the last step; and with one step that may be left out."""
    for place in PLACES:
        # a label that is NaN is one that is not known, and left out
        for value in (float("inf"), float("-inf")) + (() if place == "label" else (float("nan"),)):
            for step in (1, 5, LAST):
                yield Case(
                    f"{value} in the {place} of step {step}",
                    partial(_not_finite, data, place, value, step, 0),
                )
    for place in ("input", "label", "loss", "gradient"):
        name = f"inf in the {place}, one step may be left out"
        yield Case(name, partial(_not_finite, data, place, float("inf"), 5, 1))


def _not_finite(data: Path, place: str, value: float, step: int, budget: int, folder: Path) -> None:
    run = folder / "run"
    words = fit_words("mechanism/tasks", run, data, trainer__checkpoint_every_n_steps=2,
                      trainer__skip_nonfinite=budget)  # fmt: skip

    def work() -> int:
        with with_callback(NotFinite(place, value, step)):
            return command(*words)()

    ended = forked(work, folder)
    state = (
        read_mapping(run / "summary.json").get("state") if (run / "summary.json").exists() else None
    )
    _check_finite_on_disk(run)
    if budget:
        told = (run / "log.txt").read_text(encoding="utf-8")
        if (ended.code, state) != (0, "finished") or "the step was left out, 1 of 1" not in told:
            raise Lost(f"it ended with {ended.code}: {ended.said[-300:]!r}")
        return
    if ended.code == 0 or state in ("finished", "trained"):
        raise Silent(f"it ended with {ended.code}, {state}")
    lines = [line for line in ended.said.splitlines() if "seqkit fit:" in line]
    if ended.code == CRASHED or len(lines) != 1 or "Traceback" in ended.said:
        raise Lost(f"it ended with {ended.code}: {ended.said[-300:]!r}")
    words = ("batch", "is not finite", "the weight")
    if "step" not in lines[0] or not any(word in lines[0] for word in words):
        raise Lost(f"the message names no step: {lines[0]}")


def _check_finite_on_disk(run: Path) -> None:
    from safetensors.torch import load_file

    found = [load_file(path) for path in run.glob("checkpoints/*.safetensors")]
    found += [read_checkpoint(path)["state_dict"] for path in run.glob("checkpoints/*.ckpt")]
    for weights in found:
        for name, weight in weights.items():
            if weight.is_floating_point() and not bool(weight.isfinite().all()):
                raise Silent(f"{name} on the disk is not finite")
