"""Explains every key of a configuration, by the docstring of the class that takes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

from seqkit.config.merge import MODEL_KEYS, Node, named, root
from seqkit.config.mixture import mixture_root, task_configs
from seqkit.config.overrides import shown
from seqkit.config.record import Config
from seqkit.config.schema import Field, in_words

MAX_CHARACTERS = 300
"""Longer explanations are cut after a sentence."""

GENERAL = {
    "betas": "Decay rates of the running averages of the gradient and of its square.",
    "centered": "True: the gradient is divided by its standard deviation, not by its root mean square.",
    "init": "Folder of a trained run with whose weights training begins, as far as they fit.",
    "inplace": "True: the input's memory is used for the output.",
    "lr": "Learning rate.",
    "momentum": "Share of the last update that is kept in the next.",
    "project": "Project in which the run is listed.",
    "source": "Data set, or files of yours.",
    "target": "Column of what is to be predicted.",
    "weight_decay": "Rate at which weights shrink at each step, times the learning rate.",
}
"""Arguments that mean the same wherever they occur, for classes whose docstrings do not repeat it."""

DOCUMENTED_BY = {"TrainerSettings": "pytorch_lightning:Trainer"}
"""Classes whose arguments are another class's, which documents those that they do not."""

TOP = {
    "recipe": "Name of the recipe, and folder of its runs in runs/.",
    "seed": "Seed of the weights at the start, of the order of the data, and of dropout.",
    "classical": "Whether the best classical method joins the network, stands beside the run, or is off.",
    "data": "Data set, or file or folder of yours, and how its examples become batches.",
    "tokenizer": "What turns a raw example into tokens.",
    "model": "Embedder, backbone and head.",
    "optimizer": "Updates the weights.",
    "schedule": "Learning rate over the training.",
    "trainer": "Length, hardware and checkpoints of the training.",
    "sampling": "Share of the optimizer steps that each task of a mixture gets.",
    "moments": "Whose gradients the optimizer remembers: those of all tasks of a mixture, or of each by itself.",
}
"""Sentences about the keys at the top."""

Row = tuple[str, str, str, str]


def explain(config: Config) -> Iterator[Row]:
    """(key, its value, what it may be, a sentence about it) for every key of a complete configuration."""
    if "tasks" not in config:
        yield from _explained(Node(root()), config, lambda field: TOP[field.name])
        return
    yield from _explained(Node(mixture_root()), config, lambda field: TOP[field.name])
    for name, task in config["tasks"].items():
        about = "Factor on the learning rate in the steps of this task."
        yield f"tasks.{name}.lr_scale", shown(task["lr_scale"]), "a number above 0", about
    for name, task in task_configs(config).items():
        for key, *rest in explain(task):
            if key.partition(".")[0] in ("data", *MODEL_KEYS) and not key.startswith(
                "model.backbone"
            ):
                yield f"tasks.{name}.{key}", *rest  # type: ignore[misc]


def _explained(
    node: Node, config: Mapping[str, Any], about: Callable[[Field], str]
) -> Iterator[Row]:
    """Explain every key of a complete node. about: the sentence about a key."""
    for name, field in node.fields.items():
        value = config.get(name)
        path = node.at(name)
        if field.is_plain:
            yield path, shown(value), in_words(field.hint), about(field)
        elif field.is_list(value):
            yield (
                path,
                shown(value),
                f"a list of {(field.kind or '').replace('_', ' ')}s",
                about(field),
            )
        elif field.shape == "names" and value is not None:
            yield path, ", ".join(value), f"names, with {named(field.kind)} each", about(field)
            yield from _explained(
                node.below(field, value), value, lambda part: f"Part {part.name}."
            )
        else:
            if field.kind is not None:
                component = "null" if value is None else value["type"]
                yield (
                    path,
                    component,
                    f"{named(field.kind)} (seqkit list {field.kind}s)",
                    about(field),
                )
            if value is not None:
                owner = field.component(value.get("type"), path).load()
                yield from _explained(node.below(field, value), value, partial(_about, owner))


def _about(owner: Any, field: Field) -> str:
    """A sentence about an argument of a component, or a field of its settings."""
    return explanation(owner if field.settings is None else field.settings[1], field.name)


def explanation(cls: Any, argument: str) -> str:
    """A sentence about an argument of a class or function; empty if nothing is known.

    It is the docstring's entry for the argument, else the general one, else the first sentence that mentions it.
    """
    return _explanations(cls).get(argument) or GENERAL.get(argument) or _mention(cls, argument)


def _mention(cls: Any, argument: str) -> str:
    """The first sentence of the docstring in which the argument occurs."""
    sentences = re.split(r"(?<=[.;])(?<!al\.)\s+", " ".join((cls.__doc__ or "").split()))
    found = (
        one
        for one in sentences
        if re.search(rf"(?<![\w-]){argument}(?!\w)", one) and not one.startswith("Raises")
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
        # its fields are keys beside the others
        if getattr(parameter.default, "is_settings", False):
            group: Any = type(parameter.default)
            found = _explanations(group) | found
    return found


def _entries(doc: str, names: Collection[str]) -> dict[str, str]:
    """`name: text` entries of a docstring, and `name (type): text` ones; `a, b: text` is an entry for both."""
    name = r"[`*]*\w+[`*]*"
    entry = re.compile(
        rf"(?:^|(?<=[.;:)]\s))[ -]*(?:or )?({name}(?:, {name})*)(?: ?\([^\n]*?\))?:(?=\s+\S)",
        re.MULTILINE,
    )
    heads = [
        (head, [each.strip("`* ") for each in head[1].split(",")]) for head in entry.finditer(doc)
    ]
    # after a full stop, a word that is no argument begins an entry as well; elsewhere it is prose: `repeated: [a, b]`
    heads = [
        (head, own)
        for head, own in heads
        if set(own) & set(names)
        or (head[1].islower() and doc[: head.start()].rstrip().endswith("."))
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
    if re.match(r"[a-z]+\b[^.(_]", text):
        return text[:1].upper() + text[1:]
    return text
