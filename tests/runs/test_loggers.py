"""Loggers beside metrics.csv get the same rows, write to the run folder alone, and go on after a resume."""

import csv
import warnings
from types import SimpleNamespace

import pytest
import yaml

from seqkit.config import complete
from seqkit.files import read_mapping
from seqkit.runs.run import resume_run, run
from seqkit.training.loggers import build_loggers, log_settings, log_test_metrics
from seqkit.training.step_log import StepLog

WORDS = {
    "data.augment": None, "data.limit": 40, "data.batch_size": 8, "model.backbone.dim": 16, "model.backbone.depth": 1,
    "model.backbone.num_heads": 2, "trainer.max_epochs": 1, "trainer.enable_progress_bar": False,
    "trainer.accelerator": "cpu", "trainer.log_every_n_steps": 1, "trainer.checkpoint_every_n_steps": 1,
    "trainer.logger": ["MLflow"],
}  # fmt: skip


@pytest.fixture
def client(tmp_path, monkeypatch):
    """MLflow's own client of a run folder; the working folder is another."""
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("alembic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("mlflow")
        from mlflow import MlflowClient
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return lambda folder: MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")


def losses(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]


class _Stopped(Exception):
    pass


@pytest.mark.slow
def test_mlflow_gets_what_metrics_csv_gets_and_goes_on_after_a_resume(
    tmp_path, client, monkeypatch
):
    folder, end = tmp_path / "run", StepLog.on_train_batch_end

    def stop(self, trainer, *rest):
        end(self, trainer, *rest)
        if trainer.global_step == 3:
            raise _Stopped

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy's, about MLflow
        monkeypatch.setattr(StepLog, "on_train_batch_end", stop)
        with pytest.raises(_Stopped):
            run(complete("image/digits", "debug", WORDS), folder)
        monkeypatch.setattr(StepLog, "on_train_batch_end", end)
        resume_run(folder, {})
        found = client(folder)
        (experiment,) = [one for one in found.search_experiments() if one.name == "seqkit"]
        (logged,) = found.search_runs([experiment.experiment_id])
        history = {
            one.step: one.value
            for one in found.get_metric_history(logged.info.run_id, "train/loss")
        }
        tested = found.get_metric_history(logged.info.run_id, "test/accuracy")
    assert [history[step] for step in sorted(history)] == pytest.approx(losses(folder))
    assert len(history) == 5
    assert list((tmp_path / "here").iterdir()) == []
    assert logged.data.params["model.backbone.dim"] == "16"
    assert logged.data.params["data.source.type"] == "digits"
    assert [(one.step, one.value) for one in tested] == [
        (5, pytest.approx(read_mapping(folder / "summary.json")["metrics"]["accuracy"]))
    ]


@pytest.mark.slow
def test_tensorboard_gets_settings_once_and_the_test_metrics_at_the_end(tmp_path, monkeypatch):
    """Of a training that is stopped and resumed."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, end = tmp_path / "run", StepLog.on_train_batch_end

    def stop(self, trainer, *rest):
        end(self, trainer, *rest)
        if trainer.global_step == 3:
            raise _Stopped

    monkeypatch.setattr(StepLog, "on_train_batch_end", stop)
    with pytest.raises(_Stopped):
        run(complete("image/digits", "debug", WORDS | {"trainer.logger": ["TensorBoard"]}), folder)
    monkeypatch.setattr(StepLog, "on_train_batch_end", end)
    metrics = resume_run(folder, {"data.num_workers": 0})["metrics"]
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    assert [(one.step, one.value) for one in events.Scalars("test/accuracy")] == [
        (5, pytest.approx(metrics["accuracy"]))
    ]
    assert sorted({one.step for one in events.Scalars("train/loss")}) == list(range(5))
    assert (
        yaml.safe_load((folder / "tensorboard" / "hparams.yaml").read_text())["model.backbone.dim"]
        == 16
    )
    written = [path.read_bytes() for path in (folder / "tensorboard").glob("events*")]
    assert sum(b"_hparams_/session_start" in content for content in written) == 1


def test_settings_are_flat_and_their_names_are_those_that_mlflow_takes():
    got = {}
    logger = SimpleNamespace(log_hyperparams=got.update)
    columns = {"price (EUR)": "number", "long": "x" * 9000}
    log_settings(
        [logger],
        {"seed": 3, "data": {"columns": columns, "path": ["a", "b"], "limit": None, "none": {}}},
    )
    assert got == {
        "seed": 3, "data.columns.price _EUR_": "number", "data.columns.long": "x" * 500, "data.path": '["a", "b"]',
        "data.limit": "null", "data.none": "{}",
    }  # fmt: skip


def test_a_logger_that_cannot_be_reached_does_not_fail_a_tested_run(caplog):
    def refuse(*_, **__):
        raise ConnectionError("no route\nto host")

    log_test_metrics([SimpleNamespace(log_metrics=refuse)], {"loss": 1.0}, 3)
    assert "did not get the test metrics" in caplog.text


def test_the_first_process_alone_has_loggers(tmp_path, monkeypatch):
    """Two would make the tables of MLflow's database at once."""
    from pytorch_lightning.utilities import rank_zero_only

    factories = [SimpleNamespace(build=lambda *given: given)]
    monkeypatch.setattr(rank_zero_only, "rank", 0, raising=False)
    assert build_loggers(factories, tmp_path, "digits") == [(tmp_path, "digits")]
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    assert build_loggers(factories, tmp_path, "digits") == []
