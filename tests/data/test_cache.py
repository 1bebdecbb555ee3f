"""The cache on disk: whole or not at all, and read as it was written."""

import json

import numpy as np
import pytest

from seqkit.data.cache import cache_folder, cached, fingerprint, writing
from seqkit.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))


def write(key, values=(3, 1, 2)):
    with writing(key) as folder:
        folder.save("whole", np.array(values))
        with folder.growing("growing", np.uint16) as array:
            for value in values:
                array.append(np.array([value, value + 1]))
        folder.finish({"said": "so"})


def left():
    return [file.name for file in cache_folder().iterdir()] if cache_folder().exists() else []


def test_what_was_written_is_read_again_memory_mapped():
    assert cached("a" * 64) is None
    write("a" * 64)
    entry = cached("a" * 64)
    assert entry.meta == {"said": "so"}
    assert isinstance(entry.array("whole"), np.memmap)
    assert entry.array("whole").tolist() == [3, 1, 2]
    assert entry.array("growing").tolist() == [3, 4, 1, 2, 2, 3]
    assert entry.array("growing").dtype == np.uint16
    assert left() == ["a" * 64]


def test_an_entry_that_was_not_finished_is_not_there():
    with pytest.raises(RuntimeError), writing("b" * 64) as folder:
        folder.save("whole", np.arange(3))
        raise RuntimeError
    with writing("b" * 64) as folder:
        folder.save("whole", np.arange(3))
    assert cached("b" * 64) is None
    assert left() == []


def test_of_two_writers_the_first_stays_and_nothing_is_left_over():
    with writing("c" * 64) as slow:
        slow.save("whole", np.array([1]))
        write("c" * 64, values=(7,))
        slow.finish({})
    assert cached("c" * 64).array("whole").tolist() == [7]
    assert left() == ["c" * 64]


def test_a_damaged_entry_counts_as_none_and_is_written_anew():
    write("d" * 64)
    (cache_folder() / ("d" * 64) / "complete.json").write_text("{")
    assert cached("d" * 64) is None
    write("d" * 64, values=(5,))
    assert cached("d" * 64).array("whole").tolist() == [5]


def test_an_array_that_was_cut_or_would_be_unpickled_is_refused():
    write("e" * 64)
    entry = cached("e" * 64)
    path = entry.folder / "whole.npy"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match=r"whole\.npy cannot be read .*delete the folder"):
        entry.array("whole")
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="cannot be read"):
        entry.array("whole")
    (entry.folder / "complete.json").write_text(json.dumps([1]))
    assert cached("e" * 64) is None


def test_fingerprints_differ_where_a_part_or_its_end_does():
    parts = [("ab", "c"), ("a", "bc"), ("abc",), (b"ab", "c"), (1,), ("1",), (np.arange(2),), (np.arange(2.0),)]
    parts += [(np.zeros((1, 2)),), (np.zeros((2, 1)),), ([1, 2],), ((1, 2),)]
    assert len({fingerprint(*part) for part in parts}) == len(parts)
    assert fingerprint("ab", np.arange(3)) == fingerprint("ab", np.arange(3))
