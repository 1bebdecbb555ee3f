"""What a data set is: samples, split for training and test. Sources know files and packages, and no tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from seqkit.contract import DataError


class Sample(NamedTuple):
    """One raw example and its label, or None: a class (int), measurements (floats), classes per token ([n] int64), or
    a text (or several, any of which is right) to be written from it."""

    raw: Any
    label: Any = None


@dataclass(frozen=True, slots=True)
class Splits:
    """The parts of a data set. valid None: the loader takes one from the training part. names: of classes, by label."""

    train: Sequence[Sample]
    test: Sequence[Sample]
    valid: Sequence[Sample] | None = None
    names: list[str] | None = None


class Source(ABC):
    """A data set: by name, or of the user's own files."""

    @abstractmethod
    def splits(self) -> Splits:
        """All samples, split. Raises DataError where files are missing or cannot be what they should be."""


class Files(Sequence[Sample]):
    """Samples that are read from their files when asked for."""

    def __init__(self, paths: Sequence[Path], labels: Sequence[Any], read: Callable[[Path], Any]):
        self.paths, self.labels, self.read = list(paths), list(labels), read

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Files(self.paths[index], self.labels[index], self.read)
        return Sample(self.read(self.paths[index]), self.labels[index])

    def where(self, index: int) -> str:
        """The file of that sample, for messages."""
        return str(self.paths[index])


class Named(Sequence[Sample]):
    """Samples at hand, each with the name that messages give it."""

    def __init__(self, samples: Sequence[Sample], names: Sequence[str]):
        self.samples, self.names = samples, list(names)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Named(self.samples[index], self.names[index])
        return self.samples[index]

    def where(self, index: int) -> str:
        """The name of that sample, for messages."""
        return self.names[index]


class Subset(Sequence[Sample]):
    """Some samples of a split, in a given order."""

    def __init__(self, samples: Sequence[Sample], indices: Sequence[int]):
        self.samples, self.indices = samples, list(indices)
        everything = labels_of(samples)
        self.labels = [everything[i] for i in self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Subset(self.samples, self.indices[index])
        return self.samples[self.indices[index]]

    def where(self, index: int) -> str:
        """As the whole split says it."""
        return where(self.samples, self.indices[index])


def labels_of(samples: Sequence[Sample]) -> list[Any]:
    """All labels, without reading files where the split knows them beforehand."""
    known = getattr(samples, "labels", None)
    return list(known) if known is not None else [sample.label for sample in samples]


def where(samples: Sequence[Sample], index: int) -> str:
    """Name of a sample for messages: its file where it has one, its number otherwise."""
    named = getattr(samples, "where", None)
    return named(index) if named is not None else f"sample {index}"


def stratified(labels: Sequence[Any], fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Two lists of indices, the second with `fraction` of each class (at least one where a class has two or more).

    labels: ints are classes; anything else is one common stratum. Each list is in a random order.
    The order comes from SHA-256 of (seed, index), so a published split does not change with a library's generator.
    Raises ValueError if `fraction` is not between 0 and 1.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction is {fraction}; give the part to set aside, at least 0 and below 1")
    strata: dict[Any, list[int]] = {}
    for i in shuffled(len(labels), seed):
        strata.setdefault(labels[i] if isinstance(labels[i], int) else None, []).append(i)
    aside: set[int] = set()
    for members in strata.values():
        count = max(round(len(members) * fraction), 1) if fraction > 0 else 0
        aside.update(members[: min(count, len(members) - 1)])
    order = shuffled(len(labels), -1 - seed)  # another order than the one that decided: its first ones are set aside
    return [i for i in order if i not in aside], [i for i in order if i in aside]


def shuffled(n: int, seed: int) -> list[int]:
    """0 … n - 1 in an order that depends on `seed` alone."""
    return sorted(range(n), key=lambda i: sha256(f"{seed} {i}".encode()).digest())


def need(module: str, extra: str) -> Any:
    """An optional package. Raises DataError that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise DataError(
            f'this data needs the package {package}, which is missing: pip install "seqkit[{extra}]"'
        ) from error
