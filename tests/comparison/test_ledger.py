"""Results of cells: written whole, and shared by processes of which some die."""

import multiprocessing
import os
import signal
import time

import pytest

from seqkit.comparison.ledger import Ledger, locked
from seqkit.errors import DataError

CONTEXT = multiprocessing.get_context("spawn")


def test_a_result_is_there_for_the_next_process(tmp_path):
    first = Ledger(tmp_path)
    assert first.claim("LSTM/lr-1")
    first.store("LSTM/lr-1", {"metrics": {"loss": 0.5}})
    again = Ledger(tmp_path)
    assert again.results() == {"LSTM/lr-1": {"metrics": {"loss": 0.5}}}
    assert not again.claim("LSTM/lr-1")
    assert again.claim("LSTM/lr-2")
    again.release("LSTM/lr-2")


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
    with pytest.raises(DataError, match=r"seed-1\.json"):
        Ledger(tmp_path).results()


def test_half_written_files_are_no_results(tmp_path):
    (tmp_path / ".seed-1.json.77.part").write_text("{")
    assert Ledger(tmp_path).results() == {}


def test_a_lock_that_is_a_link_is_refused_and_the_file_behind_it_stays(tmp_path):
    kept = tmp_path / "thesis.tex"
    kept.write_text("years of work", encoding="utf-8")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / ".lock").symlink_to(kept)
    with pytest.raises(DataError, match=r"\.lock"), locked(tmp_path / "c"):
        pass
    assert kept.read_text(encoding="utf-8") == "years of work"


# ── shared ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def claim_all(folder, cells, queue):
    """A worker: claim what is free, and store who had it."""
    ledger = Ledger(folder)
    while missing := [cell for cell in cells if cell not in ledger.results()]:
        for cell in missing:
            if ledger.claim(cell):
                queue.put((os.getpid(), cell))
                ledger.store(cell, {"metrics": {"loss": 1.0}, "by": os.getpid()})


def claim_and_hang(folder, cell, queue):
    ledger = Ledger(folder)
    queue.put(ledger.claim(cell))
    time.sleep(600)


def test_two_processes_share_the_cells_and_none_is_run_twice(tmp_path):
    cells, queue = [f"LSTM/cell-{i}" for i in range(101)], CONTEXT.Queue()
    workers = [CONTEXT.Process(target=claim_all, args=(tmp_path, cells, queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    ran = [queue.get(timeout=120) for _ in cells]
    for worker in workers:
        worker.join()
    assert sorted(cell for _, cell in ran) == sorted(cells)
    assert queue.empty()
    results = Ledger(tmp_path).results()
    assert {cell: result["by"] for cell, result in results.items()} == {cell: by for by, cell in ran}


def test_the_cell_of_a_process_that_was_killed_is_free_again_and_that_of_a_living_one_is_not(tmp_path):
    ledger, queue = Ledger(tmp_path), CONTEXT.Queue()
    other = CONTEXT.Process(target=claim_and_hang, args=(tmp_path, "lost", queue))
    other.start()
    assert queue.get(timeout=120)
    assert not ledger.claim("lost")
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    assert ledger.claim("lost")
    assert not Ledger(tmp_path).claim("lost")
    ledger.release("lost")


def test_a_cell_that_was_given_up_is_free(tmp_path):
    one, two = Ledger(tmp_path), Ledger(tmp_path)
    assert one.claim("a")
    assert not two.claim("a")
    one.release("a")
    assert two.claim("a")
    two.release("a")


def test_a_cell_that_another_process_has_stored_meanwhile_is_not_run_again(tmp_path):
    one, two = Ledger(tmp_path), Ledger(tmp_path)
    assert two.results() == {}
    assert one.claim("a")
    one.store("a", {"metrics": {"loss": float("nan")}})
    assert not two.claim("a")
    assert "a" in two.results()
