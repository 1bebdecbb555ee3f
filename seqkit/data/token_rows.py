"""Tokens as rows of an Arrow file: a row a sample, a column for each of its tensors.

Each tensor is compressed by itself: of a compressed record batch, hundreds of samples would be unpacked to read one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from seqkit.interfaces import Tokens

COUNTED = "count"
"""How an array is stored that is 0, 1, 2, …, as most positions are: it takes no bytes."""

_PARTS = {"dtype": pa.string(), "stored": pa.string(), "shape": pa.list_(pa.int32()), "values": pa.large_binary()}
"""A tensor of a sample. stored: type of the values on disk, or `COUNTED`."""

_UNSIGNED = ("u1", "u2", "u4")
"""Types that are tried for whole numbers, the smallest first."""

_COMPRESSED, _CODEC = " zstd", pa.Codec("zstd", compression_level=1)
_MIN_BYTES, _MAX_BYTES = 2**8, 2**20
"""Sizes that are compressed: smaller ones do not gain, of larger ones, long texts, windows are read from the disk."""

RUN, RUNS = "parts.", "runs"
"""How the name of a tensor of a run of joined tokens begins, and the column of all of them."""

Row = dict[str, dict[str, Any]]
"""Name to a stored tensor, for each of a sample's tensors."""


def row_of(tokens: Tokens) -> Row:
    """Tokens as a row; whole numbers have the smallest type that holds them. Equal tokens have equal rows."""
    return {name: _stored(tensor.numpy()) for name, tensor in tokens.tensors().items()}


def digest_of(row: Row) -> bytes:
    """SHA-256 of a sample's tokens, of every field that they have."""
    digest = sha256()
    for name, field in row.items():
        digest.update(f"{name} {field['dtype']} {field['stored']} {field['shape']} ".encode())
        digest.update(field["values"])
    return digest.digest()


def is_counted(array: np.ndarray) -> bool:
    """Whether an array is [n] or [n 1] with the values 0, 1, 2, …"""
    return array.size == len(array) and bool((array.reshape(-1) == np.arange(array.size)).all())


def _stored(array: np.ndarray) -> dict[str, Any]:
    stored, values = array.dtype.str, np.ascontiguousarray(array)
    if is_counted(array):
        stored, values = COUNTED, values[:0]
    elif array.size and array.dtype.kind == "i" and array.min() >= 0:
        stored = next((x for x in _UNSIGNED if array.max() <= np.iinfo(x).max), stored)
        values = values.astype(stored)
    return {"dtype": array.dtype.str, "stored": stored, "shape": array.shape, "values": values.tobytes()}


def batch_of(rows: Sequence[Row], lengths: Sequence[int]) -> pa.RecordBatch:
    """Rows of several samples, of `lengths` tokens each, as a record batch: a column for each of their tensors."""
    names = dict.fromkeys(name for row in rows for name in row if not name.startswith(RUN))
    columns = [
        pa.array([row.get(name) and _compressed(row[name]) for row in rows], pa.struct(_PARTS)) for name in names
    ]
    if any(name.startswith(RUN) for row in rows for name in row):  # examples have parts of their own: one column of all
        own = [[{"name": n, **_compressed(x)} for n, x in row.items() if n.startswith(RUN)] for row in rows]
        columns.append(pa.array(own, pa.list_(pa.struct({"name": pa.string(), **_PARTS}))))
        names[RUNS] = None
    return pa.record_batch([pa.array(lengths, pa.int64()), *columns], names=["length", *names])


def _compressed(field: dict[str, Any]) -> dict[str, Any]:
    if not _MIN_BYTES <= len(field["values"]) < _MAX_BYTES:
        return field
    values = _CODEC.compress(field["values"], asbytes=True)
    return {**field, "stored": field["stored"] + _COMPRESSED, "values": values}


class Stored:
    """Tokens of samples that are rows of a table, by index. lengths: number of tokens of each sample.

    rows: in record batches of which all but the last have equally many.
    """

    def __init__(self, rows: pa.Table):
        self.lengths: list[int] = rows["length"].to_pylist()
        self._columns = {
            name: [[chunk.field(part) for part in _PARTS] for chunk in rows[name].chunks]
            for name in rows.column_names
            if name not in ("length", RUNS)
        }
        self._runs = rows[RUNS].chunks if RUNS in rows.column_names else None
        self._rows_per_batch = len(rows["length"].chunk(0))

    def __contains__(self, index: int) -> bool:
        return 0 <= index < len(self.lengths)

    def __getitem__(self, index: int) -> Tokens:
        """Tokens of a sample, equal in every bit to what was stored."""
        # astype copies: what a reader writes into stays his own
        return Tokens.of({name: torch.from_numpy(array.astype(dtype)) for name, array, dtype in self._row(index)})

    def arrays(self, index: int) -> dict[str, np.ndarray]:
        """Arrays of a sample by name, read-only, in the small types in which they are stored; long ones memory-mapped.

        Positions that count from 0 are left out.
        """
        return {name: array for name, array, _ in self._row(index, without_counted="positions")}

    def _row(self, index: int, without_counted: str = "") -> Iterator[tuple[str, np.ndarray, np.dtype]]:
        """Name, array as stored, and type of each tensor."""
        batch, row = divmod(index, self._rows_per_batch)
        for name, chunks in self._columns.items():
            *described, values = (part[row] for part in chunks[batch])
            yield from self._read(name, [part.as_py() for part in described], values, without_counted)
        for run in self._runs[batch][row] if self._runs is not None else ():
            name, *described, values = (run[key] for key in ("name", *_PARTS))
            yield from self._read(name.as_py(), [part.as_py() for part in described], values, without_counted)

    def _read(
        self, name: str, described: Sequence[Any], values: pa.Scalar, without_counted: str
    ) -> Iterator[tuple[str, np.ndarray, np.dtype]]:
        dtype, stored, shape = described
        if stored != COUNTED:
            buffer = values.as_buffer()
            if stored.endswith(_COMPRESSED):
                stored = stored.removesuffix(_COMPRESSED)
                buffer = _CODEC.decompress(buffer, math.prod(shape) * np.dtype(stored).itemsize)
            array = np.frombuffer(buffer, stored).reshape(shape)
            array.flags.writeable = False  # the mapped file
            yield name, array, np.dtype(dtype)
        elif name != without_counted:
            yield name, np.arange(math.prod(shape)).reshape(shape), np.dtype(dtype)
