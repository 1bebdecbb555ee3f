"""`seqkit compare RECIPE --backbones A,B …` and `seqkit compare RUN RUN …`; from Python: `seqkit.compare`."""

from __future__ import annotations

import hashlib
import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.cli.options import add_recipe, add_study, whole
from seqkit.comparison.ledger import check_whole
from seqkit.config import complete
from seqkit.errors import UsageError, one_line

if TYPE_CHECKING:
    from seqkit.comparison.compare import Prepared

DEFAULT_BACKBONES = ("Transformer", "LSTM", "GRU", "TCN", "S4D", "Mamba")
"""Backbones that are compared if neither --backbones nor --vary is given."""


def run(args: Namespace) -> int:
    """Print the grid, run it, print the table and where the page is. 1 where no candidate has a result."""
    from rich.console import Console
    from rich.text import Text

    folders = [Path(word) for word in args.what]
    if all((folder / "summary.json").is_file() for folder in folders):
        return _runs(args, folders)
    if len(args.what) > 1:
        known = next((str(f) for f in folders if not (f / "summary.json").is_file()), args.what[0])
        raise UsageError(f"{known} is no run folder; give one recipe, or several folders of finished runs")
    complete(args.what[0], args.preset, args.overrides)  # a mistake is said before what imports torch
    if args.out is not None and args.out.is_dir():
        check_whole(args.out)
    from seqkit.comparison.compare import check_jobs, default_folder, prepare, write_plan
    from seqkit.comparison.compare import run as compare
    from seqkit.report.latex import write_latex

    settings = _settings(args)
    check_jobs(args.jobs)
    folder = args.out or default_folder(settings)
    console = Console(markup=False, emoji=False)
    with console.status(Text(f"building the candidates of {one_line(settings.recipe)}")):
        prepared = prepare(settings, args.jobs)
    _print_grid(console, prepared, folder, args.jobs)
    if args.dry_run:
        return 0
    if args.plan:
        print(f"plan  {one_line(write_plan(prepared, folder))}")
        return 0
    results = compare(prepared, folder, jobs=args.jobs)
    if args.latex:
        write_latex(folder, results)
    _print_results(console, folder, results)
    return 0 if any(row["mean"] is not None for row in results["candidates"]) else 1


def compare(
    recipe: str | Path,
    backbones: Sequence[str] = (),
    *,
    vary: Mapping[str, Sequence[Any]] | None = None,
    overrides: Mapping[str, Any] | None = None,
    preset: str | None = None,
    out: str | Path | None = None,
    jobs: int = 1,
    **settings: Any,
) -> dict[str, Any]:
    """Compare backbones, or values of any key, on a recipe; the content of results.json.

    settings: further arguments of `seqkit.comparison.settings.Settings`: match, seeds, lr_trials, …. out: folder; None:
    runs/compare/RECIPE-DIGEST, the same for the same arguments, so that a comparison that was killed goes on.
    Raises UsageError or DataError in one line. Call it under `if __name__ == "__main__":`, as it starts processes.
    """
    from seqkit.comparison.compare import default_folder, prepare
    from seqkit.comparison.compare import run as execute
    from seqkit.comparison.settings import Settings

    asked = Settings(
        recipe=str(recipe),
        preset=preset,
        overrides=[f"--{key}={_word(value)}" for key, value in (overrides or {}).items()],
        backbones=list(backbones) if backbones or vary else list(DEFAULT_BACKBONES),
        vary={key: [_word(value) for value in values] for key, values in (vary or {}).items()},
        **settings,
    )
    folder = Path(out) if out else default_folder(asked)
    return execute(prepare(asked, jobs), folder, jobs=jobs)


def _word(value: Any) -> str:
    """A value as a word of the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def _settings(args: Namespace) -> Any:
    from seqkit.comparison.settings import Settings, read_vary

    vary = read_vary(args.vary)
    names = [name.strip() for name in (args.backbones or "").split(",") if name.strip()]
    same = ("preset", "match", "seeds", "lr_trials", "dropout_trials", "trial_share", "run_shares", "least", "pretrain")
    return Settings(
        recipe=args.what[0],
        overrides=list(args.overrides),
        backbones=names if names or vary else list(DEFAULT_BACKBONES),
        vary=vary,
        measure=not args.no_measure,
        depths=not args.no_depths,
        threads=args.threads,
        plugins=[str(path) for path in args.plugin],
        **{name: getattr(args, name) for name in same},
    )


def _print_grid(console: Any, prepared: Prepared, folder: Path, jobs: int) -> None:
    """The candidates, how many runs, and the minutes that they will take."""
    from rich.table import Table

    from seqkit.comparison.compare import remaining_minutes
    from seqkit.report.numbers import plural
    from seqkit.report.ranking import TOLERANCE

    settings, plan = prepared.settings, prepared.plan
    table = Table(box=None)
    for column in ("candidate", "parameters", "gap", "FLOPs a step", "width", "depth", "steps", "s a step"):
        is_name = column == "candidate"
        table.add_column(column, justify="left" if is_name else "right", overflow="fold", no_wrap=not is_name)
    for name, candidate in plan.candidates.items():
        own = prepared.estimates[name]
        gap = "" if candidate.budget_gap is None else f"{100 * candidate.budget_gap:+.1f} %"
        sizes = [str(x) if x is not None else "" for x in (candidate.width, candidate.depth)]
        cells = [one_line(name), f"{candidate.parameters:,}", gap, f"{candidate.flops:.3g}", *sizes]
        table.add_row(*cells, str(own.num_steps), f"{own.step_seconds:.3f}")
    console.print(table)
    for name, candidate in plan.candidates.items():
        if abs(candidate.budget_gap or 0.0) > TOLERANCE:
            console.print(f"{one_line(name)}: no width of it comes nearer to the reference's {settings.match}")
    left, done = remaining_minutes(prepared, folder, jobs)
    optimizers = " and ".join(o["type"] for o in next(iter(plan.candidates.values())).optimizers)
    trials = [f"{settings.lr_trials} learning rates of {optimizers} or more"] if settings.lr_trials else []
    trials += ["the best two again, half and double the depth"] if settings.tries_depths else []
    trials += [f"{settings.dropout_trials} dropouts"] if settings.dropout_trials else []
    tuned = f"{', '.join(trials)} at {100 * settings.trial_share:.0f} % of the steps" if trials else "no tuning"
    runs = f"{len(plan.steps({}))} runs{f', of which {done} are done' if done else ''}"
    console.print(
        f"each: {tuned}, then {plural(settings.seeds, 'seed')}; {runs}; "
        f"about {max(left, 1):.0f} min with {jobs} at a time\nfolder  {one_line(folder)}",
        highlight=False,
        soft_wrap=True,
    )


def _print_results(console: Any, folder: Path, results: Mapping[str, Any]) -> None:
    from seqkit.report.comparison import comparison_table
    from seqkit.report.numbers import plural

    console.print(comparison_table(results))
    console.print(one_line(results["answer"]), style="bold" if results["is_settled"] else "", highlight=False)
    for doubt in (sentence for sentence in results["answers"] if sentence.startswith("This is not settled")):
        console.print(one_line(doubt), highlight=False)
    warnings = sum(finding["kind"] == "warning" for finding in results["unmatched"])
    found = f"{plural(warnings, 'warning')} of what was not matched, {plural(len(results['failures']), 'failure')}"
    console.print(
        f"{found}: see the page\nreport  {one_line(folder / 'report.html')}",
        highlight=False,
        soft_wrap=True,
    )
    for failure in results["failures"]:
        print(f"seqkit compare: {one_line(failure['what'])} failed: {one_line(failure['error'])}", file=sys.stderr)


def _runs(args: Namespace, folders: Sequence[Path]) -> int:
    from rich.console import Console

    from seqkit.cli.parser import parser
    from seqkit.comparison.finished_runs import compare_runs

    usual = vars(parser().parse_args(["compare", *args.what]))
    given = [
        name for name, value in usual.items() if name not in ("out", "plugin", "latex") and getattr(args, name) != value
    ]
    if args.overrides or given:
        word = args.overrides[0] if args.overrides else f"--{given[0].replace('_', '-')}"
        raise UsageError(f"finished runs take no {word}; they are compared as they are")
    digest = hashlib.sha256("\n".join(str(folder.resolve()) for folder in folders).encode()).hexdigest()[:8]
    out = args.out or Path("runs/compare") / f"runs-{digest}"
    from seqkit.report.latex import write_latex

    results = compare_runs(folders, out)
    if args.latex:
        write_latex(out, results)
    _print_results(Console(markup=False, emoji=False), out, results)
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    text = "a recipe (name or YAML file), or folders of finished runs"
    add_recipe(parser, "what", nargs="+", metavar="RECIPE|RUN", help=text)
    add = parser.add_argument
    backbones = f"backbones, first the reference (default: {','.join(DEFAULT_BACKBONES)})"
    add("--backbones", metavar="A,B,…", help=backbones)
    vary = "compare values of a key of the recipe; may be given more than once"
    add("--vary", action="append", default=[], metavar="KEY=A,B", help=vary)
    add("--match", default="parameters", help="what is made equal: parameters (default), flops, time or none")
    add_study(parser, "candidate")
    dropouts = "number of dropouts to try for each candidate, after the learning rates (default 0)"
    add("--dropout-trials", type=whole, default=0, help=dropouts)
    shares = "also train for these shares of a run's steps, such as 0.25,0.5, and draw curves"
    add("--run-shares", type=_shares, default=[], metavar="A,B,…", help=shares)
    add("--least", type=float, help="smallest difference that counts, as the metric is shown (default: its last digit)")
    add("--plan", action="store_true", help="write which runs are planned and how the result is decided, and stop")
    add("--latex", action="store_true", help="also write the table as results.tex")
    add("--pretrain", help="masked or next: first train without labels, and report both rankings")
    add("--no-measure", action="store_true", help="do not measure speed, latency and memory")
    add("--no-depths", action="store_true", help="do not also try half and double the depth at the same budget")
    add("--threads", type=whole, help="threads of each run (default: OMP_NUM_THREADS, or cores divided by jobs)")


def _shares(word: str) -> list[float]:
    try:
        return [float(part) for part in word.split(",")]
    except ValueError:
        raise ArgumentTypeError(f"{word!r} is no list of numbers, such as 0.25,0.5") from None
