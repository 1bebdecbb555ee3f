"""From a complete configuration to components: the right classes with the right arguments, and nothing else."""

import collections.abc
import contextlib
import dataclasses
import importlib
import inspect
import numbers
import re
import sys
import typing
from enum import Enum
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints
from typing import get_type_hints

import pydantic
import pytest
import torch

from seqkit.config import build, build_model, complete
from seqkit.config.merge import Node, root
from seqkit.config.schema import (
    KIND_BY_TYPE,
    REQUIRED,
    Field,
    check_value,
    in_words,
    read_parameters,
)
from seqkit.errors import UsageError
from seqkit.interfaces import Backbone
from seqkit.nn.mlp import GatedMLP
from seqkit.registry import BUILT_IN, KINDS, components, find, lookup, register
from seqkit.training.optim import AdamW, Muon, TorchOptimizer, TorchSchedule


def test_components_are_built_with_their_arguments():
    built = build(
        complete(
            "text/char-lm", "debug", {"model.backbone.block.mlp": "GatedMLP", "optimizer.lr": 0.5}
        )
    )
    backbone = built.model["backbone"]
    assert (backbone.dim, len(backbone.blocks), backbone.causal) == (32, 2, True)
    assert isinstance(backbone.blocks[0].mlp, GatedMLP)
    assert backbone.blocks[0].mlp.down_proj.bias is None
    assert isinstance(built.optimizer, Muon)
    assert isinstance(built.optimizer.adamw, AdamW)
    assert (built.optimizer.lr, built.optimizer.adamw.lr) == (0.5, 0.006)
    assert built.data["selection"].limit == 64
    assert built.trainer["max_steps"] == 20


def test_a_factory_is_passed_on_unbuilt():
    position = build(complete("text/char-lm", "nanogpt")).model["position"]
    assert isinstance(position, partial)
    assert position(6, 1).sizes == (64,)


def test_a_transform_of_another_package_is_no_component_of_ours():
    from torchvision.transforms import v2

    class Own:
        def __init__(self, inner: v2.Transform | None = None): ...

    assert (
        read_parameters(Own, ())["inner"] is None or read_parameters(Own, ())["inner"].kind is None
    )


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


SAFE = (
    "seqkit.",
    "torch.nn:",
    "torch.optim:",
    "torch.optim.lr_scheduler:",
    "torchvision.transforms.v2:",
    "pytorch_lightning.callbacks:EarlyStopping",
    "pytorch_lightning.callbacks:LearningRateMonitor",
    "pytorch_lightning.callbacks:DeviceStatsMonitor",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recipe_reaches_classes_of_the_list_and_nothing_else(kind):
    for component in components(kind).values():
        module, _, name = component.path.partition(":")
        assert component.path.startswith(SAFE), component
        assert not name.startswith("_")
        assert "." not in name
        loaded = getattr(importlib.import_module(module), name)
        assert isinstance(loaded, type) or kind == "preset", "a function could do anything"


def reachable():
    """(kind, component, keys, number of arguments that its owner gives) of every component that a recipe can name.

    Found by following keys from the top.
    """
    fields, seen = list(root().values()), set()
    while fields:
        field = fields.pop()
        if field.section is not None:
            fields += field.keys_below(None, "x").values()
        if field.kind is None or (field.kind, field.num_given) in seen:
            continue
        seen.add((field.kind, field.num_given))
        for kind in (field.kind, "preset") if field.kind == "backbone" else (field.kind,):
            for name, component in components(kind).items():
                below = field.keys_below(name, "x")
                fields += below.values()
                # given the parameters, or the optimizer
                is_torchs = component.path.startswith("torch.optim")
                yield kind, component, below, 1 if is_torchs else field.num_given or 0


def test_everything_that_a_recipe_reaches_is_a_public_class_of_the_lists():
    """No function, nothing private, nothing found by its path: the classes that the table of components names."""
    found = {(kind, component.path): component for kind, component, *_ in reachable()}
    assert {kind for kind, _ in found} == set(KINDS)
    assert set(found.values()) == {
        component for listed in BUILT_IN.values() for component in listed
    }
    for (kind, path), component in found.items():
        assert path.startswith(SAFE), path
        assert all(
            part.isidentifier() and not part.startswith("_") for part in re.split("[.:]", path)
        ), path
        loaded = component.load()
        made = get_type_hints(loaded)["return"] if kind == "preset" else loaded
        assert inspect.isclass(made), path
        assert kind != "preset" or (
            loaded.__module__ == "seqkit.backbones.presets" and issubclass(made, Backbone)
        )
        for base, meant in KIND_BY_TYPE.items():
            if meant == kind and not path.startswith("torch."):
                assert base in {cls.__name__ for cls in made.__mro__}, f"{path} is no {base}"


def test_what_a_component_cannot_do_without_can_be_written_in_a_recipe():
    """A class that wants a function, such as torchvision's Lambda, has no place in the table."""
    for kind, component, keys, given in reachable():
        parameters = list(inspect.signature(component.load()).parameters.values())[given:]
        named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        wanted = {p.name for p in named if p.default is p.empty} - set(keys)
        assert not wanted, f"{kind} {component.name} wants {wanted}"


def test_no_key_of_a_recipe_holds_a_function_or_a_class():
    """A plain value is plain data: whatever stands in the recipe, no key makes code of it."""
    # no JSON is an instance of type
    plain = {int, float, bool, str, type(None), typing.Any, list, tuple, dict, type}

    def leaves(hint):
        origin = typing.get_origin(hint)
        if hasattr(hint, "__metadata__"):  # a number with its largest value
            return leaves(typing.get_args(hint)[0])
        if dataclasses.is_dataclass(hint):  # keys and values, checked as those of a component are
            return {
                leaf
                for field in dataclasses.fields(hint)
                for leaf in leaves(get_type_hints(hint)[field.name])
            }
        if origin in (typing.Literal, None):
            return {type(one) for one in typing.get_args(hint)} if origin else {hint}
        inner = {leaf for one in typing.get_args(hint) if one is not ... for leaf in leaves(one)}
        return inner | ({origin} & {list, tuple, dict, collections.abc.Callable, type})

    for kind, component, keys, _ in reachable():
        for key in keys.values():
            if key.kind is None and key.section is None:
                own = {
                    leaf
                    for leaf in leaves(key.hint)
                    if not (inspect.isclass(leaf) and issubclass(leaf, Enum))
                }
                others = own - plain - {numbers.Number, collections.abc.Sequence}
                assert not others, f"{kind} {component.name}: {key.name} takes {others}"
                assert not key.name.endswith(("_fn", "_func", "callable")), (
                    f"{component.name}: {key.name}"
                )
                for word in ("os.system", "builtins:eval", "lambda: 1", "!!python/name:os.system"):
                    with contextlib.suppress(ValueError):
                        assert type(check_value(word, key.hint)) is str


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "preset"])
def test_a_function_that_another_package_offers_as_a_component_is_refused(monkeypatch, kind):
    point = EntryPoint("Trojan", "os:system", f"seqkit.{kind}s")
    monkeypatch.setattr(lookup, "entry_points", lambda: EntryPoints([point]))
    monkeypatch.setattr(lookup, "_of_every_kind", lookup._of_every_kind.__wrapped__)
    with pytest.raises(UsageError, match="x: Trojan at os:system"):
        Field("x", kind=kind).keys_below("Trojan", "x")


def test_a_class_of_a_plug_in_is_a_component_as_ours_are(monkeypatch):
    from seqkit.backbones import LSTM

    @register("backbone")
    class Own(LSTM):
        pass

    # where `load` looks for it
    monkeypatch.setitem(sys.modules[__name__].__dict__, Own.__qualname__, Own)
    built = build(complete("image/digits", "debug", {"model.backbone": {"type": "Own", "dim": 8}}))
    assert type(built.model["backbone"]) is Own


def test_a_bound_of_an_annotation_is_said():
    assert (
        in_words(typing.Annotated[int, pydantic.Field(gt=0, le=7)] | None)
        == "a whole number above 0 of at most 7 or null"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2**63, -(2**63) - 1])
@pytest.mark.parametrize("hint", [int, float, int | float | None, list[float], dict[str, float]])
def test_a_number_that_is_none_or_larger_than_any_machines_is_refused(value, hint):
    with pytest.raises(ValueError, match=r"give a (finite number|number of 64 bits)"):
        check_value(
            [value] if hint == list[float] else {"a": value} if hint == dict[str, float] else value,
            hint,
        )


@pytest.mark.parametrize("width", [10**12, 2**62])
def test_a_width_beyond_all_memory_is_refused_in_one_line(width):
    config = complete(
        "image/digits", "debug", {"model.backbone.causal": True, "model.objective": "NextToken"}
    )
    built = build({"model": config["model"]})
    with pytest.raises(UsageError, match=r"allocate memory|overflowed") as caught:
        build_model(built, find("tokenizer", "Ids").load()(width).spec)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_every_component_can_be_written_in_a_recipe():
    """Each has keys that its annotations explain, and those without required arguments are complete by name alone."""
    owners = {
        "position": 2, "block": 2, "mixer": 2, "mechanism": 2, "mlp": 1, "norm": 1, "residual": 1, "convolution": 1,
        "activation": 0, "transform": 1,
    }  # fmt: skip
    for kind in KINDS:
        if kind == "preset":
            continue
        field = Field("x", kind=kind, num_given=owners.get(kind))
        for name in components(kind):
            keys = field.keys_below(name, "x")
            if all(key.default is not REQUIRED for key in keys.values()):
                assert Node({"x": field}, "").complete({"x": name})["x"]["type"] == name


def test_the_trainers_keys_are_settings_only():
    names = set(root()["trainer"].keys_below(None, "trainer"))
    assert {
        "max_steps",
        "max_epochs",
        "gradient_clip_val",
        "precision",
        "devices",
        "strategy",
    } <= names
    assert (
        not {
            "plugins",
            "default_root_dir",
            "enable_checkpointing",
            "fast_dev_run",
            "limit_test_batches",
        }
        & names
    )


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
        (Duck, {}, "^model.backbone: Duck at .* is no Backbone"),
        (Untyped, {"dim": 8}, "^model.backbone: KeyError: 8$"),
        (
            Untyped,
            {"dim": 8, "width": "x"},
            "^model.backbone.width is 'x'; give a whole number .* or a number",
        ),
        (Untyped, {"dim": 8, "name": 3}, "^model.backbone.name is 3; give a text"),
        (Untyped, {"dim": 8, "sub": 3}, "Untyped has no argument 'sub'"),
        (Extra, {"dim": 8}, r"Extra takes \*\*kwargs, which no key"),
        (Typed, {}, "Typed takes type, which no key"),
    ],
)
def test_a_plug_in_that_is_not_what_a_recipe_needs_is_refused_by_name(
    monkeypatch, cls, keys, message
):
    register("backbone")(cls)
    with pytest.raises(UsageError, match=message):
        build(complete("image/digits", "debug", {"model.backbone": {"type": cls.__name__, **keys}}))


def test_the_home_folder_in_a_sources_path_is_expanded_and_a_variable_is_refused(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes.txt").write_text("To be, or not to be. " * 30, encoding="utf-8")
    source = {"type": "TextFiles", "path": "~/notes.txt"}
    config = complete("text/char-lm", "debug", {"data.source": source})
    assert config["data"]["source"]["path"] == "~/notes.txt"
    assert build(config).data["source"].splits().train
    for path in ("$HOME/notes.txt", "${HOME}/notes.txt"):
        with pytest.raises(UsageError, match="is not expanded"):
            build(complete("text/char-lm", "debug", {"data.source": source | {"path": path}}))
