"""`seqkit compare RECIPE --backbones A,B …` and `seqkit compare RUN RUN …`; from Python: `seqkit.compare`."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from seqkit.cli.options import add_allowed, add_recipe, add_study, whole
from seqkit.comparison.screen import SCREEN, screen_settings
from seqkit.config import complete
from seqkit.errors import UsageError, one_line

if TYPE_CHECKING:
    from seqkit.comparison.settings import Settings
    from seqkit.comparison.types import Results

DEFAULT_BACKBONES = ("Transformer", "LSTM", "GRU", "TCN", "S4D", "Mamba")
"""Backbones that are compared if neither --backbones nor --vary is given."""


def run(args: Namespace) -> int:
    """Print the candidates, run them, print the table and where the page is. 1 where no candidate has a result."""
    from seqkit.cli.parser import is_recipe

    folders = [Path(word) for word in args.what]
    is_run = [(folder / "summary.json").is_file() for folder in folders]
    if all(is_run):
        return _runs(args, folders)
    if args.what == [SCREEN]:
        from seqkit.cli.screen import run_screen

        tasks = screen_settings(_names(args), **_asked(args))
        return run_screen(tasks, args.out, args.jobs, dry=args.dry_run)
    if len(folders) > 1:
        if SCREEN in args.what:
            raise UsageError(f"{SCREEN} stands alone; name what is screened: --backbones GRU")
        recipes = [word for word in args.what if is_recipe(word)]
        if len(recipes) == 1 and not any(folder.exists() for folder in folders):
            others = ",".join(word for word in args.what if word not in recipes)
            raise UsageError(
                f"one recipe stands alone; type seqkit compare {recipes[0]} --backbones {others}"
            )
        raise UsageError(
            f"{folders[is_run.index(False)]} is no run folder; give one recipe, or folders of runs"
        )
    if folders[0].is_file() and not is_recipe(args.what[0]):
        data = shlex.quote(args.what[0])
        hint = f"compare takes a recipe (your own data: --data {data}), or folders of finished runs"
        raise UsageError(f"{folders[0]} is no recipe and no run folder; {hint}")
    # a mistake is said before what imports torch
    complete(args.what[0], args.preset, args.overrides)
    from seqkit.comparison.compare import check_jobs, check_whole, default_folder, make_plan
    from seqkit.comparison.compare import compare as carry_out
    from seqkit.report.comparison import number_of_runs, plan_table
    from seqkit.report.table import print_table

    check_jobs(args.jobs)
    settings = _settings(args)
    folder = args.out or default_folder(settings)
    check_whole(folder)
    plan = make_plan(settings)
    print_table(plan_table(plan))
    for one in plan.candidates:
        for line in one.broken:
            print(one_line(f"{one.name}: {line}"))
    steps = max(one.num_steps for one in plan.candidates)
    print(f"{number_of_runs([plan])}, of up to {steps:,} steps\nfolder  {one_line(folder)}")
    if args.dry_run:
        return 0
    results = carry_out(plan, folder, jobs=args.jobs)
    return _finish(folder, results)


@overload
def compare(
    recipe: Literal["screen"], backbones: Sequence[str] = (), **settings: Any
) -> dict[str, Results]: ...
@overload
def compare(recipe: str | Path, backbones: Sequence[str] = (), **settings: Any) -> Results: ...
def compare(
    recipe: str | Path,
    backbones: Sequence[str] = (),
    *,
    vary: Mapping[str, Sequence[Any]] | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    jobs: int = 1,
    allow_broken_laws: bool = False,
    **settings: Any,
) -> Results | dict[str, Results]:
    """Compare backbones, or values of any key, on a recipe, and return what results.json holds.

    recipe: "screen": small tasks for backbones or mixers of your own; the results are of each task by its name.
    settings: further arguments of `seqkit.comparison.settings.Settings`: preset, match, seeds (3; with until_sure 20),
    lr_trials, …; its plugins are imported. out: the folder; None: runs/compare/RECIPE-DIGEST, the same for the same
    arguments, so that a comparison that was killed goes on. allow_broken_laws: as of `seqkit.fit`. Raises UsageError or
    DataError in one line. Call it under `if __name__ == "__main__":`, as it starts processes.
    """
    from seqkit.cli.screen import screen
    from seqkit.comparison.compare import compare as carry_out
    from seqkit.comparison.compare import default_folder, make_plan
    from seqkit.comparison.settings import MOST_SEEDS, Settings
    from seqkit.registry.plugins import import_plugins
    from seqkit.report.comparison import write_comparison

    plugins = map(Path, settings.get("plugins", ()))
    import_plugins([file for file in plugins if file.stem not in sys.modules], "plugins: ")
    if settings.get("until_sure") is not None:
        settings.setdefault("seeds", MOST_SEEDS)
    values = dict(overrides or {})
    if allow_broken_laws:
        values["trainer.allow_broken_laws"] = True
    settings["overrides"] = [f"--{key}={_word(value)}" for key, value in values.items()]
    settings["vary"] = {
        key: [_word(value) for value in values] for key, values in (vary or {}).items()
    }
    names = list(backbones)
    folder = Path(out) if out else None
    if recipe == SCREEN:
        return screen(screen_settings(names, **settings), folder, jobs)
    if not (names or vary):
        names = list(DEFAULT_BACKBONES)
    asked = Settings(recipe=str(recipe), backbones=names, **settings)
    folder = folder or default_folder(asked)
    results = carry_out(make_plan(asked), folder, jobs=jobs)
    write_comparison(folder, results)
    return results


def _word(value: Any) -> str:
    """A value as a word of the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def _settings(args: Namespace) -> Settings:
    from seqkit.comparison.settings import Settings

    asked = _asked(args)
    names = _names(args)
    if not (names or asked["vary"]):
        names = list(DEFAULT_BACKBONES)
    return Settings(recipe=args.what[0], backbones=names, **asked)


def _names(args: Namespace) -> list[str]:
    """Names of the backbones."""
    found = [name.strip() for name in (args.backbones or "").split(",") if name.strip()]
    if args.backbones is not None and not found:
        raise UsageError(
            "--backbones names none; give names such as Transformer,LSTM, or leave it out"
        )
    return found


def _asked(args: Namespace) -> dict[str, Any]:
    """Arguments of `Settings` that the command line gives, but for recipe and backbones."""
    from seqkit.comparison.settings import MOST_SEEDS, read_vary

    same = ("preset", "match", "seeds", "until_sure", "lr_trials", "tuning_seeds", "threads")
    found = {name: getattr(args, name) for name in same if getattr(args, name) is not None}
    if "until_sure" in found:
        found.setdefault("seeds", MOST_SEEDS)
    found |= {name: False for name in ("measure", "depths") if getattr(args, f"no_{name}")}
    plugins = [str(path) for path in args.plugin]
    return found | {
        "vary": read_vary(args.vary),
        "overrides": list(args.overrides),
        "plugins": plugins,
    }


def _finish(folder: Path, results: Results) -> int:
    """Write the page and print its table. 1 where no candidate has a result."""
    from seqkit.report.comparison import BRIEF, ranking, write_comparison
    from seqkit.report.sentences import answers
    from seqkit.report.table import print_table

    page = write_comparison(folder, results)
    answer = answers(results)
    print_table(ranking(results).first(BRIEF))
    for sentence in (answer.text, *answer.doubts):
        print(one_line(sentence))
    warnings = sum(finding.kind == "warning" for finding in results.unmatched)
    print(
        f"{warnings} warnings of what was not matched, {len(results.failures)} failures: see the page"
    )
    print(f"report  {one_line(page)}")
    for failure in results.failures:
        print(
            f"seqkit compare: {one_line(failure.what)} failed: {one_line(failure.error)}",
            file=sys.stderr,
        )
    if any(row.mean is not None for row in results.candidates):
        return 0
    return 1


def _runs(args: Namespace, folders: Sequence[Path]) -> int:
    """Compare finished runs, which take no settings."""
    from seqkit.comparison.finished_runs import compare_runs

    settings = args.overrides or args.backbones or args.vary or args.preset or args.until_sure
    if settings or args.dry_run:
        raise UsageError("finished runs are compared as they are; leave settings and --dry-run out")
    digest = hashlib.sha256(
        "\n".join(str(folder.resolve()) for folder in folders).encode()
    ).hexdigest()[:8]
    out = args.out or Path("runs/compare") / f"runs-{digest}"
    return _finish(out, compare_runs(folders, out))


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    text = (
        "a recipe (name or YAML file), folders of finished runs, "
        "or screen: small tasks for a mixer of your own beside Transformer, LSTM and Mamba"
    )
    add_recipe(parser, "what", nargs="+", metavar="RECIPE|RUN", help=text)
    add = parser.add_argument
    backbones = (
        "backbones or mixers (3Mamba+MultiHeadAttention is a pattern of four), first the reference "
        f"(default: {','.join(DEFAULT_BACKBONES)})"
    )
    add("--backbones", metavar="A,B,…", help=backbones)
    vary = "compare values of a key of the recipe; may be given more than once"
    add("--vary", action="append", default=[], metavar="KEY=A,B", help=vary)
    add(
        "--match",
        default="parameters",
        help="what is made equal: parameters (default), flops or none",
    )
    add_study(parser, "candidate")
    sure = (
        "add seeds until each candidate is better or worse than the reference by more than this, or equal within it, "
        "in the page's unit (1: a percentage point); --seeds is then the most for each (default 20)"
    )
    add("--until-sure", type=float, metavar="DIFFERENCE", help=sure)
    parser.set_defaults(seeds=None)
    seeds = "seeds of the best trials of each candidate, 1 or 2 (default 2; of a screen 1)"
    add("--tuning-seeds", type=whole, help=seeds)
    add_allowed(parser)
    add("--no-measure", action="store_true", help="do not measure speed, latency and memory")
    add(
        "--no-depths",
        action="store_true",
        help="do not also try other depths at the same budget",
    )
    add(
        "--threads",
        type=whole,
        help="threads of each run (default: OMP_NUM_THREADS, or cores divided by jobs)",
    )
