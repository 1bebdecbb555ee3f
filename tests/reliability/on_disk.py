"""Faults of the disk: processes killed while they write, writes that fail, files that are damaged afterwards."""

import contextlib
import errno
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning import Callback
from reliability.forked import (
    CRASHED,
    SECONDS,
    Case,
    Lost,
    Silent,
    command,
    fit_words,
    forked,
    started,
)
from runs.stopping import Kick, with_callback

import seqkit.files
from seqkit.errors import DataError
from seqkit.training import checkpoint_files, checkpoint_io
from seqkit.training.checkpoint_files import check_checkpoint, newest_good
from seqkit.training.checkpoint_io import read_checkpoint

SIZE = 2_500_000
"""Numbers of a checkpoint that is killed while it is written: 10 MB."""

# ── kill -9 while a checkpoint is written ────────────────────────────────────────────────────────────────────────────


def kills(place: Path, number: int, seed: int, stock: bool) -> Iterator[Case]:
    """place: a folder of the file system in question. stock: write as Lightning's own CheckpointIO does."""
    generator = random.Random(seed)
    for i in range(number):
        yield Case(f"kill {i + 1}", partial(_killed, place, generator.uniform(0, 0.12), stock))


def _killed(place: Path, seconds: float, stock: bool, folder: Path) -> None:
    where = place / f"seqkit-reliability-{os.getpid()}"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    content = torch.arange(SIZE, dtype=torch.float32)

    def write() -> None:
        step = 0
        while True:
            step += 1
            state = {"step": step, "weights": content + step}
            if stock:
                TorchCheckpointIO().save_checkpoint(state, where / "last.ckpt")
            else:
                checkpoint_io.VerifiedCheckpointIO().save_checkpoint(
                    state, where / f"resume-step={step}.ckpt"
                )

    first = where / ("last.ckpt" if stock else "resume-step=1.ckpt.json")
    try:
        process = started(write, folder / "said-0")
        deadline = time.monotonic() + SECONDS
        while not first.exists():
            if time.monotonic() > deadline:
                raise Lost("no checkpoint was written")
            time.sleep(0.002)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        if process.ended().code != -signal.SIGKILL:
            raise Lost("it ended before it was killed")
        _check_newest(where, content, stock)
    finally:
        shutil.rmtree(where, ignore_errors=True)


def _check_newest(where: Path, content: torch.Tensor, stock: bool) -> None:
    if stock:
        try:
            state = TorchCheckpointIO().load_checkpoint(where / "last.ckpt", weights_only=True)
        except Exception as error:
            raise Lost(f"last.ckpt cannot be loaded: {type(error).__name__}") from error
    else:
        found = newest_good(where)
        if found is None:
            raise Lost("no good checkpoint is left")
        state = read_checkpoint(found.path)
        checkpoint_files.sweep(where)
        if list(where.glob(".*")):
            raise Lost("temporary files are left after the sweep")
    if not torch.equal(state["weights"], content + state["step"]):
        raise Silent("the newest checkpoint that is taken is not whole")


# ── writes that fail ─────────────────────────────────────────────────────────────────────────────────────────────────

FROM, UNTIL = 4, 9
"""Optimizer steps between which nothing can be written, of 15."""


class _Disk(Callback):
    """Begins and ends a fault; in between, the last good checkpoint has to stay."""

    def __init__(self, begin: Callable[[], Any], end: Callable[[], Any]):
        self.begin, self.end = begin, end

    def on_train_batch_start(self, trainer, module, batch, index):
        folder = Path(trainer.default_root_dir) / "checkpoints"
        if trainer.global_step == FROM:
            self.kept = newest_good(folder)
            assert self.kept is not None
            self.begin()
        elif trainer.global_step == UNTIL:
            self.end()
            found = newest_good(folder)
            if found is None or found.step < self.kept.step:
                print("THE LAST GOOD CHECKPOINT IS GONE", flush=True)


def write_failures(data: Path) -> Iterator[Case]:
    """A limit on the size of files, and errors of single calls, while a run of 15 steps trains."""
    for recipe in ("text/char-lm", "image/digits"):
        for limit in (0, 100, 1000, 5_000, 20_000, 40_000, 60_000):
            case = partial(
                _write_fails, data, recipe, partial(_limit, limit), partial(_limit, None)
            )
            yield Case(f"{recipe}: no file above {limit:,} bytes", case)
    for number in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
        for call in ("open", "write", "fsync", "rename", "fsync of the folder", "manifest"):
            case = partial(_write_fails, data, "text/char-lm", *_failing(call, number))
            yield Case(f"{call}: {errno.errorcode[number]}", case)


def _limit(number: int | None) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if number is None else number, hard))


def _failing(call: str, number: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Functions that make a call of ours fail, and work again."""
    stack = contextlib.ExitStack()

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    def swap(place: Any, name: str, value: Any) -> None:
        stack.callback(setattr, place, name, getattr(place, name))
        setattr(place, name, value)

    def begin() -> None:
        if call == "open":
            opened = Path.open
            swap(
                Path,
                "open",
                lambda self, *a, **k: fail() if self.suffix == ".part" else opened(self, *a, **k),
            )
        elif call == "write":
            swap(
                checkpoint_io._HashingWriter,
                "write",
                lambda self, content: _note(self, content, fail),
            )
        elif call == "fsync":
            swap(os, "fsync", fail)
        elif call == "rename":
            swap(Path, "replace", fail)
        elif call == "fsync of the folder":
            swap(checkpoint_io, "sync_folder", fail)
            swap(seqkit.files, "sync_folder", fail)
        else:
            swap(checkpoint_io, "write_json", fail)

    return begin, stack.close


def _note(writer: Any, content: Any, fail: Callable[[], None]) -> int:
    try:
        fail()
    except OSError as error:
        writer.error = error
    return memoryview(content).nbytes


def _write_fails(
    data: Path, recipe: str, begin: Callable[[], Any], end: Callable[[], Any], folder: Path
) -> None:
    run = folder / "run"
    words = fit_words(recipe, run, data, trainer__checkpoint_every_n_steps=1)

    def work() -> int:
        with with_callback(_Disk(begin, end)):
            return command(*words)()

    ended = forked(work, folder)
    if "THE LAST GOOD CHECKPOINT IS GONE" in ended.said:
        raise Lost("the last good checkpoint is gone")
    if ended.code != 0:
        kept = newest_good(run / "checkpoints")
        raise Lost(
            f"training ended with {ended.code}, {kept and kept.step} steps kept: {ended.said[-300:]!r}"
        )
    told = (run / "log.txt").read_text(encoding="utf-8", errors="replace") + ended.said
    if (
        "cannot be written" not in told
        or "make room" not in told
        or "resume-step=5.ckpt" not in told
    ):
        raise Silent(f"neither log nor terminal says path and room: {told[-300:]!r}")
    if newest_good(run / "checkpoints") is None:
        raise Lost("no good checkpoint at the end")


# ── files that are damaged afterwards ────────────────────────────────────────────────────────────────────────────────

FILES = ("config.yaml", "state.json", "summary.json", "checkpoints/model.safetensors")


class Sound(NamedTuple):
    """Folders that are copied and damaged. A run that was stopped, with three checkpoints, and one that is finished."""

    stopped: Path
    finished: Path
    text: str


def sound_runs(data: Path, folder: Path) -> Sound:
    """Make both."""
    folder.mkdir(parents=True, exist_ok=True)
    stopped, finished = folder / "stopped", folder / "finished"
    keep = {"trainer__checkpoint_every_n_steps": 1, "trainer__checkpoint_keep": 3}

    def stop() -> int:
        with with_callback(Kick(8)):
            return command(*fit_words("text/char-lm", stopped, data, **keep))()

    ends = (
        forked(stop, folder),
        forked(command(*fit_words("text/char-lm", finished, data)), folder),
    )
    if [one.code for one in ends] != [128 + signal.SIGTERM, 0]:
        raise RuntimeError(f"the runs that are to be damaged do not train: {ends}")
    return Sound(stopped, finished, str(data / "text.txt"))


def _damages(seed: int) -> dict[str, Callable[[bytes], bytes]]:
    """Ways to damage a file by name. A flipped bit lies anywhere in it."""
    generator = random.Random(seed)

    def flip(content: bytes, at: float = 0.0, bit: int = 0) -> bytes:
        place = int(at * len(content))
        return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]

    flips = {
        f"bit {bit} flipped at {at:.3f} of its length": partial(flip, at=at, bit=bit)
        for at, bit in ((generator.random(), generator.randrange(8)) for _ in range(12))
    }
    cuts = {f"cut at {share:.2f}": partial(_cut, share) for share in (0.05, 0.3, 0.5, 0.8, 0.95)}
    return {
        **flips,
        **cuts,
        "empty": lambda content: b"",
        "last byte missing": lambda content: content[:-1],
        "a byte more": lambda content: content + b"\0",
        "zeros of its length": lambda content: bytes(len(content)),
        "swapped halves": lambda content: (
            content[len(content) // 2 :] + content[: len(content) // 2]
        ),
        "twice": lambda content: content * 2,
    }


def _cut(share: float, content: bytes) -> bytes:
    return content[: int(share * len(content))]


def damages(sound: Sound) -> Iterator[Case]:
    """Every file of a run, damaged in every way, missing, or replaced by another one."""
    for name, damage in _damages(1).items():
        yield Case(f"newest checkpoint {name}", partial(_newest_damaged, sound, damage))
        yield Case(f"manifest {name}", partial(_manifest_damaged, sound, damage))
    missing = (("checkpoint", "resume-step=8.ckpt"), ("manifest", "resume-step=8.ckpt.json"))
    for what, file in missing:
        yield Case(f"{what} missing", partial(_missing, sound, file))
    yield Case(
        "checkpoint is another one's",
        partial(_swapped, sound, "resume-step=7.ckpt", "resume-step=8.ckpt"),
    )
    manifests = ("resume-step=7.ckpt.json", "resume-step=8.ckpt.json")
    yield Case("manifest is another one's", partial(_swapped, sound, *manifests))
    yield Case("all checkpoints damaged", partial(_all_damaged, sound))
    for file in FILES:
        for name, damage in {**_damages(2), "missing": None, "of another run": _foreign}.items():
            yield Case(f"{file} {name}", partial(_file_damaged, sound.finished, file, damage))
    for file in ("config.yaml", "state.json"):
        for name, damage in {**_damages(3), "missing": None}.items():
            yield Case(
                f"{file} of an unfinished run {name}",
                partial(_unfinished_damaged, sound, file, damage),
            )


def _copy(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder / "copy"))


def _newest_is_passed_over(run: Path, file: Path) -> None:
    found = newest_good(run / "checkpoints")
    if found is None or found.step != 7:
        raise (Silent if found and found.step == 8 else Lost)(
            f"the checkpoint that is taken is {found and found.path.name}"
        )
    try:
        check_checkpoint(run / "checkpoints" / "resume-step=8.ckpt")
    except DataError as error:
        if str(error).count("\n") or file.name not in str(error):
            raise Lost(f"the refusal names no file: {error}") from error
    else:
        raise Silent("it is taken for a good one")


def _newest_damaged(sound: Sound, damage: Callable[[bytes], bytes], folder: Path) -> None:
    run = _copy(sound.stopped, folder)
    file = run / "checkpoints" / "resume-step=8.ckpt"
    file.write_bytes(damage(file.read_bytes()))
    _newest_is_passed_over(run, file)


def stock_damages(sound: Sound) -> Iterator[Case]:
    """The same damage to the checkpoint, loaded by Lightning's own CheckpointIO."""
    for name, damage in _damages(1).items():
        yield Case(f"checkpoint {name}", partial(_stock_damaged, sound, damage))


def _stock_damaged(sound: Sound, damage: Callable[[bytes], bytes], folder: Path) -> None:
    whole = TorchCheckpointIO().load_checkpoint(
        sound.stopped / "checkpoints" / "resume-step=8.ckpt", weights_only=True
    )
    file = folder / "last.ckpt"
    file.write_bytes(damage((sound.stopped / "checkpoints" / "resume-step=8.ckpt").read_bytes()))
    try:
        loaded = TorchCheckpointIO().load_checkpoint(file, weights_only=True)
    except Exception:
        return  # refused, one way or another
    if not _same(whole, loaded):
        raise Silent("it is loaded, and is not what was written")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(_same(one[k], other[k]) for k in one)
        )
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _manifest_damaged(sound: Sound, damage: Callable[[bytes], bytes], folder: Path) -> None:
    run = _copy(sound.stopped, folder)
    file = run / "checkpoints" / "resume-step=8.ckpt.json"
    before = file.read_bytes()
    file.write_bytes(damage(before))
    found = newest_good(run / "checkpoints")
    # sum and size were not hit: the checkpoint itself is whole
    if found is not None and found.step == 8:
        read_checkpoint(found.path)
        return
    _newest_is_passed_over(run, run / "checkpoints" / "resume-step=8.ckpt")


def _missing(sound: Sound, name: str, folder: Path) -> None:
    run = _copy(sound.stopped, folder)
    (run / "checkpoints" / name).unlink()
    found = newest_good(run / "checkpoints")
    if found is None or found.step != 7:
        raise Lost(f"the checkpoint that is taken is {found and found.path.name}")


def _swapped(sound: Sound, one: str, other: str, folder: Path) -> None:
    run = _copy(sound.stopped, folder)
    shutil.copyfile(run / "checkpoints" / one, run / "checkpoints" / other)
    _newest_is_passed_over(run, run / "checkpoints" / "resume-step=8.ckpt")


def _all_damaged(sound: Sound, folder: Path) -> None:
    run = _copy(sound.stopped, folder)
    for file in run.glob("checkpoints/resume-*.ckpt"):
        file.write_bytes(_cut(0.5, file.read_bytes()))
    _refused(["fit", "--resume", str(run)], "copy", folder)


def _foreign(content: bytes) -> bytes:
    """A file of the same kind that another run wrote."""
    for old, new in ((b'"seed": 1', b'"seed": 2'), (b"seed: 1", b"seed: 2"), (b'" "', b'"!"')):
        if old in content:
            return content.replace(old, new)
    return content[:-64] + content[-60:] + content[-64:-60]


def _refused(words: list[str], named: str, folder: Path) -> None:
    """A command has to refuse in one line that names the file, without a traceback."""
    ended = forked(command(*words), folder)
    if ended.code == 0:
        raise Silent(f"{words[0]} takes it")
    if ended.code == CRASHED or ended.code < 0 or "Traceback" in ended.said:
        raise Lost(f"{words[0]} ends with a traceback: {ended.said[-200:]!r}")
    (line, *more) = [
        line for line in ended.said.splitlines() if not line.startswith("passed over")
    ] or [""]
    if more or named not in line:
        raise Lost(f"{words[0]} names no {named}: {ended.said[-300:]!r}")


def _damage(run: Path, file: str, damage: Callable[[bytes], bytes] | None) -> None:
    path = run / file
    if damage is None:
        path.unlink()
        return
    before = path.read_bytes()
    path.write_bytes(damage(before))
    assert path.read_bytes() != before


def _file_damaged(
    run: Path, file: str, damage: Callable[[bytes], bytes] | None, folder: Path
) -> None:
    copy = _copy(run, folder)
    _damage(copy, file, damage)
    if file == "summary.json":
        _summary_damaged(run, copy, damage, folder)
        return
    _refused(["generate", str(copy), "--tokens", "1"], Path(file).name, folder)


def _summary_damaged(run: Path, copy: Path, damage: Any, folder: Path) -> None:
    """No sum is kept of the summary itself: it is refused, or what is loaded by it are the weights of the run."""
    from seqkit.runs.mixture import load

    ended = forked(command("generate", str(copy), "--tokens", "1"), folder)
    if ended.code == 0:
        one, other = load(run).model.state_dict(), load(copy).model.state_dict()
        if not all(torch.equal(one[name], other[name]) for name in one):
            raise Silent("other weights are loaded")
        return
    if (
        ended.code == CRASHED
        or ended.code < 0
        or ended.said.count("\n") != 1
        or "copy" not in ended.said
    ):
        raise Lost(f"generate says {ended.said[-300:]!r}")


def _unfinished_damaged(sound: Sound, file: str, damage: Any, folder: Path) -> None:
    copy = _copy(sound.stopped, folder)
    _damage(copy, file, damage)
    _refused(
        ["fit", "--resume", str(copy)], Path(file).name if damage is not None else "copy", folder
    )
