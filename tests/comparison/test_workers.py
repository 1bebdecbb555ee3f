"""Worker processes: errors in one line, deaths noticed, none left behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from seqkit.comparison.candidates import Candidate
from seqkit.comparison.cells import Cell, read_curve
from seqkit.comparison.ledger import Ledger
from seqkit.comparison.plan import Plan
from seqkit.comparison.settings import Settings
from seqkit.comparison.workers import Workers, _attempt, execute
from seqkit.config import complete
from seqkit.errors import DataError, DivergedError

CELL = Cell("LSTM/lr-1", "trial", "LSTM", {})


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DataError("sample 3 is empty"), "sample 3 is empty"),
        (DivergedError("the loss is nan"), "the loss is nan"),
        (MemoryError(), "out of memory: "),
        (RuntimeError("no memory for\n8 bytes"), "out of memory: no memory for 8 bytes"),
        (RuntimeError("sizes 3 and\n4"), "RuntimeError: sizes 3 and 4"),
        (KeyError("dim"), "KeyError: 'dim' (test_workers.py:"),
    ],
)  # fmt: skip
def test_whatever_a_run_raises_is_one_line(error, message, tmp_path):
    def fail(cell, root):
        raise error

    found = _attempt(CELL, tmp_path, fail)["error"]
    assert found.startswith(message)
    assert "\n" not in found


# ── processes; they are forked from this one and train nothing ───────────────────────────────────────────────────────


@pytest.fixture
def forked(monkeypatch):
    """Takes the place of `run_cell`: the cell's configuration says what happens."""

    def work(cell, root):
        match cell.config:
            case {"raises": text}:
                raise DataError(text)
            case {"kills": True}:
                os.kill(os.getpid(), signal.SIGKILL)
            case {"exits": code}:
                os._exit(code)
            case {"kills once in": folder} if not (Path(folder) / cell.id).exists():
                (Path(folder) / cell.id).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            case {"sleeps": seconds}:
                time.sleep(seconds)
        return {"metrics": {"loss": 1.0}, "threads": os.environ["OMP_NUM_THREADS"], "pid": os.getpid()}

    monkeypatch.setattr("seqkit.comparison.cells.run_cell", work)
    monkeypatch.setattr("seqkit.comparison.workers._fork_server", lambda: multiprocessing.get_context("fork"))


@pytest.fixture
def workers(forked, tmp_path):
    made = Workers(2, tmp_path, threads=1)
    yield made
    made.stop()


def ended(workers):
    while True:
        if found := workers.finished(1.0):
            return found


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_a_worker_takes_one_cell_after_the_other_and_an_error_takes_nothing_else_with_it(workers):
    assert (workers.num_idle, workers.running) == (2, [])
    pids = []
    for config, fact in (({"raises": "sample 3"}, "sample 3"), ({}, None), ({}, None)):
        cell = replace(CELL, config=config)
        workers.submit(cell)
        assert (workers.num_idle, workers.running) == (1, [cell.id])
        ((got, result),) = ended(workers)
        assert got == cell
        assert fact is None or fact in result["error"]
        assert "killed" not in result
        pids.append(result.get("pid"))
    assert result["threads"] == "1"
    assert pids[1] == pids[2]


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
@pytest.mark.parametrize(("config", "facts"), [({"kills": True}, ["signal 9", "memory"]), ({"exits": 3}, ["code 3"])])
def test_a_worker_that_dies_is_told_and_the_next_cell_has_another(workers, config, facts):
    workers.submit(replace(CELL, config=config))
    ((_, result),) = ended(workers)
    assert result["killed"]
    assert all(fact in result["error"] for fact in facts)
    workers.submit(CELL)
    ((_, result),) = ended(workers)
    assert "error" not in result


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_stopping_ends_idle_and_busy_workers(workers):
    workers.submit(CELL)
    ((_, idle),) = ended(workers)
    workers.submit(replace(CELL, id="long", config={"sleeps": 600}))
    workers.submit(replace(CELL, id="longer", config={"sleeps": 600}))
    pids = [worker.process.pid for worker, _ in workers._busy.values()]
    workers.stop()
    assert not any(_lives(pid) for pid in [*pids, idle["pid"]])
    assert (workers.num_idle, workers.running) == (2, [])


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_a_cell_whose_process_was_killed_is_run_once_more(forked, tmp_path):
    settings = Settings(recipe="image/digits", backbones=["LSTM", "GRU"], lr_trials=0, seeds=1, measure=False)
    config = complete("image/digits", "debug")
    candidates = [Candidate("LSTM", config | {"kills": True}), Candidate("GRU", config)]
    plan = Plan(settings, candidates, {"LSTM": 4, "GRU": 4}, metric="accuracy", generates=False)
    plan.cell = lambda step, results: replace(
        CELL, id=step.id, config={"kills": True} if step.candidate == "LSTM" else {"kills once in": str(tmp_path)}
    )
    (tmp_path / "GRU").mkdir()
    ledger = Ledger(tmp_path / "cells")
    results = execute(plan, ledger, tmp_path, jobs=2, threads=1, title="")
    assert set(results) == {"LSTM/seed-1", "GRU/seed-1"}
    assert "signal 9" in results["LSTM/seed-1"]["error"]
    assert results["GRU/seed-1"]["metrics"] == {"loss": 1.0}
    assert Ledger(tmp_path / "cells").results() == results


@pytest.mark.slow
def test_no_worker_outlives_the_process_that_started_it(tmp_path):
    script = tmp_path / "start.py"
    script.write_text(
        "import os, sys, pathlib\n"
        "from seqkit.comparison.workers import Workers\n"
        "if __name__ == '__main__':\n"
        "    workers = Workers(1, pathlib.Path('.'), 1)\n"
        "    print(workers._start().process.pid, flush=True)\n"
        "    os._exit(1)\n",
        encoding="utf-8",
    )
    started = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path)
    pid = int(started.stdout)
    while _lives(pid):  # for ever, if it stays
        time.sleep(0.2)


def _lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        with Path(f"/proc/{pid}/stat").open(encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_curve_has_shares_of_the_runs_tokens_and_seconds(tmp_path):
    (tmp_path / "metrics.csv").write_text(
        "epoch,step,train/loss,valid/loss\n0,9,2.0,\n0,19,,1.5\n0,19,1.0,\n", encoding="utf-8"
    )
    curve = read_curve(tmp_path, {"steps": 20, "tokens_seen": 1000, "wall_seconds": 4.0})
    assert curve == [
        {"step": 10, "tokens": 500, "seconds": 2.0, "train_loss": 2.0, "valid_loss": None},
        {"step": 20, "tokens": 1000, "seconds": 4.0, "train_loss": 1.0, "valid_loss": 1.5},
    ]


def test_a_long_curve_is_thinned_but_keeps_every_validation(tmp_path):
    rows = [f"0,{step},1.0,{'2.0' if step % 97 == 0 else ''}" for step in range(1000)]
    (tmp_path / "metrics.csv").write_text("epoch,step,train/loss,valid/loss\n" + "\n".join(rows), encoding="utf-8")
    curve = read_curve(tmp_path, {"steps": 1000, "tokens_seen": 1000, "wall_seconds": 4.0})
    assert len(curve) < 220
    assert sum(point["valid_loss"] is not None for point in curve) == 11
