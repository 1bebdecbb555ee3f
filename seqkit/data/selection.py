"""The part of a data set that is used: its share, its limit, and what is taken from it for validation."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqkit.data.documents import are_texts, cut, held_out, num_characters, pieces
from seqkit.data.notes import Caution
from seqkit.data.sample import Sample, Samples
from seqkit.data.splits import by_group, far_from_share, lost_classes, shuffled, stratified
from seqkit.interfaces import IGNORE
from seqkit.raw import GraphData

log = logging.getLogger("seqkit")


def check_counts(counts: Mapping[str, int | None]) -> None:
    """Raise ValueError for a number, by its name, that is below 1; None: it is not limited."""
    for name, count in counts.items():
        if isinstance(count, bool) or (count is not None and count < 1):
            or_null = "" if name == "batch_size" else ", or null"
            raise ValueError(f"{name} is {count}; give at least 1{or_null}")


@dataclass(frozen=True)
class Selection:
    """Part of a data set that is used, and how much of an example.

    valid_fraction: share of the training split that is taken for validation if the source ships none (the tail of each
    document, with windows; by class, with classes; of one graph, some of its labelled nodes). limit: at most N samples
    (or windows) of each split. train_share: share of the training split that is used, a smaller one being part of a
    larger one (with windows, the beginning of each document); the other splits stay whole. max_tokens: tokens after
    which an example and its labels are cut, in every split and by `predict`; not for graphs and images, which cannot be
    cut. window: tokens to predict at a time, for long documents; None: an example is encoded whole.
    """

    is_settings = True

    valid_fraction: float = 0.1
    limit: int | None = None
    train_share: float = 1.0
    max_tokens: int | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.valid_fraction < 1:
            raise ValueError(
                f"valid_fraction is {self.valid_fraction}; give at least 0 (no validation) and below 1"
            )
        if not 0 < self.train_share <= 1:
            raise ValueError(
                f"train_share is {self.train_share}; give a share of the training split, above 0 and up to 1"
            )
        check_counts({"limit": self.limit, "max_tokens": self.max_tokens, "window": self.window})
        if self.max_tokens is not None and self.window is not None:
            raise ValueError(
                "max_tokens cuts examples and window cuts documents; use one of the two"
            )

    def without_validation(
        self, train: Samples, names: Sequence[str] | None, *, follows_time: bool
    ) -> tuple[Samples, Samples | None]:
        """Training split without the validation split that is taken from it, and that one.

        names: of classes. follows_time: True: the last samples are taken.
        """
        if self.valid_fraction == 0:
            return train, None
        if self._cuts(train):
            if train.groups is None:
                head, tail = cut(train, lambda size: round(size * (1 - self.valid_fraction)))
            else:
                head, tail, rule = held_out(train, self.valid_fraction, seed=1)
                log.warning(
                    "%s",
                    f"{num_characters(tail):,} characters of the rest are held out for validation ({rule})",
                )
            return head, tail or None
        if (
            len(train) == 1
            and isinstance(train[0].raw, GraphData)
            and isinstance(train[0].label, Tensor)
        ):
            return self._without_validation_nodes(train[0], train[0].label)
        if train.groups is not None and len(set(train.groups)) > 1:
            fraction = self.valid_fraction
            rest, valid = by_group(train.groups, fraction, 1, train.labels)
            parts = {"train": train.at(rest).labels, "valid": train.at(valid).labels}
            for said in lost_classes(parts, names):
                log.warning(Caution(f"{said}, as groups stay whole"))
            if why := far_from_share(train.groups, len(valid), fraction):
                many = f"{len(valid):,} of {len(train):,} training examples are validation"
                log.warning(Caution(f"{many}, not {100 * fraction:.0f} %: {why}"))
        elif follows_time:
            first = len(train) - round(len(train) * self.valid_fraction)
            rest = [*range(first)]
            valid = [*range(first, len(train))]
        else:
            rest, valid = stratified(train.labels, self.valid_fraction, seed=1)
        if valid:
            return (train.at(rest), train.at(valid))
        return (train, None)

    def _without_validation_nodes(
        self, graph: Sample, label: Tensor
    ) -> tuple[Samples, Samples | None]:
        """Samples of one graph with a class [n] for each node, as `without_validation`: some nodes are set aside."""
        known = (label != IGNORE).nonzero()[:, 0]
        _, places = stratified(label[known].tolist(), self.valid_fraction, seed=1)
        if not places:
            return Samples.of([graph]), None
        is_aside = torch.zeros_like(label, dtype=torch.bool)
        is_aside[known[places]] = True
        log.warning(
            "%s",
            f"{len(places):,} of {len(known):,} training nodes are held out for validation (by class)",
        )
        train, valid = (
            graph._replace(label=label.masked_fill(hidden, IGNORE))
            for hidden in (is_aside, ~is_aside)
        )
        return Samples.of([train]), Samples.of([valid])

    def _cuts(self, samples: Samples) -> bool:
        """Whether these are documents, of which windows are cut."""
        return self.window is not None and are_texts(samples)

    def shared(self, train: Samples) -> Samples:
        """Share of the training split that is used."""
        if self.train_share == 1:
            return train
        if self._cuts(train):
            return cut(train, lambda size: max(1, round(size * self.train_share)))[0]
        return _some(train, max(1, round(len(train) * self.train_share)), seed=3)

    def limited(self, samples: Samples) -> Samples:
        """At most `limit` samples; texts for windows are cut into pieces."""
        if self._cuts(samples):
            return pieces(samples)
        # windows are counted where they are cut
        if self.window is not None or self.limit is None or len(samples) <= self.limit:
            return samples
        return _some(samples, self.limit, seed=2)


def _some(samples: Samples, number: int, seed: int) -> Samples:
    """A fixed random subset, in order; smaller subsets are nested in larger ones."""
    return samples.at(sorted(shuffled(len(samples), seed)[:number]))
