"""From a complete configuration to components: the right classes with the right arguments, and nothing else."""

import importlib
from functools import partial

import pytest
import torch

from seqkit.config import build, complete
from seqkit.config.resolve import root
from seqkit.config.schema import REQUIRED, Field
from seqkit.errors import UsageError
from seqkit.interfaces import Backbone
from seqkit.nn.mlp import GatedMLP
from seqkit.registry import KINDS, components, lookup, register
from seqkit.training.optim import AdamW, Muon, TorchOptimizer, TorchSchedule


def test_components_are_built_with_their_arguments():
    built = build(complete("text/char-lm", "debug", {"model.backbone.block.mlp": "GatedMLP", "optimizer.lr": 0.5}))
    backbone = built.model["backbone"]
    assert (backbone.dim, len(backbone.blocks), backbone.causal) == (32, 2, True)
    assert isinstance(backbone.blocks[0].mlp, GatedMLP)
    assert backbone.blocks[0].mlp.down_proj.bias is None
    assert isinstance(built.optimizer, Muon)
    assert isinstance(built.optimizer.adamw, AdamW)
    assert (built.optimizer.lr, built.optimizer.adamw.lr) == (0.5, 0.006)
    assert built.data["limit"] == 64
    assert built.trainer["max_steps"] == 20


def test_a_factory_is_passed_on_unbuilt():
    position = build(complete("text/char-lm", "nanogpt")).model["position"]
    assert isinstance(position, partial)
    assert position(6, 1).sizes == (64,)


def test_torchs_own_are_wrapped():
    overrides = {
        "optimizer": "torch.optim.SGD",
        "schedule": {"type": "torch.optim.lr_scheduler.StepLR", "step_size": 3},
    }
    built = build(complete("image/digits", "debug", overrides))
    assert isinstance(built.optimizer, TorchOptimizer)
    assert isinstance(built.schedule, TorchSchedule)
    layer = torch.nn.Linear(3, 2)
    optimizer = built.optimizer.build(layer)
    assert type(optimizer) is torch.optim.SGD
    assert type(built.schedule.build(optimizer, 7)) is torch.optim.lr_scheduler.StepLR


def test_augmentations_are_built_and_names_of_enums_taken():
    (affine,) = build(complete("image/digits")).data["augment"]
    assert type(affine).__name__ == "RandomAffine"
    assert affine.interpolation.value == "bilinear"


def test_a_component_that_refuses_its_arguments_names_the_key():
    with pytest.raises(UsageError, match=r"^tokenizer: .*patch"):
        build(complete("image/digits", "debug", {"tokenizer.patch": 0}))
    with pytest.raises(UsageError, match=r"^model\.backbone: dim=33"):
        build(complete("image/digits", "debug", {"model.backbone.dim": 33}))


def test_model_and_tokenizer_alone_need_no_data():
    config = complete("image/digits", "debug")
    keys = ("tokenizer", "model")
    built = build(complete({key: config[key] for key in keys}, only=keys))
    assert built.data is None
    assert type(built.model["backbone"]).__name__ == "Transformer"


SAFE = ("seqkit.", "torch.nn:", "torch.optim:", "torch.optim.lr_scheduler:", "torchvision.transforms.v2:")


@pytest.mark.parametrize("kind", KINDS)
def test_a_recipe_reaches_classes_of_the_list_and_nothing_else(kind):
    for component in components(kind).values():
        module, _, name = component.path.partition(":")
        assert component.path.startswith(SAFE), component
        assert not name.startswith("_")
        assert "." not in name
        loaded = getattr(importlib.import_module(module), name)
        assert isinstance(loaded, type) or kind == "preset", "a function could do anything"


def test_every_component_can_be_written_in_a_recipe():
    """Each has keys that its annotations explain, and those without required arguments are complete by name alone."""
    from seqkit.config.resolve import _Node

    owners = {
        "position": 2,
        "block": 2,
        "attention": 2,
        "mechanism": 2,
        "mlp": 1,
        "norm": 1,
        "residual": 1,
        "convolution": 1,
        "activation": 0,
    }
    for kind in KINDS:
        if kind == "preset":
            continue
        field = Field("x", kind=kind, num_given=owners.get(kind))
        for name in components(kind):
            keys = field.keys_below(name, "x")
            if all(key.default is not REQUIRED for key in keys.values()):
                assert _Node({"x": field}, "").complete({"x": name})["x"]["type"] == name


def test_the_trainers_keys_are_settings_only():
    names = set(root()["trainer"].keys_below(None, "trainer"))
    assert {"max_steps", "max_epochs", "gradient_clip_val", "precision", "devices", "strategy"} <= names
    assert not {"callbacks", "logger", "plugins", "fast_dev_run", "overfit_batches", "limit_test_batches"} & names


class Duck:
    pass


class Untyped(Backbone):
    def __init__(self, dim, width=3, name="x", sub: torch.nn.Module | None = None):
        raise KeyError(dim)

    def forward(self, x): ...


class Extra(Backbone):
    def __init__(self, dim: int, **kwargs: int): ...


class Typed(Backbone):
    def __init__(self, type: str = ""): ...


@pytest.mark.parametrize(
    ("cls", "keys", "message"),
    [
        (Duck, {}, "^model.backbone: Duck is no Backbone"),
        (Untyped, {"dim": 8}, "^model.backbone: KeyError: 8$"),
        (Untyped, {"dim": 8, "width": "x"}, "^model.backbone.width is 'x'; give a whole number or a number"),
        (Untyped, {"dim": 8, "name": 3}, "^model.backbone.name is 3; give a text"),
        (Untyped, {"dim": 8, "sub": 3}, "Untyped has no argument 'sub'"),
        (Extra, {"dim": 8}, r"Extra takes \*\*kwargs, which no key"),
        (Typed, {}, "Typed takes type, which no key"),
    ],
)
def test_a_plug_in_that_is_not_what_a_recipe_needs_is_refused_by_name(monkeypatch, cls, keys, message):
    monkeypatch.setattr(lookup, "_REGISTERED", {kind: {} for kind in KINDS})
    register("backbone")(cls)
    with pytest.raises(UsageError, match=message):
        build(complete("image/digits", "debug", {"model.backbone": {"type": cls.__name__, **keys}}))
