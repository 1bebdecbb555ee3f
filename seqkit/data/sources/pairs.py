"""Pairs of samples of several sources: an example has a part from each, such as an image and a sound of one digit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Literal

from seqkit.data.sample import Samples, Splits
from seqkit.data.source import DataSource
from seqkit.data.splits import shuffled, stratified
from seqkit.errors import DataError, suggest


class Pairs(DataSource):
    """Examples of several parts, each drawn from a source of its own; for the tokenizer `Join`.

    parts: sources by name of the part; their labels are the same classes. label: "same": the parts of an example are of
    one class, which is its label; "sum": they are drawn independently, and the label is the sum of their classes modulo
    the number of classes. words: further parts, by name, with a text for each class; an empty list: the names of the
    classes. only: the one part that examples keep. rounds: passes over the largest part in training, each of which
    pairs the samples anew. valid_fraction: share of each source's training part that is set aside, by class, where the
    source ships no validation split. unlabelled: True: the pairs have no labels.
    Samples are paired within a split. All samples of a part occur equally often, or once more; the draws come from
    SHA-256 and are the same on every machine. Raises ValueError for fewer than two parts, or names that are not there.
    """

    def __init__(
        self,
        parts: Mapping[str, DataSource],
        *,
        label: Literal["same", "sum"] = "same",
        words: dict[str, list[str]] | None = None,
        only: str | None = None,
        rounds: int = 1,
        valid_fraction: float = 0.1,
        unlabelled: bool = False,
    ):
        self.parts = dict(parts)
        self.words = dict(words or {})
        self.label = label
        self.only = only
        self.rounds = rounds
        self.valid_fraction = valid_fraction
        self.unlabelled = unlabelled
        names = [*self.parts, *self.words]
        if not self.parts or len(names) < 2:
            raise ValueError(
                f"Pairs has the parts {', '.join(names) or 'none'}; give two or more, one with a source"
            )
        if only is not None and only not in names:
            raise ValueError(f"only names {only!r}, which is no part; {suggest(only, names)}")
        if twice := [name for name in self.words if name in self.parts]:
            raise ValueError(f"the part {twice[0]} has a source and words; give it one of the two")
        if self.words and label == "sum":
            raise ValueError(
                "words hold the class of an example, which is the answer with label=sum; leave them out"
            )
        if rounds < 1:
            raise ValueError(
                f"rounds is {rounds}; give the passes over the largest part, 1 or more"
            )

    def read_for(self, tokenizer: Any) -> None:
        """Prepare each source for the tokenizer of its part."""
        reads = getattr(tokenizer, "reads", {})
        for name, own in getattr(tokenizer, "parts", {}).items():
            source = self.parts.get(reads.get(name, name))
            if source is not None:
                source.read_for(own)

    def splits(self) -> Splits:
        """raw: {part: raw}. Raises DataError where the sources differ in their classes, or a split lacks one."""
        given = {name: source.splits() for name, source in self.parts.items()}
        (first, classes), *others = ((name, splits.names) for name, splits in given.items())
        for name, own in others:
            if own != classes:
                raise DataError(
                    f"the parts {first} and {name} have the classes {classes} and {own}; give the same"
                )
        if not classes:
            raise DataError(f"the part {first} has no classes by which samples could be paired")
        for name, words in self.words.items():
            if words and len(words) != len(classes):
                raise DataError(
                    f"the part {name} has {len(words)} words, and there are {len(classes)} classes"
                )
        train = dict[str, Samples]()
        valid = dict[str, Samples]()
        for name, splits in given.items():
            train[name] = splits.train
            valid[name] = splits.valid or Samples.of([])
            if splits.valid is None and self.valid_fraction:
                rest, aside = stratified(splits.train.labels, self.valid_fraction, seed=1)
                train[name] = splits.train.at(rest)
                valid[name] = splits.train.at(aside)
        return Splits(
            self._paired("training", train, classes, self.rounds),
            self._paired("test", {name: splits.test for name, splits in given.items()}, classes),
            self._paired("validation", valid, classes) if all(map(len, valid.values())) else [],
            None if self.unlabelled else classes,
        )

    def _paired(
        self, split: str, parts: Mapping[str, Samples], classes: list[str], rounds: int = 1
    ) -> Samples:
        rows: list[tuple[int, ...]] = []
        each_class: Sequence[int | None] = [None]
        if self.label == "same":
            each_class = range(len(classes))
        for one in each_class:
            members = [
                [i for i, label in enumerate(own.labels) if one in (None, label)]
                for own in parts.values()
            ]
            for name, own in zip(parts, members):
                if not own:
                    raise DataError(
                        f"the {split} split of the part {name} has no sample of class {classes[one or 0]}"
                    )
            drawn = [_repeated(own, f"{split} {i}") for i, own in enumerate(members)]
            rows += islice(zip(*drawn), rounds * max(map(len, members)))
        rows = [rows[i] for i in shuffled(len(rows), seed=4)]
        numbers = [[own.labels[i] for own, i in zip(parts.values(), row)] for row in rows]
        known = [row[0] if self.label == "same" else sum(row) % len(classes) for row in numbers]
        words = {name: own or classes for name, own in self.words.items()}
        pairs = _Pairs(parts, rows, known, words, self.only)
        labels: Sequence[int | None] = known
        if self.unlabelled:
            labels = [None] * len(known)
        return Samples(pairs.raw, labels, groups=pairs.groups(), name=pairs.name)


@dataclass(frozen=True)
class _Pairs:
    """Examples that are made of one sample of each part, when they are asked for.

    rows: index of the sample of each part. classes: class of each row. words: by name of a further part, a text for
    each class. only: the one part that examples keep; None: all.
    """

    parts: Mapping[str, Samples]
    rows: Sequence[tuple[int, ...]]
    classes: Sequence[int]
    words: Mapping[str, Sequence[str]]
    only: str | None

    def raw(self, index: int) -> dict[str, Any]:
        each = zip(self.parts.items(), self.rows[index])
        raws = {name: samples.read(i) for (name, samples), i in each if self.only in (None, name)}
        texts = {
            name: own[self.classes[index]]
            for name, own in self.words.items()
            if self.only in (None, name)
        }
        return raws | texts

    def name(self, index: int) -> str:
        """The names of the samples that it is made of."""
        each = zip(self.parts.items(), self.rows[index])
        return ", ".join(f"{name} {samples.name(i)}" for (name, samples), i in each)

    def groups(self) -> list[str | None] | None:
        """Groups of the parts' samples, as far as they are known."""
        known = [
            (i, one.groups) for i, one in enumerate(self.parts.values()) if one.groups is not None
        ]
        if not known:
            return None
        names = [
            [f"sample {i}" if group is None else group for i, group in enumerate(groups)]
            for _, groups in known
        ]
        return [" · ".join(own[row[i]] for own, (i, _) in zip(names, known)) for row in self.rows]


def _repeated(members: Sequence[int], draw: str) -> Iterator[int]:
    """The members again and again, each pass in an order of its own that depends on `draw`."""
    number = 0
    while True:
        keys = {i: sha256(f"{draw} {number} {i}".encode()).digest() for i in members}
        yield from sorted(members, key=keys.__getitem__)
        number += 1
