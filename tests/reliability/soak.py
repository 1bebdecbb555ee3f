"""A long run, killed at random and resumed until it is done, beside the same run left alone.

    OMP_NUM_THREADS=1 python -m tests.reliability.soak --steps 20000 --every 20,120 --out FOLDER

--every: seconds between a start and the kill -9 that ends it, drawn evenly from this range. Both runs must end with the
same weights, bit for bit, and the same metrics.csv but for the speed. Prints what happened; exit code 1 where not.
"""

import argparse
import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

WORDS = [
    "text/char-lm", "--data.window", "32", "--data.valid_fraction", "0.02", "--model.backbone.dim", "32",
    "--model.backbone.depth", "2", "--model.backbone.num_heads", "2", "--model.dropout", "0.1",
    "--trainer.enable_progress_bar", "false", "--trainer.val_check_interval", "500", "--trainer.accelerator", "cpu",
    "--trainer.checkpoint_every_minutes", "0.25", "--trainer.limit_val_batches", "20",
]  # fmt: skip
CLOCK = ("train/tokens_per_second",)


def main() -> int:
    """Run both, kill one, compare."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--steps", type=int, default=20_000)
    options.add_argument("--every", default="20,120")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, required=True)
    args = options.parse_args()
    low, high = (float(word) for word in args.every.split(","))
    words = ["fit", *WORDS, "--trainer.max_steps", str(args.steps)]
    whole, killed, draw = args.out / "whole", args.out / "killed", random.Random(args.seed)
    started = time.monotonic()
    alone = _start(*words, "--out", str(whole))
    kills, command = 0, [*words, "--out", str(killed)]
    while True:
        process = _start(*command)
        try:
            code = process.wait(draw.uniform(low, high))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            if (killed / "summary.json").exists():  # killed in the test that follows training
                command = ["evaluate", str(killed)]
            elif list((killed / "checkpoints").glob("resume-*.json")):
                command = ["fit", "--resume", str(killed)]
            elif killed.exists():  # killed before its first checkpoint
                command = [*words, "--out", str(killed := args.out / f"killed-{kills}")]
            continue
        if code:
            print(f"the resumed run failed with exit code {code} after {kills} kills")
            return 1
        break
    if alone.wait():
        print("the run left alone failed")
        return 1
    same_weights = _weights(whole) == _weights(killed)
    same_rows = _rows(whole) == _rows(killed)
    minutes = (time.monotonic() - started) / 60
    print(
        f"{minutes:.0f} minutes, {args.steps:,} steps, {kills} kills: weights {_word(same_weights)}, ",
        end="",
    )
    print(f"{len(_rows(whole))} logged rows {_word(same_rows)}")
    return 0 if same_weights and same_rows else 1


def _start(*words: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "seqkit", *words], stdout=subprocess.DEVNULL)


def _weights(folder: Path) -> bytes:
    return (folder / "checkpoints" / "model.safetensors").read_bytes()


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return [
            {name: value for name, value in row.items() if name not in CLOCK}
            for row in csv.DictReader(file)
        ]


def _word(same: bool) -> str:
    return "equal" if same else "DIFFERENT"


if __name__ == "__main__":
    sys.exit(main())
