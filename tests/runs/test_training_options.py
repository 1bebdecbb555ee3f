"""What `trainer.` offers beyond Lightning's arguments: best weights, callbacks, loggers, compilation, divergence."""

import csv
import warnings

import pytest
import torch
from pytorch_lightning import Callback
from runs.stopping import with_callback
from runs.two_processes import check_alike

from seqkit.config import complete
from seqkit.errors import DivergedError, UsageError
from seqkit.runs.evaluate import evaluate
from seqkit.runs.mixture import load
from seqkit.runs.prepare import prepare
from seqkit.runs.run import resume_run, run
from seqkit.runs.summary import state
from seqkit.training.checkpoint_files import checkpoints, newest_good
from seqkit.training.checkpoint_io import read_checkpoint
from seqkit.training.compiled import compile_loss
from seqkit.training.module import training_loss

WORDS = {
    "data.augment": None, "data.limit": 40, "data.batch_size": 8, "data.valid_fraction": 0.2,
    "model.backbone.dim": 16, "model.backbone.depth": 1, "model.backbone.num_heads": 2, "trainer.max_epochs": 3,
    "trainer.enable_progress_bar": False, "trainer.accelerator": "cpu", "trainer.log_every_n_steps": 1,
}  # fmt: skip


def config(**words):
    return complete(
        "image/digits",
        "debug",
        WORDS | {name.replace("__", "."): value for name, value in words.items()},
    )


def column(folder, name):
    with (folder / "metrics.csv").open(newline="") as file:
        return [float(row[name]) for row in csv.DictReader(file) if row.get(name)]


@pytest.mark.parametrize(
    "callbacks",
    [None, pytest.param([{"type": "EMA", "decay": 0.8}], marks=pytest.mark.slow)],
    ids=["plain", "EMA"],
)
def test_the_best_weights_are_those_that_were_validated(tmp_path, callbacks, monkeypatch):
    monkeypatch.setattr("seqkit.runs.run.calibrate", lambda _: None)  # it would change the loss
    words = {"trainer__weights": "best", "trainer__callbacks": callbacks, "optimizer__lr": 0.03}
    summary = run(config(**words), tmp_path / "run")
    assert summary["weights"].startswith("best, of step ")
    found = evaluate(tmp_path / "run", "valid")
    assert found["loss"] == pytest.approx(min(column(tmp_path / "run", "valid/loss")), rel=1e-5)
    step = int(summary["weights"].rpartition(" ")[2])
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        at_best = [
            row
            for row in csv.DictReader(file)
            if row["valid/loss"] and int(row["step"]) == step - 1
        ]
    assert found["accuracy"] == pytest.approx(float(at_best[0]["valid/accuracy"]))


@pytest.mark.slow
def test_of_equally_good_weights_the_later_ones_are_kept(tmp_path):
    still = {"type": "torch.optim.SGD", "lr": 0.0}  # every validation finds the same
    summary = run(config(trainer__weights="best", optimizer=still), tmp_path / "run")
    assert summary["weights"] == f"best, of step {summary['steps']}"


class Overconfident(Callback):
    """Makes the loss larger after the first epoch, and the answers the same."""

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1:
            with torch.no_grad():
                for parameter in module.model.head.parameters():
                    parameter *= 100


def test_of_weights_with_the_same_accuracy_those_with_the_lower_loss_are_kept(tmp_path):
    words = {
        "optimizer": {"type": "torch.optim.SGD", "lr": 0.0},
        "model__objective__main": "BalancedAccuracy",
    }
    with with_callback(Overconfident()):
        summary = run(config(trainer__weights="best", **words), tmp_path / "run")
    assert len(set(column(tmp_path / "run", "valid/balanced_accuracy"))) == 1
    assert summary["weights"] == "best, of step 5"


def test_the_last_step_is_validated_also_where_no_validation_is_due(tmp_path):
    words = {"trainer__weights": "best", "trainer__max_epochs": None, "trainer__max_steps": 7}
    summary = run(config(**words, optimizer__lr=0.0, optimizer__adamw__lr=0.0), tmp_path / "run")
    assert summary["weights"] == "best, of step 7"
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        # 5 steps an epoch
        assert [int(row["step"]) for row in csv.DictReader(file) if row["valid/loss"]] == [4, 6]


def test_training_goes_on_to_the_epoch_that_has_the_least_number_of_steps(tmp_path):
    words = {"trainer__max_epochs": 1, "trainer__min_steps": 6, "trainer__weights": "last"}
    assert run(config(**words), tmp_path / "run")["steps"] == 10  # 5 steps an epoch


def test_where_no_validation_ran_the_last_weights_are_taken_and_it_is_said(tmp_path, caplog):
    words = {
        "trainer__weights": "best",
        "trainer__max_epochs": 1,
        "trainer__check_val_every_n_epoch": 2,
    }
    assert run(config(**words), tmp_path / "run")["weights"] == "last"
    assert "no best weights were kept" in caplog.text


def test_data_too_small_for_a_validation_split_is_trained_to_the_last_step(tmp_path, caplog):
    table = tmp_path / "few.csv"
    table.write_text("smiles,target,split\nCO,1,train\nCCCO,3,test\n", encoding="utf-8")
    words = {"data": str(table), "data.split": "split", "trainer.enable_progress_bar": False}
    settings = complete("graph/molecules", "debug", words)
    assert settings["trainer"]["weights"] == "best"
    assert run(settings, tmp_path / "run")["weights"] == "last"
    assert "no validation split" in caplog.text


@pytest.mark.parametrize(("fraction", "begins"), [(0.2, "best, of step "), (0, "last")])
def test_a_recipe_that_says_nothing_keeps_the_best_weights_if_it_has_a_validation_split(
    tmp_path, fraction, begins
):
    summary = run(config(trainer__weights=None, data__valid_fraction=fraction), tmp_path / "run")
    assert summary["weights"].startswith(begins)


@pytest.mark.slow
def test_averaged_weights_become_the_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("seqkit.runs.run.calibrate", lambda _: None)  # it would change the loss
    words = {"trainer__weights": "last", "trainer__max_epochs": 1}
    run(config(trainer__callbacks=[{"type": "EMA", "decay": 0.8}], **words), tmp_path / "run")
    assert evaluate(tmp_path / "run", "valid")["loss"] == pytest.approx(
        column(tmp_path / "run", "valid/loss")[-1]
    )
    run(config(**words), tmp_path / "plain")
    averaged, plain = (load(tmp_path / name).model.state_dict() for name in ("run", "plain"))
    assert not all(torch.equal(averaged[name], plain[name]) for name in plain)


@pytest.mark.slow
def test_before_the_average_begins_the_weights_themselves_are_validated(tmp_path):
    late = [{"type": "EMA", "decay": 0.8, "start_step": 12}]
    for name, callbacks in (("late", late), ("plain", None)):
        run(config(trainer__callbacks=callbacks, trainer__weights="best"), tmp_path / name)
    late, plain = (column(tmp_path / name, "valid/loss") for name in ("late", "plain"))
    assert late[:2] == plain[:2]
    assert late[2] != plain[2]


def test_training_ends_early_where_a_metric_stops_to_improve(tmp_path):
    stopping = {"type": "EarlyStopping", "monitor": "valid/loss", "patience": 1}
    summary = run(
        config(
            trainer__callbacks=[stopping],
            trainer__max_epochs=9,
            optimizer={"type": "AdamW", "lr": 0.0},
        ),
        tmp_path / "run",
    )
    assert summary["steps"] == 2 * 5
    assert summary["state"] == "finished"


@pytest.mark.slow
def test_as_many_points_to_resume_from_stay_as_asked(tmp_path):
    words = {
        "trainer__checkpoint_every_n_steps": 2,
        "trainer__checkpoint_keep": 3,
        "trainer__max_epochs": 3,
    }
    words |= {"optimizer": {"type": "torch.optim.SGD", "lr": 0.0}}
    kept = []

    class Look(Callback):
        def on_train_end(self, trainer, module):
            kept.extend(one.step for one in checkpoints(tmp_path / "run" / "checkpoints"))

    with with_callback(Look()):
        run(config(**words), tmp_path / "run")
    assert kept == [14, 12, 10]  # of 15 steps, the last of which is no point


def test_a_run_masks_the_same_tokens_in_every_evaluation(tmp_path):
    """In that of training, and when the trained weights are validated again."""
    words = WORDS | {"data.augment": None, "trainer.max_epochs": 1, "seed": 3}
    run(complete("image/masked-patches", "debug", words), tmp_path / "run")
    (logged,) = column(tmp_path / "run", "valid/loss")
    assert evaluate(tmp_path / "run", "valid")["loss"] == pytest.approx(logged, rel=1e-5)


def test_a_monitor_that_nothing_logs_is_refused_with_the_nearest_name(tmp_path):
    stopping = {"type": "EarlyStopping", "monitor": "valid/acuracy"}
    with pytest.raises(UsageError, match="'valid/acuracy'"):
        run(config(trainer__callbacks=[stopping]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_another_logger_gets_what_metrics_csv_gets(tmp_path):
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        run(config(trainer__logger=["TensorBoard"], trainer__max_epochs=1), tmp_path / "run")
        events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
        losses = [event.value for event in events.Scalars("train/loss")]
    assert losses == pytest.approx(column(tmp_path / "run", "train/loss"), rel=1e-6)
    assert {"train/grad_norm", "lr", "train/tokens_per_second", "valid/loss"} <= set(
        events.Tags()["scalars"]
    )


def test_each_step_has_a_gradient_norm(tmp_path):
    run(config(trainer__max_epochs=1), tmp_path / "run")
    assert len(column(tmp_path / "run", "train/grad_norm")) == 5
    assert min(column(tmp_path / "run", "train/grad_norm")) > 0


@pytest.fixture
def graphs(monkeypatch):
    """Graphs that `torch.compile` made, which run without a compiler."""
    found, compile_function = [], torch.compile

    def backend(graph, inputs):
        found.append(graph)
        return graph.forward

    monkeypatch.setattr(
        torch,
        "compile",
        lambda function, **more: compile_function(function, backend=backend, **more),
    )
    torch._dynamo.reset()
    yield found
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of torch's own tracing
def test_model_and_loss_are_one_graph_and_the_short_batch_of_an_epoch_is_none(tmp_path, graphs):
    words = {"trainer__max_epochs": 2, "data__batch_size": 7}  # 32 examples
    run(config(**words, trainer__compile=True), tmp_path / "compiled")
    assert len(graphs) == 1
    run(config(**words), tmp_path / "plain")
    assert len(graphs) == 1  # `auto` compiles on a GPU alone
    one, other = (load(tmp_path / name).model.state_dict() for name in ("compiled", "plain"))
    check_alike(one, other)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_texts_of_different_lengths_are_one_graph(tmp_path, graphs):
    words = WORDS | {"data.augment": None, "trainer.max_epochs": 1, "trainer.compile": True}
    run(complete("text/tag", "debug", words), tmp_path / "run")
    assert len(graphs) == 1


@pytest.mark.parametrize("asked", ["auto", True])
def test_a_compiler_that_fails_is_an_error_only_where_it_was_asked_for(asked, monkeypatch, caplog):
    monkeypatch.setattr("seqkit.training.compiled.WORTH_COMPILING", 0)
    monkeypatch.setattr(torch, "compile", lambda function, **_: failing)
    prepared = prepare(config())
    module, loader = prepared.training_module(4), prepared.data.train_dataloader()
    settings = {"compile": asked, "strategy": "auto", "accumulate_grad_batches": 1}
    compile_loss(module, loader, settings, uses_cuda=True)
    task, batch = module.tasks[""], next(iter(loader))
    if asked is True:
        with pytest.raises(UsageError, match=r"trainer\.compile: .*no compiler"):
            module.loss_of(task, batch)
        return
    assert module.loss_of(task, batch)[0].equal(training_loss(task, batch)[0])
    assert "no compiler" in caplog.text


def failing(*_):
    raise torch._dynamo.exc.InternalTorchDynamoError("no compiler")


def test_a_diverged_run_holds_the_last_good_weights_and_can_be_resumed(tmp_path):
    words = {
        "optimizer": {"type": "torch.optim.SGD", "lr": 1e25},
        "trainer__checkpoint_every_n_steps": 1,
    }
    words["trainer__gradient_clip_val"] = None
    with pytest.raises(DivergedError, match=r"step \d+ \(epoch 0, batch \d+: "):
        run(config(**words), tmp_path / "run")
    weights = read_checkpoint(newest_good(tmp_path / "run" / "checkpoints").path)[
        "state_dict"
    ].values()
    assert all(bool(weight.isfinite().all()) for weight in weights)
    assert state(tmp_path / "run") == "unfinished"
    with pytest.raises(DivergedError, match="after 1 steps"):
        resume_run(tmp_path / "run", {"trainer.skip_nonfinite": 1})
    with pytest.raises(UsageError, match=r"--optimizer\.lr"):
        resume_run(tmp_path / "run", {"optimizer.lr": 0.1})


def test_a_run_whose_average_would_be_of_no_step_is_refused(tmp_path):
    averaged = [{"type": "EMA", "start_step": 1000}]
    with pytest.raises(UsageError, match="start_step 1000"):
        run(config(trainer__callbacks=averaged), tmp_path / "run")
