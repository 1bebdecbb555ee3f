"""Samples: raw data with its label, group and name, in splits. No torch here, and no tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """One example of a data set.

    raw: what the tokenizer encodes. label: a class (int), measurements (floats), a class for each token ([n] int64), a
    target text (or several, any of which is right), or None. group: whom or what it is from (a speaker, a patient), as
    samples of one group are not independent; None: it stands alone. name: where it is from, for messages and reports.

    >>> Sample("ham", 0)._replace(group="ann")
    Sample(raw='ham', label=0, group='ann', name='')
    """

    raw: Any
    label: Any = None
    group: str | None = None
    name: str = ""


class Samples(Sequence[Sample]):
    """Samples of a split. Labels, groups and names are known at once; raw data is read when it is asked for.

    read: gives the raw data of a sample by its index. labels: of all samples. groups: of all samples; None: each stands
    alone. name: gives the name of a sample by its index. key: gives a fingerprint of all raw data, by which encoded
    samples are found again on disk; None, or a key of None: they are not kept there. advice: gives what to type where
    one cannot be encoded; None, or an empty text: nothing.

    >>> samples = Samples.of([Sample("ham", 0), Sample("spam", 1, name="row 2"), Sample("eggs", 0)])
    >>> samples.labels, samples.at([1])[0].raw, samples.at([1, 2]).name(1)
    ([0, 1, 0], 'spam', 'sample 2')
    """

    def __init__(
        self,
        read: Callable[[int], Any],
        labels: Sequence[Any],
        *,
        groups: Sequence[str | None] | None = None,
        name: Callable[[int], str] = "sample {}".format,
        key: Callable[[], str | None] | None = None,
        advice: Callable[[], str] | None = None,
    ):
        self.read = read
        self.labels = list(labels)
        self.name = name
        self.key = key
        self.advice = advice
        self.groups = None if groups is None else list(groups)

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Samples:
        """Any sequence of samples. Its labels, groups and names are read at once."""
        if isinstance(samples, cls):
            return samples
        labels = []
        groups = []
        names = []
        for i, (_, label, group, name) in enumerate(samples):
            labels.append(label)
            groups.append(group)
            names.append(name or f"sample {i}")
        read = partial(_raw_of, samples)
        known = groups if any(group is not None for group in groups) else None
        return cls(read, labels, groups=known, name=names.__getitem__)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.at(range(*index.indices(len(self))))
        index = range(len(self))[index]  # raises IndexError, by which iteration ends
        group = None if self.groups is None else self.groups[index]
        return Sample(self.read(index), self.labels[index], group, self.name(index))

    def at(self, indices: Sequence[int]) -> Samples:
        """The samples of these indices, in their order."""
        indices = list(indices)
        return Samples(
            partial(_nth, self.read, indices),
            [self.labels[i] for i in indices],
            groups=self.groups and [self.groups[i] for i in indices],
            name=partial(_nth, self.name, indices),
            key=self.key and partial(_key_at, self.key, indices),
            advice=self.advice,
        )

    def labelled(self, labels: Sequence[Any]) -> Samples:
        """The same samples with other labels."""
        return Samples(
            self.read, labels, groups=self.groups, name=self.name, key=self.key, advice=self.advice
        )


def _raw_of(samples: Sequence[Sample], index: int) -> Any:
    return samples[index].raw


def _nth(of: Callable[[int], Any], indices: Sequence[int], index: int) -> Any:
    return of(indices[index])


def _key_at(key: Callable[[], str | None], indices: Sequence[int]) -> str | None:
    whole = key()
    return None if whole is None else f"{whole} {indices}"


class Splits:
    """Splits of a data set; each may be given as any sequence of samples.

    valid: None: `DataModule` takes it from the training split. names: names of the classes, by label; or of the labels
    of which an example has several. rule: how the data was split, in words; None: as the data source documents.

    >>> splits = Splits(train=[Sample("ham", 0), Sample("spam", 1)], test=[Sample("eggs", 0)], names=["food", "junk"])
    >>> splits.train.labels, len(splits.test), splits.valid
    ([0, 1], 1, None)
    """

    def __init__(
        self,
        train: Sequence[Sample],
        test: Sequence[Sample],
        valid: Sequence[Sample] | None = None,
        names: list[str] | None = None,
        rule: str | None = None,
    ):
        self.train = Samples.of(train)
        self.test = Samples.of(test)
        self.valid = None if valid is None else Samples.of(valid)
        self.names = names
        self.rule = rule
