"""Speed on a GPU of padded batches, graphs, LSTM and Mamba, each beside what it is measured by.

    python tests/benchmarks/gpu_kernels.py                       # all
    python tests/benchmarks/gpu_kernels.py padding --rounds 5    # one section

A step is forward and backward in bfloat16 (autocast). Rounds are interleaved in one process; the median is printed, and
the median over rounds of each case's time divided by the first one's in the same round.

    padding   12 blocks of width 768; 32 texts of 64 to 1,024 tokens, 53 % real; first: as many real tokens in full rows
    edges     two layers of width 64 on 100,000 nodes with 1,000,000 edges; first: PyG's TransformerConv and an MLP
    rnn       LSTM of 10.7 M parameters on 64 x 256 ids, nothing padded, with AdamW; first: torch's own
    mamba     the same, Mamba of as many parameters; first: LSTM
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.backbones import LSTM, Mamba, Transformer
from seqkit.interfaces import Adjacency, Embedded, TokenBatch, TokenSpec
from seqkit.interfaces.batch import Padding
from seqkit.model import Model
from seqkit.nn.attention.edge import EdgeAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.objectives import NextToken

Step = Callable[[], None]


def timed(title: str, steps: dict[str, Step], rounds: int, repeats: int = 3) -> None:
    """Prints milliseconds of a step, ratio to the first, and the most memory of one."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    peaks = dict.fromkeys(steps, 0.0)
    for name, step in steps.items():
        step()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        peaks[name] = (torch.cuda.max_memory_allocated() - before) / 2**30
    names = list(steps)
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(repeats):
                steps[name]()
            torch.cuda.synchronize()
            times[name].append((time.perf_counter() - start) / repeats * 1e3)
    print(title)
    for name, own in times.items():
        ratio = statistics.median(x / first for x, first in zip(own, times[names[0]]))
        spread = f"({min(own):.2f}-{max(own):.2f})"
        print(
            f"  {name:42} {statistics.median(own):8.2f} ms {spread:18} x{ratio:.3f}  {peaks[name]:.1f} GiB"
        )


def forward_and_backward(module: Callable[[], Tensor], parameters: list[nn.Parameter]) -> None:
    with torch.autocast("cuda", torch.bfloat16):
        output = module()
    output.float().square().mean().backward()
    for p in parameters:
        p.grad = None


def embedded(lengths: list[int], dim: int) -> Embedded:
    n, b = max(lengths), len(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    padding = Padding.of(valid)
    valid = valid.cuda()
    hidden = torch.randn(b, n, dim, device="cuda") * valid[..., None]
    positions = torch.arange(float(n), device="cuda").expand(b, n)[..., None]
    return Embedded(hidden, positions, valid).know(padding)


def padding(rounds: int, causal: bool, *, compiled: bool = False) -> None:
    lengths = torch.linspace(64, 1024, 32).long().tolist()
    full = [1024] * round(sum(lengths) / 1024)
    model = Transformer(768, 12, num_heads=12, causal=causal).cuda()
    run = torch.compile(model, fullgraph=True) if compiled else model
    ideal, padded = embedded(full, 768), embedded(lengths, 768)

    def step(x: Embedded) -> Step:
        return lambda: forward_and_backward(lambda: run(x), list(model.parameters()))

    def around_attention() -> None:
        with patch.object(MultiHeadAttention, "_attends_in_row", lambda *_: False):
            step(padded)()

    steps = {
        "full rows (ideal)": step(ideal),
        "real tokens in a row": step(padded),
        "padded": step(padded.replace().know(Padding(True, padded.valid.numel()))),
    }
    if not compiled:
        steps["real tokens, padded for attention"] = around_attention
    real = sum(lengths) / len(lengths) / 1024
    how = f"{'causal' if causal else 'bidirectional'}{', compiled' if compiled else ''}"
    timed(f"padding, {how}: {real:.0%} real, {len(full) * 1024} tokens in full rows", steps, rounds)


class PyG(nn.Module):
    """Pre-norm blocks of `TransformerConv` and an MLP. It has no bias of edge types."""

    def __init__(self, dim: int, depth: int, heads: int):
        from torch_geometric.nn import TransformerConv

        super().__init__()
        self.convs = nn.ModuleList(TransformerConv(dim, dim // heads, heads) for _ in range(depth))
        self.mlps = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
            )
            for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv, mlp, norm in zip(self.convs, self.mlps, self.norms):
            x = x + conv(norm(x), edge_index)
            x = x + mlp(x)
        return x


def edges(
    rounds: int, *, compiled: bool = False, num_nodes: int = 100_000, num_edges: int = 1_000_000
) -> None:
    dim, depth, heads = 64, 2, 4
    pairs = torch.randint(num_nodes * num_nodes, (num_edges,)).unique()
    index = torch.stack([pairs // num_nodes, pairs % num_nodes]).cuda()
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=EdgeAttention))
    ours: nn.Module = Transformer(dim, depth, num_heads=heads, block=block)
    ours.add_edge_bias(1)
    ours, theirs = ours.cuda(), PyG(dim, depth, heads).cuda()
    x = embedded([num_nodes], dim)
    x = x.replace(
        adjacency=Adjacency(index, torch.ones(index.shape[1], dtype=torch.int64, device="cuda"))
    )
    if compiled:
        ours, theirs = torch.compile(ours), torch.compile(theirs)
    steps: dict[str, Step] = {
        "PyG TransformerConv and MLP": lambda: forward_and_backward(
            lambda: theirs(x.hidden[0], index), list(theirs.parameters())
        ),
        "EdgeAttention": lambda: forward_and_backward(lambda: ours(x), list(ours.parameters())),
    }
    timed(
        f"edges{', compiled' if compiled else ''}: {num_nodes} nodes, {index.shape[1]} edges",
        steps,
        rounds,
    )


class TorchLSTM(nn.Module):
    def __init__(self, dim: int, depth: int):
        super().__init__()
        self.embedding, self.head = nn.Embedding(65, dim), nn.Linear(dim, 65)
        self.layers = nn.LSTM(dim, dim, depth, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(ids))[0])


def language_model(backbone: nn.Module, batch: TokenBatch) -> Step:
    """A training step of our model."""
    objective = NextToken()
    model = Model(TokenSpec(vocab_size=65), backbone, objective).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            output = objective.step(model, (batch, None), training=True)
        (output.loss / output.count).backward()
        optimizer.step()
        optimizer.zero_grad()

    print(f"  {type(backbone).__name__}: {model.num_parameters / 1e6:.1f} M parameters")
    return step


def ids_batch() -> TokenBatch:
    ids = torch.randint(65, (64, 257))
    positions = torch.arange(257.0).expand(64, 257)[..., None]
    return TokenBatch(ids, positions, torch.ones(64, 257, dtype=torch.bool)).to("cuda")


def rnn(rounds: int) -> None:
    batch = ids_batch()
    theirs = TorchLSTM(472, 6).cuda()
    optimizer = torch.optim.AdamW(theirs.parameters(), fused=True)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            logits = theirs(batch.content[:, :-1])
        F.cross_entropy(logits.flatten(0, 1).float(), batch.content[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    ours = language_model(LSTM(472, 6, causal=True), batch)
    timed("rnn: 64 x 256 ids", {"nn.LSTM, embedding and head": step, "LSTM": ours}, rounds)


def mamba(rounds: int) -> None:
    batch = ids_batch()
    steps = {
        "LSTM": language_model(LSTM(472, 6, causal=True), batch),
        "Mamba": language_model(Mamba(384, 11, causal=True), batch),
    }
    timed("mamba: 64 x 256 ids", steps, rounds)


def both_ways(rounds: int, **settings: bool) -> None:
    for causal in (True, False):
        padding(rounds, causal, **settings)


SECTIONS: dict[str, Callable[[int], None]] = {
    "padding": both_ways,
    "padding-compiled": partial(both_ways, compiled=True),
    "edges": edges,
    "edges-compiled": partial(edges, compiled=True),
    "rnn": rnn,
    "mamba": mamba,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    print(torch.cuda.get_device_name(), torch.__version__)
    for name in args.sections or SECTIONS:
        SECTIONS[name](args.rounds)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
