"""Time and peak memory of every registered mechanism against the number of tokens, forward, and forward and backward.

    python tests/benchmarks/cost.py                     # n = 128 to 8,192, one thread
    python tests/benchmarks/cost.py Window Linear       # those rows alone that begin with one of the words

One example, 4 heads of 64 channels, float32; the mechanism alone, without the projections around it. Each number of
tokens runs in a fresh process (Linux). Time: processor time, the shortest of several runs, with freed memory kept by
the process. Memory: the most that the process held, less what it held before, inputs and imports. Exponents: fitted to
the last four sizes that ran.

n tokens · h heads · c channels of one head
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from seqkit.contract import Links
from seqkit.layers.reading import Reading
from seqkit.registry import find, parts

HEADS, CHANNELS, LINKS = 4, 64, 8
SIZES = [2**power for power in range(7, 14)]
COLUMNS = {
    "time of forward, ms": ("forward", "time", 1e3),
    "time of forward and backward, ms": ("both", "time", 1e3),
    "peak memory of forward without gradients, MB": ("forward", "memory", 1e-6),
    "peak memory of forward and backward, MB": ("both", "memory", 1e-6),
}
"""Title: what was measured, and the factor to its unit."""
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Of glibc's mallopt."""


def everything(n: int) -> Reading:
    return Reading()


def past(n: int) -> Reading:
    return Reading(causal=True)


def ring(n: int) -> Reading:
    """Each token is linked to the four before and the four after it."""
    token = torch.arange(n)
    steps = [step for step in range(-LINKS // 2, LINKS // 2 + 1) if step]
    edges = torch.cat([torch.stack([token, (token + step) % n]) for step in steps], dim=1)
    return Reading(links=Links(edges, torch.ones(edges.shape[1], dtype=torch.int64)))


def masked_ring(n: int) -> Reading:
    """The same links as attention that scores every pair needs them."""
    links = ring(n).links
    assert links is not None
    attend = torch.eye(n, dtype=torch.bool)
    attend[links.edges[0], links.edges[1]] = True
    return Reading(attend=attend[None, None])


@dataclass(frozen=True)
class Row:
    """A mechanism with settings for n tokens, what it reads, and the exponents stated for time and memory."""

    mechanism: str
    time: float
    memory: float
    settings: Callable[[int], dict[str, Any]] = lambda n: {}
    reading: Callable[[int], Reading] = everything


ROWS = {
    "ScaledDotProduct": Row("ScaledDotProduct", 2, 1),
    "ScaledDotProduct, links as mask": Row("ScaledDotProduct", 2, 2, reading=masked_ring),
    "Additive": Row("Additive", 2, 2),
    "TopK, k 32": Row("TopK", 2, 2, lambda n: {"k": 32}),
    "Window, size 128": Row("Window", 1, 1, lambda n: {"size": 128}),
    "Window, size 128, causal": Row("Window", 1, 1, lambda n: {"size": 128}, past),
    "Window, size 64, stride √n": Row("Window", 1.5, 1.5, lambda n: {"size": 64, "stride": math.isqrt(n)}),
    "Edgewise, 8 links a token": Row("Edgewise", 1, 1, reading=ring),
    "Linear": Row("Linear", 1, 1),
    "Linear, causal": Row("Linear", 1, 1, reading=past),
    "Performer, 128 features": Row("Performer", 1, 1, lambda n: {"num_features": 128}),
    "Linformer, rank 128": Row("Linformer", 1, 1, lambda n: {"max_tokens": n, "rank": 128}),
    "LSH, buckets of 32": Row("LSH", 1, 1, lambda n: {"bucket_size": 32}),  # n log n: 1 up to the sorting
}


# ── one size, in a process of its own ────────────────────────────────────────────────────────────────────────────────


def prepare(row: Row, n: int) -> Callable[[bool], None]:
    """Inputs for n tokens, and what runs over them: forward alone, or (True) backward too."""
    mechanism = find("mechanism", row.mechanism).load()(HEADS, CHANNELS, **row.settings(n))
    heads: list[Tensor] = [torch.randn(1, HEADS, n, CHANNELS) for _ in range(3)]
    reading, direction = row.reading(n), torch.randn(1, HEADS, n, CHANNELS)

    def run(backward: bool) -> None:
        for x in heads:
            x.requires_grad_(backward).grad = None
        mechanism.requires_grad_(backward).zero_grad()
        read = mechanism(*heads, reading)
        if backward:
            read.backward(direction)

    return run


def peak() -> int:
    """Bytes, the most that this process held since `forget_peak`."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])


def forget_peak() -> int:
    """Give back what is free and start over; bytes held now."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak()


def measure(row: Row, n: int) -> dict[str, dict[str, float]]:
    """Seconds and bytes, of forward and of both."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    small = prepare(row, 64)
    for backward in (False, True):
        small(backward)  # what loads at first use is no cost of n
    run = prepare(row, n)
    memory: dict[bool, int] = {}
    for backward in (False, True):
        before = forget_peak()
        run(backward)
        memory[backward] = peak() - before
    keep_memory()
    return {
        name: {"time": shortest(lambda backward=backward: run(backward)), "memory": float(memory[backward])}
        for name, backward in (("forward", False), ("both", True))
    }


def keep_memory() -> None:
    """Let the C library keep what is freed. By itself it asks the kernel for every block above 32 MB anew, and empty
    pages cost as much time as the sums in them: all mechanisms would seem to slow down at some n."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, -1)


def shortest(run: Callable[[], None]) -> float:
    """Seconds of processor time."""
    run()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 1.0 and len(times) < 50):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times)


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def grow(label: str, gigabytes: float, seconds: float, advance: Callable[[], None]) -> dict[int, dict[str, Any]]:
    """What was measured by n, up to the size that would go over either limit by the exponents stated."""
    row = ROWS[label]
    found: dict[int, dict[str, Any]] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for n in SIZES:
        last = found.get(n // 2, {}).get("both")
        if n > SIZES[0] and (
            last is None or last["memory"] * 2**row.memory > gigabytes * 1e9 or last["time"] * 2**row.time > seconds
        ):
            advance()
            continue
        command = [sys.executable, __file__, "--one", label, str(n)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{label} at n = {n} failed:\n{done.stderr}")
        found[n] = json.loads(done.stdout)
        advance()
    return found


def exponent(points: dict[int, float]) -> float:
    """Slope of the logarithms of the last four, by least squares."""
    last = sorted(points.items())[-4:]
    x, y = ([math.log(value) for value in values] for values in zip(*last))
    middle, level = sum(x) / len(x), sum(y) / len(y)
    return sum((a - middle) * (b - level) for a, b in zip(x, y)) / sum((a - middle) ** 2 for a in x)


def table(title: str, results: dict[str, dict[int, dict[str, Any]]]) -> str:
    """Markdown. Left empty: skipped."""
    part, kind, factor = COLUMNS[title]
    heads = [title, *(f"{n:,}" for n in SIZES), "exponent", "stated"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for label, found in results.items():
        points = {n: max(cost[part][kind] * factor, 0.1) for n, cost in found.items()}
        cells = [f"{points[n]:,.{0 if points[n] >= 9.95 else 1}f}" if n in points else "" for n in SIZES]
        fitted = f"{exponent(points):.2f}" if len(points) > 1 else ""
        lines.append(f"| {label} | {' | '.join(cells)} | {fitted} | {getattr(ROWS[label], kind):g} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only rows that begin with one of these")
    parser.add_argument("--gigabytes", type=float, default=6.0, help="skip sizes that would take more")
    parser.add_argument("--seconds", type=float, default=60.0, help="skip sizes that would take longer")
    parser.add_argument("--one", nargs=2, metavar=("ROW", "N"), help="measure one row at one size, as JSON")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(ROWS[args.one[0]], int(args.one[1]))))
        return
    known = parts("mechanism")
    for name in set(known) - {row.mechanism for row in ROWS.values()}:
        print(f"{name} is registered and not measured: add a row to ROWS", file=sys.stderr)
    chosen = [label for label, row in ROWS.items() if row.mechanism in known]
    chosen = [label for label in chosen if not args.words or label.startswith(tuple(args.words))]
    results = {}
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(chosen) * len(SIZES))
        for label in chosen:
            bar.update(task, description=label)
            results[label] = grow(label, args.gigabytes, args.seconds, lambda: bar.advance(task))
    print(f"{platform.machine()}, one thread, torch {torch.__version__}, {HEADS} heads of {CHANNELS}, float32\n")
    for title in COLUMNS:
        print(table(title, results) + "\n")
    print(f"Empty: it would take more than {args.gigabytes:g} GB or {args.seconds:g} s.")


if __name__ == "__main__":
    main()
