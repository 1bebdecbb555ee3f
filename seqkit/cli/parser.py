"""The commands, as argparse reads them. A command's module is imported when the command is given, so help is fast."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from seqkit import __version__
from seqkit.registry import suggest

USAGE = 2

COMMANDS = {
    "fit": "train a recipe, test the model, and write a run folder",
    "evaluate": "compute the metrics of a run on its test or validation split",
    "predict": "predict for files, folders, tables, standard input, texts or SMILES, or write their vectors",
    "generate": "continue a text, or generate one from a source, such as a translation",
    "compare": "compare backbones on a recipe, or finished runs: which is better, and how certain is that?",
    "report": "write the page of a run again, or one page for several runs",
    "attention": "draw the attention of a run on your own example",
    "inspect": "draw how an example of a recipe becomes tokens",
    "check": "check a tokenizer, backbone, attention mechanism or position against the laws that every component keeps",
    "list": "list recipes and components; of one recipe or preset, count parameters, FLOPs and memory",
    "runs": "list the runs in a folder: recipe, data, metric, time, state",
    "import": "turn a model of another library into a run folder",
    "export": "write a run's model as a graph that runs without seqkit, or as a folder for other libraries",
    "serve": "answer requests over HTTP: predictions, vectors, texts",
    "new": "write a working tokenizer or backbone with its test, as a starting point",
    "tune": "find a learning rate for a recipe with a short training",
    "scale": "fit a power law of loss and number of parameters to finished runs",
    "doctor": "find what is wrong with a recipe or a run; without arguments, check the installed versions",
}
"""Every command, and what it does."""

EXAMPLES = {
    "fit": (
        "reviews.csv --out runs/reviews",
        "image/digits --preset debug --out runs/digits",
        "text/char-lm --preset debug --model.backbone LSTM --seed 2 --out runs/letters",
    ),
    "evaluate": ("runs/digits --split valid",),
    "predict": (
        'runs/reviews "a fine film"',
        "runs/reviews reviews.csv --out answers.csv --probabilities",
    ),
    "generate": ('runs/letters --prompt "To be" --samples 2',),
    "compare": (
        "image/digits --preset debug --backbones Transformer,GRU --seeds 2",
        "image/digits --preset debug --backbones Transformer --vary width=8,16,32 --match none --out runs/sizes",
    ),
    "report": ("runs/digits runs/letters --out both.html",),
    "attention": ("runs/digits --example 0",),
    "inspect": ("image/digits", 'text/char-lm --input "To be, or not to be"'),
    "check": ("LSTM --quick", "hf:bert --quick"),
    "list": ("backbones", "image/digits --model.backbone.depth 4"),
    "runs": ("runs --sort metric",),
    "import": ("bert-tiny runs/bert",),
    "export": ("runs/digits --to onnx --out digits.onnx",),
    "serve": ("runs/reviews --port 8000",),
    "new": ("tokenizer Morse",),
    "tune": ("image/digits --preset debug",),
    "scale": ("runs/sizes",),
    "doctor": ("image/digits --preset debug", "runs/digits"),
}
"""Words to type behind each command, for its help."""

MEANT = {
    "fit": "train run learn",
    "evaluate": "test",
    "predict": "infer inference",
    "inspect": "show view",
    "compare": "benchmark sweep",
    "report": "plot",
    "list recipes": "recipes",
    "--help": "help",
    "--version": "version",
}
"""For each command, the words that are answered with it."""

TRACEBACK = "--traceback"


def module_of(command: str) -> Any:
    """The module of a command, which has `add_arguments(parser)` and `run(args)`."""
    return import_module(f"seqkit.cli.{'import_model' if command == 'import' else command}")


class Parser(argparse.ArgumentParser):
    """Tells a key's value from a free word, and errs in one line; a command's options are those of its module."""

    is_filled = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words; what belongs to no option of the command, such as `--key=value`, is the second result."""
        if self._subparsers:
            return super().parse_known_args(args, namespace)
        if not self.is_filled:
            self.is_filled = True
            module_of(self.prog.rpartition(" ")[2]).add_arguments(self)
            plugin = "your Python file that registers components"
            self.add_argument("--plugin", type=Path, action="append", default=[], help=plugin)
        found, rest = super().parse_known_args(list(self._with_values([*args])), namespace)
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
            key, is_pair, given = word.partition("=")
            if not is_pair and words:
                given = words[0]
            if key == "--recipe" and (is_recipe(given) or (given and Path(given).exists())):
                self.error(
                    f"a recipe stands without --recipe, and your data behind --data: {self.prog} {given}"
                )
            is_key = (
                re.match(r"--|-[A-Za-z]", word)
                and "=" not in word
                and word not in self._option_string_actions
            )
            if is_key and words and not words[0].startswith("--") and not is_recipe(words[0]):
                word = f"{word}={words.pop(0)}"
            yield word

    def format_help(self) -> str:
        """The help, with examples of the command."""
        examples = EXAMPLES.get(self.prog.rpartition(" ")[2], ())
        lines = [f"  {self.prog} {words}" for words in examples]
        return super().format_help() + "\n".join(["\nExamples:", *lines, ""] if lines else [])

    def error(self, message: str) -> NoReturn:
        about = re.match(r"argument ([\w-]+)[^:]*: ", message)
        what = about[1] if about else ""
        if found := re.search(r"invalid choice: (.+) \(choose from (.+)\)$", message, re.DOTALL):
            given = found[1][1:-1]
            advice = suggest(given, re.findall(r"[\w-]+", found[2]))
            if what == "COMMAND":
                what = f"there is no command {found[1]}"
                meant = [name for name, words in MEANT.items() if given in words.split()]
                advice = f"type seqkit {meant[0]}" if meant else advice
            else:
                what = f"{what} is {found[1]}"
            message = f"{what}; {advice}"
        elif message.endswith("expected one argument"):
            message = f"{what} has no value; write {what} VALUE"
        elif needed := re.match(r"one of the arguments (.+) is required", message):
            message = f"it needs {' or '.join(needed[1].split())}; see {self.prog} --help"
        elif needed := re.match(r"the following arguments are required: (.+)", message):
            option = self._option_string_actions.get(needed[1])
            choices = f" {'|'.join(option.choices)}" if option and option.choices else ""
            message = f"it needs {needed[1]}{choices}; see {self.prog} --help"
        self.exit(USAGE, f"{self.prog}: {message}\n")


def is_recipe(word: str) -> bool:
    """Whether a word is the name or the file of a recipe, or of a mixture's task, which is never the value of a key."""
    from seqkit.config.recipe import recipe_names

    return word.endswith((".yaml", ".yml")) or bool(
        {word, word.rpartition("/")[0]} & set(recipe_names())
    )


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; `command` is None if none was given."""
    top = Parser(
        prog="seqkit",
        description="Text, images, audio and graphs as tokens through one shared backbone.",
        epilog="Start with: seqkit list; seqkit inspect image/digits; seqkit fit image/digits --preset debug",
    )
    # another tool, for DNA, has the same name
    version = f"seqkit {__version__} at {Path(__file__).parents[1]}"
    top.add_argument(
        "--version", action="version", version=version, help="print which seqkit this is"
    )
    top.add_argument(
        TRACEBACK, action="store_true", help="of any command: show where an error comes from"
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    return top
