"""`seqkit doctor`: what is wrong with the model and the data of a recipe or a run; of none, with the installation."""

from __future__ import annotations

import platform
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata

from packaging.requirements import Requirement
from packaging.version import Version
from rich.console import Console
from rich.table import Table

from seqkit.cli.options import add_recipe
from seqkit.errors import UsageError, one_line

SHOWN = ("seqkit", "torch", "torchvision", "torchaudio", "pytorch-lightning")
"""Packages whose versions are shown, and whose own requirements are checked."""


def run(args: Namespace) -> int:
    """Examine a recipe or a run, else the installation; 0 if it is healthy, 1 if something has to be mended."""
    if args.what is not None:
        return _examine(args.what, args.preset, args.overrides)
    if args.preset or args.overrides:
        raise UsageError(
            "keys are a recipe's; give its name or its YAML file: seqkit doctor RECIPE --key value"
        )
    found = {
        (d.metadata["Name"] or "").lower().replace("_", "-"): d.version
        for d in metadata.distributions()
    }
    required = {name: metadata.requires(name) or [] for name in SHOWN if name in found}
    try:
        import torch

        device = str(torch.accelerator.current_accelerator(check_available=True) or "cpu")
        problems = list(conflicts(found, required))
    except Exception as error:  # a broken torch fails in many ways
        device = "not known"
        problems = [f"torch does not import: {one_line(error)}"]
    from seqkit.data.download import data_folder

    for name in SHOWN:
        print(f"{name:18} {found.get(name, '–')}")
    print(f"{'python':18} {platform.python_version()} at {sys.executable}")
    print(f"{'device':18} {device}")
    print(f"{'data':18} {data_folder()}", *problems or ["all versions agree"], sep="\n")
    return 1 if problems else 0


def conflicts(found: Mapping[str, str], required: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A line for each installed package that another one does not take, and each that is missing, as `pip check`.

    found: version of each package. required: requirements of some of them. What only an extra asks for may be missing.
    """
    for name, texts in required.items():
        for one in map(Requirement, texts):
            extra = re.search(r"extra == ['\"]([^'\"]+)", str(one.marker))
            version = found.get(one.name.lower().replace("_", "-"))
            is_meant = one.marker is None or one.marker.evaluate(
                {"extra": extra[1] if extra else ""}
            )
            if not is_meant or (extra and (version is None or name != "seqkit")):
                continue
            if version is None or not one.specifier.contains(version, prereleases=True):
                wanted = f"{one.name}{one.specifier}"
                yield f'{name} needs {wanted}, and {version or "nothing"} is installed: pip install "{wanted}"'
    # whose metadata names no torch, but takes one alone
    torch = found.get("torch")
    audio = found.get("torchaudio")
    if torch and audio and Version(torch).release[:2] != Version(audio).release[:2]:
        mend = f"pip install torchaudio=={Version(torch).public}"
        yield f"torchaudio {audio} was built for another torch than {torch}: {mend}"


def _examine(what: str, preset: str | None, overrides: list[str]) -> int:
    """Print the measurements of a recipe or a run, and for each finding its cause and the key that mends it."""
    from seqkit.doctor.subject import recipe_or_run

    config, folder = recipe_or_run(what, preset, overrides)
    from seqkit.doctor.examine import examine

    results = examine(config, folder)
    console = Console(markup=False, emoji=False, highlight=False)
    table = Table(
        "check", "measured", "", title=one_line(folder or config["recipe"]), title_justify="left"
    )
    for result in results:
        if result.finding:
            verdict = "finding"
        elif result.applies:
            verdict = "ok"
        else:
            verdict = "–"
        table.add_row(result.name, one_line(result.measured), verdict)
    console.print(table)
    findings = [(result.name, result.finding) for result in results if result.finding is not None]
    for number, (name, finding) in enumerate(findings, start=1):
        console.print(
            f"\n{number}. {name}: {one_line(finding.problem)}", style="bold", soft_wrap=True
        )
        console.print(
            f"   cause: {one_line(finding.cause)}\n   mend:  {one_line(finding.fix)}",
            soft_wrap=True,
        )
    if len(findings) > 1:
        console.print("\nThe first finding may explain those after it: mend it, and examine again.")
    if not findings:
        console.print("nothing is wrong")
    return 1 if findings else 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    text = "a recipe (name or YAML file), or a run folder"
    add_recipe(parser, "what", nargs="?", metavar="RECIPE|RUN", help=text)
