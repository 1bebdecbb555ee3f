"""Windows of long documents as batches of tokens. The key is (epoch, indices), and the same key gives the same batch.

b windows of a batch · n tokens of a window · m documents
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import repeat

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.data.batching import Batch, Key, fold_seed
from seqkit.data.encoding import Encoded, held
from seqkit.data.token_rows import Stored, is_counted
from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch, Tokens

Arrays = Mapping[str, np.ndarray]
"""Every tensor of some tokens by name, as an array of one row a token; without positions where they count from 0."""

FEW = 10
"""Fewer documents than these are no sample of documents."""

STRETCHES = 30
"""Number of stretches of a text that count as independent test examples."""


class TextWindows:
    """Long documents cut into windows of `window` + 1 tokens; the last token of one is the first of the next.

    split: its name, for messages. shuffle True (training): window k of a document starts at k * window + shift, and
    the shift is drawn anew in every epoch. False (evaluation): windows start at multiples of `window` and the last is
    shorter, so that every token of a document but the first is predicted exactly once.
    limit: at most this many windows. name: gives the name of a document. Positions: see `windows_of`.
    Raises DataError where no document has two tokens, or tokens have an adjacency; ValueError, in
    training, for a window that no document fills: attention over whole documents may be huge.
    """

    def __init__(
        self,
        documents: Encoded | Sequence[Tokens],
        window: int,
        split: str,
        *,
        shuffle: bool,
        seed: int = 0,
        limit: int | None = None,
        name: Callable[[int], str] = "document {}".format,
    ):
        if isinstance(documents, Encoded):
            found = documents
        else:
            found = held(documents, repeat(None))
        if "edge_index" in found.tokens[0].tensors():
            raise DataError(
                f"{split} data: tokens with an adjacency cannot be cut into windows; set window to null"
            )
        sizes = torch.tensor(found.lengths)
        longest = int(sizes.max())
        if longest < 2:
            raise DataError(
                f"{split} data has no document of two tokens or more: there is nothing to predict"
            )
        if shuffle and window >= longest:
            what = f"window is {window}, but the longest document of the {split} data has {longest} tokens"
            raise ValueError(
                f"{what}; give --data.window {longest - 1} or less, null, or a longer text"
            )
        self.window = window
        self.shuffle = shuffle
        self.seed = seed
        self._name = name
        self._documents = _arrays_of(found)
        self._origins = torch.tensor([_first_position(arrays) for arrays in self._documents])
        # windows of a document: full ones at any shift in training, all there are in evaluation
        if shuffle:
            counts = (sizes // window - 1).clamp(min=1)
        else:
            counts = -(-(sizes - 1) // window)
        counts = counts.masked_fill(sizes < 2, 0)
        self._sizes = sizes
        self._counts = counts
        self._ends = counts.cumsum(0)
        total = int(self._ends[-1])
        self._num_windows = total if limit is None else min(total, limit)
        self._shifts: tuple[int, Tensor] = (-1, torch.zeros_like(sizes))
        self.sha256 = sha256(f"{found.sha256} {window} {self._num_windows}".encode()).hexdigest()

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of every window."""
        known = self._counts > 0
        last = (self._sizes - (self._counts - 1) * self.window).clamp(max=self.window + 1)[known]
        found = array("i", [self.window + 1]) * int(self._ends[-1])
        for end, size in zip(self._ends[known].tolist(), last.tolist()):
            found[end - 1] = size
        return found[: self._num_windows]

    def __len__(self) -> int:
        return self._num_windows

    def __getitem__(self, key: Key) -> Batch:
        epoch, indices = key
        document, inside, sizes = self._located(torch.tensor(indices))
        documents = [self._documents[i] for i in document.tolist()]
        return windows_of(
            documents, inside + self._shift(epoch)[document], sizes, self._origins[document]
        ), None

    @property
    def groups(self) -> list[int]:
        """Group of each window: its document or, of fewer than `FEW` documents, its stretch of the whole text.

        Windows beside each other are alike (one author, one subject), so they are not independent test examples.
        """
        index = torch.arange(self._num_windows)
        document = self._located(index)[0]
        stretches = index * min(STRETCHES, self._num_windows) // self._num_windows
        return (document if len(document.unique()) >= FEW else stretches).tolist()

    def name(self, index: int) -> str:
        """The document of a window, and its number."""
        return f"{self._name(int(self._located(torch.tensor([index]))[0]))}, window {index}"

    def count(self, token: int) -> tuple[int, int]:
        """Number of tokens of all documents that have that id, and number of all their tokens."""
        found = sum(int((arrays["content"] == token).sum()) for arrays in self._documents)
        return found, int(self._sizes.sum())

    def _located(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Document of each window, its first token there (without a shift), and its number of tokens."""
        document = torch.searchsorted(self._ends, index, right=True)
        inside = (index - self._ends[document] + self._counts[document]) * self.window
        return document, inside, (self._sizes[document] - inside).clamp(max=self.window + 1)

    def _shift(self, epoch: int) -> Tensor:
        """Tokens that are left out at the beginning of each document in that epoch."""
        if self.shuffle and self._shifts[0] != epoch:
            # the last tokens of a document are predicted in some epochs, too
            generator = torch.Generator().manual_seed(fold_seed(self.seed, epoch, 1))
            share = torch.rand(len(self._sizes), generator=generator, dtype=torch.float64)
            self._shifts = (
                epoch,
                (share * (self._sizes - self._counts * self.window).clamp(min=1)).long(),
            )
        return self._shifts[1]


def windows_of(
    documents: Sequence[Arrays], starts: Tensor, sizes: Tensor, origins: Tensor
) -> TokenBatch:
    """A batch of windows, for each of which is given: its document, the token there at which it begins, its number of
    tokens, and the position at which the document begins.

    Positions are the tokenizer's own, moved along the first axis (time, row) so that the window begins where its
    document does: a model trained on beginnings alone knows no others. Distances and the other axes stay as measured.
    """
    n = int(sizes.max())
    valid = torch.arange(n) < sizes[:, None]
    spans = [slice(start, start + size) for start, size in zip(starts.tolist(), sizes.tolist())]
    fields: dict[str, Tensor] = {}
    for name, first in documents[0].items():
        rows = np.zeros(
            (len(documents), n, *first.shape[1:]),
            np.int64 if first.dtype.kind in "ui" else first.dtype,
        )
        for row, arrays, span in zip(rows, documents, spans):
            row[: span.stop - span.start] = arrays[name][span]
        fields[name] = torch.from_numpy(rows)
    if "positions" not in fields:
        fields["positions"] = rearrange(torch.arange(n) * valid, "b n -> b n 1").float()
    elif fields["positions"].shape[-1]:
        time = fields["positions"][..., 0]
        time -= time.masked_fill(~valid, torch.inf).amin(dim=1, keepdim=True) - origins[:, None]
        time.masked_fill_(~valid, 0)
    return TokenBatch(valid=valid, **fields)  # type: ignore[arg-type]


def _arrays_of(documents: Encoded) -> list[Arrays]:
    """The arrays of each document; without positions where those of all count from 0."""
    stored = documents.tokens
    each = range(len(documents.lengths))
    if isinstance(stored, Stored):
        found = [stored.arrays(i) for i in each]
    else:
        found = [
            {name: tensor.numpy() for name, tensor in stored[i].tensors().items()} for i in each
        ]
        for arrays in found:
            if is_counted(arrays["positions"]):
                del arrays["positions"]
    if any("positions" in arrays for arrays in found):
        for arrays, size in zip(found, documents.lengths):
            arrays.setdefault("positions", np.arange(size, dtype=np.float32)[:, None])
    return [*found]


def _first_position(arrays: Arrays) -> float:
    """Position of the first token on the first axis."""
    if "positions" in arrays and arrays["positions"].size:
        return float(arrays["positions"][0, 0])
    return 0.0
