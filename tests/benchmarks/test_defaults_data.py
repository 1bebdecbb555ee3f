"""The data sets of `defaults.py`: their draw, and what keeps a test row out of training. Nothing is fetched."""

import csv

import numpy as np
import pytest

from tests.benchmarks import defaults_draw
from tests.benchmarks.defaults_data import DRAWN, cases, draw, packages
from tests.benchmarks.defaults_data.case import Case, distinct, each_class, row_key, split_groups
from tests.benchmarks.defaults_draw import FEW_SEEDS, interval, result

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


def test_the_drawn_sets_are_those_of_the_rule():
    assert sorted(DRAWN) == sorted(draw.drawn())
    modalities = [name.split("/")[0] for name in DRAWN]
    assert {name: modalities.count(name) for name in draw.QUOTAS} == draw.QUOTAS
    assert len(DRAWN) >= 24
    assert min(draw.QUOTAS.values()) >= 2
    assert draw.QUOTAS["table"] <= len(DRAWN) / 3


def test_no_drawn_set_was_in_another_half():
    assert not DRAWN.keys() & (cases("tune").keys() | cases("judge").keys())


def test_equal_rows_and_rare_classes_go_and_at_most_2000_rows_stay():
    targets = ["often"] * 3_000 + ["rare"] * (draw.MIN_CLASS_ROWS - 1) + ["other"] * 1_500
    keys = [i // 2 for i in range(3_000)] + list(range(5_000, 6_509))
    rows = draw.kept("a set", keys, targets)
    assert len(rows) == draw.MAX_ROWS
    assert {targets[i] for i in rows} == {"often", "other"}
    assert all(i % 2 == 0 for i in rows if targets[i] == "often")
    assert rows == draw.kept("a set", keys, targets) != draw.kept("another", keys, targets)


def test_a_class_that_the_cut_makes_rare_goes():
    targets = ["often"] * 20_000 + ["seldom"] * draw.MIN_CLASS_ROWS
    assert {targets[i] for i in draw.kept("a set", range(len(targets)), targets)} == {"often"}


@pytest.mark.parametrize(("num_rows", "wanted"), [(60, 40), (161, 40), (400, 100)])
def test_a_quarter_and_at_least_40_rows_are_for_the_test(num_rows, wanted):
    rows = list(range(7, 7 + num_rows))
    assert draw.is_test("a set", rows).sum() == wanted
    groups = [i // 5 for i in range(num_rows)]
    is_test = draw.is_test("a set", rows, groups)
    assert wanted <= is_test.sum() < wanted + 5
    assert not {g for g, test in zip(groups, is_test) if test} & {
        g for g, test in zip(groups, is_test) if not test
    }


def test_an_interval_is_wider_if_rows_of_a_group_agree():
    random = np.random.default_rng(0)
    differences = np.repeat(random.normal(size=40), 5)
    alone = interval(differences, np.arange(200))
    together = interval(differences, np.arange(200) // 5)
    spread = np.array([together[1] - together[0], alone[1] - alone[0]])
    assert 2.0 < spread[0] / spread[1] < 2.5  # the root of 5
    np.testing.assert_allclose(np.mean([alone, together], axis=1), differences.mean())


def test_a_set_is_done_with_the_seeds_it_gets_and_its_best_rival_decides():
    rivals = {"name": "s", "rows": 9, "methods": {"low": [0, 0, 1], "high": [1, 1, 1]}}
    lines = [{**rivals, "groups": list("abc")}]
    assert result("s", lines, 0) is None
    for seed in range(1, FEW_SEEDS + 1):
        assert result("s", lines, 0) is None
        scores = [0, 0, 0 if seed == 1 else 0.5]
        lines.append({"seed": seed, "seconds": 99.0, "steps": 300, "scores": scores})
    row = result("s", lines, 0)
    assert row.by == "high"
    assert row.default == pytest.approx(100 / 9)
    assert row.verdict == "worse"
    for line in lines[1:]:
        line["seconds"] = 9.0
    assert result("s", lines, 0) is None  # a quick set gets more seeds


def test_a_bench_goes_on_where_it_was_stopped_and_keeps_causes(tmp_path, monkeypatch):
    seen: list[int] = []

    def default_answers(case, seed, words):
        seen.append(seed)
        if seed == 2 and seen.count(2) == 1:
            raise KeyboardInterrupt
        return np.array(["a", "b"]), {"steps": 5}, 99.0

    rows, is_test = ["x"] * 4, np.array([False, False, True, True])
    case = Case("text", rows, ["a", "b", "a", "b"], is_test, lambda folder: [])
    monkeypatch.setitem(DRAWN, "text/s", lambda: case)
    monkeypatch.setattr(defaults_draw, "default_answers", default_answers)
    monkeypatch.setattr(defaults_draw, "rival_scores", lambda name, case: {"m": [1.0, 0.0]})
    with pytest.raises(KeyboardInterrupt):
        defaults_draw.run(["text/s"], 0, tmp_path)
    defaults_draw.run(["text/s"], 0, tmp_path)
    assert seen == [1, 2, 2, 3]
    defaults_draw.run(["text/s"], 0, tmp_path)
    assert len(seen) == 4
    defaults_draw.write(["text/s"], 0, tmp_path)
    path = tmp_path / "results.csv"
    path.write_text(path.read_text().rstrip("\n") + "a hard set\n")
    defaults_draw.write(["text/s"], 0, tmp_path)
    (row,) = csv.DictReader(path.read_text().splitlines())
    assert row["cause"] == "a hard set"
    assert row["default"] == "100.0"
    assert row["rival"] == "50.0"
