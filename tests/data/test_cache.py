"""The cache on disk: whole or not at all, read as it was written, damage found."""

import pyarrow as pa
import pytest

from seqkit.data.cache import cache_folder, cached, fingerprint, write

A, B = "a" * 64, "b" * 64


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))


def rows(*values):
    return pa.record_batch({"value": pa.array(values, pa.int64())})


def keep(key, *batches):
    write(key, iter(batches), rows().schema)


def read(key):
    return cached(key)["value"].to_pylist()


def left():
    return [file.name[:64] for file in cache_folder().iterdir()] if cache_folder().exists() else []


def test_what_was_written_is_read_again_memory_mapped():
    assert cached(A) is None
    keep(A, rows(3, 1), rows(2))
    before = pa.total_allocated_bytes()
    assert read(A) == [3, 1, 2]
    assert pa.total_allocated_bytes() == before
    assert left() == [A]


def test_an_entry_that_was_not_finished_is_not_there():
    def batches():
        yield rows(1)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write(A, batches(), rows().schema)
    assert cached(A) is None
    assert left() == []


def test_of_two_writers_of_the_same_nothing_is_left_over():
    def slow():
        yield rows(1)
        keep(A, rows(1))

    write(A, slow(), rows().schema)
    assert read(A) == [1]
    assert left() == [A]


def overwrite(path, where):
    data = bytearray(path.read_bytes())
    start, end = (int(len(data) * share) for share in where)
    data[start:end] = bytes(255 - byte for byte in data[start:end])
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [
    lambda path: overwrite(path, (0.3, 0.6)),
    lambda path: overwrite(path, (0.5, 0.501)),
    lambda path: path.write_bytes(path.read_bytes()[:-3]),
    lambda path: path.write_bytes(b""),
    lambda path: path.rename(path.with_name(f"{A}-00000000.arrow")),
])  # fmt: skip
def test_a_damaged_entry_is_deleted_which_is_said_and_written_anew(damage, caplog):
    keep(A, rows(*range(4000)))
    assert len(read(A)) == 4000
    damage(*cache_folder().iterdir())
    assert cached(A) is None
    assert A in caplog.text
    assert left() == []
    keep(A, rows(5))
    assert read(A) == [5]


def test_an_entry_under_the_name_of_another_is_not_believed(caplog):
    keep(A, rows(1))
    (path,) = cache_folder().iterdir()
    path.rename(path.with_name(path.name.replace(A, B)))
    assert cached(B) is None
    assert f"it was written as {A}" in caplog.text
    assert left() == []


def test_fingerprints_differ_where_a_part_or_its_end_does():
    parts = [("ab", "c"), ("a", "bc"), ("abc",), (b"ab", "c"), (1,), ("1",)]
    assert len({fingerprint(*part) for part in parts}) == len(parts)
    assert fingerprint("ab", 3) == fingerprint("ab", 3)


def test_a_damaged_file_that_cannot_be_deleted_is_passed_over():
    folder = cache_folder() / f"{'a' * 64}-00000000.arrow"
    folder.mkdir(parents=True)
    assert cached("a" * 64) is None
