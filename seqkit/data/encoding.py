"""Many samples as tokens: encoded once, in worker processes, and kept on disk for this run and the next ones.

n tokens · f features · p position axes · e edges
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import pickle
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from inspect import getfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from seqkit.data.cache import Entry, cache_folder, cached, fingerprint, writing
from seqkit.data.source import Files, Named, Sample, Subset
from seqkit.errors import DataError
from seqkit.interfaces import Adjacency, Tokenizer, Tokens
from seqkit.progress import track
from seqkit.raw import GraphData, Waveform

MIN_SAMPLES = 5_000
"""Splits of fewer samples are encoded in memory."""

MIN_SECONDS = 10.0
"""Splits that one process encodes faster are not kept on disk."""

MAX_WORKERS = 16

_CHUNK = 256
_LIBRARIES = ("seqkit", "torch", "torchaudio", "torchvision", "numpy", "rdkit", "tokenizers")
"""Their versions are part of a fingerprint: another one may encode otherwise."""

log = logging.getLogger("seqkit")


class Stored:
    """Tokens of a split in a file, by index; sizes and digest of the split as `TokenizedDataset` has them.

    lengths: number of tokens of each. extents: per position axis the smallest and largest last position.
    """

    def __init__(self, entry: Entry):
        self._records, self._starts = entry.array("records"), entry.array("starts")
        self.lengths: list[int] = entry.array("lengths").tolist()
        self.extents: list[list[float]] = entry.meta["extents"]
        self.sha256: str = entry.meta["sha256"]

    @property
    def sizes(self) -> tuple[list[int], list[list[float]], str]:
        """(lengths, extents, sha256)."""
        return self.lengths, self.extents, self.sha256

    def __contains__(self, index: int) -> bool:
        return 0 <= index < len(self.lengths)

    def __getitem__(self, index: int) -> Tokens:
        return unpacked(self._records[self._starts[index] : self._starts[index + 1]].tobytes())


def stored_tokens(
    samples: Sequence[Sample],
    tokenizer: Tokenizer,
    targets: Sequence[Any],
    encode: Callable[[int], Tokens],
    what: str,
    max_tokens: int | None = None,
) -> Stored | None:
    """The tokens of a large split from the disk, encoded and written before where they were not there.

    encode: of one sample, by index; raises with its name. what: is shown beside the progress. max_tokens: to which
    `encode` cuts.
    None: the split is small, quickly encoded, cannot be recognised again (`split_fingerprint`), or the disk is full.
    Raises what `encode` raises.
    """
    if len(samples) < MIN_SAMPLES:
        return None
    key = split_fingerprint(samples, tokenizer, targets)
    if key is None:
        return None
    if max_tokens is not None:
        key = fingerprint(key, max_tokens)
    entry = cached(key)
    if entry is None:
        if _seconds(encode, len(samples)) < MIN_SECONDS:
            return None
        try:
            _write(key, encode, targets, what)
        except OSError as error:
            reason = error.strerror or error
            log.warning(f"encoded data is not kept: {reason} ({cache_folder()}); set SEQKIT_CACHE to another folder")
            return None
        entry = cached(key)
    return None if entry is None else Stored(entry)


def _seconds(encode: Callable[[int], Tokens], num_samples: int) -> float:
    """How long one process would take, judged by up to half a second of it."""
    started, done = time.monotonic(), 0
    for index in range(0, num_samples, max(1, num_samples // 200)):
        encode(index)
        done += 1
        if time.monotonic() - started > 0.5:
            break
    return (time.monotonic() - started) / done * num_samples


def _write(key: str, encode: Callable[[int], Tokens], targets: Sequence[Any], what: str) -> None:
    digest, starts, lengths = sha256(), [np.zeros(1, np.int64)], []
    low: Any = math.inf
    high: Any = -math.inf
    with writing(key) as folder:
        with folder.growing("records", np.uint8) as records:
            for index, record in enumerate(track(_records(encode, len(targets)), what, len(targets))):
                records.append(record.data)
                target = targets[index]
                digest.update(record.content)
                digest.update(target.numpy().tobytes() if isinstance(target, Tensor) else repr(target).encode())
                starts.append(starts[-1] + len(record.data))
                lengths.append(record.length)
                low, high = np.minimum(low, record.last), np.maximum(high, record.last)
        folder.save("starts", np.concatenate(starts))
        folder.save("lengths", np.array(lengths))
        folder.finish({"extents": np.stack([low, high], axis=1).tolist(), "sha256": digest.hexdigest()})


# ── worker processes ─────────────────────────────────────────────────────────────────────────────────────────────────


class _Record(NamedTuple):
    """One packed example. content: its bytes, for the digest. last: its last position on each axis [p]."""

    data: bytes
    content: bytes
    length: int
    last: np.ndarray


class _Chunks(Dataset[Any]):
    """Records of _CHUNK samples at a time; where one cannot be encoded, its index."""

    def __init__(self, encode: Callable[[int], Tokens], num_samples: int):
        self.encode, self.num_samples = encode, num_samples

    def __len__(self) -> int:
        return math.ceil(self.num_samples / _CHUNK)

    def __getitem__(self, chunk: int) -> list[_Record] | int:
        records = []
        for index in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, self.num_samples)):
            try:
                tokens = self.encode(index)
            except Exception:  # raised anew in the parent process, which says which sample it was
                return index
            content = tokens.content.contiguous().numpy().tobytes()
            records.append(_Record(packed(tokens), content, len(tokens), tokens.positions.amax(dim=0).numpy()))
        return records


def _records(encode: Callable[[int], Tokens], num_samples: int) -> Iterator[_Record]:
    """All records in their order. Raises what `encode` raises, in this process."""
    workers = num_workers()
    loader = DataLoader(
        _Chunks(encode, num_samples),
        batch_size=None,
        num_workers=workers,
        collate_fn=_as_it_is,
        prefetch_factor=4 if workers else None,
        generator=torch.Generator(),  # torch draws a seed for workers: not from dropout's numbers
    )
    for chunk in loader:
        if isinstance(chunk, int):
            encode(chunk)
            raise DataError(f"sample {chunk} could not be encoded in a worker process, and could be here; start again")
        yield from chunk


def num_workers() -> int:
    """Processes that encode beside this one: a core each; 0 where there is one, or this process may start none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if cores == 1 or multiprocessing.current_process().daemon else min(cores, MAX_WORKERS)


def _as_it_is(chunk: Any) -> Any:
    return chunk


# ── fingerprints ─────────────────────────────────────────────────────────────────────────────────────────────────────


def split_fingerprint(samples: Sequence[Sample], tokenizer: Tokenizer, targets: Sequence[Any]) -> str | None:
    """Fingerprint of a split as this tokenizer encodes it; None: something in it has none.

    It covers samples, labels, what the tokenizer was built with and fitted to, its code, and versions of libraries.
    """
    data, how = samples_fingerprint(samples), tokenizer_fingerprint(tokenizer)
    if data is None or how is None:
        return None
    labels = sha256()
    for target in targets:
        labels.update(target.numpy().tobytes() if isinstance(target, Tensor) else repr(target).encode())
        labels.update(b"\0")
    return fingerprint(data, how, labels.hexdigest())


def samples_fingerprint(samples: Sequence[Sample]) -> str | None:
    """Fingerprint of raw examples; None: they hold something that has none.

    A sequence may say its own by a method `fingerprint`; files are known by path, size and time of change.
    """
    known = getattr(samples, "fingerprint", None)
    if known is not None:
        return str(known())
    if isinstance(samples, Subset):
        whole = samples_fingerprint(samples.samples)
        return whole if whole is None else fingerprint(whole, np.array(samples.indices, np.int64))
    if isinstance(samples, Named):
        return samples_fingerprint(samples.samples)
    digest = sha256()
    if isinstance(samples, Files):
        for path in samples.paths:
            state = path.stat()
            digest.update(f"{path.absolute()}\0{state.st_size}\0{state.st_mtime_ns}\0".encode(errors="surrogatepass"))
        reader = getattr(samples.read, "func", samples.read)
        settings = getattr(samples.read, "keywords", {})
        digest.update(f"{getattr(reader, '__qualname__', reader)} {sorted(settings.items())}".encode())
        return None if "<lambda>" in str(reader) or "<locals>" in str(reader) else digest.hexdigest()
    for sample in samples:
        data = _raw_bytes(sample.raw)
        if data is None:
            return None
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str | None:
    """Fingerprint of a tokenizer: attributes, fitted state, code, versions; None: it cannot be pickled."""
    try:
        attributes = pickle.dumps(tokenizer, protocol=4)  # only to be compared; it is never loaded
    except Exception:  # whatever the tokenizer of a plug-in raises
        return None
    digest = sha256(attributes)
    code = {Path(getfile(kind)) for kind in type(tokenizer).__mro__[:-1] if kind.__module__ != "abc"}
    own = Path(__file__).parents[1] / "tokenizers"
    for path in sorted({*code, *own.glob("*.py"), Path(__file__)}):
        digest.update(path.read_bytes())
    for library in _LIBRARIES:
        try:
            digest.update(f"{library} {version(library)} ".encode())
        except PackageNotFoundError:
            continue
    return digest.hexdigest()


def _raw_bytes(raw: Any) -> bytes | None:
    """A raw example as bytes that differ where it does; None: this is not known of its type."""
    if isinstance(raw, str):
        return raw.encode(errors="surrogatepass")
    if isinstance(raw, bytes):
        return b"b" + raw
    if isinstance(raw, Tensor):
        raw = raw.detach().cpu().contiguous().numpy()
    if isinstance(raw, np.ndarray) and not raw.dtype.hasobject:
        return f"{raw.dtype.str}{raw.shape}".encode() + np.ascontiguousarray(raw).tobytes()
    if isinstance(raw, int | float | bool | type(None)):
        return f"{type(raw).__name__} {raw!r}".encode()
    if isinstance(raw, Waveform | GraphData | list | tuple):
        fields = [getattr(raw, name) for name in raw.__dataclass_fields__] if isinstance(raw, GraphData) else list(raw)
        parts = [_raw_bytes(part) for part in fields]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return type(raw).__name__.encode() + b"".join(len(part).to_bytes(8, "little") + part for part in known)
    to_binary = getattr(raw, "ToBinary", None)  # an rdkit molecule
    return bytes(to_binary()) if to_binary is not None else None


# ── one example as bytes ─────────────────────────────────────────────────────────────────────────────────────────────

_UNSIGNED = tuple(np.dtype(name) for name in ("u1", "<u2", "<u4"))


def packed(tokens: Tokens) -> bytes:
    """Tokens as bytes, smaller and without loss: whole numbers by the fewest bytes that hold them."""
    arrays = [tokens.content, tokens.positions]
    if tokens.adjacency is not None:
        arrays += [tokens.adjacency.edge_index, tokens.adjacency.edge_type]
    return b"".join([bytes([len(arrays)]), *(_pack(array.contiguous().numpy()) for array in arrays)])


def unpacked(data: bytes) -> Tokens:
    """The tokens again, equal in every bit."""
    arrays, at = [], 1
    for _ in range(data[0]):
        array, at = _unpack(data, at)
        arrays.append(torch.from_numpy(array))
    return Tokens(arrays[0], arrays[1], Adjacency(arrays[2], arrays[3]) if len(arrays) > 2 else None)


def _pack(array: np.ndarray) -> bytes:
    """Kind, dtype, shape, values. Kind 0: as they are; 1: unsigned integers; 2: columns that are bytes, and others."""
    if array.size and array.dtype == np.int64 and array.min() >= 0 and array.max() < 2**32:
        small = next(dtype for dtype in _UNSIGNED if array.max() < 256**dtype.itemsize)
        return _head(1, array, small.itemsize) + array.astype(small).tobytes()
    if array.ndim == 2 and array.size and array.dtype == np.float32:
        with np.errstate(invalid="ignore"):
            near = array.astype(np.uint8)
        whole = ((near == array) & ~np.signbit(array)).all(axis=0)
        if whole.any():
            values = near[:, whole].tobytes() + array[:, ~whole].tobytes()
            return _head(2, array, 0) + np.packbits(whole).tobytes() + values
    return _head(0, array, 0) + array.tobytes()


def _head(kind: int, array: np.ndarray, item_bytes: int) -> bytes:
    dtype = array.dtype.str.encode()
    return struct.pack(f"<BBBB{array.ndim}Q", kind, item_bytes, len(dtype), array.ndim, *array.shape) + dtype


def _unpack(data: bytes, at: int) -> tuple[np.ndarray, int]:
    kind, item_bytes, dtype_bytes, ndim = data[at : at + 4]
    at += 4
    shape = struct.unpack_from(f"<{ndim}Q", data, at)
    at += 8 * ndim
    dtype = np.dtype(data[at : at + dtype_bytes].decode())
    at += dtype_bytes

    def values(of: np.dtype, count: int) -> np.ndarray:
        nonlocal at
        found = np.frombuffer(data, of, count, at)
        at += count * of.itemsize
        return found

    size = math.prod(shape)
    if kind == 0:
        return values(dtype, size).reshape(shape).copy(), at
    if kind == 1:
        return values(_UNSIGNED[item_bytes.bit_length() - 1], size).astype(dtype).reshape(shape), at
    n, f = shape
    whole = np.unpackbits(values(_UNSIGNED[0], -(-f // 8)), count=f).astype(bool)
    num_whole = int(whole.sum())
    array = np.empty(shape, dtype)
    array[:, whole] = values(_UNSIGNED[0], n * num_whole).reshape(n, num_whole)
    array[:, ~whole] = values(dtype, n * (f - num_whole)).reshape(n, f - num_whole)
    return array, at
