"""The comparisons of docs/comparisons: run what is missing of each, and write the index.

    SEQKIT_DATA=FOLDER python tests/benchmarks/comparisons.py --jobs 2 [--only solubility] [--index] [--runs FOLDER]

SEQKIT_DATA holds tiny-shakespeare. Results are kept in runs/compare, so a repeated command goes on. --index: run
nothing, and write the index again from the published numbers. NAME/ holds results.json, without the points of learning
curves, and scores.npz; the site makes its page. The index says whether its recipe is still the same.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from seqkit.comparison.candidates import draft_of
from seqkit.comparison.results import completed, read_results
from seqkit.comparison.settings import Settings
from seqkit.comparison.statistics import Scores
from seqkit.comparison.unmatched import flattened
from seqkit.config.recipe import load_yaml
from seqkit.files import write_json
from seqkit.report.sentences import answers

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "comparisons"
HYBRID = "3GatedDeltaNet+MultiHeadAttention"
RIVALS = f"LSTM,GRU,MinGRU,MLSTM+SLSTM,Mamba2,GatedDeltaNet,S4D,TCN,{HYBRID}"
NAMES = ("Transformer", *RIVALS.split(","), "Mamba", "MLSTM", "GIN")
BASE = "'{type: Transformer, num_heads: 2, position: Rotary}'"
"""The Transformer of the diagnostic tasks, where a preset has another backbone."""

BEGIN, END = "<!-- made by tests/benchmarks/comparisons.py -->", "<!-- until here -->"
COMPARISONS = {
    "parity": f"mechanism/tasks --preset parity --model.backbone {BASE} --backbones Transformer,{RIVALS} --seeds 10",
    "solubility": "graph/molecules --preset transformer --data solubility --backbones "
    "Transformer,GIN,LSTM,GRU,S4D,TCN --seeds 10",
}
"""Each as long as the recipe's own training."""

SET = ("seed", "model.adjacency")
"""Keys that a comparison sets itself."""

ADDED = {
    "embedding_scale": 1.0, "embedding_bias": True, "residual.scale": 1.0, "tokenizer.num_prefix_tokens": 0,
    "tokenizer.positions": "grid", "objective.tied_bias": False, "objective.logit_scale": 1.0,
    "position.interleaved": True, "objective.forecast": False, "tokenizer.stem": [], "tokenizer.colour": False,
    "tokenizer.patch": 1, "backbone.residual": False,
    "trainer.allow_broken_laws": False, "classical": "off",
}  # fmt: skip
"""Settings that some pages are older than, with the value that changes nothing. (None needs no entry.)"""

OUT_OF_DATE = json.loads((PUBLISHED / "out-of-date.json").read_text(encoding="utf-8"))
"""Pages whose recurrent networks were too weak, and why. Each goes when its comparison is made anew."""

RECURRENT = ("LSTM", "GRU", "RNN")

AUTO_ON_CPU = {"trainer.compile": False, "trainer.cuda_graph": None, "trainer.precision": None}
"""What auto does on a CPU, where all pages were made."""


def main():
    """Run, then write the index."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", choices=COMPARISONS)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--index", action="store_true")
    options.add_argument("--runs", type=Path, default=ROOT / "runs" / "compare")
    args = options.parse_args()
    for name, words in COMPARISONS.items():
        if args.only not in (None, name):
            continue
        folder = args.runs / name
        if not args.index:
            command = [
                "compare",
                *shlex.split(words),
                "--threads",
                "1",
                "--jobs",
                str(args.jobs),
                "--out",
                str(folder),
            ]
            subprocess.run([sys.executable, "-m", "seqkit", *command], check=True)
            publish(folder, name)
        if (PUBLISHED / name / "results.json").is_file():
            path = PUBLISHED / name / "results.json"
            results = completed(read_results(path), read_scores(PUBLISHED / name / "scores.npz"))
            write_json(path, results.to_json())
    (PUBLISHED / "index.md").write_text(index(), encoding="utf-8")
    write_table()


def read_scores(path):
    """Scores by candidate from scores.npz."""
    arrays = np.load(path, allow_pickle=False)
    found = {}
    for name in dict.fromkeys(key.rpartition("/")[0] for key in arrays):
        seeds, top, bottom = (
            arrays[f"{name}/{key}"] for key in ("seeds", "numerator", "denominator")
        )
        found[name] = Scores(tuple(seeds.tolist()), top, bottom, arrays.get(f"{name}/groups"))
    return found


def publish(folder, name):
    """Copy a comparison's numbers and scores."""
    results = read_results(folder / "results.json")
    rows = [
        replace(row, runs=[replace(run, curve=[]) for run in row.runs])
        for row in results.candidates
    ]
    (PUBLISHED / name).mkdir(exist_ok=True)
    write_json(PUBLISHED / name / "results.json", replace(results, candidates=rows).to_json())
    shutil.copyfile(folder / "scores.npz", PUBLISHED / name / "scores.npz")


def changes(results):
    """Keys of the recipe, or of a default, that are not what they were when the comparison ran, in any candidate."""
    settings, found = Settings(**results.settings), set()
    rows = results.candidates
    for variant, row in zip(settings.variants(), rows, strict=True):
        now = dict(flattened(draft_of(settings, variant).config))
        now |= {key: value for key, value in AUTO_ON_CPU.items() if now.get(key) == "auto"}
        written = flattened(load_yaml(row.untuned))
        # some have left
        then = {
            key: value for key, value in written if key in now or not key.startswith("trainer.")
        }
        before = {
            key: value for key in now for end, value in ADDED.items() if key.endswith(end)
        } | then
        keys = [
            key
            for key in before.keys() | now.keys()
            if before.get(key) != now.get(key) and key not in SET
        ]
        # a search sets the width of all but the reference
        found |= {key for key in keys if row is rows[0] or key.rpartition(".")[2] != "dim"}
    return sorted(found)


def index():
    """All comparisons, with their answer, and whether their recipe has changed since."""
    lines = [
        "| comparison | answer | metric | seeds | made on | state |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for path in sorted(PUBLISHED.glob("*/results.json")):
        name, results = path.parent.name, read_results(path)
        answer, keys = answers(results), changes(results)
        told = " ".join([f"{answer.text.partition('. ')[0].removesuffix('.')}.", *answer.doubts])
        if name in OUT_OF_DATE:
            told = f"**out of date**: {OUT_OF_DATE[name]}"
        state = f"**stale**: {', '.join(keys)} changed since" if keys else "current"
        cells = [
            f"[{name}]({name}/)",
            told,
            results.metric.title,
            str(len(results.seeds)),
            results.started[:10],
        ]
        lines.append(f"| {' | '.join([*cells, state])} |")
    table = "\n".join(lines)
    return f"""# Published comparisons

**Recurrent networks were too weak in the comparisons that are out of date: bare stacks, without the norms and residual
connections of their rivals, and, with a weak start, behind a lookup table that began 50 times too small. Do not quote
them; they are to be made anew** ([decisions](../decisions.md#recurrent-networks)).

Each folder holds `results.json` with every number, and `scores.npz` with the score of every test example, from which
each interval can be computed again ([how](../compare.md#what-the-numbers-are)). On the site, a link leads to the page,
with the command that repeats it. A comparison is stale when its recipe has changed since.

{table}
"""


def write_table():
    """The summary in recipes/README.md, between its two comments."""
    rows = []
    for name in COMPARISONS:
        path = PUBLISHED / name / "results.json"
        if path.is_file():
            results = read_results(path)
            metric, shown = results.metric, {}
            for row in results.candidates:
                shown[row.name] = "failed" if row.mean is None else metric.mean(row.mean, row.std)
                if name in OUT_OF_DATE and row.name in RECURRENT:
                    shown[row.name] = "out of date"
            link = f"[{name}](../docs/comparisons/{name}/)"
            rows.append([link, metric.title, *(shown.get(column, "–") for column in NAMES)])
    head = [["comparison", "metric", *NAMES], ["---"] * (2 + len(NAMES))]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in [*head, *rows])
    path = ROOT / "recipes" / "README.md"
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    path.write_text(
        f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
