"""From a source to batches: what a recipe's `data:` section builds.

b batch · n tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from pytorch_lightning import LightningDataModule
from torch.utils.data import DataLoader

from seqkit.contract import DataError, Objective, Tokenizer, Tokens
from seqkit.data.batches import Batch, Encoded, Key, Windows
from seqkit.data.order import Order
from seqkit.data.progress import progress
from seqkit.data.source import Named, Sample, Source, Splits, Subset, labels_of, shuffled, stratified, where


class Loader:
    """Batches of one epoch after the other, and where it stands in them: (epoch, batches yielded).

    Lightning calls `set_epoch` before every epoch (it looks for it on `sampler`) and saves `state_dict` in checkpoints,
    so that a run that was stopped goes on with the batch that came next. In a plain loop, each pass is the next epoch.
    With several processes, each takes every so many-th batch; what does not come out even is left out in training.
    """

    def __init__(self, examples: Encoded | Windows, order: Order, num_workers: int = 0):
        self.examples, self.order, self.num_workers = examples, order, num_workers
        self.epoch, self.yielded = 0, 0
        self._skip, self._begun = 0, False

    batch_sampler = None  # Lightning asks every loader that has a sampler for it

    @property
    def sampler(self) -> Loader:
        """What has `set_epoch`."""
        return self

    def __len__(self) -> int:
        rank, world = _place()
        return len(self.order) // world if self.order.shuffle else len(range(rank, len(self.order), world))

    def __iter__(self) -> Iterator[Batch]:
        if self._begun and not self._skip:
            self.epoch += 1
        self._begun = True
        self.yielded, self._skip = self._skip, 0
        rank, world = _place()
        mine = self.order.batches(self.epoch)[rank::world][: len(self)]
        keys: list[Key] = [(self.epoch, batch) for batch in mine[self.yielded :]]
        for batch in self._read(keys):
            self.yielded += 1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch, from its start or, right after `load_state_dict`, from where it stood."""
        if epoch != self.epoch:
            self._skip = 0
        self.epoch, self._begun = epoch, False

    def state_dict(self) -> dict[str, int]:
        """Where it stands."""
        return {"epoch": self.epoch, "yielded": self.yielded}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Stand where `state_dict` stood."""
        self.epoch, self.yielded = int(state["epoch"]), int(state["yielded"])
        self._skip, self._begun = self.yielded, False

    def _read(self, keys: list[Key]) -> Iterator[Batch]:
        if self.num_workers == 0:
            return (self.examples[key] for key in keys)
        examples = cast(Any, self.examples)  # a map-style data set whose keys are whole batches
        return iter(DataLoader(examples, None, sampler=keys, num_workers=self.num_workers, collate_fn=_same))  # type: ignore[arg-type]


class Data(LightningDataModule):
    """A source, cut into batches.

    batch_size: examples (or windows) a batch. window: tokens to predict at a time, for long documents; None: an example
    is encoded whole. valid_fraction: taken from the training part for validation where the source ships none (the tail
    of each document, with windows; by class, with classes). augment: changes to raw training samples, drawn anew in
    every epoch. num_workers: processes that encode. limit: at most so many samples (or windows) of each part.
    """

    def __init__(
        self,
        source: Source,
        *,
        batch_size: int = 32,
        window: int | None = None,
        valid_fraction: float = 0.1,
        augment: list[Callable[[Any], Any]] | None = None,
        num_workers: int = 0,
        limit: int | None = None,
    ):
        super().__init__()
        if not 0 <= valid_fraction < 1:
            raise ValueError(f"valid_fraction is {valid_fraction}; give at least 0 (no validation) and below 1")
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; give at least 1, or null for all")
        if num_workers < 0:
            raise ValueError(f"num_workers is {num_workers}; give 0 (encode in this process) or more")
        if window is not None and augment:
            raise ValueError("augment changes whole samples and window cuts documents; use one of the two")
        self.source, self.batch_size, self.window, self.valid_fraction = source, batch_size, window, valid_fraction
        self.augment, self.num_workers, self.limit = list(augment or ()), num_workers, limit
        self._connected: tuple[Tokenizer, Objective, int] | None = None
        self._splits: Splits | None = None
        self._encoded: dict[str, Encoded | Windows] = {}

    def splits(self) -> Splits:
        """The samples of each part as they are used: validation taken out, limited. Read once.

        Raises DataError where a part is empty.
        """
        if self._splits is None:
            given = self.source.splits()
            train, valid = given.train, given.valid
            for part, samples in (("training", train), ("test", given.test)):
                if len(samples) == 0:
                    raise DataError(f"the {part} part of {type(self.source).__name__} is empty; give it samples")
            if valid is None:
                train, valid = self._carved(train)
            self._splits = Splits(
                self._limited(train), self._limited(given.test), self._limited(valid) if valid else None, given.names
            )
        return self._splits

    def connect(self, tokenizer: Tokenizer, objective: Objective, seed: int = 0) -> None:
        """Read the data, and show the training part to the tokenizer and objective that still have to be fitted.

        Raises DataError where the objective needs labels and a sample has none.
        """
        splits = self.splits()
        if objective.labelled:
            for part, samples in self._parts().items():
                for i, label in enumerate(labels_of(samples)):
                    if label is None:
                        raise DataError(
                            f"{part} data, {where(samples, i)} has no label, which {type(objective).__name__} needs; "
                            "label it, or pretrain without labels (NextToken, Masked)"
                        )
        if hasattr(tokenizer, "fit") and not _fitted(tokenizer):
            tokenizer.fit([sample.raw for sample in progress(splits.train, "reading training data", len(splits.train))])
        if not objective.state():
            objective.fit(labels_of(splits.train), splits.names)
        self._connected, self._encoded = (tokenizer, objective, seed), {}

    def train_dataloader(self) -> Loader:
        """Batches of (TokenBatch, labels or None), shuffled by (seed, epoch)."""
        return self._loader("training", shuffle=True)

    def val_dataloader(self) -> Loader | list[Any]:
        """Batches of the validation part; an empty list where there is none."""
        return self._loader("validation", shuffle=False) if self.splits().valid else []

    def test_dataloader(self) -> Loader:
        """Batches of the whole test part."""
        return self._loader("test", shuffle=False)

    def extents(self) -> list[list[float]]:
        """[smallest, largest] last position of the training examples on each axis; empty for windows and for graphs."""
        examples = self._encoded.get("training")
        return examples.extents if isinstance(examples, Encoded) else []

    def _parts(self) -> dict[str, Sequence[Sample]]:
        splits = self.splits()
        return {"training": splits.train, "test": splits.test} | ({"validation": splits.valid} if splits.valid else {})

    def _loader(self, part: str, *, shuffle: bool) -> Loader:
        if self._connected is None:
            raise ValueError("the data is not connected yet: call data.connect(tokenizer, objective, seed) first")
        tokenizer, objective, seed = self._connected
        if part not in self._encoded:
            samples = self._parts()[part]
            if self.window is not None:
                documents = self._documents(samples, tokenizer, part)
                examples: Encoded | Windows = Windows(
                    documents, self.window, part, shuffle=shuffle, seed=seed, limit=self.limit
                )
            else:
                examples = Encoded(
                    samples,
                    tokenizer,
                    part,
                    encode_label=objective.encode_label if objective.labelled else None,
                    augment=self.augment if shuffle else (),
                    keep=self.num_workers == 0,
                    seed=seed,
                )
            self._encoded[part] = examples
        examples = self._encoded[part]
        return Loader(examples, Order(examples.lengths, self.batch_size, shuffle=shuffle, seed=seed), self.num_workers)

    def _documents(self, samples: Sequence[Sample], tokenizer: Tokenizer, part: str) -> list[Tokens]:
        documents = []
        for i in progress(range(len(samples)), f"encoding {part} data", len(samples)):
            try:
                documents.append(tokenizer.encode(samples[i].raw))
            except DataError as error:
                raise DataError(f"{part} data, {where(samples, i)}: {error}") from error
        return documents

    def _carved(self, train: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample] | None]:
        if self.valid_fraction == 0:
            return train, None
        if self.window is not None and all(isinstance(sample.raw, str) for sample in train):
            cuts = [round(len(sample.raw) * (1 - self.valid_fraction)) for sample in train]
            names = [where(train, i) for i in range(len(train))]
            front = [(Sample(s.raw[:cut], s.label), name) for s, cut, name in zip(train, cuts, names) if cut > 0]
            back = [(Sample(s.raw[cut:], s.label), name) for s, cut, name in zip(train, cuts, names) if s.raw[cut:]]
            return _named(front), _named(back) if back else None
        rest, part = stratified(labels_of(train), self.valid_fraction, seed=1)
        return (Subset(train, rest), Subset(train, part)) if part else (train, None)

    def _limited(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        if self.limit is None or self.window is not None or len(samples) <= self.limit:
            return samples  # windows are counted where they are cut
        return Subset(samples, sorted(shuffled(len(samples), seed=2)[: self.limit]))


def _named(pairs: Sequence[tuple[Sample, str]]) -> Named:
    return Named([sample for sample, _ in pairs], [name for _, name in pairs])


def _fitted(tokenizer: Tokenizer) -> bool:
    try:
        return tokenizer.spec is not None
    except ValueError:  # the contract: spec raises until the tokenizer has seen data
        return False


def _place() -> tuple[int, int]:
    """(rank, processes) of a distributed run; (0, 1) otherwise."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def _same(batch: Batch) -> Batch:
    return batch
