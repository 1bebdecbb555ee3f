"""`seqkit import SOURCE RUN`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from seqkit.errors import UsageError, one_line
from seqkit.registry.commands import in_shell


def run(args: Namespace) -> int:
    """Write a model of another library as a run folder, and say what it can do."""
    from seqkit.runs.folder import check_new

    check_new(args.out)  # a mistake is said before what imports torch
    if not (args.source.startswith("hf:") or Path(args.source).exists()):
        raise UsageError(f"{args.source} does not exist; give a model's folder, or hf:OWNER/NAME")
    from seqkit.pretrained.folder import located
    from seqkit.pretrained.hub import pinned
    from seqkit.runs.imported import HEADLESS, import_model

    source = pinned(args.source)
    summary = import_model(located(source), args.out, source)
    left_out = ", ".join(summary.get("initial", {}).get("left_out", []))
    print(
        f"import  {one_line(args.out)}  {summary['num_parameters']:,} parameters, objective {summary['objective']}"
        + (f"; left out: {left_out}" if left_out else "")
    )
    if summary["objective"] == HEADLESS:
        use = in_shell("predict", "--embed", args.out, "PATH")
    elif summary["objective"] in ("NextToken", "Seq2Seq"):
        use = in_shell("generate", args.out, "--prompt", "TEXT")
    else:
        use = in_shell("predict", args.out, "PATH")
    # a recipe has the tokenizer and backbone of the folder, and not those of the run
    tune = in_shell("fit", "RECIPE", "--model.init", source)
    print(f"next    {use}; to fine-tune: {tune}")
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    source = "a folder that transformers saved, or hf:OWNER/NAME[@REVISION]"
    parser.add_argument("source", metavar="SOURCE", help=source)
    parser.add_argument("out", type=Path, metavar="RUN", help="the run folder, which must be new")
