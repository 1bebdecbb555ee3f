"""Test metrics of recipes in float32, bf16-mixed and bf16-true: mean ± standard deviation over seeds.

    OMP_NUM_THREADS=1 python tests/benchmarks/precision.py [--seeds 3]

Shorter than the recipes' own training: CASES says how. Within noise means that the difference of two means is below
twice its standard error (of three seeds each, which is a rough measure).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from seqkit.config import complete
from seqkit.runs.run import run

PRECISIONS = ("32-true", "bf16-mixed", "bf16-true")
CASES = {
    "image/digits": ("accuracy", ["--data", "digits", "--tokenizer.patch", "2", "--trainer.max_epochs", "8"]),
    "graph/molecules": ("rmse", ["--data", "solubility", "--trainer.max_epochs", "8"]),
}


def main() -> None:
    """Train, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=3)
    args = options.parse_args()
    table = Table("recipe", "metric", "precision", "seeds", "mean ± std", "to 32-true, standard errors", "s a run")
    for recipe, (metric, words) in CASES.items():
        reference: list[float] = []
        for precision in PRECISIONS:
            started, values = time.process_time(), []
            for seed in range(1, args.seeds + 1):
                own = ["--trainer.precision", precision, "--seed", str(seed), "--trainer.enable_progress_bar", "false"]
                with tempfile.TemporaryDirectory() as folder:
                    values.append(run(complete(recipe, None, [*words, *own]), Path(folder) / "run")["metrics"][metric])
            seconds = (time.process_time() - started) / args.seeds
            reference = reference or values
            shown = f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"
            seeds = ", ".join(f"{value:.4f}" for value in values)
            table.add_row(
                recipe, metric, precision, seeds, shown, f"{_errors(values, reference):+.1f}", f"{seconds:.0f}"
            )
    Console(width=140).print(table)


def _errors(values: list[float], reference: list[float]) -> float:
    """Difference of the means in standard errors of that difference."""
    variance = statistics.variance(values) + statistics.variance(reference)
    difference = statistics.mean(values) - statistics.mean(reference)
    return difference / (variance / len(values)) ** 0.5 if variance else 0.0


if __name__ == "__main__":
    main()
