"""The cache on disk: whole or not at all, read as it was written, damage found."""

import json

import numpy as np
import pyarrow as pa
import pytest

from seqkit.data import cache
from seqkit.data.cache import cache_folder, cached, fingerprint, write

A, B = "a" * 64, "b" * 64


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))


def rows(*values):
    return pa.record_batch({"value": pa.array(values, pa.int64())})


def keep(key, *batches):
    write(key, iter(batches), lambda: {"said": "so"})


def read(key):
    return cached(key)[0]["value"].to_pylist()


def left():
    return [file.name for file in cache_folder().iterdir()] if cache_folder().exists() else []


def test_what_was_written_is_read_again_memory_mapped():
    assert cached(A) is None
    keep(A, rows(3, 1), rows(2))
    before = pa.total_allocated_bytes()
    assert read(A) == [3, 1, 2]
    assert cached(A)[1]["said"] == "so"
    assert pa.total_allocated_bytes() == before
    assert left() == [A]


def test_an_entry_that_was_not_finished_is_not_there():
    def batches():
        yield rows(1)
        raise RuntimeError

    assert cached(A) is None
    with pytest.raises(RuntimeError):
        write(A, batches(), dict)
    assert cached(A) is None
    assert left() == []


def test_of_two_writers_the_first_stays_and_nothing_is_left_over():
    def slow():
        yield rows(1)
        keep(A, rows(7))

    write(A, slow(), dict)
    assert cached(A)[1]["said"] == "so"
    assert read(A) == [7]
    assert left() == [A]


def overwrite(path, where):
    data = bytearray(path.read_bytes())
    start, end = (int(len(data) * share) for share in where)
    data[start:end] = bytes(255 - byte for byte in data[start:end])
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [
    lambda rows, meta: overwrite(rows, (0.3, 0.6)),
    lambda rows, meta: overwrite(rows, (0.5, 0.501)),
    lambda rows, meta: rows.write_bytes(rows.read_bytes()[:-3]),
    lambda rows, meta: rows.write_bytes(b""),
    lambda rows, meta: rows.unlink(),
    lambda rows, meta: meta.write_text("{"),
    lambda rows, meta: meta.write_text("[1]"),
    lambda rows, meta: meta.write_text("{}"),
    lambda rows, meta: meta.write_text(meta.read_text().replace('"so"', '"no"')),
    lambda rows, meta: meta.write_text(meta.read_text().replace('"said": "so", ', "")),
])  # fmt: skip
def test_a_damaged_entry_is_deleted_which_is_said_and_written_anew(damage, caplog):
    keep(A, rows(*range(4000)))
    assert len(read(A)) == 4000
    damage(cache_folder() / A / cache.ROWS, cache_folder() / A / cache.COMPLETE)
    assert cached(A) is None
    assert A in caplog.text
    assert left() == []
    keep(A, rows(5))
    assert read(A) == [5]


def test_an_entry_under_the_name_of_another_is_not_believed(caplog):
    keep(A, rows(1))
    keep(B, rows(2))
    (cache_folder() / A).rename(cache_folder() / "other")
    (cache_folder() / B).rename(cache_folder() / A)
    (cache_folder() / "other").rename(cache_folder() / B)
    for key, other in ((A, B), (B, A)):
        assert cached(key) is None
        assert f"it was written as {other}" in caplog.text
    assert left() == []


def test_an_entry_from_before_keys_were_in_entries_is_made_anew_silently(caplog):
    keep(A, rows(1))
    old = {"said": "so"}
    old["crc32"] = cache._checksum(cache_folder() / A / cache.ROWS, old)
    (cache_folder() / A / cache.COMPLETE).write_text(json.dumps(old))
    assert cached(A) is None
    assert (left(), caplog.text) == ([], "")


def test_fingerprints_differ_where_a_part_or_its_end_does():
    parts = [("ab", "c"), ("a", "bc"), ("abc",), (b"ab", "c"), (1,), ("1",), (np.arange(2),), (np.arange(2.0),)]
    parts += [(np.zeros((1, 2)),), (np.zeros((2, 1)),), ([1, 2],), ((1, 2),)]
    assert len({fingerprint(*part) for part in parts}) == len(parts)
    assert fingerprint("ab", np.arange(3)) == fingerprint("ab", np.arange(3))
