"""Faults at each file event of a run, in its environment, in the data below it, and in its weights."""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

from reliability.forked import Case, Ended, Lost, Silent, command, fit_words, forked
from reliability.in_runs import whole_run
from runs.stopping import differences

WORDS = {"trainer__max_epochs": 1, "trainer__max_steps": -1}
"""A run of one epoch: it opens, writes and renames some seventy files."""

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NAMES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate")
"""Events of Python's audit hooks that change a folder; `open` counts if it is for writing."""


class FileEvents:
    """Counts file events below a folder, and acts at one of them. act: what happens there; None: nothing."""

    def __init__(self, folder: Path, number: int = -1, act: Callable[[], None] | None = None):
        self.folder = f"{folder}"
        self.number = number
        self.act = act
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple) -> None:
        if event == "open":
            path, _, flags = args
            if not isinstance(flags, int) or not flags & WRITES:
                return
        elif event in NAMES:
            path = args[0]
        else:
            return
        if not isinstance(path, str | os.PathLike) or not os.fspath(path).startswith(self.folder):
            return
        self.seen.append(f"{event} {os.fspath(path)[len(self.folder) :]}")
        if len(self.seen) == self.number and self.act is not None:
            self.act()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FAULTS = {"kill −9": _kill, "SIGTERM": _stop, "ENOSPC": _full}


def events_of_a_run(data: Path) -> list[str]:
    """What a whole run does to its folder, in order; the run is kept to compare with."""
    folder = data / "file-events"
    if (folder / "events").exists():
        return (folder / "events").read_text(encoding="utf-8").splitlines()
    folder.mkdir()

    def work() -> int:
        heard = FileEvents(folder / "whole")
        code = command(*_words(folder / "whole", data))()
        (folder / "events").write_text("\n".join(heard.seen), encoding="utf-8")
        return code

    ended = forked(work, folder)
    if ended.code != 0:
        raise RuntimeError(f"the whole run does not train: {ended.said[-300:]}")
    return events_of_a_run(data)


def _words(run: Path, data: Path) -> list[str]:
    return [*fit_words("text/char-lm", run, data, **WORDS), "--resume", "auto"]


def cases(data: Path) -> Iterator[Case]:
    """Each fault at each event; afterwards the same command, as a queue starts a job again, ends as the whole run."""
    for number, event in enumerate(events_of_a_run(data), start=1):
        for name, act in FAULTS.items():
            yield Case(f"{name} at event {number}: {event}", partial(_again, data, number, act))


def _again(data: Path, number: int, act: Callable[[], None], folder: Path) -> None:
    run = folder / "run"

    def work() -> int:
        FileEvents(run, number, act)
        return command(*_words(run, data))()

    first = forked(work, folder)
    if "Traceback" in first.said:
        raise Lost(f"a traceback: {first.said[-300:]!r}")
    second = forked(command(*_words(run, data)), folder)
    if second.code != 0:
        raise Lost(f"started again, it ended with {second.code}: {second.said[-300:]!r}")
    if wrong := differences(data / "file-events" / "whole", run):
        raise Silent(f"it ended otherwise than the whole run: {wrong}")
    if left := [path.name for path in run.rglob(".*") if path.suffix in (".part", ".lock")]:
        raise Lost(f"it left {left}")


# ── the environment ──────────────────────────────────────────────────────────────────────────────────────────────────

LAUNCHED = (
    {"RANK": "1"},
    {"LOCAL_RANK": "1"},
    {"RANK": "1", "WORLD_SIZE": "2"},
    {"RANK": "0", "WORLD_SIZE": "2"},
    {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
)
"""What a stale shell or a queue leaves in the environment."""


def environments(data: Path) -> Iterator[Case]:
    """A run is refused before its training, or trained whole with a word on the processes that are not there."""
    for variables in LAUNCHED:
        name = " ".join(f"{key}={value}" for key, value in variables.items())
        yield Case(name, partial(_launched, data, variables))


def _launched(data: Path, variables: dict[str, str], folder: Path) -> None:
    run = folder / "run"

    def work() -> int:
        os.environ.update(variables)
        return command(*fit_words("text/char-lm", run, data, **WORDS))()

    ended = forked(work, folder)
    if ended.code == 0:
        whole = whole_run(data, "text/char-lm", WORDS, data / "whole-of-one-process")
        if wrong := differences(whole, run):
            raise Silent(f"it ended otherwise than without {variables}: {wrong}")
        size = variables.get("WORLD_SIZE")
        if size is not None and "WORLD_SIZE" not in ended.said:
            raise Silent(f"WORLD_SIZE={size}, one process, and no word of it")
        return
    if (run / "checkpoints").exists():
        raise Lost(f"trained, and lost at the end: {ended.said[-300:]!r}")
    if not any(key in ended.said for key in variables):
        raise Lost(f"refused without naming the variable: {ended.said[-300:]!r}")


# ── data that changes below a finished run ───────────────────────────────────────────────────────────────────────────


def changed_tables(data: Path) -> Iterator[Case]:
    """The rows of a finished run's table are changed: each command that opens them again says so."""
    for how in (
        "labels shifted by a row",
        "every second row taken out",
        "a cell changed",
        "rows in another order",
    ):
        for what in ("evaluate", "report", "predict", "doctor"):
            yield Case(f"{how}: {what}", partial(_changed, data, how, what))


def _changed(data: Path, how: str, what: str, folder: Path) -> None:
    made = data / "changed-tables"
    if not made.exists():
        made.mkdir()
        rows = [f"{word},{i % 3},{'abc'[i % 3]}" for i, word in enumerate(_words_of(60))]
        (made / "t.csv").write_text("text,size,kind\n" + "\n".join(rows) + "\n", encoding="utf-8")
        words = ["fit", "multimodal/table", "--data", str(made / "t.csv"), "--data.target", "kind"]
        words += ["--preset", "debug", "--out", str(made / "run")]
        ended = forked(command(*words), made)
        if ended.code != 0:
            raise RuntimeError(f"the table does not train: {ended.said[-300:]}")
    run = folder / "run"
    shutil.copytree(made / "run", run)
    table = made / "t.csv"
    whole = table.read_text(encoding="utf-8")
    try:
        table.write_text(_edited(whole, how), encoding="utf-8")
        words = {"predict": ["predict", str(run), "--test"]}.get(what, [what, str(run)])
        ended = forked(command(*words, report=True), folder)
    finally:
        table.write_text(whole, encoding="utf-8")
    page = run / "report.html"
    said = ended.said + (page.read_text(encoding="utf-8") if what == "report" else "")
    if "has changed" not in said:
        raise Silent(f"{what} ended with {ended.code} and did not say that the data has changed")


def _words_of(number: int) -> list[str]:
    words = ["fine", "poor", "old", "red", "blue", "loud", "quiet"]
    return [f"{words[i % 7]} {words[i * i % 7]} {words[i // 3 % 7]}" for i in range(number)]


def _edited(text: str, how: str) -> str:
    header, *rows = text.splitlines()
    if how == "labels shifted by a row":
        cells = [row.rsplit(",", 1) for row in rows]
        rows = [f"{cells[i][0]},{cells[i - 1][1]}" for i in range(len(cells))]
    elif how == "every second row taken out":
        rows = rows[::2]
    elif how == "a cell changed":
        rows = [row.replace("red", "green") for row in rows]
    else:
        rows = rows[::-1]
    return "\n".join([header, *rows]) + "\n"


# ── weights that give no numbers ─────────────────────────────────────────────────────────────────────────────────────

BAD = {"NaN": float("nan"), "infinity": float("inf"), "minus infinity": -float("inf"), "1e38": 1e38}


def not_finite_weights(data: Path) -> Iterator[Case]:
    """A finished run gets weights that give no numbers: each command that would answer with them refuses."""
    commands = (
        "predict",
        "predict --probabilities",
        "predict --embed",
        "evaluate",
        "export --to torch",
    )
    for name, value in BAD.items():
        for words in commands:
            yield Case(f"{name}: {words}", partial(_bad_weights, data, value, words))


def _bad_weights(data: Path, value: float, words: str, folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    whole = whole_run(data, "image/digits", {}, data / "whole-for-weights")
    run = folder / "run"
    shutil.copytree(whole, run)
    file = run / "checkpoints" / "model.safetensors"
    weights = load_file(file)
    for name, tensor in weights.items():
        if name.startswith(("head", "embedder")):
            tensor.fill_(value)
    sound = _digest(file)
    save_file(weights, file)
    summary = (run / "summary.json").read_text(encoding="utf-8")
    (run / "summary.json").write_text(summary.replace(sound, _digest(file)), encoding="utf-8")
    image = folder / "one.png"
    _draw(image)
    verb, *flags = words.split()
    given = [verb, str(run), *([str(image)] if verb == "predict" else []), *flags]
    _check_refusal(forked(command(*given), folder))


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()


def _draw(path: Path) -> None:
    from PIL import Image

    Image.linear_gradient("L").resize((28, 28)).save(path)


def _check_refusal(ended: Ended) -> None:
    if ended.code == 0:
        raise Silent(f"it answers: {ended.said[-200:]!r}")
    if "Traceback" in ended.said or not any(
        word in ended.said for word in ("NaN", "finite", "inf")
    ):
        raise Lost(f"it ended with {ended.code}, and did not say why: {ended.said[-200:]!r}")
