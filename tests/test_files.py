import os
import stat

import pytest

from seqkit.files import write_atomic


def test_a_file_is_written_or_replaced_whole(tmp_path):
    path = tmp_path / "a.bin"
    for content in (b"first", b"", b"second, longer"):
        write_atomic(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_file_and_folder_are_synced_in_this_order(tmp_path, monkeypatch):
    synced = []

    def sync(descriptor):
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append(("folder" if is_folder else "file", (tmp_path / "a.bin").exists()))

    monkeypatch.setattr("seqkit.files.os.fsync", sync)
    write_atomic(tmp_path / "a.bin", b"content")
    assert synced == [("file", False), ("folder", True)]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_no_temporary_one(tmp_path, monkeypatch, error):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def fail(descriptor):
        raise error

    monkeypatch.setattr("seqkit.files.os.fsync", fail)
    with pytest.raises(type(error)):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "none" / "a.bin", b"content")
