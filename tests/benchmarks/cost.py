"""Time and peak memory of every registered mechanism against the number of tokens, forward, and forward and backward.

    python tests/benchmarks/cost.py                     # n = 128 to 8,192, one thread
    python tests/benchmarks/cost.py Window Linear       # only rows that begin with one of the words

One example, 4 heads with a head_dim of 64, float32; the mechanism alone, without the projections around it. Each number
of tokens runs in a fresh process (Linux). Time: processor time, the shortest of several runs, while the process keeps
freed memory. Memory: peak resident memory, less what inputs and imports take. Exponents: fitted to the last four sizes
that ran.

n tokens
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

from seqkit.interfaces import Adjacency
from seqkit.nn.attention.context import AttentionContext
from seqkit.registry import components, find

NUM_HEADS, HEAD_DIM, NUM_NEIGHBOURS = 4, 64, 8
SIZES = [2**power for power in range(7, 14)]
COLUMNS = {
    "time of forward, ms": ("forward", "time", 1e3),
    "time of forward and backward, ms": ("both", "time", 1e3),
    "peak memory of forward without gradients, MB": ("forward", "memory", 1e-6),
    "peak memory of forward and backward, MB": ("both", "memory", 1e-6),
}
"""Title: pass, quantity, and the factor to its unit."""
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Of glibc's mallopt."""


def bidirectional(n: int) -> AttentionContext:
    return AttentionContext()


def causal(n: int) -> AttentionContext:
    return AttentionContext(is_causal=True)


def ring(n: int) -> AttentionContext:
    """Edges from the four tokens before and the four after each token."""
    token = torch.arange(n)
    steps = [step for step in range(-NUM_NEIGHBOURS // 2, NUM_NEIGHBOURS // 2 + 1) if step]
    edge_index = torch.cat([torch.stack([(token + step) % n, token]) for step in steps], dim=1)
    return AttentionContext(
        adjacency=Adjacency(edge_index, torch.ones(edge_index.shape[1], dtype=torch.int64))
    )


def masked_ring(n: int) -> AttentionContext:
    """The same edges as an attention mask."""
    adjacency = ring(n).adjacency
    assert adjacency is not None
    source, target = adjacency.edge_index
    attn_mask = torch.eye(n, dtype=torch.bool)
    attn_mask[target, source] = True
    return AttentionContext(attn_mask=attn_mask[None, None])


@dataclass(frozen=True)
class Row:
    """A mechanism, the exponents stated for time and memory, its settings and its context for n tokens."""

    mechanism: str
    time: float
    memory: float
    settings: Callable[[int], dict[str, Any]] = lambda n: {}
    context: Callable[[int], AttentionContext] = bidirectional


ROWS = {
    "ScaledDotProductAttention": Row("ScaledDotProductAttention", 2, 1),
    "ScaledDotProduct, edges as mask": Row("ScaledDotProductAttention", 2, 2, context=masked_ring),
    "AdditiveAttention": Row("AdditiveAttention", 2, 2),
    "TopK, k 32": Row("TopKAttention", 2, 2, lambda n: {"k": 32}),
    "Window, size 128": Row("SlidingWindowAttention", 1, 1, lambda n: {"size": 128}),
    "Window, size 128, causal": Row(
        "SlidingWindowAttention", 1, 1, lambda n: {"size": 128}, causal
    ),
    "Edge, 8 edges a token": Row("EdgeAttention", 1, 1, context=ring),
    "LinearAttention": Row("LinearAttention", 1, 1),
    "Linear, causal": Row("LinearAttention", 1, 1, context=causal),
    "Performer, 128 features": Row("PerformerAttention", 1, 1, lambda n: {"num_features": 128}),
    "Linformer, rank 128": Row(
        "LinformerAttention", 1, 1, lambda n: {"max_tokens": n, "rank": 128}
    ),
    # n log n: 1 up to the sorting
    "LSH, buckets of 32": Row("LSHAttention", 1, 1, lambda n: {"bucket_size": 32}),
}


# ── one size, in a process of its own ────────────────────────────────────────────────────────────────────────────────


def prepare(row: Row, n: int) -> Callable[[bool], None]:
    """A function that runs the mechanism over n tokens: forward alone, or (True) backward too."""
    mechanism = find("mechanism", row.mechanism).load()(NUM_HEADS, HEAD_DIM, **row.settings(n))
    qkv: list[Tensor] = [torch.randn(1, NUM_HEADS, n, HEAD_DIM) for _ in range(3)]
    context, direction = row.context(n), torch.randn(1, NUM_HEADS, n, HEAD_DIM)

    def run(backward: bool) -> None:
        for x in qkv:
            x.requires_grad_(backward).grad = None
        mechanism.requires_grad_(backward).zero_grad()
        output = mechanism(*qkv, context)
        if backward:
            output.backward(direction)

    return run


def peak() -> int:
    """Peak resident memory of this process since `reset_peak`, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])


def reset_peak() -> int:
    """Return freed memory to the system and reset the peak; resident memory now, in bytes."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak()


def measure(row: Row, n: int) -> dict[str, dict[str, float]]:
    """Seconds and bytes, of the forward pass and of both passes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    small = prepare(row, 64)
    for backward in (False, True):
        small(backward)  # what loads at first use does not belong to n
    run = prepare(row, n)
    memory: dict[bool, int] = {}
    for backward in (False, True):
        before = reset_peak()
        run(backward)
        memory[backward] = peak() - before
    keep_memory()
    return {
        name: {
            "time": shortest(lambda backward=backward: run(backward)),
            "memory": float(memory[backward]),
        }
        for name, backward in (("forward", False), ("both", True))
    }


def keep_memory() -> None:
    """Let the C library keep freed memory. By default it maps every block above 32 MB anew, and page faults take
    as long as the arithmetic: all mechanisms would seem to slow down at some n."""
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


def grow(
    label: str, gigabytes: float, seconds: float, advance: Callable[[], None]
) -> dict[int, dict[str, Any]]:
    """Measurements by n, up to the size that would exceed either limit by the stated exponents."""
    row = ROWS[label]
    found: dict[int, dict[str, Any]] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for n in SIZES:
        last = found.get(n // 2, {}).get("both")
        if n > SIZES[0] and (
            last is None
            or last["memory"] * 2**row.memory > gigabytes * 1e9
            or last["time"] * 2**row.time > seconds
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
    """Slope of the last four points in log-log coordinates, by least squares."""
    last = sorted(points.items())[-4:]
    x, y = ([math.log(value) for value in values] for values in zip(*last))
    middle, level = sum(x) / len(x), sum(y) / len(y)
    return sum((a - middle) * (b - level) for a, b in zip(x, y)) / sum((a - middle) ** 2 for a in x)


def table(title: str, results: dict[str, dict[int, dict[str, Any]]]) -> str:
    """Markdown table; a skipped size is empty."""
    passes, quantity, factor = COLUMNS[title]
    heads = [title, *(f"{n:,}" for n in SIZES), "exponent", "stated"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for label, found in results.items():
        points = {n: max(cost[passes][quantity] * factor, 0.1) for n, cost in found.items()}
        cells = [
            f"{points[n]:,.{0 if points[n] >= 9.95 else 1}f}" if n in points else "" for n in SIZES
        ]
        fitted = f"{exponent(points):.2f}" if len(points) > 1 else ""
        lines.append(
            f"| {label} | {' | '.join(cells)} | {fitted} | {getattr(ROWS[label], quantity):g} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="only rows that begin with one of these")
    parser.add_argument(
        "--gigabytes", type=float, default=6.0, help="skip sizes that would take more"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="skip sizes that would take longer"
    )
    parser.add_argument(
        "--one", nargs=2, metavar=("ROW", "N"), help="measure one row at one size, as JSON"
    )
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(ROWS[args.one[0]], int(args.one[1]))))
        return
    known = components("mechanism")
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
    print(
        f"{platform.machine()}, one thread, torch {torch.__version__}, {NUM_HEADS} heads of {HEAD_DIM}, float32\n"
    )
    for title in COLUMNS:
        print(table(title, results) + "\n")
    print(f"Empty: it would take more than {args.gigabytes:g} GB or {args.seconds:g} s.")


if __name__ == "__main__":
    main()
