"""The same command again, as a job that is requeued gives it: what was given decides whether the run is the same."""

import json
import shutil
from pathlib import Path

import pytest

from seqkit.classical.strong_baseline import Found
from seqkit.config import complete
from seqkit.errors import DataError, UsageError
from seqkit.files import read_mapping, write_json
from seqkit.runs.folder import STATE
from seqkit.runs.mixture import evaluate_run
from seqkit.runs.run import train_or_resume
from seqkit.runs.summary import read_summary, reasons_of_trial

QUICK = {"trainer.max_steps": 2, "trainer.enable_progress_bar": False, "data.batch_size": 8}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table with a text, a number and a category."""
    path = tmp_path_factory.mktemp("table") / "t.csv"
    rows = "".join(f"word {i} more of it,{i * 0.5},{'ab'[i % 2]}{i % 3}\n" for i in range(60))
    path.write_text("note,size,sort\n" + rows, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def run_of(table, tmp_path_factory):
    """A finished run of the table, and the keys that it was given."""
    folder = tmp_path_factory.mktemp("requeued") / "run"
    given = {"data": table, "data.target": "sort", **QUICK}
    train_or_resume(config_of(given), folder)
    return folder, given


def config_of(given):
    return complete("multimodal/table", "debug", given)


def test_a_table_whose_columns_the_run_has_decided_is_the_same_configuration(run_of):
    folder, given = run_of
    decided = read_mapping(folder / "config.yaml")
    assert decided["data"]["source"]["columns"]
    assert decided["tokenizer"]["reads"]
    before = (folder / "summary.json").read_bytes()
    assert train_or_resume(config_of(given), folder) == read_summary(folder)
    assert (folder / "summary.json").read_bytes() == before, "it is not trained again"


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 3},
        {"data.columns": {"note": "text", "size": "number"}},
        {"trainer.precision": "32-true"},
    ],
)
def test_another_value_that_is_given_is_another_configuration(run_of, changes):
    """Also one that the run has decided itself: it could decide otherwise on other data or another machine."""
    folder, given = run_of
    with pytest.raises(UsageError, match="holds a run of another configuration"):
        train_or_resume(config_of({**given, **changes}), folder)


def test_an_unfinished_table_goes_on_and_stays_the_same(run_of, tmp_path):
    folder, given = run_of
    for name in ("config.yaml", STATE):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    for _ in range(2):
        assert train_or_resume(config_of(given), tmp_path).state == "finished"
        state, whole = (read_mapping(place / STATE) for place in (tmp_path, folder))
        assert state | {"made_in": ""} == whole | {"made_in": ""}


@pytest.mark.parametrize("lost", [(), ("config.yaml",), ("config.yaml", "state.json")])
def test_a_run_that_was_killed_before_a_whole_checkpoint_begins_anew(
    run_of, tmp_path, lost, caplog
):
    whole, given = run_of
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    shutil.rmtree(folder / "checkpoints")
    for name in ("summary.json", "metrics.csv", "log.txt", *lost):
        (folder / name).unlink()
    (folder / ".lock").touch()
    (folder / ".state.json.7.part").touch()
    if not lost:
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints" / "resume-step=900.ckpt").write_bytes(b"half of it")
    again = train_or_resume(config_of(given), folder)
    assert again.sha256 == read_summary(whole).sha256
    assert ("so it begins anew" in caplog.text) == (not lost)
    left = {path.name for path in folder.rglob("*")}
    assert not left & {".lock", ".state.json.7.part", "resume-step=900.ckpt"}


def test_a_damaged_checkpoint_is_no_reason_to_begin_anew(run_of, tmp_path):
    whole, given = run_of
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    (folder / "summary.json").unlink()
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").mkdir()
    for name in ("resume-step=1.ckpt", "resume-step=1.ckpt.json"):
        (folder / "checkpoints" / name).write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="no good checkpoint"):
        train_or_resume(config_of(given), folder)
    assert (folder / "checkpoints" / "resume-step=1.ckpt").exists()


def test_a_finished_run_keeps_nothing_of_processes_that_were_killed(run_of, tmp_path):
    whole, given = run_of
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    before = {path.name for path in folder.rglob("*")}
    (folder / ".lock").touch()
    (folder / ".summary.json.7.part").touch()
    assert train_or_resume(config_of(given), folder) == read_summary(whole)
    assert {path.name for path in folder.rglob("*")} == before


@pytest.mark.slow
def test_a_run_of_an_earlier_version_may_be_the_same_and_a_damaged_one_is_named(tmp_path):
    given = {**QUICK, "model.backbone": "MeanPool"}
    config = complete("image/digits", "debug", given)
    train_or_resume(config, tmp_path)
    state = read_mapping(tmp_path / STATE)
    assert state.pop("given") == {"trainer.precision": "auto"}
    write_json(tmp_path / STATE, state)
    assert train_or_resume(config, tmp_path).steps == 2
    with pytest.raises(UsageError, match="another configuration"):
        train_or_resume(complete("image/digits", "debug", {**given, "seed": 9}), tmp_path)
    for wrong in ([], {"trainer.of.nothing": 1}, {"recipe.below": 1}):
        write_json(tmp_path / STATE, {**state, "given": wrong})
        with pytest.raises(DataError, match="given does not fit"):
            train_or_resume(config, tmp_path)


@pytest.mark.parametrize("again", [train_or_resume, None])
def test_a_test_that_comes_later_has_its_specialist(run_of, tmp_path, again, monkeypatch):
    """A signal after training leaves the test to `seqkit evaluate`, or to the same command."""
    monkeypatch.setattr("seqkit.runs.summary.FEW_STEPS", 1)
    folder, given = run_of
    for path in folder.rglob("*"):
        if path.is_file():
            (place := tmp_path / path.relative_to(folder)).parent.mkdir(exist_ok=True)
            place.write_bytes(path.read_bytes())
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    write_json(tmp_path / "summary.json", summary | {"state": "trained", "metrics": {}})
    found = Found("rule", 40, {"accuracy": 1.0}, seconds=0.1)
    monkeypatch.setattr("seqkit.runs.evaluate.found_for", lambda _: found)
    if again is None:
        evaluate_run(tmp_path, "test")
    else:
        again(config_of(given), tmp_path)
    found = read_summary(tmp_path)
    assert (found.state, found.metrics) == ("finished", summary["metrics"])
    assert found.strong_baseline.name == "rule"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ((60, None, 400), []),
        ((49, None, 400), ["49 steps"]),
        ((1, 10, 10), ["1 step", "at most 10 examples a split (data.limit)"]),
        ((60, 300, 300), ["at most 300 examples a split (data.limit)"]),
        # it cuts nothing, or leaves enough
        ((60, 500, 400), []),
        ((60, 1000, 1000), []),
        ((None, None, None), []),
    ],
)
def test_a_trial_has_few_steps_or_a_limit_that_leaves_few_examples(facts, words):
    assert reasons_of_trial(*facts) == words
