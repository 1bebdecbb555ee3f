"""`seqkit export RUN --to torch|onnx|hf|safetensors`."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from seqkit.cli.options import add_run
from seqkit.cli.out import check_file, written
from seqkit.errors import UsageError, one_line
from seqkit.files import write_atomic

if TYPE_CHECKING:
    from seqkit.runs.trained_model import TrainedModel

GRAPHS = {"torch": ".pt2", "onnx": ".onnx"}
"""Ends of the names of graphs."""

NOTES = "seqkit.json"
"""Name of the text that a file carries beside its graph."""


def run(args: Namespace) -> int:
    """Write the model of a run as a graph or as a folder, and say what holds of it."""
    ending = GRAPHS.get(args.to, f"-{args.to}")
    out = Path(f"{args.run.resolve().name}{ending}") if args.out is None else args.out
    if args.to not in GRAPHS:
        return _folder(args, out)
    if out.suffix != ending:
        raise UsageError(f"--out {out} should end in {ending}, as files of --to {args.to} do")
    check_file(out)
    from seqkit.export.graph import export, names
    from seqkit.runs.joined import network_alone
    from seqkit.runs.trained_model import load_one

    trained = load_one(args.run)
    with written(out) as part:
        worst = export(trained.model, part, args.to, {NOTES: json.dumps(_notes(trained))})
    inputs = ", ".join(names(trained.model.spec))
    print(f"export  {one_line(out)}  of {inputs}; equal to the model to {worst:.0e} at other sizes")
    if said := network_alone(trained.summary, "The graph"):
        print(said)
    return 0


def _folder(args: Namespace, out: Path) -> int:
    if os.path.lexists(out):
        raise UsageError(f"--out {out} exists already; give another folder")
    from seqkit.export.card import card
    from seqkit.runs.exported import to_hf, to_seqkit
    from seqkit.runs.joined import network_alone
    from seqkit.runs.trained_model import load_one

    trained = load_one(args.run)
    left_out = to_hf(trained, out) if args.to == "hf" else to_seqkit(trained, out)
    missing = None
    said = ""
    if left_out:
        missing = "A folder of seqkit's own (--to safetensors) holds all of the run."
        said = f"; left out, as the other library has no such head: {', '.join(left_out)}"
    is_hf = args.to == "hf"
    text = card(args.run, library="transformers" if is_hf else "seqkit", missing_head=missing)
    write_atomic(out / "README.md", text.encode())
    print(f"export  {one_line(out)}  {trained.model.num_parameters:,} parameters{said}")
    if is_hf and (alone := network_alone(trained.summary, "The folder")):
        print(alone)
    return 0


def _notes(trained: TrainedModel) -> dict[str, object]:
    """Facts of the run that a user of the graph needs."""
    from seqkit.export.graph import inputs

    return {
        "recipe": trained.summary["recipe"],
        "weights_sha256": trained.summary["sha256"],
        "inputs": inputs(trained.tokenizer),
        "max_tokens": trained.config.get("data", {}).get("max_tokens"),
        "tokenizer": trained.config["tokenizer"],
        "tokenizer_state": trained.tokenizer.state(),
        "objective": trained.config["model"]["objective"],
        "objective_state": trained.objective.state(),
        "metrics": trained.summary.of_network["metrics"],
    }


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_run(parser)
    add = parser.add_argument
    to = "torch: a .pt2 file; onnx: a .onnx file; hf: a folder for transformers; safetensors: one for seqkit.load"
    add("--to", choices=("torch", "onnx", "hf", "safetensors"), required=True, help=to)
    add(
        "--out",
        type=Path,
        help="file or folder (default: named after the run, in the current folder)",
    )
