"""What is known of the models of one kind: their settings as a recipe writes them, and the names of their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.rows import Rows

Settings = dict[str, Any]
MAX_LAYERS = 1000
"""Layers of a model at most: a damaged file should not fill the memory."""

TANH = {"type": "GELU", "approximate": "tanh"}
ACTIVATIONS: dict[Any, Any] = {
    "gelu": "GELU", "gelu_new": TANH, "gelu_pytorch_tanh": TANH, "relu": "ReLU", "silu": "SiLU", "swish": "SiLU",
}  # fmt: skip
"""Activations of a recipe by their names in `config.json`."""


@dataclass(frozen=True)
class Head:
    """A head that published models have.

    classes: ends of the names of the classes that have it (`architectures` of `config.json`). objective: the section
    `objective` of a recipe. table: names of the weights.
    """

    classes: tuple[str, ...]
    objective: Callable[[ConfigFile], Settings]
    table: Callable[[ConfigFile], Rows]


@dataclass(frozen=True)
class Family:
    """How models of one kind are read and written.

    model: the section `model` of a recipe, without its objective. table: names of the weights of embedder and backbone.
    prefix: what these names begin with in a model that has a head. heads: by the name of the objective. left_out:
    beginnings of the names of weights that may be in a file and are of no use here.
    """

    model: Callable[[ConfigFile], Settings]
    table: Callable[[ConfigFile], Rows]
    prefix: str
    heads: Mapping[str, Head] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def depth_of(config: ConfigFile, name: str = "num_hidden_layers", default: int | None = None) -> int:
    """Number of layers."""
    return config.size(name, default, most=MAX_LAYERS)
