"""Samples are read on access, and know labels, groups and names without that."""

from pathlib import Path

from seqkit.data import Sample, Samples, Splits
from seqkit.data.file_samples import of_files


def test_files_are_read_on_access_and_have_names():
    read = []
    files = of_files(
        [Path("a"), Path("b"), Path("c")],
        [2, 3, 5],
        lambda path: read.append(path) or path.name * 2,
    )
    some = files.at([2, 0])
    assert some.labels == [5, 2]
    assert read == []
    assert some[0] == Sample("cc", 5, None, "c")
    assert some.name(1) == "a"
    assert [sample.raw for sample in files[1:]] == ["bb", "cc"]


def test_samples_of_a_list_keep_groups_and_names():
    samples = Samples.of([Sample("x", 0, "ann"), Sample("y", 1, name="row 7")])
    assert samples.groups == ["ann", None]
    assert [samples[::-1].name(i) for i in range(2)] == ["row 7", "sample 0"]
    assert samples.labelled([5, 6])[1] == Sample("y", 6, None, "row 7")
    assert Samples.of(samples) is samples
    assert Samples.of([Sample("x")]).groups is None


def test_splits_take_any_sequence():
    splits = Splits([Sample("x", 0)], (Sample("y", 1),))
    assert splits.train.labels + splits.test.labels == [0, 1]
    assert splits.valid is None
