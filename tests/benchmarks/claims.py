"""Measures the numbers in `recipes/README.md`: every recipe and backbone there, several seeds, one core a run.

    python tests/benchmarks/claims.py                 # all of them, two at a time
    python tests/benchmarks/claims.py fsdd GRU        # those whose name holds all of the words
    python tests/benchmarks/claims.py --show          # only the table of finished runs

Each run is a `seqkit fit` command in a process of its own. Results are in runs/claims, and finished runs are not
repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
FSDD = ["--data.source", "fsdd"]
SOLUBILITY = ["--data.source", "solubility"]
TINY = ["--data.source", "tinyshakespeare"]

CLAIMS: dict[str, list[str]] = {
    "text/char-lm": [],
    "text/char-lm tinyshakespeare": TINY,
    "text/char-lm tinyshakespeare nanogpt": ["--preset", "nanogpt", *TINY],
    "text/char-lm tinyshakespeare GRU": ["--preset", "gru", *TINY],
    "text/char-lm tinyshakespeare LSTM": ["--preset", "lstm", *TINY],
    "text/masked-lm": [],
    "text/translate g2p": ["--preset", "g2p"],
    "text/translate g2p GRU": ["--preset", "gru"],
    "text/translate g2p Bahdanau": ["--preset", "bahdanau"],
    "text/classify": [],
    "text/classify Transformer": ["--preset", "transformer"],
    "image/classify": [],
    "image/digits": [],
    "image/digits GRU": ["--preset", "gru"],
    "image/digits LSTM": ["--preset", "lstm"],
    "image/masked-patches": [],
    "audio/classify": [],
    "audio/spoken-digits": [],
    "audio/spoken-digits GRU": ["--preset", "gru"],
    "audio/spoken-digits LSTM": ["--preset", "lstm"],
    "audio/spoken-digits fsdd": FSDD,
    "audio/spoken-digits fsdd GRU": ["--preset", "gru", *FSDD],
    "audio/spoken-digits fsdd LSTM": ["--preset", "lstm", *FSDD],
    "graph/karate": [],
    "graph/nodes": [],
    "graph/nodes GCN": ["--preset", "gcn"],
    "graph/nodes Transformer": ["--preset", "transformer"],
    "graph/molecules": [],
    "graph/molecules Transformer": ["--preset", "transformer"],
    "graph/molecules solubility": SOLUBILITY,
    "graph/molecules solubility Transformer": ["--preset", "transformer", *SOLUBILITY],
    "graph/molecules solubility GRU": ["--preset", "gru", *SOLUBILITY],
    "graph/molecules solubility LSTM": ["--preset", "lstm", *SOLUBILITY],
    "graph/molecules classes": [
        *SOLUBILITY,
        "--data.source.classes",
        "true",
        "--preset",
        "classes",
    ],
    "audio/ctc-digits": [],
    "text/tag": [],
    "series/classify": [],
    "series/classify mnist1d": ["--data", "mnist1d"],
    "series/classify etth1": ["--preset", "etth1"],
    "multimodal/table": [],
    "multimodal/table numbers": ["--preset", "numbers"],
    "multimodal/molecules": [],
    "multimodal/av-digits": [],
    "multimodal/caption": [],
    "video/classify digits": ["--preset", "digits"],
    **{
        f"audio/spoken-digits fsdd without {speaker}": [*FSDD, "--data.source.held_out", speaker]
        for speaker in SPEAKERS
    },
    **{
        f"audio/spoken-digits fsdd {cell} without {speaker}": [
            "--preset",
            cell.lower(),
            *FSDD,
            "--data.source.held_out",
            speaker,
        ]
        for cell in ("GRU", "LSTM")
        for speaker in SPEAKERS
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="only claims whose name holds all of these")
    parser.add_argument("--only", nargs="*", default=[], help="only claims of exactly these names")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("runs/claims"))
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    chosen = [
        n for n in CLAIMS if (n in args.only if args.only else all(w in n for w in args.words))
    ]
    runs = [
        (n, seed) for n in chosen for seed in (args.seeds[:1] if "without" in n else args.seeds)
    ]
    if not args.show:
        with ThreadPoolExecutor(args.jobs) as pool:
            for line in pool.map(lambda run: measure(*run, args.folder), runs):
                print(line, flush=True)
    for line in table(chosen, args.folder):
        print(line)


def measure(name: str, seed: int, folder: Path) -> str:
    out = folder / name.replace("/", "-").replace(" ", "_") / str(seed)
    if not (out / "summary.json").is_file():
        subprocess.run(["rm", "-rf", str(out)], check=True)
        command = [
            sys.executable,
            "-m",
            "seqkit",
            "fit",
            name.split()[0],
            "--out",
            str(out),
            "--seed",
            str(seed),
        ]
        command += [*CLAIMS[name], "--trainer.enable_progress_bar", "false"]
        done = subprocess.run(
            command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
        )
        if done.returncode:
            return f"{name} seed {seed} FAILED: {done.stderr.strip().splitlines()[-1:]}"
    summary = json.loads((out / "summary.json").read_text())
    return f"{name} seed {seed}: {summary['metrics']} {summary['wall_seconds']} s"


def table(names: list[str], folder: Path) -> list[str]:
    """Markdown rows: mean ± standard deviation over the finished runs."""
    rows = [
        "| recipe | metric | mean ± std | runs | baseline | parameters | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    groups: dict[str, list[Path]] = {}
    for name in names:
        title = name.split(" without ")[0] + (
            ", leave one speaker out" if "without" in name else ""
        )
        groups.setdefault(title, []).extend(
            (folder / name.replace("/", "-").replace(" ", "_")).glob("*/summary.json")
        )
    for title, files in groups.items():
        summaries = [json.loads(file.read_text()) for file in sorted(files)]
        if not summaries:
            continue
        for metric in summaries[0]["metrics"]:
            values = [s["metrics"][metric] for s in summaries]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            baseline = _figure(summaries[0]["baseline"].get(metric))
            seconds = statistics.mean(s["wall_seconds"] for s in summaries)
            rows.append(
                f"| {title} | {metric} | {statistics.mean(values):.4f} ± {spread:.4f} | {len(values)} "
                f"| {baseline} | {summaries[0]['num_parameters']:,} | {seconds:.0f} |"
            )
    return rows


def _figure(value: float | None) -> str:
    """A dash where there is no baseline: a constant prediction generates no sequence."""
    return "–" if value is None else f"{value:.4f}"


if __name__ == "__main__":
    main()
