"""Stopped and resumed, a run ends as if it had never been stopped, bit for bit."""

import io
import logging
import shutil
import signal
import sys
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback
from runs.stopping import TEXT, WORDS, Kick, config, differences, rows, with_callback

from seqkit.config import complete
from seqkit.data.module import DataModule
from seqkit.errors import DataError, Interrupted, UsageError
from seqkit.files import read_mapping
from seqkit.registry.plugins import import_plugins
from seqkit.runs import folder as folder_module
from seqkit.runs import run as run_module
from seqkit.runs.evaluate import evaluate
from seqkit.runs.folder import logging_to
from seqkit.runs.mixture import load
from seqkit.runs.run import resume_run, run
from seqkit.training.checkpoint_files import Checkpoint, newest_good
from seqkit.training.checkpoint_io import read_checkpoint, write_checkpoint
from seqkit.training.resume import FORMAT, KEY, check_resumable


@pytest.fixture(autouse=True)
def _text(text_file, monkeypatch):
    monkeypatch.setitem(WORDS["text/char-lm"], "data", text_file)


def stopped(settings, folder, kick):
    """How a run ends that the signal of `kick` stops."""
    with with_callback(kick), pytest.raises(Interrupted) as stop:
        run(settings, folder)
    return stop.value


EXPERTS = {"model__backbone__block__mlp": {"type": "MixtureOfExperts", "num_experts": 3}}
TWO_EPOCHS = {"trainer__max_epochs": 2}

CASES = [
    ("image/digits", TWO_EPOCHS, 2, "train"),  # in the middle of an epoch
    # its last step, then validation
    pytest.param("image/digits", TWO_EPOCHS, 6, "train", marks=pytest.mark.slow),
    ("image/digits", TWO_EPOCHS, 6, "valid"),  # in the validation
    pytest.param("image/digits", TWO_EPOCHS, 7, "train", marks=pytest.mark.slow),  # after it
    pytest.param(
        "image/digits", {**TWO_EPOCHS, "data__num_workers": 2}, 6, "train", marks=pytest.mark.slow
    ),
    pytest.param(
        "image/digits",
        {"trainer__max_epochs": 3, "trainer__accumulate_grad_batches": 2},
        4,
        "train",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "text/char-lm",
        {"trainer__max_steps": 8, "model__backbone__type": "GRU", "model__dropout": 0.2},
        4,
        "train",
        marks=pytest.mark.slow,
    ),
    # in an epoch of min_steps
    ("image/digits", {"trainer__max_epochs": 1, "trainer__min_steps": 4}, 5, "train"),
    ("graph/karate", {"trainer__max_epochs": 5}, 3, "train"),  # every step is the last of its epoch
    # rows of the router and of padding, of steps between two rows too
    (
        "text/char-lm",
        {"trainer__max_steps": 6, "trainer__log_every_n_steps": 2, **EXPERTS},
        3,
        "train",
    ),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """`(configuration) -> folder, summary` of the run that is not stopped, trained once for all that are alike."""
    kept = {}

    def trained(settings):
        key = repr(settings)
        if key not in kept:
            folder = tmp_path_factory.mktemp("whole") / "run"
            kept[key] = folder, run(settings, folder)
        return kept[key]

    return trained


@pytest.mark.parametrize(("recipe", "words", "step", "phase"), CASES)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    tmp_path, whole, recipe, words, step, phase
):
    settings = config(recipe, **words)
    folder, right = whole(settings)
    stop = stopped(settings, tmp_path / "stopped", Kick(step, phase))
    assert stop.signum == signal.SIGTERM
    assert f"after step {step} of" in str(stop)
    assert str(tmp_path / "stopped") in str(stop)
    summary = resume_run(tmp_path / "stopped", {})
    assert summary["state"] == "finished"
    assert all(
        summary[name] == right[name]
        for name in ("steps", "tokens_seen", "skipped_steps", "data_sha256")
    )
    assert not differences(folder, tmp_path / "stopped")
    columns = {name for row in rows(tmp_path / "stopped") for name in row}
    assert ("train/router_entropy" in columns) == ("model__backbone__block__mlp" in words)


@pytest.mark.slow
def test_a_run_that_was_stopped_at_the_end_of_an_epoch_and_in_the_next_ends_as_one_that_was_not(
    tmp_path, whole
):
    settings = config("image/digits", **TWO_EPOCHS)
    stopped(settings, tmp_path / "stopped", Kick(6))
    with with_callback(Kick(8)), pytest.raises(Interrupted):
        resume_run(tmp_path / "stopped", {})
    resume_run(tmp_path / "stopped", {})
    assert not differences(whole(settings)[0], tmp_path / "stopped")


@pytest.fixture(scope="module")
def stopped_text(tmp_path_factory):
    """The folder of a run of a text beside it that was stopped after step 3 of 8, and its checkpoint."""
    folder = tmp_path_factory.mktemp("stopped")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    stopped(
        config("text/char-lm", data=str(folder / "text.txt"), trainer__max_steps=8),
        folder / "run",
        Kick(3),
    )
    return folder / "run", newest_good(folder / "run" / "checkpoints").path


def test_a_run_whose_files_or_data_were_changed_is_not_resumed(stopped_text):
    folder, _ = stopped_text
    for path, old, new, said in (
        (folder / "config.yaml", "lr: 0.01", "lr: 0.02", "another config"),
        (folder / "state.json", " ,.Tab", " ,.Uab", "another state"),
        (folder.parent / "text.txt", "not", "ton", "training data .* has changed"),
    ):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(old, new), encoding="utf-8")
        assert path.read_text(encoding="utf-8") != text
        with pytest.raises(DataError, match=said):
            resume_run(folder, {})
        path.write_text(text, encoding="utf-8")


def test_a_run_that_would_have_another_length_is_not_resumed(stopped_text, monkeypatch):
    """As where the number of devices is left to the machine, and this one has more."""
    monkeypatch.setattr(run_module, "count_steps", lambda *_: 4)
    with pytest.raises(UsageError, match="8 steps"):
        resume_run(stopped_text[0], {})


def test_what_cannot_be_written_to_a_log_is_shown_on_stderr(tmp_path, monkeypatch, capsys):
    def full():
        raise OSError(28, "No space left on device")

    with logging_to(tmp_path / "log.txt"):
        (handler,) = (
            one
            for one in logging.getLogger("seqkit").handlers
            if isinstance(one, folder_module._LogFile)
        )
        with monkeypatch.context() as patch:
            patch.setattr(handler, "flush", full)
            logging.getLogger("seqkit").error("there is no room")
            logging.getLogger("seqkit").info("this matters less")
    assert capsys.readouterr().err == "there is no room\n"


def test_the_traceback_of_an_error_that_the_command_says_is_in_the_log_alone(
    tmp_path, monkeypatch, capsys
):
    """Also where the log cannot be written, as on a full disk."""

    def fail(_):
        raise OSError(28, "No space left on device")

    for is_full in (False, True):
        if is_full:
            monkeypatch.setattr(
                folder_module, "TextIOWrapper", lambda file, **_: file.close() or FullFile()
            )
        with pytest.raises(OSError, match="No space"), logging_to(tmp_path / f"{is_full}.txt"):
            fail(None)
        assert "Traceback" not in capsys.readouterr().err
    assert "Traceback" in (tmp_path / "False.txt").read_text(encoding="utf-8")


class FullFile(io.StringIO):
    """A file on a full disk."""

    def write(self, text):
        raise OSError(28, "No space left on device")


class Spoils(Callback):
    """Makes the model useless after the fifth step: no later validation is as good as the first one."""

    def on_train_batch_end(self, trainer, module, *_):
        if trainer.global_step > 5:
            with torch.no_grad():
                module.model.backbone.norm.weight.fill_(100.0)


@pytest.mark.slow
def test_a_run_whose_folder_was_moved_keeps_its_best_weights(tmp_path, recwarn):
    """Those of the first validation."""
    settings = config("text/char-lm", trainer__max_steps=10, trainer__weights="best")
    with with_callback(Spoils()):
        assert run(settings, tmp_path / "whole")["weights"] == "best, of step 5"
        stopped(settings, tmp_path / "stopped", Kick(7))
        (tmp_path / "stopped").rename(tmp_path / "moved")
        assert resume_run(tmp_path / "moved", {})["weights"] == "best, of step 5"
    assert not differences(tmp_path / "whole", tmp_path / "moved")
    files = [
        {path.name for path in (tmp_path / name / "checkpoints").glob("b*")}
        for name in ("whole", "moved")
    ]
    assert files[0] == files[1]
    assert not [warning for warning in recwarn if "dirpath" in str(warning.message)]


PLUGIN = """
from seqkit.backbones import GRU
from seqkit.registry import register


@register("backbone", "Scaled")
class Scaled(GRU):
    factor = 1.0
"""


@pytest.fixture
def plugin(tmp_path):
    """A backbone in a file of the user's."""
    file = tmp_path / "scaled_gru.py"
    file.write_text(PLUGIN)
    import_plugins([file])
    yield file
    del sys.modules["scaled_gru"]


def with_scaled(folder):
    """A run of the plug-in that is finished, and one that was stopped."""
    words = {"trainer.max_steps": 4, "model.backbone": {"type": "Scaled", "dim": 16, "depth": 1}}
    settings = {
        name: value
        for name, value in WORDS["text/char-lm"].items()
        if not name.startswith("model.")
    }
    made = complete(
        "text/char-lm", "debug", settings | words | {"trainer.enable_progress_bar": False}
    )
    run(made, folder / "done")
    stopped(made, folder / "run", Kick(3))


@pytest.mark.slow
def test_a_run_whose_plugin_was_edited_is_not_resumed_and_says_so_when_it_is_used(
    tmp_path, plugin, caplog
):
    with_scaled(tmp_path)
    load(tmp_path / "done")
    assert "scaled_gru" not in caplog.text
    plugin.write_text(PLUGIN.replace("1.0", "2.0"))
    with pytest.raises(DataError, match="scaled_gru"):
        resume_run(tmp_path / "run", {})
    load(tmp_path / "done")
    assert "scaled_gru has changed" in caplog.text
    plugin.write_text(PLUGIN)
    assert resume_run(tmp_path / "run", {})["state"] == "finished"


def refusal(folder, path, change):
    """What is said of a checkpoint after `change` of its content, before anything is trained or cut."""
    before, metrics = read_checkpoint(path), (folder / "metrics.csv").read_bytes()
    try:
        content = read_checkpoint(path)
        change(content)
        write_checkpoint(content, path)
        with pytest.raises(DataError, match="train again") as error:
            resume_run(folder, {})
    finally:
        write_checkpoint(before, path)
    assert (folder / "metrics.csv").read_bytes() == metrics
    text = str(error.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text


def test_a_checkpoint_of_another_format_is_refused_before_anything_is_trained_or_cut(stopped_text):
    assert "has format 2" in refusal(*stopped_text, lambda content: content["run"].update(format=2))


def test_versions_that_did_not_write_a_checkpoint_are_said(caplog):
    facts = {"format": FORMAT, "versions": {"torch": "1.99.7", "pytorch-lightning": pl.__version__}}
    content = {"run": facts, KEY: {}, "global_step": 3}
    check_resumable(content, Checkpoint(Path("c"), 3))
    (line,) = caplog.messages
    assert line.startswith(f"c was written with torch 1.99.7, and {torch.__version__} goes on")
    caplog.clear()
    facts["versions"]["torch"] = str(torch.__version__)
    check_resumable(content, Checkpoint(Path("c"), 3))
    assert not caplog.messages


def test_a_checkpoint_of_another_configuration_is_refused(stopped_text):
    """Its weights and moments would train on with settings that are not theirs."""
    said = refusal(*stopped_text, lambda content: content["run"].update(config_sha256="0" * 64))
    assert "is of a run with another config.yaml" in said


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [("config.yaml", "weight_decay", "weight_dgcay"), ("state.json", '"', "'")],
)
def test_a_file_that_changed_below_a_stopped_run_is_named_before_it_is_read(
    tmp_path, stopped_text, file, old, new
):
    folder = shutil.copytree(stopped_text[0], tmp_path / "run")
    (folder / file).write_text((folder / file).read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=f"is of a run with another {file} .*bring that file back"):
        resume_run(folder, {})


OPTIMIZERS = [
    {"type": "torch.optim.SGD", "lr": 0.1},
    {"type": "torch.optim.SGD", "lr": 0.1, "momentum": 0.9},
    *(
        pytest.param({"type": f"torch.optim.{name}"}, marks=pytest.mark.slow)
        for name in ("Adafactor", "NAdam")
    ),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_a_run_of_any_optimizer_resumes(tmp_path, optimizer):
    stopped(
        config("text/char-lm", trainer__max_steps=4, optimizer=optimizer), tmp_path / "run", Kick(3)
    )
    assert resume_run(tmp_path / "run", {})["state"] == "finished"


@pytest.mark.slow
def test_a_run_with_averaged_weights_resumes(tmp_path):
    settings = config("text/char-lm", trainer__max_steps=5, trainer__callbacks=[{"type": "EMA"}])
    run(settings, tmp_path / "whole")
    stopped(settings, tmp_path / "run", Kick(3))
    resume_run(tmp_path / "run", {})
    assert not differences(tmp_path / "whole", tmp_path / "run")


def test_the_test_split_is_not_encoded_before_it_is_asked_for(tmp_path, monkeypatch):
    """Whatever is wrong with it leaves the trained run, which `seqkit evaluate` finishes."""
    calls, loader = [], DataModule.test_dataloader
    monkeypatch.setattr(DataModule, "test_dataloader", lambda self: calls.append(1) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(config("text/char-lm", trainer__max_steps=2), tmp_path / "run")
    assert (len(calls), read_mapping(tmp_path / "run" / "summary.json")["state"]) == (1, "trained")
    monkeypatch.setattr(DataModule, "test_dataloader", loader)
    assert evaluate(tmp_path / "run", "test")
    summary = read_mapping(tmp_path / "run" / "summary.json")
    assert summary["num_test"] > 0
    assert {"training", "validation", "test"} == set(summary["data_sha256"])
