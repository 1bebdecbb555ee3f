import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from seqkit.errors import DataError
from seqkit.files import (
    StrictLoader,
    decoded,
    load_json,
    load_yaml,
    read_mapping,
    read_regular,
    read_small,
    to_yaml,
    write_atomic,
)


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


CRASH = """
import os, resource, signal, sys
from pathlib import Path
from seqkit.files import write_json

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

path, moment = Path(sys.argv[1]), sys.argv[2]
if moment == "write":  # the kernel ends the process when the file has 1,000 bytes
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
elif moment == "fsync":
    os.fsync = killed
else:
    os.replace = os.rename = Path.replace = Path.rename = killed
write_json(path, "new" * 3000)
"""
"""Writes a JSON file of 9,002 bytes, and is killed at a moment of it."""


@pytest.mark.parametrize("moment", ["write", "fsync", "rename"])
def test_a_process_that_is_killed_while_it_writes_leaves_the_old_file_whole(tmp_path, moment):
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    died = subprocess.run(
        [sys.executable, "-c", CRASH, str(path), moment], capture_output=True, check=False
    )
    assert died.returncode < 0, died.stderr
    assert path.read_bytes() == b"old"
    # in the same folder: a rename across file systems would be a copy
    (left,) = set(tmp_path.iterdir()) - {path}
    assert left.name.startswith(".")
    assert left.stat().st_size == (1000 if moment == "write" else 9002)


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "none" / "a.bin", b"content")


# ── files of others ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1\n", "an anchor at line 1"),
        ("a: 1\nb: *x\n", "an alias at line 2"),
        ("a: 1\nb: !!int '1'\n", "a tag at line 2"),
        ("a: 1\n<<: {b: 2}\n", "a merge key in line 2"),
        ("a: 1\n'a': 2\n", "'a' is given twice, again in line 2"),
        ("a:\n- x\n- {b: 1, b: 2}\n", "'b' is given twice, again in line 3"),
        ("a: 1\n2: 3\n", "the key 2 in line 2 is not a text"),
        ("a: 1\nb: " + "1" * 21, "the number in line 2 has 21 digits"),
        ("[" * 21 + "]" * 21, "nested too deeply in line 1; 20 levels"),
        (
            "".join(f"{' ' * i}a:\n" for i in range(21)) + " " * 21 + "b: 1",
            "nested too deeply in line 21",
        ),
        ("a: \x1b\n", r"a control character, U\+001B, in line 1"),
        ("a: 1\n- b\n", "expected <block end>, but found .* in line 2"),
    ],
)
def test_yaml_of_more_than_plain_data_is_refused_with_its_line(text, message):
    with pytest.raises(yaml.YAMLError, match=message) as caught:
        load_yaml(text)
    assert "\n" not in str(caught.value)


def test_yaml_of_as_many_levels_and_values_as_allowed_is_read():
    value = load_yaml("[" * 20 + "]" * 20)
    for _ in range(19):
        (value,) = value
    assert value == []
    assert load_yaml("[1, 2, 3]", max_values=4) == [1, 2, 3]
    with pytest.raises(yaml.YAMLError, match="more than 3 values"):
        load_yaml("[1, 2, 3]", max_values=3)


def test_many_keys_are_read_in_time_that_is_linear_in_them():
    """By comparisons of keys, not by a clock."""
    compared = 0

    class Key(str):
        __slots__ = ()

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    class Loader(StrictLoader):
        def construct_object(self, node, deep=False):
            value = super().construct_object(node, deep)
            return Key(value) if isinstance(value, str) else value

    assert len(Loader("".join(f"k{i}: 1\n" for i in range(500)), 10_000).get_single_data()) == 500
    assert compared < 500 * 20


def test_a_list_that_occurs_twice_is_written_so_that_it_is_read_back():
    shared = [1, 2]
    value = {"a": shared, "b": {"c": shared}}
    assert load_yaml(to_yaml(value)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ('{"b": [{"a": 1, "a": 2}]}', "'a' is given twice"),
        ("[" * 21 + "]" * 21, "nested too deeply"),
        ('{"a":' * 20 + "[]" + "}" * 20, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("9" * 5000, "digits"),
        ("{} {}", "Extra data"),
    ],
    ids=lambda text: text[:30],
)
def test_json_of_more_than_plain_data_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        load_json(text)


def test_json_of_as_many_levels_as_allowed_is_read():
    text = '{"a":' * 10 + "[" * 10 + "]" * 10 + "}" * 10
    assert load_json(text) == json.loads(text)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("read", [read_regular, lambda path: read_small(path, 10)])
def test_what_is_no_regular_file_is_refused_before_it_is_read(tmp_path, make, read):
    make(tmp_path / "a.json")
    with pytest.raises(DataError, match=r"a\.json is a (FIFO|folder|device)"):
        read(tmp_path / "a.json")


def test_no_more_of_a_file_is_read_than_is_allowed(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"12345")
    assert (read_regular(path), read_regular(path, 2), read_small(path, 5)) == (
        b"12345",
        b"12",
        b"12345",
    )
    with pytest.raises(DataError, match="more than 4 bytes"):
        read_small(path, 4)
    os.truncate(path, 2**33)  # a file of holes: 8 GB
    with pytest.raises(DataError, match="more than 4 bytes"):
        read_small(path, 4)


@pytest.mark.parametrize(
    "content", [b"\xff\xfea\0", b"a: 1\nb: \xff\n", b"\xef\xbb\xbf" * 2 + b"a: 1\n"]
)
@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_a_mapping_that_is_not_utf_8_is_refused_with_its_name(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        DataError, match=rf"{name} is damaged \((byte 0xff in line [12] is not|it begins with two)"
    ):
        read_mapping(tmp_path / name)


@pytest.mark.parametrize("content", ["[]", "null", "7", '"a"'])
def test_a_mapping_is_keys_with_values(tmp_path, content):
    for name in ("a.yaml", "a.json"):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=f"{name} is damaged"):
            read_mapping(tmp_path / name)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (
            b"\xff\xfe" + "é".encode("utf-16-le"),
            "byte 0xff in line 1 is not UTF-8: it looks like UTF-16",
        ),
        (
            b"\xfe\xff" + "é".encode("utf-16-be"),
            "byte 0xfe in line 1 is not UTF-8: it looks like UTF-16",
        ),
        ("a\né".encode("latin-1"), "byte 0xe9 in line 2 is not UTF-8: it is of another encoding"),
    ],
)
def test_text_in_another_encoding_is_refused_with_what_it_looks_like(data, kind):
    with pytest.raises(ValueError, match=kind):
        decoded(data)
