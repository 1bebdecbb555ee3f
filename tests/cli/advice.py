"""What the code tells a user to type, read from its strings: commands, flags, keys of recipes and pages of the docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from seqkit.cli.parser import COMMANDS, TRACEBACK, parser
from seqkit.config import recipe_names
from seqkit.config.merge import root
from seqkit.config.mixture import mixture_root
from seqkit.config.schema import Field
from seqkit.errors import UsageError
from seqkit.registry import components
from seqkit.registry.lookup import find

ROOT = Path(__file__).parents[2]

HOLE = "\0"
"""Stands in a text for what an f-string or `%s` puts there."""

PRINTERS = ("command", "in_shell")
"""Functions of `seqkit.registry.commands` whose arguments are the words of a command."""

COMMAND = re.compile(
    r"(?:^|[`(:;,]|\b(?:use|with|try|or|by)\b)\s*seqkit ([a-z]+(?: [^`;,)\n]*)?)", re.MULTILINE
)
"""A command behind what stands before advice, unlike the name of the program in a sentence."""
FLAG = re.compile(rf"(?<![\w<!-])--([a-z{HOLE}][\w.{HOLE}-]*)(?:[ =]([\w.{HOLE}-]+))?")
PAGE = re.compile(r"docs/[\w/.-]+\.md")

FREE = {"--key", "--depth", "--trainer.max_"}
"""Examples of any key, of an argument of the class that `check` is given, and a beginning of keys."""

FOREIGN = ("hf download", "tensorboard --", "mlflow ui", "pip download", "download --quiet")
"""Beginnings of commands of other programs."""

TRAINED = (
    "tokenizers", "interfaces", "generation", "serve", "nn", "pretrained", "data/inputs.py", "data/tables/text.py",
    "runs/answers.py", "runs/evaluate.py",
)  # fmt: skip
"""Places under seqkit/ whose errors come from commands of trained runs as well, which take no keys."""


@dataclass(frozen=True)
class Text:
    """A text that the code can show.

    path: its file. verb: the command whose module it is in; None: any may show it. is_quoted: True: one of `PRINTERS`
    writes it.
    """

    path: str
    line: int
    text: str
    verb: str | None = None
    is_quoted: bool = False


def texts() -> Iterator[Text]:
    """Every text of the package and of the recipes that could advise something."""
    for folder in ("seqkit", "recipes"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix == ".py":
                yield from texts_of_python(path, path.read_text(encoding="utf-8"))
            elif path.suffix in (".yaml", ".txt"):
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                    yield Text(str(path.relative_to(ROOT)), number, line.lstrip("# "))


def texts_of_python(path: Path, source: str) -> Iterator[Text]:
    """Strings of a Python file, f-strings and joined ones as one text each; of docstrings what is in backticks."""
    tree = ast.parse(source)
    verb = "import" if path.stem == "import_model" else path.stem
    verb = verb if path.parent.name == "cli" and verb in COMMANDS else None
    name = str(path.relative_to(ROOT))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside: set[int] = set()
    for node in ast.walk(tree):  # outer nodes come first
        if id(node) in inside:
            continue
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in PRINTERS:
            inside |= {id(part) for word in node.args for part in ast.walk(word)}
            words = " ".join(_shown(word) or HOLE for word in node.args)
            yield Text(name, node.lineno, f"seqkit {words}", is_quoted=True)
        elif isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values if isinstance(part, ast.Constant)}
        text = _shown(node)
        if id(node) in docs:
            text = "; ".join(f"`{found}`" for found in re.findall(r"`(seqkit [^`]*)`", text))
        if text:
            yield Text(name, node.lineno, text, verb)


def _shown(node: ast.AST) -> str:
    """The text of a string or an f-string, with a hole for each value; of anything else empty."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_shown(value) or HOLE for value in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[sd]|\{[\w.!:]+\}", HOLE, node.value)
    return ""


def faults(text: Text) -> Iterator[str]:
    """A sentence for each thing that a text advises and that there is not."""
    if any(word in text.text for word in FOREIGN):
        return
    for page in PAGE.findall(text.text):
        if not (ROOT / page).is_file():
            yield f"there is no page {page}"
    rest = text.text
    for command in COMMAND.findall(text.text):
        rest = rest.replace(command, "")
        yield from _faults_of_command(command)
        if HOLE in command and not text.is_quoted and not command.startswith("list "):
            yield "a command with values is printed by seqkit.registry.commands, which quotes them"
    for flag, value in FLAG.findall(rest):
        yield from _faults_of_flag(flag, value, text.verb, may_be_key=True)
        is_trained = text.path.removeprefix("seqkit/").startswith(TRAINED)
        if is_trained and "." in flag and "train" not in text.text:
            yield f"--{flag} is a key, which commands of a trained run do not take; advise to train with it"


def _faults_of_command(words: str) -> Iterator[str]:
    verb, _, rest = words.partition(" ")
    if verb not in COMMANDS:
        yield f"there is no command {verb}"
        return
    for flag, value in FLAG.findall(rest):
        known = "" if "--plugin" in rest else value  # a component of the user's
        yield from _faults_of_flag(flag, known, verb, may_be_key=options(verb)[1])
    named = re.match(r"[a-z]+/[a-z-]+(?=\s|$)", rest)
    if named and named[0] not in recipe_names() and options(verb)[1]:
        yield f"there is no recipe {named[0]}"


def _faults_of_flag(flag: str, value: str, verb: str | None, *, may_be_key: bool) -> Iterator[str]:
    """Why a flag is wrong. verb: the command that has to take it; None: any may. may_be_key: it may be a key."""
    name = f"--{flag.rstrip('.-')}"
    verbs = COMMANDS if verb is None else (verb,)
    if name in FREE or name == TRACEBACK or name == "--version":
        return
    if any(name in options(one)[0] for one in verbs):
        return
    if may_be_key and is_key(name[2:], value):
        return
    yield f"{verb or 'no command'} takes {name} {value}".rstrip()


@cache
def options(verb: str) -> tuple[frozenset[str], bool]:
    """Options of a command, and whether it takes keys of a recipe."""
    commands = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    with suppress(SystemExit):  # argparse prints them, and they are filled in by then
        commands[verb].parse_known_args(["--help"])
    return frozenset(commands[verb]._option_string_actions), bool(
        commands[verb].get_default("takes_keys")
    )


@cache
def is_key(path: str, value: str = "") -> bool:
    """Whether some recipe has a key of that path; a hole is any key. value: a component, if it looks like one."""
    first, *rest = path.split(".")
    if HOLE in first:
        return True
    if first == "tasks":
        return len(rest) < 2 or rest[1] == "lr_scale" or is_key(".".join(rest[1:]), value)
    # `data.X` is `data.source.X`
    paths = [rest, ["source", *rest]] if first == "data" and rest else [rest]
    fields = [top[first] for top in (root(), mixture_root()) if first in top]
    return any(_is_below(field, one, value) for field in fields for one in paths)


def _is_below(field: Field, path: list[str], value: str) -> bool:
    if not path or path == ["type"]:
        return _may_be(field, value)
    first, *rest = path
    if HOLE in first:
        return True
    if field.shape == "names":
        return _is_below(field.by_name([first])[first], rest, value)
    return any(
        first in below and _is_below(below[first], rest, value)
        for below in _below(field.section, field.kind, field.num_given, field.skip, field.more)
    )


@cache
def _below(
    section: str | None, kind: str | None, num_given: int | None, skip: tuple, more: tuple
) -> list[dict[str, Field]]:
    """The keys below a field, for each component that it may hold."""
    field = Field("x", kind=kind, num_given=num_given, section=section, skip=skip, more=more)
    found = []
    for name in [None] if kind is None else components(kind):
        if not field.is_plain:
            with suppress(UsageError, ImportError):  # which needs a package, or has no keys
                found.append(field.keys_below(name, "x"))
    return found


def _may_be(field: Field, value: str) -> bool:
    """Whether a value may stand there; a word as CamelCase has to be the name of a component where one stands."""
    word = value.rstrip(".")
    if field.kind is None or not re.fullmatch(r"[A-Z]\w*[a-z]\w*", word):
        return True
    try:
        find(field.kind, word)
    except ValueError:
        return False
    return True
