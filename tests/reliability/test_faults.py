"""A few cases of each row of the fault injections; `python -m tests.reliability` runs all of them."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from reliability import on_disk
from reliability.around_runs import RUN_FLAGS
from reliability.forked import Lost, Silent, forked, write_data
from reliability.rows import ROWS, quick

from seqkit.cli.parser import parser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks, and looks at processes as Linux has them"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of forking where torch's threads wait
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    write_data(folder)
    return folder


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.quick])
def test_a_run_survives_faults(data, tmp_path, name):
    for case in quick(name, data):
        folder = tmp_path / re.sub(r"\W+", "-", case.name)
        folder.mkdir()
        case.work(folder)


def test_a_checkpoint_that_is_taken_though_it_is_damaged_is_no_survival(data, tmp_path, monkeypatch):
    monkeypatch.setattr("seqkit.training.checkpoint_files.check_checkpoint", lambda path: None)
    sound = on_disk.sound_runs(data, tmp_path / "sound")
    with pytest.raises(Silent, match=r"the checkpoint that is taken is resume-step=8\.ckpt"):
        on_disk._newest_damaged(sound, lambda content: content[:-1], tmp_path)


def test_the_flags_that_are_tried_are_all_that_there_are():
    commands = next(action.choices for action in parser()._actions if isinstance(action.choices, dict))
    for name, tried in RUN_FLAGS.items():
        options = {option for action in commands[name]._actions for option in action.option_strings[:1]}
        of_tables_and_plugins = {"-h", "--plugin", "--input", "--keep"}
        assert options - of_tables_and_plugins == {word for words in tried for word in words if word.startswith("--")}


def test_a_process_that_hangs_is_ended_and_no_survival(tmp_path):
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    before = set(children.read_text().split())  # other tests may have left some, as pools of workers
    with pytest.raises(Lost, match="it ran for more than"):
        forked(lambda: signal.pause(), tmp_path, seconds=0.1)
    assert set(children.read_text().split()) <= before


def test_the_page_names_each_row_or_says_that_it_was_not_measured():
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert all(row.title in page for row in ROWS.values())
