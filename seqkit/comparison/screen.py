"""A screen: mixers or backbones beside three rivals on small tasks, each of which is a comparison of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqkit.comparison.settings import Settings
from seqkit.config import dotted, read_recipe
from seqkit.errors import UsageError
from seqkit.registry.commands import command

SCREEN = "screen"
"""Word that stands in the place of a recipe."""

RECIPE = "mechanism/screen"
"""The recipe whose presets are the tasks."""

RIVALS = ("Transformer", "LSTM", "Mamba")
"""Backbones beside which all others are screened; the first is the reference."""

DEFAULTS = {"tuning_seeds": 1, "depths": False, "measure": False}
"""Settings of a screen's comparisons that differ from those of others, so that all fit into minutes."""

FIXED = ("data", "data.source", "tokenizer", "model.objective", "seed")
"""Keys that make a task what it is, as all below them do."""


def screen_settings(backbones: Sequence[str], **settings: Any) -> dict[str, Settings]:
    """Settings of the comparison of each task, by its name.

    backbones: those to be screened; the rivals are added. settings: further arguments of `Settings`.
    Raises UsageError for settings that would change the tasks.
    """
    for name in ("vary", "preset"):
        if settings.get(name):
            raise UsageError(
                f"a screen takes no --{name}, as its tasks are the presets of {RECIPE}; "
                f"for one of them write: {command('compare', RECIPE, '--preset', 'parity')}"
            )
    for key, _ in dotted(settings.get("overrides", [])):
        if key in FIXED or key.startswith(tuple(f"{one}." for one in FIXED[1:])):
            raise UsageError(
                f"a screen brings its own tasks, which --{key} would change; leave it out, "
                "or compare on another recipe: seqkit compare RECIPE"
            )
    names = [*RIVALS, *(name for name in backbones if name not in RIVALS)]
    return {
        task: Settings(recipe=RECIPE, backbones=names, **{**DEFAULTS, **settings, "preset": task})
        for task in read_recipe(RECIPE)[1]
        if task != "debug"
    }
