"""Options of all commands, as argparse reads them. Imports no torch, so that help and version return immediately."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from seqkit import __version__
from seqkit.registry import suggest

USAGE = 2

NAMES = (
    "fit", "compare", "scale", "validate", "test", "report", "predict", "embed", "runs", "generate", "attention",
    "export", "import", "serve", "list", "inspect", "describe", "doctor", "tune", "check", "new",
)  # fmt: skip
COMMANDS = {name: name for name in NAMES} | {"validate": "evaluate", "test": "evaluate", "import": "import_model"}
"""Every command, and the module of `seqkit.cli` that runs it."""

TAKE_KEYS = ("fit", "compare", "scale", "inspect", "describe", "doctor", "tune", "check")
"""Commands that also take a recipe's keys, as `--key value`."""

OWN_TABLES = (
    "A table with more than one usable column is learnt from all its columns; a lone text column takes the text "
    "recipe; the target is the named column, else one with a well-known name, else the last of numbers or classes."
)
"""The recipe and target of `seqkit fit TABLE`."""


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

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words; what belongs to no option of the command, such as `--key=value`, is the second result."""
        words = list(sys.argv[1:] if args is None else args)
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


def _whole(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number written in digits, such as 7") from None


def _shares(word: str) -> list[float]:
    try:
        return [float(part) for part in word.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is no list of numbers, such as 0.25,0.5") from None


GENERATE: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("--temperature", float, "0.8 by default; 0 always takes the likeliest token"),
    ("--top-k", _whole, "sample only among the k likeliest tokens"),
    ("--top-p", float, "sample only among the likeliest tokens that together have this probability"),
    ("--min-p", float, "leave out tokens below this share of the likeliest token's probability"),
    ("--repetition-penalty", float, "above 1, tokens that have occurred become less likely"),
    ("--seed", _whole, "0 to 4294967295 (default 0); sample i uses seed + i"),
    ("--num-beams", _whole, "beam search of this width, in place of sampling"),
    (
        "--length-penalty",
        float,
        "for beam search: 1 ranks texts by mean log-probability (default); more prefers longer ones, 0 short ones",
    ),
)
"""How `seqkit generate` chooses tokens (`seqkit.generation.Sampling`, `BeamSearch`)."""


def add_recipe(command: argparse.ArgumentParser, name: str = "recipe", **more: Any) -> None:
    """A recipe and its preset."""
    text = "name of a recipe (seqkit list recipes), a YAML file such as a run's config.yaml, or your own data"
    command.add_argument(name, **{"help": text, **more})
    command.add_argument("--preset", help="variant of the recipe, such as debug")


def add_run(command: argparse.ArgumentParser) -> None:
    """A run folder."""
    command.add_argument("run", type=Path, help="a run folder")


def add_study(command: argparse.ArgumentParser, each: str) -> None:
    """Options of commands that train many models. each: the models, one of which `--seeds` counts the runs of."""
    add, name = command.add_argument, command.prog.rpartition(" ")[2]
    add("--seeds", type=_whole, default=3, help=f"number of training runs for each {each} (default 3)")
    add(
        "--lr-trials",
        type=_whole,
        default=3,
        help="number of learning rates to try for each optimizer, on validation data (default 3)",
    )
    add("--trial-share", type=float, default=1.0, help="length of a trial, as a share of a run's steps (default 1)")
    add("--jobs", type=_whole, default=1, help="number of runs at a time (default 1)")
    add("--out", type=Path, help=f"folder (default: runs/{name}/RECIPE-DIGEST); repeat the command to continue")
    add("--dry-run", action="store_true", help="print the models and the number of runs, and stop")


def add_compare(command: argparse.ArgumentParser) -> None:
    """Options of `seqkit compare`."""
    text = "a recipe (name or YAML file), or folders of finished runs"
    add_recipe(command, "what", nargs="+", metavar="RECIPE|RUN", help=text)
    add = command.add_argument
    add(
        "--backbones",
        metavar="A,B,…",
        help="backbones, first the reference (default: Transformer,LSTM,GRU,TCN,S4D,Mamba)",
    )
    add(
        "--vary",
        action="append",
        default=[],
        metavar="KEY=A,B",
        help="compare values of a key of the recipe; may be given more than once",
    )
    add("--match", default="parameters", help="what is made equal: parameters (default), flops, time or none")
    add_study(command, "candidate")
    text = "also train for these shares of a run's steps, such as 0.25,0.5, and draw curves"
    add("--run-shares", type=_shares, default=[], metavar="A,B,…", help=text)
    add("--least", type=float, help="smallest difference that counts, as the metric is shown (default: its last digit)")
    add("--plan", action="store_true", help="write which runs are planned and how the result is decided, and stop")
    add("--pretrain", help="masked or next: first train without labels, and report both rankings")
    add("--no-measure", action="store_true", help="do not measure speed, latency and memory")
    add("--no-depths", action="store_true", help="do not also try half and double the depth at the same budget")
    add("--threads", type=_whole, help="threads of each run (default: OMP_NUM_THREADS, or cores divided by jobs)")


def add_tune(command: argparse.ArgumentParser) -> None:
    """Options of `seqkit tune`."""
    add = command.add_argument
    add("--lr", action="store_true", help="find only a learning rate (default: a batch size, then a learning rate)")
    add("--batch-size", action="store_true", help="find only a batch size")
    add("--min-lr", type=float, default=1e-6, help="lowest learning rate to try (default 1e-6)")
    add("--max-lr", type=float, default=10.0, help="highest learning rate to try (default 10)")
    add("--steps", type=_whole, default=100, help="optimizer steps from the lowest to the highest (default 100)")
    add_out(command, "folder for the pictures (default runs/tune)")


def add_out(command: argparse.ArgumentParser, text: str, **more: Any) -> None:
    """`--out`, a new file or folder, and `--force`, which replaces an earlier output of seqkit."""
    command.add_argument("--out", type=Path, help=text, **more)
    command.add_argument("--force", action="store_true", help="replace what seqkit wrote to --out before")


def add_inputs(command: argparse.ArgumentParser) -> None:
    """A run, and examples of the user's for it."""
    add_run(command)
    what = "files, folders, patterns, tables, a text or SMILES; - reads lines of standard input"
    command.add_argument("inputs", nargs="*", metavar="PATH", help=what)
    command.add_argument(
        "--input",
        metavar="COLUMN",
        help="column of a table (default: as in training, or found by its name); if examples have parts, one example, "
        "such as image=a.png,text=…",
    )
    add_device(command)


def add_device(command: argparse.ArgumentParser) -> None:
    """Device that the model runs on, and type of its weights."""
    command.add_argument(
        "--device", default="auto", metavar="NAME", help="auto (default: a GPU if any), cpu, cuda or mps"
    )
    command.add_argument("--dtype", choices=["float32", "bfloat16"], help="type of the weights (default: as saved)")


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

    def add(name: str, text: str) -> argparse.ArgumentParser:
        keys = "Also takes any key of the recipe, such as --data NAME_OR_PATH, --model.backbone LSTM or --seed 2."
        settings = "Also takes the arguments of the class, such as --depth 2."
        epilog = settings if name == "check" else keys if name in TAKE_KEYS else None
        command = commands.add_parser(name, help=text, description=text, epilog=epilog)
        plugin = "your Python file that registers components"
        command.add_argument("--plugin", type=Path, action="append", default=[], help=plugin)
        return command

    fit = add("fit", "train a recipe, test the model, and write a run folder")
    fit.epilog = f"Your own file or folder may stand in place of the recipe. {OWN_TABLES} {fit.epilog}"
    add_recipe(fit, nargs="?")
    fit.add_argument("--resume", metavar="RUN", help="continue an unfinished run; auto: the newest of the recipe")
    fit.add_argument("--end-here", action="store_true", help="end the unfinished run with the weights that it has")
    fit.add_argument("--out", type=Path, help="the run folder (default: runs/RECIPE/TIME)")
    text = "train on N random splits of the data, and give the means with intervals"
    fit.add_argument("--splits", type=_whole, metavar="N", help=text)
    fit.add_argument("--no-baseline", action="store_true", help="do not compare with a classical method")
    fit.add_argument("--print_config", action="store_true", help="print all keys with their values, and stop")
    fit.add_argument("--keys", action="store_true", help="explain all keys, and stop")
    add_compare(
        add("compare", "compare backbones on a recipe, or finished runs: which is better, and how certain is that?")
    )
    scale = add("scale", "measure how the loss of a recipe falls with the size of model and data")
    add_recipe(scale)
    scale.add_argument("--sizes", required=True, metavar="W,W,…", help="widths of the backbone, three or more")
    shares = "shares of the training data for the largest width, three or more"
    scale.add_argument("--data-sizes", metavar="S,S,…", help=shares)
    add_study(scale, "size")
    for name, split in (("validate", "validation"), ("test", "test")):
        add_run(add(name, f"compute the metrics of a run on the {split} split"))
    report = add("report", "write the page of a run again, or one page for several runs")
    report.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="one or more run folders")
    add_out(report, "the page (default: RUN/report.html, or runs/report.html for several runs)", metavar="FILE")
    runs = add("runs", "list the runs in a folder: recipe, data, metric, time, state")
    runs.add_argument("folder", type=Path, nargs="?", default=Path("runs"), help="where to look (default: runs)")
    columns = ["time", "metric", "recipe", "data", "seconds", "state"]
    runs.add_argument("--sort", choices=columns, default="time", help="column to sort by (default: time, newest first)")
    runs.add_argument("--json", action="store_true", help="print a JSON list of objects")
    predict = add("predict", "predict for files, folders, tables, standard input, texts or SMILES")
    add_inputs(predict)
    text = "predict for the test split of the run's own data, with the target of each example"
    predict.add_argument("--test", action="store_true", help=text)
    text = "copy columns of the table into the output, such as an id; may be given more than once"
    predict.add_argument("--keep", action="append", metavar="COLUMN[,COLUMN]", help=text)
    predict.add_argument("--probabilities", action="store_true", help="write the probability of each class")
    predict.add_argument(
        "--top", type=_whole, metavar="K", help="write the K likeliest classes with their probabilities"
    )
    formats = "default: that of the suffix of --out, or text"
    predict.add_argument("--format", choices=["text", "csv", "jsonl"], help=formats)
    add_out(predict, "output file; it is complete, or not there at all", metavar="FILE")
    embed = add("embed", "write vectors of examples: pooled hidden states of the backbone's last layer")
    add_inputs(embed)
    add_out(embed, "a .parquet or .npz file", metavar="FILE", required=True)
    generate = add("generate", "continue a text, or generate one from a source, such as a translation")
    add_run(generate)
    generate.add_argument(
        "--prompt",
        action="append",
        help="text to continue, or text to start from, or a file with it; may be given more than once",
    )
    generate.add_argument(
        "--max-new-tokens",
        "--tokens",
        type=_whole,
        help="most new tokens (default: 500, or the longest length in training)",
    )
    generate.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text")
    generate.add_argument("--samples", type=_whole, metavar="N", help="number of texts per prompt (default 1)")
    for option, kind, text in GENERATE:
        generate.add_argument(option, type=kind, help=text)
    add_device(generate)
    take = add("import", "turn a model of another library into a run folder")
    take.add_argument("source", metavar="SOURCE", help="a folder that transformers saved, or hf:OWNER/NAME[@REVISION]")
    take.add_argument("out", type=Path, metavar="RUN", help="the run folder, which must be new")
    export = add(
        "export", "write a run's model as a graph that runs without seqkit, or as a folder for other libraries"
    )
    add_run(export)
    export.add_argument(
        "--to", choices=("torch", "onnx", "hf", "safetensors"), required=True,
        help="torch: a .pt2 file; onnx: a .onnx file; hf: a folder for transformers; safetensors: one for seqkit.load",
    )  # fmt: skip
    export.add_argument(
        "--out", type=Path, metavar="PLACE", help="file or folder (default: named after the run, in the current folder)"
    )
    export.add_argument("--push", metavar="OWNER/NAME", help="also upload the folder to Hugging Face's hub")
    export.add_argument("--private", action="store_true", help="with --push: only the owner sees a new model")
    serve = add("serve", "answer requests over HTTP: predictions, vectors, texts")
    serve.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folder, or NAME=RUN; several runs are served at /NAME"
    )
    serve.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)"
    )
    serve.add_argument("--port", type=_whole, default=8000, help="port to listen on (default 8000)")
    serve.add_argument(
        "--max-batch-size", type=_whole, default=32, metavar="N", help="largest batch, in examples (default 32)"
    )
    serve.add_argument(
        "--timeout", type=float, default=30.0, metavar="S", help="seconds after which a request fails (default 30)"
    )
    add_device(serve)
    attention = add("attention", "draw the attention of a run on your own example")
    add_run(attention)
    example = attention.add_mutually_exclusive_group(required=True)
    one = "a file, text or SMILES; part=value,… if examples have parts"
    example.add_argument("--input", metavar="FILE", help=one)
    example.add_argument("--example", type=_whole, metavar="N", help="example N of the run's test data, counted from 0")
    add_out(attention, "folder for page and pictures (default RUN/attention)")
    listing = add("list", "list recipes and components, and when to use each")
    listing.add_argument("what", nargs="?", help="recipes, tokenizers, backbones, …")
    inspect = add("inspect", "draw how an example of a recipe becomes tokens")
    add_recipe(inspect)
    inspect.add_argument("--input", metavar="FILE", help=f"your own example: {one}")
    add_out(inspect, "folder for the picture (default runs/inspect)")
    describe = add("describe", "count parameters, FLOPs and memory of a preset or a recipe, without training")
    add_recipe(describe, "what", help="a preset (seqkit list presets), or a recipe's name or YAML file")
    describe.add_argument(
        "--context-length", type=_whole, help="number of tokens (default: as published, or as in the data)"
    )
    describe.add_argument(
        "--devices",
        type=_whole,
        metavar="N",
        help="also estimate the memory of each of N devices, for a batch of the recipe",
    )
    describe.add_argument("--strategy", help="how the devices share the work: ddp or fsdp (default: the recipe's)")
    doctor = add("doctor", "find what is wrong with a recipe or a run; without arguments, check the installed versions")
    text = "a recipe (name or YAML file), or a run folder"
    add_recipe(doctor, "what", nargs="?", metavar="RECIPE|RUN", help=text)
    tune = add("tune", "find a learning rate and a batch size for a recipe with short trainings")
    add_recipe(tune)
    add_tune(tune)
    check = add(
        "check",
        "check a tokenizer, backbone, attention mechanism or position against the laws that every component keeps",
    )
    check.add_argument("what", metavar="PACKAGE.CLASS", help="a class, a Python file, or a name (seqkit list)")
    check.add_argument("--quick", action="store_true", help="leave out slow laws, and name them")
    check.add_argument("--device", default="cpu", metavar="NAME", help="auto, cpu (default), cuda or mps")
    check.add_argument("--input", action="append", default=[], metavar="FILE", help="raw example: a file or a text")
    new = add("new", "write a working tokenizer or backbone with its test, as a starting point")
    new.add_argument("kind", choices=("tokenizer", "backbone"), help="tokenizer or backbone")
    new.add_argument("name", help="name of the class, such as HeartBeats")
    new.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: here)")
    return top
