"""`seqkit export RUN --to torch|onnx`."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.cli.out import check_file, written
from seqkit.errors import UsageError, one_line

if TYPE_CHECKING:
    from seqkit.runs.trained_model import TrainedModel

SUFFIXES = {"torch": ".pt2", "onnx": ".onnx"}
NOTES = "seqkit.json"
"""Name of the text that a file carries beside its graph."""


def run(args: Namespace) -> int:
    """Write the model of a run as one graph that runs without seqkit, and say how equal it is."""
    from seqkit.runs.summary import check_trained

    check_trained(args.run)  # a mistake is said before what imports torch
    suffix = SUFFIXES[args.to]
    out = Path(f"{args.run.resolve().name}{suffix}") if args.out is None else args.out
    if out.suffix != suffix:
        raise UsageError(f"--out {out} should end in {suffix}, as files of --to {args.to} do")
    check_file(out)
    from seqkit.export.graph import export, names
    from seqkit.runs.trained_model import load_one

    trained = load_one(args.run)
    with written(out, force=False) as part:
        worst = export(trained.model, part, args.to, {NOTES: json.dumps(_notes(trained))})
    inputs = ", ".join(names(trained.model.spec))
    print(f"export  {one_line(out)}  of {inputs}; equal to the model to {worst:.0e} at other sizes")
    return 0


def _notes(trained: TrainedModel) -> dict[str, Any]:
    """Facts of the run that a user of the graph needs."""
    return {
        "recipe": trained.summary["recipe"],
        "weights_sha256": trained.summary["sha256"],
        "tokenizer": trained.config["tokenizer"],
        "objective": trained.config["model"]["objective"],
        "objective_state": trained.objective.state(),
        "metrics": trained.summary["metrics"],
    }
