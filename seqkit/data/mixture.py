"""Batches of several tasks: which task each optimizer step is of, as a function of (seed, step)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from seqkit.data.batching import (
    BatchDataset,
    BatchLoader,
    LengthGroupedBatchSampler,
    fold_seed,
    rank_and_world_size,
)
from seqkit.data.module import DataModule
from seqkit.errors import UsageError
from seqkit.interfaces import TokenBatch

DRAWN = 256
"""Optimizer steps whose tasks are drawn together, where tasks have shares."""

TaskKey = tuple[str, int, int]
"""(task, epoch of that task, number of the batch in it): key of a batch."""


class TaskBatch(NamedTuple):
    """A batch of one task: tokens and targets as of that task alone, and its name."""

    tokens: TokenBatch
    targets: Tensor | None
    task: str


class TaskOrder:
    """Task of every optimizer step of a training, by number.

    shares: share of the steps of each task; None: all get equally many, each once in every round of as many steps as
    there are tasks, in an order drawn for that round. seed: seed of the draws; step i has the same task in every run.
    """

    def __init__(self, num_tasks: int, shares: Sequence[float] | None, seed: int):
        self.num_tasks = num_tasks
        self.seed = seed
        if shares is None:
            self.shares = None
        else:
            self.shares = torch.tensor(shares, dtype=torch.float64)
        self._length = num_tasks if shares is None else DRAWN

    def block(self, number: int) -> list[int]:
        """Tasks of the steps of a round, or of those that are drawn together."""
        generator = torch.Generator().manual_seed(fold_seed(self.seed, number, 6))
        if self.shares is None:
            return torch.randperm(self.num_tasks, generator=generator).tolist()
        return torch.multinomial(
            self.shares, self._length, replacement=True, generator=generator
        ).tolist()

    def steps(self, first: int, last: int) -> list[int]:
        """Tasks of the steps first, …, last - 1."""
        start = first // self._length
        end = -(-last // self._length)
        tasks = [task for number in range(start, end) for task in self.block(number)]
        return tasks[first - start * self._length : last - start * self._length]

    def count(self, step: int) -> list[int]:
        """Number of steps of each task before that step."""
        blocks = step // self._length if self.shares is None else 0
        found = [blocks] * self.num_tasks
        for task in self.steps(blocks * self._length, step):
            found[task] += 1
        return found


class TaskBatches:
    """Keys of the batches of all tasks, in an epoch of as many optimizer steps as an epoch of each task has together.

    samplers: batches of each task. order: task of each step; None: one task behind the other, every batch once
    (evaluation). accumulate: micro-batches of an optimizer step, which all are of one task, on all devices; a task's
    batches that fill no whole step are left out at the end of its epoch, unless it is the only task.
    Raises UsageError for a task that has fewer batches than a step takes.
    """

    def __init__(
        self,
        samplers: Mapping[str, LengthGroupedBatchSampler],
        order: TaskOrder | None = None,
        accumulate: int = 1,
    ):
        self.samplers = dict(samplers)
        self.order = order
        self.accumulate = accumulate
        self.shuffle = order is not None

    def _steps(self) -> tuple[int, dict[str, int]]:
        """Batches of a step on all devices, and the steps of an epoch of each task."""
        size = self.accumulate * rank_and_world_size()[1]
        for name, sampler in self.samplers.items():
            if len(sampler) < size:
                few = f"the task {name} has {len(sampler)} batches, fewer than the {size} of an optimizer step"
                raise UsageError(f"{few}; give a smaller --tasks.{name}.data.batch_size")
        return size, {name: len(sampler) // size for name, sampler in self.samplers.items()}

    def __len__(self) -> int:
        if self.order is None or len(self.samplers) == 1:
            return sum(map(len, self.samplers.values()))
        size, steps = self._steps()
        return size * sum(steps.values())

    def batches(self, epoch: int) -> list[TaskKey]:
        """Keys of that epoch's batches, in order."""
        names = list(self.samplers)
        if self.order is None or len(names) == 1:
            return [(name, epoch, i) for name in names for i in range(len(self.samplers[name]))]
        size, steps = self._steps()
        number = sum(steps.values())
        done = self.order.count(epoch * number)
        found = list[TaskKey]()
        for task in self.order.steps(epoch * number, (epoch + 1) * number):
            name = names[task]
            step = done[task]
            found += [
                (name, step // steps[name], step % steps[name] * size + i) for i in range(size)
            ]
            done[task] += 1
        return found


class TaskExamples:
    """Data sets of all tasks as one whose keys are (epoch, `TaskKey`)."""

    def __init__(self, loaders: Mapping[str, BatchLoader]):
        self.loaders = dict(loaders)
        self._epochs: dict[str, tuple[int, Any]] = {}

    def __len__(self) -> int:
        return sum(len(loader.examples) for loader in self.loaders.values())

    def indices(self, key: TaskKey) -> list[int]:
        """Examples of a batch, by their number in the task's data set."""
        name, epoch, number = key
        if name not in self._epochs or self._epochs[name][0] != epoch:
            self._epochs[name] = (
                epoch,
                self.loaders[name].epoch_batches.batch_sampler.batches(epoch),
            )
        return cast("list[int]", self._epochs[name][1][number])

    def __getitem__(self, key: tuple[int, TaskKey]) -> TaskBatch:
        name, epoch, _ = key[1]
        tokens, targets = self.loaders[name].examples[epoch, self.indices(key[1])]
        return TaskBatch(tokens, targets, name)


class MixtureData:
    """Data of several tasks, each set up, as one training takes it.

    sampling: "even", as many steps for each task; "proportional", in proportion to the batches of its epoch;
    {"temperature": T}, in proportion to that number to the power 1 / T (1: proportional, large: nearly even; Devlin
    2018, multilingual BERT's README, has 1 / T = 0.7); or the share of each task by its name.
    seed: seed of the order of tasks. accumulate: micro-batches of an optimizer step.
    """

    def __init__(
        self,
        tasks: Mapping[str, DataModule],
        sampling: str | Mapping[str, float] = "even",
        *,
        seed: int = 0,
        accumulate: int = 1,
    ):
        self.tasks = dict(tasks)
        self.sampling = sampling
        self.seed = seed
        self.accumulate = accumulate
        self.num_workers = max(data.num_workers for data in tasks.values())

    def shares(self) -> list[float] | None:
        """Share of the steps of each task; None: all have the same."""
        sizes = [len(data.train_dataloader()) for data in self.tasks.values()]
        if self.sampling == "even":
            return None
        if self.sampling == "proportional":
            return [float(size) for size in sizes]
        assert isinstance(self.sampling, Mapping)
        if set(self.sampling) == set(self.tasks):
            return [float(self.sampling[name]) for name in self.tasks]
        return [size ** (1 / self.sampling["temperature"]) for size in sizes]

    def order(self) -> TaskOrder:
        """Task of each optimizer step."""
        return TaskOrder(len(self.tasks), self.shares(), self.seed)

    def train_dataloader(self) -> BatchLoader:
        """Batches of the training splits, the task of each step as `order` says."""
        return self._loader(
            {name: data.train_dataloader() for name, data in self.tasks.items()}, self.order()
        )

    def val_dataloader(self) -> list[BatchLoader]:
        """Batches of the validation split of each task that has one."""
        loaders = {name: data.val_dataloader() for name, data in self.tasks.items()}
        return [
            self._loader({name: one}, None)
            for name, one in loaders.items()
            if isinstance(one, BatchLoader)
        ]

    def steps(self, number: int) -> dict[str, int]:
        """Optimizer steps of each task among the first so many."""
        return dict(zip(self.tasks, self.order().count(number)))

    def sha256(self) -> dict[str, str]:
        """Digest of each split of each task whose loader was made, as image/training."""
        found = {name: data.sha256() for name, data in self.tasks.items()}
        return {
            f"{name}/{split}": digest
            for name, splits in found.items()
            for split, digest in splits.items()
        }

    def changed_splits(self, recorded: Mapping[str, str]) -> list[str]:
        """Splits of all tasks, as `DataModule.changed_splits`."""
        found = []
        for name, data in self.tasks.items():
            own = {
                split: recorded[f"{name}/{split}"]
                for split in data.sha256()
                if f"{name}/{split}" in recorded
            }
            found += [f"{name}/{split}" for split in data.changed_splits(own)]
        return found

    def _loader(self, loaders: Mapping[str, BatchLoader], order: TaskOrder | None) -> BatchLoader:
        samplers = {name: loader.epoch_batches.batch_sampler for name, loader in loaders.items()}
        batches: Any = TaskBatches(samplers, order, self.accumulate)
        return BatchLoader(cast(BatchDataset, TaskExamples(loaders)), batches, self.num_workers)
