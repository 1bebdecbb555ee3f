"""The comparisons of docs/comparisons: run what is missing of each, and write its page.

    SEQKIT_DATA=FOLDER OMP_NUM_THREADS=1 python tests/benchmarks/comparisons.py --jobs 2 [--only solubility] [--pages]

SEQKIT_DATA holds tiny-shakespeare. Results are kept in runs/compare, so a repeated command goes on. On 2 busy
cores solubility took 22 minutes, characters and g2p some hours. --pages: write the pages
of those that are complete, and run nothing.
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

from seqkit.report.numbers import Metric

ROOT = Path(__file__).parents[2]
BACKBONES = "--backbones Transformer,LSTM,GRU,TCN,S4D,Mamba"
NAMES = ("Transformer", "LSTM", "GRU", "TCN", "S4D", "Mamba", "GIN")
BEGIN, END = "<!-- made by tests/benchmarks/comparisons.py -->", "<!-- until here -->"
LAST = "--trainer.weights last"
COMPARISONS = {
    "solubility": f"graph/solubility {BACKBONES},GIN --trainer.max_epochs 15 {LAST}",
    "char-lm": f"text/char-lm {BACKBONES} --data tinyshakespeare --preset demo --data.valid_fraction 0.1 {LAST} "
    "--trainer.val_check_interval null --trainer.check_val_every_n_epoch 1 --trainer.limit_val_batches null",
    "g2p": f"text/g2p {BACKBONES} --data.limit 6000 --trainer.max_epochs 8 --trainer.check_val_every_n_epoch 8 {LAST}",
}
"""Shorter than the recipes' own training; the pages say so by their command."""


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
            text = page.read_text(encoding="utf-8")
            (ROOT / "docs" / "comparisons" / f"{name}.md").write_text(text, encoding="utf-8")
    write_table()


def write_table():
    """The summary in recipes/README.md, between its two comments."""
    rows = []
    for name in COMPARISONS:
        path = ROOT / "runs" / "compare" / name / "results.json"
        if path.is_file():
            results = json.loads(path.read_bytes())
            metric, shown = Metric.of(results), {}
            for row in results["candidates"]:
                shown[row["name"]] = "failed" if row["mean"] is None else metric.mean(row["mean"], row["std"])
            link = f"[{results['recipe']}](../docs/comparisons/{name}.md)"
            rows.append([link, metric.title, *(shown.get(column, "–") for column in NAMES)])
    if rows:
        head = [["recipe", "metric", *NAMES], ["---"] * (2 + len(NAMES))]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in [*head, *rows])
        path = ROOT / "recipes" / "README.md"
        before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        path.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
