"""Completes a recipe of one task, or a mixture, whose `tasks` are recipes that train one backbone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field as Bound

from seqkit.config.merge import TRAINING, Node, Pairs, completed, overridden
from seqkit.config.overrides import Word, dotted, plain, shown
from seqkit.config.recipe import NAME, check_name, is_recipe, read_recipe
from seqkit.config.record import Config, Written, learning_rates
from seqkit.config.schema import Field, fits
from seqkit.config.spellings import check_spelling
from seqkit.errors import UsageError
from seqkit.registry import suggest

OF_TASK = ("data", "tokenizer", "model")
"""Sections that each task has of its own; the rest is the mixture's."""

KEYS = ("from", "preset", "lr_scale", *OF_TASK)
"""Keys of a task in a recipe."""

Factor = Annotated[float, Bound(gt=0)]


def complete(
    recipe: str | Path | Written,
    preset: str | None = None,
    overrides: Written | Sequence[str] = (),
    *,
    only: Sequence[str] | None = None,
    may_mix: bool = False,
) -> Config:
    """A complete configuration.

    recipe: name, path, or a configuration as plain data; of a task of a mixture `MIXTURE/TASK`. overrides: dotted keys
    with values, or command-line words (`--model.backbone LSTM`). only: keys at the top; None: all. may_mix: True: a
    mixture is taken, whose configuration has `tasks` in place of data and tokenizer.
    Raises UsageError in one line, with the nearest key or name.

    >>> complete("image/digits", "debug", {"optimizer.lr": 0.5})["optimizer"]["lr"]
    0.5
    """
    if not isinstance(recipe, str | Path | Mapping):
        raise UsageError(
            f"the recipe is {shown(recipe)}; give a name, a path, or keys with a value each"
        )
    found = _completed(recipe, preset, list(dotted(overrides)), only)
    if "tasks" in found and not may_mix:
        names = ", ".join(
            f"{recipe if isinstance(recipe, str) else found['recipe']}/{x}" for x in found["tasks"]
        )
        raise UsageError(f"{found['recipe']} trains several tasks; give one of them: {names}")
    return Config(found)


def _completed(
    recipe: str | Path | Written,
    preset: str | None,
    pairs: Pairs,
    only: Sequence[str] | None = None,
    *,
    may_mix: bool = True,
) -> dict[str, Any]:
    """A complete configuration of one task or, if it may be, of several. pairs: overrides, as `dotted` gives them."""
    if isinstance(recipe, Mapping):
        mixture, _, task = ("", "", "")
    else:
        mixture, _, task = str(recipe).rpartition("/")
    if task and is_recipe(mixture) and not is_recipe(str(recipe)):
        return completed(_of_task(mixture, task, preset), {}, None, pairs, only=only)
    presets: Written = {}
    if isinstance(recipe, Mapping):
        config = plain(recipe)
    else:
        config, presets = read_recipe(str(recipe))
    if preset is not None and preset not in list(presets):
        raise UsageError(
            f"recipe {config.get('recipe')} has no preset {preset!r}; {suggest(str(preset), presets)}"
        )
    for key, value in [*((name, "VALUE") for name in config), *pairs]:
        check_spelling(key, str(value))
    if "tasks" in config and not may_mix:
        raise UsageError(f"from: {recipe} is a mixture itself; name its recipes one by one")
    if "tasks" in config:
        return _complete_mixture(config, presets.get(preset or "", {}), pairs)
    return completed(config, presets, preset, pairs, only=only)


def _of_task(mixture: str, task: str, preset: str | None) -> Config:
    """The complete configuration of one task of a mixture."""
    found = complete(mixture, preset, may_mix=True)
    if "tasks" not in found:
        raise UsageError(f"{mixture} trains one task; leave /{task} out")
    if task not in found["tasks"]:
        raise UsageError(f"{mixture} has no task {task!r}; {suggest(task, found['tasks'])}")
    return task_configs(found)[task]


def mixture_root() -> dict[str, Field]:
    """The keys at the top of a mixture, without its tasks."""
    fields = [
        Field("recipe", "mine", hint=str),
        Field("seed", 1, hint=int),
        Field("classical", "beside", hint=Literal["beside", "off"]),
        Field("model", {}, section="seqkit.mixture:Mixture", skip=("tasks",)),
        Field("sampling", "even", hint=Literal["even", "proportional"] | dict[str, Factor]),
        Field("moments", "by_task", hint=Literal["by_task", "shared"]),
        *TRAINING,
    ]
    return {field.name: field for field in fields}


def _complete_mixture(config: Written, preset: Written, pairs: Pairs) -> dict[str, Any]:
    """A complete mixture as plain data: shared keys, and `tasks`, each with `data`, `tokenizer` and `model`.

    preset: keys that are merged over those of `config`. Each task is completed as a recipe of its own: with `from`, the
    recipe of that name; the mixture's backbone takes the place of its backbone.
    """
    if any(key == "tasks" for key, _ in pairs):
        raise UsageError(
            "tasks is no single value; give a task's key, such as --tasks.image.data.limit 100"
        )
    tasks = _tasks(config, preset, pairs)
    for key in (*config, *preset, *(key for key, _ in pairs)):
        if key.partition(".")[0] in ("data", "tokenizer"):
            raise UsageError(f"{key} is of a task; give --tasks.{next(iter(tasks), 'NAME')}.{key}")
    top = Node(mixture_root())
    layers = [
        {key: value for key, value in layer.items() if key != "tasks"} for layer in (config, preset)
    ]
    own = [pair for pair in pairs if not pair[0].startswith("tasks.")]
    found = top.complete(overridden(top, reduce(top.merge, layers), own))
    check_name(found["recipe"])
    done: dict[str, Any] = {}
    for name, written in tasks.items():
        try:
            done[name] = _completed_task(name, written, found)
        except UsageError as error:
            raise UsageError(f"tasks.{name}: {error}") from error
    if not done:
        raise UsageError(
            "tasks is empty; give a recipe by name of each task, such as tasks: {text: text/char-lm}"
        )
    sampling = found["sampling"]
    if isinstance(sampling, dict) and set(sampling) not in ({"temperature"}, set(done)):
        wanted = f"even, proportional, {{temperature: 2}}, or a share above 0 for each of {', '.join(done)}"
        raise UsageError(f"sampling is {shown(sampling)}; give {wanted}")
    if (
        isinstance(sampling, dict)
        and "temperature" not in done
        and sampling.get("temperature", 1) < 1
    ):
        raise UsageError(
            f"sampling.temperature is {sampling['temperature']}; give at least 1, which is proportional"
        )
    return {"recipe": found.pop("recipe"), "seed": found.pop("seed"), "tasks": done, **found}


def task_configs(config: Config) -> dict[str, Config]:
    """The tasks of a complete mixture by name, each as the complete configuration of a recipe of its own."""
    found = {}
    rates = learning_rates(config["optimizer"])
    for name, task in config["tasks"].items():
        own = {
            "recipe": f"{config['recipe']}/{name}",
            **{key: task[key] for key in OF_TASK if key != "model"},
            "model": {"backbone": config["model"]["backbone"], **task["model"]},
            **{
                key: config[key]
                for key in ("optimizer", "seed", "classical", "schedule", "trainer")
            },
        }
        scaled = {f"optimizer.{key}": rate * task["lr_scale"] for key, rate in rates.items()}
        found[name] = Config(own).changed(scaled)
    return found


def _tasks(config: Written, preset: Written, pairs: Pairs) -> dict[str, list[tuple[str, Any]]]:
    """(key, value) of all that recipe, preset and overrides write about each task, the last word last.

    A task that is null is left out.
    """
    written: dict[str, list[tuple[str, Any]]] = {}
    layers = [layer.get("tasks", {}) for layer in (config, preset)]
    if wrong := [layer for layer in layers if not isinstance(layer, Mapping)]:
        raise UsageError(
            f"tasks is {shown(wrong[0])}; give names with keys each, such as {{text: text/char-lm}}"
        )
    overrides = [
        (key.removeprefix("tasks."), value) for key, value in pairs if key.startswith("tasks.")
    ]
    for path, value in [*(item for layer in layers for item in layer.items()), *overrides]:
        name, _, key = path.partition(".")
        if key and name not in written:
            raise UsageError(f"there is no task {name!r}; {suggest(name, written)}")
        if key:
            written[name].append((key, value))
            continue
        task = value.read() if isinstance(value, Word) else value
        if not re.fullmatch(NAME, name):
            raise UsageError(
                f"the task {name!r} has a name that no module can have; use letters, digits, - and _"
            )
        if not isinstance(task, str | Mapping | None):
            raise UsageError(
                f"tasks.{name} is {shown(task)}; give the name of a recipe, or keys with a value each"
            )
        if task is None:
            written.pop(name, None)
        else:
            written.setdefault(name, []).extend(
                [("from", task)] if isinstance(task, str) else task.items()
            )
    return written


def _completed_task(name: str, written: Pairs, shared: Written) -> dict[str, Any]:
    """A task, complete but for the backbone, which is the mixture's."""
    for key, value in written:
        first, second = [*key.split("."), ""][:2]
        if first not in KEYS:
            if first in mixture_root():
                owner = "is the mixture's, for all tasks alike"
            else:
                owner = "is no key of a task"
            raise UsageError(f"{first} {owner}; a task has {', '.join(KEYS)}")
        if first == "model" and (
            second == "backbone" or (isinstance(value, Mapping) and "backbone" in value)
        ):
            raise UsageError(
                "the backbone is the mixture's; write it under model, or --model.backbone"
            )
    own = {key: value.read() if isinstance(value, Word) else value for key, value in written}
    base = own.get("from", {"recipe": name})
    preset = own.get("preset")
    lr_scale = own.get("lr_scale", 1.0)
    if not fits(lr_scale, Factor):
        raise UsageError(f"lr_scale is {shown(lr_scale)}; give a factor above 0, such as 0.5")
    if lr_scale != 1 and shared["moments"] == "shared":
        what = f"lr_scale is {lr_scale}, but the optimizer has one state for all tasks"
        raise UsageError(f"{what}; give moments: by_task")
    pairs = [("seed", shared["seed"]), ("model.backbone", shared["model"]["backbone"])]
    task = _completed(
        base,
        preset,
        [*pairs, *(pair for pair in written if pair[0] not in KEYS[:3])],
        may_mix=False,
    )
    task["model"].pop("backbone")
    return {"lr_scale": float(lr_scale), **{key: task[key] for key in OF_TASK}}
