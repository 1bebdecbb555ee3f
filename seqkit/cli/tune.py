"""`seqkit tune RECIPE`."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace
from pathlib import Path

from seqkit.cli.options import add_allowed, add_recipe
from seqkit.config import complete
from seqkit.config.record import learning_rates
from seqkit.registry.commands import command
from seqkit.runs.folder import as_seen_from_here

log = logging.getLogger("seqkit")

OWN_RATES = {"OneCycleLR": "max_lr", "CyclicLR": "max_lr"}
"""Schedules that set the learning rate themselves, whatever the optimizer's is, and the key of its highest."""


def run(args: Namespace) -> int:
    """Print the keys that set a good learning rate; 1: none was found."""
    config = complete(args.recipe, args.preset, args.overrides)
    config = as_seen_from_here(config, Path(args.recipe).parent)  # of a run's config.yaml
    from seqkit.analysis.tune import find_learning_rate
    from seqkit.runs.examined.model import examined
    from seqkit.runs.prepare import prepare
    from seqkit.training.interrupt import StopSignals

    signals = StopSignals()
    signals.phase = "tuning; no file was written"
    with signals.installed():
        prepared = prepare(config)
        for line in examined(prepared):
            log.warning("%s", line)
        rate = find_learning_rate(prepared)
    if rate is None:
        preset = ["--preset", args.preset] if args.preset else []
        doctor = command("doctor", args.recipe, *preset, *args.overrides)
        print(f"no learning rate was found: the loss does not fall; see what is wrong: {doctor}")
        return 1
    schedule = OWN_RATES.get(str(config["schedule"]["type"]).rpartition(".")[2])
    keys = [f"optimizer.{key}" for key in learning_rates(config["optimizer"])] or ["optimizer.lr"]
    if schedule is not None:
        keys = [f"schedule.{schedule}"]
    print("use:", *(f"--{key} {rate:.2g}" for key in keys))
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_recipe(parser)
    add_allowed(parser)
