"""Mixtures: one task is that recipe bit for bit, tasks do not disturb each other, each folder is an ordinary run."""

import shutil
import signal

import pytest
import torch
from runs.stopping import Kick, differences, rows, with_callback
from runs.two_processes import DDP, check_alike, fitted, needs_forks, stopped

from seqkit.config import complete, to_yaml
from seqkit.config.mixture import task_configs
from seqkit.data.inputs import Input
from seqkit.errors import DataError, Interrupted, UsageError
from seqkit.files import read_mapping, write_json
from seqkit.runs.answers import predictions
from seqkit.runs.mixture import evaluate_run, load
from seqkit.runs.prepare import prepare
from seqkit.runs.run import resume_run, run, trial
from seqkit.runs.summary import read_summary, task_folders
from seqkit.runs.trained_model import load_one
from seqkit.training.weights import save_weights

BACKBONE = {
    "type": "Transformer", "dim": 16, "depth": 1, "num_heads": 2, "dropout": 0.1, "causal": None,
    "position": {"type": "Rotary", "interleaved": True},
}  # fmt: skip
IMAGE = {
    "from": "image/digits",
    "preset": "debug",
    "data": {"limit": 40, "batch_size": 7, "valid_fraction": 0.2},
}
SOUND = {"from": "audio/spoken-digits", "preset": "debug", "data": {"limit": 30, "batch_size": 8}}


@pytest.fixture
def text(text_file):
    """A task over a text of a few kilobytes."""
    own = {"source": text_file, "limit": 24, "batch_size": 5, "window": 9, "valid_fraction": 0.1}
    return {"from": "text/char-lm", "preset": "debug", "data": own}


def mixture(tasks, **words):
    """A complete mixture that trains in seconds. words: keys at the top, `trainer__max_steps` below it."""
    trainer = {
        "max_steps": 12,
        "enable_progress_bar": False,
        "accelerator": "cpu",
        "log_every_n_steps": 1,
    }
    base = {
        "recipe": "mine/mixed",
        "tasks": tasks,
        "model": {"backbone": BACKBONE},
        "optimizer": {"type": "Muon", "lr": 0.01},
        "trainer": trainer,
    }
    return complete(
        base, None, {name.replace("__", "."): value for name, value in words.items()}, may_mix=True
    )


def alone(config, name):
    """The configuration of a task as a recipe of its own."""
    return task_configs(config)[name].changed({"recipe": "mine/alone"})


# ── one task ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param("text", {"trainer__max_steps": 7}, marks=pytest.mark.slow),
        ("image", {"trainer__max_steps": 7, "moments": "shared", "sampling": "proportional"}),
        pytest.param(
            "text",
            {"trainer__max_steps": 9, "trainer__accumulate_grad_batches": 2},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "image",
            {"trainer__max_steps": -1, "trainer__max_epochs": 2, "trainer__weights": "best"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_mixture_of_one_task_is_that_recipe_bit_for_bit(tmp_path, text, kind, words, monkeypatch):
    monkeypatch.setattr("seqkit.runs.run.calibrate", lambda _: None)  # a mixture has no temperature
    config = mixture({"it": IMAGE if kind == "image" else text}, **words)
    one = run(alone(config, "it"), tmp_path / "alone")
    run(config, tmp_path / "mixed")
    place = tmp_path / "mixed" / "tasks" / "it"
    # of weights nothing
    assert differences(tmp_path / "alone", place) in ("", "metrics.csv differs")
    other = read_mapping(place / "summary.json")
    for key in (
        "metrics",
        "baseline",
        "steps",
        "tokens_seen",
        "weights",
        "num_parameters",
        "data_sha256",
        "sha256",
    ):
        assert other[key] == one[key], key
    logged = [
        {k: v for k, v in row.items() if k.startswith(("train/loss", "valid"))}
        for row in rows(tmp_path / "alone")
    ]
    assert [
        {k: v for k, v in row.items() if k.startswith(("train/loss", "valid"))}
        for row in rows(place)
    ] == logged


# ── several ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def batches(prepared, number):
    """The first batches of a training by task, as digests of their tokens and targets."""
    loader, found = prepared.data.train_dataloader(), {}
    while sum(map(len, found.values())) < number:
        for batch in loader:
            found.setdefault(batch.task, []).append(
                (batch.tokens.content, batch.tokens.positions, batch.targets)
            )
    return found


@pytest.mark.slow
def test_another_task_leaves_the_batches_of_a_task_as_they_are(text):
    """Content, positions and targets, over more than an epoch of either."""
    one = batches(prepare(mixture({"image": IMAGE})), 14)["image"]
    several = batches(prepare(mixture({"image": IMAGE, "text": text, "sound": SOUND})), 40)["image"]
    assert len(several) >= 12
    for mine, theirs in zip(one, several):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs))


def test_first_weights_of_a_task_do_not_depend_on_the_tasks_after_it(text):
    first = prepare(mixture({"image": IMAGE})).tasks["image"].model.state_dict()
    again = prepare(mixture({"image": IMAGE, "text": text})).tasks["image"].model.state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_a_step_changes_the_backbone_its_task_and_no_other_task(text):
    """Not even by weight decay or momentum, in either kind of optimizer state."""
    for moments in ("shared", "by_task"):
        prepared = prepare(mixture({"image": IMAGE, "text": text}, moments=moments))
        module = prepared.training_module(4)
        optimizer = module.build_optimizer(module.model)
        model = module.model
        for batch in prepared.data.train_dataloader():
            before = {name: weight.clone() for name, weight in model.state_dict().items()}
            module.task, task = module._task(batch)
            optimizer.zero_grad()
            task.objective.step(task.model, batch[:2], training=True).loss.backward()
            optimizer.step()
            changed = {
                name
                for name, weight in model.state_dict().items()
                if not torch.equal(weight, before[name])
            }
            assert any(name.startswith("backbone.") for name in changed)
            other = "text" if batch.task == "image" else "image"
            own = {
                name
                for name in changed
                if name.startswith(f"tasks.{other}.") and ".backbone." not in name
            }
            assert not own, own
            assert any(name.startswith(f"tasks.{batch.task}.embedder") for name in changed)


def test_a_task_has_its_share_of_the_learning_rate(text):
    config = mixture({"image": {**IMAGE, "lr_scale": 0.25}, "text": text})
    assert (
        task_configs(config)["image"]["optimizer"]["lr"]
        == 0.25 * task_configs(config)["text"]["optimizer"]["lr"]
    )
    module = prepare(config).training_module(4)
    rates = {
        name: one.param_groups[0]["lr"]
        for name, one in module.build_optimizer(module.model).by_name.items()
    }
    assert rates == {"image/": 0.0025, "text/": 0.01}


def test_with_a_state_for_each_task_the_momentum_of_one_moves_nothing_in_the_steps_of_another(text):
    """A step of text without gradients, after steps of the image: with a shared state the backbone goes on."""
    moved = {}
    for moments in ("shared", "by_task"):
        prepared = prepare(
            mixture({"image": IMAGE, "text": text}, moments=moments, optimizer__weight_decay=0.0)
        )
        module = prepared.training_module(4)
        optimizer = module.build_optimizer(module.model)
        for batch in prepared.data.train_dataloader():
            module.task, task = module._task(batch)
            optimizer.zero_grad()
            loss = task.objective.step(task.model, batch[:2], training=True).loss
            (0 * loss if batch.task == "text" else loss).backward()
            before = (
                module.model.backbone.blocks[0].mlp.up_proj.weight.detach().clone()
                if batch.task == "text"
                else None
            )
            optimizer.step()
            if before is not None:
                change = float(
                    (module.model.backbone.blocks[0].mlp.up_proj.weight - before)
                    .detach()
                    .abs()
                    .max()
                )
                moved[moments] = max(moved.get(moments, 0.0), change)
    assert moved["by_task"] == 0
    assert moved["shared"] > 1e-4


CASES = [
    ({}, 3, "train"),
    ({"sampling": {"temperature": 3.0}}, 2, "train"),  # one task may have no step yet
    (
        {
            "moments": "shared",
            "trainer__val_check_interval": 4,
            "trainer__check_val_every_n_epoch": None,
        },
        4,
        "valid",
    ),
    ({"trainer__accumulate_grad_batches": 2, "sampling": "proportional"}, 5, "train"),
    ({"trainer__max_steps": -1, "trainer__max_epochs": 2, "trainer__weights": "best"}, 8, "train"),
]


@pytest.mark.parametrize(
    ("words", "step", "phase"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])],
)
def test_a_mixture_that_was_stopped_ends_as_one_that_was_not(tmp_path, text, words, step, phase):
    tasks = {"image": IMAGE, "text": text}
    if words.get("moments") == "shared":
        tasks["graph"] = "graph/karate"
    words = {"trainer__max_steps": 6, **words}
    config = mixture(tasks, **words)
    run(config, tmp_path / "whole")
    with with_callback(Kick(step, phase)), pytest.raises(Interrupted) as stop:
        run(config, tmp_path / "stopped")
    assert stop.value.signum == signal.SIGTERM
    assert resume_run(tmp_path / "stopped", {})["state"] == "finished"
    assert rows(tmp_path / "whole") == rows(tmp_path / "stopped")
    for name in config["tasks"]:
        assert not differences(*(tmp_path / run / "tasks" / name for run in ("whole", "stopped")))


# ── the run folder ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture") / "run"
    tasks = {
        "image": IMAGE,
        "sound": SOUND,
        "graph": {"from": "graph/molecules", "preset": "debug"},
    }
    run(mixture(tasks, trainer__max_steps=6), folder)
    return folder


@pytest.mark.slow
def test_each_task_is_a_trained_model_like_any_other(mixed):
    loaded = load(mixed)
    assert list(loaded) == ["image", "sound", "graph"] == list(task_folders(mixed))
    backbones = {id(one.model.backbone) for one in loaded.values()}
    assert len(backbones) == 1
    assert isinstance(loaded["graph"].predict(["CCO"])[0], float)
    for name, trained in loaded.items():
        by_itself = load_one(mixed / "tasks" / name)
        ours, theirs = trained.model.backbone.state_dict(), by_itself.model.backbone.state_dict()
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
        assert by_itself.summary["state"] == "finished"
        assert by_itself.summary["steps"] == 2  # of 6, each task in every round of three
    with pytest.raises(UsageError, match="tasks/image"):
        load_one(mixed)


@pytest.mark.slow
def test_the_task_that_is_a_regression_has_intervals_of_its_own(mixed):
    summaries = {name: read_summary(place) for name, place in task_folders(mixed).items()}
    found = {name: {"intervals"} & summary.keys() for name, summary in summaries.items()}
    assert found == {"image": set(), "sound": set(), "graph": {"intervals"}}
    ((known,), graph) = summaries["graph"]["intervals"], load(mixed)["graph"]
    assert known["num_test"] == summaries["graph"]["num_test"]
    (answer,) = predictions(graph, [Input("ethanol", "CCO")])
    assert answer.high - answer.low == pytest.approx(2 * known["half_width"])


def test_learning_rates_of_a_mixture_say_whose_they_are(mixed):
    first = (mixed / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {name for name in first if name.startswith("lr/")} >= {
        "lr/image",
        "lr/sound",
        "lr/graph",
    }
    assert "lr" not in first
    own = (mixed / "tasks" / "image" / "metrics.csv").read_text().splitlines()[0].split(",")
    assert "lr" in own
    assert not any(name.startswith("lr/image") for name in own)


@pytest.mark.slow
def test_metrics_of_a_task_are_those_that_the_run_wrote(mixed):
    found = evaluate_run(mixed, "test")
    assert list(found) == ["image", "sound", "graph"]
    for name, metrics in found.items():
        assert metrics == pytest.approx(
            read_mapping(mixed / "tasks" / name / "summary.json")["metrics"], rel=1e-6
        )


def test_a_task_folder_with_other_weights_in_its_backbone_is_not_loaded_as_one_of_the_mixture(
    mixed, tmp_path
):
    folder = tmp_path / "copy"
    shutil.copytree(mixed, folder)
    place = folder / "tasks" / "sound"
    model = load_one(place).model
    with torch.no_grad():
        next(iter(model.backbone.blocks.parameters())).add_(1)
    digest = save_weights(model, place / "checkpoints" / "model.safetensors")
    write_json(place / "summary.json", read_mapping(place / "summary.json") | {"sha256": digest})
    with pytest.raises(DataError, match="another backbone"):
        load(folder)


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


MISTAKES = [
    ({"model__backbone": "LSTM", "model__backbone__causal": True}, "tasks.graph: LSTM"),
    ({"model__backbone__causal": False}, "tasks.text: NextToken"),
    ({"trainer__strategy": "fsdp"}, "a mixture has several"),
    ({"tasks.image.lr_scale": 0}, "tasks.image: lr_scale is 0"),
    ({"tasks.image.lr_scale": 0.5, "moments": "shared"}, "one state for all"),
    ({"trainer__precision": "16-mixed"}, "float16"),
    ({"sampling": {"image": 1.0}}, "sampling is .* image, text, graph"),
    ({"sampling": {"temperature": 0.5}}, "sampling.temperature is 0.5"),
    ({"tasks.image.trainer.max_steps": 3}, "tasks.image: trainer"),
    ({"tasks.imag.data.limit": 3}, "'imag'; did you mean image"),
    ({"tasks.image.model.backbone": "LSTM"}, "tasks.image: the backbone"),
    ({"tasks.image.data.limt": 3}, "'data.limt'; did you mean data.limit"),
    ({"tasks.keys": "image/digits"}, "'keys'"),
    ({"tasks.train": "image/digits"}, "'train'"),
    ({"tasks.type": "image/digits"}, "'type'"),
    ({"data.limit": 3}, r"data\.limit .*--tasks\.image"),
    ({"tasks.other": "mixture/four"}, "tasks.other: from: mixture/four"),
    (
        {"tasks.other": {"from": "mixture/four", "data": {"limit": 5}}},
        "tasks.other: from: mixture/four is a mixture",
    ),
    ({"sampling": {"a": 0}}, r"sampling is {'a': 0}"),
    ({"trainer__accumulate_grad_batches": 50}, "image has 6 batches, fewer than the 50"),
]


@pytest.mark.slow
def test_a_mistake_is_answered_in_one_line(text):
    tasks = {"image": IMAGE, "text": text, "graph": {"from": "graph/molecules", "preset": "debug"}}
    for change, said in MISTAKES:
        with pytest.raises(UsageError, match=said) as error:
            len(prepare(mixture(tasks, **change)).data.train_dataloader())
        assert "\n" not in str(error.value), change


def test_a_mixture_of_itself_and_tasks_as_one_value_are_refused(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(
        f"model: {{backbone: {{type: LSTM, dim: 32}}}}\ntasks: {{a: {path}}}\n", encoding="utf-8"
    )
    with pytest.raises(UsageError, match=r"tasks\.a: from: .* is a mixture itself"):
        complete(str(path), may_mix=True)
    with pytest.raises(UsageError, match="tasks is no single value"):
        complete("mixture/four", "debug", ["--tasks", "{}"], may_mix=True)


def test_a_mixture_is_not_tuned_and_a_task_that_is_null_is_left_out(text):
    config = mixture({"image": IMAGE, "text": text}, **{"tasks.text": None})
    assert list(config["tasks"]) == ["image"]
    with pytest.raises(UsageError, match="several tasks"):
        complete(mixture({"image": IMAGE, "text": text}))
    with pytest.raises(UsageError, match="several tasks"):
        trial(mixture({"image": IMAGE, "text": text}))


# ── two processes ────────────────────────────────────────────────────────────────────────────────────────────────────


def recipe_file(folder, text, **words):
    path = folder / "mixed.yaml"
    graph = {"from": "graph/molecules", "preset": "debug", "data": {"batch_size": 8}}
    config = mixture({"image": IMAGE, "text": text, "graph": graph}, **words)
    path.write_text(to_yaml(config), encoding="utf-8")
    return str(path)


@needs_forks
@pytest.mark.slow
@pytest.mark.parametrize("moments", ["shared", "by_task"])
def test_two_processes_take_the_steps_of_as_many_micro_batches(tmp_path, text, moments):
    """Tasks differ in their parameters, so each step leaves some without a gradient on all devices alike."""
    plain = {"type": "torch.optim.SGD", "lr": 0.1}
    backbone = {**BACKBONE, "dropout": 0.0}
    words = {
        "moments": moments,
        "optimizer": plain,
        "model__backbone": backbone,
        "trainer__gradient_clip_val": 1.0,
    }
    recipe = recipe_file(tmp_path, text, trainer__max_steps=6, **words)
    fitted([recipe, *DDP, "--out", str(tmp_path / "two")])
    fitted(
        [recipe, "--trainer.accumulate_grad_batches", "2", "--out", str(tmp_path / "one")], number=1
    )
    for name in ("image", "text", "graph"):
        one, two = (load(tmp_path / run / "tasks" / name) for run in ("one", "two"))
        assert one.summary["tokens_seen"] == two.summary["tokens_seen"]
        check_alike(two.model.state_dict(), one.model.state_dict())


@needs_forks
@pytest.mark.slow
def test_two_processes_that_were_stopped_end_as_two_that_were_not(tmp_path, text):
    recipe = recipe_file(tmp_path, text, trainer__max_steps=9, trainer__checkpoint_every_n_steps=3)
    fitted([recipe, *DDP, "--out", str(tmp_path / "whole")])
    code, said = stopped([recipe, *DDP, "--out", str(tmp_path / "stopped")], 0, Kick(5))
    assert code == 128 + signal.SIGTERM, said
    fitted(["--resume", str(tmp_path / "stopped")])
    for name in ("image", "text", "graph"):
        assert not differences(*(tmp_path / run / "tasks" / name for run in ("whole", "stopped")))


@pytest.mark.slow
def test_tasks_with_a_validation_split_are_validated_where_another_has_none(tmp_path, text):
    words = {"trainer__val_check_interval": 4, "trainer__check_val_every_n_epoch": None}
    words |= {"trainer__weights": "last", "tasks.image.data.valid_fraction": 0.0}
    run(mixture({"text": text, "image": IMAGE}, **words), tmp_path / "run")
    columns = {name for row in rows(tmp_path / "run") for name in row}
    assert "valid/text/loss" in columns
    assert "valid/image/loss" not in columns


@pytest.mark.slow
def test_a_row_of_the_log_has_the_last_loss_of_every_task(tmp_path, text):
    run(
        mixture({"text": text, "image": IMAGE}, trainer__max_steps=8, trainer__log_every_n_steps=4),
        tmp_path / "run",
    )
    for row in rows(tmp_path / "run"):
        if "train/grad_norm" in row:
            assert {"train/text/loss", "train/image/loss"} <= row.keys()
    for name in ("text", "image"):
        assert [
            row["train/loss"]
            for row in rows(tmp_path / "run" / "tasks" / name)
            if "train/loss" in row
        ]
