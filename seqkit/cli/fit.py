"""`seqkit fit RECIPE`, and the same from Python: `seqkit.fit`."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqkit.cli.options import add_allowed, add_recipe
from seqkit.config import Config, complete, dotted, explain, to_yaml
from seqkit.errors import UsageError, one_line, printable
from seqkit.registry.commands import command

if TYPE_CHECKING:
    from seqkit.data.tables.read import Tables
    from seqkit.runs.summary import Summary
    from seqkit.runs.trained_model import TrainedModel
    from seqkit.training.interrupt import StopSignals


log = logging.getLogger("seqkit")

AUTO = "auto"


def run(args: Namespace) -> int:
    """Train, test, write the run folder with its report, print the result."""
    from seqkit.runs.folder import as_seen_from_here
    from seqkit.runs.launcher import rank

    if args.no_baseline:
        args.overrides = [*args.overrides, "--classical", "off"]
    if rank() > 0:
        log.setLevel(logging.ERROR)  # the first process says what all of them find in the data
    if args.recipe is None and (args.resume is None or args.resume == AUTO):
        given = [str(word) for key, word in dotted(args.overrides) if key == "data"]
        advice = "or --resume with the folder of an unfinished run"
        if given:
            advice = f"or your data alone: {command('fit', given[0])}"
        raise UsageError(f"give a recipe (seqkit list recipes), {advice}")
    if args.resume == AUTO and args.out is None:
        raise UsageError(
            "--resume auto goes on with the run in a folder, or begins one there; give it with --out"
        )
    if args.resume == "":
        raise UsageError("--resume names no run; give the folder of an unfinished run, or auto")
    if args.resume is not None and (args.keys or args.print_config):
        flag = "--keys" if args.keys else "--print_config"
        raise UsageError(
            f"{flag} shows the keys of a new run; an unfinished run has its own in RUN/config.yaml"
        )
    if args.resume is not None and args.resume != AUTO:
        return _resume(args)
    if args.out is not None and args.resume is None:
        _check_new(args.out)
    config = complete(args.recipe, args.preset, args.overrides, may_mix=True)
    config = as_seen_from_here(config, Path(args.recipe).parent)  # of a run's config.yaml
    if args.keys:
        for key, value, what, about in explain(config):
            sentences = [f"{text[:1].upper()}{text[1:]}" for text in (f"{what}.", about) if text]
            print(printable(f"--{key} {one_line(value)}\n    {' '.join(sentences)}"))
        return 0
    if args.print_config:
        print(to_yaml(config), end="")
        return 0
    if args.resume == AUTO:
        return _gone_on(args, args.out, config)
    return _shown(*_fit(config, args.out, tables=args.tables))


def _check_new(out: Path) -> None:
    """Raise UsageError if the run folder exists, before anything heavy is imported."""
    from seqkit.runs.folder import check_new
    from seqkit.runs.launcher import rank

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
    if not (folder / "config.yaml").is_file():
        raise UsageError(f"{folder} is no run: it has no config.yaml")
    return _gone_on(args, folder)


def _gone_on(args: Namespace, folder: Path, config: Config | None = None) -> int:
    """Go on with the run in a folder, or begin one of this configuration there; report, and print the result."""
    with _stopped_in_one_line() as signals:
        from seqkit.report.beside import Scored
        from seqkit.report.page import write_report
        from seqkit.runs.run import resume_run, train_or_resume

        if config is None:
            summary = resume_run(folder, dict(dotted(args.overrides)), Scored)
        else:
            summary = train_or_resume(config, folder, Scored, args.tables)
        if summary and not (folder / "report.html").is_file():
            signals.phase = "writing the report"
            signals.next_step = f"; write it with: {command('report', folder)}"
            write_report(folder)
    return _shown(folder, summary)


@contextmanager
def _stopped_in_one_line() -> Iterator[StopSignals]:
    """A signal in the seconds of importing torch, before the run handles signals itself, ends in one line, too."""
    from seqkit.training.interrupt import StopSignals

    signals = StopSignals()
    signals.phase = "starting, before the first step"
    signals.next_step = "; the same command goes on"
    signals.exits_in_imports = True
    with signals.installed():
        yield signals


def _shown(folder: Path, summary: Summary | None) -> int:
    """Print the result, on the first process of a distributed run alone."""
    if summary:
        from rich.console import Console

        from seqkit.report.headline import ResultTable
        from seqkit.report.page import mixture_facts
        from seqkit.runs.summary import task_folders, tasks_of

        console = Console(markup=False, emoji=False)
        console.print(ResultTable(tasks_of(folder)))
        if task_folders(folder):
            console.print(f"together: {one_line(mixture_facts(summary))}", highlight=False)
        paths = f"run     {one_line(folder)}\nreport  {one_line(folder / 'report.html')}"
        console.print(paths, highlight=False, soft_wrap=True)
    return 0


def fit(
    recipe: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
    out: str | Path | None = None,
    classical: Literal["join", "beside", "off"] | None = None,
    report: bool = True,
    allow_broken_laws: bool = False,
) -> TrainedModel | dict[str, TrainedModel]:
    """Train a recipe, test it, write the run folder with its report, and give the trained model back.

    recipe: name, path of a YAML file, or a configuration as plain data. overrides: values by dotted key, such as
    `{"model.backbone": "LSTM"}`. out: the run folder, which must not exist yet; None: runs/RECIPE/TIME.
    classical: the key of that name; None: as the recipe has it. report: whether to write report.html, which takes a
    second or two; `seqkit report RUN` writes it later. allow_broken_laws: whether to train a model that breaks a law,
    such as one that reads the future; its results are compared with nothing.
    Raises UsageError, DataError or DivergedError, each with one line.
    """
    from seqkit.runs.mixture import load

    if out is not None:
        _check_new(Path(out))
    values = dict(overrides or {})
    if classical is not None:
        values["classical"] = classical
    if allow_broken_laws:
        values["trainer.allow_broken_laws"] = True
    config = complete(recipe, preset, values, may_mix=True)
    folder, _ = _fit(config, None if out is None else Path(out), report=report)
    return load(folder)


def _fit(
    config: Config,
    out: Path | None,
    *,
    report: bool = True,
    tables: Tables | None = None,
) -> tuple[Path, Summary | None]:
    from seqkit.report.beside import Scored
    from seqkit.report.page import write_report
    from seqkit.runs.folder import new_folder
    from seqkit.runs.run import run as train

    folder = new_folder(config["recipe"]) if out is None else out
    try:
        summary = train(config, folder, scorer=Scored, tables=tables)
    except BaseException:
        if out is None:
            with suppress(OSError):  # it was made for nothing
                folder.rmdir()
        raise
    if summary and report:
        write_report(folder)
    return folder, summary


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_recipe(parser, nargs="?")
    parser.epilog = f"Your own file or folder may stand in place of the recipe (docs/your-data.md). {parser.epilog}"
    add = parser.add_argument
    add(
        "--resume",
        metavar="RUN",
        help="continue an unfinished run; auto: the one in --out, or begin one there",
    )
    add("--out", type=Path, help="the run folder (default: runs/RECIPE/TIME)")
    add_allowed(parser)
    add("--no-baseline", action="store_true", help="as --classical off: the network alone")
    add("--print_config", action="store_true", help="print all keys with their values, and stop")
    add("--keys", action="store_true", help="explain all keys, and stop")
