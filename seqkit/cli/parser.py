"""The commands, as argparse reads them. A command's module is imported when the command is given, so help is fast."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from seqkit import __version__
from seqkit.registry import suggest

USAGE = 2

COMMANDS = {
    "fit": "train a recipe, test the model, and write a run folder",
    "compare": "compare backbones on a recipe, or finished runs: which is better, and how certain is that?",
    "scale": "measure how the loss of a recipe falls with the size of model and data",
    "validate": "compute the metrics of a run on the validation split",
    "test": "compute the metrics of a run on the test split",
    "report": "write the page of a run again, or one page for several runs",
    "runs": "list the runs in a folder: recipe, data, metric, time, state",
    "predict": "predict for files, folders, tables, standard input, texts or SMILES",
    "embed": "write vectors of examples: pooled hidden states of the backbone's last layer",
    "generate": "continue a text, or generate one from a source, such as a translation",
    "import": "turn a model of another library into a run folder",
    "export": "write a run's model as a graph that runs without seqkit, or as a folder for other libraries",
    "serve": "answer requests over HTTP: predictions, vectors, texts",
    "attention": "draw the attention of a run on your own example",
    "list": "list recipes and components, and when to use each",
    "inspect": "draw how an example of a recipe becomes tokens",
    "describe": "count parameters, FLOPs and memory of a preset or a recipe, without training",
    "doctor": "find what is wrong with a recipe or a run; without arguments, check the installed versions",
    "tune": "find a learning rate and a batch size for a recipe with short trainings",
    "check": "check a tokenizer, backbone, attention mechanism or position against the laws that every component keeps",
    "new": "write a working tokenizer or backbone with its test, as a starting point",
}
"""Every command, and what it does."""

MODULES = {"validate": "evaluate", "test": "evaluate", "import": "import_model"}
"""Modules of `seqkit.cli` that are not called as their command."""


def module_of(command: str) -> Any:
    """The module of a command, which has `add_arguments(parser)` and `run(args)`."""
    return import_module(f"seqkit.cli.{MODULES.get(command, command)}")


class Once(argparse.Action):
    """Stores the value of an option, which may not be given again with another value."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        before = vars(self).setdefault("given", values)
        if repr(before) != repr(values):  # nan differs from itself
            parser.error(f"{option} is given twice, as {before} and as {values}; give it once")
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser that tells a key's value from a free word, refuses an option given twice, and errs in one line."""

    def __init__(self, **kwargs: Any):
        super().__init__(allow_abbrev=False, **kwargs)
        self.register("action", None, Once)
        self._is_filled = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words; what belongs to no option of the command, such as `--key=value`, is the second result."""
        words = list(sys.argv[1:] if args is None else args)
        if not (self._subparsers or self._is_filled):
            self._is_filled = True
            plugin = "your Python file that registers components"
            self.add_argument("--plugin", type=Path, action="append", default=[], help=plugin)
            module_of(self.prog.rpartition(" ")[2]).add_arguments(self)
        found, rest = super().parse_known_args(words if self._subparsers else list(self._with_values(words)), namespace)
        for action in self._get_positional_actions():
            if action.nargs == "*":  # argparse takes such words before the first option alone
                later = [word for word in rest if word == "-" or not word.startswith("-")]
                setattr(found, action.dest, [*getattr(found, action.dest), *later])
                rest = [word for word in rest if word not in later]
        return found, rest

    def _with_values(self, words: list[str]) -> Iterator[str]:
        """Words in which a key and its value are one, `--key=value`, so that the value is not taken for the recipe."""
        while words:
            word = words.pop(0)
            is_key = re.match(r"--|-[A-Za-z]", word) and "=" not in word and word not in self._option_string_actions
            if is_key and words and not words[0].startswith("--") and not is_recipe(words[0]):
                word = f"{word}={words.pop(0)}"
            yield word

    def error(self, message: str) -> NoReturn:
        if found := re.search(r"invalid choice: (.+) \(choose from (.+)\)$", message, re.DOTALL):
            got, known = found[1], re.findall(r"[\w-]+", found[2])
            option = re.match(r"argument (--[\w-]+)", message)
            what = f"{option[1]} is {got}" if option else f"there is no command {got}"
            message = f"{what}; {suggest(got[1:-1], known)}"
        self.exit(USAGE, f"{self.prog}: {message}\n")


def is_recipe(word: str) -> bool:
    """Whether a word is the name or the file of a recipe, or of a mixture's task, which is never the value of a key."""
    from seqkit.config.recipe import recipe_names

    return word.endswith((".yaml", ".yml")) or bool({word, word.rpartition("/")[0]} & set(recipe_names()))


def as_typed(overrides: list[str], words: list[str]) -> list[str]:
    """Keys and values as they were typed, `--key=value` or `--key value`, by which a comparison's folder is named."""
    return [part for word in overrides for part in ([word] if word in words else word.split("=", 1))]


class _Version(argparse.Action):
    """Print which seqkit this is, and end. Another tool, for DNA, has the same command name."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version
        from platform import python_version

        try:
            torch = f"torch {version('torch')}"
        except PackageNotFoundError:
            torch = "no torch"
        print(f"seqkit {__version__} at {Path(__file__).parents[1]}, Python {python_version()}, {torch}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; `command` is None if none was given."""
    top = Parser(
        prog="seqkit",
        description="Text, images, audio and graphs as tokens through one shared backbone.",
        epilog="Start with: seqkit list; seqkit inspect image/digits; seqkit fit image/digits --preset debug",
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print the versions of seqkit, Python and torch")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text, description=text)
    return top
