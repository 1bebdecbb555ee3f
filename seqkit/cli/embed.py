"""`seqkit embed RUN PATH…`."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from seqkit.cli.predict import check_out, each, open_inputs
from seqkit.errors import UsageError, one_line, printable

if TYPE_CHECKING:
    from seqkit.runs.answers import Vector

ROWS = 1024
"""Vectors of a row group of a Parquet file, which are in memory together."""


def run(args: Namespace) -> int:
    """Write a vector for each raw example: the pooled hidden states of the backbone's last layer."""
    from seqkit.runs.summary import check_trained

    check_trained(args.run)  # a mistake is said before what imports torch
    check_out(args.out)
    if args.out.suffix.lower() not in WRITERS:
        raise UsageError(f"--out {args.out} should end in {' or '.join(WRITERS)}, which says the format")
    from seqkit.runs.answers import pool_of, vectors
    from seqkit.runs.trained_model import load

    trained = load(args.run)
    inputs = open_inputs(args, trained)
    dim = trained.model.backbone.dim
    part = args.out.with_name(f".{args.out.name}.part")
    try:
        writer = WRITERS[args.out.suffix.lower()](part, dim)
        try:
            code = each(args.command, vectors(trained, inputs), writer.add, inputs.total)
        finally:
            writer.close()
        part.replace(args.out)
    finally:
        part.unlink(missing_ok=True)
    what = f"hidden states, {pool_of(trained.model)} of the tokens"
    if inputs.graph is not None:
        what = "the hidden states of each node"
    print(f"embed  {one_line(args.out)}  {writer.count:,} vectors of {dim} numbers: {what}")
    return code


class Writer(Protocol):
    """Takes vectors, one after another. count: how many it has."""

    count: int

    def __init__(self, path: Path, dim: int): ...

    def add(self, vector: Vector) -> None: ...

    def close(self) -> None: ...


class ParquetVectors:
    """Columns name, vector (float32, `dim` numbers; null where there is none) and error, a row an input."""

    def __init__(self, path: Path, dim: int):
        import pyarrow as pa
        from pyarrow import parquet

        self.count, self._rows = 0, list[dict[str, Any]]()
        vector = pa.list_(pa.float32(), dim)
        self._schema = pa.schema([("name", pa.string()), ("vector", vector), ("error", pa.string())])
        self._file = parquet.ParquetWriter(path, self._schema)

    def add(self, vector: Vector) -> None:
        """One row."""
        values = None if vector.values is None else vector.values.numpy()
        self.count += values is not None
        error = None if vector.error is None else printable(vector.error)
        self._rows.append({"name": printable(vector.name), "vector": values, "error": error})
        if len(self._rows) == ROWS:
            self._write()

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        if self._rows:
            self._write()
        self._file.close()

    def _write(self) -> None:
        import pyarrow as pa

        self._file.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []


class NpzVectors:
    """Arrays names [m] and vectors [m d] (float32), failed and errors of the others; in memory until the end."""

    def __init__(self, path: Path, dim: int):
        self.path, self.dim, self.count = path, dim, 0
        self._names, self._values = list[str](), list[Any]()
        self._failed, self._errors = list[str](), list[str]()

    def add(self, vector: Vector) -> None:
        """One vector, or the reason why there is none."""
        if vector.values is None:
            self._failed.append(printable(vector.name))
            self._errors.append(printable(vector.error))
        else:
            self._names.append(printable(vector.name))
            self._values.append(vector.values.numpy())
            self.count += 1

    def close(self) -> None:
        """Write the file. Texts are arrays of Unicode, which load without pickle."""
        import numpy as np

        vectors = np.stack(self._values) if self._values else np.zeros((0, self.dim), np.float32)
        texts = {name: np.array(value, dtype=np.str_) for name, value in (
            ("names", self._names), ("failed", self._failed), ("errors", self._errors),
        )}  # fmt: skip
        with self.path.open("wb") as file:
            np.savez(file, vectors=vectors, allow_pickle=False, **texts)


WRITERS: dict[str, type[Writer]] = {".parquet": ParquetVectors, ".npz": NpzVectors}
