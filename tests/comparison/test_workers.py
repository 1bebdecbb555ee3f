"""Worker processes: errors in one line, deaths noticed, none left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqkit.comparison.cells import Cell, read_curve
from seqkit.comparison.workers import Workers, _attempt, _death
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


def test_how_a_process_died_is_said_in_words():
    assert "signal 9" in _death(-9)
    assert "out of memory" in _death(-9)
    assert _death(3) == "the process ended with exit code 3"


@pytest.mark.slow
def test_a_cell_that_cannot_run_is_an_error_and_the_worker_takes_the_next(tmp_path):
    workers = Workers(1, tmp_path, threads=1)
    try:
        for _ in range(2):
            workers.submit(CELL)
            assert workers.num_idle == 0
            ended = []
            deadline = time.monotonic() + 600
            while not ended and time.monotonic() < deadline:
                ended = workers.finished(1.0)
            ((cell, result),) = ended
            assert cell == CELL
            assert "error" in result
            assert "killed" not in result
    finally:
        workers.stop()


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
    deadline = time.monotonic() + 600
    while _lives(pid):
        assert time.monotonic() < deadline, "a worker is still there"
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
