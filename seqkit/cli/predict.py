"""`seqkit predict RUN FILE…`."""

from __future__ import annotations

from argparse import Namespace

from seqkit.errors import one_line


def run(args: Namespace) -> int:
    """Print a prediction for each raw example."""
    from seqkit.runs.summary import check_trained

    check_trained(args.run)  # a mistake is said before what imports torch
    from seqkit.data.inputs import read_inputs
    from seqkit.runs.trained_model import load

    trained = load(args.run)
    named = [pair for given in args.inputs for pair in read_inputs(given, trained.tokenizer)]
    names = [name for name, _ in named]
    for name, prediction in zip(names, trained.predict([raw for _, raw in named], names=names)):
        print(f"{one_line(name)}\t{one_line(prediction)}")
    return 0
