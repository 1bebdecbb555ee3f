"""Data sources: samples, split for training, validation and test. They know files and packages, and no tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from seqkit.errors import DataError


class Sample(NamedTuple):
    """One raw example and its label: a class (int), measurements (floats), a class per token ([n] int64), a target text
    (or several, any of which is right), or None."""

    raw: Any
    label: Any = None


@dataclass(frozen=True, slots=True)
class Splits:
    """Splits of a data set.

    valid: None: `DataModule` takes it from the training split. names: names of the classes, by label. rule: how the
    data was split, in words; None: as the data source documents.
    """

    train: Sequence[Sample]
    test: Sequence[Sample]
    valid: Sequence[Sample] | None = None
    names: list[str] | None = None
    rule: str | None = None


class DataSource(ABC):
    """A data set with its splits: one known by name, or the user's own files."""

    @abstractmethod
    def splits(self) -> Splits:
        """All samples, split. Raises DataError where files are missing or cannot be what they should be."""

    def read_for(self, tokenizer: Any) -> None:  # noqa: B027, only sources of files have something to do
        """Prepare for the tokenizer that encodes the samples; called by `DataModule` before `splits`.

        A source of files may read them as `predict` will. Raises UsageError if it was told to read otherwise.
        """

    def decided(self) -> dict[str, Any]:
        """Arguments that were left open and `splits` decided by the data; a run keeps them. By default none."""
        return {}


class Samples(Sequence[Sample]):
    """Base class of samples that are made when they are asked for, by `sample`; a slice of them is a `Subset`."""

    @abstractmethod
    def sample(self, index: int) -> Sample:
        """The sample of that index."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Subset(self, range(*index.indices(len(self))))
        return self.sample(range(len(self))[index])  # raises IndexError, by which iteration ends


class Files(Samples):
    """Samples that are read from their files on access. advice: what to do about a file that has a fault."""

    def __init__(self, paths: Sequence[Path], labels: Sequence[Any], read: Callable[[Path], Any], advice: str = ""):
        self.paths, self.labels, self.read, self.advice = list(paths), list(labels), read, advice

    def __len__(self) -> int:
        return len(self.paths)

    def sample(self, index: int) -> Sample:
        try:
            return Sample(self.read(self.paths[index]), self.labels[index])
        except DataError as error:
            raise DataError(f"{error} ({self.advice})") if self.advice else error from error

    def sample_name(self, index: int) -> str:
        """The file of that sample, for messages."""
        return str(self.paths[index])


class Named(Samples):
    """Samples in memory, each with a name for messages."""

    def __init__(self, samples: Sequence[Sample], names: Sequence[str]):
        self.samples, self.names = list(samples), list(names)

    def __len__(self) -> int:
        return len(self.samples)

    def sample(self, index: int) -> Sample:
        return self.samples[index]

    def sample_name(self, index: int) -> str:
        """The name of that sample, for messages."""
        return self.names[index]


class Subset(Samples):
    """Some samples of a split, in a given order."""

    def __init__(self, samples: Sequence[Sample], indices: Sequence[int], groups: Sequence[str] | None = None):
        self.samples, self.indices = samples, list(indices)
        labels, known = labels_of(samples), groups_of(samples)
        self.labels = [labels[i] for i in self.indices]
        self.groups = list(groups) if groups is not None else known and [known[i] for i in self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def sample(self, index: int) -> Sample:
        return self.samples[self.indices[index]]

    def sample_name(self, index: int) -> str:
        """The name that it has in the whole split, for messages."""
        return sample_name(self.samples, self.indices[index])


class Relabelled(Subset):
    """The same samples with other labels."""

    def __init__(self, samples: Sequence[Sample], labels: Sequence[Any]):
        self.samples, self.indices, self.labels = samples, list(range(len(samples))), list(labels)
        self.groups = groups_of(samples)

    def sample(self, index: int) -> Sample:
        return Sample(self.samples[index].raw, self.labels[index])


def labels_of(samples: Sequence[Sample]) -> list[Any]:
    """All labels; no file is read where the split has them in `labels`."""
    known = getattr(samples, "labels", None)
    return list(known) if known is not None else [sample.label for sample in samples]


def groups_of(samples: Sequence[Sample]) -> list[str] | None:
    """Origin of each sample (a speaker, a document), as samples of one are not independent; None: not known."""
    return getattr(samples, "groups", None)


def sample_name(samples: Sequence[Sample], index: int) -> str:
    """Where a sample is from, for messages and reports: its file, its file and row, or its number.

    Samples say it by a method `sample_name(index)`, as those of `Named` do; without it a sample has a number.
    """
    named = getattr(samples, "sample_name", None)
    return named(index) if named is not None else f"sample {index}"


def stratified(labels: Sequence[Any], fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Stratified split: two lists of indices, the second with `fraction` of each class (at least one of two or more).

    labels: ints are classes; anything else is one common stratum. Each list is in a random order.
    The order comes from SHA-256 of (seed, index), so a published split does not change with a library's generator.
    Raises ValueError if `fraction` is not between 0 and 1.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction is {fraction}; give the share to set aside, at least 0 and below 1")
    strata: dict[Any, list[int]] = {}
    for i in shuffled(len(labels), seed):
        strata.setdefault(labels[i] if isinstance(labels[i], Integral) else None, []).append(i)
    aside: set[int] = set()
    for members in strata.values():
        count = max(round(len(members) * fraction), 1) if fraction > 0 else 0
        aside.update(members[: min(count, len(members) - 1)])
    order = shuffled(len(labels), -1 - seed)  # not the order above, whose first ones are set aside
    return [i for i in order if i not in aside], [i for i in order if i in aside]


def shuffled(n: int, seed: int) -> list[int]:
    """0 … n - 1 in an order that depends on `seed` alone."""
    digests = [sha256(b"%d %d" % (seed, i)).digest() for i in range(n)]
    return sorted(range(n), key=digests.__getitem__)


def import_optional(module: str, extra: str) -> Any:
    """An optional package. Raises DataError that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise _missing_package(module.partition(".")[0], extra) from error


def optional_distribution(package: str, extra: str) -> Distribution:
    """An optional package whose files are read without importing it. Raises DataError that says how to install it."""
    try:
        return distribution(package)
    except PackageNotFoundError as error:
        raise _missing_package(package, extra) from error


def _missing_package(package: str, extra: str) -> DataError:
    return DataError(f'this data needs the package {package}, which is missing: pip install "seqkit[{extra}]"')
