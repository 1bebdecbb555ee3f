"""Damaged columnar files: whatever bytes are flipped or cut off, the process lives and the error is a DataError."""

import random
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

NUM_DAMAGED = 100

READS = """
import logging, sys
from seqkit.data import Table
from seqkit.data.tables.schema import Given
from seqkit.errors import DataError

logging.disable(logging.CRITICAL)
for path in sys.argv[1:]:
    try:
        splits = Table(path, Given(target_kind="classes", input="text", target="label")).splits()
        [list(part) for part in (splits.train, splits.test)]
        print("read", flush=True)
    except DataError as error:
        assert path in str(error), error
        assert "\\n" not in str(error), error
        print("refused", flush=True)
"""


def table():
    n = 60
    return pa.table({
        "text": [f"a text about number {i}" for i in range(n)],
        "label": pa.array(["a", "b"] * (n // 2)).dictionary_encode(),
        "words": [["a", "b"], None, []] * (n // 3),
        "date": pa.array(range(n), pa.timestamp("ms", "UTC")),
        "part": [{"x": 0.5 * i, "y": None} for i in range(n)],
    })  # fmt: skip


def ipc(path, new):
    with pa.OSFile(str(path), "wb") as sink, new(sink, table().schema) as writer:
        writer.write_table(table(), max_chunksize=17)


FORMATS = {
    "plain.parquet": lambda path: parquet.write_table(
        table(), path, compression="none", use_dictionary=False
    ),
    "zstd.parquet": lambda path: parquet.write_table(
        table(), path, compression="zstd", write_page_checksum=True
    ),
    "lz4.feather": lambda path: feather.write_feather(table(), str(path)),
    "file.arrow": lambda path: ipc(path, pa.ipc.new_file),
    "stream.arrow": lambda path: ipc(path, pa.ipc.new_stream),
}


def damaged(whole, rng):
    """The bytes with some of them changed, cut off or repeated."""
    data = bytearray(whole)
    way = rng.randrange(10)
    if way == 0:
        return data[: rng.randrange(1, len(data))]
    if way == 1:
        at = rng.randrange(len(data))
        return data[:at] + data[at // 2 :]
    for _ in range(rng.choice([1, 1, 2, 8])):
        data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    return data


@pytest.mark.slow
def test_a_damaged_file_is_read_or_refused_and_ends_no_process(tmp_path):
    paths = []
    for name, write in FORMATS.items():
        write(tmp_path / name)
        whole, rng = (tmp_path / name).read_bytes(), random.Random(name)
        paths.append(tmp_path / name)
        for i in range(NUM_DAMAGED):
            paths.append(tmp_path / f"{i}-{name}")
            paths[-1].write_bytes(damaged(whole, rng))
    done = subprocess.run(
        [sys.executable, "-c", READS, *paths], capture_output=True, text=True, check=False
    )
    answers = done.stdout.split()
    assert done.returncode == 0, (
        f"{paths[min(len(answers), len(paths) - 1)]}: {done.stderr[-2000:]}"
    )
    for i in range(0, len(paths), NUM_DAMAGED + 1):
        assert answers[i] == "read", paths[i]
        assert 5 < answers[i : i + NUM_DAMAGED + 1].count("refused") < NUM_DAMAGED, paths[i]
