"""Completes a recipe, with preset and overrides, or a mixture, whose `tasks` are recipes that train one backbone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Literal

from seqkit.config.overrides import Word, dotted, plain, shown
from seqkit.config.recipe import NAME, check_name, is_recipe, read_recipe
from seqkit.config.resolve import MODEL_KEYS, TOP, Node, completed, explained, overridden, root
from seqkit.config.schema import Field
from seqkit.errors import UsageError
from seqkit.registry import suggest

MIXTURE = "seqkit.mixture:Mixture"

OF_TASK = ("data", "tokenizer", "model")
"""Sections that each task has of its own; the rest is the mixture's."""

KEYS = ("from", "preset", "lr_scale", *OF_TASK)
"""Keys of a task in a recipe."""

Sampling = Literal["even", "proportional"] | dict[str, float]


def complete(
    recipe: str | Path | Mapping[str, Any],
    preset: str | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    only: Sequence[str] | None = None,
    may_mix: bool = False,
) -> dict[str, Any]:
    """A complete configuration as plain data.

    recipe: name, path, or a configuration as plain data; of a task of a mixture `MIXTURE/TASK`. overrides: dotted keys
    with values, or command-line words (`--model.backbone LSTM`). only: keys at the top; None: all. may_mix: True: a
    mixture is taken, whose configuration has `tasks` in place of data and tokenizer.
    Raises UsageError in one line, with the nearest key or name.
    """
    if not isinstance(recipe, str | Path | Mapping):
        raise UsageError(f"the recipe is {shown(recipe)}; give a name, a path, or keys with a value each")
    pairs = list(dotted(overrides))
    mixture, _, task = ("", "", "") if isinstance(recipe, Mapping) else str(recipe).rpartition("/")
    if task and is_recipe(mixture) and not is_recipe(str(recipe)):
        return completed(_of_task(mixture, task, preset), {}, None, pairs, only=only)
    config, presets = (plain(recipe), {}) if isinstance(recipe, Mapping) else read_recipe(str(recipe))
    if preset is not None and preset not in list(presets):
        raise UsageError(f"recipe {config.get('recipe')} has no preset {preset!r}; {suggest(str(preset), presets)}")
    if "tasks" in config:
        found = complete_mixture(config, presets.get(preset or "", {}), pairs)
        if not may_mix:
            names = ", ".join(f"{recipe if isinstance(recipe, str) else found['recipe']}/{x}" for x in found["tasks"])
            raise UsageError(f"{found['recipe']} trains several tasks; give one of them: {names}")
        return found
    return completed(config, presets, preset, pairs, only=only)


def _of_task(mixture: str, task: str, preset: str | None) -> dict[str, Any]:
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
        Field("model", {}, section=MIXTURE, skip=("tasks",)),
        Field("sampling", "even", hint=Sampling),
        Field("moments", "by_task", hint=Literal["by_task", "shared"]),
        Field("optimizer", {"type": "AdamW"}, "optimizer"),
        Field("schedule", {"type": "Cosine"}, "schedule"),
        Field("trainer", {}, section="seqkit.training.trainer:TrainerSettings"),
    ]
    return {field.name: field for field in fields}


def complete_mixture(
    config: Mapping[str, Any], preset: Mapping[str, Any], pairs: Sequence[tuple[str, Any]]
) -> dict[str, Any]:
    """A complete mixture as plain data: shared keys, and `tasks`, each with `data`, `tokenizer` and `model`.

    preset: keys that are merged over those of `config`. pairs: overrides. Each task is completed as a recipe of its
    own: with `from`, the recipe of that name; the mixture's backbone takes the place of its backbone. A task that is
    null is left out. Raises UsageError, which names the task and its key.
    """
    top = Node(mixture_root(), "")
    _refuse_keys_of_tasks(config, preset, pairs)
    layers = [{key: value for key, value in one.items() if key != "tasks"} for one in (config, preset)]
    shared = overridden(top, reduce(top.merge, layers), [pair for pair in pairs if _task_of(pair[0]) is None])
    found = top.complete(shared)
    check_name(found["recipe"])
    tasks: dict[str, Any] = {}
    for name, written in _tasks(config, preset, pairs).items():
        try:
            task = _completed_task(name, written, found)
        except UsageError as error:
            raise UsageError(f"tasks.{name}: {error}") from error
        task["model"].pop("backbone")
        tasks[name] = {"lr_scale": _lr_scale(name, written, found), **{key: task[key] for key in OF_TASK}}
    if not tasks:
        raise UsageError("tasks is empty; give a recipe by name of each task, such as tasks: {text: text/char-lm}")
    _check_sampling(found["sampling"], list(tasks))
    return {"recipe": found.pop("recipe"), "seed": found.pop("seed"), "tasks": tasks, **found}


def task_configs(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The tasks of a complete mixture by name, each as the complete configuration of a recipe of its own."""
    rest = {key: config[key] for key in ("seed", "schedule", "trainer")}
    backbone = config["model"]["backbone"]
    return {
        name: {
            "recipe": f"{config['recipe']}/{name}",
            **{key: task[key] for key in OF_TASK if key != "model"},
            "model": {"backbone": backbone, **task["model"]},
            "optimizer": _scaled(config["optimizer"], task["lr_scale"]),
            **rest,
        }
        for name, task in config["tasks"].items()
    }


def explain(config: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """(key, its value, what it may be, a sentence about it) for every key of a complete configuration."""
    if "tasks" not in config:
        yield from explained(Node(root(), ""), config, TOP.__getitem__)
        return
    yield from explained(Node(mixture_root(), ""), config, TOP.__getitem__)
    for name in config["tasks"]:
        about = "Factor on the learning rate in the steps of this task."
        yield f"tasks.{name}.lr_scale", shown(config["tasks"][name]["lr_scale"]), "a number above 0", about
    for name, task in task_configs(config).items():
        for key, *rest in explain(task):
            if key.partition(".")[0] in ("data", *MODEL_KEYS) and not key.startswith("model.backbone"):
                yield f"tasks.{name}.{key}", *rest  # type: ignore[misc]


def _scaled(optimizer: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """An optimizer with its learning rates, and those of optimizers in it, times a factor."""
    scaled: dict[str, Any] = {}
    for key, value in optimizer.items():
        if isinstance(value, Mapping):
            scaled[key] = _scaled(value, factor)
        elif key == "lr" and factor != 1 and isinstance(value, int | float):
            scaled[key] = value * factor
        else:
            scaled[key] = value
    return scaled


def _task_of(key: str) -> tuple[str, str] | None:
    """`tasks.image.data.limit` → image, data.limit; None for a key that is not of a task."""
    first, _, rest = key.partition(".")
    name, _, rest = rest.partition(".")
    return (name, rest) if first == "tasks" else None


def _refuse_keys_of_tasks(
    config: Mapping[str, Any], preset: Mapping[str, Any], pairs: Sequence[tuple[str, Any]]
) -> None:
    """Raise UsageError for `data` or `tokenizer` at the top of a mixture, where each task has its own."""
    for key in (*config, *preset, *(key for key, _ in pairs)):
        if key.partition(".")[0] in ("data", "tokenizer"):
            name = next(iter(_tasks(config, preset, pairs)), "NAME")
            raise UsageError(f"{key} is of a task, and each task has its own; give --tasks.{name}.{key}")


def _tasks(
    config: Mapping[str, Any], preset: Mapping[str, Any], pairs: Sequence[tuple[str, Any]]
) -> dict[str, list[tuple[str, Any]]]:
    """(key, value) of all that recipe, preset and overrides write about each task, the last word last."""
    written: dict[str, list[tuple[str, Any]]] = {}
    for layer in (config, preset):
        tasks = layer.get("tasks", {})
        if not isinstance(tasks, Mapping):
            raise UsageError(f"tasks is {shown(tasks)}; give names with keys each, such as {{text: text/char-lm}}")
        for name, task in tasks.items():
            _write(written, str(name), task)
    for key, value in pairs:
        if (of_task := _task_of(key)) is None:
            continue
        name, rest = of_task
        if not name:
            raise UsageError("tasks is no single value; give a task's key, such as --tasks.image.data.limit 100")
        if not rest:
            _write(written, name, value.read() if isinstance(value, Word) else value)
        elif name not in written:
            raise UsageError(f"there is no task {name!r}; {suggest(name, written)}")
        else:
            written[name].append((rest, value))
    return written


def _write(written: dict[str, list[tuple[str, Any]]], name: str, task: Any) -> None:
    """Add what a layer says of a task: its keys, the name of a recipe, or null, which leaves it out."""
    if task is None:
        written.pop(name, None)
        return
    if not re.fullmatch(NAME, name) or "." in name:
        raise UsageError(f"the task {name!r} has a name that no module can have; use letters, digits, - and _")
    keys = {"from": task} if isinstance(task, str) else task
    if not isinstance(keys, Mapping):
        raise UsageError(f"tasks.{name} is {shown(task)}; give the name of a recipe, or keys with a value each")
    written.setdefault(name, []).extend(keys.items())


def _completed_task(name: str, written: Sequence[tuple[str, Any]], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A task as a complete configuration."""
    for key, value in written:
        first, second = [*key.split("."), ""][:2]
        if first not in KEYS:
            owner = "is the mixture's, for all tasks alike" if first in mixture_root() else "is no key of a task"
            raise UsageError(f"{first} {owner}; a task has {', '.join(KEYS)}")
        if first == "model" and (second == "backbone" or (isinstance(value, Mapping) and "backbone" in value)):
            raise UsageError("the backbone is the mixture's; write it under model, or --model.backbone")
    named = {key: value for key, value in written if key in ("from", "preset", "lr_scale")}
    pairs = [pair for pair in written if pair[0] not in named]
    base, preset = named.get("from"), named.get("preset")
    config: dict[str, Any] = {"recipe": name}
    presets: dict[str, dict[str, Any]] = {}
    if base is not None:
        config, presets = read_recipe(str(base))
    if "tasks" in config:
        raise UsageError(f"from: {base} is a mixture itself; name its recipes one by one")
    if preset is not None and str(preset) not in presets:
        raise UsageError(f"recipe {base} has no preset {str(preset)!r}; {suggest(str(preset), presets)}")
    model = config.get("model")
    config = {**config, "seed": shared["seed"], "model": {**(model if isinstance(model, Mapping) else {})}}
    config["model"]["backbone"] = {"type": shared["model"]["backbone"]["type"]}
    presets = {key: _without_backbone(keys) for key, keys in presets.items()}
    backbone = ("model.backbone", shared["model"]["backbone"])
    return completed(config, presets, None if preset is None else str(preset), [backbone, *pairs])


def _lr_scale(name: str, written: Sequence[tuple[str, Any]], shared: Mapping[str, Any]) -> float:
    """Factor on the learning rate in the steps of a task."""
    given = [value for key, value in written if key == "lr_scale"]
    value = given[-1].read() if given and isinstance(given[-1], Word) else given[-1] if given else 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UsageError(f"tasks.{name}: lr_scale is {shown(value)}; give a factor above 0, such as 0.5")
    if value != 1 and shared["moments"] == "shared":
        raise UsageError(
            f"tasks.{name}: lr_scale is {value}, but the optimizer has one state for all tasks; give moments: by_task"
        )
    return float(value)


def _without_backbone(preset: Mapping[str, Any]) -> dict[str, Any]:
    model = preset.get("model")
    kept = {key: value for key, value in preset.items() if key in OF_TASK}
    if isinstance(model, Mapping):
        kept["model"] = {key: value for key, value in model.items() if key != "backbone"}
    return kept


def _check_sampling(sampling: Any, tasks: Sequence[str]) -> None:
    """Raise UsageError for shares that are not one for each task, or no temperature."""
    if not isinstance(sampling, Mapping):
        return
    if list(sampling) == ["temperature"] and "temperature" not in tasks:
        if sampling["temperature"] < 1:
            raise UsageError(
                f"sampling.temperature is {sampling['temperature']}; give at least 1, which is proportional"
            )
    elif set(sampling) != set(tasks) or min(sampling.values()) <= 0:
        raise UsageError(
            f"sampling is {shown(dict(sampling))}; give even, proportional, {{temperature: 2}}, or a share above 0 for "
            f"each of {', '.join(tasks)}"
        )
