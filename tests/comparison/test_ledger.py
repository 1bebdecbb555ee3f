"""Results of cells: written whole, one process a folder, and shared by workers of which some die."""

import json
import multiprocessing
import os
import signal
import time

import pytest

from seqkit.comparison.ledger import FolderLedger, SharedLedger, locked
from seqkit.errors import DataError, UsageError

CONTEXT = multiprocessing.get_context("spawn")


def test_a_result_is_there_for_the_next_process(tmp_path):
    FolderLedger(tmp_path).store("LSTM/lr-1", {"metrics": {"loss": 0.5}})
    again = FolderLedger(tmp_path)
    assert again.results() == {"LSTM/lr-1": {"metrics": {"loss": 0.5}}}
    assert not again.claim("LSTM/lr-1")
    assert again.claim("LSTM/lr-2")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "",
        "{}",
        '{"summary": {}}',
        '{"summary": 3}',
        '{"error": 3}',
        '{"metrics": []}',
        '{"error": "a", "error": "b"}',
        '{"error": ' + "[" * 100_000,
        '{"error": "a", "b": ' + "[" * 21 + "]" * 21 + "}",
    ],
    ids=lambda content: content[:30],
)
def test_a_damaged_result_is_named_and_never_taken_for_one(tmp_path, content):
    (tmp_path / "seed-1.json").write_text(content)
    with pytest.raises(DataError, match=r"seed-1\.json is damaged"):
        FolderLedger(tmp_path)


def test_half_written_files_are_no_results(tmp_path):
    (tmp_path / ".seed-1.json.77.part").write_text("{")
    assert FolderLedger(tmp_path).results() == {}


def test_one_process_at_a_time_has_a_folder(tmp_path):
    new = tmp_path / "new"
    with locked(new), pytest.raises(UsageError, match="another process works on"), locked(new):
        pass
    with locked(tmp_path / "new"):
        pass


def test_a_lock_that_is_a_link_is_refused_and_the_file_behind_it_stays(tmp_path):
    kept = tmp_path / "thesis.tex"
    kept.write_text("years of work", encoding="utf-8")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / ".lock").symlink_to(kept)
    with pytest.raises(UsageError, match=r"\.lock"), locked(tmp_path / "c"):
        pass
    assert kept.read_text(encoding="utf-8") == "years of work"


# ── shared ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def storage_in(folder):
    pytest.importorskip("optuna")
    return f"sqlite:///{folder}/study.db"


def claim_all(storage, cells, queue):
    """A worker: claim what is free, and store who had it."""
    ledger = SharedLedger(storage, "test", heartbeat_seconds=1)
    while missing := [cell for cell in cells if cell not in ledger.results()]:
        for cell in missing:
            if ledger.claim(cell):
                queue.put((os.getpid(), cell))
                ledger.store(cell, {"metrics": {"loss": 1.0}, "by": os.getpid()})
    ledger.close()


def claim_and_hang(storage, cell):
    SharedLedger(storage, "test", heartbeat_seconds=1).claim(cell)
    time.sleep(600)


@pytest.mark.slow
def test_two_workers_share_the_cells_and_none_is_run_twice(tmp_path):
    storage, cells = storage_in(tmp_path), [f"cell-{i}" for i in range(11)]
    SharedLedger(storage, "test").close()
    queue = CONTEXT.Queue()
    workers = [CONTEXT.Process(target=claim_all, args=(storage, cells, queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    ran = [queue.get(timeout=120) for _ in cells]
    for worker in workers:
        worker.join()
    assert sorted(cell for _, cell in ran) == sorted(cells)
    assert queue.empty()
    results = SharedLedger(storage, "test").results()
    assert {cell: result["by"] for cell, result in results.items()} == {cell: by for by, cell in ran}


@pytest.mark.slow
def test_the_cell_of_a_worker_that_was_killed_is_free_again_and_that_of_a_living_one_is_not(tmp_path):
    storage = storage_in(tmp_path)
    mine = SharedLedger(storage, "test", heartbeat_seconds=1)
    assert mine.claim("own")
    other = CONTEXT.Process(target=claim_and_hang, args=(storage, "lost"))
    other.start()
    deadline = time.monotonic() + 120
    while mine._owner("lost") is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not mine.claim("lost")
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    while not mine.claim("lost"):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    watcher = SharedLedger(storage, "test", heartbeat_seconds=1)
    assert not watcher.claim("own")  # its worker gave signs of life all the while
    mine.store("lost", {"metrics": {"loss": 0.5}})
    mine.store("own", {"error": "it diverged"})
    assert watcher.results() == {"lost": {"metrics": {"loss": 0.5}}, "own": {"error": "it diverged"}}
    mine.close()
    watcher.close()


def test_a_result_that_is_not_a_number_is_kept_and_not_run_for_ever(tmp_path):
    ledger = SharedLedger(storage_in(tmp_path), "test")
    assert ledger.claim("a")
    ledger.store("a", {"metrics": {"loss": float("nan")}})
    assert "a" in ledger.results()
    assert not ledger.claim("a")
    ledger.close()


def test_a_cell_that_was_given_up_is_free(tmp_path):
    ledger = SharedLedger(storage_in(tmp_path), "test")
    assert ledger.claim("a")
    assert not ledger.claim("a")
    ledger.release("a")
    assert ledger.claim("a")
    ledger.close()


def test_a_storage_that_cannot_be_opened_is_one_line(tmp_path):
    pytest.importorskip("optuna")
    with pytest.raises(UsageError, match="--storage nonsense cannot be opened"):
        SharedLedger("nonsense", "test")
    (tmp_path / "a.db").write_text(json.dumps("no database"))
    with pytest.raises(UsageError, match="cannot be opened"):
        SharedLedger(f"sqlite:///{tmp_path}/a.db", "test")
