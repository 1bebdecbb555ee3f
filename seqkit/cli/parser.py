"""Options of all commands, as argparse reads them. Imports no torch, so that help and version return immediately."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from seqkit import __version__
from seqkit.registry import suggest

USAGE = 2

COMMANDS = {
    "fit": "fit",
    "compare": "compare",
    "scale": "scale",
    "validate": "evaluate",
    "test": "evaluate",
    "report": "report",
    "predict": "predict",
    "embed": "embed",
    "runs": "runs",
    "generate": "generate",
    "attention": "attention",
    "list": "list",
    "inspect": "inspect",
    "describe": "describe",
    "doctor": "doctor",
    "tune": "tune",
    "check": "check",
    "new": "new",
}
"""Every command, and the module of `seqkit.cli` that runs it."""

TAKE_KEYS = ("fit", "compare", "scale", "inspect", "describe", "doctor", "tune", "check")
"""Commands that also take a recipe's keys, as `--key value`."""


class Parser(argparse.ArgumentParser):
    """One line on a mistake, with the nearest command."""

    def error(self, message: str) -> NoReturn:
        if found := re.search(r"invalid choice: (.+) \(choose from (.+)\)$", message, re.DOTALL):
            got, known = found[1], re.findall(r"[\w-]+", found[2])
            option = re.match(r"argument (--[\w-]+)", message)
            what = f"{option[1]} is {got}" if option else f"there is no command {got}"
            message = f"{what}; {suggest(got[1:-1], known)}"
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _whole(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number written in digits, such as 7") from None


GENERATE: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("--temperature", float, "0 is greedy (default 0.8)"),
    ("--top-k", _whole, "sample only among the k likeliest tokens"),
    ("--top-p", float, "sample only among the likeliest tokens that have this probability together"),
    ("--min-p", float, "sample only tokens at least this share as probable as the likeliest"),
    ("--repetition-penalty", float, "above 1: tokens that occurred become less likely"),
    ("--seed", _whole, "sequence i is sampled with seed + i, 0 to 4294967295 (default 0)"),
    ("--num-beams", _whole, "beam search of this width instead"),
    ("--length-penalty", float, "of a beam search: 0 short, 1 the mean (default), more: long"),
)
"""How `seqkit generate` chooses tokens (`seqkit.generation.Sampling`, `BeamSearch`)."""


def add_compare(command: argparse.ArgumentParser) -> None:
    """Options of `seqkit compare`."""
    add = command.add_argument
    add("what", nargs="+", metavar="RECIPE|RUN", help="a recipe (name or YAML file), or folders of finished runs")
    add("--preset", help="a named variant of the recipe, such as debug")
    add("--backbones", metavar="A,B,…", help="the first is the reference (default: Transformer,LSTM,GRU,TCN,S4D,Mamba)")
    add("--vary", action="append", default=[], metavar="KEY=A,B", help="a recipe's key and its values; more than once")
    add("--match", default="parameters", help="equal parameters (default), flops or time, or none")
    add("--seeds", type=_whole, default=3, help="training runs of each candidate (default 3)")
    add("--lr-trials", type=_whole, default=3, help="learning rates of each optimizer, on validation data (default 3)")
    add("--dropout-trials", type=_whole, default=0, help="dropouts tried for each, after that (default 0)")
    add("--trial-share", type=float, default=1.0, help="of a run's steps that a trial takes (default 1: all)")
    add("--pretrain", help="masked or next: train without labels first, and report both rankings")
    add("--no-measure", action="store_true", help="leave out speed, latency and memory")
    add("--jobs", type=_whole, default=1, help="runs at a time (default 1)")
    add("--threads", type=_whole, help="of torch in each run (default: the cores shared by the jobs)")
    add("--storage", metavar="URL", help="a database that other workers share, such as sqlite:///study.db")
    add("--out", type=Path, help="the folder (default: runs/compare/RECIPE-DIGEST; the same command goes on there)")
    add("--dry-run", action="store_true", help="print the grid with its estimated minutes, and stop")


def add_scale(command: argparse.ArgumentParser) -> None:
    """Options of `seqkit scale`."""
    add = command.add_argument
    add("--sizes", required=True, metavar="W,W,…", help="widths of the backbone, three or more")
    add("--data-sizes", metavar="S,S,…", help="shares of the training data for the largest width, three or more")
    add("--seeds", type=_whole, default=3, help="training runs of each size (default 3)")
    add("--lr-trials", type=_whole, default=3, help="learning rates tried for each size (default 3)")
    add("--trial-share", type=float, default=1.0, help="of a run's steps that a trial takes (default 1: all)")
    add("--jobs", type=_whole, default=1, help="runs at a time (default 1)")
    add("--out", type=Path, help="the folder (default: runs/scale/RECIPE-DIGEST; the same command goes on there)")
    add("--dry-run", action="store_true", help="print the sizes with their estimated minutes, and stop")


def add_tune(command: argparse.ArgumentParser) -> None:
    """Options of `seqkit tune`."""
    add = command.add_argument
    add("--lr", action="store_true", help="find a learning rate (default: both, the batch size first)")
    add("--batch-size", action="store_true", help="find a batch size")
    add("--min-lr", type=float, default=1e-6, help="the lowest learning rate that is tried (default 1e-6)")
    add("--max-lr", type=float, default=10.0, help="the highest (default 10)")
    add("--steps", type=_whole, default=100, help="optimizer steps from one to the other (default 100)")
    add("--out", type=Path, help="folder for the pictures (default runs/tune)")


def add_inputs(command: argparse.ArgumentParser) -> None:
    """A run, and examples of the user's for it."""
    command.add_argument("run", type=Path, help="a run folder")
    what = "files, folders, patterns, tables, - for lines of standard input, or the text or SMILES itself"
    command.add_argument("inputs", nargs="+", metavar="PATH", help=what)
    command.add_argument("--input", metavar="COLUMN", help="of a table (default: the run's own, or by its name)")


def add_runs(command: argparse.ArgumentParser) -> None:
    """Options of `seqkit runs`."""
    add = command.add_argument
    add("folder", type=Path, nargs="?", default=Path("runs"), help="where to look (default: runs)")
    add(
        "--sort",
        choices=["time", "metric", "recipe", "data", "seconds", "state"],
        default="time",
        help="default: time, newest first",
    )
    add("--json", action="store_true", help="as JSON, a list of objects")


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; `command` is None where none was given."""
    top = Parser(
        prog="seqkit",
        description="Text, images, audio and graphs as tokens through one shared backbone.",
        epilog="Start with: seqkit list; seqkit inspect image/digits; seqkit fit image/digits --preset debug",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"seqkit {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    def add(name: str, text: str, **kwargs: Any) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False, **kwargs)
        plugin = "a Python file of yours that registers components"
        command.add_argument("--plugin", type=Path, action="append", default=[], help=plugin)
        return command

    def add_recipe(command: argparse.ArgumentParser, **more: Any) -> None:
        text = "a name (seqkit list recipes) or a YAML file, such as a run's config.yaml"
        command.add_argument("recipe", help=text, **more)
        command.add_argument("--preset", help="a named variant of the recipe, such as debug")

    keys = "Any key of the recipe: --data NAME_OR_PATH, --model.backbone LSTM, --seed 2, …"
    fit = add("fit", "train a recipe, test it, write a run folder", epilog=keys)
    add_recipe(fit, nargs="?")
    fit.add_argument("--resume", metavar="RUN", help="go on with an unfinished run; auto: with the recipe's newest")
    fit.add_argument("--out", type=Path, help="the run folder (default: runs/RECIPE/TIME)")
    fit.add_argument("--print_config", action="store_true", help="show all keys with their values, and stop")
    fit.add_argument("--keys", action="store_true", help="explain all keys, and stop")
    compare = add("compare", "is one backbone better than another on a recipe, or one run than another?", epilog=keys)
    add_compare(compare)
    scale = add("scale", "how the loss of a recipe falls with the size of the model and of the data", epilog=keys)
    add_recipe(scale)
    add_scale(scale)
    for name, split in (("validate", "validation"), ("test", "test")):
        add(name, f"metrics of a run on its data's {split} split").add_argument("run", type=Path, help="a run folder")
    report = add("report", "write a run's page again, or the page of several runs")
    report.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run folder; several: one page of all")
    report.add_argument(
        "--out", type=Path, metavar="FILE", help="the page (default: RUN/report.html; of several: runs/report.html)"
    )
    add_runs(add("runs", "all runs in a folder: recipe, data, metric, time, state"))
    predict = add("predict", "predictions for files, folders, tables, standard input, or texts and SMILES as words")
    add_inputs(predict)
    predict.add_argument("--probabilities", action="store_true", help="of each class")
    predict.add_argument("--top", type=_whole, metavar="K", help="the K likeliest classes, with their probabilities")
    predict.add_argument(
        "--format", choices=["text", "csv", "jsonl"], help="default: by the suffix of --out, else text"
    )
    predict.add_argument("--out", type=Path, metavar="FILE", help="write there, whole or not at all")
    embed = add("embed", "vectors of examples: pooled hidden states of the backbone's last layer")
    add_inputs(embed)
    embed.add_argument("--out", type=Path, metavar="FILE", required=True, help="a .parquet or .npz file")
    generate = add("generate", "continue a text, or generate from a source (translation, pronunciation)")
    generate.add_argument("run", type=Path, help="a run folder of a model that generates")
    generate.add_argument("--prompt", action="append", help="the text to continue, or the source; may be given again")
    generate.add_argument("--max-new-tokens", "--tokens", type=_whole, help="default 500, or as long as in training")
    generate.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text")
    generate.add_argument("--samples", type=_whole, metavar="N", help="N texts per prompt (default 1)")
    for option, kind, text in GENERATE:
        generate.add_argument(option, type=kind, help=text)
    generate.add_argument("--dtype", choices=["float32", "bfloat16"], help="of the weights (default: as saved)")
    attention = add("attention", "draw the attention of a run, on an example of yours")
    attention.add_argument("run", type=Path, help="a run folder")
    example = attention.add_mutually_exclusive_group(required=True)
    example.add_argument("--input", metavar="FILE", help="a file, or the text or SMILES itself")
    example.add_argument("--example", type=_whole, metavar="N", help="number N, from 0, of the run's own test data")
    attention.add_argument("--out", type=Path, help="folder for page and pictures (default RUN/attention)")
    listing = add("list", "what there is, and when to use it")
    listing.add_argument("what", nargs="?", help="recipes, tokenizers, backbones, …")
    inspect = add("inspect", "draw how one real example becomes tokens", epilog=keys)
    add_recipe(inspect)
    inspect.add_argument("--input", metavar="FILE", help="an example of yours: a file, or the text or SMILES itself")
    inspect.add_argument("--out", type=Path, help="folder for the picture (default runs/inspect)")
    describe = add("describe", "parameters, FLOPs and memory of a preset or a recipe, without training it", epilog=keys)
    describe.add_argument("what", help="a preset (seqkit list presets), or a recipe's name or YAML file")
    describe.add_argument("--preset", help="a named variant of the recipe")
    describe.add_argument("--context-length", type=_whole, help="tokens (default: as published, or the data's)")
    describe.add_argument("--devices", type=_whole, metavar="N", help="memory of each of so many, for a recipe's batch")
    describe.add_argument("--strategy", help="how they share the work: ddp or fsdp (default: the recipe's)")
    doctor = add("doctor", "what is wrong with a recipe or a run; of none: which versions disagree", epilog=keys)
    doctor.add_argument("what", nargs="?", metavar="RECIPE|RUN", help="a recipe (name or YAML file), or a run folder")
    doctor.add_argument("--preset", help="a named variant of the recipe, such as debug")
    tune = add("tune", "a learning rate and a batch size for a recipe, by short trainings", epilog=keys)
    add_recipe(tune)
    add_tune(tune)
    check = add("check", "does a tokenizer or a backbone keep the laws?", epilog="Its settings: --depth 2, …")
    check.add_argument("what", metavar="PACKAGE.CLASS", help="a class, a Python file, or a name (seqkit list)")
    check.add_argument("--input", action="append", default=[], metavar="FILE", help="a raw example: a file, or a text")
    new = add("new", "write the file of a working tokenizer, with its test, to start from")
    new.add_argument("kind", choices=("tokenizer",), help="tokenizer")
    new.add_argument("name", help="of its class, such as HeartBeats")
    new.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: here)")
    return top
