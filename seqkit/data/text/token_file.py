"""Ids of long texts, encoded once in worker processes and read memory-mapped from the disk.

n tokens · m documents
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from seqkit.data.cache import cache_folder, cached, fingerprint, writing
from seqkit.data.encoding import num_workers, tokenizer_fingerprint
from seqkit.data.source import sample_name
from seqkit.data.text.documents import TextDocuments
from seqkit.errors import DataError
from seqkit.progress import track
from seqkit.tokenizers.text import Text

MIN_BYTES = 2**23
"""Texts of fewer bytes are encoded in memory: it takes a second."""

SAID_SECONDS = 30
"""An encoding that takes longer is announced with its minutes."""

log = logging.getLogger("seqkit")


class TokenFile:
    """The ids of all documents of a split, one document behind the other.

    content: [n], unsigned integers, memory-mapped where they are kept on disk. sizes: [m] int64, tokens of each.
    sha256: of content and sizes.
    """

    def __init__(self, content: np.ndarray, sizes: Tensor, digest: str):
        self.content, self.sizes, self.sha256 = content, sizes, digest

    def positions(self, num_tokens: int) -> Tensor:
        """[num_tokens 1], counted from 0, as text tokenizers give them."""
        return torch.arange(num_tokens, dtype=torch.float32)[:, None]


def token_file(documents: TextDocuments, tokenizer: Text, split: str) -> TokenFile:
    """The ids of these documents, from the disk where they were encoded before, and written there otherwise.

    Where the disk has no room they are held in memory, which is said.
    Raises DataError, naming split and document, where one cannot be encoded.
    """
    how = tokenizer_fingerprint(tokenizer)
    key = None if how is None else fingerprint("token file", documents.fingerprint(), how)
    if key is not None and (entry := cached(key)) is not None:
        return TokenFile(entry.array("ids"), torch.tensor(entry.array("sizes")), str(entry.meta["sha256"]))
    if key is not None:
        try:
            with writing(key) as folder:
                with folder.growing("ids", _dtype(tokenizer)) as ids:
                    sizes, digest = _encode(documents, tokenizer, split, ids.append)
                folder.save("sizes", np.array(sizes))
                folder.finish({"sha256": digest})
            if (entry := cached(key)) is not None:
                return TokenFile(entry.array("ids"), torch.tensor(entry.array("sizes")), digest)
        except OSError as error:
            reason = error.strerror or error
            log.warning(f"encoded text is not kept: {reason} ({cache_folder()}); set SEQKIT_CACHE to another folder")
    parts: list[np.ndarray] = []
    sizes, digest = _encode(documents, tokenizer, split, parts.append)
    return TokenFile(np.concatenate(parts), torch.tensor(sizes), digest)


def _dtype(tokenizer: Text) -> np.dtype:
    return np.min_scalar_type(tokenizer.vocab_size - 1)


def _encode(documents: TextDocuments, tokenizer: Text, split: str, keep: Any) -> tuple[list[int], str]:
    """Give the ids of each piece to `keep`, in order; sizes, and the SHA-256 of what the pieces' own are."""
    sizes, digest = [], sha256()
    what = f"encoding {split} data"
    _announce(documents, tokenizer, what)
    for ids, own in track(_pieces(documents, tokenizer, split), what, len(documents)):
        keep(ids)
        sizes.append(len(ids))
        digest.update(own)
    return sizes, digest.hexdigest()


def _announce(documents: TextDocuments, tokenizer: Text, what: str) -> None:
    """Say how many minutes it will take, judged by a quarter of a megabyte of it."""
    text = documents[0].raw[: 2**18]
    started = time.monotonic()
    with suppress(DataError):  # raised again with the name of its document
        tokenizer.ids(text)
    share = len(text.encode(errors="replace")) / documents.num_bytes
    seconds = (time.monotonic() - started) / share / max(1, num_workers())
    if seconds > SAID_SECONDS:
        size = f"{documents.num_bytes / 1e6:,.0f} MB of text"
        log.warning("%s", f"{what}, {size}, takes about {seconds / 60:.1f} minutes; the next run has them at once")


class _Pieces(Dataset[Any]):
    """(ids, their SHA-256) of each piece; its index where it cannot be encoded."""

    def __init__(self, documents: TextDocuments, tokenizer: Text):
        self.documents, self.tokenizer = documents, tokenizer

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, index: int) -> tuple[np.ndarray, bytes] | int:
        try:
            ids = self.tokenizer.ids(self.documents[index].raw)
        except Exception:  # raised anew in the parent process, which says which document it was
            return index
        return ids, sha256(ids.tobytes()).digest()


def _pieces(documents: TextDocuments, tokenizer: Text, split: str) -> Iterator[tuple[np.ndarray, bytes]]:
    pieces = _Pieces(documents, tokenizer)
    workers = num_workers() if len(pieces) > 1 else 0
    loader = DataLoader(
        pieces,
        batch_size=None,
        num_workers=workers,
        collate_fn=_as_it_is,
        prefetch_factor=2 if workers else None,
        generator=torch.Generator(),  # torch draws a seed for workers: not from dropout's numbers
    )
    for index, piece in enumerate(loader):
        if isinstance(piece, int):
            try:
                tokenizer.ids(documents[index].raw)
            except DataError as error:
                name = sample_name(documents, index)
                if name in str(error):
                    raise
                raise DataError(f"{split} data, {name}: {error}") from error
            raise DataError(
                f"{sample_name(documents, index)} was encoded here and not in a worker process; start again"
            )
        yield piece


def _as_it_is(piece: Any) -> Any:
    return piece
