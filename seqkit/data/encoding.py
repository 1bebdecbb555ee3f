"""A split as tokens: encoded once, in worker processes where that takes long, and kept on disk for the next runs."""

from __future__ import annotations

import logging
import math
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from inspect import getfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from seqkit.data import token_rows
from seqkit.data.cache import cache_folder, cached, fingerprint, write
from seqkit.data.documents import TextDocuments
from seqkit.data.sample import Samples
from seqkit.data.token_rows import Stored, batch_of, digest_of, row_of
from seqkit.data.workers import loader_options, num_workers
from seqkit.errors import DataError, described, is_out_of_memory
from seqkit.interfaces import Tokenizer, Tokens
from seqkit.progress import track
from seqkit.raw import GraphData, Waveform
from seqkit.tokenizers.join import Join

MIN_SAMPLES = 5_000
"""Splits of fewer samples are encoded in this process, and in memory, unless the tokenizer is slow."""

MIN_SECONDS = 10.0
"""Seconds for encoding; a split that takes one process less is held in memory, too."""

MIN_TEXT_BYTES = 2**23
"""Long texts from that size on are kept on disk however fast they are encoded: it saves memory."""

ANNOUNCED_MINUTES = 0.5
"""An encoding that takes longer is announced."""

_CHUNK = 256
_LIBRARIES = ("seqkit", "torch", "torchaudio", "torchvision", "pillow", "numpy", "rdkit", "tokenizers")
"""Libraries whose versions are part of a fingerprint: another version may encode otherwise."""

log = logging.getLogger("seqkit")


@dataclass(frozen=True)
class Encoded:
    """An encoded split: the tokens that are kept, by index, and sizes and digest of all its samples.

    lengths: number of tokens of each sample. extents: smallest and largest last position on each axis. sha256: digest
    of the labels and of every field of the tokens.
    """

    tokens: Mapping[int, Tokens] | Stored
    lengths: list[int]
    extents: list[list[float]]
    sha256: str


@dataclass(frozen=True)
class Encoder:
    """Callable from the index of a sample to its tokens, at most `max_tokens` of them. split: its name in errors."""

    samples: Samples
    tokenizer: Tokenizer
    split: str
    max_tokens: int | None = None

    def __call__(self, index: int, change: Callable[[Any], Any] | None = None) -> Tokens:
        """Encode the sample, or `change` of it. Raises DataError with the names of split and sample."""
        raw = self.samples.read(index)
        with naming(self.split, self.samples, index, self.tokenizer):
            tokens = self.tokenizer.encode(raw if change is None else change(raw))
            if self.max_tokens is None:
                return tokens
            return self.tokenizer.cut(tokens, self.max_tokens)


@contextmanager
def naming(split: str, samples: Samples, index: int, tokenizer: Tokenizer | None = None) -> Iterator[None]:
    """Name split and sample in a DataError raised inside; with `tokenizer`, turn any error into such a DataError."""
    try:
        yield
    except Exception as error:  # a plug-in's own code: whatever it raises
        is_own = isinstance(error, DataError)
        if not is_own and (tokenizer is None or is_out_of_memory(error)):
            raise
        name = samples.name(index)
        if is_own and name in str(error):
            raise
        fault = error if is_own else raised_by(tokenizer, error)
        raise DataError(f"{split} data, {name}: {fault}") from error


def raised_by(tokenizer: Tokenizer | None, error: Exception) -> str:
    """The sentence for an error of the tokenizer's own that is no DataError."""
    return f"{type(tokenizer).__name__}.encode raises {described(error)}"


def encode_split(
    encoder: Encoder,
    targets: Sequence[Any],
    *,
    max_bytes: float = math.inf,
    watch: Callable[[Any], Any] | None = None,
) -> Encoded:
    """Tokens of a whole split: from the disk where they were encoded before, else encoded and, if that is slow, kept.

    max_bytes: size of the tokens held in memory; tokens beyond it are encoded, counted and dropped. watch: called with
    each raw sample, which it returns; the split is then encoded in this process, and not kept on disk.
    Raises DataError, with split and sample, where one cannot be encoded.
    """
    samples, split = encoder.samples, encoder.split
    is_long_text = isinstance(samples, TextDocuments) and samples.num_bytes >= MIN_TEXT_BYTES
    if watch is None and (is_long_text or len(samples) >= MIN_SAMPLES or encoder.tokenizer.is_slow):
        key = split_fingerprint(encoder, targets)
        if key is not None and (found := _from_disk(key)) is not None:
            return found
        seconds = _seconds(encoder)
        if is_long_text or seconds >= MIN_SECONDS:
            if (minutes := seconds / max(1, num_workers()) / 60) > ANNOUNCED_MINUTES:
                log.warning("%s", f"encoding {split} data takes about {minutes:.1f} minutes")
            return _encode_in_workers(encoder, targets, key, max_bytes)
    indices = track(range(len(samples)), f"encoding {split} data", len(samples))
    return held((encoder(i, watch) for i in indices), targets, max_bytes)


def held(examples: Iterable[Tokens], targets: Iterable[Any], max_bytes: float = math.inf) -> Encoded:
    """Tokens of a split in memory, up to that size."""
    kept: dict[int, Tokens] = {}
    used, summary = 0, _Summary()
    for tokens, target in zip(examples, targets):
        used += sum(tensor.nbytes for tensor in tokens.tensors().values())
        if used <= max_bytes:
            kept[len(summary.lengths)] = tokens
        summary.add(len(tokens), _ends(tokens), digest_of(row_of(tokens)), target)
    return Encoded(kept, summary.lengths, summary.extents, summary.sha256)


class _Summary:
    """Sizes and digest of a split, sample by sample."""

    def __init__(self) -> None:
        self.lengths, self._digest = list[int](), sha256()
        self._low: Any = math.inf
        self._high: Any = -math.inf

    def add(self, length: int, ends: np.ndarray, digest: bytes, target: Any) -> None:
        """The next sample: its number of tokens, their last position on each axis [p], their digest, its label."""
        self.lengths.append(length)
        self._low, self._high = np.minimum(self._low, ends), np.maximum(self._high, ends)
        self._digest.update(digest + _target_bytes(target))

    @property
    def extents(self) -> list[list[float]]:
        return np.stack([self._low, self._high], axis=1).tolist() if self.lengths else []

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def _ends(tokens: Tokens) -> np.ndarray:
    return tokens.positions.amax(dim=0).numpy()


def _target_bytes(target: Any) -> bytes:
    return target.numpy().tobytes() if isinstance(target, Tensor) else _whole_repr(target).encode()


def _whole_repr(target: Any) -> str:
    """`repr` of a label, but with all numbers of its arrays: numpy and torch leave out most of 1,000, and digits."""
    if isinstance(target, Tensor):
        target = target.detach().cpu().numpy()
    if isinstance(target, np.ndarray) and not target.dtype.hasobject:
        return f"array({target.dtype}, {target.shape}, {sha256(target.tobytes()).hexdigest()})"
    if isinstance(target, np.ndarray):
        return f"array({target.shape}, {_whole_repr(target.ravel().tolist())})"
    if is_dataclass(target) and not isinstance(target, type):
        fields = {name: getattr(target, name) for name in target.__dataclass_fields__}
        return f"{type(target).__qualname__}({', '.join(f'{name}={_whole_repr(one)}' for name, one in fields.items())})"
    if isinstance(target, Mapping):
        return f"{{{', '.join(f'{_whole_repr(name)}: {_whole_repr(one)}' for name, one in target.items())}}}"
    if isinstance(target, set | frozenset):  # whose order is another one in every process
        return f"{{{', '.join(sorted(map(_whole_repr, target)))}}}"
    if isinstance(target, tuple):
        return f"({', '.join(map(_whole_repr, target))}{',' * (len(target) == 1)})"
    return f"[{', '.join(map(_whole_repr, target))}]" if isinstance(target, list) else repr(target)


def _from_disk(key: str) -> Encoded | None:
    """Tokens of a split that was encoded before; None if it is not in the cache."""
    if (found := cached(key)) is None:
        return None
    rows, meta = found
    tokens = Stored(rows)
    return Encoded(tokens, tokens.lengths, meta["extents"], meta["sha256"])


def _encode_in_workers(encoder: Encoder, targets: Sequence[Any], key: str | None, max_bytes: float) -> Encoded:
    """Tokens of a split, kept on disk; in memory if there is no room, which is logged, or no `key` for it."""

    def batches(summary: _Summary) -> Iterator[pa.RecordBatch]:
        labels = iter(targets)
        for rows, each_ends, digests in _chunks(encoder):
            for length, ends, digest in zip(rows["length"].to_pylist(), each_ends, digests):
                summary.add(length, ends, digest, next(labels))
            yield rows

    summary = _Summary()
    if key is not None:
        try:
            write(key, batches(summary), lambda: {"extents": summary.extents, "sha256": summary.sha256})
            if (found := _from_disk(key)) is not None:
                return found
        except OSError as error:
            why, where = error.strerror or error, cache_folder()
            log.warning("%s", f"encoded data is not kept: {why} ({where}); set SEQKIT_CACHE to another folder")
        summary = _Summary()
    kept, used = [], 0
    for rows in batches(summary):
        used += rows.nbytes
        kept += [rows] if used <= max_bytes else []
    tokens: Any = Stored(pa.Table.from_batches(kept)) if kept else {}
    return Encoded(tokens, summary.lengths, summary.extents, summary.sha256)


def _seconds(encoder: Encoder) -> float:
    """Seconds that one process would take, judged by up to half a second of it."""
    samples, started, done = encoder.samples, time.monotonic(), 0
    if isinstance(samples, TextDocuments):  # a whole piece may take minutes
        text = samples.read(0)[: 2**18]
        with suppress(Exception):  # raised again with the name of its document
            encoder.tokenizer.encode(text)
        return (time.monotonic() - started) * samples.num_bytes / len(text.encode(errors="replace"))
    for index in range(0, len(samples), max(1, len(samples) // 200)):
        encoder(index)
        done += 1
        if time.monotonic() - started > 0.5:
            break
    return (time.monotonic() - started) / done * len(samples)


# ── worker processes ─────────────────────────────────────────────────────────────────────────────────────────────────


_Chunk = tuple[pa.RecordBatch, list[np.ndarray], list[bytes]]
"""Several encoded samples: rows for the disk; last positions and digest of each."""


class _Chunks(Dataset[Any]):
    """Chunks of a split; the index of a sample in place of one with a sample that cannot be encoded."""

    def __init__(self, encoder: Encoder):
        self.encoder = encoder
        self.size = 1 if isinstance(encoder.samples, TextDocuments) else _CHUNK

    def __len__(self) -> int:
        return math.ceil(len(self.encoder.samples) / self.size)

    def __getitem__(self, number: int) -> _Chunk | int:
        rows, lengths, ends = [], [], []
        for index in range(number * self.size, min((number + 1) * self.size, len(self.encoder.samples))):
            try:
                tokens = self.encoder(index)
            except Exception:  # raised anew in the parent process: here it would become a traceback of this one
                return index
            rows.append(row_of(tokens))
            lengths.append(len(tokens))
            ends.append(_ends(tokens))
        return batch_of(rows, lengths), ends, [digest_of(row) for row in rows]


def _chunks(encoder: Encoder) -> Iterator[_Chunk]:
    """All chunks in their order. Raises what the encoder raises, in this process."""
    chunks, number = _Chunks(encoder), num_workers()
    loader: Any = DataLoader(chunks, prefetch_factor=2 if number else None, **loader_options(number))
    for chunk in track(loader, f"encoding {encoder.split} data", len(chunks)):
        if isinstance(chunk, int):
            encoder(chunk)
            raise DataError(
                f"a worker process failed on sample {chunk}, which this process can encode; run the command again"
            )
        yield chunk


# ── fingerprints ─────────────────────────────────────────────────────────────────────────────────────────────────────


def split_fingerprint(encoder: Encoder, targets: Sequence[Any]) -> str | None:
    """Fingerprint of a split as it is encoded; None if a part of it has none.

    It covers samples, labels, what the tokenizer was built with and fitted to, its code, and versions of libraries.
    """
    data, how = samples_fingerprint(encoder.samples), tokenizer_fingerprint(encoder.tokenizer)
    if data is None or how is None:
        return None
    labels = sha256()
    for target in targets:
        labels.update(_target_bytes(target) + b"\0")
    return fingerprint(data, how, labels.hexdigest(), encoder.max_tokens or 0)


def samples_fingerprint(samples: Samples) -> str | None:
    """Fingerprint of raw samples: the one that they name, else that of their content; None if they have none."""
    if samples.key is not None:
        return samples.key()
    digest = sha256()
    for index in range(len(samples)):
        data = _raw_bytes(samples.read(index))
        if data is None:
            return None
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str | None:
    """Fingerprint of a tokenizer: attributes, fitted state, code, versions; None if it cannot be pickled, or its code
    is in no file."""
    try:
        attributes = pickle.dumps(tokenizer, protocol=4)  # only to be compared; it is never loaded
    except Exception:  # whatever the tokenizer of a plug-in raises
        return None
    digest = sha256(attributes)
    parts = tokenizer.parts if isinstance(tokenizer, Join) else {}
    kinds = [
        kind for one in (tokenizer, *parts.values()) for kind in type(one).__mro__[:-1] if kind.__module__ != "abc"
    ]
    own = Path(__file__).parents[1] / "tokenizers"
    try:
        code = {Path(getfile(kind)) for kind in kinds}
        for path in sorted({*code, *own.glob("*.py"), Path(__file__), Path(token_rows.__file__)}):
            digest.update(path.read_bytes())
    except (OSError, TypeError):  # its code is in no file: a notebook, `python -c`
        return None
    for library in _LIBRARIES:
        try:
            digest.update(f"{library} {version(library)} ".encode())
        except PackageNotFoundError:
            continue
    return digest.hexdigest()


def _raw_bytes(raw: Any) -> bytes | None:
    """A raw sample as bytes that differ where it does; None for types of which that is not known."""
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
    if isinstance(raw, Mapping):
        raw = [*raw.items()]
    if isinstance(raw, Waveform | GraphData | list | tuple):
        fields = [getattr(raw, name) for name in raw.__dataclass_fields__] if isinstance(raw, GraphData) else list(raw)
        parts = [_raw_bytes(part) for part in fields]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return type(raw).__name__.encode() + b"".join(len(part).to_bytes(8, "little") + part for part in known)
    to_binary = getattr(raw, "ToBinary", None)  # an rdkit molecule
    return bytes(to_binary()) if to_binary is not None else None
