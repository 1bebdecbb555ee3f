"""The data sets of `defaults.py`: their draw, and what keeps a test row out of training. Nothing is fetched."""

import numpy as np
import pytest

from tests.benchmarks.defaults_data import cases, packages
from tests.benchmarks.defaults_data.case import distinct, each_class, row_key, split_groups

GENERATED = {
    "tune": ["audio/chirps", "nodes/regions", "series/cylinder-bell-funnel"],
    "judge": ["image/lines", "audio/rhythms", "nodes/roles", "series/processes", "series/faults"],
}


def test_both_halves_have_every_kind_and_no_set_in_common():
    tune, judge = cases("tune"), cases("judge")
    assert not tune.keys() & judge.keys()
    assert {name.split("/")[0] for name in tune} == {name.split("/")[0] for name in judge}


def test_naming_the_sets_fetches_nothing(monkeypatch):
    def fetch(*words, **keys):
        raise AssertionError(words)

    monkeypatch.setattr(packages.subprocess, "run", fetch)
    monkeypatch.setattr(packages.zipfile, "ZipFile", fetch)
    assert len(cases("judge")) >= 20


def test_a_package_with_other_content_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "KEPT", tmp_path)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / f"sktime-{packages.WHEELS['sktime'][0]}-py3-none-any.whl").write_bytes(
        b"other"
    )
    with pytest.raises(ValueError, match="SHA-256"):
        packages.wheel.__wrapped__("sktime")


@pytest.mark.parametrize(
    ("half", "name"), [(half, name) for half, names in GENERATED.items() for name in names]
)
def test_generated_sets_are_reproduced_and_no_test_row_is_a_training_row(half, name):
    one, other = cases(half)[name](), cases(half)[name]()
    for a, b in zip(one.rows, other.rows, strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.targets == other.targets
    assert 0 < one.is_test.sum() < len(one.targets)
    if one.kind != "nodes":  # whose rows are one graph
        keys = [
            {row_key(row) for row, test in zip(one.rows, one.is_test, strict=True) if test == of}
            for of in (0, 1)
        ]
        assert not keys[0] & keys[1]


def test_groups_are_wholly_in_the_test_or_in_the_training_rows():
    groups = [f"font{i // 3}" for i in range(99)]
    is_test = split_groups(groups, "letters")
    assert 20 <= is_test.sum() <= 33
    assert not {g for g, test in zip(groups, is_test, strict=True) if test} & {
        g for g, test in zip(groups, is_test, strict=True) if not test
    }


def test_equal_rows_are_kept_once():
    rows = [np.zeros(3), np.ones(3), np.zeros(3), np.zeros((1, 3))]
    kept, targets = distinct(rows, ["a", "b", "c", "d"])
    assert targets == ["a", "b", "d"]
    assert [row.shape for row in kept] == [(3,), (3,), (1, 3)]


def test_a_class_has_at_most_so_many_rows_and_no_row_twice():
    rows, targets = each_class([(f"text {i % 7}", "ab"[i % 7 % 2]) for i in range(21)], 3)
    assert len(set(rows)) == len(rows) == 6
    assert sorted(targets) == ["a"] * 3 + ["b"] * 3
