"""Packed sequences as rows of their own, for layers that carry a state from token to token.

b rows · n columns · s sequences in all rows · m tokens of the longest of them · t real tokens
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from seqkit.interfaces import Embedded
from seqkit.interfaces.batch import Padding
from seqkit.nn.recurrence import check_not_exporting


@dataclass(frozen=True)
class SegmentRows:
    """Where the tokens of each packed sequence are, so that a layer may run over one sequence a row.

    valid: [s m] bool, True = a real token of a sequence. batch_row: [s], the row of the batch that a sequence is in.
    shape: b and n. places: [t], of each real token in [b n], flattened. index: [t], of the same tokens in [s m].

    >>> numbers = torch.tensor([[0, 0, 1], [4, 4, 4]])
    >>> rows = SegmentRows.of(numbers, torch.tensor([[True, True, True], [True, True, False]]))
    >>> rows.valid.tolist(), rows.batch_row.tolist()
    ([[True, True], [True, False], [True, True]], [0, 0, 1])
    """

    valid: Tensor
    batch_row: Tensor
    shape: torch.Size
    places: Tensor
    index: Tensor

    @classmethod
    def of(cls, segments: Tensor, valid: Tensor) -> SegmentRows:
        """A row for the tokens of one number in one row of the batch, wherever they stand, as in `segment_mask`.

        segments: [b n] int64. valid: [b n] bool, True = real. Sizes are read on the CPU, which waits for an
        accelerator. Tensors without data are taken for one sequence a row, without padding.
        Raises ValueError in `torch.export`, or if no token is real.
        """
        check_not_exporting("a batch of packed sequences", "one with a row for each")
        b, n = valid.shape
        if valid.is_meta:
            places = torch.arange(b * n, device=valid.device)
            return cls(valid, places[:b], valid.shape, places, places)
        places = valid.flatten().nonzero()[:, 0]
        if not len(places):
            raise ValueError("a packed batch has no real token; leave it out")
        found, number = segments.flatten()[places].unique(return_inverse=True)
        key = places // n * len(found) + number
        keys, sequence, lengths = key.unique(return_inverse=True, return_counts=True)
        sequence, order = sequence.sort(stable=True)
        first = lengths.cumsum(0) - lengths
        column = torch.arange(len(places), device=valid.device) - first[sequence]
        longest = int(lengths.max())
        own = torch.arange(longest, device=valid.device) < lengths[:, None]
        index = sequence * longest + column
        return cls(own, keys // len(found), valid.shape, places[order], index)

    def split(self, x: Tensor) -> Tensor:
        """[s m …] from x [b n …], zero where padded."""
        rows = x.new_zeros(self.valid.numel(), *x.shape[2:])
        real = x.flatten(0, 1).index_select(0, self.places)
        return rows.index_copy(0, self.index, real).unflatten(0, self.valid.shape)

    def join(self, x: Tensor) -> Tensor:
        """[b n …] from x [s m …], zero where padded."""
        return self._placed(self._real(x), self.places)

    def embedded(self, packed: Embedded) -> Embedded:
        """Plain tokens [s m d] of packed ones [b n d]."""
        hidden = self.split(packed.hidden)
        positions = self.split(packed.positions)
        num_real = len(self.places)
        padding = Padding(num_real < self.valid.numel(), num_real)
        return Embedded(hidden, positions, self.valid, causal=packed.causal).know(padding)

    def map(self, run: Callable[[SegmentRows], Tensor]) -> Tensor:
        """[b n …], zero where padded, of what `run` gives, [s m …].

        `run` gets sequences of like length at a time: less than half of what it runs over is padding.
        """
        outputs = torch.cat([own._real(run(own)) for own in self._alike])
        return self._placed(outputs, torch.cat([own.places for own in self._alike]))

    @cached_property
    def _alike(self) -> list[SegmentRows]:
        """The sequences from half of the longest's length on, those from half of that on, and so forth."""
        if self.valid.is_meta:
            return [self]
        longest = self.valid.shape[1]
        lengths = self.valid.sum(dim=1)
        halvings = (longest / lengths).log2().floor()
        sequence = self.index // longest
        column = self.index % longest
        found = []
        for one in halvings.unique():
            kept = halvings == one
            m = int(lengths[kept].max())
            real = kept[sequence]
            row = kept.cumsum(0)[sequence[real]] - 1
            index = row * m + column[real]
            rows = self.valid[kept, :m], self.batch_row[kept]
            found.append(SegmentRows(*rows, self.shape, self.places[real], index))
        return found

    def _real(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1).index_select(0, self.index)

    def _placed(self, real: Tensor, places: Tensor) -> Tensor:
        packed = real.new_zeros(self.shape.numel(), *real.shape[1:])
        return packed.index_copy(0, places, real).unflatten(0, self.shape)
