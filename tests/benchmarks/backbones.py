"""Training speed of every registered causal backbone over that of the LSTM.

    OMP_NUM_THREADS=1 python tests/benchmarks/backbones.py            # n 256, width 128, 2 layers, batch 8; 5 rounds

Causal language models of 65 characters. All have the same width and depth, and else their own defaults, so they differ
in parameters, which are printed. A step is forward, cross-entropy, backward and fused AdamW. Rounds are interleaved in
one process, so that a busy machine slows all alike; the ratio is taken within a round, and the median over rounds is
printed. The clock is the processor time of the process, which does not count waiting for a busy core. No speed is
asserted: machines are noisy.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken
from seqkit.registry import components

VOCAB, REFERENCE = 65, "LSTM"


def build(only: list[str] | None, dim: int, depth: int) -> dict[str, nn.Module]:
    """A language model of every causal backbone, the reference first; those that cannot be one are left out."""
    models: dict[str, nn.Module] = {}
    for name, component in components("backbone").items():
        if only and name not in (*only, REFERENCE):
            continue
        try:
            backbone = component.load()(dim, depth=depth, causal=True)
            models[name] = Model(TokenSpec(vocab_size=VOCAB), backbone, NextToken())
        except (TypeError, ValueError) as error:
            Console(stderr=True).print(f"left out: {name}: {error}", style="dim")
    return {REFERENCE: models.pop(REFERENCE), **models}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, ids: Tensor) -> None:
    b, n = ids[:, :-1].shape
    positions = torch.arange(float(n)).expand(b, n)[..., None]
    logits = model(TokenBatch(ids[:, :-1], positions, torch.ones(b, n, dtype=torch.bool)))
    F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1)).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="backbones beside LSTM; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each model in each round")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--depth", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ids = torch.randint(VOCAB, (args.batch, args.tokens + 1))
    models = build(args.names, args.dim, args.depth)
    optimizers = {name: torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True) for name, model in models.items()}
    for name, model in models.items():
        for _ in range(2):
            step(model, optimizers[name], ids)
    speeds: dict[str, list[float]] = {name: [] for name in models}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("rounds", total=args.rounds * len(models))
        for i in range(args.rounds):
            turn = i % len(models)
            for name in [*list(models)[turn:], *list(models)[:turn]]:
                count, started = 0, time.process_time()
                while time.process_time() - started < args.seconds:
                    step(models[name], optimizers[name], ids)
                    count += 1
                speeds[name].append(count * args.batch * args.tokens / (time.process_time() - started))
                progress.advance(task)
    title = f"{args.batch} x {args.tokens} tokens, width {args.dim}, {args.depth} layers, torch {torch.__version__}"
    table = Table(
        "backbone", "parameters", "tokens/s (median)", f"it / {REFERENCE}: median", "lowest", "highest", title=title
    )
    for name, values in sorted(speeds.items(), key=lambda item: -statistics.median(item[1])):
        ratios = [own / reference for own, reference in zip(values, speeds[REFERENCE])]
        figures = [f"{figure:.2f}" for figure in (statistics.median(ratios), min(ratios), max(ratios))]
        parameters = sum(p.numel() for p in models[name].parameters())
        table.add_row(name, f"{parameters:,}", f"{statistics.median(values):,.0f}", *figures)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
