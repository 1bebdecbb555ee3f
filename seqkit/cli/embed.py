"""`seqkit embed RUN PATH…`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.cli.options import add_inputs, add_out
from seqkit.cli.out import check_file, written
from seqkit.cli.predict import each, open_inputs
from seqkit.errors import UsageError, one_line, printable

if TYPE_CHECKING:
    from seqkit.runs.answers import Vector

ROWS = 1024
"""Number of vectors in a row group of a Parquet file, which are in memory together."""


def run(args: Namespace) -> int:
    """Write a vector for each raw example: the pooled hidden states of the backbone's last layer."""
    from seqkit.runs.summary import check_trained

    check_trained(args.run)  # a mistake is said before what imports torch
    if args.out.suffix.lower() not in WRITERS:
        raise UsageError(f"--out {args.out} should end in {' or '.join(WRITERS)}, which says the format")
    check_file(args.out, args.inputs, force=args.force)
    from seqkit.runs.answers import described_vectors, vectors
    from seqkit.runs.trained_model import load_one

    trained = load_one(args.run, args.device, args.dtype)
    inputs = open_inputs(args, trained)
    dim, what = described_vectors(trained)
    with written(args.out, force=args.force) as part, closing(WRITERS[args.out.suffix.lower()](part, dim)) as writer:
        code = each(args.command, vectors(trained, inputs), writer.add, inputs.total)
    if inputs.graph is not None:
        what = "the hidden states of each node"
    print(f"embed  {one_line(args.out)}  {writer.count:,} vectors of {dim} numbers: {what}")
    return code


class ParquetVectors:
    """Writes columns name, vector (float32, `dim` numbers; null if there is none) and error, one row for each input."""

    def __init__(self, path: Path, dim: int):
        import pyarrow as pa
        from pyarrow import parquet

        self.count, self._rows = 0, list[dict[str, Any]]()
        vector = pa.list_(pa.float32(), dim)
        self._schema = pa.schema([("name", pa.string()), ("vector", vector), ("error", pa.string())])
        self._file = parquet.ParquetWriter(path, self._schema)

    def add(self, vector: Vector) -> None:
        """Add one row."""
        self._rows.append(_row(vector))
        self.count += vector.values is not None
        if len(self._rows) == ROWS:
            self._write()

    def close(self) -> None:
        """Write the last rows, and the end of the file."""
        if self._rows:
            self._write()
        self._file.close()

    def _write(self) -> None:
        import pyarrow as pa

        self._file.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []


class NpzVectors:
    """Writes arrays names [m] and vectors [m d] (float32), failed and errors of the others; in memory until the end."""

    def __init__(self, path: Path, dim: int):
        self.path, self.dim, self.count = path, dim, 0
        self._rows = list[dict[str, Any]]()

    def add(self, vector: Vector) -> None:
        """Add one vector, or the reason why there is none."""
        self._rows.append(_row(vector))
        self.count += vector.values is not None

    def close(self) -> None:
        """Write the file; texts are arrays of Unicode, which load without pickle."""
        import numpy as np

        found = [row for row in self._rows if row["vector"] is not None]
        failed = [row for row in self._rows if row["vector"] is None]
        arrays = {
            "names": np.array([row["name"] for row in found], np.str_),
            "vectors": np.array([row["vector"] for row in found], np.float32).reshape(-1, self.dim),
            "failed": np.array([row["name"] for row in failed], np.str_),
            "errors": np.array([row["error"] for row in failed], np.str_),
        }
        with self.path.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)


def _row(vector: Vector) -> dict[str, Any]:
    """A vector as a row of printable texts and numbers."""
    return {
        "name": printable(vector.name),
        "vector": None if vector.values is None else vector.values.numpy(),
        "error": None if vector.error is None else printable(vector.error),
    }


WRITERS: dict[str, Any] = {".parquet": ParquetVectors, ".npz": NpzVectors}
"""Classes that write vectors, by suffix; each has `count`, `add` and `close`."""


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_inputs(parser)
    add_out(parser, "a .parquet or .npz file", metavar="FILE", required=True)
