"""Windows of a text that is too large to be encoded beforehand, read in passes over its files.

b batch · n tokens
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from seqkit.data.batching import Batch, fold_seed, rank_and_world_size
from seqkit.data.documents import TextDocuments
from seqkit.data.encoding import naming
from seqkit.data.windows import num_windows, shift_shares, windows_of
from seqkit.data.workers import loader_options, one_thread
from seqkit.errors import DataError, UsageError
from seqkit.tokenizers.text import Text

SHUFFLED_PIECES = 8
"""Pieces of `STREAMED_PIECE_BYTES` whose windows are shuffled together; they come from all over the text."""

Position = list[int]
"""[pass, group of pieces, windows of it that were read]: where a reader stands."""


class WindowStream(IterableDataset[Any]):
    """Batches of training windows, without end: one pass over all pieces after the other.

    In each pass pieces come in a random order, and are dealt to the readers: every rank has `num_readers`, one for each
    loader worker. A reader encodes `SHUFFLED_PIECES` at a time and shuffles their windows. Windows are cut as by
    `TextWindows` in the epoch of that number, so both see the same ones, in another order. All of it follows from the
    seed, the pass and the reader, so three numbers say where a reader stands.
    Raises UsageError where there are fewer pieces than readers.
    """

    def __init__(
        self, documents: TextDocuments, tokenizer: Text, window: int, batch_size: int, *, num_readers: int, seed: int
    ):
        if window < 1:
            raise ValueError(f"window is {window}; give the number of tokens to predict at a time, at least 1")
        self.documents, self.tokenizer, self.window, self.batch_size = documents, tokenizer, window, batch_size
        self.num_readers, self.seed = num_readers, seed
        self.sha256 = documents.fingerprint()
        self.positions: list[Position] = [[0, 0, 0] for _ in range(num_readers)]
        self.turn, self.rank, self.world_size = 0, 0, 1

    @property
    def lengths(self) -> list[int]:
        """Refused with a UsageError: they are not known before the text was read."""
        raise UsageError("how many windows a stream has is not known before it was read; leave --data.streaming out")

    def __getitem__(self, key: Any) -> Any:
        """The first batch, whatever the key is: for callers that look at one."""
        return next(self.batches(0, [0, 0, 0]))[0]

    def __iter__(self) -> Iterator[tuple[Batch, int, Position]]:
        """Yield (batch, its reader, position of that reader behind it); in a loader worker, of one reader alone."""
        worker = get_worker_info()
        own = range(self.num_readers) if worker is None else [(worker.id + self.turn) % self.num_readers]
        readers = {reader: self.batches(reader, self.positions[reader]) for reader in own}
        order = [*own][self.turn :] + [*own][: self.turn] if worker is None else [*own]
        while True:
            for reader in order:
                batch, position = next(readers[reader])
                yield batch, reader, position

    def batches(self, reader: int, position: Position) -> Iterator[tuple[Batch, Position]]:
        """Batches of a reader of this rank from a position on, each with the position behind it."""
        rows: list[np.ndarray] = []
        for row, behind in self._rows(self.rank * self.num_readers + reader, position):
            rows.append(row)
            if len(rows) == self.batch_size:
                sizes = torch.tensor([len(ids) for ids in rows])
                zero = torch.zeros_like(sizes)
                yield (windows_of([{"content": ids} for ids in rows], zero, sizes, origins=zero), None), behind
                rows = []

    def _rows(self, lane: int, position: Position) -> Iterator[tuple[np.ndarray, Position]]:
        lanes = self.world_size * self.num_readers
        if lanes > len(self.documents):
            raise UsageError(
                f"the stream has {len(self.documents)} pieces of text for {lanes} readers; give fewer "
                "--data.num_workers or --trainer.devices, or leave --data.streaming out"
            )
        epoch, group, first = position
        found = True
        while True:
            generator = torch.Generator().manual_seed(fold_seed(self.seed, epoch))
            own = torch.randperm(len(self.documents), generator=generator)[lane::lanes]
            groups = own.split(SHUFFLED_PIECES)
            for number in range(group, len(groups)):
                with one_thread():
                    content, starts, sizes = self._group(epoch, groups[number])
                generator = torch.Generator().manual_seed(fold_seed(self.seed, epoch, 2, number, lane))
                order = torch.randperm(len(starts), generator=generator)[first:]
                for offset, (start, size) in enumerate(zip(starts[order].tolist(), sizes[order].tolist()), first + 1):
                    found = True
                    yield content[start : start + size], [epoch, number, offset]
                first = 0
            if not found:
                raise DataError("the stream has no piece of two tokens or more: there is nothing to predict")
            epoch, group, found = epoch + 1, 0, False

    def _group(self, epoch: int, pieces: Tensor) -> tuple[np.ndarray, Tensor, Tensor]:
        """Tokens of these pieces, one behind the other; start and size of each window there."""
        encoded = []
        for piece in pieces.tolist():
            with naming("training", self.documents, piece):
                encoded.append(self.tokenizer.ids(self.documents[piece].raw))
        sizes = torch.tensor([len(ids) for ids in encoded])
        counts = num_windows(sizes, self.window, shuffle=True)
        share = shift_shares(len(self.documents), fold_seed(self.seed, epoch, 1))[pieces]
        shifts = (share * (sizes - counts * self.window).clamp(min=1)).long()
        document = torch.repeat_interleave(counts)
        inside = (torch.arange(len(document)) - (counts.cumsum(0) - counts)[document]) * self.window
        starts = (sizes.cumsum(0) - sizes + shifts)[document] + inside
        return np.concatenate(encoded), starts, (sizes[document] - inside).clamp(max=self.window + 1)


class StreamLoader:
    """Batches of a stream by torch's DataLoader, in epochs; each begins where the last one ended.

    Its state is epoch, batches yielded of it, and the positions of all readers of all ranks, so a resumed run gets the
    batches that it would have had.
    """

    def __init__(self, stream: WindowStream, batches_per_epoch: int, num_workers: int = 0):
        self.stream, self.batches_per_epoch = stream, batches_per_epoch
        self.epoch, self.yielded = 0, 0
        self._is_begun = False
        self._batches: Any = DataLoader(stream, **loader_options(num_workers))

    @property
    def examples(self) -> WindowStream:
        """The stream."""
        return self.stream

    def __len__(self) -> int:
        return self.batches_per_epoch // rank_and_world_size()[1]

    def __iter__(self) -> Iterator[Batch]:
        if self._is_begun:
            self.epoch, self.yielded = self.epoch + 1, 0
        self._is_begun = True
        stream = self.stream
        stream.rank, stream.world_size = rank_and_world_size()
        batches = iter(self._batches)
        for _ in range(len(self) - self.yielded):
            batch, reader, position = next(batches)
            stream.positions[reader], stream.turn = position, (reader + 1) % stream.num_readers
            self.yielded += 1
            yield batch

    def batch_indices(self) -> list[list[int]]:
        """Refused with a UsageError: they are not known before the text was read."""
        raise UsageError("a stream's batches are not known before it was read; leave --data.streaming out")

    def state_dict(self) -> dict[str, Any]:
        """State as plain data, alike on all ranks. In a distributed run all ranks must ask for it together."""
        own: Any = [self.stream.positions, self.stream.turn]
        readers = [own] * rank_and_world_size()[1]
        if len(readers) > 1:
            torch.distributed.all_gather_object(readers, own)
        return {"epoch": self.epoch, "yielded": self.yielded, "readers": readers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume in the next pass where `state_dict` stood. Raises UsageError for another number of readers."""
        positions, turn = state["readers"][rank_and_world_size()[0]]
        if len(positions) != self.stream.num_readers:
            raise UsageError(
                f"the stream was read by {len(positions)} workers; resume with --data.num_workers {len(positions)}"
            )
        self.epoch, self.yielded = int(state["epoch"]), int(state["yielded"])
        self._is_begun = self.yielded >= len(self)  # that epoch has ended, so the next pass is another
        self.stream.positions, self.stream.turn = [[int(x) for x in position] for position in positions], int(turn)
