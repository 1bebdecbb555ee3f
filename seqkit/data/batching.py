"""Batches of an epoch: shuffled by (seed, epoch), grouped by length, resumable in the middle of an epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from torch.utils.data._utils.pin_memory import pin_memory

from seqkit.data.workers import loader_options
from seqkit.interfaces import TokenBatch

CHUNK = 50
"""Batches of a group whose examples are sorted by length: few enough to stay random. The batch of the longest examples
of each group is mostly padding: on FSDD 5 % of all tokens, with groups of 100 batches 2 %."""

Key = tuple[int, list[int]]
"""(epoch, indices of the examples): key of a batch, which a data set makes on access."""

Batch = tuple[TokenBatch, Tensor | None]
"""Tokens and targets; None: there are none."""


class Batches(Sequence[list[int]]):
    """Indices of the examples of each batch, made when asked for.

    order: [m] all examples, one batch behind the other. bounds: [batches + 1] where each batch begins in `order`.
    picked: the batches of this sequence, in its order.
    """

    def __init__(self, order: Tensor, bounds: Tensor, picked: Tensor):
        self.order = order
        self.bounds = bounds
        self.picked = picked

    def __len__(self) -> int:
        return len(self.picked)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            return Batches(
                self.order, self.bounds, self.picked[torch.arange(first, max(first, last), step)]
            )
        start = self.bounds[self.picked[index]]
        end = self.bounds[self.picked[index] + 1]
        return self.order[start:end].tolist()


class BatchDataset(Protocol):
    """Map-style data set whose keys are whole batches. lengths: tokens of every example, or of every packed row."""

    @property
    def lengths(self) -> Sequence[int]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, key: Key) -> Batch: ...


class LengthGroupedBatchSampler:
    """Batches of every epoch, as lists of indices, examples of similar length together; each example is in one batch.

    lengths: tokens of every example. batch_size: examples of a batch; with `tokens_per_batch`, the most of them.
    tokens_per_batch: most tokens of a batch, counted with padding; neighbours in length then share a batch in every
    epoch, and only the order among equal lengths changes.
    shuffle False: sorted by length, the same in every epoch (evaluation).
    sort_keys: function from an epoch to a number for each example that rises with its length there, by which shuffled
    batches are grouped in place of `lengths`, where augmentation changes these.
    Raises ValueError if an example has more than tokens_per_batch tokens.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        *,
        shuffle: bool,
        seed: int = 0,
        tokens_per_batch: int | None = None,
        sort_keys: Callable[[int], Sequence[float]] | None = None,
    ):
        self.lengths = torch.from_numpy(np.array(lengths))
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.sort_keys = sort_keys
        self._sizes: list[int] | None = None
        if tokens_per_batch is not None:
            longest = max(lengths, default=0)
            if tokens_per_batch < longest:
                raise ValueError(
                    f"tokens_per_batch is {tokens_per_batch}; the longest example has {longest}"
                )
            self._sizes = _sizes_of(sorted(lengths), tokens_per_batch, batch_size)

    def __len__(self) -> int:
        if self._sizes is None:
            return -(-len(self.lengths) // self.batch_size)
        return len(self._sizes)

    def batches(self, epoch: int) -> Batches:
        """Batches of that epoch; the last one built may be smaller, none is dropped."""
        if not self.shuffle:
            return self._cut(torch.argsort(self.lengths, stable=True))
        generator = torch.Generator().manual_seed(fold_seed(self.seed, epoch))
        # int32 holds the same permutation in half the memory
        dtype = torch.int32 if len(self.lengths) < 2**31 else torch.int64
        order = torch.randperm(len(self.lengths), generator=generator, dtype=dtype)
        if self.sort_keys is None:
            keys = self.lengths
        else:
            keys = torch.as_tensor(self.sort_keys(epoch))
        if self._sizes is not None:
            order = order[torch.argsort(keys[order], stable=True)]
        elif bool((keys != keys[:1]).any()):
            chunks = order.split(CHUNK * self.batch_size)
            order = torch.cat([chunk[torch.argsort(keys[chunk], stable=True)] for chunk in chunks])
        batches = self._cut(order)
        batches.picked = torch.randperm(len(batches), generator=generator)
        return batches

    def _cut(self, order: Tensor) -> Batches:
        if self._sizes is None:
            bounds = torch.arange(len(self) + 1).mul_(self.batch_size).clamp_(max=len(order))
        else:
            bounds = torch.tensor([0, *self._sizes]).cumsum(0)
        return Batches(order, bounds, torch.arange(len(self)))


def _sizes_of(lengths: Sequence[int], num_tokens: int, most: int) -> list[int]:
    """Number of examples in each batch: as many as stay within `num_tokens` when padded, at most `most`.

    lengths: tokens of the examples, rising. As nothing else matters, every epoch has equally many batches.
    """
    sizes: list[int] = []
    taken = 0
    for length in lengths:
        if taken and (taken == most or (taken + 1) * length > num_tokens):
            sizes.append(taken)
            taken = 0
        taken += 1
    return [*sizes, taken] if taken else sizes


def fold_seed(*numbers: int) -> int:
    """One seed from several numbers, in [0, 2^32) as torch's CPU generator uses no more (splitmix64's finaliser)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state >> 32


class EpochBatches(Sampler[Key]):
    """Keys of the batches of one epoch, for this process: rank r takes the batches r, r + world size, …

    In training a remainder is dropped, so that all ranks take equally many steps. start: number of batches that are
    left out at the beginning of `epoch`, because they were taken before training was stopped.
    """

    def __init__(self, batch_sampler: LengthGroupedBatchSampler):
        self.batch_sampler = batch_sampler
        self.epoch = 0
        self.start = 0
        self.is_next = True  # False: the epoch has begun, so another pass is the next epoch

    def __len__(self) -> int:
        rank, world_size = rank_and_world_size()
        if self.batch_sampler.shuffle:
            return len(self.batch_sampler) // world_size
        return len(range(rank, len(self.batch_sampler), world_size))

    def __iter__(self) -> Iterator[Key]:
        for batch in self.own()[self.start :]:
            yield self.epoch, batch

    def own(self) -> Sequence[list[int]]:
        """Indices of the examples of every batch that this rank takes in this epoch."""
        rank, world_size = rank_and_world_size()
        return self.batch_sampler.batches(self.epoch)[rank::world_size][: len(self)]

    def set_epoch(self, epoch: int) -> None:
        """Make this epoch the next pass, from its start or, right after a state was loaded, from where it stood."""
        if epoch != self.epoch:
            self.start = 0
        self.epoch = epoch
        self.is_next = True


class BatchLoader(DataLoader[Batch]):
    """torch's DataLoader over one epoch after the other, which can resume: its state is (epoch, batches yielded).

    Lightning calls `set_epoch` of its sampler before every epoch and saves `state_dict` in checkpoints, so a run that
    was stopped resumes with the next batch. In a plain loop, each pass is the next epoch. The data set makes whole
    batches, so torch's own batching is off (`batch_size=None`).
    examples: the data set: its epoch and indices to the batch that is yielded. threads: number of threads that make
    batches ahead in pinned memory, so that a GPU does not wait for them; 0 if the data set draws random numbers.
    """

    def __init__(
        self,
        examples: BatchDataset,
        batch_sampler: LengthGroupedBatchSampler,
        num_workers: int = 0,
        threads: int = 0,
    ):
        self.threads = threads
        self.examples: Any = examples
        self.epoch_batches = EpochBatches(batch_sampler)
        self.yielded = 0
        # torch's types know no keys but int
        sampler: Any = self.epoch_batches
        super().__init__(cast(Any, examples), sampler=sampler, **loader_options(num_workers))

    @property
    def epoch(self) -> int:
        """Epoch of the pass that runs, or of the next one."""
        return self.epoch_batches.epoch

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        batches = self.epoch_batches
        if not batches.is_next:
            batches.epoch = batches.epoch + 1
            batches.start = 0
        batches.is_next = False
        self.yielded = batches.start
        for batch in self._made_ahead() if self.threads else super().__iter__():
            self.yielded += 1
            yield batch
        batches.start = 0

    def _made_ahead(self) -> Iterator[Batch]:
        with ThreadPoolExecutor(self.threads) as pool:
            made = deque[Future[Any]]()
            for key in self.epoch_batches:
                made.append(pool.submit(lambda key: pin_memory(self.examples[key]), key))
                if len(made) > self.threads:
                    yield made.popleft().result()
            while made:
                yield made.popleft().result()

    def batch_indices(self) -> Sequence[list[int]]:
        """Indices of the examples of every batch of this epoch, on all devices."""
        return self.epoch_batches.batch_sampler.batches(self.epoch)

    def state_dict(self) -> dict[str, int]:
        """Epoch, and number of batches yielded of it."""
        return {"epoch": self.epoch, "yielded": self.yielded}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume in the next pass where `state_dict` stood."""
        batches = self.epoch_batches
        batches.epoch = int(state["epoch"])
        batches.start = int(state["yielded"])
        batches.is_next = True
        self.yielded = batches.start


def rank_and_world_size() -> tuple[int, int]:
    """Rank and world size of a distributed run; (0, 1) otherwise."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()
