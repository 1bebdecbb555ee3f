"""The data sets of `defaults.py`: their draw, and what keeps a test row out of training. Nothing is fetched."""

import numpy as np
import pytest

from tests.benchmarks.defaults_data import cases, halves, packages
from tests.benchmarks.defaults_data.case import distinct, each_class, row_key, split_groups

GENERATED = ["image/shapes", "audio/chords", "nodes/hubs", "nodes/regions", "series/cylinder-bell-funnel"]
JUDGES = {
    1: """
        table/wine table/weather table/breast-cancer table/mpg text/languages text/languages-160 image/icons
        image/mnist-1000 audio/waveforms molecule/solubility nodes/unlike-neighbours nodes/blocks series/osu-leaf
        series/vowels series/gunpoint forecast/sunspots forecast/el-nino
    """,
    2: """
        table/orange-juice table/credit table/attrition text/glosses text/provinces text/artworks image/emoji
        image/shapes audio/chords audio/vowels molecule/drugs molecule/decades nodes/hubs nodes/words
        series/appliances series/plugs series/transients forecast/nottingham forecast/casualties
        forecast/electricity
    """,
}
"""A set that is added to a draw, or renamed, would draw its halves anew: add it to a draw of its own."""


@pytest.mark.parametrize("draw", [1, 2])
def test_the_judging_half_is_the_one_that_was_drawn(draw):
    tune, judge = halves(draw)
    assert judge == JUDGES[draw].split()
    assert sorted(tune + judge) == sorted(cases(draw))
    assert {name.split("/")[0] for name in tune} == {name.split("/")[0] for name in judge}


def test_no_set_is_in_two_draws():
    assert len(cases()) == len(cases(1)) + len(cases(2))


def test_naming_the_sets_fetches_nothing(monkeypatch):
    def fetch(*words, **keys):
        raise AssertionError(words)

    monkeypatch.setattr(packages.subprocess, "run", fetch)
    monkeypatch.setattr(packages.zipfile, "ZipFile", fetch)
    assert len(halves(2)[1]) >= 13


def test_a_package_with_other_content_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "KEPT", tmp_path)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / f"tslearn-{packages.WHEELS['tslearn'][0]}-py3-none-any.whl").write_bytes(b"other")
    with pytest.raises(ValueError, match="SHA-256"):
        packages.wheel.__wrapped__("tslearn")


@pytest.mark.parametrize("name", GENERATED)
def test_generated_sets_are_reproduced_and_no_test_row_is_a_training_row(name):
    one, other = cases()[name](), cases()[name]()
    for a, b in zip(one.rows, other.rows, strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.targets == other.targets
    assert 0 < one.is_test.sum() < len(one.targets)
    if one.kind != "nodes":  # whose rows are one graph
        keys = [{row_key(row) for row, test in zip(one.rows, one.is_test, strict=True) if test == of} for of in (0, 1)]
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
