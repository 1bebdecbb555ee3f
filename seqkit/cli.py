"""The front door. This file imports no torch, so that help, version and lists answer at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from seqkit.configure import parse
from seqkit.front import USAGE, front
from seqkit.plugins import import_plugins
from seqkit.recipe import UsageError, read_recipe, recipe_names
from seqkit.registry import KINDS, parts, suggest

DATA = 3
"""Exit code: the data was wrong."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code: 0, 1 (stopped), 2 (usage) or 3 (data)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    args, overrides = front().parse_known_args(words)
    if args.command is None:
        front().print_help()
        return 0
    if overrides and args.command not in CONFIGURED:
        print(f"seqkit {args.command}: it takes no {overrides[0]}; see seqkit {args.command} --help", file=sys.stderr)
        return USAGE
    try:
        if args.command in CONFIGURED:
            return CONFIGURED[args.command](args, overrides)
        return COMMANDS[args.command](args)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 1
    except Exception as error:
        code = _expected(error)
        if code is None:
            raise
        print(f"seqkit {args.command}: {error}", file=sys.stderr)
        return code


def _expected(error: Exception) -> int | None:
    """The exit code of an error that a user can cause; None for a mistake of ours, which deserves its traceback."""
    codes = {"DataError": DATA, "UsageError": USAGE, "DivergedError": 1}
    if type(error).__name__ in codes:  # by name: their modules import torch
        return codes[type(error).__name__]
    if isinstance(error, OSError):
        return DATA
    return USAGE if isinstance(error, ValueError) and _origin(error).startswith("seqkit.") else None


def _origin(error: Exception) -> str:
    """The module in which the error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _fit(args: argparse.Namespace, overrides: list[str]) -> int:
    import_plugins(args.plugin)
    config = read_recipe(args.recipe, args.preset)
    if args.help_keys:
        from seqkit.configure import parser

        parser().print_help()
        return 0
    if args.print_config:
        from seqkit.configure import dump

        print(dump(parse(config, overrides)), end="")
        return 0
    from rich.console import Console

    from seqkit.report.page import write_report
    from seqkit.report.table import result_table
    from seqkit.run import fit, new_folder

    full = parse(config, overrides)
    folder = args.out or new_folder(full.recipe)
    if folder.exists():
        raise UsageError(f"{folder} exists already, and a run is never overwritten; give another --out")
    summary = fit(full, folder)
    write_report(folder)
    console = Console()
    console.print(result_table([summary]))
    console.print(f"run     {folder}\nreport  {folder / 'report.html'}", highlight=False, soft_wrap=True)
    if not summary["finished"]:
        print(f"seqkit fit: stopped after {summary['steps']} steps; {folder} holds the weights so far", file=sys.stderr)
    return 0 if summary["finished"] else 1


def _evaluate(args: argparse.Namespace) -> int:
    import_plugins(args.plugin)
    from seqkit.run import evaluate

    for name, value in evaluate(args.run, "test" if args.command == "test" else "valid").items():
        print(f"{name:12} {value:.4f}")
    return 0


def _predict(args: argparse.Namespace) -> int:
    import_plugins(args.plugin)
    from seqkit.data.raw import read_raws
    from seqkit.run import load

    loaded = load(args.run)
    named = [pair for given in args.inputs for pair in read_raws(given, loaded.tokenizer)]
    names = [name for name, _ in named]
    for name, answer in zip(names, loaded.predict([raw for _, raw in named], names=names)):
        print(f"{name}\t{answer}")
    return 0


def _generate(args: argparse.Namespace) -> int:
    import_plugins(args.plugin)
    from seqkit.data.raw import read_raws
    from seqkit.generate.command import printed, strategy
    from seqkit.run import load

    strategy(vars(args))  # refuses what contradicts itself before anything is loaded
    loaded = load(args.run)
    named = [(text, text) for text in args.prompt or ["\n"]]
    if loaded.model.source_embedder is not None:
        if not args.prompt:
            raise UsageError("this run writes one sequence from another; say from what: --prompt TEXT or --prompt FILE")
        named = [pair for given in args.prompt for pair in read_raws(given, loaded.tokenizer)]
    for piece in printed(loaded, named, vars(args)):
        print(piece, end="", flush=True)
    return 0


def _list(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    plural = {f"{kind}s": kind for kind in KINDS} | {"recipes": "recipe", "data": "source", "datasets": "source"}
    if args.what is not None and args.what not in plural and args.what not in plural.values():
        raise UsageError(f"there is nothing called {args.what!r} to list; {suggest(args.what, plural)}")
    wanted = (
        [plural.get(args.what, args.what)] if args.what else ["recipe", "source", "tokenizer", "backbone", "objective"]
    )
    for kind in wanted:
        table = Table(title={"source": "data sets (data.source)"}.get(kind, f"{kind}s"), title_justify="left", box=None)
        table.add_column("name", style="bold", no_wrap=True)
        table.add_column("what")
        if kind == "recipe":
            from seqkit.recipe import find_recipe

            for name in recipe_names():
                first = find_recipe(name)[1].read_text(encoding="utf-8").splitlines()[0]
                table.add_row(name, first.lstrip("# "))
        else:
            table.add_column("when to use it")
            for part in parts(kind).values():
                table.add_row(part.name, part.what, part.when)
        console.print(table)
        console.print()
    return 0


def _inspect(args: argparse.Namespace, overrides: list[str]) -> int:
    import_plugins(args.plugin)
    from seqkit.report.inspect import inspect

    folder = args.out or Path("runs") / "inspect"
    path = inspect(
        parse(read_recipe(args.recipe, args.preset), overrides), folder / f"{args.recipe.replace('/', '-')}.png"
    )
    print(path)
    return 0


def _attention(args: argparse.Namespace) -> int:
    import_plugins(args.plugin)
    from seqkit.report.attention import view_example, view_input

    out = args.out or args.run / "attention"
    given = args.input is not None
    print(view_input(args.run, args.input, out) if given else view_example(args.run, args.example, out))
    return 0


def _describe(args: argparse.Namespace, overrides: list[str]) -> int:
    import_plugins(args.plugin)
    from seqkit.describe import describe, describe_recipe

    if args.context is not None and args.context < 1:
        raise UsageError(f"--context {args.context} counts tokens; give 1 or more")
    if args.what in parts("preset"):
        if overrides or args.preset:
            raise UsageError(f"{args.what} is a backbone of fixed size and takes no {(overrides or ['--preset'])[0]}")
        print(describe(args.what, context=args.context))
        return 0
    if args.what not in recipe_names() and not args.what.endswith((".yaml", ".yml")):
        known = [*parts("preset"), *recipe_names()]
        raise UsageError(f"there is no preset or recipe called {args.what!r}; {suggest(args.what, known)}")
    print(describe_recipe(parse(read_recipe(args.what, args.preset), overrides), context=args.context))
    return 0


def _doctor(_: argparse.Namespace) -> int:
    from seqkit.doctor import report

    return report()


CONFIGURED: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
    "fit": _fit,
    "inspect": _inspect,
    "describe": _describe,
}
"""Commands that also take a recipe's keys, as `--key value`."""

COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "validate": _evaluate,
    "test": _evaluate,
    "predict": _predict,
    "generate": _generate,
    "attention": _attention,
    "list": _list,
    "doctor": _doctor,
}
"""The others."""


if __name__ == "__main__":
    sys.exit(main())
