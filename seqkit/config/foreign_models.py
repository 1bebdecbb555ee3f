"""Tokenizer and backbone of a foreign model in a recipe that begins with its weights (`model.init`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqkit.config.overrides import Word
from seqkit.errors import DataError, UsageError
from seqkit.pretrained.family import task_of
from seqkit.pretrained.folder import is_foreign, located, longest, settings
from seqkit.pretrained.hub import HUB, pinned

Pairs = Sequence[tuple[str, Any]]


def with_commit(config: Mapping[str, Any], pairs: Pairs) -> tuple[Mapping[str, Any], Pairs]:
    """A recipe and overrides in which `model.init` names the commit of a model of the hub, so that a run names it, too.

    Raises UsageError or DataError where it cannot be fetched.
    """
    if any(key == "model.init" for key, _ in pairs):
        return config, [(key, _pinned(value) if key == "model.init" else value) for key, value in pairs]
    model = config.get("model")
    if not isinstance(model, Mapping) or "init" not in model:
        return config, pairs
    return {**config, "model": {**model, "init": _pinned(model["init"])}}, pairs


def _pinned(init: Any) -> Any:
    path = init.read() if isinstance(init, Word) else init
    return pinned(path) if isinstance(path, str) and path.startswith(HUB) else init


def with_foreign(config: Mapping[str, Any], pairs: Pairs) -> Mapping[str, Any]:
    """A recipe with tokenizer, backbone, positions and dropout of the foreign model that `model.init` names.

    Examples end where its learned positions do (`data.max_tokens`), unless the recipe says otherwise.

    Named by an override, they take the place of the recipe's; named in the recipe, they are what it leaves out. Other
    overrides come on top of them. Raises UsageError for a model that is not read.
    """
    model = config.get("model")
    model = dict(model) if isinstance(model, Mapping) else {}
    given = _last(pairs, "model.init")
    path = model.get("init") if given is None else given
    if not isinstance(path, str) or (given is None and "tokenizer" in config and "backbone" in model):
        return config  # complete as it is: what a run is made of needs the model no more
    if not is_foreign(place := located(path)):
        return config
    named, level = _last(pairs, "model.objective", "model.objective.type"), _last(pairs, "model.objective.level")
    objective = model.get("objective") if named is None else named
    if level is not None:
        objective = {**(objective if isinstance(objective, Mapping) else {"type": objective}), "level": level}
    task = task_of(objective)
    try:
        found = settings(place, task)
    except DataError as error:
        raise UsageError(f"model.init: {error}") from error
    if "objective" in found["model"]:
        own = objective if isinstance(objective, Mapping) else {}
        found["model"]["objective"] = {**own, **found["model"]["objective"]}
    data = config.get("data")
    found_data = {} if task == "NextToken" else longest(found)
    data = {**found_data, **(data if isinstance(data, Mapping) else {} if data is None else {"source": data})}
    if given is not None:
        return {**config, "data": data, "tokenizer": found["tokenizer"], "model": {**model, **found["model"]}}
    return {"tokenizer": found["tokenizer"], **config, "data": data, "model": {**found["model"], **model}}


def _last(pairs: Pairs, *keys: str) -> Any:
    """Value of the last override of one of these keys; None: there is none."""
    values = [value for key, value in pairs if key in keys]
    return values[-1].read() if values and isinstance(values[-1], Word) else values[-1] if values else None
