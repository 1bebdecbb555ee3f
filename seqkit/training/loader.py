"""A DataLoader for any map-style data set that resumes in the middle of an epoch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from seqkit.data.batching import BatchLoader, Key, LengthGroupedBatchSampler, fold_seed


class ResumableLoader(BatchLoader):
    """DataLoader whose place in an epoch is saved in Lightning's checkpoints, so a run resumes with the next batch.

    The order depends only on (seed, epoch). Random numbers that the data set draws, as for augmentation, depend only on
    (seed, epoch, batch), for any number of workers. Each of n devices takes every n-th batch, so give Lightning's
    Trainer `use_distributed_sampler=False`.
    dataset: map-style data set. collate: function from a list of its examples to a batch.

    >>> loader = ResumableLoader(torch.arange(5), batch_size=2)
    >>> [batch.tolist() for batch in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        seed: int = 0,
        num_workers: int = 0,
        collate: Callable[[list[Any]], Any] = default_collate,
    ):
        sampler = LengthGroupedBatchSampler(
            [1] * len(dataset), batch_size, shuffle=shuffle, seed=seed
        )
        super().__init__(_Collated(dataset, seed, collate), sampler, num_workers)


class _Collated:
    """Batches of a data set by key, each made with its own random seed."""

    def __init__(self, dataset: Any, seed: int, collate: Callable[[list[Any]], Any]):
        self.dataset = dataset
        self.seed = seed
        self.collate = collate

    @property
    def lengths(self) -> list[int]:
        return [1] * len(self)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: Key) -> Any:
        epoch, indices = key
        seed = fold_seed(self.seed, epoch, *indices)
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  (of users' data sets)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            try:
                return self.collate([self.dataset[i] for i in indices])
            finally:
                random.setstate(python)
                np.random.set_state(numpy)  # noqa: NPY002
