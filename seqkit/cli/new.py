"""`seqkit new tokenizer NAME`, `seqkit new backbone NAME`: a file with a working one, and its test."""

from __future__ import annotations

import keyword
import re
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path

from seqkit.errors import UsageError, one_line
from seqkit.registry import components
from seqkit.registry.commands import in_shell

TEMPLATES = Path(__file__).parent / "templates"

TRY = {
    "tokenizer": ("text/char-lm", "--tokenizer"),
    "backbone": ("image/digits", "--model.backbone"),
}
"""A recipe that trains a component of each kind, and the key that names it."""


def run(args: Namespace) -> int:
    """Write the component's file and its test into a folder; print how to try them."""
    name = args.name
    folder = args.out or Path()
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(module):
        raise UsageError(f"{name!r} cannot be the name of a class; give one such as HeartBeats")
    if name.lower() in map(str.lower, components(args.kind)):
        raise UsageError(f"there is a {args.kind} {name} already; pick another name")
    if find_spec(module) is not None:
        raise UsageError(
            f"there is a Python module {module} already, which yours would hide; pick another name"
        )
    files = {args.kind: folder / f"{module}.py", f"test_{args.kind}": folder / f"test_{module}.py"}
    for path in files.values():
        if path.exists():
            raise UsageError(f"{path} exists already; pick another name, or --out FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    for template, path in files.items():
        text = (TEMPLATES / f"{template}.py.txt").read_text(encoding="utf-8")
        path.write_text(text.replace("NAME", name).replace("MODULE", module), encoding="utf-8")
    file, test = files.values()
    recipe, key = TRY[args.kind]
    print(f"wrote {one_line(file)} and {one_line(test)}; try\n  {in_shell('check', file)}")
    print(f"  {in_shell('fit', recipe, '--plugin', file, key, name, '--preset', 'debug')}")
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("kind", choices=("tokenizer", "backbone"), help="tokenizer or backbone")
    parser.add_argument("name", help="name of the class, such as HeartBeats")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: here)")
