"""`seqkit describe PRESET|RECIPE`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from seqkit.cli.options import add_recipe, whole
from seqkit.config import complete, recipe_names
from seqkit.config.recipe import is_recipe
from seqkit.errors import UsageError, printable
from seqkit.registry import components, suggest


def run(args: Namespace) -> int:
    """Print parameters, FLOPs and memory of a preset or a recipe's model."""
    length, presets = args.context_length, components("preset")
    if length is not None and length < 1:
        raise UsageError(f"--context-length {length} counts tokens; give 1 or more")
    if args.what in presets:
        named = ("preset", "devices", "strategy")
        if wrong_options := [*args.overrides, *(f"--{name}" for name in named if getattr(args, name) is not None)]:
            wrong = wrong_options[0]
            raise UsageError(f"{args.what} is a backbone of fixed size and takes no {wrong}")
        from seqkit.analysis.cost import describe

        print(printable(describe(args.what, context_length=length)))
        return 0
    mixture = args.what.rpartition("/")[0]
    if not any(is_recipe(name) or name.endswith((".yaml", ".yml")) for name in (args.what, mixture)):
        known = [*presets, *recipe_names()]
        raise UsageError(f"there is no preset or recipe called {args.what!r}; {suggest(args.what, known)}")
    config = complete(args.what, args.preset, args.overrides)
    if args.devices is not None or args.strategy is not None:
        if length is not None:
            raise UsageError(
                "memory a device is of the recipe's batches; give --data.window in place of --context-length"
            )
        from seqkit.analysis.device_memory import STRATEGIES, recipe_memory

        own = config["trainer"]["strategy"]
        strategy = args.strategy or (own if own in STRATEGIES else "ddp")
        num_devices = 1 if args.devices is None else args.devices
        print(printable(recipe_memory(config, num_devices=num_devices, strategy=strategy)))
        return 0
    from seqkit.analysis.cost import describe_recipe

    print(printable(describe_recipe(config, context_length=length)))
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_recipe(parser, "what", help="a preset (seqkit list presets), or a recipe's name or YAML file")
    add = parser.add_argument
    add("--context-length", type=whole, help="number of tokens (default: as published, or as in the data)")
    text = "also estimate the memory of each of N devices, for a batch of the recipe"
    add("--devices", type=whole, metavar="N", help=text)
    add("--strategy", help="how the devices share the work: ddp or fsdp (default: the recipe's)")
