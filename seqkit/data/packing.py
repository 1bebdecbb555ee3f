"""Packing: several whole examples in one row of a batch, told apart by segments, so that little of it is padding.

b rows of a batch · n tokens
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import torch
from torch import Tensor

from seqkit.data.batching import Batch, Key, fold_seed
from seqkit.data.dataset import TokenizedDataset
from seqkit.interfaces import TokenBatch, Tokens

NAMED = 3
"""Examples that the name of a row lists."""


def best_fit_decreasing(
    lengths: Sequence[int], row_tokens: int, *, seed: int = 0
) -> list[list[int]]:
    """Rows of at most `row_tokens` tokens, as indices of the examples that they hold; every example is in one row.

    Longest first, each goes to the fullest row that has room for it (Ding et al. 2024, section 3). Which of several
    of one length goes first depends on the seed alone. O(n log row_tokens).
    Raises ValueError if an example is longer than a row.
    """
    generator = torch.Generator().manual_seed(fold_seed(seed, 2))
    order = torch.randperm(len(lengths), generator=generator)
    order = order[torch.argsort(torch.as_tensor(lengths)[order], descending=True, stable=True)]
    rows: list[list[int]] = []
    with_room: dict[int, list[int]] = {}  # free tokens: the rows that have just so many
    rooms: list[int] = []  # its keys, which rise
    for i in order.tolist():
        at = bisect_left(rooms, lengths[i])
        if at < len(rooms):
            room = rooms[at]
            row = with_room[room].pop()
            if not with_room[room]:
                del with_room[room], rooms[at]
        else:
            room = row_tokens
            row = len(rows)
            rows.append([])
        rows[row].append(i)
        left = room - lengths[i]
        if left < 0:
            raise ValueError(f"an example has {lengths[i]} tokens, more than a row of {row_tokens}")
        if left and left not in with_room:
            insort(rooms, left)
            with_room[left] = []
        if left:
            with_room[left].append(row)
    return rows


class PackedDataset:
    """Rows of several whole examples. The key is (epoch, indices of rows).

    In a row, positions start anew in each example, and `TokenBatch.segments` numbers the examples, so that none
    attends to another. Rows are packed once; batches take them in another order in every epoch. There are no targets.
    examples: the whole split. row_tokens: most tokens of a row. seed: decides among examples of one length.
    sha256: digest of `examples`: packed or not, it is the same split.
    Raises ValueError, naming the example, if one has more than `row_tokens` tokens.
    """

    def __init__(self, examples: TokenizedDataset, row_tokens: int, *, seed: int = 0):
        lengths = list(examples.lengths)
        if row_tokens < (most := max(lengths)):
            which = f"{examples.name(lengths.index(most))} of the {examples.split} data has {most}"
            raise ValueError(
                f"packing is {row_tokens} tokens a row, and {which}; give at least {most}, or use window"
            )
        self.examples = examples
        self.rows = best_fit_decreasing(lengths, row_tokens, seed=seed)
        self.lengths = [sum(lengths[i] for i in row) for row in self.rows]
        self.extents = examples.extents
        self.sha256 = examples.sha256

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Key) -> Batch:
        epoch, indices = key
        rows = [self.examples.encoded(self.rows[i], epoch) for i in indices]
        batch = TokenBatch.collate([Tokens.join(row) for row in rows])
        return batch.replace(segments=_segments(rows, batch.valid)), None

    def name(self, index: int) -> str:
        """Number of the row, and its examples as the user knows them."""
        row = self.rows[index]
        more = f" and {len(row) - NAMED} more" if len(row) > NAMED else ""
        return f"row {index} ({', '.join(self.examples.name(i) for i in row[:NAMED])}{more})"


def _segments(rows: Sequence[Sequence[Tokens]], valid: Tensor) -> Tensor:
    """[b n] int64: 0, 1, … in each row. Padding is in segment 0, or its queries would have no key at all."""
    segments = torch.zeros(valid.shape, dtype=torch.int64)
    for i, row in enumerate(rows):
        number = torch.repeat_interleave(torch.tensor([len(x) for x in row]))
        segments[i, : len(number)] = number
    return segments
