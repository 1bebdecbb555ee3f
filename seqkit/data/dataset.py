"""Samples of a split as batches of tokens. The key is (epoch, indices), and the same key gives the same batch, always.

b batch · n tokens · t targets
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqkit.data.batching import Batch, Key, fold_seed
from seqkit.data.drop_parts import DropParts
from seqkit.data.encoding import Encoder, encode_split, held, naming
from seqkit.data.sample import Sample, Samples
from seqkit.data.token_rows import row_of
from seqkit.data.workers import one_thread
from seqkit.errors import DataError, described
from seqkit.interfaces import IGNORE, Objective, TokenBatch, Tokenizer, Tokens
from seqkit.progress import track
from seqkit.raw import Waveform

CACHE_BYTES = 2 * 2**30
"""Size of the tokens that are held in memory; the other samples are encoded anew each time."""

MIN_OUTLIER = 1_000
OUTLIER = 20
"""Tokens of an example, and how many times the median they are, from which on it is named."""

log = logging.getLogger("seqkit")


@dataclass(frozen=True)
class Augmentation:
    """Changes of a raw sample, made one after the other, from draws of its own: workers, resuming and the batch change
    nothing. seed: torch's CPU generator is seeded by (seed, epoch, index of the sample).
    """

    changes: Sequence[Callable[[Any], Any]]
    seed: int = 0

    @contextmanager
    def draws(self, epoch: int, index: int) -> Iterator[Sequence[Callable[[Any], Any]]]:
        """The changes, to be made inside this context."""
        state = torch.get_rng_state()
        try:
            # of the CPU alone: torch.manual_seed would reset the accelerator's generator, that is dropout, too
            torch.default_generator.manual_seed(fold_seed(self.seed, epoch, index))
            yield self.changes
        finally:
            torch.set_rng_state(state)

    def seconds(self, num_samples: int, sample_rate: int, *, epoch: int, index: int) -> float:
        """Length of a recording afterwards, as far as the changes tell how long they make it."""
        with self.draws(epoch, index) as changes:
            for change in changes:
                foresee = getattr(change, "num_samples", None)
                if foresee is None:  # what it draws is unknown, and so is what those after it draw
                    break
                num_samples = foresee(num_samples, sample_rate)
        return num_samples / sample_rate


class TokenizedDataset:
    """Samples as tokens, encoded once and cached; with `augment`, raw samples are changed and encoded anew each time.
    Images that are augmented are read once, too.

    split: its name, for messages. objective: encodes every label, once; None: labels stay as they are. augment: changes
    of the raw sample; None: there are none.
    drop: leaves out parts of the tokens, drawn anew each time, after the cache; None: all parts are there.
    cache False: no tokens are held in memory (loader workers). max_tokens: an example's further tokens, and their
    labels, are left out.
    sha256: digest of labels and tokens without augmentation: two runs with the same digest have the same split.
    Raises DataError, naming split and sample, where one cannot be encoded: all are tried once, here.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        tokenizer: Tokenizer,
        split: str,
        *,
        objective: Objective | None = None,
        augment: Augmentation | None = None,
        cache: bool = True,
        max_tokens: int | None = None,
        drop: DropParts | None = None,
    ):
        self.drop = drop
        self.samples = (samples := Samples.of(samples))
        self.split = split
        self.max_tokens = max_tokens
        self.augment = augment
        self.targets = list(samples.labels)
        self._encoder = Encoder(samples, tokenizer, split, max_tokens)
        # number of samples and sample rate, where they are sound
        self._recordings: list[tuple[int, int]] = []
        max_bytes = CACHE_BYTES if cache else 0
        # what was read, and room
        self._images = dict[int, Tensor]()
        self._image_bytes = max_bytes
        with one_thread():
            if max_tokens is not None:
                self.targets = [_first(target, max_tokens) for target in self.targets]
            if augment is not None:
                indices = track(range(len(samples)), f"encoding {split} data", len(samples))
                encoded = held(
                    (self._encoder(i, [partial(self._note, i)]) for i in indices), self.targets, 0
                )
            else:
                encoded = encode_split(self._encoder, self.targets, max_bytes=max_bytes)
            self._cached = encoded.tokens
            self.lengths = encoded.lengths
            self.extents = encoded.extents
            self.sha256 = encoded.sha256
            self._warn_of_lengths()
            for i, target in enumerate(self.targets):
                if isinstance(target, Tensor) and not target.is_floating_point():
                    self._check_one_each(i, target)
                if objective is not None:
                    with naming(split, samples, i):
                        target = objective.encode_target(target)
                        objective.check_target(target, self.lengths[i])
                        self.targets[i] = target
                if isinstance(target, Tensor) and target.is_floating_point() and target.ndim == 2:
                    self._check_one_each(i, target)

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
            whole = [
                self._cached[i] if i in self._cached else self._anew(i, epoch) for i in indices
            ]
            if self.drop is None:
                return whole
            return [self.drop(one, epoch, i) for one, i in zip(whole, indices)]

    def sort_keys(self, epoch: int) -> Sequence[float]:
        """For each example a number that rises with its length in that epoch.

        Seconds, for augmented sound, as far as the augmentations tell how long they make it (`num_samples`, which draws
        as they do); else the number of tokens without augmentation.
        """
        if self.augment is None or len(self._recordings) < len(self.samples):
            return self.lengths
        return [
            self.augment.seconds(*one, epoch=epoch, index=i)
            for i, one in enumerate(self._recordings)
        ]

    def digests(self) -> list[bytes]:
        """SHA-256 of the tokens of each example, without augmentation."""
        each = (
            self._cached[i] if i in self._cached else self._encoder(i)
            for i in range(len(self.samples))
        )
        return [row_of(tokens)["digest"] for tokens in each]

    def name(self, index: int) -> str:
        """The example as the user knows it."""
        return self.samples.name(index)

    def _check_one_each(self, index: int, target: Tensor) -> None:
        """Raise DataError for labels of the tokens that do not fit them."""
        where = f"{self.split} data, {self.name(index)} has"
        if self.drop is not None:
            raise DataError(
                f"{where} a label for each token, so no part can be left out; leave out data.drop_parts"
            )
        if len(target) != self.lengths[index]:
            raise DataError(
                f"{where} {len(target)} labels for {self.lengths[index]} tokens; give one for each"
            )

    def _anew(self, index: int, epoch: int) -> Tokens:
        """Tokens of an example that are not cached, augmented as that epoch has it."""
        if self.augment is None:
            return self._encoder(index)
        with self.augment.draws(epoch, index) as changes:
            known = self._images.get(index)
            if known is not None:
                known = known.clone()
            return self._encoder(index, changes, known)

    def _note(self, index: int, raw: Any) -> Any:
        """Notes the length of a recording, and keeps an image: photographs take long to decode."""
        if isinstance(raw, Waveform):
            self._recordings.append((raw.samples.shape[-1], raw.sample_rate))
        if isinstance(raw, Tensor) and raw.nbytes <= self._image_bytes:
            self._images[index] = raw
            self._image_bytes = self._image_bytes - raw.nbytes
        return raw

    def _warn_of_lengths(self) -> None:
        """Log how many examples end at `max_tokens`, or name one that is much longer than the others."""
        lengths = np.array(self.lengths or [0])
        most = self.max_tokens
        longest = int(lengths.max())
        median = float(np.median(lengths))
        if longest == most:
            many = f"{int((lengths == most).sum()):,} of {len(lengths):,} {self.split} examples"
            log.warning(
                "%s", f"{many} have {most:,} tokens or more and end there (data.max_tokens)"
            )
        elif most is None and longest >= MIN_OUTLIER and longest > OUTLIER * median:
            which = f"the longest {self.split} example, {self.name(int(lengths.argmax()))}, has {longest:,} tokens"
            advice = "--data.max_tokens N cuts examples, except graphs and images"
            log.warning("%s", f"{which} and the median {median:,.0f}, which takes memory; {advice}")


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
        return torch.stack(
            [torch.as_tensor(target, dtype=torch.float32).reshape(-1) for target in targets]
        )
    except (TypeError, ValueError, RuntimeError) as error:
        kinds = ", ".join(sorted({type(target).__name__ for target in targets}))
        what = f"labels of one batch are {kinds}, which are incompatible ({described(error)})"
        raise DataError(
            f"{what}; give ints (classes), equally many floats, or a tensor (one for each token)"
        ) from error


def _are_tensors(targets: Sequence[Any], *, floating: bool) -> bool:
    alike = all(
        isinstance(target, Tensor) and target.is_floating_point() == floating for target in targets
    )
    return alike and {target.ndim for target in targets} in ({1}, {2})


def _padded(targets: Sequence[Tensor], value: float) -> Tensor:
    """Targets of one number of axes in one tensor, padded behind with `value`."""
    sizes = [max(each) for each in zip(*(target.shape for target in targets))]
    found = targets[0].new_full((len(targets), *sizes), value)
    for row, target in zip(found, targets):
        row[tuple(map(slice, target.shape))] = target
    return found


def _first(target: Any, n: int) -> Any:
    """The labels of the first n tokens; a label of the whole example as it is."""
    is_whole = not isinstance(target, Tensor) or target.ndim not in (1, 2)
    if is_whole or (target.ndim == 1 and target.is_floating_point()):
        return target
    return target[:n]
