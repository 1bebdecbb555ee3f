"""Families of models of other libraries: settings as a recipe writes them, and the names of their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.rows import Rows

Settings = dict[str, Any]
MAX_LAYERS = 1000
"""Layers of a model at most: a damaged file should not fill the memory."""

TANH = {"type": "GELU", "approximate": "tanh"}
ACTIVATIONS: dict[Any, Any] = {
    "gelu": "GELU", "gelu_python": "GELU", "gelu_new": TANH, "gelu_fast": TANH, "gelu_pytorch_tanh": TANH,
    "gelu_python_tanh": TANH, "gelu_accurate": TANH, "quick_gelu": "QuickGELU", "relu": "ReLU", "relu2": "ReLUSquared",
    "relu6": "ReLU6", "leaky_relu": "LeakyReLU", "silu": "SiLU", "swish": "SiLU", "sigmoid": "Sigmoid", "tanh": "Tanh",
    "mish": "Mish", "hardswish": "Hardswish",
}  # fmt: skip
"""Activations of a recipe by their names in `config.json`."""


@dataclass(frozen=True)
class Head:
    """A head that published models have.

    classes: ends of the names of the classes that have it (`architectures` of `config.json`). objective: the section
    `objective` of a recipe. table: names of the weights. state: state of the objective, such as names of classes.
    """

    classes: tuple[str, ...]
    objective: Callable[[ConfigFile], Settings]
    table: Callable[[ConfigFile], Rows]
    state: Callable[[ConfigFile], dict[str, Any]] = lambda _: {}


@dataclass(frozen=True)
class Family:
    """How models of one kind are read and written.

    model: the section `model` of a recipe, without its objective. table: names of the weights of embedder and backbone.
    prefix: what these names begin with in a model that has a head. heads: by the name of the objective. left_out:
    beginnings of the names of weights that may be in a file and are of no use here. inputs: the section `tokenizer` of
    a recipe, from the folder; None: texts, by its `tokenizer.json`.
    """

    model: Callable[[ConfigFile], Settings]
    table: Callable[[ConfigFile], Rows]
    prefix: str
    heads: Mapping[str, Head] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    inputs: Callable[[Path, ConfigFile], Settings] | None = None


def class_names(config: ConfigFile) -> dict[str, Any]:
    """State of `Classify` from `id2label`. Raises DataError for a head that is no classification."""
    config.must_be("single_label_classification", *(["problem_type"] if config.get("problem_type") else []))
    labels = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    if not isinstance(labels, Mapping) or {*map(str, labels)} != {*map(str, range(len(labels)))} or len(labels) < 2:
        raise config.refused("id2label", "a name for each of two classes or more")
    return {"names": [str(labels[key]) for key in sorted(labels, key=int)]}


def depth_of(config: ConfigFile, name: str = "num_hidden_layers", default: int | None = None) -> int:
    """Number of layers."""
    return config.size(name, default, most=MAX_LAYERS)
