"""`seqkit doctor`: what is wrong with the model and the data of a recipe or a run; of none, with the installation.

Versions are read from the metadata of installed packages, so that it also works where they cannot be imported.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seqkit.cli.options import add_recipe
from seqkit.errors import UsageError, one_line

TRIO = ("torch", "torchvision", "torchaudio")
"""They load each other's compiled parts, so each release fits exactly one of the others."""

_SAFE_FROM = {
    "pytorch-lightning": ("2.6.6", "CVE-2026-58659: a checkpoint could run code in spite of weights_only=True"),
}
_MALWARE = {"lightning": ("2.6.2", "2.6.3")}


@dataclass(frozen=True)
class Line:
    """One package: the version found and those wanted.

    problem: what is wrong and what to do; may be empty. extra: extra of seqkit that asks for the package; may be empty.
    """

    name: str
    found: str | None
    wanted: str
    problem: str
    extra: str = ""


def check(found: Mapping[str, str], wanted: Sequence[str], exact: Mapping[str, Sequence[str]]) -> list[Line]:
    """Compare installed versions with requirements.

    found: package → version. wanted: requirements as in `importlib.metadata.requires("seqkit")`.
    exact: package → its own requirements, of which those on torch count (`torchvision` names its torch).
    A package that only an extra asks for may be missing: that is no problem, but its line says so in `found`.
    """
    lines = []
    for requirement in map(Requirement, wanted):
        extra, version = _extra(requirement), found.get(requirement.name)
        is_here = requirement.marker is None or requirement.marker.evaluate({"extra": extra})  # this Python and system
        if is_here and extra not in ("demo", "dev", "bench", "docs"):  # others together, tools to work on it
            known = str(requirement.specifier) or "any"
            lines.append(Line(requirement.name, version, known, _problem(requirement, version, extra), extra))
    lines = _once(lines)
    trio = " ".join(f'"{line.name}{line.wanted}"' for line in lines if line.name in TRIO)
    return lines + _disagreements(found, exact, trio)


def _once(lines: Sequence[Line]) -> list[Line]:
    """One line for each package that is wanted alike, with all extras that ask for it; none if seqkit itself does.

    A package that is wanted in two versions has a line for each: both count.
    """
    found: dict[tuple[str, str], Line] = {}
    for line in lines:
        key = line.name, line.wanted
        known = found.setdefault(key, line)
        if known is not line:
            both = ", ".join((known.extra, line.extra)) if known.extra and line.extra else ""
            found[key] = replace(known, extra=both, problem=known.problem or line.problem)
    return list(found.values())


def _problem(requirement: Requirement, version: str | None, extra: str) -> str:
    """Problem of a package, with the command that mends it; empty if there is none."""
    install = f'pip install "{requirement.name}{requirement.specifier}"'
    if version is None:
        return "" if extra else f"missing: {install}"
    floor, reason = _SAFE_FROM.get(requirement.name, ("0", ""))
    if Version(version) < Version(floor):
        return f"not safe ({reason}): {install}"
    return "" if requirement.specifier.contains(version, prereleases=True) else f"not tested with this: {install}"


def _disagreements(found: Mapping[str, str], exact: Mapping[str, Sequence[str]], trio: str) -> list[Line]:
    """Pairs that do not load each other, and releases that must not be there. trio: what to install in their place."""
    lines = []
    for name, texts in exact.items():
        for requirement in map(Requirement, texts):
            other = found.get(requirement.name) if requirement.name in TRIO else None
            if other is not None and not requirement.specifier.contains(other, prereleases=True):
                advice = f"{name} was built for {requirement}: pip install {trio}"
                lines.append(Line(f"{name} + {requirement.name}", f"{found[name]} + {other}", f"{requirement}", advice))
    torch, audio = found.get("torch"), found.get("torchaudio")
    # torchaudio's metadata names no torch; its releases are numbered like the torch that they were built for
    if torch and audio and Version(torch).release[:2] != Version(audio).release[:2]:
        short = ".".join(map(str, Version(torch).release[:2]))
        advice = f"torchaudio was built for another torch: pip install {trio}"
        lines.append(Line("torchaudio + torch", f"{audio} + {torch}", f"torchaudio {short}", advice))
    for name, versions in _MALWARE.items():
        if found.get(name) in versions:
            advice = f"this release was malware: uninstall {name} and change your passwords and keys"
            lines.append(Line(name, found[name], f"not {' or '.join(versions)}", advice))
    return lines


def _extra(requirement: Requirement) -> str:
    """The extra that asks for a requirement; nothing if seqkit itself does."""
    named = re.search(r"extra == ['\"]([^'\"]+)", str(requirement.marker))
    return named[1] if named else ""


def run(args: Namespace) -> int:
    """Examine a recipe or a run, else the installation; 0 if it is healthy, 1 if something has to be mended."""
    if args.what is not None:
        return _examine(args.what, args.preset, args.overrides)
    if args.preset or args.overrides:
        raise UsageError("keys are a recipe's; give its name or its YAML file: seqkit doctor RECIPE --key value")
    return _installation()


def _examine(what: str, preset: str | None, overrides: list[str]) -> int:
    """Print the measurements of a recipe or a run, and for each finding its cause and the key that mends it."""
    from seqkit.doctor.subject import recipe_or_run

    config, folder = recipe_or_run(what, preset, overrides)
    from seqkit.doctor.examine import examine

    results = examine(config, folder)
    console = Console(markup=False, emoji=False, highlight=False)
    table = Table("check", "measured", "", title=one_line(folder or config["recipe"]), title_justify="left")
    for result in results:
        verdict = Text("finding", style="red") if result.finding else Text("ok" if result.applies else "–")
        table.add_row(result.name, one_line(result.measured), verdict)
    console.print(table)
    findings = [(result.name, result.finding) for result in results if result.finding is not None]
    for number, (name, finding) in enumerate(findings, start=1):
        console.print(f"\n{number}. {name}: {one_line(finding.problem)}", style="bold", soft_wrap=True)
        console.print(f"   cause: {one_line(finding.cause)}\n   mend:  {one_line(finding.fix)}", soft_wrap=True)
    if len(findings) > 1:
        console.print("\nThe first finding may explain those after it: mend it, and examine again.")
    if not findings:
        console.print("nothing is wrong")
    return 1 if findings else 0


def _installation() -> int:
    """Print versions, extras, data folder and machine; 0 if all agree, 1 if something has to be mended."""
    console = Console(highlight=False)
    found = {(d.metadata["Name"] or "").lower().replace("_", "-"): d.version for d in metadata.distributions()}
    exact = {name: metadata.requires(name) or [] for name in TRIO if name in found}
    lines = check(found, metadata.requires("seqkit") or [], exact)
    table = Table("package", "found", "wanted", "", title=f"seqkit {found.get('seqkit')}", title_justify="left")
    for line in lines:
        state = "ok" if line.found else "missing"
        state += f" (extra {line.extra})" if line.extra else ""
        table.add_row(
            line.name, line.found or "–", line.wanted, f"[red]{line.problem}[/red]" if line.problem else state
        )
    console.print(table)
    extras = sorted({line.extra.partition(",")[0] for line in lines if line.extra and line.found is None})
    if extras:
        console.print(f'for what is missing: pip install "seqkit\\[{",".join(extras)}]"')
    accelerator, broken = _accelerator()
    for name, value in {
        "command": _command(),
        "python": f"{platform.python_version()} at {sys.executable}",
        "machine": f"{platform.platform()}, {os.cpu_count()} cores",
        "accelerator": accelerator,
        "data": _data_folder(),
    }.items():
        console.print(f"{name:12} {value}", soft_wrap=True, markup=False)
    problems = [line for line in lines if line.problem]
    if not problems and not broken:
        console.print("all versions agree")
    return 1 if problems or broken else 0


def _command() -> str:
    """The command `seqkit` that a shell finds, and a warning where it is another program."""
    found, own = shutil.which("seqkit"), Path(sys.executable).parent / "seqkit"
    if found is None:
        return "not on the path; python -m seqkit is the same"
    if not own.exists() or not Path(found).samefile(own):
        return f"{found}, which is not the one of this Python; python -m seqkit is"
    return found


def _accelerator() -> tuple[str, bool]:
    """Name of the device that torch computes on, and whether torch itself cannot be imported."""
    try:
        import torch
    except Exception as error:  # a broken torch fails in many ways, and naming it is what we are for
        return f"torch does not import: {' '.join(str(error).split())}", True
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()} (CUDA {torch.version.cuda})", False
    if torch.backends.mps.is_available():
        return "Apple GPU (mps)", False
    return "none, the CPU will do", False


def _takes_files(folder: Path) -> bool:
    """Whether a file can be made there; tried, since permissions allow root what the file system refuses."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _data_folder() -> str:
    """Folder of the data sets, and whether new ones can be kept there."""
    from seqkit.data.download import data_folder

    folder = data_folder()
    source = "$SEQKIT_DATA" if os.environ.get("SEQKIT_DATA") else "the user's cache; $SEQKIT_DATA is not set"
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    state = "writable" if _takes_files(there) else "read-only: new data goes to the user's cache"
    return f"{folder} ({source}), {state}{'' if there == folder else ', made when needed'}"


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    text = "a recipe (name or YAML file), or a run folder"
    add_recipe(parser, "what", nargs="?", metavar="RECIPE|RUN", help=text)
