"""Packed sequences as rows of their own, for layers that carry a state from token to token.

b rows · n columns · s sequences in all rows · m tokens of the longest of them
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """Where the tokens of each packed sequence are, so that a layer may run over one sequence a row.

    valid: [s m] bool, True = a real token of a sequence. batch_row: [s], the row of the batch that a sequence is in.
    packed: [b n] bool, True = real, in the packed batch. index: [t], the places of its real tokens in [s m], flattened

    >>> valid = torch.tensor([[True, True, True], [True, True, False]])
    >>> rows = SegmentRows.of(torch.tensor([[0, 0, 1], [4, 4, 4]]), valid)
    >>> rows.valid.tolist(), rows.batch_row.tolist()
    ([[True, True], [True, False], [True, True]], [0, 0, 1])
    """

    valid: Tensor
    batch_row: Tensor
    packed: Tensor
    index: Tensor

    @classmethod
    def of(cls, segments: Tensor, valid: Tensor) -> SegmentRows:
        """segments: [b n] int64, a number for each run of columns of one sequence. valid: [b n] bool, True = real."""
        column = torch.arange(valid.shape[1], device=valid.device).expand_as(valid)
        is_first = valid & F.pad(segments[:, 1:] != segments[:, :-1], [1, 0], value=True)
        row = is_first.flatten().cumsum(0).view_as(column)[valid] - 1
        first = torch.where(is_first, column, 0).cummax(dim=1).values
        place = (column - first)[valid]
        longest = int(place.max()) + 1
        index = row * longest + place
        own = valid.new_zeros(int(row[-1]) + 1, longest)
        own.view(-1)[index] = True
        return cls(own, is_first.nonzero()[:, 0], valid, index)

    def split(self, x: Tensor) -> Tensor:
        """[s m …] from x [b n …], zero where padded."""
        rows = x.new_zeros(self.valid.numel(), *x.shape[2:]).index_copy(
            0, self.index, x[self.packed]
        )
        return rows.unflatten(0, self.valid.shape)

    def join(self, x: Tensor) -> Tensor:
        """[b n …] from x [s m …], zero where padded."""
        joined = x.new_zeros(*self.packed.shape, *x.shape[2:])
        return joined.index_put((self.packed,), x.flatten(0, 1)[self.index])
