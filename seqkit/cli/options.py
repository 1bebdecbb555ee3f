"""Options that several commands share."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

ONE_INPUT = "a file, text or SMILES; part=value,… if examples have parts"
"""Help on an `--input` that is one example."""


def whole(word: str) -> int:
    """The whole number that a word is."""
    try:
        return int(word)
    except ValueError:
        raise ArgumentTypeError(
            f"{word!r} is not a whole number written in digits, such as 7"
        ) from None


def add_recipe(command: ArgumentParser, name: str = "recipe", **more: Any) -> None:
    """A recipe, its preset, and any of its keys."""
    text = "name of a recipe (seqkit list recipes), a YAML file such as a run's config.yaml, or your own data"
    command.add_argument(name, **{"help": text, **more})
    command.add_argument("--preset", help="variant of the recipe, such as debug")
    command.set_defaults(takes_keys=True)
    command.epilog = "Also takes any key of the recipe, such as --data NAME_OR_PATH, --model.backbone LSTM or --seed 2."


def add_allowed(command: ArgumentParser) -> None:
    """`--allow-broken-laws`, of commands that train, in place of the key `trainer.allow_broken_laws`."""
    text = "train a model that breaks a law, such as one that reads the future; its results are compared with nothing"
    command.add_argument("--allow-broken-laws", action="store_true", help=text)


def add_run(command: ArgumentParser) -> None:
    """A run folder."""
    command.add_argument("run", type=Path, help="a run folder")


def add_data(command: ArgumentParser) -> None:
    """`--data`, where a run's files are now."""
    text = "where the run's data is now, if it has moved: its file or folder (default: where the run says)"
    command.add_argument("--data", metavar="PATH", help=text)


def add_out(command: ArgumentParser, text: str, **more: Any) -> None:
    """`--out`, a new file or folder, and `--force`, which replaces an earlier output of seqkit."""
    command.add_argument("--out", type=Path, help=text, **more)
    command.add_argument(
        "--force", action="store_true", help="replace what seqkit wrote to --out before"
    )


def add_device(command: ArgumentParser) -> None:
    """Device that the model runs on, and type of its weights."""
    device = "auto (default: a GPU if any), cpu, cuda or mps"
    command.add_argument("--device", default="auto", metavar="NAME", help=device)
    dtype = "type of the weights (default auto: bfloat16 to generate on a GPU that has it, else as saved)"
    command.add_argument(
        "--dtype", choices=["auto", "float32", "bfloat16", "float16"], default="auto", help=dtype
    )


def add_study(command: ArgumentParser, each: str) -> None:
    """Options of commands that train many models. each: the models, one of which `--seeds` counts the runs of."""
    add = command.add_argument
    name = command.prog.rpartition(" ")[2]
    add(
        "--seeds",
        type=whole,
        default=3,
        help=f"number of training runs for each {each} (default 3)",
    )
    trials = "number of learning rates to try for each optimizer, on validation data (default 3)"
    add("--lr-trials", type=whole, default=3, help=trials)
    add("--jobs", type=whole, default=1, help="number of runs at a time (default 1)")
    add(
        "--out",
        type=Path,
        help=f"folder (default: runs/{name}/RECIPE-DIGEST); repeat the command to continue",
    )
    add("--dry-run", action="store_true", help="print the models and the number of runs, and stop")
