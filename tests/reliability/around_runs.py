"""Faults around a run: links in its folder, edited plug-ins, damaged caches, workers that outlive it, flags."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from reliability.forked import CRASHED, Case, Ended, Lost, Silent, command, fit_words, forked
from reliability.in_runs import resume_to_the_end, whole_run
from reliability.on_disk import _copy, _damages, sound_runs
from runs.stopping import Kick, differences, with_callback

from seqkit.runs.run import MAY_CHANGE
from seqkit.training.checkpoint_files import newest_good

# ── links ────────────────────────────────────────────────────────────────────────────────────────────────────────────

LINKED = (
    ".lock", "log.txt", "metrics.csv", "config.yaml", "state.json", "summary.json", "report.html", "new", "checkpoints",
    "checkpoints/model.safetensors", "checkpoints/resume-step=8.ckpt", "tensorboard/events", "wandb/run/log",
)  # fmt: skip
OUTSIDE = "export PATH=/bin\n"


def links(data: Path) -> Iterator[Case]:
    """A link in the place of each file, with a recipe's name that a shell would run; by each command."""
    sound = sound_runs(data, data / "sound-links")
    for name in LINKED:
        for words in (
            ["fit", "--resume", "RUN"],
            ["evaluate", "RUN"],
            ["generate", "RUN", "--tokens", "1"],
        ):
            run = sound.stopped if words[0] == "fit" else sound.finished
            yield Case(f"{name} is a link, {words[0]}", partial(_linked, run, name, words))


def _linked(run: Path, name: str, words: list[str], folder: Path) -> None:
    copy, outside = _copy(run, folder), folder / "startup"
    outside.write_text(OUTSIDE, encoding="utf-8")
    place = copy / name
    if place.is_dir():
        place.rename(folder / "aside")
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(folder / "aside" if (folder / "aside").exists() else outside)
    ended = forked(command(*(word.replace("RUN", str(copy)) for word in words)), folder)
    if outside.read_text(encoding="utf-8") != OUTSIDE:
        raise Silent("the file behind the link was written")
    _check_refused(ended, Path(name).name)


def _check_refused(ended: Ended, named: str) -> None:
    """One line that names the fault, and an exit code of ours."""
    if ended.code == 0:
        raise Silent(f"it is taken: {ended.said[-200:]!r}")
    lines = [line for line in ended.said.splitlines() if line.startswith("seqkit")]
    if ended.code == CRASHED or ended.code < 0 or "Traceback" in ended.said or len(lines) != 1:
        raise Lost(f"it ended with {ended.code}: {ended.said[-300:]!r}")
    if named not in lines[0]:
        raise Lost(f"it names no {named}: {lines[0]}")


# ── plug-ins ─────────────────────────────────────────────────────────────────────────────────────────────────────────

PLUGIN = """
from seqkit.backbones import GRU
from seqkit.registry import register


@register("backbone", "Scaled")
class Scaled(GRU):
    factor = 1.0
"""


def plugins(data: Path) -> Iterator[Case]:
    """A file with the run's backbone is edited, or missing, between two commands."""
    for edit in ("factor", "a comment", "nothing", "missing"):
        for how in ("resume", "test"):
            yield Case(f"{edit}, then {how}", partial(_plugin, data, edit, how))


def _plugin(data: Path, edit: str, how: str, folder: Path) -> None:
    file, run = folder / "scaled_gru.py", folder / "run"
    file.write_text(PLUGIN, encoding="utf-8")
    words = fit_words(
        "text/char-lm",
        run,
        data,
        data__num_workers=0,
        model__backbone="{type: Scaled, dim: 16, depth: 1}",
    )
    words = [word for word in words if word not in ("--model.dropout", "0.2")]

    def first() -> int:
        with with_callback(Kick(6 if how == "resume" else 10**6)):
            return command(*words, "--plugin", str(file))()

    ended = forked(first, folder)
    if ended.code != (128 + signal.SIGTERM if how == "resume" else 0):
        raise RuntimeError(f"the run with a plug-in does not train: {ended.said[-300:]}")
    edited = {"factor": PLUGIN.replace("1.0", "2.0"), "a comment": PLUGIN + "# more\n"}.get(
        edit, PLUGIN
    )
    file.write_text(edited, encoding="utf-8")
    given = [] if edit == "missing" else ["--plugin", str(file)]
    ended = forked(
        command(*(["fit", "--resume"] if how == "resume" else ["evaluate"]), str(run), *given),
        folder,
    )
    if edit == "missing":
        _check_refused(ended, "Scaled")
    elif edit == "nothing":
        if ended.code or "has changed" in ended.said:
            raise Lost(f"it ended with {ended.code}: {ended.said[-300:]!r}")
    elif how == "resume":
        _check_refused(ended, "scaled_gru")
    elif ended.code or "scaled_gru has changed" not in ended.said:
        raise Silent(f"the test does not say that it is of other code: {ended.said[-300:]!r}")


# ── caches ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def caches(data: Path) -> Iterator[Case]:
    """Every file of the cache of a large text, damaged in every way, between two runs of one command."""
    whole, cache = data / "whole-cache", data / "cache"
    if not whole.exists():
        ended = forked(_with_cache(data, cache, whole), data)
        if ended.code:
            raise RuntimeError(f"the run with a cache does not train: {ended.said[-300:]}")
    files = sorted(path.relative_to(cache) for path in cache.rglob("*") if path.is_file())
    if not files:
        raise RuntimeError("the run wrote no cache")
    for file in files:
        for name, damage in {**_damages(4), "missing": None}.items():
            yield Case(
                f"{file.name} {name}", partial(_cache_damaged, data, cache, whole, file, damage)
            )


def _with_cache(data: Path, cache: Path, run: Path) -> Callable[[], int]:
    """Work: a run that takes its text for a large one, and keeps its tokens in a cache."""

    def work() -> int:
        os.environ["SEQKIT_CACHE"] = str(cache)
        from seqkit.data import module

        module.MIN_TEXT = 0
        return command(
            *fit_words("text/char-lm", run, data, data__num_workers=0, trainer__max_steps=4)
        )()

    return work


def _cache_damaged(
    data: Path, cache: Path, whole: Path, file: Path, damage: Any, folder: Path
) -> None:
    import shutil

    copy = Path(shutil.copytree(cache, folder / "cache"))
    if damage is None:
        (copy / file).unlink()
    else:
        (copy / file).write_bytes(damage((copy / file).read_bytes()))
    ended = forked(_with_cache(data, copy, folder / "run"), folder)
    if ended.code == 0:
        if wrong := differences(whole, folder / "run"):
            raise Silent(f"it is believed: {wrong}")
        return
    _check_refused(ended, file.name)


# ── columnar files ───────────────────────────────────────────────────────────────────────────────────────────────────


def columns(data: Path) -> Iterator[Case]:
    """Parquet, Feather and Arrow files of a user's table with flipped, cut or repeated bytes."""
    from data.tables.test_damaged import FORMATS

    for name in FORMATS:
        for seed in range(40):
            yield Case(f"{name}, {seed}", partial(_columns_damaged, name, seed))


def _columns_damaged(name: str, seed: int, folder: Path) -> None:
    from data.tables.test_damaged import FORMATS, READS, damaged

    FORMATS[name](folder / name)
    path = folder / f"damaged-{name}"
    path.write_bytes(damaged((folder / name).read_bytes(), random.Random(seed)))

    def work() -> int:
        import sys

        sys.argv = ["reads", str(path)]
        exec(READS, {})
        return 0

    ended = forked(work, folder)
    if ended.code or ended.said.split() not in (["read"], ["refused"]):
        raise Lost(f"it ended with {ended.code}: {ended.said[-300:]!r}")


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def orphans(data: Path) -> Iterator[Case]:
    """The run is killed, its two workers are not; it is resumed immediately, or begun again."""
    for recipe in ("text/char-lm", "image/digits"):
        for how in ("--resume RUN", "--resume auto"):
            yield Case(f"{recipe}, {how}", partial(_orphaned, data, recipe, how))


def _orphaned(data: Path, recipe: str, how: str, folder: Path) -> None:
    words = {"data__num_workers": 2, "trainer__max_epochs": 4, "trainer__max_steps": -1}
    whole = whole_run(data, recipe, words, data / f"whole-{recipe.replace('/', '-')}-workers")
    run = folder / "run"
    fit = fit_words(recipe, run, data, **words, trainer__checkpoint_every_n_steps=2)

    def killed() -> int:
        """It kills itself alone, not its group, in the middle of the second epoch of five steps."""
        with with_callback(Kick(7, number=signal.SIGKILL)):
            return command(*fit)()

    first = forked(killed, folder)
    if first.code != -signal.SIGKILL or newest_good(run / "checkpoints") is None:
        raise Lost(
            f"it ended with {first.code}, and not killed after a checkpoint: {first.said[-300:]!r}"
        )
    if how == "--resume RUN":
        resume_to_the_end(run, whole, folder)
        return
    ended = forked(command(*fit, "--resume", "auto"), folder)
    if ended.code != 0:
        raise Lost(f"resuming ended with {ended.code}: {ended.said[-300:]!r}")
    if wrong := differences(whole, run):
        raise Silent(f"it ended otherwise than the whole run: {wrong}")


# ── flags ────────────────────────────────────────────────────────────────────────────────────────────────────────────

RESUME_FLAGS = {
    "trainer.allow_broken_laws": "true",
    "trainer.skip_nonfinite": "3", "trainer.checkpoint_every_minutes": "5", "trainer.checkpoint_every_n_steps": "3",
    "trainer.checkpoint_keep": "2", "trainer.enable_progress_bar": "false", "data.num_workers": "1",
}  # fmt: skip
RUN_FLAGS: dict[str, list[list[str]]] = {
    "predict": [["--probabilities"], ["--format", "csv"], ["--format", "jsonl"], ["--device", "cpu"],
                ["--dtype", "bfloat16"], ["--out", "NEW.csv", "--force"], ["--test", "--out", "NEW.jsonl"],
                ["--embed", "--out", "NEW.parquet"]],
    "generate": [["--prompt", "To be"], ["--max-new-tokens", "3"], ["--stop", "e"], ["--samples", "2"],
                 ["--temperature", "0"], ["--top-k", "3"], ["--top-p", "0.5"], ["--min-p", "0.1"],
                 ["--repetition-penalty", "1.2"], ["--seed", "5"], ["--num-beams", "2"],
                 ["--num-beams", "2", "--length-penalty", "0.5"], ["--dtype", "bfloat16"], ["--device", "cpu"]],
    "evaluate": [["--split", "valid"]], "report": [["--out", "NEW.html"], ["--out", "NEW.html", "--force"]],
}  # fmt: skip
"""Options of the commands that take a run, each with a value; a test compares them with the parser's."""


def flags(data: Path) -> Iterator[Case]:
    """Every documented flag of a command on a run, through the command line."""
    sound = sound_runs(data, data / "sound-flags")
    assert set(RESUME_FLAGS) == set(MAY_CHANGE)
    for name, value in RESUME_FLAGS.items():
        yield Case(
            f"fit --resume RUN --{name} {value}", partial(_resume_flag, data, sound, name, value)
        )
    for name in RUN_FLAGS:
        for words in RUN_FLAGS[name]:
            yield Case(
                f"{name} RUN {' '.join(words)}", partial(_run_flag, data, sound, name, words)
            )


def _resume_flag(data: Path, sound: Any, name: str, value: str, folder: Path) -> None:
    copy = _copy(sound.stopped, folder)
    ended = forked(command("fit", "--resume", str(copy), f"--{name}", value), folder)
    if ended.code:
        raise Lost(f"it ended with {ended.code}: {ended.said[-300:]!r}")
    if wrong := differences(sound.finished, copy):
        raise Silent(f"it ended otherwise than the whole run: {wrong}")


def _run_flag(data: Path, sound: Any, name: str, words: list[str], folder: Path) -> None:
    run, given = sound.finished, []
    if name == "predict":
        run = whole_run(data, "image/digits", {"data__num_workers": 0}, data / "whole-flags")
        image = folder / "one.png"
        from PIL import Image

        Image.effect_noise((8, 8), random.Random(1).uniform(20, 60)).save(image)
        given = [] if "--test" in words else [str(image)]
    if name == "generate" and "--max-new-tokens" not in words:
        given = ["--max-new-tokens", "4"]
    copy = _copy(run, folder)
    words = [word.replace("NEW", str(folder / "new")) for word in words]
    ended = forked(command(name, str(copy), *given, *words, report=name == "report"), folder)
    if ended.code or "Traceback" in ended.said:
        raise Lost(f"it ended with {ended.code}: {ended.said[-300:]!r}")
    if any("new." in word for word in words) and not list(folder.glob("new.*")):
        raise Lost("nothing was written")
