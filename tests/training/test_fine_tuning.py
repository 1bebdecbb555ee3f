"""Which parameters train: frozen parts stay to the bit, changes of low rank act and merge, refusals name the part."""

import pytest
import torch
from runs.stopping import Kick, differences, with_callback

from seqkit.config import complete
from seqkit.errors import Interrupted, UsageError
from seqkit.files import read_mapping
from seqkit.runs.mixture import load
from seqkit.runs.run import resume_run, run, trial
from seqkit.training.fine_tuning import Freeze
from seqkit.training.optim import AdamW


def digits(**changes):
    words = {name.replace("__", "."): value for name, value in changes.items()}
    quiet = {
        "trainer.enable_progress_bar": False,
        "data.limit": 20,
        "model.backbone.depth": 2,
        "data.augment": None,
    }
    quiet |= {"model.backbone.dim": 16, "data.batch_size": 10, "trainer.max_epochs": 1}
    return complete("image/digits", "debug", {**quiet, **words})


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "run"
    run(digits(), folder)
    return folder


def weights_of(folder):
    return load(folder).model.state_dict()


def changed(base, folder):
    before, after = weights_of(base), weights_of(folder)
    assert before.keys() == after.keys()
    return {name for name in before if not torch.equal(before[name], after[name])}


def method(kind, **arguments):
    return {"type": kind, **arguments}


def test_frozen_is_what_was_taken_and_the_head_trains(base, tmp_path):
    run(digits(model__init=str(base), trainer__fine_tuning="Freeze"), tmp_path / "run")
    assert changed(base, tmp_path / "run") == {"head.linear.weight", "head.linear.bias"}


def test_parts_are_frozen_by_their_names_alone(base, tmp_path):
    frozen = method("Freeze", parts=["embedder", "backbone.blocks.0"])
    run(digits(model__init=str(base), trainer__fine_tuning=frozen), tmp_path / "run")
    names = changed(base, tmp_path / "run")
    assert not [name for name in names if name.startswith(("embedder.", "backbone.blocks.0."))]
    assert [name for name in names if name.startswith("backbone.blocks.1.")]


def test_parts_may_be_frozen_of_random_weights(tmp_path):
    config = digits(trainer__fine_tuning=method("Freeze", parts=["backbone"]))
    assert run(config, tmp_path / "run")["state"] == "finished"


@pytest.mark.slow
def test_lora_changes_the_linear_maps_alone_and_the_run_has_the_names_of_any_other(base, tmp_path):
    settings = method("LoRA", rank=2, targets=["qkv_proj"])
    run(digits(model__init=str(base), trainer__fine_tuning=settings), tmp_path / "run")
    assert changed(base, tmp_path / "run") == {
        f"backbone.blocks.{i}.attention.qkv_proj.weight" for i in (0, 1)
    }
    for i in (0, 1):
        name = f"backbone.blocks.{i}.attention.qkv_proj.weight"
        difference = weights_of(tmp_path / "run")[name] - weights_of(base)[name]
        assert torch.linalg.matrix_rank(difference, rtol=1e-3) == 2
    trained = read_mapping(tmp_path / "run" / "summary.json")["trained_parameters"]
    width, num_blocks = load(base).model.backbone.dim, 2
    assert trained == num_blocks * 2 * (width + 3 * width)
    assert f"LoRA trains {trained:,} parameters" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        {"trainer__fine_tuning": "LoRA", "trainer__weights": "best"},
        pytest.param(
            {"trainer__fine_tuning": "Freeze", "trainer__weights": "best"}, marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_a_run_that_was_stopped_goes_on_to_the_bit(words, base, tmp_path):
    config = digits(model__init=str(base), **words, trainer__max_epochs=4)
    run(config, tmp_path / "whole")
    with with_callback(Kick(3)), pytest.raises(Interrupted):
        run(config, tmp_path / "stopped")
    resume_run(tmp_path / "stopped", {})
    assert not differences(tmp_path / "whole", tmp_path / "stopped")


def test_rates_fall_from_the_head_to_the_embedder(base):
    model = load(base).model
    optimizer = AdamW(0.1, layer_decay=0.5).build(model)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert len(rates) == len(list(model.parameters()))
    found = {name: rates[id(p)] for name, p in model.named_parameters()}
    assert found["head.linear.weight"] == 0.1
    for prefix, rate in (
        ("backbone.blocks.1.", 0.05),
        ("backbone.blocks.0.", 0.025),
        ("embedder.", 0.0125),
    ):
        assert {rate for name, rate in found.items() if name.startswith(prefix)} == {rate}


def test_a_trial_trains_as_the_run_does(base, tmp_path):
    config = digits(model__init=str(base), trainer__fine_tuning="LoRA", data__valid_fraction=0.2)
    assert trial(config)["steps"] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trainer__fine_tuning": "LoRA"}, "--model.init"),
        ({"trainer__fine_tuning": "Freeze"}, "--model.init"),
        ({"trainer__fine_tuning": method("Freeze", parts=["embeder"])}, "did you mean embedder"),
        (
            {"trainer__fine_tuning": method("Freeze", parts=["embedder", "backbone", "head"])},
            "no parameter",
        ),
    ],
)
def test_what_would_keep_nothing_or_all_is_refused(settings, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        run(digits(**settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trainer__fine_tuning": method("LoRA", targets=["qkv_pro"])}, "did you mean qkv_proj"),
        ({"trainer__fine_tuning": "LoRA", "trainer__strategy": "fsdp"}, "leave it out"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings, message, base, tmp_path):
    with pytest.raises(UsageError, match=message):
        run(digits(model__init=str(base), **settings), tmp_path / "run")


def test_wrong_arguments_are_refused():
    for wrong in (
        lambda: Freeze([]),
        lambda: AdamW(layer_decay=0.0),
        lambda: AdamW(layer_decay=1.1),
    ):
        with pytest.raises(ValueError, match="="):
            wrong()
