"""Tokens per second of recurrent networks beside a loop over torch's cells, and beside a Transformer of their size.

    OMP_NUM_THREADS=1 python tests/benchmarks/recurrent_generation.py --rounds 5

All generate 256 tokens greedily from one. The loop has the same weights and operations, written with `nn.LSTMCell`,
`nn.GRUCell` and `nn.RNNCell`; the Transformer has GPT-2's composition and about as many parameters, in steps of 16
channels. Processor time of one thread; a ratio is the median over interleaved rounds, with its range, and above 1
seqkit is faster.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from seqkit.backbones import GRU, LSTM, RNN, Transformer
from seqkit.generation import Sampling, stream
from seqkit.interfaces import Backbone, TokenSpec
from seqkit.model import Model
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.objectives import NextToken

VOCAB, DEPTH, NUM_NEW = 65, 6, 256
CELLS = {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell, "RNN": nn.RNNCell}


def model_of(backbone: Backbone) -> Model:
    return Model(TokenSpec(vocab_size=VOCAB), backbone, NextToken()).eval()


def transformer(dim: int) -> Model:
    """GPT-2's composition of that width, with 8 heads."""
    block = partial(PreNormBlock, mlp=partial(MLP, activation=partial(nn.GELU, approximate="tanh")))
    return model_of(Transformer(dim, DEPTH, num_heads=8, causal=True, block=block))


def equal_transformer(num_parameters: int) -> Model:
    """The Transformer whose number of parameters is nearest."""
    return min(
        map(transformer, range(32, 400, 16)),
        key=lambda model: abs(model.num_parameters - num_parameters),
    )


class Cells(nn.Module):
    """The recurrent model, one token at a time, with torch's cells in place of its networks of one layer."""

    def __init__(self, model: Model, cell: type[nn.Module]):
        super().__init__()
        self.model, self.cells = model, nn.ModuleList()
        for block in model.backbone.blocks:
            one = cell(block.cell.input_size, block.cell.hidden_size)
            one.load_state_dict(
                {name.removesuffix("_l0"): x for name, x in block.cell.state_dict().items()}
            )
            self.cells.append(one)

    def forward(self, ids: Tensor, states: list) -> Tensor:
        """Next ids [b] of ids [b]."""
        x = self.model.embedder.content(ids)
        for i, (block, cell) in enumerate(zip(self.model.backbone.blocks, self.cells)):
            states[i] = cell(block.norm(x), states[i])
            x = x + (states[i][0] if isinstance(states[i], tuple) else states[i])
        return self.model.head.linear(self.model.backbone.norm(x)).argmax(dim=-1)


@torch.inference_mode()
def by_cells(cells: Cells, b: int) -> Tensor:
    ids, states, found = torch.full((b,), 3), [None] * DEPTH, []
    for _ in range(NUM_NEW):
        ids = cells(ids, states)
        found.append(ids)
    return torch.stack(found, dim=1)


def by_seqkit(model: Model, b: int) -> Tensor:
    steps = stream(model, [torch.tensor([3])] * b, NUM_NEW, sampling=Sampling(temperature=0))
    return torch.stack(list(steps), dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--dims", type=int, nargs="+", default=[128, 384])
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for dim in args.dims:
        for cls in (LSTM, GRU, RNN):
            name, model = cls.__name__, model_of(cls(dim, DEPTH, causal=True))
            rival = equal_transformer(model.num_parameters)
            cells = Cells(model, CELLS[name])
            sizes = f"{model.num_parameters:,} parameters, Transformer {rival.num_parameters:,}"
            print(f"{name} {DEPTH} × {dim}: {sizes}", flush=True)
            for b in args.batch:
                compare({"seqkit": partial(by_seqkit, model), "cells": partial(by_cells, cells),
                         "Transformer": partial(by_seqkit, rival)}, b, args.rounds)  # fmt: skip


def compare(candidates: dict[str, Callable[[int], Tensor]], b: int, rounds: int) -> None:
    """Print speeds and ratios for one batch size."""
    ids = {name: generate(b) for name, generate in candidates.items()}  # warm-up
    same = float((ids["seqkit"] == ids["cells"]).float().mean())
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, generate in candidates.items():
            started = time.process_time()
            generate(b)
            seconds[name].append(time.process_time() - started)
    speeds = ", ".join(f"{name} {NUM_NEW * b / min(taken):.0f}" for name, taken in seconds.items())
    ratios = []
    for other in ("cells", "Transformer"):
        each = [theirs / mine for mine, theirs in zip(seconds["seqkit"], seconds[other])]
        ratios.append(
            f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f}) of {other}"
        )
    print(f"  batch {b}: tokens/s {speeds}; {', '.join(ratios)}; same ids {same:.3f}", flush=True)


if __name__ == "__main__":
    main()
