"""Cases of the fault injections, and processes that share the imports of the one that started them."""

import contextlib
import logging
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

CRASHED = 70
"""Exit code of a forked process whose work raised something that no user should see."""

SECONDS = 600.0
"""After which a case counts as hanging."""


class Lost(Exception):
    """A case that was not survived: what was lost, or said wrongly."""


class Silent(Lost):
    """A case in which something wrong was taken for right, and nothing was said."""


class Case(NamedTuple):
    """One try. work: given an empty folder, raises Lost where it was not survived."""

    name: str
    work: Callable[[Path], None]


class Ended(NamedTuple):
    """How a process ended: its exit code, or minus the signal that ended it; and what it said."""

    code: int
    said: str


class Started(NamedTuple):
    """A process that runs, in a process group of its own. said: where its stdout and stderr go."""

    pid: int
    said: Path

    def ended(self, seconds: float = SECONDS) -> Ended:
        """Wait for it. Raises Lost where it takes longer."""
        deadline = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.killpg(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise Lost(
                    f"it ran for more than {seconds:.0f} s: {self.said.read_text(errors='replace')[-200:]!r}"
                )
            time.sleep(0.005)
        return Ended(os.waitstatus_to_exitcode(status), self.said.read_text(errors="replace"))


def started(work: Callable[[], int | None], said: Path) -> Started:
    """Begin work in a process forked from this one; its result is the exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # the child has done so first
            os.setpgid(pid, pid)
        return Started(pid, said)
    code: Any = CRASHED
    try:
        os.setpgid(0, 0)
        # a job in the background ignores some
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        # a test runner's, which would keep warnings for itself
        logging.getLogger().handlers.clear()
        # a test runner has put files of its own in their place
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        code = work() or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def forked(work: Callable[[], int | None], folder: Path, seconds: float = SECONDS) -> Ended:
    """Do work in a forked process, and wait for it."""
    said = folder / f"said-{len(list(folder.glob('said-*')))}"
    return started(work, said).ended(seconds)


def command(*words: str, report: bool = False) -> Callable[[], int]:
    """Work of a forked process: one command of `seqkit`, as the shell would run it.

    report: whether a run writes its page, which takes as long as the rest of a short one.
    """

    def work() -> int:
        from seqkit.cli.main import main
        from seqkit.report import page

        if not report:
            page.write_report = lambda *_: Path()
        return main(words)

    return work


def fit_words(recipe: str, out: Path, text: Path, **changes: Any) -> list[str]:
    """Words of `seqkit fit` for a run of a second or two, with dropout. changes: keys with `__` for a dot."""
    common = {"preset": "debug", "trainer.enable_progress_bar": "false", "trainer.log_every_n_steps": "1",
              "trainer.accelerator": "cpu", "trainer.weights": "last"}  # fmt: skip
    words = {
        **common,
        **SMALL[recipe],
        **{name.replace("__", "."): str(value) for name, value in changes.items()},
    }
    if recipe == "text/char-lm":
        words.setdefault("data", str(text / "text.txt"))
    if recipe == "audio/spoken-digits":
        words.setdefault("data", str(text / "sounds"))
    given = [item for name, value in words.items() for item in (f"--{name}", value)]
    return ["fit", recipe, "--out", str(out), *given]


_BODY = {"model.backbone.dim": "16", "model.backbone.depth": "1", "model.dropout": "0.2"}
SMALL: dict[str, dict[str, str]] = {
    "image/digits": {**_BODY, "data.augment": "null", "data.limit": "40",
                     "data.batch_size": "7", "data.valid_fraction": "0.2", "trainer.max_epochs": "3"},
    "text/char-lm": {**_BODY, "data.limit": "24", "data.batch_size": "5", "data.window": "9",
                     "data.valid_fraction": "0.1", "trainer.max_steps": "15", "trainer.val_check_interval": "null",
                     "trainer.check_val_every_n_epoch": "1"},
    "audio/spoken-digits": {**_BODY, "data.batch_size": "7", "data.valid_fraction": "0.2", "trainer.max_epochs": "3"},
    "graph/karate": {"model.backbone.dim": "16", "model.backbone.depth": "1", "model.dropout": "0.2",
                     "trainer.max_epochs": "12", "data.source.valid_per_class": "0"},
    "mechanism/tasks": {"preset": "adding", "data.limit": "64", "schedule.warmup_steps": "2",
                        "model.backbone.dim": "8", "model.backbone.depth": "1", "data.batch_size": "16",
                        "data.valid_fraction": "0.1", "trainer.max_epochs": "3",
                        "data.source.num_train": "80", "data.source.num_test": "10", "data.source.length": "10"},
}  # fmt: skip
"""Words of a short run of each recipe that the cases use."""


def write_data(folder: Path) -> None:
    """A text of 2 KB and 40 short tones in two classes, which the runs read."""
    import math
    import wave
    from array import array

    from runs.stopping import TEXT

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    for frequency in (400, 900):
        (folder / "sounds" / str(frequency)).mkdir(parents=True, exist_ok=True)
        for number in range(20):
            step = 2 * math.pi * frequency * (1 + number / 200) / 8000
            samples = array("h", (int(9000 * math.sin(step * t)) for t in range(800 + 37 * number)))
            with wave.open(
                str(folder / "sounds" / str(frequency) / f"{number:02}.wav"), "wb"
            ) as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes(samples.tobytes())


def preload(data: Path, recipes: Sequence[str] = tuple(SMALL)) -> None:
    """Import here what runs import, so that forked processes need not. Nothing is trained in this process."""
    for recipe in recipes:
        folder = data / f"warm-{recipe.replace('/', '-')}"
        folder.mkdir(parents=True)

        def work(recipe: str = recipe, folder: Path = folder) -> int:
            code = command(*fit_words(recipe, folder / "run", data, data__num_workers=0))()
            (folder / "modules").write_text("\n".join(sys.modules), encoding="utf-8")
            return code

        ended = forked(work, folder)
        if ended.code != 0:
            raise RuntimeError(f"{recipe} does not train here: {ended.said[-500:]}")
        for name in (folder / "modules").read_text(encoding="utf-8").splitlines():
            if name.split(".")[0] not in ("__main__", "tests", "reliability", "runs"):
                with contextlib.suppress(Exception):
                    import_module(name)
        shutil.rmtree(folder)
