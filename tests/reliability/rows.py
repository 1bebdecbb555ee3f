"""The rows of docs/reliability.md: what is tried, and the cases of each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from reliability import (
    around_runs,
    file_events,
    hostile_recipes,
    hostile_runs,
    in_processes,
    in_runs,
    on_disk,
)
from reliability.forked import CRASHED, Case, Lost, command, forked
from reliability.hostile import Answer, ask, damage, put_recipe


class Row(NamedTuple):
    """title: of the page. cases: of a folder for data and whole runs. quick: how many the suite runs.

    every: which of the cases those are, counted from the first. stock: the row tries Lightning's own, for comparison.
    """

    title: str
    cases: Callable[[Path], Iterable[Case]]
    quick: int
    every: int = 1
    stock: bool = False


TMPFS = Path("/dev/shm")


def _kills(in_memory: bool, stock: bool, data: Path) -> Iterable[Case]:
    if in_memory and not TMPFS.is_dir():
        return ()
    place = TMPFS if in_memory else Path(tempfile.gettempdir())
    return on_disk.kills(place, 100, seed=3, stock=stock)


def _damages(data: Path) -> Iterable[Case]:
    return on_disk.damages(on_disk.sound_runs(data, data / "sound"))


def _stock_damages(data: Path) -> Iterable[Case]:
    return on_disk.stock_damages(on_disk.sound_runs(data, data / "sound-stock"))


def _hostile_recipes(data: Path) -> Iterable[Case]:
    for name, content in hostile_recipes.CASES:
        yield Case(
            name, partial(_ask, lambda folder, content=content: [put_recipe(folder, content)])
        )


def _hostile_runs(data: Path) -> Iterable[Case]:
    from PIL import Image

    run, recipe = data / "hostile-run", data / "sound.yaml"
    recipe.write_text(hostile_recipes.recipe(), encoding="utf-8")
    if (ended := forked(command("fit", str(recipe), "--out", str(run)), data)).code != 0:
        raise RuntimeError(f"the run that is to be damaged does not train: {ended.said[-300:]}")
    Image.new("L", (8, 8)).save(data / "one.png")

    def answers(file: str, edit: hostile_runs.Edit, folder: Path) -> list[Answer]:
        copy = damage(run, folder, file, edit)
        return [ask(["predict", str(copy), str(data / "one.png")]), ask(["evaluate", str(copy)])]

    for name, file, edit in hostile_runs.CASES:
        yield Case(name, partial(_ask, partial(answers, file, edit)))


def _ask(answers: Callable[[Path], list[Answer]], folder: Path) -> None:
    """Answers of the command line, in a process of its own; each has to be a refusal in one line."""

    def work() -> int:
        faults = [fault for answer in answers(folder) for fault in answer.faults]
        print("; ".join(faults)[:300])
        return 1 if faults else 0

    ended = forked(work, folder)
    if ended.code:
        raise Lost(
            f"ended with {ended.code}: {ended.said[-300:]!r}"
            if ended.code in (CRASHED, -11)
            else ended.said
        )


_STOCK = "the same with Lightning's `TorchCheckpointIO`: `last.ckpt`, by way of the system's temporary folder"

ROWS = {
    "kill-disk": Row(
        "kill −9 while a checkpoint of 10 MB is written, on the ordinary disk",
        partial(_kills, False, False),
        2,
    ),
    "kill-disk-stock": Row(_STOCK, partial(_kills, False, True), 0, stock=True),
    "kill-memory": Row(
        "kill −9 while a checkpoint of 10 MB is written, on tmpfs", partial(_kills, True, False), 0
    ),
    "kill-memory-stock": Row(_STOCK, partial(_kills, True, True), 0, stock=True),
    "write-failures": Row(
        "a full disk or an error while a run writes files", on_disk.write_failures, 2, 9
    ),
    "damaged": Row("damaged files of a run", _damages, 4, 60),
    "damaged-stock": Row(
        "the same damage to a checkpoint, loaded by Lightning's `TorchCheckpointIO`",
        _stock_damages,
        0,
        stock=True,
    ),
    "resume": Row(
        "stopped and resumed; equal to an uninterrupted run bit for bit", in_runs.resumes, 0
    ),
    "resume-two": Row("the same in a run of two processes", in_processes.resumes_of_two, 0),
    "three-kills": Row(
        "kill −9 three times in a run, resumed each time; each epoch has each example once",
        lambda data: in_runs.killed_thrice(data, 9),
        0,
    ),
    "signals": Row("signals in each phase of a run", in_runs.signals, 2, 12),
    "not-finite": Row("NaN and infinite numbers", in_runs.not_finite, 0),
    "repeats": Row("the same command twice; equal bit for bit", in_runs.repeats, 0),
    "accumulation": Row(
        "two processes; equal to two micro-batches on one", in_processes.accumulations, 0
    ),
    "evaluation": Row(
        "metrics of one, two and three processes; equal", in_processes.evaluations, 0
    ),
    "failing-process": Row(
        "one of two processes fails; both end within 30 s", in_processes.failing_ranks, 1, 3
    ),
    "links": Row("links in a run folder", around_runs.links, 0),
    "plugins": Row("plug-ins that are edited between two commands", around_runs.plugins, 0),
    "caches": Row("damaged caches of encoded text", around_runs.caches, 0),
    "columns": Row("damaged columnar files", around_runs.columns, 0),
    "orphans": Row(
        "kill −9 of a run whose workers are still alive; resumed immediately",
        around_runs.orphans,
        1,
    ),
    "flags": Row("every flag of the commands on a run", around_runs.flags, 0),
    "file-events": Row(
        "kill −9, SIGTERM or a full disk at each file event of a run; started again by the same command",
        file_events.cases,
        4,
        20,
    ),
    "environment": Row("variables of launchers that are not there", file_events.environments, 2),
    "changed-data": Row("data that changed below a finished run", file_events.changed_tables, 2, 3),
    "weights": Row(
        "a finished run whose weights give no numbers", file_events.not_finite_weights, 3, 4
    ),
    "hostile-recipes": Row("hostile recipes", _hostile_recipes, 0),
    "hostile-runs": Row("hostile run folders", _hostile_runs, 0),
}


def quick(name: str, data: Path) -> list[Case]:
    """The cases of a row that the suite runs."""
    row = ROWS[name]
    return list(islice(row.cases(data), 0, row.quick * row.every, row.every)) if row.quick else []
