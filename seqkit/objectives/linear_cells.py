"""Linear model of a row's cells, whose outputs are averaged with those of a network.

b batch · r rows with cells · n tokens · f numbers of a row · q inputs of the linear model · k outputs
"""

from __future__ import annotations

import torch
from einops import rearrange, repeat
from torch import Tensor

from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.interfaces.base import Shortcut

MOST = 3.0
"""Standard deviations from the mean beyond which a number counts as these: a straight line fails first far outside."""


class LinearCells(Shortcut):
    """s (outputs of the network) + t (x W), where x are the numbers, bins and words of a row, and a 1.

    The network is trained alone: s is 1 and t is 0 until `seqkit.runs.linear_model` fits W, s and t.
    spec: of the tokens. part: name of the part of joined tokens that holds the cells; None: they have no parts.
    """

    weight: Tensor
    shares: Tensor

    def __init__(self, spec: TokenSpec, part: str | None, num_outputs: int):
        super().__init__()
        self.part = part
        self.spec = spec if part is None else spec.part(part)
        self.register_buffer(
            "weight",
            torch.zeros(self.spec.num_features + sum(self.spec.vocab_sizes) + 1, num_outputs),
        )
        self.register_buffer("shares", torch.tensor([1.0, 0.0]))

    def is_bin(self) -> Tensor:
        """Which inputs are bins, [q] bool."""
        place = torch.arange(len(self.weight))
        return (place < self.spec.num_features) & (place % max(1, self.spec.num_given) > 0)

    def inputs(self, batch: TokenBatch) -> Tensor:
        """x [b q]: numbers and their bins, how many cells each column and each word has, and 1."""
        x = self.weight.new_zeros(batch.valid.shape[0], len(self.weight) - 1)
        if self.part is None:
            x = self._of_cells(batch)
        elif batch.parts is not None and self.part in batch.parts:
            found = batch.parts[self.part]
            x = x.index_add(0, found.rows(batch.valid.shape[1]), self._of_cells(found.batch))
        return torch.cat([x.clamp(-MOST, MOST), torch.ones_like(x[:, :1])], dim=1)

    def _of_cells(self, cells: TokenBatch) -> Tensor:
        """The inputs of each row of cells, [r q - 1]."""
        valid = cells.valid.to(self.weight.dtype)
        numbers = self.spec.numbers_of(cells).to(valid) * rearrange(valid, "r n -> r n 1")
        ids = cells.content + torch.tensor([0, self.spec.vocab_sizes[0]], device=valid.device)
        counts = valid.new_zeros(valid.shape[0], sum(self.spec.vocab_sizes))
        counts = counts.scatter_add(
            1, rearrange(ids, "r n i -> r (n i)"), repeat(valid, "r n -> r (n i)", i=2)
        )
        return torch.cat([numbers.sum(dim=1)[:, : self.spec.num_features], counts], dim=1)

    def forward(self, outputs: Tensor, batch: TokenBatch) -> Tensor:
        """Outputs [b k] of both; in training, those of the network."""
        if self.training:
            return outputs
        return self.shares[0] * outputs + self.shares[1] * (self.inputs(batch) @ self.weight)
