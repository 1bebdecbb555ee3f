"""Examples of a split as batches of tokens and labels, by (epoch, indices): the same key gives the same batch, always.

b batch · n tokens · t targets
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from einops import repeat
from torch import Tensor

from seqkit.contract import IGNORE, DataError, TokenBatch, Tokenizer, Tokens
from seqkit.data.order import mixed
from seqkit.data.progress import progress
from seqkit.data.source import Sample, labels_of, where
from seqkit.data.threads import one_thread

KEEP_BYTES = 2 * 2**30
"""Encoded examples are kept in memory up to this much; the rest is encoded anew each time."""

Key = tuple[int, list[int]]
Batch = tuple[TokenBatch, Tensor | None]


class Encoded:
    """Samples as tokens, encoded once and kept; with `augment`, the raw samples are changed and encoded anew each time.

    augment: applied to raw, one after the other, with torch's CPU generator seeded by (seed, epoch, index).
    encode_label: `Objective.encode_label`, applied once. part: name of the split, for messages. keep False: nothing is
    kept (loader workers).
    Raises DataError, naming split and sample, where one cannot be encoded: all are tried once, here.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        tokenizer: Tokenizer,
        part: str,
        *,
        encode_label: Callable[[Any], Any] | None = None,
        augment: Sequence[Callable[[Any], Any]] = (),
        keep: bool = True,
        seed: int = 0,
    ):
        self.samples, self.tokenizer, self.part = samples, tokenizer, part
        self.augment, self.seed = tuple(augment), seed
        self.labels = labels_of(samples)
        self.lengths: list[int] = []
        self.extents: list[list[float]] = []  # per axis: smallest and largest last position of an example
        self._kept: dict[int, Tokens] = {}
        with one_thread():
            self._encode_all(keep and not self.augment)
            if encode_label is not None:
                self.labels = [self._named(i, encode_label, label) for i, label in enumerate(self.labels)]
            for i, label in enumerate(self.labels):
                if isinstance(label, Tensor) and label.is_floating_point() and label.ndim == 2:
                    self._one_each(i, len(label))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, key: Key) -> Batch:
        epoch, indices = key
        with one_thread():
            examples = [self._kept[i] if i in self._kept else self._augmented(i, epoch) for i in indices]
            return TokenBatch.collate(examples), collate_labels([self.labels[i] for i in indices])

    def _encode_all(self, keep: bool) -> None:
        used, ends = 0, []
        for i in progress(range(len(self.samples)), f"encoding {self.part} data", len(self.samples)):
            tokens = self._encode(i, lambda raw: raw)
            self.lengths.append(len(tokens))
            ends.append(tokens.positions.amax(dim=0))
            label = self.labels[i]
            if isinstance(label, Tensor) and not label.is_floating_point():
                self._one_each(i, len(label))
            used += tokens.content.nbytes + tokens.positions.nbytes
            if keep and used <= KEEP_BYTES:
                self._kept[i] = tokens
        if ends:
            self.extents = torch.stack(torch.stack(ends).aminmax(dim=0), dim=1).tolist()

    def _one_each(self, index: int, num_labels: int) -> None:
        if num_labels != self.lengths[index]:
            raise DataError(
                f"{self.part} data, {where(self.samples, index)} has {num_labels} labels for {self.lengths[index]} "
                "tokens; give one for each"
            )

    def _augmented(self, index: int, epoch: int) -> Tokens:
        if not self.augment:
            return self._encode(index, lambda raw: raw)
        # a seed for each example: workers, resuming and batch mates change nothing. Not torch.manual_seed, which
        # would reset the accelerator's generator, that is dropout, too
        state = torch.get_rng_state()
        torch.default_generator.manual_seed(mixed(self.seed, epoch, index))
        try:
            return self._encode(index, self._change)
        finally:
            torch.set_rng_state(state)

    def _change(self, raw: Any) -> Any:
        for change in self.augment:
            raw = change(raw)
        return raw

    def _encode(self, index: int, change: Callable[[Any], Any]) -> Tokens:
        return self._named(index, lambda raw: self.tokenizer.encode(change(raw)), self.samples[index].raw)

    def _named(self, index: int, make: Callable[[Any], Any], given: Any) -> Any:
        """`make(given)`, a DataError naming split and sample."""
        try:
            return make(given)
        except DataError as error:
            name = where(self.samples, index)
            if name in str(error):
                raise
            raise DataError(f"{self.part} data, {name}: {error}") from error


class Windows:
    """Long documents cut into windows of `window` + 1 tokens; the last token of one is the first of the next.

    Training (`shuffle`): window k of a document starts at k * window + shift, the shift drawn anew in every epoch, so
    that each epoch cuts elsewhere. Evaluation: windows start at multiples of `window` and the last is shorter, so that
    every token of a document but the first is predicted exactly once.
    Positions of a window are those of a document's beginning. limit: at most so many windows.
    Raises DataError where no document has two tokens, or documents have links; ValueError for a window below 1, or, in
    training, one that no document fills: attention over whole documents is not what was asked for, and may be huge.
    """

    def __init__(
        self,
        documents: Sequence[Tokens],
        window: int,
        part: str,
        *,
        shuffle: bool,
        seed: int = 0,
        limit: int | None = None,
    ):
        if window < 1:
            raise ValueError(f"window is {window}; give the number of tokens to predict at a time, at least 1")
        if any(d.links is not None for d in documents):
            raise DataError(f"{part} data: tokens with links cannot be cut into windows; set window to null")
        sizes = torch.tensor([len(d) for d in documents])
        if not bool((sizes > 1).any()):
            raise DataError(f"{part} data has no document of two tokens or more: there is nothing to predict")
        if shuffle and window >= int(sizes.max()):
            raise ValueError(
                f"window is {window}, but the longest document of the {part} data has {int(sizes.max())} tokens; "
                f"give a window of at most {int(sizes.max()) - 1}, or a longer text"
            )
        self.window, self.shuffle, self.seed = window, shuffle, seed
        self.content = torch.cat([d.content for d in documents])
        self.positions = max(documents, key=len).positions[: window + 1].clone()
        # windows of a document: whole ones at any shift when training, all there are otherwise
        counts = (sizes // window - 1).clamp(min=1) if shuffle else -(-(sizes - 1) // window)
        counts = counts.masked_fill(sizes < 2, 0)
        document = torch.repeat_interleave(counts)
        first = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)[:-1]])
        inside = (torch.arange(len(document)) - first[document]) * window
        self._starts = ((sizes.cumsum(0) - sizes)[document] + inside)[:limit]
        self._sizes = (sizes[document] - inside).clamp(max=window + 1)[:limit]
        self._document = document[:limit]
        # where a document's windows may begin, so that its last tokens have their turn too
        self._room = (sizes - counts * window).clamp(min=1)
        self._shifted: tuple[int, Tensor] = (-1, self._starts)

    @property
    def lengths(self) -> list[int]:
        """Tokens of every window."""
        return self._sizes.tolist()

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, key: Key) -> Batch:
        epoch, indices = key
        chosen = torch.tensor(indices)
        sizes, offset = self._sizes[chosen], torch.arange(int(self._sizes[chosen].max()))
        index, valid = self._at(epoch)[chosen][:, None] + offset, offset < sizes[:, None]
        if bool(valid.all()):
            content = self.content[index]
        else:
            content = self.content[index.clamp(max=len(self.content) - 1)]
            content[~valid] = 0
        positions = repeat(self.positions[: len(offset)], "n p -> b n p", b=len(indices)) * valid[:, :, None]
        return TokenBatch(content, positions, valid), None

    def _at(self, epoch: int) -> Tensor:
        if not self.shuffle:
            return self._starts
        if self._shifted[0] != epoch:
            generator = torch.Generator().manual_seed(mixed(self.seed, epoch, 1))
            shift = (torch.rand(len(self._room), generator=generator, dtype=torch.float64) * self._room).long()
            self._shifted = (epoch, self._starts + shift[self._document])
        return self._shifted[1]


def collate_labels(labels: Sequence[Any]) -> Tensor | None:
    """Labels of a batch: classes [b] int64, measurements [b t] or [b n t] float32, or ids [b n] or [b a n] int64.

    labels: ints; floats or lists of them; float tensors [t] or [n t] (measurements per token), padded with NaN; int64
    tensors [n] (a class per token) or [a n] (sequences, any of which is right), padded with IGNORE. None where there
    are none.
    Raises DataError where they differ in kind.
    """
    if all(label is None for label in labels):
        return None
    if all(isinstance(label, int) for label in labels):
        return torch.tensor(labels)
    if _are_tensors(labels, floating=False):
        return _padded([label.long() for label in labels], IGNORE)
    if _are_tensors(labels, floating=True) and len({label.shape[1:] for label in labels}) == 1:
        return _padded([label.float() for label in labels], math.nan)
    try:
        rows = [torch.as_tensor(label, dtype=torch.float32).reshape(-1) for label in labels]
        return torch.stack(rows)
    except (TypeError, ValueError, RuntimeError) as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise DataError(
            f"labels of one batch are {kinds} and do not go together ({error}); "
            "give ints (classes), equally many floats (measurements), or a tensor (one for each token)"
        ) from error


def _are_tensors(labels: Sequence[Any], *, floating: bool) -> bool:
    alike = all(isinstance(label, Tensor) and label.is_floating_point() == floating for label in labels)
    return alike and {label.ndim for label in labels} in ({1}, {2})


def _padded(labels: Sequence[Tensor], nothing: float) -> Tensor:
    """Labels of one number of axes in one tensor, `nothing` where there is none."""
    shape = [max(sizes) for sizes in zip(*(label.shape for label in labels))]

    def behind(label: Tensor) -> list[int]:  # as torch wants it: last axis first, (before, behind) for each
        return [x for size, most in zip(reversed(label.shape), reversed(shape)) for x in (0, most - size)]

    return torch.stack([torch.nn.functional.pad(label, behind(label), value=nothing) for label in labels])
