"""Accuracy of runs of one part each, and of the mean of their log-probabilities (late fusion), on the same test split.

    python tests/benchmarks/averaged_parts.py RUN RUN …     # runs of one recipe that differ in `data.source.only`

It stands beside a model of all parts: what they say together must be better than two models that never met.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from seqkit.config import complete
from seqkit.runs.mixture import load
from seqkit.runs.prepare import data_module


@torch.inference_mode()
def log_probabilities(run: Path) -> tuple[Tensor, Tensor]:
    """Log-probabilities [m k] of the classes of each test example, and the labels [m], in the order of the split."""
    trained = load(run, "cpu")
    loader = data_module(
        complete(trained.config), trained.tokenizer, trained.objective
    ).test_dataloader()
    places, rows, labels = [], [], []
    for indices, (batch, label) in zip(loader.batch_indices(), loader):
        places += indices
        rows.append(trained.predictor.run(trained.model, batch).log_softmax(dim=-1))
        labels.append(label)
    order = torch.tensor(places).argsort()
    return torch.cat(rows)[order], torch.cat(labels)[order]


def main(runs: list[str]) -> None:
    """Print the accuracy in percent of each run, and of the mean of all."""
    found = [log_probabilities(Path(run)) for run in runs]
    labels = found[0][1]
    if any(not own.equal(labels) for _, own in found):
        sys.exit(
            "the runs have other test splits; give runs of one recipe that differ in data.source.only alone"
        )
    for run, (scores, _) in zip(runs, found):
        print(f"{100 * (scores.argmax(1) == labels).double().mean():.2f} %  {run}")
    mean = torch.stack([scores for scores, _ in found]).mean(dim=0)
    print(
        f"{100 * (mean.argmax(1) == labels).double().mean():.2f} %  mean of the log-probabilities"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
