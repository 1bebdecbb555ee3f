"""Sentences about arguments, from the docstrings of the classes that take them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from functools import cache
from importlib import import_module
from typing import Any

MAX_CHARACTERS = 300
"""Longer explanations are cut after a sentence."""

GENERAL = {
    "activation": "Activation between the linear layers.",
    "backbone": "Layers between embedder and head.",
    "betas": "Decay rates of the running averages of the gradient and of its square.",
    "bias": "True: the linear layers have biases.",
    "cell": "Kind of recurrent cell.",
    "centered": "True: the gradient is divided by its standard deviation, not by its root mean square.",
    "depth": "Number of layers.",
    "dim": "Width of the hidden states.",
    "drop_path": "Probability with which the branch of a layer is left out in training (stochastic depth).",
    "dropout": "Probability with which a value is set to zero in training.",
    "init": "Folder of a trained run with whose weights training begins, as far as they fit.",
    "inplace": "True: the input's memory is used for the output.",
    "kernel_size": "Width of the convolution, in tokens.",
    "lr": "Learning rate.",
    "max_distance": "Distance from which all larger ones are treated alike.",
    "max_wavelength": "Wavelength of the slowest wave, in positions.",
    "mlp": "Feed-forward network of each layer.",
    "momentum": "Share of the last update that is kept in the next.",
    "norm": "Normalisation of the hidden states.",
    "num_buckets": "Number of buckets of distances.",
    "num_experts": "Number of experts.",
    "num_heads": "Number of attention heads.",
    "objective": "What is learned: head, loss and metrics.",
    "path": "File or folder with the data.",
    "project": "Project in which the run is listed.",
    "seed": "Seed of the split.",
    "smiles": "Column of the SMILES.",
    "source": "Data set, or files of yours.",
    "target": "Column of what is to be predicted.",
    "test_fraction": "Share of the examples that become the test split.",
    "weight_decay": "Rate at which weights shrink at each step, times the learning rate.",
}
"""Arguments that mean the same wherever they occur, for classes whose docstrings do not repeat it."""

DOCUMENTED_BY = {"TrainerSettings": "pytorch_lightning:Trainer"}
"""Classes whose arguments are another class's, which documents those that they do not."""


def explanation(cls: Any, argument: str) -> str:
    """A sentence about an argument of a class or function; empty if nothing is known.

    It is the docstring's entry for the argument, else the general one, else the first sentence that mentions it.
    """
    return _explanations(cls).get(argument) or GENERAL.get(argument) or _mention(cls, argument)


def _mention(cls: Any, argument: str) -> str:
    """The first sentence of the docstring in which the argument occurs."""
    sentences = re.split(r"(?<=[.;])(?<!al\.)\s+", " ".join((cls.__doc__ or "").split()))
    found = (
        one for one in sentences if re.search(rf"(?<![\w-]){argument}(?!\w)", one) and not one.startswith("Raises")
    )
    return _sentence(next(found, ""))


@cache
def _explanations(cls: Any) -> dict[str, str]:
    """Explanation by argument: from the class, its constructor, its base classes, or the class that it stands for."""
    names = set(inspect.signature(cls).parameters)
    found: dict[str, str] = {}
    for owner in cls.__mro__[:-1] if inspect.isclass(cls) else (cls,):
        init = vars(owner).get("__init__") if inspect.isclass(owner) else None
        for doc in (owner.__doc__, init and init.__doc__):
            found = _entries(inspect.cleandoc(doc or ""), names) | found
    if (other := DOCUMENTED_BY.get(getattr(cls, "__name__", ""))) is not None:
        module, _, name = other.partition(":")
        found = _explanations(getattr(import_module(module), name)) | found
    for parameter in inspect.signature(cls).parameters.values():
        if getattr(parameter.default, "is_settings", False):  # its fields are keys beside the others
            group: Any = type(parameter.default)
            found = _explanations(group) | found
    return found


def _entries(doc: str, names: Collection[str]) -> dict[str, str]:
    """`name: text` entries of a docstring, and `name (type): text` ones; `a, b: text` is an entry for both."""
    name = r"[`*]*\w+[`*]*"
    entry = re.compile(
        rf"(?:^|(?<=[.;:)]\s))[ -]*(?:or )?({name}(?:, {name})*)(?: ?\([^\n]*?\))?:(?=\s+\S)", re.MULTILINE
    )
    heads = [(head, [each.strip("`* ") for each in head[1].split(",")]) for head in entry.finditer(doc)]
    # after a full stop, a word that is no argument begins an entry as well; elsewhere it is prose: `repeated: [a, b]`
    heads = [
        (head, own)
        for head, own in heads
        if set(own) & set(names) or (head[1].islower() and doc[: head.start()].rstrip().endswith("."))
    ]
    found: dict[str, str] = {}
    for (head, own), following in zip(heads, [*heads[1:], None]):
        text = doc[head.end() : len(doc) if following is None else following[0].start()]
        text = re.split(r"\n\s*\n|(?<=[.;:])\s+(?:Raises|Returns)\b|\n\S+ \(\w", text)[0]
        found |= {each: _sentence(text) for each in own if each in names and each not in found}
    return found


def _sentence(text: str) -> str:
    """An entry's text in one line, without the defaults that it names (a recipe's may differ) and markup of Sphinx."""
    text = re.sub(r":\w+:`~?([^`]*)`", r"\1", " ".join(text.split())).replace("``", "")
    text = re.sub(r"\s*\(defaults?\b[^)]*\)| [A-Z][\w ]*:$", "", text, flags=re.IGNORECASE)
    text = re.sub(r"(?<=\.) Defaults?\b[^.]*(?:\.\d[^.]*)?(?:\.|$)", "", text)
    if len(text) > MAX_CHARACTERS:
        text = re.split(r"(?<=\w\w\.) (?=[A-Z])", text[:MAX_CHARACTERS])[0]
    text = text.strip(" ;")
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+\b[^.(_]", text) else text
