"""A run folder: a fault is found before anything is trained, and a stopped run is a run."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from seqkit.config import complete
from seqkit.errors import DataError, DivergedError, UsageError
from seqkit.files import read_mapping
from seqkit.report.page import write_report
from seqkit.runs import evaluate as evaluate_module
from seqkit.runs import run as run_module
from seqkit.runs.evaluate import evaluate
from seqkit.runs.mixture import load
from seqkit.runs.run import run, trial
from seqkit.runs.summary import read_summary

QUICK = ["--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"]
SMALL = ["--data.limit", "40", "--data.batch_size", "10"]


def config(*words):
    return complete("image/digits", "debug", [*QUICK, *SMALL, *words])


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "digits"
    run(config(), folder)
    return folder


@pytest.mark.slow
def test_a_run_repeats_from_its_own_configuration(digits, tmp_path):
    again = run(complete(read_mapping(digits / "config.yaml")), tmp_path / "again")
    first = json.loads((digits / "summary.json").read_text(encoding="utf-8"))
    assert (again["metrics"], again["sha256"]) == (first["metrics"], first["sha256"])
    assert again["state"] == "finished"


@pytest.mark.parametrize(
    "words",
    [
        ("--optimizer.lr", "-1"),
        ("--seed", "-1"),
        ("--model.objective.label_smoothing", "3"),
        ("--data.num_workers", "-1"),
        ("--trainer.max_steps", "0"),
        ("--trainer.devices", "0"),
        ("--trainer.devices", "1000000"),
        ("--trainer.max_epochs", "0"),
        ("--trainer.val_check_interval", "100000"),
        ("--trainer.limit_val_batches", "0.0001", "--data.valid_fraction", "0.2"),
        ("--model.backbone.dim", "-1"),
        ("--model.backbone.num_heads", "0"),
        ("--optimizer.adamw", "torch.optim.SGD"),
    ],
)
def test_a_refused_setting_leaves_no_folder_behind(tmp_path, words):
    with pytest.raises(UsageError) as caught:
        run(config(*words), tmp_path / "deep" / "run")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("deep/*"))


def test_a_run_that_fails_before_its_first_step_removes_only_what_it_made(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        (tmp_path / "deep" / "other").mkdir()  # as another run would
        raise RuntimeError("no step")

    monkeypatch.setattr(run_module, "train", fail)
    with pytest.raises(RuntimeError, match="no step"):
        run(config(), tmp_path / "deep" / "run")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["other"]


def test_a_run_that_fails_after_its_first_step_keeps_its_folder(tmp_path):
    with pytest.raises(DivergedError):
        run(config("--optimizer.lr", "1e30"), tmp_path / "run")
    assert "the run stopped" in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")


def test_a_run_whose_model_computes_nan_in_the_end_is_not_finished(tmp_path):
    """Its one step leaves finite weights, too large to compute with."""
    words = ["--optimizer.lr", "1e30", "--trainer.max_steps", "1", "--trainer.weights", "last"]
    with pytest.raises(DivergedError, match="computes NaN on the test split"):
        run(config(*words), tmp_path / "run")
    assert read_summary(tmp_path / "run").state == "trained"
    with pytest.raises(DivergedError, match="computes NaN"):
        evaluate(tmp_path / "run", "test")


def test_warm_up_of_more_than_a_run_is_said_in_its_log(tmp_path):
    words = ["--trainer.max_steps", "2", "--schedule.warmup_steps", "5"]
    summary = run(config(*words), tmp_path / "run")
    assert (summary["steps"], summary["state"]) == (2, "finished")
    log = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    assert "WARNING schedule: warmup_steps=5 is more than half of the 2 steps" in log


def test_a_fault_in_the_test_split_is_found_before_training(tmp_path):
    from PIL import Image

    for split in ("train", "test"):
        for name, size in (("cat", 8), ("dog", 9 if split == "test" else 8)):
            path = tmp_path / "photos" / split / name / "0.png"
            path.parent.mkdir(parents=True)
            Image.new("RGB", (size, size)).save(path)
    words = ["--data", str(tmp_path / "photos"), "--tokenizer.channels", "3"]
    with pytest.raises(DataError, match=r"dog.0\.png: image is 9x9"):
        run(config(*words), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be made"):
        run(config(), tmp_path / "file" / "run")


def test_what_cannot_be_encoded_is_named(digits):
    loaded, images = load(digits), [torch.rand(1, 8, 8), torch.rand(1, 9, 8)]
    assert len(loaded.predict(images[:1])) == 1
    with pytest.raises(DataError, match=r"^example 1: image is 9x8"):
        loaded.predict(images)
    with pytest.raises(DataError, match=r"^b\.png: image is 9x8"):
        loaded.predict(images, names=["a.png", "b.png"])


def test_images_of_another_size_than_those_of_training_get_a_prediction_with_one_warning(
    digits, caplog
):
    loaded = load(digits)
    loaded.predict([torch.rand(1, 8, 8), torch.rand(1, 8, 8)])
    assert not caplog.messages
    images = [torch.rand(1, 8, 8), torch.rand(1, 8, 12), torch.rand(1, 4, 4)]
    assert len(loaded.predict(images, names=["a.png", "b.png", "c.png"])) == 3
    assert caplog.messages == [
        "b.png has 6 tokens, the last at position (1, 2), but those of training end at (1, 1); "
        "do not rely on such predictions"
    ]


@pytest.mark.slow
def test_a_run_is_evaluated_again_in_the_precision_that_it_was_trained_in(tmp_path, monkeypatch):
    summary = run(config("--trainer.precision", "bf16-mixed"), tmp_path / "run")
    made, make_trainer = [], evaluate_module.make_trainer
    monkeypatch.setattr(
        evaluate_module,
        "make_trainer",
        lambda *args, **kwargs: made.append(make_trainer(*args, **kwargs)) or made[-1],
    )
    assert evaluate(tmp_path / "run", "test") == pytest.approx(summary["metrics"], rel=1e-6)
    # the precision itself, not two losses that a machine may round alike
    assert [trainer.precision for trainer in made] == ["bf16-mixed"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("state.json", '{"tokenizer": {}, "objective": {"nam": 1}}'), ("summary.json", "{")],
)
def test_a_damaged_file_of_a_run_is_named(digits, tmp_path, name, content):
    run = Path(shutil.copytree(digits, tmp_path / "run"))
    (run / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=name):
        load(run)


# ── trials ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_trial_is_scored_on_validation_data_and_never_reads_the_test_split(tmp_path, monkeypatch):
    from seqkit.data.module import DataModule

    words = {
        "data.limit": 40,
        "data.batch_size": 8,
        "data.valid_fraction": 0.3,
        "trainer.max_steps": 2,
        "trainer.enable_progress_bar": False,
    }
    config = complete("image/digits", "debug", words)
    run(config, tmp_path / "run")
    expected = evaluate(tmp_path / "run", "valid")
    monkeypatch.setattr(
        DataModule, "test_dataloader", lambda self: pytest.fail("the test split was read")
    )
    found = trial(config)
    assert found["metrics"] == pytest.approx(expected)
    assert set(found["data_sha256"]) == {"training", "validation"}
    assert found["steps"] == 2


def test_a_trial_without_validation_data_is_refused():
    with pytest.raises(UsageError, match="no validation split"):
        trial(
            complete(
                "image/digits",
                "debug",
                {"data.limit": 40, "data.valid_fraction": 0.0, "trainer.weights": "last"},
            )
        )


@pytest.mark.slow
def test_a_run_begins_with_the_weights_of_another_where_it_is_told_to(tmp_path, monkeypatch):
    monkeypatch.setattr("seqkit.runs.run.calibrate", lambda _: None)  # it would change the head
    words = {
        "data.limit": 40,
        "optimizer": {"type": "AdamW", "lr": 0.0},
        "trainer.enable_progress_bar": False,
    }
    first = complete("image/digits", "debug", {**words, "seed": 1})
    run(first, tmp_path / "first")
    words["model.init"] = str(tmp_path / "first")
    run(complete("image/digits", "debug", {**words, "seed": 2}), tmp_path / "second")
    one, two = (load(tmp_path / name).model.state_dict() for name in ("first", "second"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def reviews(path, word):
    """A table of 24 texts, in two classes."""
    rows = [f"{word} {number},{'good' if number % 2 else 'bad'}" for number in range(24)]
    path.write_text("\n".join(["text,label", *rows, ""]), encoding="utf-8")


@pytest.fixture
def reviewed(tmp_path):
    """A run with a test split of its own, and that split's file."""
    reviews(tmp_path / "train.csv", "film")
    reviews(tmp_path / "test.csv", "book")
    words = [
        "--data",
        str(tmp_path / "train.csv"),
        "--data.test",
        str(tmp_path / "test.csv"),
        "--tokenizer",
        "Bytes",
    ]
    run(complete("text/classify", "debug", [*QUICK, *words]), tmp_path / "run")
    return tmp_path / "run", tmp_path / "test.csv"


def untested(folder):
    """Its summary as it was before the test."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    (folder / "summary.json").write_text(
        json.dumps({**summary, "state": "trained"}), encoding="utf-8"
    )
    return summary


def test_a_run_that_is_tested_later_ends_with_the_same_summary(reviewed):
    folder, _ = reviewed
    summary = untested(folder)
    evaluate(folder, "test")
    later = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert {**later, "date": None} == {**summary, "date": None}
    assert set(later["data_sha256"]) == {"training", "validation", "test"}


def test_a_run_is_not_finished_with_a_test_split_that_has_changed(reviewed):
    folder, file = reviewed
    untested(folder)
    reviews(file, "song")
    with pytest.raises(DataError, match=r"test data.* has changed"):
        evaluate(folder, "test")


@pytest.mark.slow
def test_a_run_that_ends_before_its_max_steps_says_so(tmp_path, caplog):
    words = ["--trainer.max_epochs", "1"]
    run(config(*words, "--trainer.max_steps", "3"), tmp_path / "whole")
    assert "before max_steps" not in caplog.text
    run(config(*words, "--trainer.max_steps", "90"), tmp_path / "short")
    assert "max_epochs 1 end after 4 steps, before max_steps" in caplog.text


def test_a_test_of_data_that_have_changed_since_the_run_says_so(reviewed, caplog):
    folder, file = reviewed
    evaluate(folder, "test")
    evaluate(folder, "valid")
    assert "has changed" not in caplog.text
    reviews(file, "song")
    evaluate(folder, "test")
    assert f"test data of {folder} has changed" in caplog.text


@pytest.mark.slow
def test_a_run_finds_its_data_from_any_folder_and_says_which_is_gone(tmp_path, monkeypatch, caplog):
    """Its paths are relative to where it began, also when the whole folder has moved."""
    (tmp_path / "old" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "old")
    reviews(Path("sub/r.csv"), "film")
    words = {"data": "sub/r.csv", "data.target": "label", "trainer.max_steps": 2}
    run(complete("text/classify", "debug", words), Path("runs/one"))
    monkeypatch.chdir(tmp_path)
    shutil.move("old", "new")
    found = evaluate(Path("new/runs/one"), "test")
    assert found == read_summary(Path("new/runs/one")).metrics
    write_report(Path("new/runs/one"))
    assert "no examples are shown" not in Path("new/runs/one/report.html").read_text("utf-8")
    assert "has changed" not in caplog.text
    # what lies here comes first, and is known not to be the run's
    Path("sub").mkdir()
    reviews(Path("sub/r.csv"), "song")
    evaluate(Path("new/runs/one"), "test")
    assert "has changed" in caplog.text
    shutil.rmtree("sub")
    shutil.rmtree("new/sub")
    with pytest.raises(
        DataError,
        match=r"sub/r\.csv does not exist \(data\.source\.path of .*seqkit evaluate \S+one --data NEW",
    ):
        evaluate(Path("new/runs/one"), "test")


@pytest.mark.parametrize("name", ["config.yaml", "state.json"])
def test_a_file_that_was_changed_since_training_is_named(digits, tmp_path, name):
    folder = Path(shutil.copytree(digits, tmp_path / "run"))
    (folder / name).write_bytes((folder / name).read_bytes() + b"\n")
    with pytest.raises(DataError, match=rf"{name} has changed"):
        load(folder)


def test_what_is_said_of_the_data_is_in_the_log_the_summary_and_the_report(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(
        "text,label\n" + "".join(f"a {i % 9},{'ab'[i % 3 > 0]}\n" for i in range(40)),
        encoding="utf-8",
    )
    words = [f"--data={table}", "--data.input=text", "--data.target=label", *QUICK]
    run(complete("text/classify", "debug", words), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    (caution,) = summary["data_cautions"]
    assert "test inputs are in training, too" in caution
    assert caution in summary["data_notes"]
    log = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    assert all(log.count(line) == 1 for line in summary["data_notes"])
    assert "SHA-256 with seed 0" in log, "how rows were split"
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "test inputs are in training, too" in page
    for key in ("data_notes", "data_cautions"):
        del summary[key]
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    assert "test inputs are in training" not in write_report(tmp_path / "run").read_text(
        encoding="utf-8"
    )


def test_a_run_that_another_process_began_meanwhile_is_left_alone(tmp_path, monkeypatch):
    """Both looked while there was no folder; the other had it first."""
    folder, prepare = tmp_path / "run", run_module.prepare

    def prepare_while_another_begins(*args, **kwargs):
        folder.mkdir()
        (folder / "config.yaml").write_text("seed: 7\n", encoding="utf-8")
        return prepare(*args, **kwargs)

    monkeypatch.setattr(run_module, "prepare", prepare_while_another_begins)
    with pytest.raises(UsageError, match="unfinished run"):
        run(config(), folder)
    assert (folder / "config.yaml").read_text(encoding="utf-8") == "seed: 7\n"
