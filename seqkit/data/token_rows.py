"""Tokens as rows of an Arrow file: a row a sample, with all of its tensors, and what is known of it without them.

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

_TENSOR = {
    "name": pa.string(),
    "dtype": pa.string(),
    "stored": pa.string(),
    "shape": pa.list_(pa.int32()),
}
_TENSOR |= {"packed": pa.bool_(), "values": pa.large_binary()}
"""A tensor of a sample. stored: type of the values on disk, or `COUNTED`. packed: whether they are compressed."""

SCHEMA = pa.schema(
    {
        "length": pa.int64(),
        "ends": pa.list_(pa.float64()),
        "digest": pa.binary(),
        "tensors": pa.list_(pa.struct(_TENSOR)),
    }
)
"""A sample. length: number of tokens. ends: last position on each axis. digest: SHA-256 of all tensors."""

_UNSIGNED = ("u1", "u2", "u4")
"""Types that are tried for whole numbers, the smallest first."""

_CODEC = pa.Codec("zstd", compression_level=1)
_MIN_BYTES = 2**8
_MAX_BYTES = 2**20
"""Sizes that are compressed: smaller ones do not gain, of larger ones, long texts, windows are read from the disk."""


def is_counted(array: np.ndarray) -> bool:
    """Whether an array is [n] or [n 1] with the values 0, 1, 2, …"""
    return array.size == len(array) and bool((array.reshape(-1) == np.arange(array.size)).all())


def row_of(tokens: Tokens) -> dict[str, Any]:
    """Tokens as a row of `SCHEMA`; whole numbers have the smallest type that holds them.

    The digest is the SHA-256 of every field that the tokens have.
    """
    digest = sha256()
    tensors = []
    for name, tensor in tokens.tensors().items():
        array: np.ndarray = tensor.numpy()
        dtype = array.dtype.str
        values = np.ascontiguousarray(array)
        stored = dtype
        if is_counted(array):
            stored = COUNTED
            values = values[:0]
        elif array.size and array.dtype.kind == "i" and array.min() >= 0:
            stored = next((x for x in _UNSIGNED if array.max() <= np.iinfo(x).max), dtype)
            values = values.astype(stored)
        digest.update(f"{name} {dtype} {stored} {array.shape} ".encode())
        data = values.tobytes()
        digest.update(data)
        tensors.append(
            {"name": name, "dtype": dtype, "stored": stored, "shape": array.shape, "values": data}
        )
    ends = tokens.positions.amax(dim=0).tolist()
    return {"length": len(tokens), "ends": ends, "digest": digest.digest(), "tensors": tensors}


def batch_of(examples: Sequence[Tokens]) -> pa.RecordBatch:
    """Several samples as rows of `SCHEMA`."""
    rows = [row_of(tokens) for tokens in examples]
    for tensor in (tensor for row in rows for tensor in row["tensors"]):
        tensor["packed"] = _MIN_BYTES <= len(tensor["values"]) < _MAX_BYTES
        if tensor["packed"]:
            tensor["values"] = _CODEC.compress(tensor["values"], asbytes=True)
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


class Stored:
    """Tokens of samples that are rows of a table of `SCHEMA`, by index; a row whose tensors are null has none."""

    def __init__(self, rows: pa.Table):
        self._tensors = rows["tensors"]
        self._ends = np.cumsum([len(chunk) for chunk in self._tensors.chunks])

    def __contains__(self, index: int) -> bool:
        return 0 <= index < len(self._tensors) and self._tensors[index].is_valid

    def __getitem__(self, index: int) -> Tokens:
        """Tokens of a sample, equal in every bit to what was stored."""
        # astype copies: what a reader writes into stays his own
        return Tokens.of(
            {
                name: torch.from_numpy(array.astype(dtype))
                for name, array, dtype in self._read(index)
            }
        )

    def arrays(self, index: int) -> dict[str, np.ndarray]:
        """Arrays of a sample by name, read-only, in the small types in which they are stored; long ones memory-mapped.

        Positions that count from 0 are left out.
        """
        return {name: array for name, array, _ in self._read(index, without_counted="positions")}

    def _read(
        self, index: int, without_counted: str = ""
    ) -> Iterator[tuple[str, np.ndarray, np.dtype]]:
        """Name, array as stored, and type of each tensor."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        chunk = self._tensors.chunk(number)
        # arrays are slices of the file, where a scalar of pyarrow would be a copy of the bytes
        row = chunk.slice(index - int(self._ends[number]) + len(chunk), 1).flatten()
        *known, values = row.flatten()
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int64)[
            values.offset : values.offset + len(row) + 1
        ].tolist()
        for i, (name, dtype, stored, shape, is_packed) in enumerate(
            zip(*(column.to_pylist() for column in known))
        ):
            if stored != COUNTED:
                buffer = data.slice(ends[i], ends[i + 1] - ends[i])
                if is_packed:
                    buffer = _CODEC.decompress(buffer, math.prod(shape) * np.dtype(stored).itemsize)
                array = np.frombuffer(buffer, stored).reshape(shape)
                array.flags.writeable = False  # the mapped file
                yield name, array, np.dtype(dtype)
            elif name != without_counted:
                yield name, np.arange(math.prod(shape)).reshape(shape), np.dtype(dtype)
