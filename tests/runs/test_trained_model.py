"""A trained model predicts every example once, in the order in which they were given, on the device that it is on."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from runs.other_device import DEVICE, other_device
from safetensors.torch import load_file
from torch import nn

from seqkit.cli.main import main
from seqkit.config import Config, complete
from seqkit.data.inputs import Input
from seqkit.errors import DataError, UsageError
from seqkit.files import read_mapping, write_json
from seqkit.interfaces import LossOutput, TokenBatch, Tokens
from seqkit.objectives import Classify, NextToken
from seqkit.runs.answers import predictions, vectors
from seqkit.runs.mixture import load
from seqkit.runs.run import run
from seqkit.runs.summary import Summary
from seqkit.runs.trained_model import Predictor, TrainedModel, _generates_in_bfloat16, find_device


class Echo(torch.nn.Linear):
    """Model, tokenizer and objective whose prediction is the example; a negative one is refused."""

    encodes_parts_alone = False

    def __init__(self):
        super().__init__(1, 1)

    def encode(self, raw):
        if raw < 0:
            raise KeyError("mine")
        return Tokens(torch.tensor([raw]), torch.zeros(1, 1))

    def predict(self, model, batch):
        return batch.content[:, 0]

    def decode(self, prediction):
        return prediction.tolist()


def trained_echo():
    echo = Echo()
    return TrainedModel(echo, echo, echo, Config({}), Summary.model_construct(), Path())


@pytest.mark.parametrize("batch_size", [1, 3, 7, 32])
def test_batches_of_any_size_give_each_example_its_own_prediction(batch_size):
    assert trained_echo().predict(range(7), batch_size) == list(range(7))


def test_an_example_that_cannot_be_encoded_is_named():
    with pytest.raises(DataError, match=r"second.*mine"):
        trained_echo().predict([1, -1], names=["first", "second"])


def test_a_device_that_this_machine_lacks_is_refused():
    assert find_device("cpu").type == "cpu"
    assert (
        find_device("auto").type
        == (torch.accelerator.current_accelerator(True) or torch.device("cpu")).type
    )
    for name in ("xpu:3", "no-device", "meta"):
        with pytest.raises(UsageError, match=name):
            find_device(name)


RAWS = {
    "image/digits": [torch.rand(1, 8, 8), torch.rand(1, 8, 8)],
    "text/char-lm": ["To be", "or not to be"],
    "text/tag": ["to be or not", "to be"],
    "graph/molecules": ["CCO", "c1ccccc1O"],
}
"""Raw examples of recipes whose objectives are a class, the next token, a class for each token, a number."""


CELLS = [
    pytest.param(recipe, marks=() if recipe == "image/digits" else pytest.mark.slow)
    for recipe in RAWS
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """`recipe -> folder` of a run of one step, trained once."""
    kept = {}

    def trained(recipe):
        if recipe not in kept:
            kept[recipe] = tmp_path_factory.mktemp("answers") / "run"
            words = {
                "trainer.enable_progress_bar": False,
                "trainer.max_steps": 1,
                "trainer.weights": "last",
            }
            words |= {"data.limit": 50, "model.backbone.dim": 16}
            run(complete(recipe, "debug", words), kept[recipe])
        return kept[recipe]

    return trained


@pytest.mark.parametrize("recipe", CELLS)
def test_a_run_answers_on_another_device_as_on_this_one(runs, monkeypatch, recipe):
    """The other device refuses tensors that were not moved: a batch that stays behind is an error."""
    folder = runs(recipe)
    # whose tensors the simulation cannot slice
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)
    here = answered(load(folder))
    with other_device() as device, torch.no_grad():
        trained = load(folder, DEVICE)
        moved = device.moves
        there = answered(trained)
    assert trained.predictor.device == DEVICE
    assert device.moves > moved >= len(list(trained.model.parameters()))
    for one, other in zip(here, there, strict=True):
        if isinstance(one, str):
            assert one == other
        else:
            torch.testing.assert_close(
                torch.as_tensor(other), torch.as_tensor(one), atol=1e-3, rtol=1e-3
            )


@pytest.mark.parametrize("recipe", CELLS)
def test_a_run_answers_in_sixteen_bits_nearly_as_in_thirty_two(runs, recipe):
    folder = runs(recipe)
    halved = load(folder, dtype="bfloat16")
    assert {p.dtype for p in halved.model.parameters()} == {torch.bfloat16}
    for one, other in zip(answered(load(folder)), answered(halved), strict=True):
        if not isinstance(one, str):
            assert torch.as_tensor(other).dtype == torch.as_tensor(one).dtype
            torch.testing.assert_close(
                torch.as_tensor(other), torch.as_tensor(one), atol=0.1, rtol=0.1
            )


@pytest.mark.parametrize(("objective", "halves"), [(NextToken(), True), (Classify(), False)])
def test_on_a_gpu_a_model_that_generates_is_in_bfloat16_by_default(
    runs, objective, halves, monkeypatch
):
    assert {p.dtype for p in load(runs("image/digits"), dtype="auto").model.parameters()} == {
        torch.float32
    }
    for has_it in (True, False):
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation, has_it=has_it: has_it
        )
        assert _generates_in_bfloat16(objective, torch.device("cuda")) == (halves and has_it)
    assert not _generates_in_bfloat16(objective, torch.device("cpu"))


def answered(trained):
    """Vectors and, where the objective predicts, predictions and probabilities."""
    raws = RAWS[trained.config["recipe"]]
    given = [Input(str(i), raw) for i, raw in enumerate(raws)]
    values = [one.values for one in vectors(trained, given)]
    if not trained.objective.causal:
        found = list(predictions(trained, given, probabilities=bool(trained.objective.classes)))
        values += [one.prediction for one in found] + [one.probabilities for one in found]
    flat = [item for one in values for item in (one if isinstance(one, list) else [one])]
    return [one for one in flat if one is not None]


@pytest.mark.parametrize(
    "command",
    [
        ["predict", "RUN", "x"],
        ["predict", "RUN", "x", "--embed", "--out", "x.parquet"],
        ["generate", "RUN"],
    ],
)
def test_each_command_that_answers_puts_the_model_on_the_device_that_is_asked_for(
    tmp_path, monkeypatch, command
):
    asked = []
    (tmp_path / "config.yaml").touch()
    (tmp_path / "summary.json").touch()
    monkeypatch.setattr(
        "seqkit.runs.trained_model.find_device", lambda name: asked.append(name) or 1 / 0
    )
    for words in ([], ["--device", "cuda:1"]):
        with pytest.raises(ZeroDivisionError):
            main([word.replace("RUN", str(tmp_path)) for word in command] + words)
    assert asked == ["auto", "cuda:1"]


@pytest.mark.slow
def test_a_run_with_a_transform_comes_back_from_its_config(tmp_path):
    given = {
        "model.objective.pool": "first",
        "model.objective.transform": {"activation": "Tanh", "norm": "LayerNorm"},
    }
    given |= {"trainer.enable_progress_bar": False, "data.limit": 20}
    run(complete("image/digits", "debug", given), tmp_path / "run")
    trained = load(tmp_path / "run")
    assert trained.config["model"]["objective"]["transform"]["type"] == "Transform"
    assert complete(tmp_path / "run" / "config.yaml") == trained.config
    transform = trained.model.head.transform
    assert isinstance(transform.activation, torch.nn.Tanh)
    assert isinstance(transform.norm, torch.nn.LayerNorm)
    held = load_file(tmp_path / "run" / "checkpoints" / "model.safetensors")
    assert {name for name in held if name.startswith("head.transform.")} == {
        f"head.transform.{layer}.{end}"
        for layer in ("linear", "norm")
        for end in ("weight", "bias")
    }
    assert transform.linear.weight.equal(held["head.transform.linear.weight"])


def test_a_run_that_an_earlier_version_averaged_with_a_linear_model_is_refused(tmp_path):
    given = {"trainer.enable_progress_bar": False, "data.limit": 20}
    run(complete("image/digits", "debug", given), tmp_path)
    summary = read_mapping(tmp_path / "summary.json")
    for share in (None, 0.5):
        write_json(tmp_path / "summary.json", {**summary, "network_share": share})
        with (
            nullcontext()
            if share is None
            else pytest.raises(UsageError, match=r"train again with: seqkit fit .*config\.yaml")
        ):
            load(tmp_path)


class OnAccelerator(torch.Tensor):
    """Stands for a tensor on an accelerator, whose numbers numpy cannot read before `cpu`."""

    def numpy(self, **_):
        raise TypeError("can't convert this device type tensor to numpy")

    def cpu(self, *_, **__):
        return self.as_subclass(torch.Tensor)


class Weighs(nn.Module):
    """A model of one weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))


@pytest.mark.parametrize("label", [None, torch.ones(1)])
def test_what_a_step_gives_on_an_accelerator_is_read_on_the_cpu(label):
    batch = TokenBatch.collate([Tokens(torch.tensor([3, 5]), torch.zeros(2, 1))])
    far = torch.tensor([0.5, 0.25]).as_subclass(OnAccelerator)
    with pytest.raises(TypeError):
        far.numpy()
    model, seen = Weighs().train(), []

    def step(given, both):
        seen.append((given, both, given.training, torch.is_inference_mode_enabled()))
        return LossOutput(far.sum(), far.sum(), preds=far, target=far, prediction=far)

    predictor = Predictor(model)
    model.train()
    found = predictor.step(SimpleNamespace(step=step), (batch, label))
    ((given, (tokens, with_label), training, without_gradients),) = seen
    assert given is model
    assert tokens.content.equal(batch.content)
    assert (with_label is None) == (label is None)
    assert (training, without_gradients) == (False, True)
    assert model.training  # as before
    for one in (found.preds, found.target, found.prediction):
        assert one.numpy().tolist() == [0.5, 0.25]
