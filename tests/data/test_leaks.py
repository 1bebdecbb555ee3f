"""Leaks between splits are counted, of texts, numbers and files."""

from pathlib import Path

from seqkit.data.leaks import Compared, tell_leaks
from seqkit.data.sample import Sample, Samples


def said(**splits):
    """Lines on splits of (input, label), as strings of two letters."""
    samples = {
        split: Samples.of([Sample(x, y, name=f"{split} {i}") for i, (x, y) in enumerate(rows)])
        for split, rows in splits.items()
    }
    lines = []
    keys = {split: [x for x, _ in rows] for split, rows in splits.items()}
    tell_leaks("data", samples, keys, "take them out", lines.append, what="files")
    return lines


def test_inputs_of_test_that_are_in_training_are_counted():
    (line,) = said(train=["ax", "by", "cx"], valid=["ex"], test=["dx", "by", "by"])
    assert line == (
        "data: 2 of 3 test files are in training, too (first: test 1), which flatters the result; take them out"
    )
    assert said(train=["ax", "by"], test=["cx"]) == []


def test_equal_inputs_with_another_target_are_counted_in_each_split():
    lines = said(test=["ay", "cx", "cx"], train=["ax", "bx", "by", "bx", "by"])
    assert lines[1:] == [
        "data: train files that another example has, with another target: 2 (first: train 2)",
        "data: test files that another example has, with another target: 1 (first: test 0)",
    ]


def test_files_are_compared_by_content_and_read_once(tmp_path, monkeypatch):
    for name, content in (("a", b"1"), ("b", b"2"), ("c", b"1")):
        (tmp_path / name).write_bytes(content)
    known, opened, once = Compared(tmp_path), [], Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, mode: opened.append(path.name) or once(path, mode)
    )
    a, b, c, again, gone = (known.content(name) for name in ("a", "b", "c", "a", "gone"))
    assert a == c == again != b
    assert (gone, known.content(b"1")) == ("gone", a)  # the same content, in a cell
    assert opened == ["a", "b", "c", "gone"]


def test_few_files_of_a_folder_are_opened(tmp_path, monkeypatch):
    contents = [
        b"a",
        b"b",
        b"a",
        b"long",
        b"0" * 70_000 + b"a",
        b"0" * 70_000 + b"b",
        b"0" * 70_000 + b"a",
    ]
    for i, content in enumerate(contents):
        (tmp_path / str(i)).write_bytes(content)
    opened, given = [], Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, *mode: opened.append(path.name) or given(path, *mode)
    )
    keys = Compared(tmp_path).contents([*map(str, range(len(contents)))])
    assert "3" not in opened
    for i, one in enumerate(contents):
        assert [key == keys[i] for key in keys] == [content == one for content in contents]
    assert len({*Compared(tmp_path).contents(["gone", "lost", "0"])}) == 3
