"""Batches of an epoch: shuffled by (seed, epoch), grouped by length, resumable in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from seqkit.interfaces import TokenBatch

CHUNK = 50
"""Batches that are sorted by length among themselves: enough to leave 1 % padding, few enough to stay random."""

Key = tuple[int, list[int]]
"""(epoch, indices of the examples): key of a batch, which a data set makes on access."""

Batch = tuple[TokenBatch, Tensor | None]
"""Tokens and targets; None: there are none."""


class BatchDataset(Protocol):
    """A map-style data set whose keys are whole batches. lengths: tokens of every example."""

    @property
    def lengths(self) -> list[int]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, key: Key) -> Batch: ...


class LengthGroupedBatchSampler:
    """Batches of every epoch, as lists of indices, examples of similar length together; each example is in one batch.

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
        generator = torch.Generator().manual_seed(fold_seed(self.seed, epoch))
        order = torch.randperm(len(self.lengths), generator=generator)
        if bool((self.lengths != self.lengths[:1]).any()):
            chunks = order.split(CHUNK * self.batch_size)
            order = torch.cat([chunk[torch.argsort(self.lengths[chunk], stable=True)] for chunk in chunks])
        batches = self._cut(order)
        return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]

    def _cut(self, order: Tensor) -> list[list[int]]:
        return [batch.tolist() for batch in order.split(self.batch_size)]


def fold_seed(*numbers: int) -> int:
    """One seed from several numbers, in [0, 2^32) as torch's CPU generator uses no more (splitmix64's finaliser)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state >> 32


class BatchLoader:
    """Data loader that iterates over one epoch after the other, and can resume: its state is (epoch, batches yielded).

    Lightning calls `set_epoch` before every epoch (it looks for it on `sampler`) and saves `state_dict` in checkpoints,
    so a run that was stopped resumes with the next batch. In a plain loop, each pass is the next epoch.
    In distributed runs, rank r takes the batches r, r + world size, …; a remainder is dropped in training.
    """

    def __init__(self, examples: BatchDataset, batch_sampler: LengthGroupedBatchSampler, num_workers: int = 0):
        self.examples, self._sampler, self.num_workers = examples, batch_sampler, num_workers
        self.epoch, self.yielded = 0, 0
        self._skip, self._begun = 0, False

    batch_sampler = None  # Lightning looks at the `batch_sampler` of every loader that has a `sampler`

    @property
    def sampler(self) -> BatchLoader:
        """What has `set_epoch`."""
        return self

    def __len__(self) -> int:
        rank, world_size = _rank_and_world_size()
        if self._sampler.shuffle:
            return len(self._sampler) // world_size
        return len(range(rank, len(self._sampler), world_size))

    def __iter__(self) -> Iterator[Batch]:
        if self._begun and not self._skip:
            self.epoch += 1
        self._begun = True
        self.yielded, self._skip = self._skip, 0
        rank, world_size = _rank_and_world_size()
        own = self._sampler.batches(self.epoch)[rank::world_size][: len(self)]
        keys: list[Key] = [(self.epoch, batch) for batch in own[self.yielded :]]
        for batch in self._read(keys):
            self.yielded += 1
            yield batch

    def batch_indices(self) -> list[list[int]]:
        """Indices of the examples of every batch of this epoch, on all devices."""
        return self._sampler.batches(self.epoch)

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch, from its start or, right after `load_state_dict`, from where it stood."""
        if epoch != self.epoch:
            self._skip = 0
        self.epoch, self._begun = epoch, False

    def state_dict(self) -> dict[str, int]:
        """Epoch, and batches yielded of it."""
        return {"epoch": self.epoch, "yielded": self.yielded}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """The next pass resumes where `state_dict` stood."""
        self.epoch, self.yielded = int(state["epoch"]), int(state["yielded"])
        self._skip, self._begun = self.yielded, False

    def _read(self, keys: list[Key]) -> Iterator[Batch]:
        if self.num_workers == 0:
            return (self.examples[key] for key in keys)
        examples = cast(Any, self.examples)  # torch's types know no keys but int
        return iter(DataLoader(examples, None, sampler=keys, num_workers=self.num_workers, collate_fn=_as_it_is))  # type: ignore[arg-type]


def _rank_and_world_size() -> tuple[int, int]:
    """Of a distributed run; (0, 1) otherwise."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def _as_it_is(batch: Batch) -> Batch:
    return batch
