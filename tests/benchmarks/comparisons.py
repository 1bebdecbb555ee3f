"""The comparisons of docs/comparisons: run what is missing of each, and write the index and README's table.

    SEQKIT_DATA=FOLDER python tests/benchmarks/comparisons.py --jobs 2 [--only solubility] [--index] [--runs FOLDER]

SEQKIT_DATA holds tiny-shakespeare and MNIST-1D. Results are kept in runs/compare, so a repeated command goes on.
--index: run nothing, and write index and table again from the published numbers. NAME/ holds results.json, without the
points of learning curves, and scores.npz; the site makes its page. The index says whether its recipe is still the same.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from seqkit.comparison.candidates import Draft, _Fitted, draft_of
from seqkit.comparison.results import completed, read_results
from seqkit.comparison.settings import Settings
from seqkit.comparison.statistics import Scores, spread
from seqkit.comparison.unmatched import flattened
from seqkit.config import complete
from seqkit.config.recipe import load_yaml
from seqkit.files import write_json
from seqkit.report.sentences import answers, own_length

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "comparisons"
HYBRID = "3GatedDeltaNet+MultiHeadAttention"
RIVALS = f"LSTM,GRU,MinGRU,MLSTM+SLSTM,Mamba2,GatedDeltaNet,S4D,TCN,{HYBRID}"
NAMES = ("Transformer", *RIVALS.split(","), "Mamba", "MLSTM", "GIN")
BASE = "'{type: Transformer, num_heads: 2, position: Rotary}'"
"""The Transformer of the diagnostic tasks, where a preset has another backbone."""

BEGIN, END = "<!-- made by tests/benchmarks/comparisons.py -->", "<!-- until here -->"
SCREEN = ("associative-recall", "parity", "selective-copy", "induction-heads", "copy")
COMPARISONS = {
    "parity": f"mechanism/tasks --preset parity --model.backbone {BASE} --backbones Transformer,{RIVALS} --seeds 10",
    "solubility": "graph/molecules --preset transformer --data solubility --backbones "
    "Transformer,GIN,LSTM,GRU,S4D,TCN --seeds 10",
} | {
    f"screen-{task}": f"mechanism/screen --preset {task} --backbones Transformer,{RIVALS} --seeds 10"
    for task in SCREEN
}
"""Each as long as the recipe's own training."""

CHECKOUT = "git checkout "

SET = ("seed", "model.adjacency", "trainer.devices")
"""Keys that a comparison sets itself, or takes one value of: its runs were and are on one device."""


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
            again(PUBLISHED / name)
    (PUBLISHED / "index.md").write_text(index(), encoding="utf-8")
    write_table()
    write_lengths()


def again(folder):
    """Every mean, interval and verdict of a published comparison anew, from its scores, and every receptive field."""
    results, scores = read_results(folder / "results.json"), read_scores(folder / "scores.npz")
    rows = []
    fitted = _Fitted(tunes=False)
    for row in results.candidates:
        row = replace(row, farthest=farthest_of(results, row, fitted))
        if row.name in scores:
            mean, std, interval = spread(scores[row.name], results.metric)
            row = replace(row, mean=mean, std=std, interval=interval)
        rows.append(row)
    write_json(
        folder / "results.json", completed(replace(results, candidates=rows), scores).to_json()
    )


def farthest_of(results, row, fitted):
    """Receptive field of the untrained model of a row; None: it is as long as the tested examples."""
    written, known = load_yaml(row.config), complete(results.recipe)["trainer"]
    # some have left
    written["trainer"] = {key: x for key, x in written["trainer"].items() if key in known}
    own = replace(Settings(**results.settings), recipe=written, preset=None, overrides=[])
    return fitted.size(Draft(own, {}), None).farthest


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
    """Copy a comparison's numbers and scores; its commands begin with the commit that made them."""
    results = read_results(folder / "results.json")
    rows = [
        replace(row, runs=[replace(run, curve=[]) for run in row.runs])
        for row in results.candidates
    ]
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    made = replace(results, candidates=rows, commands=[f"{CHECKOUT}{commit}", *results.commands])
    (PUBLISHED / name).mkdir(exist_ok=True)
    write_json(PUBLISHED / name / "results.json", made.to_json())
    shutil.copyfile(folder / "scores.npz", PUBLISHED / name / "scores.npz")


def is_same(before, now):
    """Whether a value is what it was, but for new options of the components in a list."""
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(is_same, before, now))
    if isinstance(before, dict) and isinstance(now, dict):
        return all(is_same(value, now.get(key)) for key, value in before.items())
    return before == now


def changes(results):
    """Keys of the recipe, or of a default, that are not what they were when the comparison ran, in any candidate.

    An option that is new is no change: its default is what the component did before.
    """
    settings, found = Settings(**results.settings), set()
    rows = results.candidates
    for variant, row in zip(settings.variants(), rows, strict=True):
        now = dict(flattened(draft_of(settings, variant).config))
        written = flattened(load_yaml(row.untuned))
        # some have left
        then = {
            key: value for key, value in written if key in now or not key.startswith("trainer.")
        }
        keys = [
            key
            for key, value in then.items()
            # a component without options is its name alone
            if key not in SET and not is_same(value, now.get(f"{key}.type", now.get(key)))
        ]
        # a search sets the widths of all but the reference
        found |= {key for key in keys if row is rows[0] or not key.endswith((".dim", ".ratio"))}
    return sorted(found)


def trained_for(results):
    """Length of training, in the recipe's own units, and whether the command set it."""
    trainer = load_yaml(results.candidates[0].config)["trainer"]
    steps = max(run.steps or 0 for row in results.candidates for run in row.runs)
    epochs = "" if trainer["max_steps"] not in (None, -1) else f"{trainer['max_epochs']:,} epochs, "
    own = "the command's" if own_length(results.overrides) else "the recipe's own"
    return f"{epochs}{steps:,} steps: {own}"


def seeds_of(results):
    """Number of seeds, and of trials."""
    trials = [len(row.trials) for row in results.candidates]
    return f"{len(results.seeds)}; {min(trials)} to {max(trials)} trials"


def index():
    """All comparisons, with their answer and its doubts, and whether their recipe has changed since."""
    lines = [
        "| comparison | answer | trained for | seeds | metric | made | state |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for path in sorted(PUBLISHED.glob("*/results.json")):
        name, results = path.parent.name, read_results(path)
        answer, keys = answers(results), changes(results)
        first = f"{answer.text.partition('. ')[0].removesuffix('.')}."
        even = [one for one in answer.others if "is not shown to be" in one]
        told = " ".join([first, *even, *answer.doubts])
        commit = results.commands[0].removeprefix(CHECKOUT)
        hours = f"{results.run_minutes / 60:.1f} hours, summed over parallel runs"
        cells = [
            f"[{name}]({name}/)",
            told,
            trained_for(results),
            seeds_of(results),
            results.metric.title,
            f"{results.started[:10]}, {commit}, {hours}",
            f"**stale**: {', '.join(keys)} changed since" if keys else "current",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines)
    return f"""# Published comparisons

Each folder holds `results.json` with every number, and `scores.npz` with the score of every test example, from which
each interval can be computed again ([how](../compare.md#what-the-numbers-are)). On the site, a link leads to the page,
with the commit and the command that repeat it. A comparison is stale when its recipe has changed since.
[Beside independent implementations](../../recipes/README.md#backbones-beside-independent-implementations) says how
LSTM, GRU, S4D, TCN, Transformer and GIN do on other tasks, where only their code is another.

{table}
"""


def write_table():
    """README's table: a row for each candidate; bold is what no other is told apart from and above."""
    pages = [PUBLISHED / name / "results.json" for name in COMPARISONS]
    found = {path.parent.name: read_results(path) for path in pages if path.is_file()}
    columns = [f"[{name}](docs/comparisons/{name}/)" for name in found]
    units = [f"{results.metric.title}" for results in found.values()]
    rows = [["", *columns], ["---"] * (1 + len(columns)), ["", *units]]
    best = [constant_of(results) for results in found.values()]
    rows.append(["the best constant", *best])
    for name in NAMES:
        rows.append([f"`{name}`", *(shown(results, name) for results in found.values())])
    put(ROOT / "README.md", [cells for cells in rows if set(cells[1:]) != {"–"}])


def put(path, rows):
    """A Markdown table between the two comments of a page."""
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    path.write_text(
        f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8"
    )


def write_lengths(name="screen-parity"):
    """Accuracy in percent by length of the test examples, in docs/mechanisms.md; the best first."""
    if not (PUBLISHED / name / "results.json").is_file():
        return
    results = read_results(PUBLISHED / name / "results.json")
    source = load_yaml(results.candidates[0].config)["data"]["source"]
    lengths = source["test_lengths"]
    scores = read_scores(PUBLISHED / name / "scores.npz")
    rows = [["backbone", *map(str, lengths)], ["---"] * (1 + len(lengths))]
    for row in sorted(results.candidates, key=lambda row: -(row.mean or 0)):
        if row.name in scores:
            # equally many of each, in order
            own = scores[row.name]
            parts = zip(
                *(np.split(x, len(lengths), axis=1) for x in (own.numerator, own.denominator))
            )
            means = [100 * (right.sum(1) / asked.sum(1)).mean() for right, asked in parts]
            rows.append([f"`{row.name}`", *(f"{one:.1f}" for one in means)])
    put(ROOT / "docs" / "mechanisms.md", rows)


def constant_of(results):
    """The best constant prediction."""
    known = [row.constant for row in results.candidates if row.constant is not None]
    return results.metric.number(known[0]) if known else "–"


def shown(results, name):
    """A candidate's mean and standard deviation."""
    row = results.by_name.get(name)
    if row is None:
        return "–"
    if row.mean is None:
        return "failed"
    text = results.metric.mean(row.mean, row.std)
    known = [pair.turned() if pair.b == name else pair for pair in results.differences]
    worse = [one for one in known if one.a == name and one.difference * results.metric.sign < 0]
    is_beaten = any(one.p_holm is not None and one.p_holm < 0.05 for one in worse)
    return text if is_beaten else f"**{text}**"


if __name__ == "__main__":
    main()
