"""Tokenizer and backbone of a foreign model in a recipe that begins with its weights (`model.init`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqkit.config.overrides import Word
from seqkit.errors import DataError, UsageError

Pairs = Sequence[tuple[str, Any]]

RATE = 5e-5
"""Learning rate of all weights of a trained model. That of a recipe, for random ones, would wipe them out."""

RATE_OF_FEW = 1e-3
"""Learning rate where the weights of the model stay (`trainer.fine_tuning`)."""

MIN_STEPS = 100
"""Steps of a fine-tuning at least, in place of the recipe's (`trainer.min_steps`), which begins with random weights."""


def with_foreign(config: Mapping[str, Any], pairs: Pairs) -> tuple[Mapping[str, Any], Pairs]:
    """A recipe with tokenizer, backbone, positions and dropout of the foreign model that `model.init` names.

    Named by an override, they take the place of the recipe's, as do an optimizer and a number of steps for trained
    weights; named in the recipe, they are what it leaves out. Other overrides come on top of them. Examples end where
    its learned positions do (`data.max_tokens`), unless the recipe says otherwise. A model of the hub is named with its
    commit, also in `pairs`, so that a run names it, too.
    Raises UsageError for a model that is not read, DataError for one that cannot be fetched.
    """
    model = dict(config["model"]) if isinstance(config.get("model"), Mapping) else {}
    given = _last(pairs, "model.init")
    path = model.get("init") if given is None else given
    if not isinstance(path, str):
        return config, pairs
    from seqkit.pretrained.family import task_of
    from seqkit.pretrained.folder import is_foreign, located, longest, settings
    from seqkit.pretrained.hub import pinned
    from seqkit.pretrained.suits import check_suits

    path = pinned(path)
    if given is None:
        model["init"] = path
        config = {**config, "model": model}
        if "tokenizer" in config and "backbone" in model:
            return config, pairs  # complete as it is: what a run is made of needs the model no more
    pairs = [(key, path if key == "model.init" else value) for key, value in pairs]
    if not is_foreign(place := located(path)):
        return config, pairs
    named = _last(pairs, "model.objective", "model.objective.type")
    level = _last(pairs, "model.objective.level")
    objective = model.get("objective") if named is None else named
    own = dict(objective) if isinstance(objective, Mapping) else {}
    task = task_of(objective if level is None else {**(own or {"type": objective}), "level": level})
    try:
        found = settings(place, task)
        is_its_own = given is not None or "backbone" not in model
        if is_its_own and not _names(pairs, "model.backbone"):
            has_own = _names(pairs, "data", "data.source", "tokenizer")
            check_suits(path, place, found, task, None if has_own else config.get("tokenizer"))
    except DataError as error:
        raise UsageError(f"model.init: {error}") from error
    if "objective" in found["model"]:
        found["model"]["objective"] = {**own, **found["model"]["objective"]}
    data = config.get("data", {})
    data = dict(data) if isinstance(data, Mapping) else {"source": data}
    if task != "NextToken" and data.get("window") is None:
        data = {**longest(found), **data}
    if given is not None:
        trainer = config.get("trainer")
        if isinstance(trainer, Mapping) and trainer.get("min_steps") is not None:
            config = {**config, "trainer": {**trainer, "min_steps": MIN_STEPS}}
        keeps = _last(pairs, "trainer.fine_tuning", "trainer.fine_tuning.type") is not None
        return {
            **config,
            "optimizer": {"type": "AdamW", "lr": RATE_OF_FEW if keeps else RATE},
            "data": data,
            "tokenizer": found["tokenizer"],
            "model": {**model, **found["model"]},
        }, pairs
    return {
        "tokenizer": found["tokenizer"],
        **config,
        "data": data,
        "model": {**found["model"], **model},
    }, pairs


def _names(pairs: Pairs, *keys: str) -> bool:
    """Whether an override is of one of these keys, or below one but `data`."""
    below = tuple(f"{key}." for key in keys if key != "data")
    return any(key in keys or key.startswith(below) for key, _ in pairs)


def _last(pairs: Pairs, *keys: str) -> Any:
    """Value of the last override of one of these keys; None: there is none."""
    values = [value for key, value in pairs if key in keys]
    if values and isinstance(values[-1], Word):
        return values[-1].read()
    if values:
        return values[-1]
    return None
