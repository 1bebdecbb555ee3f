"""`seqkit fit RECIPE`, and the same from Python: `seqkit.fit`."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.cli.options import add_recipe, whole
from seqkit.config import complete, dotted, explain, to_yaml
from seqkit.errors import UsageError, one_line, printable

if TYPE_CHECKING:
    from seqkit.runs.mixture import TrainedMixture
    from seqkit.runs.trained_model import TrainedModel
    from seqkit.training.interrupt import StopSignals


log = logging.getLogger("seqkit")

AUTO = "auto"

OWN_TABLES = (
    "A table with more than one usable column is learnt from all its columns; a lone text column takes the text "
    "recipe; the target is the named column, else one with a well-known name, else the last of numbers or classes."
)
"""The recipe and target of `seqkit fit TABLE`."""


def run(args: Namespace) -> int:
    """Train, test, write the run folder with its report, print the result."""
    from seqkit.runs.folder import rank

    if rank() > 0:
        log.setLevel(logging.ERROR)  # the first process says what all of them find in the data
    if args.recipe is None and (args.resume is None or args.resume == AUTO):
        raise UsageError("give a recipe (seqkit list recipes), or --resume with the folder of an unfinished run")
    if args.resume == "":
        raise UsageError("--resume names no run; give the folder of an unfinished run, or auto")
    if args.resume is not None and (args.keys or args.print_config):
        flag = "--keys" if args.keys else "--print_config"
        raise UsageError(f"{flag} shows the keys of a new run; an unfinished run has its own in RUN/config.yaml")
    if args.end_here and args.resume in (None, AUTO):
        raise UsageError("--end-here ends an unfinished run; give its folder, too: --resume RUN --end-here")
    if args.resume is not None and args.resume != AUTO:
        return _resume(args)
    if args.splits is not None and args.resume is not None:
        raise UsageError("--splits goes on by itself when the command is repeated; leave --resume out")
    if args.out is not None and args.resume is None and args.splits is None:
        _check_new(args.out)
    config = complete(args.recipe, args.preset, args.overrides, may_mix=True)
    if args.keys:
        for key, value, what, about in explain(config):
            sentences = " ".join(f"{text[:1].upper()}{text[1:]}" for text in (f"{what}.", about) if text)
            print(printable(f"--{key} {one_line(value)}\n    {sentences}"))
        return 0
    if args.print_config:
        print(to_yaml(config), end="")
        return 0
    if args.splits is not None:
        from seqkit.cli.splits import run_splits

        return run_splits(config, args.splits, args.out, partial(trained, has_baseline=not args.no_baseline))
    if args.resume == AUTO and (folder := _unfinished(config["recipe"], args.out)) is not None:
        _check_same(folder, config)
        return _shown(folder, _resumed(folder, {}, has_baseline=not args.no_baseline))
    if args.resume == AUTO and (folder := _ended(config, args.out)) is not None:
        return _already(folder)
    if args.resume == AUTO and args.out is not None:
        _set_aside(args.out)
    return _shown(*_fit(config, args.out, has_baseline=not args.no_baseline))


def _check_new(out: Path) -> None:
    """Raise UsageError if the run folder exists, before anything heavy is imported."""
    from seqkit.runs.folder import check_new, rank

    if rank() == 0:
        check_new(out)


def _resume(args: Namespace) -> int:
    """Go on with the run in the folder that `--resume` names."""
    folder = Path(args.resume)
    given = {args.recipe: args.recipe, "--preset": args.preset, "--out": args.out}
    if others := [str(name) for name, value in given.items() if value is not None]:
        raise UsageError(
            f"--resume {folder} goes on with that run's own recipe and folder; leave out {', '.join(others)}"
        )
    changes = dict(dotted(args.overrides))
    return _shown(folder, _resumed(folder, changes, has_baseline=not args.no_baseline, end_here=args.end_here))


def _unfinished(recipe: str, out: Path | None) -> Path | None:
    """The unfinished run in `out` or, without it, the recipe's newest; None if there is none."""
    from seqkit.runs.folder import FOLDER, checkpoints, is_unfinished, newest_unfinished

    if out is None:
        return newest_unfinished(recipe)
    return out if is_unfinished(out) and checkpoints(out / FOLDER) else None


def _ended(config: Mapping[str, Any], out: Path | None) -> Path | None:
    """The run of this configuration that has trained to its end: in `out`, or the recipe's newest if a cluster started
    this command again, which then has nothing to do; None: there is none."""
    from seqkit.runs.folder import SUMMARY, is_unfinished, newest
    from seqkit.runs.launcher import is_restarted

    folder = out if out is not None else newest(config["recipe"]) if is_restarted() else None
    if folder is None or not (folder / SUMMARY).is_file() or is_unfinished(folder):
        return None
    return folder if _is_same(folder, config) else None


def _already(folder: Path) -> int:
    """Say that a run is finished; test it if it was stopped before its test."""
    from seqkit.runs.folder import rank

    if rank() != 0:
        return 0
    if _lacks_test(folder):
        return _test(folder)
    print(f"{one_line(folder)} is finished already; to train again, give another --out, or leave --resume out")
    return 0


def _lacks_test(folder: Path) -> bool:
    """Whether a run has trained to its end and was stopped before its test."""
    from seqkit.runs.trained_model import state

    return state(folder) == "trained"


def _test(folder: Path) -> int:
    from seqkit.cli.evaluate import run as test

    return test(Namespace(run=folder, command="test"))


def trained(config: Mapping[str, Any], out: Path, *, has_baseline: bool) -> dict[str, Any]:
    """Summary of the run of this configuration in `out`: as it is if it has ended, gone on with, or trained now.

    Raises UsageError where the folder holds another run.
    """
    from seqkit.runs.summary import read_summary

    if _unfinished(config["recipe"], out) is not None:
        _check_same(out, config)
        return _resumed(out, {}, has_baseline=has_baseline)
    if _ended(config, out) is None:
        _set_aside(out)
        return _fit(config, out, has_baseline=has_baseline)[1]
    if _lacks_test(out):
        _test(out)
    return read_summary(out)


def _set_aside(out: Path) -> None:
    """Rename the folder of a run that ended before its first checkpoint, so that training can begin anew."""
    from seqkit.runs.folder import WAIT_SECONDS, is_held, is_unfinished, rank

    if rank() != 0 or not is_unfinished(out) or is_held(out / ".lock", seconds=WAIT_SECONDS):
        return
    place = next(p for i in range(1, 10_000) if not (p := out.with_name(f"{out.name}-without-checkpoint-{i}")).exists())
    out.rename(place)
    log.warning("%s ended before its first checkpoint, and is %s now; training begins anew", out, place)


def _check_same(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise UsageError if the command asks for another configuration than the unfinished run's."""
    if not _is_same(folder, config):
        raise UsageError(
            f"{folder} is unfinished and has another configuration than this command; go on with: "
            f"seqkit fit --resume {folder}, or leave --resume out"
        )


def _is_same(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a run has this configuration. What its data source decided stands in the run's alone."""

    def open_to_source(given: Any, written: Any, *, of_source: bool = False) -> bool:
        if isinstance(given, Mapping) and isinstance(written, Mapping):
            return given.keys() == written.keys() and all(
                open_to_source(given[key], written[key], of_source=of_source or key == "source") for key in given
            )
        return bool(given == written) or (of_source and given is None)

    return open_to_source(config, complete(folder / "config.yaml", may_mix=True))


def _resumed(folder: Path, changes: Mapping[str, Any], *, has_baseline: bool, end_here: bool = False) -> dict[str, Any]:
    with _stopped_in_one_line() as signals:
        from seqkit.analysis.cost import training_flops
        from seqkit.analysis.strong_baseline import strong_baseline
        from seqkit.report.page import write_report
        from seqkit.runs.run import resume_run

        specialist = strong_baseline if has_baseline else None
        summary = resume_run(folder, changes, training_flops, specialist, end_here=end_here)
        if summary:
            signals.phase, signals.next_step = "writing the report", f"; write it with: seqkit report {folder}"
            write_report(folder)
        return summary


@contextmanager
def _stopped_in_one_line() -> Iterator[StopSignals]:
    """A signal in the seconds of importing torch, before the run handles signals itself, ends in one line, too."""
    from seqkit.training.interrupt import StopSignals

    signals = StopSignals()
    signals.phase, signals.next_step = "starting, before the first step", "; the same command goes on"
    signals.exits_in_imports = True
    with signals.installed():
        yield signals


def _shown(folder: Path, summary: Mapping[str, Any]) -> int:
    """Print the result, on the first process of a distributed run alone."""
    if summary:
        from rich.console import Console

        from seqkit.report.headline import ResultTable
        from seqkit.report.page import mixture_facts
        from seqkit.runs.mixture import tasks_of
        from seqkit.runs.trained_model import task_folders

        console = Console(markup=False, emoji=False)
        console.print(ResultTable(tasks_of(folder)))
        if task_folders(folder):
            console.print(f"together: {one_line(mixture_facts(dict(summary)))}", highlight=False)
        paths = f"run     {one_line(folder)}\nreport  {one_line(folder / 'report.html')}"
        console.print(paths, highlight=False, soft_wrap=True)
    return 0


def fit(
    recipe: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
    out: str | Path | None = None,
    strong_baseline: bool = True,
    report: bool = True,
) -> TrainedModel | TrainedMixture:
    """Train a recipe, test it, write the run folder with its report, and give the trained model back.

    recipe: name, path of a YAML file, or a configuration as plain data. overrides: values by dotted key, such as
    `{"model.backbone": "LSTM"}`. out: the run folder, which must not exist yet; None: runs/RECIPE/TIME.
    strong_baseline: whether to set a specialist's result beside it, which takes seconds. report: whether to write
    report.html, which takes a second or two; `seqkit report RUN` writes it later.
    Raises UsageError, DataError or DivergedError, each with one line.
    """
    from seqkit.runs.mixture import load

    if out is not None:
        _check_new(Path(out))
    config = complete(recipe, preset, {} if overrides is None else overrides, may_mix=True)
    folder, _ = _fit(config, None if out is None else Path(out), has_baseline=strong_baseline, report=report)
    return load(folder)


def _fit(
    config: Mapping[str, Any], out: Path | None, *, has_baseline: bool, report: bool = True
) -> tuple[Path, dict[str, Any]]:
    from seqkit.analysis.cost import training_flops
    from seqkit.analysis.strong_baseline import strong_baseline
    from seqkit.report.page import write_report
    from seqkit.runs.folder import new_folder
    from seqkit.runs.launcher import check_world
    from seqkit.runs.run import run as train

    check_world(config["trainer"])
    folder = new_folder(config["recipe"]) if out is None else out
    try:
        beside = strong_baseline if has_baseline else None
        summary = train(config, folder, count_flops=training_flops, specialist=beside)
    except BaseException:
        with suppress(OSError):  # a folder that was made for nothing
            folder.rmdir()
        raise
    if summary and report:
        write_report(folder)
    return folder, summary


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_recipe(parser, nargs="?")
    parser.epilog = f"Your own file or folder may stand in place of the recipe. {OWN_TABLES} {parser.epilog}"
    add = parser.add_argument
    add("--resume", metavar="RUN", help="continue an unfinished run; auto: the newest of the recipe")
    add("--end-here", action="store_true", help="end the unfinished run with the weights that it has")
    add("--out", type=Path, help="the run folder (default: runs/RECIPE/TIME)")
    text = "train on N random splits of the data, and give the means with intervals"
    add("--splits", type=whole, metavar="N", help=text)
    add("--no-baseline", action="store_true", help="do not compare with a classical method")
    add("--print_config", action="store_true", help="print all keys with their values, and stop")
    add("--keys", action="store_true", help="explain all keys, and stop")
