"""`seqkit predict RUN FILE…`."""

from __future__ import annotations

from argparse import Namespace


def run(args: Namespace) -> int:
    """Print a prediction for each raw example."""
    from seqkit.data.inputs import read_inputs
    from seqkit.runs.trained_model import load

    trained = load(args.run)
    named = [pair for given in args.inputs for pair in read_inputs(given, trained.tokenizer)]
    names = [name for name, _ in named]
    for name, prediction in zip(names, trained.predict([raw for _, raw in named], names=names)):
        print(f"{name}\t{prediction}")
    return 0
