"""Cells in processes: results are whole and shared, a death takes nothing else with it, and what failed is kept."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqkit.comparison.cells import Cell, Ended, read_curve
from seqkit.comparison.execute import (
    Executor,
    claimed,
    locked,
    read_result,
    result_path,
    run_attempt,
    write_result,
)
from seqkit.comparison.types import CurvePoint
from seqkit.errors import DataError, DivergedError, UsageError
from seqkit.files import write_json

CONTEXT = multiprocessing.get_context("spawn")
FORKED = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


def cell_of(number=1, **config):
    return Cell(id=f"LSTM/seed-{number}", kind="run", candidate="LSTM", config=config)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "", "{}", '{"error": 3, "seconds": 1}', '{"metrics": [], "seconds": 1}',
     '{"error": "a", "error": "b"}', '{"error": ' + "[" * 100_000],
    ids=lambda content: content[:30],
)  # fmt: skip
def test_a_damaged_result_is_named_and_never_taken_for_one(tmp_path, content):
    (tmp_path / "seed-1.json").write_text(content)
    with pytest.raises(DataError, match=r"seed-1\.json is damaged"):
        read_result(tmp_path / "seed-1.json")


def test_a_result_of_which_a_digit_was_changed_is_refused_and_one_without_a_digest_is_read(
    tmp_path,
):
    path = tmp_path / "seed-1.json"
    write_result(path, ended := Ended(seconds=2.5, metrics={"loss": 0.125, "accuracy": math.nan}))
    text = path.read_text()
    assert read_result(path).metrics["loss"] == 0.125
    path.write_text(text.replace("0.125", "0.135"))
    with pytest.raises(DataError, match=r"its SHA-256 .* delete it"):
        read_result(path)
    write_json(path, ended.to_json())
    assert read_result(path).seconds == 2.5


def test_a_lock_that_is_a_link_is_refused_and_the_file_behind_it_stays(tmp_path):
    kept = tmp_path / "thesis.tex"
    kept.write_text("years of work", encoding="utf-8")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / ".lock").symlink_to(kept)
    with pytest.raises(DataError, match=r"\.lock"), locked(tmp_path / "c"):
        pass
    assert kept.read_text(encoding="utf-8") == "years of work"


def _hold(folder, claims):
    lock = claimed(folder, "LSTM/seed-1")
    claims.put(lock is not None)
    time.sleep(600)


@pytest.mark.slow
def test_a_cell_is_claimed_by_one_process_and_free_again_when_that_dies(tmp_path):
    claims = CONTEXT.Queue()
    other = CONTEXT.Process(target=_hold, args=(tmp_path, claims))
    other.start()
    assert claims.get() is True
    assert claimed(tmp_path, "LSTM/seed-1") is None
    other.kill()
    other.join()
    claimed(tmp_path, "LSTM/seed-1").close()
    write_json(result_path(tmp_path, "LSTM/seed-2"), Ended().to_json())
    assert claimed(tmp_path, "LSTM/seed-2") is None, "it has a result"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DataError("sample 3 is empty"), "sample 3 is empty"),
        (UsageError("heads do not divide 7"), "heads do not divide 7"),
        (FileNotFoundError("no such file: 'a.wav'"), "FileNotFoundError: no such file: 'a.wav'"),
        (DivergedError("the loss is nan"), "the loss is nan"),
        (MemoryError(), "out of memory: MemoryError:"),
        (RuntimeError("sizes 3 and\n4"), "RuntimeError: sizes 3 and 4"),
    ],
)  # fmt: skip
def test_whatever_a_run_raises_is_one_line_and_its_folder_log_and_traceback_are_kept(
    error, message, tmp_path, monkeypatch
):
    def fail(cell, folder):
        folder.mkdir(parents=True)
        (folder / "log.txt").write_text("epoch 1", encoding="utf-8")
        raise error

    monkeypatch.setattr("seqkit.comparison.execute.run_cell", fail)
    found = run_attempt(cell_of(), tmp_path).error
    kept = tmp_path / "failed" / "LSTM" / "seed-1"
    assert found.startswith(message)
    assert found.endswith(f"(see {kept / 'error.txt'})")
    assert "\n" not in found
    assert (kept / "log.txt").read_text(encoding="utf-8") == "epoch 1"
    assert type(error).__name__ in (kept / "error.txt").read_text(encoding="utf-8")
    assert not list((tmp_path / "runs" / "LSTM").iterdir())


# ── processes; they are forked from this one and train nothing ───────────────────────────────────────────────────────


@pytest.fixture
def execute(monkeypatch, tmp_path):
    """An executor of two jobs. In place of `run_cell`, the cell's configuration says what happens."""

    def work(cell, folder):
        root = tmp_path
        match cell.config:
            case {"raises": text}:
                raise DataError(text)
            case {"exits": code}:
                os._exit(code)
            case {"kills": times} if len(list(root.glob(f"kills-{cell.id[-1]}-*"))) < times:
                (root / f"kills-{cell.id[-1]}-{time.monotonic_ns()}").touch()
                folder.mkdir(parents=True)
                (folder / "log.txt").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            case {"sleeps": seconds}:
                (root / f"pid-{os.getpid()}").touch()
                time.sleep(seconds)
        return Ended(metrics={"threads": float(os.environ["OMP_NUM_THREADS"])})

    monkeypatch.setattr("seqkit.comparison.execute.run_cell", work)
    monkeypatch.setattr(
        "seqkit.comparison.execute._fork_server", lambda: multiprocessing.get_context("fork")
    )
    monkeypatch.setattr("seqkit.comparison.execute._end_with_parent", lambda: None)
    return Executor(tmp_path, jobs=2, threads=3)


@FORKED
def test_each_cell_has_a_process_and_an_error_or_a_death_takes_nothing_else_with_it(
    execute, tmp_path
):
    cells = [
        cell_of(1, raises="sample 3"),
        cell_of(2),
        cell_of(3, kills=1),
        cell_of(4, kills=9),
        cell_of(5, exits=3),
    ]
    results = execute(cells)
    errors = [results[cell.id].error for cell in cells]
    assert "sample 3" in errors[0]
    assert errors[1] is errors[2] is None, "one that was killed is run once more"
    assert results["LSTM/seed-2"].metrics == {"threads": 3.0}
    assert "signal 9" in errors[3]
    assert "memory" in errors[3]
    assert "code 3" in errors[4]
    assert (tmp_path / "failed" / "LSTM" / "seed-4" / "log.txt").exists()
    assert not list((tmp_path / "runs" / "LSTM").iterdir()), "nothing half done is left"
    assert Executor(tmp_path, jobs=1, threads=1)(cells) == results, "nothing is run again"


@FORKED
def test_the_folder_of_a_run_that_another_process_has_is_left_alone(execute, tmp_path):
    live = tmp_path / "runs" / "LSTM" / ".seed-2.77"
    dead = tmp_path / "runs" / "LSTM" / ".seed-1.78"
    live.mkdir(parents=True)
    dead.mkdir()
    lock = claimed(tmp_path, "LSTM/seed-2")  # the other process
    execute([cell_of(1)])
    assert live.exists()
    assert not dead.exists()
    lock.close()


@FORKED
def test_a_stop_ends_all_processes(execute, tmp_path, monkeypatch):
    def stop(_sentinels, _timeout):
        while len(list(tmp_path.glob("pid-*"))) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr("seqkit.comparison.execute.wait", stop)
    with pytest.raises(KeyboardInterrupt):
        execute([cell_of(1, sleeps=600), cell_of(2, sleeps=600)])
    processes = [int(path.name[4:]) for path in tmp_path.glob("pid-*")]
    assert len(processes) == 2
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


@pytest.mark.slow
def test_no_process_outlives_the_one_that_started_it(tmp_path):
    script = tmp_path / "start.py"
    script.write_text(
        "import os, pathlib\n"
        "from seqkit.comparison.cells import Cell\n"
        "from seqkit.comparison.execute import Executor\n"
        "if __name__ == '__main__':\n"
        "    process = Executor(pathlib.Path('.'), jobs=1, threads=1)._process(\n"
        "        Cell(id='a/b', kind='trial', candidate='a', config={}))\n"
        "    process.start()\n"
        "    print(process.pid, flush=True)\n"
        "    os._exit(1)\n",
        encoding="utf-8",
    )
    started = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    while Path(f"/proc/{int(started.stdout)}").exists():  # for ever, if it stays
        time.sleep(0.2)


def test_a_curve_is_read_up_to_the_last_step_and_thinned_but_keeps_every_validation(tmp_path):
    text = "epoch,step,train/loss,valid/loss\n0,9,2.0,\n0,19,,1.5\n0,19,1.0,\n0,29,,1.0\n"
    (tmp_path / "metrics.csv").write_text(text, encoding="utf-8")
    assert read_curve(tmp_path, 20) == [
        CurvePoint(step=10, train_loss=2.0), CurvePoint(step=20, train_loss=1.0, valid_loss=1.5),
    ]  # fmt: skip
    rows = [f"0,{step},1.0,{'2.0' if step % 97 == 0 else ''}" for step in range(1000)]
    (tmp_path / "metrics.csv").write_text(
        "epoch,step,train/loss,valid/loss\n" + "\n".join(rows), encoding="utf-8"
    )
    curve = read_curve(tmp_path, 1000)
    assert len(curve) < 220
    assert sum(point.valid_loss is not None for point in curve) == 11
