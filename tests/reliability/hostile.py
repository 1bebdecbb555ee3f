"""Puts hostile files to the command line, and watches what it does."""

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from reliability.hostile_recipes import SENTINEL
from reliability.hostile_runs import (
    CONFIG,
    ENDLESS,
    FIFO,
    FOLDER,
    MISSING,
    STATE,
    SUMMARY,
    WEIGHTS,
    Edit,
)

RUNS = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "pty.spawn",
    "subprocess.Popen",
)
CONNECTS = ("socket.connect", "socket.getaddrinfo", "urllib.Request", "webbrowser.open")
SECRET = ("/dev/zero", "/dev/stdin", "/proc/self/mem", "/proc/self/environ")
"""Places that no data source may open. A text that the user may read is data, whatever its name: /etc/shadow, too."""
FORBIDDEN = (
    SENTINEL,
    "torch.nn.attention._fa3",
    "torch.nn.attention._fa4",
    "antigravity",
    "pdb",
    "code",
)
"""Modules that a recipe might name, and that nothing else imports."""


class _Watch:
    """Audit events of the interpreter while `seen` is a list. A hook cannot be removed: outside it costs one test."""

    seen: list[str] | None = None
    is_set = False

    @classmethod
    def hook(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls.seen is None:
            return
        if event in RUNS or event in CONNECTS:
            cls.seen.append(f"{event} {arguments}")
        elif (
            event == "open"
            and os.fsdecode(arguments[0] if isinstance(arguments[0], str | bytes) else "") in SECRET
        ):
            cls.seen.append(f"open {arguments[0]}")


@contextmanager
def watched() -> Iterator[list[str]]:
    """What is run, connected to, or opened or imported against the lists above; in the order in which it happened."""
    if not _Watch.is_set:
        sys.addaudithook(_Watch.hook)
        _Watch.is_set = True
    before = {name for name in FORBIDDEN if name in sys.modules}
    _Watch.seen = seen = []
    try:
        yield seen
    finally:
        _Watch.seen = None
        # by what is there: `importlib.import_module` raises no audit event
        seen += [
            f"import {name}" for name in FORBIDDEN if name in sys.modules and name not in before
        ]


class Answer(NamedTuple):
    """Exit code (None: a traceback would be shown), what was said on stderr and stdout, and what was done."""

    code: int | None
    said: str
    printed: str
    done: list[str]

    @property
    def faults(self) -> list[str]:
        """What is wrong with it as the answer to a hostile file; nothing where it was refused as it should be."""
        wrong = [] if self.code in (2, 3) else [f"exit code {self.code}"]
        lines = self.said.count("\n")
        if lines != 1 or not self.said.startswith("seqkit"):
            wrong.append(f"{lines} lines: {self.said[-300:]!r}")
        if any(not letter.isprintable() for letter in self.said.removesuffix("\n")):
            wrong.append(f"control characters: {self.said!r}")
        return wrong + self.done + ([f"printed {self.printed[:100]!r}"] if self.printed else [])


def ask(words: Sequence[str]) -> Answer:
    """Give words to the command line, in this process."""
    from seqkit.cli.main import main

    said, printed = io.StringIO(), io.StringIO()
    with watched() as done, contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        try:
            code: int | None = main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except Exception as error:
            code = None
            said.write(f"{type(error).__name__}: {error}")
    return Answer(code, said.getvalue(), printed.getvalue(), done)


def put_recipe(folder: Path, content: bytes) -> Answer:
    """The answer of `seqkit fit` to a recipe; with the sentinel module in the folder, and what was made there."""
    (folder / "hostile.yaml").write_bytes(content)
    (folder / f"{SENTINEL}.py").write_text("open('hostile', 'w').close()\n", encoding="utf-8")
    before = set(folder.rglob("*"))
    answer = ask(["fit", str(folder / "hostile.yaml"), "--out", str(folder / "run")])
    made = sorted(str(path.relative_to(folder)) for path in set(folder.rglob("*")) - before)
    return answer._replace(done=[*answer.done, *(f"made {name}" for name in made)])


def damage(run: Path, folder: Path, file: str, edit: Edit) -> Path:
    """A copy of a sound run in which one file is edited, and the SHA-256 sums fit as far as there are any."""
    copy = folder / "run"
    shutil.copytree(run, copy)
    path = copy / file
    content = edit(path.read_bytes())
    path.unlink()
    if content == FOLDER:
        path.mkdir()
    elif content == FIFO:
        os.mkfifo(path)
    elif content == ENDLESS:
        path.symlink_to("/dev/zero")
    elif content != MISSING:
        path.write_bytes(content)
        sums = {CONFIG: "config_sha256", STATE: "state_sha256", WEIGHTS: "sha256"}
        if file in sums:
            summary = json.loads((copy / SUMMARY).read_bytes())
            if sums[file] in summary:
                summary[sums[file]] = hashlib.sha256(content).hexdigest()
            (copy / SUMMARY).write_text(json.dumps(summary), encoding="utf-8")
    return copy
