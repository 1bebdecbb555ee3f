"""Run folders: each run has its own, an unfinished one is found again, and none is written by two processes."""

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from seqkit.cli.main import main
from seqkit.errors import DataError, UsageError
from seqkit.files import open_to_append, write_json
from seqkit.runs import folder as run_folder
from seqkit.runs.folder import (
    CONFIG,
    STATE,
    SUMMARY,
    check_new,
    check_no_links,
    is_unfinished,
    logging_to,
    new_folder,
    opened,
)
from seqkit.runs.launcher import rank
from seqkit.runs.run import resume_run, run


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_STEP_ID",
        "SLURM_JOB_NAME",
    ):
        monkeypatch.delenv(name, raising=False)


def begun(folder, *, steps=(), state=None, seconds=0):
    """A folder as a run leaves it. steps: of its checkpoints. state: of its summary. seconds: when it began."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / CONFIG).write_text("recipe: image/digits\n", encoding="utf-8")
    os.utime(folder / CONFIG, (1_000_000 + seconds, 1_000_000 + seconds))
    for step in steps:
        (folder / "checkpoints" / f"resume-step={step}.ckpt").touch()
    if state is not None:
        write_json(folder / SUMMARY, {"state": state})
    return folder


def test_runs_that_start_in_one_second_get_a_folder_each(tmp_path):
    with ThreadPoolExecutor(5) as pool:
        folders = list(pool.map(lambda _: new_folder("image/digits", tmp_path), range(25)))
    assert len(set(folders)) == 25
    assert all(folder.is_dir() and folder.parent == tmp_path / "image/digits" for folder in folders)


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({}, 0),
        ({"RANK": "3", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "x"}, 3),
        ({"RANK": "0", "WORLD_SIZE": "1"}, 0),
        # as Lightning starts its own, be it from a shell with RANK=0
        ({"RANK": "0", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, 1),
        ({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, 0),
        ({"SLURM_PROCID": "2", "SLURM_STEP_ID": "0"}, 2),
        ({"SLURM_PROCID": "2"}, 0),
        ({"SLURM_PROCID": "2", "SLURM_STEP_ID": "0", "SLURM_JOB_NAME": "bash"}, 0),
    ],
    ids=str,
)
def test_the_number_of_a_process_is_what_its_launcher_says(monkeypatch, environment, number):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rank() == number


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"RANK": "1", "LOCAL_RANK": "1"}, "RANK LOCAL_RANK"),
        ({"RANK": "0", "WORLD_SIZE": "4", "MASTER_PORT": "1"}, "WORLD_SIZE"),
        ({"LOCAL_RANK": "3"}, "LOCAL_RANK"),
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "1"}, "SLURM_NTASKS"),
    ],
    ids=str,
)
def test_numbers_of_processes_that_no_launcher_set_are_refused(monkeypatch, environment, named):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=rf"type: unset {named}$"):
        rank()


@pytest.mark.parametrize(
    ("state", "unfinished"), [(None, True), ("trained", False), ("finished", False)]
)
def test_a_run_is_unfinished_until_it_has_trained_to_its_end(tmp_path, state, unfinished):
    assert is_unfinished(begun(tmp_path / "run", state=state)) is unfinished
    assert not is_unfinished(tmp_path)


def test_a_folder_that_holds_something_is_never_overwritten(tmp_path):
    check_new(tmp_path / "new")
    check_new(tmp_path)
    for name in (".lock", ".config.yaml.7.part", STATE):  # of a process killed before its run began
        (tmp_path / "killed").mkdir(exist_ok=True)
        (tmp_path / "killed" / name).touch()
        check_new(tmp_path / "killed")
    (tmp_path / "killed" / "notes.txt").touch()
    with pytest.raises(UsageError, match="exists"):
        check_new(tmp_path / "killed")
    run = begun(tmp_path / "run", steps=[3, 20])
    with pytest.raises(UsageError, match="unfinished"):
        check_new(run)
    with pytest.raises(UsageError, match="exists"):
        check_new(begun(tmp_path / "done", state="finished"))
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="exists"):
        check_new(tmp_path / "file")


def test_a_folder_in_use_is_refused_and_free_again_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "WAIT_SECONDS", 0.2)
    folder = tmp_path / "run"
    with opened(folder, lambda: True):
        with pytest.raises(UsageError, match="in use"), opened(folder, lambda: True):
            pass
        assert folder.is_dir()
    with opened(folder, lambda: True):
        pass
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("is_started", "was_there"), [(False, False), (True, False), (False, True)]
)
def test_an_error_removes_what_was_made_unless_training_began(tmp_path, is_started, was_there):
    folder = tmp_path / "runs" / "mine"
    if was_there:
        begun(folder)
    with pytest.raises(KeyError), opened(folder, lambda: is_started):
        (folder / "log.txt").touch()
        raise KeyError
    assert folder.exists() == (is_started or was_there)


def test_a_folder_is_waited_for_while_what_a_killed_run_left_still_holds_it(tmp_path, monkeypatch):
    folder, naps = begun(tmp_path / "run"), []
    orphan = (folder / ".lock").open("a")
    fcntl.flock(orphan, fcntl.LOCK_EX)

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            orphan.close()

    monkeypatch.setattr(run_folder, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=nap))
    with opened(folder, lambda: True):
        assert len(naps) == 3


@pytest.mark.parametrize(
    "name", [".lock", "log.txt", "metrics.csv", "config.yaml", "checkpoints", "wandb/run/x", "a/b"]
)
def test_a_run_folder_with_a_link_is_refused_and_the_file_behind_it_stays(tmp_path, name):
    outside = tmp_path / "startup"
    outside.write_text("export A=1\n")
    folder = tmp_path / "run"
    begun(folder, steps=[3])
    write_json(folder / STATE, {})
    place = folder / name
    if place.is_dir():
        place.joinpath("resume-step=3.ckpt").unlink()
        place.rmdir()
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside)
    for work in (
        lambda: opened(folder, lambda: True).__enter__(),
        lambda: resume_run(folder, {}),
        lambda: main(["fit", "--resume", str(folder)]) == 3 and check_no_links(folder),
    ):
        with pytest.raises((DataError, UsageError)):
            work()
    with pytest.raises(DataError, match=place.name):
        check_no_links(folder)
    assert outside.read_text() == "export A=1\n"


def test_links_that_stay_inside_such_as_those_of_a_logger_are_allowed(tmp_path):
    (tmp_path / "wandb" / "run-1").mkdir(parents=True)
    (tmp_path / "wandb" / "latest-run").symlink_to("run-1")
    (tmp_path / "wandb" / "itself").symlink_to("itself")
    check_no_links(tmp_path)


@pytest.mark.parametrize("kind", ["link", "second name"])
def test_a_file_that_leads_elsewhere_is_not_appended_to(tmp_path, kind):
    outside, log = tmp_path / "startup", tmp_path / "log.txt"
    outside.write_text("export A=1\n")
    log.symlink_to(outside) if kind == "link" else log.hardlink_to(outside)
    with pytest.raises(DataError, match=r"log\.txt"):
        open_to_append(log)
    with pytest.raises(DataError), logging_to(log):
        pass
    assert outside.read_text() == "export A=1\n"


@pytest.mark.parametrize(
    "name", ["$(id)", "a;b", "a`b`", "a\nb", "../a", "/a", "-x", "", "a" * 300, "a\x1b[2J", "a//b"]
)
def test_a_recipe_whose_name_is_more_than_words_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="name"):
        run({"recipe": name}, tmp_path / "run")
    assert not (tmp_path / "run").exists()
