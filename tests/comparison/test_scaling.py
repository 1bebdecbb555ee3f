"""Fits of power laws, and `seqkit scale`."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from seqkit.cli.main import main
from seqkit.comparison.scaling import fit_power_law
from seqkit.runs.summary import RunRow

SIZES = [1e4, 3e4, 1e5, 3e5, 1e6]


@pytest.mark.parametrize(("a", "b"), [(30.0, 0.3), (400.0, 0.5), (5.0, 0.1)])
def test_a_planted_law_is_found(a, b):
    law = fit_power_law(SIZES, [a * x**-b for x in SIZES])
    assert (law.a, law.b, *law.interval) == pytest.approx((a, b, b, b))
    assert law.at(2e5) == pytest.approx(a * 2e5**-b)


def test_nineteen_of_twenty_intervals_hold_the_exponent():
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        low, high = fit_power_law(
            SIZES, [30 * x**-0.3 * np.exp(0.02 * rng.normal()) for x in SIZES]
        ).interval
        held += low <= 0.3 <= high
    assert 0.92 <= held / 400 <= 0.98


def test_what_determines_no_law_is_refused():
    with pytest.raises(ValueError, match="2 sizes"):
        fit_power_law([1.0, 2.0, 2.0], [1.0, 0.9, 0.9])
    with pytest.raises(ValueError, match="above 0"):
        fit_power_law([1.0, 2.0, 3.0], [1.0, 0.9, 0.0])


@pytest.fixture
def runs(tmp_path, monkeypatch):
    rows = []
    for recipe, state, size in (
        *(("a", "finished", size) for size in (100, 1000, 10_000)),
        ("a", "diverged", 10),
    ):
        summary = {
            "num_parameters": size,
            "metrics": {"loss": 3 * size**-0.25},
            "data_sha256": {"test": "x"},
        }
        rows.append(RunRow(Path(str(size)), recipe, "", datetime(2026, 1, 1), state, summary))
    monkeypatch.setattr("seqkit.runs.summary.find_runs", lambda folder: iter(rows))
    return rows


def test_scale_prints_the_law_of_the_finished_runs_and_draws_it(runs, tmp_path, capsys):
    assert main(["scale", str(tmp_path)]) == 0
    assert "3 runs of 3 sizes: loss = 3 · N^−0.250" in capsys.readouterr().out
    assert (tmp_path / "scaling" / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_scale_refuses_runs_of_several_recipes(runs, tmp_path, capsys):
    runs[0] = replace(runs[0], recipe="b")
    assert main(["scale", str(tmp_path)]) == 2
    assert "of a, b" in capsys.readouterr().err
