"""Share of the processed tokens of a training epoch that are real: batches at random, by length, by tokens, packed.

    OMP_NUM_THREADS=1 python tests/benchmarks/padding.py             # all data sets below
    OMP_NUM_THREADS=1 python tests/benchmarks/padding.py fsdd        # those whose name holds one of the words

A row is a training split as its recipe tokenizes it, and each figure is of a whole epoch, the mean over epochs and in
brackets the lowest one. The batches are those of the training loader, so augmentation that changes lengths counts.

    random            examples in random order, batch_size a batch, padded to the longest (from the lengths alone)
    batch_size        as the recipe batches: so many examples of similar length
    tokens_per_batch  N tokens a batch, padding counted: what a batch of the column before has in the mean
    packing           rows of N tokens, several whole examples each, in batches of as many tokens; a dash where the
                      objective gives one answer an example
"""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from seqkit.config import complete
from seqkit.data.batching import BatchLoader, LengthGroupedBatchSampler
from seqkit.data.dataset import TokenizedDataset
from seqkit.data.packing import PackedDataset
from seqkit.data.windows import TextWindows
from seqkit.errors import DataError
from seqkit.runs.prepare import untrained


class Case(NamedTuple):
    """name; recipe; words of the command line; tokens of a row, where examples may be packed."""

    name: str
    recipe: str
    words: str
    packing: int | None = None


CASES = (
    Case("FSDD", "audio/spoken-digits", "--data fsdd --data.augment null"),
    Case("FSDD, augmented", "audio/spoken-digits", "--data fsdd"),
    Case("spoken digits", "audio/spoken-digits", "--data.augment null"),
    Case("solubility (SMILES)", "graph/molecules", "--data solubility"),
    Case(
        "solubility, masked atoms",
        "graph/molecules",
        "--data solubility --model.objective Masked",
        64,
    ),
    Case(
        "CMUdict",
        "text/translate",
        "--tokenizer Characters --model.objective.target Words --data.batch_size 128",
    ),
    Case("text messages (SMS)", "text/char-lm", "--data sms-spam --data.window null", 1024),
    Case("parity", "mechanism/tasks", "--data parity"),
)


def real_share(loader: BatchLoader, epoch: int) -> float:
    """Of the tokens in the batches of that epoch."""
    loader.epoch_batches.set_epoch(epoch)
    real = processed = 0
    for batch, _ in loader:
        real, processed = real + batch.num_tokens, processed + batch.valid.numel()
    return real / processed


def mean_and_lowest(shares: list[float]) -> str:
    """As `97.1 % (96.0)`."""
    return f"{100 * sum(shares) / len(shares):.1f} % ({100 * min(shares):.1f})"


def at_random(lengths: list[int], batch_size: int, epoch: int) -> float:
    """The share where batches pay no heed to length."""
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(epoch))
    longest = sum(
        int(batch.max()) * len(batch) for batch in torch.tensor(lengths)[order].split(batch_size)
    )
    return sum(lengths) / longest


def row(case: Case, num_epochs: int) -> list[str]:
    """The figures of a case. Raises DataError where its data is not at hand."""
    config = complete(case.recipe, None, case.words.split())
    _, data = untrained(config)
    loader = data.train_dataloader()
    examples: TokenizedDataset | TextWindows = loader.examples
    lengths, batch_size, epochs = examples.lengths, config["data"]["batch_size"], range(num_epochs)
    num_tokens = max(round(sum(lengths) / len(loader)), max(lengths))
    by_tokens = BatchLoader(
        examples,
        LengthGroupedBatchSampler(lengths, len(lengths), shuffle=True, tokens_per_batch=num_tokens),
    )
    packed = "–"
    if case.packing is not None and isinstance(examples, TokenizedDataset):
        rows = PackedDataset(examples, case.packing)
        sampler = LengthGroupedBatchSampler(
            rows.lengths, max(1, num_tokens // case.packing), shuffle=True
        )
        packed = (
            mean_and_lowest([real_share(BatchLoader(rows, sampler), e) for e in epochs])
            + f", {case.packing}"
        )
    return [
        case.name,
        f"{len(lengths):,}",
        f"{sum(lengths) / len(lengths):.0f}, {max(lengths)}",
        mean_and_lowest([at_random(lengths, batch_size, e) for e in epochs]),
        mean_and_lowest([real_share(loader, e) for e in epochs]) + f", {batch_size}",
        mean_and_lowest([real_share(by_tokens, e) for e in epochs]) + f", {num_tokens:,}",
        packed,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="parts of names; default: all")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(
        "training data", "examples", "tokens: mean, most", "random", "batch_size, N", "tokens_per_batch, N",
        "packing, N",
    )  # fmt: skip
    for case in CASES:
        if args.names and not any(name.lower() in case.name.lower() for name in args.names):
            continue
        try:
            table.add_row(*row(case, args.epochs))
        except DataError as error:
            print(f"left out: {case.name}: {error}", file=sys.stderr)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
