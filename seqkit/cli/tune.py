"""`seqkit tune`: a learning rate and a batch size for a recipe, by short trainings that write no file."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from seqkit.cli.options import add_out, add_recipe, whole
from seqkit.cli.out import check_folder
from seqkit.config import complete
from seqkit.errors import one_line

if TYPE_CHECKING:
    from seqkit.training.interrupt import StopSignals

SHOWN = 20
"""Rows of the table of learning rates, about."""

OWN_RATES = {"OneCycleLR": "max_lr", "CyclicLR": "max_lr"}
"""Schedules that set the learning rate themselves, whatever the optimizer's is, and the key of its highest."""


def run(args: Namespace) -> int:
    """Print what was measured, the suggestions and the keys to use them; write the pictures. 1: nothing to suggest."""
    folder = args.out or Path("runs") / "tune"
    check_folder(folder, force=args.force or args.out is None)
    config = complete(args.recipe, args.preset, args.overrides)
    from seqkit.training.interrupt import StopSignals

    both = not args.lr and not args.batch_size
    signals = StopSignals()
    signals.phase = "tuning; no file was written"
    keys: list[str] = []
    picture = folder / config["recipe"].replace("/", "-")
    with signals.installed():
        if args.batch_size or both:
            found = _batch_size(config, signals, picture)
            if found is None:
                return 1
            keys.append(f"--data.{found[0]} {found[1]}")
            config = {**config, "data": {**config["data"], found[0]: found[1]}}
        if args.lr or both:
            rates = _learning_rate(config, args, signals, picture)
            if rates is None:
                return 1
            keys.append(rates)
    print(f"use: {' '.join(keys)}")
    return 0


def _batch_size(config: Mapping[str, Any], signals: StopSignals, picture: Path) -> tuple[str, int] | None:
    """The key of the batch size and its suggestion, after printing what was measured; None: no batch fits."""
    from seqkit.analysis.tune import find_batch_size
    from seqkit.report.figures import png
    from seqkit.report.tune import batch_figure
    from seqkit.runs.prepare import prepare

    found = find_batch_size(prepare(config), signals=signals)
    table = Table(found.key, "ms per example (wall)", "(processor)", "GB of tensors", "")
    for trial in found.trials:
        measured = (1e3 * trial.wall_seconds, 1e3 * trial.processor_seconds, trial.peak / 1e9)
        mark = "suggestion" if trial.size == found.suggestion else ""
        table.add_row(f"{trial.size:,}", *(f"{number:.3g}" for number in measured), mark)
    if found.trials:
        _print(table)
    print(f"no larger batch was tried: {one_line(found.ended)}")
    if found.suggestion is None:
        print(f"not even the smallest batch fits; make the model smaller, or --data.{found.key} with shorter examples")
        return None
    now = config["data"][found.key]
    print(f"suggestion: --data.{found.key} {found.suggestion}, the smallest of the fastest (now {now})")
    print(one_line(png(batch_figure(found), picture.with_name(f"{picture.name}-batch-size.png"))))
    return found.key, found.suggestion


def _learning_rate(config: Mapping[str, Any], args: Namespace, signals: StopSignals, picture: Path) -> str | None:
    """The keys that set the suggested learning rate, after printing what was measured; None: there is none."""
    from seqkit.analysis.tune import find_learning_rate
    from seqkit.report.figures import png
    from seqkit.report.tune import rate_figure
    from seqkit.runs.prepare import prepare

    prepared = prepare(config)
    curve = find_learning_rate(prepared, low=args.min_lr, high=args.max_lr, num_steps=args.steps, signals=signals)
    table = Table("learning rate", "loss", "against the first weights, smoothed", "")
    every = max(1, round(len(curve.rates) / SHOWN))
    for i, (rate, loss, mean) in enumerate(zip(curve.rates, curve.losses, curve.smoothed)):
        is_suggested = rate == curve.suggestion
        if i % every == 0 or is_suggested or i == len(curve.rates) - 1:
            table.add_row(f"{rate:.2e}", f"{loss:.4g}", f"{mean:.4g}", "suggestion" if is_suggested else "")
    if curve.losses:
        _print(table)
    print(f"{len(curve.losses)} learning rates: {one_line(curve.ended)}")
    if curve.losses:
        print(one_line(png(rate_figure(curve), picture.with_name(f"{picture.name}-lr.png"))))
    if curve.suggestion is None:
        print(
            "no suggestion: the loss does not fall by more than its noise; give more --steps, a larger batch, or see "
            f"what is wrong: seqkit doctor {config['recipe']}"
        )
        return None
    keys = rate_keys(config, curve.suggestion, curve.base)
    print(f"suggestion: {keys}, where the loss falls fastest (now {curve.base:g}); a schedule's highest rate")
    return keys


def rate_keys(config: Mapping[str, Any], suggestion: float, base: float) -> str:
    """Keys that set the learning rate: all of the optimizer's, in the ratio in which they were tried.

    base: the rate in the configuration that `suggestion` is to replace.
    """
    from seqkit.doctor.trials import rates_in

    own = OWN_RATES.get(str(config["schedule"]["type"]).rpartition(".")[2])
    if own is not None:
        return f"--schedule.{own} {suggestion:.2g}"
    rates = rates_in(config["optimizer"]) or [("optimizer.lr", base)]
    return " ".join(f"--{key} {suggestion * rate / base:.2g}" for key, rate in rates)


def _print(table: Table) -> None:
    Console(markup=False, emoji=False, highlight=False).print(table)


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_recipe(parser)
    add = parser.add_argument
    add("--lr", action="store_true", help="find only a learning rate (default: a batch size, then a learning rate)")
    add("--batch-size", action="store_true", help="find only a batch size")
    add("--min-lr", type=float, default=1e-6, help="lowest learning rate to try (default 1e-6)")
    add("--max-lr", type=float, default=10.0, help="highest learning rate to try (default 10)")
    add("--steps", type=whole, default=100, help="optimizer steps from the lowest to the highest (default 100)")
    add_out(parser, "folder for the pictures (default runs/tune)")
