"""Data sets of tokens: a split's samples or text windows, as batches. The key is (epoch, indices), and the same key
gives the same batch, always.

b batch · n tokens · t targets
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import torch
from einops import repeat
from torch import Tensor

from seqkit.data.batching import Batch, Key, fold_seed
from seqkit.data.source import Sample, labels_of, sample_name
from seqkit.data.threads import one_thread
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, TokenBatch, Tokenizer, Tokens
from seqkit.progress import track

CACHE_BYTES = 2 * 2**30
"""Tokens are cached up to this much; the other samples are encoded anew each time."""


class TokenizedDataset:
    """Samples as tokens, encoded once and cached; with `augment`, raw samples are changed and encoded anew each time.

    split: its name, for messages. encode_target: `Objective.encode_target`, applied once to every label. augment:
    applied to the raw sample, one after the other, with torch's CPU generator seeded by (seed, epoch, index). cache
    False: nothing is cached (loader workers).
    sha256: of the content and labels of all samples, without augmentation: two runs with the same have the same split.
    Raises DataError, naming split and sample, where one cannot be encoded: all are tried once, here.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        tokenizer: Tokenizer,
        split: str,
        *,
        encode_target: Callable[[Any], Any] | None = None,
        augment: Sequence[Callable[[Any], Any]] = (),
        cache: bool = True,
        seed: int = 0,
    ):
        self.samples, self.tokenizer, self.split = samples, tokenizer, split
        self.augment, self.seed = tuple(augment), seed
        self.targets = labels_of(samples)
        self.lengths: list[int] = []
        self.extents: list[list[float]] = []  # per position axis: smallest and largest last position of an example
        self._cached: dict[int, Tokens] = {}
        with one_thread():
            self._encode_all(cache and not self.augment)
            if encode_target is not None:
                self.targets = [self._checked(i, encode_target, label) for i, label in enumerate(self.targets)]
            for i, target in enumerate(self.targets):
                if isinstance(target, Tensor) and target.is_floating_point() and target.ndim == 2:
                    self._check_one_each(i, len(target))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, key: Key) -> Batch:
        epoch, indices = key
        with one_thread():
            examples = [self._cached[i] if i in self._cached else self._augmented(i, epoch) for i in indices]
            return TokenBatch.collate(examples), collate_targets([self.targets[i] for i in indices])

    def name(self, index: int) -> str:
        """The example as the user knows it."""
        return sample_name(self.samples, index)

    def _encode_all(self, cache: bool) -> None:
        used, ends, digest = 0, [], sha256()
        for i in track(range(len(self.samples)), f"encoding {self.split} data", len(self.samples)):
            tokens = self._encode(i, lambda raw: raw)
            self.lengths.append(len(tokens))
            ends.append(tokens.positions.amax(dim=0))
            target = self.targets[i]
            digest.update(_bytes(tokens.content))
            digest.update(_bytes(target) if isinstance(target, Tensor) else repr(target).encode())
            if isinstance(target, Tensor) and not target.is_floating_point():
                self._check_one_each(i, len(target))
            used += tokens.content.nbytes + tokens.positions.nbytes
            if cache and used <= CACHE_BYTES:
                self._cached[i] = tokens
        self.sha256 = digest.hexdigest()
        if ends:
            self.extents = torch.stack(torch.stack(ends).aminmax(dim=0), dim=1).tolist()

    def _check_one_each(self, index: int, num_labels: int) -> None:
        if num_labels != self.lengths[index]:
            raise DataError(
                f"{self.split} data, {sample_name(self.samples, index)} has {num_labels} labels for "
                f"{self.lengths[index]} tokens; give one for each"
            )

    def _augmented(self, index: int, epoch: int) -> Tokens:
        if not self.augment:
            return self._encode(index, lambda raw: raw)
        # a seed for each example: workers, resuming and the rest of the batch change nothing. Not torch.manual_seed,
        # which would reset the accelerator's generator, that is dropout, too
        state = torch.get_rng_state()
        torch.default_generator.manual_seed(fold_seed(self.seed, epoch, index))
        try:
            return self._encode(index, self._change)
        finally:
            torch.set_rng_state(state)

    def _change(self, raw: Any) -> Any:
        for change in self.augment:
            raw = change(raw)
        return raw

    def _encode(self, index: int, change: Callable[[Any], Any]) -> Tokens:
        return self._checked(index, lambda raw: self.tokenizer.encode(change(raw)), self.samples[index].raw)

    def _checked(self, index: int, convert: Callable[[Any], Any], value: Any) -> Any:
        """`convert(value)`. Its DataError names split and sample."""
        try:
            return convert(value)
        except DataError as error:
            name = sample_name(self.samples, index)
            if name in str(error):
                raise
            raise DataError(f"{self.split} data, {name}: {error}") from error


class TextWindows:
    """Long documents cut into windows of `window` + 1 tokens; the last token of one is the first of the next.

    split: its name, for messages. shuffle True (training): window k of a document starts at k * window + shift, and
    the shift is drawn anew in every epoch. False (evaluation): windows start at multiples of `window` and the last is
    shorter, so that every token of a document but the first is predicted exactly once.
    Positions of a window are those of a document's beginning. limit: at most this many windows.
    Raises DataError where no document has two tokens, or tokens have an adjacency; ValueError for a window below 1, or,
    in training, one that no document fills: attention over whole documents may be huge.
    """

    def __init__(
        self,
        documents: Sequence[Tokens],
        window: int,
        split: str,
        *,
        shuffle: bool,
        seed: int = 0,
        limit: int | None = None,
    ):
        if window < 1:
            raise ValueError(f"window is {window}; give the number of tokens to predict at a time, at least 1")
        if any(d.adjacency is not None for d in documents):
            raise DataError(f"{split} data: tokens with an adjacency cannot be cut into windows; set window to null")
        sizes = torch.tensor([len(d) for d in documents])
        if not bool((sizes > 1).any()):
            raise DataError(f"{split} data has no document of two tokens or more: there is nothing to predict")
        if shuffle and window >= int(sizes.max()):
            raise ValueError(
                f"window is {window}, but the longest document of the {split} data has {int(sizes.max())} tokens; "
                f"give a window of at most {int(sizes.max()) - 1}, or a longer text"
            )
        self.window, self.shuffle, self.seed = window, shuffle, seed
        self.content = torch.cat([d.content for d in documents])
        self.positions = max(documents, key=len).positions[: window + 1].clone()
        # windows of a document: full ones at any shift in training, all there are in evaluation
        counts = (sizes // window - 1).clamp(min=1) if shuffle else -(-(sizes - 1) // window)
        counts = counts.masked_fill(sizes < 2, 0)
        document = torch.repeat_interleave(counts)
        first = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)[:-1]])
        inside = (torch.arange(len(document)) - first[document]) * window
        self._starts = ((sizes.cumsum(0) - sizes)[document] + inside)[:limit]
        self._sizes = (sizes[document] - inside).clamp(max=window + 1)[:limit]
        self._document = document[:limit]
        # number of shifts: the last tokens of a document are predicted in some epochs, too
        self._num_shifts = (sizes - counts * window).clamp(min=1)
        self._shifted: tuple[int, Tensor] = (-1, self._starts)
        self.sha256 = sha256(_bytes(self.content) + _bytes(self._starts)).hexdigest()

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

    def name(self, index: int) -> str:
        """Where the window is, without the shift of an epoch."""
        return f"window {index} (document {int(self._document[index])})"

    def _at(self, epoch: int) -> Tensor:
        if not self.shuffle:
            return self._starts
        if self._shifted[0] != epoch:
            generator = torch.Generator().manual_seed(fold_seed(self.seed, epoch, 1))
            share = torch.rand(len(self._num_shifts), generator=generator, dtype=torch.float64)
            shift = (share * self._num_shifts).long()
            self._shifted = (epoch, self._starts + shift[self._document])
        return self._shifted[1]


def _bytes(x: Tensor) -> bytes:
    return x.contiguous().numpy().tobytes()


def collate_targets(targets: Sequence[Any]) -> Tensor | None:
    """Targets of a batch: classes [b] int64, measurements [b t] or [b n t] float32, or ids [b n] or [b a n] int64.

    targets: ints; floats or lists of them; float tensors [t] or [n t] (measurements per token), padded with NaN; int64
    tensors [n] (a class per token) or [a n] (reference sequences, any of which is right), padded with IGNORE. None
    where there are none.
    Raises DataError where they differ in kind.
    """
    if all(target is None for target in targets):
        return None
    if all(isinstance(target, int) for target in targets):
        return torch.tensor(targets)
    if _are_tensors(targets, floating=False):
        return _padded([target.long() for target in targets], IGNORE)
    if _are_tensors(targets, floating=True) and len({target.shape[1:] for target in targets}) == 1:
        return _padded([target.float() for target in targets], math.nan)
    try:
        return torch.stack([torch.as_tensor(target, dtype=torch.float32).reshape(-1) for target in targets])
    except (TypeError, ValueError, RuntimeError) as error:
        kinds = ", ".join(sorted({type(target).__name__ for target in targets}))
        raise DataError(
            f"labels of one batch are {kinds}, which are incompatible ({error}); "
            "give ints (classes), equally many floats (measurements), or a tensor (one for each token)"
        ) from error


def _are_tensors(targets: Sequence[Any], *, floating: bool) -> bool:
    alike = all(isinstance(target, Tensor) and target.is_floating_point() == floating for target in targets)
    return alike and {target.ndim for target in targets} in ({1}, {2})


def _padded(targets: Sequence[Tensor], value: float) -> Tensor:
    """Targets of one number of axes in one tensor, padded behind with `value`."""
    shape = [max(sizes) for sizes in zip(*(target.shape for target in targets))]

    def padding(target: Tensor) -> list[int]:  # as torch wants it: last axis first, (before, behind) for each
        return [x for size, most in zip(reversed(target.shape), reversed(shape)) for x in (0, most - size)]

    return torch.stack([torch.nn.functional.pad(target, padding(target), value=value) for target in targets])
