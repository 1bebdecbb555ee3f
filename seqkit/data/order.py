"""Which examples make up which batch of an epoch: shuffled by (seed, epoch), examples of similar length together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

CHUNK = 50
"""Batches that are sorted by length among themselves: enough to leave 1 % padding, few enough to stay random."""


class Order:
    """The batches of every epoch, as lists of indices; each example is in exactly one batch.

    lengths: of every example. shuffle False: sorted by length, the same in every epoch (evaluation).
    Raises ValueError if batch_size is below 1.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, *, shuffle: bool, seed: int = 0):
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; give at least 1")
        self.lengths, self.batch_size, self.shuffle, self.seed = torch.as_tensor(lengths), batch_size, shuffle, seed

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def batches(self, epoch: int) -> list[list[int]]:
        """The batches of that epoch; the last one built may be smaller, none is dropped."""
        if not self.shuffle:
            return self._cut(torch.argsort(self.lengths, stable=True))
        generator = torch.Generator().manual_seed(mixed(self.seed, epoch))
        order = torch.randperm(len(self.lengths), generator=generator)
        if bool((self.lengths != self.lengths[:1]).any()):
            chunks = order.split(CHUNK * self.batch_size)
            order = torch.cat([chunk[torch.argsort(self.lengths[chunk], stable=True)] for chunk in chunks])
        batches = self._cut(order)
        return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]

    def _cut(self, order: torch.Tensor) -> list[list[int]]:
        return [batch.tolist() for batch in order.split(self.batch_size)]


def mixed(*numbers: int) -> int:
    """One seed from several numbers, in [0, 2^32) as torch's CPU generator uses no more (splitmix64's finaliser)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state >> 32
