"""Data sets of tokens: a split's samples or text windows, as batches. The key is (epoch, indices), and the same key
gives the same batch, always.

b batch · n tokens · t targets
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from einops import repeat
from torch import Tensor

from seqkit.data.batching import Batch, Key, Lengths, fold_seed
from seqkit.data.encoding import Stored, stored_tokens
from seqkit.data.source import Sample, labels_of, sample_name
from seqkit.data.text.token_file import TokenFile
from seqkit.data.threads import one_thread
from seqkit.errors import DataError, is_out_of_memory
from seqkit.interfaces import IGNORE, TokenBatch, Tokenizer, Tokens
from seqkit.progress import track
from seqkit.raw import Waveform

CACHE_BYTES = 2 * 2**30
"""Tokens are cached up to this much; the other samples are encoded anew each time."""


MIN_OUTLIER, OUTLIER = 1_000, 20
"""Tokens of an example, and how many times the median they are, from which on it is named."""

log = logging.getLogger("seqkit")


class TokenizedDataset:
    """Samples as tokens, encoded once and cached; with `augment`, raw samples are changed and encoded anew each time.

    split: its name, for messages. encode_target: `Objective.encode_target`, applied once to every label. augment:
    applied to the raw sample, one after the other, with torch's CPU generator seeded by (seed, epoch, index). cache
    False: nothing is cached (loader workers). max_tokens: an example's further tokens, and their labels, are left out.
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
        max_tokens: int | None = None,
    ):
        self.samples, self.tokenizer, self.split, self.max_tokens = samples, tokenizer, split, max_tokens
        self.augment, self.seed = tuple(augment), seed
        self.targets = labels_of(samples)
        self.lengths: list[int] = []
        self.extents: list[list[float]] = []  # per position axis: smallest and largest last position of an example
        self._cached: dict[int, Tokens] | Stored = {}
        self._recordings: list[tuple[int, int]] = []  # number of samples and sample rate, where they are sound
        with one_thread():
            if max_tokens is not None:
                self.targets = [_first(target, max_tokens) for target in self.targets]
            self._encode_all(cache and not self.augment)
            self._tell_lengths()
            if encode_target is not None:
                self.targets = [
                    self._checked(i, encode_target, label, by_tokenizer=False) for i, label in enumerate(self.targets)
                ]
            for i, target in enumerate(self.targets):
                if isinstance(target, Tensor) and target.is_floating_point() and target.ndim == 2:
                    self._check_one_each(i, len(target))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, key: Key) -> Batch:
        epoch, indices = key
        with one_thread():
            examples = self.encoded(indices, epoch)
            return TokenBatch.collate(examples), collate_targets([self.targets[i] for i in indices])

    def encoded(self, indices: Sequence[int], epoch: int) -> list[Tokens]:
        """Tokens of these examples, each by itself, as that epoch has them."""
        with one_thread():
            return [self._cached[i] if i in self._cached else self._augmented(i, epoch) for i in indices]

    def sort_keys(self, epoch: int) -> Sequence[float]:
        """For each example a number that rises with its length in that epoch.

        Seconds, for augmented sound, as far as the augmentations tell how long they make it (`num_samples`, which draws
        as they do); else the number of tokens without augmentation.
        """
        if len(self._recordings) < len(self.samples):
            return self.lengths
        with _own_draws():
            return [self._seconds(i, epoch) for i in range(len(self._recordings))]

    def name(self, index: int) -> str:
        """The example as the user knows it."""
        return sample_name(self.samples, index)

    def _encode_all(self, cache: bool) -> None:
        what = f"encoding {self.split} data"
        if not self.augment:
            stored = stored_tokens(self.samples, self.tokenizer, self.targets, self._unchanged, what, self.max_tokens)
            if stored is not None:
                self.lengths, self.extents, self.sha256, self._cached = *stored.sizes, stored
                for i, target in enumerate(self.targets):
                    if isinstance(target, Tensor) and not target.is_floating_point():
                        self._check_one_each(i, len(target))
                return
        used, ends, digest = 0, [], sha256()
        kept: dict[int, Tokens] = {}
        for i in track(range(len(self.samples)), what, len(self.samples)):
            raw = self.samples[i].raw
            if self.augment and isinstance(raw, Waveform):
                self._recordings.append((raw.samples.shape[-1], raw.sample_rate))
            tokens = self._checked(i, self._tokens, raw)
            self.lengths.append(len(tokens))
            ends.append(tokens.positions.amax(dim=0))
            target = self.targets[i]
            digest.update(_bytes(tokens.content))
            digest.update(_bytes(target) if isinstance(target, Tensor) else repr(target).encode())
            if isinstance(target, Tensor) and not target.is_floating_point():
                self._check_one_each(i, len(target))
            used += tokens.content.nbytes + tokens.positions.nbytes
            if cache and used <= CACHE_BYTES:
                kept[i] = tokens
        self._cached, self.sha256 = kept, digest.hexdigest()
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
            return self._unchanged(index)
        with _own_draws():
            self._seed(index, epoch)
            return self._encode(index, self._change)

    def _seed(self, index: int, epoch: int) -> None:
        """A seed for each example: workers, resuming and the rest of the batch change nothing."""
        torch.default_generator.manual_seed(fold_seed(self.seed, epoch, index))

    def _seconds(self, index: int, epoch: int) -> float:
        self._seed(index, epoch)
        num_samples, sample_rate = self._recordings[index]
        for change in self.augment:
            foresee = getattr(change, "num_samples", None)
            if foresee is None:  # what it draws is unknown, and so is what those after it draw
                break
            num_samples = foresee(num_samples, sample_rate)
        return num_samples / sample_rate

    def _change(self, raw: Any) -> Any:
        for change in self.augment:
            raw = change(raw)
        return raw

    def _unchanged(self, index: int) -> Tokens:
        return self._encode(index, lambda raw: raw)

    def _encode(self, index: int, change: Callable[[Any], Any]) -> Tokens:
        return self._checked(index, lambda raw: self._tokens(change(raw)), self.samples[index].raw)

    def _tokens(self, raw: Any) -> Tokens:
        tokens = self.tokenizer.encode(raw)
        return tokens if self.max_tokens is None else tokens.first(self.max_tokens)

    def _tell_lengths(self) -> None:
        """Say how many examples end at `max_tokens`, or name one that is much longer than the others."""
        lengths = np.array(self.lengths)
        if len(lengths) == 0:
            return
        if self.max_tokens is not None:
            if count := int((lengths == self.max_tokens).sum()):
                log.warning(
                    "%s",
                    f"{count:,} of {len(lengths):,} {self.split} examples have {self.max_tokens:,} tokens or more and "
                    "end there (data.max_tokens)",
                )
            return
        longest, median = int(lengths.max()), float(np.median(lengths))
        if longest >= MIN_OUTLIER and longest > OUTLIER * median:
            can_cut = self.tokenizer.spec.num_axes <= 1 and not self.tokenizer.spec.num_edge_types
            advice = "; --data.max_tokens N cuts it" if can_cut else ""
            log.warning(
                "%s",
                f"the longest {self.split} example, {self.name(int(lengths.argmax()))}, has {longest:,} tokens and the "
                f"median {median:,.0f}: its batch takes the memory of {longest:,} tokens{advice}",
            )

    def _checked(self, index: int, convert: Callable[[Any], Any], value: Any, *, by_tokenizer: bool = True) -> Any:
        """`convert(value)`. Its DataError, and any error of the tokenizer, names split and sample."""
        try:
            return convert(value)
        except DataError as error:
            name = sample_name(self.samples, index)
            if name in str(error):
                raise
            raise DataError(f"{self.split} data, {name}: {error}") from error
        except Exception as error:  # a plug-in's own code: whatever it raises
            if is_out_of_memory(error) or not by_tokenizer:
                raise
            raise DataError(
                f"{self.split} data, {sample_name(self.samples, index)}: {raised_by(self.tokenizer, error)}"
            ) from error


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
        documents: Sequence[Tokens] | TokenFile,
        window: int,
        split: str,
        *,
        shuffle: bool,
        seed: int = 0,
        limit: int | None = None,
    ):
        if window < 1:
            raise ValueError(f"window is {window}; give the number of tokens to predict at a time, at least 1")
        if not isinstance(documents, TokenFile) and any(d.adjacency is not None for d in documents):
            raise DataError(f"{split} data: tokens with an adjacency cannot be cut into windows; set window to null")
        sizes = documents.sizes if isinstance(documents, TokenFile) else torch.tensor([len(d) for d in documents])
        longest = int(sizes.max())
        if longest < 2:
            raise DataError(f"{split} data has no document of two tokens or more: there is nothing to predict")
        if shuffle and window >= longest:
            raise ValueError(
                f"window is {window}, but the longest document of the {split} data has {longest} tokens; "
                f"give a window of at most {longest - 1}, or a longer text"
            )
        self.window, self.shuffle, self.seed = window, shuffle, seed
        self.content: Any
        if isinstance(documents, TokenFile):
            self.content, digest = documents.content, documents.sha256
            self.positions = documents.positions(min(window + 1, longest))
        else:
            self.content, digest = torch.cat([d.content for d in documents]), None
            self.positions = max(documents, key=len).positions[: window + 1].clone()
        # windows of a document: full ones at any shift in training, all there are in evaluation
        counts = num_windows(sizes, window, shuffle=shuffle)
        self._sizes, self._ends, self._first_tokens = sizes, counts.cumsum(0), sizes.cumsum(0) - sizes
        self._counts = counts
        total = int(self._ends[-1])
        self._num_windows = total if limit is None else min(total, limit)
        self._shifts: tuple[int, Tensor] = (-1, torch.zeros_like(sizes))
        self.sha256 = self._digest(digest)

    @property
    def lengths(self) -> Lengths:
        """Tokens of every window."""
        full, known = self.window + 1, self._counts > 0
        last = (self._sizes - (self._counts - 1) * self.window).clamp(max=full)[known]  # of the last of each document
        if bool((last == full).all()):
            return Lengths(torch.tensor(full).expand(self._num_windows))
        lengths = torch.full((int(self._ends[-1]),), full, dtype=torch.int32)
        lengths[self._ends[known] - 1] = last.int()
        return Lengths(lengths[: self._num_windows])

    def __len__(self) -> int:
        return self._num_windows

    def __getitem__(self, key: Key) -> Batch:
        epoch, indices = key
        document, inside, sizes = self._located(torch.tensor(indices))
        starts = self._first_tokens[document] + inside + self._shift(epoch)[document]
        return windows_of(self.content, starts, sizes, self.positions), None

    def name(self, index: int) -> str:
        """Where the window is, without the shift of an epoch."""
        return f"window {index} (document {int(self._located(torch.tensor([index]))[0])})"

    def count(self, token: int) -> tuple[int, int]:
        """How often that id is among all tokens of the documents, and how many there are."""
        content = self.content.numpy() if isinstance(self.content, Tensor) else self.content
        found = sum(int((content[i : i + 2**24] == token).sum()) for i in range(0, len(content), 2**24))
        return found, len(content)

    def _located(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Document of each window, its first token there (without a shift), and its number of tokens."""
        document = torch.searchsorted(self._ends, index, right=True)
        inside = (index - self._ends[document] + self._counts[document]) * self.window
        return document, inside, (self._sizes[document] - inside).clamp(max=self.window + 1)

    def _shift(self, epoch: int) -> Tensor:
        """Of each document in that epoch."""
        if self.shuffle and self._shifts[0] != epoch:
            # the last tokens of a document are predicted in some epochs, too
            share = shift_shares(len(self._sizes), fold_seed(self.seed, epoch, 1))
            self._shifts = (epoch, (share * (self._sizes - self._counts * self.window).clamp(min=1)).long())
        return self._shifts[1]

    def _digest(self, of_file: str | None) -> str:
        """SHA-256 of the tokens and of where windows start without a shift."""
        digest = sha256()
        if of_file is None:
            digest.update(_bytes(self.content))
            for index in torch.arange(self._num_windows).split(2**20):
                document, inside, _ = self._located(index)
                digest.update(_bytes(self._first_tokens[document] + inside))
        else:
            digest.update(f"{of_file} {self.window} {self._num_windows}".encode() + _bytes(self._sizes))
        return digest.hexdigest()


def num_windows(sizes: Tensor, window: int, *, shuffle: bool) -> Tensor:
    """Windows of documents of these sizes: full ones at any shift in training, all there are in evaluation."""
    counts = (sizes // window - 1).clamp(min=1) if shuffle else -(-(sizes - 1) // window)
    return counts.masked_fill(sizes < 2, 0)


def shift_shares(num_documents: int, seed: int) -> Tensor:
    """A number in [0, 1) for each document: how far its windows are shifted, as a share of the tokens left over."""
    return torch.rand(num_documents, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def windows_of(content: Any, starts: Tensor, sizes: Tensor, positions: Tensor) -> TokenBatch:
    """A batch of windows that begin at `starts` [b] and have `sizes` [b] tokens.

    content: of all documents, [t] or [t f], a tensor or an array of ids. positions: [n p] of every window.
    """
    offset = torch.arange(int(sizes.max()))
    index, valid = starts[:, None] + offset, offset < sizes[:, None]
    index = index.clamp(max=len(content) - 1)
    is_tensor = isinstance(content, Tensor)
    rows = content[index] if is_tensor else torch.from_numpy(content[index.numpy()].astype(np.int64))
    if not bool(valid.all()):
        rows[~valid] = 0
    return TokenBatch(rows, repeat(positions[: len(offset)], "n p -> b n p", b=len(starts)) * valid[:, :, None], valid)


@contextmanager
def _own_draws() -> Iterator[None]:
    """What is drawn inside from torch's CPU generator leaves it as it was.

    Inside, seed `torch.default_generator`: torch.manual_seed would reset the accelerator's, that is dropout, too.
    """
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def raised_by(tokenizer: Tokenizer, error: Exception) -> str:
    """The sentence for an error of the tokenizer's own that is no DataError."""
    return f"{type(tokenizer).__name__}.encode raises {type(error).__name__}: {' '.join(str(error).split())}"


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


def _first(target: Any, n: int) -> Any:
    """The labels of the first n tokens; a label of the whole example as it is."""
    per_token = isinstance(target, Tensor) and (
        target.ndim == 2 or (target.ndim == 1 and not target.is_floating_point())
    )
    return target[:n] if per_token else target
