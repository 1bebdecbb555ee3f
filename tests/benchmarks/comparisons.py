"""The comparisons of docs/comparisons: run what is missing of each, and write its page.

    SEQKIT_DATA=FOLDER OMP_NUM_THREADS=1 python tests/benchmarks/comparisons.py --jobs 2 [--only digits] [--pages]

SEQKIT_DATA holds tiny-shakespeare and FSDD. Results are kept in runs/compare, so a repeated command goes on. About an
hour on two cores. --pages: write the pages of those that are complete, and run nothing.
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BACKBONES = "--backbones Transformer,LSTM,GRU,TCN,S4D,Mamba"
TRIALS = "--lr-trials 3"  # of each of two optimizers
COMPARISONS = {
    "digits": f"image/digits {BACKBONES} {TRIALS} --trainer.max_epochs 8",
    "solubility": f"graph/solubility {BACKBONES},GIN {TRIALS} --trainer.max_epochs 15",
    "spoken-digits": f"audio/spoken-digits {BACKBONES} {TRIALS} --data fsdd --data.source.held_out theo "
    "--trainer.max_epochs 6",
    "char-lm": f"text/char-lm {BACKBONES} {TRIALS} --data tinyshakespeare --trainer.max_steps 400",
    "g2p": f"text/g2p {BACKBONES} {TRIALS} --data.limit 2500 --trainer.max_epochs 5 "
    "--trainer.check_val_every_n_epoch 5",
}
"""Shorter than the recipes' own training, so that all of it takes an hour; the pages say so by their command."""


def main():
    """Run, then write pages."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=COMPARISONS)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--pages", action="store_true")
    args = options.parse_args()
    for name, words in COMPARISONS.items():
        if args.only not in (None, name):
            continue
        folder = ROOT / "runs" / "compare" / name
        if not args.pages:
            command = ["compare", *shlex.split(words), "--jobs", str(args.jobs), "--out", str(folder)]
            subprocess.run([sys.executable, "-m", "seqkit", *command], check=True)
        page = folder / "results.md"
        if page.is_file():
            (ROOT / "docs" / "comparisons" / f"{name}.md").write_text(
                page.read_text(encoding="utf-8"), encoding="utf-8"
            )


if __name__ == "__main__":
    main()
