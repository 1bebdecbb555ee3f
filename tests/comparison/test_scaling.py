"""Fits of power laws."""

from types import SimpleNamespace

import numpy as np
import pytest

from seqkit.comparison.scaling import _sentence, comparisons, fit_power_law, scale, with_intervals
from seqkit.errors import UsageError
from seqkit.report.comparison import write_comparison

SIZES = [1e4, 3e4, 1e5, 3e5, 1e6]


@pytest.mark.parametrize(("a", "alpha", "c"), [(30.0, 0.3, 1.2), (400.0, 0.5, 0.1), (5.0, 0.1, 0.5)])
def test_a_planted_law_is_found(a, alpha, c):
    found = fit_power_law(SIZES, [a * x**-alpha + c for x in SIZES])
    assert found.at(np.array(SIZES)) == pytest.approx([a * x**-alpha + c for x in SIZES], rel=1e-3)
    assert found.alpha == pytest.approx(alpha, rel=0.05)
    assert found.c == pytest.approx(c, rel=0.1)


def test_the_interval_holds_the_planted_exponent_and_the_curve_its_band():
    rng = np.random.default_rng(0)
    points = [
        {"x": x, "loss": (30 * x**-0.3 + 1.2) * (1 + 0.002 * rng.normal()), "seed": seed, "name": str(x)}
        for x in SIZES
        for seed in range(3)
    ]
    fit = with_intervals(points)
    low, high = fit["intervals"]["alpha"]
    assert low <= 0.3 <= high
    assert all(low <= high for _, _, low, high in fit["curve"])
    assert fit["note"] is None


def test_what_a_fit_cannot_say_is_said():
    points = [{"x": x, "loss": 30 * x**-0.3, "seed": 1, "name": ""} for x in SIZES[:3]]
    fit = {"variable": "parameters", **with_intervals(points)}
    note = fit["note"]
    assert fit["intervals"] is None
    assert {len(row) for row in fit["curve"]} == {2}
    assert _sentence(fit).endswith("Three points determine it exactly, so nothing tests this law.")
    assert "Three sizes determine" in note
    assert "one run for each size" in note
    assert "No floor is visible" in note


def test_too_few_sizes_are_refused():
    with pytest.raises(ValueError, match="2 sizes"):
        fit_power_law([1.0, 2.0, 2.0], [1.0, 0.9, 0.9])
    with pytest.raises(UsageError, match="--sizes"):
        comparisons({"recipe": "text/char-lm"}, [8, 16], [])
    with pytest.raises(UsageError, match="--data-sizes"):
        comparisons({"recipe": "text/char-lm"}, [8, 16, 32], [0.5, 1.0])


def test_a_scaling_study_is_written_with_the_minutes_of_all_its_runs(tmp_path, monkeypatch):
    def trained(settings, folder, *, jobs):
        widths, shares = settings.vary["width"], settings.vary.get("data.train_share", ["1"])
        sizes = [(int(width), float(share)) for width in widths for share in shares]
        candidates = []
        for width, share in sizes:
            one = {"error": None, "seed": 1, "train_tokens": 1000 * share, "metrics": {"loss": 1 + 1 / (width * share)}}
            candidates.append({"name": f"{width} {share}", "parameters": 100 * width, "runs": [one]})
        rest = {"failures": [], "unmatched": [], "versions": {}, "machine": {}, "started": "2026-11-22T00:30:00"}
        return SimpleNamespace(to_json=lambda: {"candidates": candidates, "run_minutes": 2.5, **rest})

    monkeypatch.setattr("seqkit.comparison.scaling.make_plan", lambda settings: settings)
    monkeypatch.setattr("seqkit.comparison.scaling.compare", trained)
    results = scale({"recipe": "text/char-lm"}, [8, 16, 32, 64], [0.25, 0.5, 1.0], tmp_path)
    assert results["run_minutes"] == 5
    assert [fit["variable"] for fit in results["fits"]] == ["parameters", "training tokens"]
    write_comparison(tmp_path)
    assert "64" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len((tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()) == 1 + 4 + 3
