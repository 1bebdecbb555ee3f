"""Seconds to the first training step, and peak memory, on a large text of one's own.

    python -m tests.benchmarks.large_text --megabytes 50 1000 --tokenizer Bytes Characters

The text is the plays of `shakespeare` again and again, with one letter in fifty exchanged for another at random, in one
file. Each case is a process of its own with an empty cache: reading, fitting, encoding and one step, as `seqkit fit
text/char-lm --data FILE` does them; then once more with the cache. Memory is that of the process and its workers
together, shared pages counted once (PSS), sampled five times a second; pages of files that are mapped count, too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

NOISE = 1 / 50


def write_text(path: Path, num_bytes: int) -> None:
    """Plays with noise, until there are so many bytes."""
    from seqkit.recipes.text.shakespeare import Shakespeare

    text = "".join(sample.raw for sample in Shakespeare().splits().train).encode("ascii", errors="ignore")
    letters, generator = np.frombuffer(text, np.uint8), np.random.default_rng(0)
    lower = np.flatnonzero((letters >= ord("a")) & (letters <= ord("z")))
    with path.open("wb") as file:
        while file.tell() < num_bytes:
            changed = letters.copy()
            at = generator.choice(lower, int(len(lower) * NOISE))
            changed[at] = generator.integers(ord("a"), ord("z") + 1, len(at))
            file.write(changed[: num_bytes - file.tell()].tobytes())


def first_step(path: str, tokenizer: str, words: list[str]) -> None:
    """In a process of its own: everything up to the end of the first optimizer step."""
    from seqkit.config import complete
    from seqkit.runs.prepare import prepare
    from seqkit.training.trainer import make_trainer, train

    overrides = ["--data", path, "--tokenizer", tokenizer, "--trainer.max_steps", "1", *words]
    prepared = prepare(complete("text/char-lm", None, overrides))
    loaders = [prepared.data.train_dataloader(), prepared.data.test_dataloader()]
    trainer = make_trainer({"max_steps": 1, "enable_progress_bar": False, "accelerator": "cpu"}, logger=False)
    train(trainer, prepared.training_module(1), loaders[0], None)
    print(json.dumps({"vocab_size": prepared.model.spec.vocab_size}))


def measure(path: Path, tokenizer: str, cache: Path) -> dict[str, float]:
    """Seconds and peak megabytes of one start."""
    command = [sys.executable, "-m", "tests.benchmarks.large_text", "--first-step", str(path), tokenizer]
    environment = {**os.environ, "SEQKIT_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_pss_kilobytes, _tree(process.pid))))
        time.sleep(0.2)
    seconds = time.monotonic() - started
    assert process.stdout is not None
    out = process.stdout.read()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"the start on {path} failed")
    result = json.loads(out.splitlines()[-1])
    cpu_seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return {**result, "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mb": peak * 1024 / 1e6}


def _tree(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except OSError:  # it has just ended
            continue
    return found


def _pss_kilobytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[50, 1000])
    parser.add_argument("--tokenizer", nargs="+", default=["Bytes", "Characters"])
    parser.add_argument("--first-step", nargs="+", help=argparse.SUPPRESS)
    args, words = parser.parse_known_args()
    if args.first_step:
        first_step(args.first_step[0], args.first_step[1], [*args.first_step[2:], *words])
        return
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in args.megabytes:
            path = Path(folder) / f"{megabytes}.txt"
            write_text(path, megabytes * 10**6)
            for tokenizer in args.tokenizer:
                cache = Path(folder) / f"cache-{tokenizer}-{megabytes}"
                for time_of in ("first", "second"):
                    found = measure(path, tokenizer, cache)
                    print(
                        f"{megabytes:5} MB  {tokenizer:10}  {time_of:6}  {found['seconds']:6.1f} s to step 1, of which "
                        f"{found['cpu_seconds']:.1f} s of processors  {found['peak_mb']:6.0f} MB  "
                        f"vocabulary {found['vocab_size']:.0f}",
                        flush=True,
                    )
            path.unlink()


if __name__ == "__main__":
    main()
