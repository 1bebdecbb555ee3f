"""Faults of a distributed run: two or three processes on the CPU, started side by side as a cluster does."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback
from reliability.forked import Case, Lost, Silent, Started, command, fit_words, started
from reliability.in_runs import NotFinite, whole_run
from runs.stopping import differences, with_callback

LIMIT = 30.0
"""Seconds after which all processes have to have ended."""


def ranks(work: Any, number: int, folder: Path) -> list[Started]:
    """The processes of a distributed run. work: of a rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def inner(rank: int) -> int | None:
        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(number), "LOCAL_WORLD_SIZE": str(number),
            "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "reliability",
            "GROUP_RANK": "0",
        }  # fmt: skip
        cores = os.cpu_count() or 1
        os.cpu_count = lambda: max(number, cores)  # three processes fit on two cores for a second
        return work(rank)

    return [started(partial(inner, rank), folder / f"said-{rank}") for rank in range(number)]


TWO = {"trainer__devices": 2, "trainer__strategy": "ddp", "data__num_workers": 0}
DATA_OF_TWO = {"data__batch_size": 4, "data__limit": 40}


def failing_ranks(data: Path) -> Iterator[Case]:
    """What happens to one of the two, and to which."""
    for whom in (0, 1):
        for what in ("exception", "NaN", "SIGKILL", "SIGTERM"):
            for step in (1, 6):
                name = f"{what} in process {whom + 1} of 2, step {step}"
                yield Case(name, partial(_failing, data, what, whom, step))


class _Fails(Callback):
    def __init__(self, what: str, step: int):
        self.what, self.step = what, step

    def on_before_optimizer_step(self, trainer, module, optimizer):
        if trainer.global_step != self.step - 1:
            return
        if self.what == "exception":
            raise RuntimeError("this process fails")
        os.kill(os.getpid(), getattr(signal, self.what))


def _failing(data: Path, what: str, whom: int, step: int, folder: Path) -> None:
    run = folder / "run"
    words = fit_words("text/char-lm", run, data, **TWO, **DATA_OF_TWO, trainer__max_steps=2000,
                      trainer__checkpoint_every_n_steps=2)  # fmt: skip
    fault = NotFinite("loss", float("nan"), step) if what == "NaN" else _Fails(what, step)

    def work(rank: int) -> int:
        if rank != whom:
            return command(*words)()
        with with_callback(fault):
            return command(*words)()

    processes, began = ranks(work, 2, folder), time.monotonic()
    ended = [process.ended() for process in processes]
    seconds = time.monotonic() - began
    if seconds > LIMIT + 10:  # the processes take seconds to begin
        raise Lost(f"the processes ended after {seconds:.0f} s")
    codes, said = [one.code for one in ended], "".join(one.said for one in ended)
    if all(code == 0 for code in codes):
        raise Silent("both processes ended with 0")
    if (run / "summary.json").exists() and '"diverged"' not in (run / "summary.json").read_text():
        raise Silent("a summary says that it was trained")
    if what == "NaN" and (codes != [1, 1] or "the loss is nan" not in said):
        raise Lost(f"it ended with {codes}: {said[-300:]!r}")
    if what == "SIGTERM" and (
        codes[0] != 128 + signal.SIGTERM or codes[1] or "go on with" not in said
    ):
        raise Lost(f"it ended with {codes}: {said[-300:]!r}")


def evaluations(data: Path) -> Iterator[Case]:
    """Metrics of the validation split on one, two and three processes."""
    yield Case("fewer validation batches than processes", partial(_too_few, data))
    for recipe in ("text/char-lm", "image/digits", "audio/spoken-digits", "mechanism/tasks"):
        for size in (2, 3, 4):
            yield Case(f"{recipe}, batches of {size}", partial(_evaluated, data, recipe, size))


def _too_few(data: Path, folder: Path) -> None:
    fit = command(*fit_words("mechanism/tasks", folder / "run", data, **TWO))
    ended = [process.ended() for process in ranks(lambda rank: fit(), 2, folder)]
    lines = [line for line in ended[0].said.splitlines() if line.startswith("seqkit fit:")]
    if (
        [one.code for one in ended] != [2, 2]
        or len(lines) != 1
        or "fewer than the 2 devices" not in lines[0]
    ):
        raise Lost(f"it ended with {[one.code for one in ended]}: {ended[0].said[-300:]!r}")


def _evaluated(data: Path, recipe: str, size: int, folder: Path) -> None:
    found = []
    for number in (1, 2, 3):
        place = folder / str(number)
        place.mkdir()
        processes = ranks(partial(_evaluate, data, recipe, size, number, place), number, place)
        ended = [process.ended() for process in processes]
        if any(one.code for one in ended):
            raise Lost(
                f"{number} processes ended with {[one.code for one in ended]}: {ended[0].said[-300:]!r}"
            )
        found.append(torch.load(place / "metrics", weights_only=True))
    for number, metrics in zip((2, 3), found[1:]):
        for name, value in found[0].items():
            if abs(metrics[name] - value) > 1e-5 * max(1.0, abs(value)):
                raise Silent(f"{name} is {value} on one process, and {metrics[name]} on {number}")


def _evaluate(data: Path, recipe: str, size: int, number: int, place: Path, rank: int) -> None:
    from seqkit.cli.parser import parser
    from seqkit.config import complete
    from seqkit.runs.prepare import prepare
    from seqkit.training.module import TrainingModule
    from seqkit.training.trainer import make_trainer

    words = fit_words(recipe, place / "run", data, data__batch_size=size, data__valid_fraction=0.4)
    _, overrides = parser().parse_known_args(words)
    prepared = prepare(complete(recipe, "debug", overrides))
    more = {"devices": number, "strategy": "ddp"} if number > 1 else {}
    trainer = make_trainer(
        {"accelerator": "cpu", "enable_progress_bar": False, **more}, logger=False
    )
    module = TrainingModule(prepared.model, prepared.data.objective, seed=1)
    (metrics,) = trainer.validate(module, prepared.data.val_dataloader(), verbose=False)
    if rank == 0:
        torch.save(metrics, place / "metrics")


def accumulations(data: Path) -> Iterator[Case]:
    """Two processes take the steps that two micro-batches take on one."""
    for recipe in ("text/char-lm", "image/digits"):
        for steps in (2, 6):
            yield Case(f"{recipe}, {steps} steps", partial(_accumulated, data, recipe, steps))


def _accumulated(data: Path, recipe: str, steps: int, folder: Path) -> None:
    from seqkit.runs.mixture import load

    words = {"trainer__max_steps": steps, "trainer__max_epochs": -1, "model__dropout": 0.0, "data__batch_size": 4,
             "optimizer": "torch.optim.SGD", "optimizer__lr": 0.1}  # fmt: skip
    two, one = folder / "two", folder / "one"
    fit = command(*fit_words(recipe, two, data, **words, **TWO))
    ended = [process.ended() for process in ranks(lambda rank: fit(), 2, folder)]
    if any(process.code for process in ended):
        raise Lost(f"it ended with {[process.code for process in ended]}: {ended[0].said[-300:]!r}")
    whole_run(data, recipe, {**words, "trainer__accumulate_grad_batches": 2}, one)
    first, second = load(one).model.state_dict(), load(two).model.state_dict()
    for name in first:
        if not torch.allclose(first[name], second[name], rtol=0, atol=1e-5):
            raise Silent(f"{name} differs by {float((first[name] - second[name]).abs().max()):.2g}")


def resumes_of_two(data: Path) -> Iterator[Case]:
    """A signal to one of two processes, and a run that is resumed by two."""
    for backbone in ("Transformer", "GRU"):
        for step in (3, 5):
            for whom in (0, 1):
                name = f"{backbone}, process {whom + 1} of 2, after step {step}"
                yield Case(name, partial(_resumed_by_two, data, backbone, step, whom))


def _resumed_by_two(data: Path, backbone: str, step: int, whom: int, folder: Path) -> None:
    from reliability.in_runs import backbone_words

    words = {**TWO, **DATA_OF_TWO, "trainer__max_epochs": 3, "trainer__max_steps": -1}
    words |= backbone_words("text/char-lm", backbone)
    whole, run = data / f"whole-two-{backbone}", folder / "run"
    if not whole.exists():
        fit = command(*fit_words("text/char-lm", whole, data, **words))
        _all_well(ranks(lambda rank: fit(), 2, folder))
    stopped = command(*fit_words("text/char-lm", run, data, **words))

    def stop(rank: int) -> int:
        if rank != whom:
            return stopped()
        with with_callback(_Fails("SIGTERM", step)):
            return stopped()

    codes = [process.ended().code for process in ranks(stop, 2, folder)]
    if codes != [128 + signal.SIGTERM, 0]:
        raise Lost(f"stopping ended with {codes}")
    resume = command("fit", "--resume", str(run))
    _all_well(ranks(lambda rank: resume(), 2, folder))
    if wrong := differences(whole, run):
        raise Silent(f"it ended otherwise than the whole run: {wrong}")


def _all_well(processes: list[Started]) -> None:
    ended = [process.ended() for process in processes]
    if any(one.code for one in ended):
        raise Lost(f"it ended with {[one.code for one in ended]}: {ended[0].said[-300:]!r}")
