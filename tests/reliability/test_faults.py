"""A few cases of each row of the fault injections; `python -m tests.reliability` runs all of them."""

import math
import os
import signal
from argparse import ArgumentParser
from pathlib import Path

import pytest
from reliability import in_processes, on_disk
from reliability.__main__ import tried
from reliability.around_runs import RUN_FLAGS
from reliability.forked import Lost, Silent, forked, write_data
from reliability.rows import ROWS, quick
from runs.two_processes import needs_forks

from seqkit.cli.parser import module_of

pytestmark = [
    needs_forks,
    # of forking where torch's threads wait
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    write_data(folder)
    return folder


def slow_if(is_slow):
    return pytest.mark.slow if is_slow else ()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=slow_if(name != "kill-disk"))
        for name, row in ROWS.items()
        if row.quick
    ],
)
def test_a_run_survives_faults(data, tmp_path, monkeypatch, name):
    """Those that no other test injects: damaged recipes, tables, caches and folders have tests of their own."""
    monkeypatch.setattr(in_processes, "LIMIT", math.inf)  # a busy machine is no fault
    outcomes = [tried(case, tmp_path) for case in quick(name, data)]
    assert {each["name"]: each["lost"] for each in outcomes if each["lost"]} == {}
    assert outcomes


@pytest.mark.slow
def test_a_checkpoint_that_is_taken_though_it_is_damaged_is_no_survival(
    data, tmp_path, monkeypatch
):
    monkeypatch.setattr("seqkit.training.checkpoint_files.check_checkpoint", lambda path: None)
    sound = on_disk.sound_runs(data, tmp_path / "sound")
    with pytest.raises(Silent, match=r"resume-step=8\.ckpt"):
        on_disk._newest_damaged(sound, lambda content: content[:-1], tmp_path)


def test_the_flags_that_are_tried_are_all_that_there_are():
    for name, flags in RUN_FLAGS.items():
        module_of(name).add_arguments(command := ArgumentParser())
        options = {option for action in command._actions for option in action.option_strings[:1]}
        # of tables, and of data that has moved
        others = {"-h", "--input", "--keep", "--data"}
        assert options - others == {
            word for words in flags for word in words if word.startswith("--")
        }


def test_a_process_that_hangs_is_ended_and_no_survival(tmp_path):
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    # other tests may have left some, as pools of workers
    before = set(children.read_text().split())
    with pytest.raises(Lost, match="more than"):
        forked(lambda: signal.pause(), tmp_path, seconds=0.1)
    assert set(children.read_text().split()) <= before


def test_the_page_names_each_row_or_says_that_it_was_not_measured():
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert all(row.title in page for row in ROWS.values())
