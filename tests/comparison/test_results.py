"""Results of a comparison, gathered from the results of its cells: the value of each seed, and who is better."""

import csv

import pytest

from seqkit.comparison.candidates import Candidate
from seqkit.comparison.plan import Plan
from seqkit.comparison.results import gather, write_results
from seqkit.comparison.settings import Settings
from seqkit.config import complete


def ended(*numerators):
    summary = {"metrics": {}, "steps": 3, "tokens_seen": 5, "wall_seconds": 0.5}
    scores = {"numerator": list(numerators), "denominator": [2.0] * len(numerators), "tokens": [7] * len(numerators)}
    return {"summary": summary, "curve": [], "scores": scores}


def gathered(metric, cells):
    """Results of two candidates, of which LSTM is the reference. cells: by id."""
    config = complete("image/digits", "debug")
    candidates = [Candidate("LSTM", config), Candidate("GRU", config)]
    settings = Settings(recipe="image/digits", backbones=["LSTM", "GRU"], lr_trials=0, seeds=3, measure=False)
    plan = Plan(settings, candidates, {"LSTM": 40, "GRU": 40}, metric=metric, generates=False)
    assert set(cells) == set(plan.steps)
    return gather(plan, cells, started="")


def of_both(**cells):
    return {f"{name}/seed-{seed}": cells[name](seed) for name in ("LSTM", "GRU") for seed in (1, 2, 3)}


@pytest.mark.parametrize(("metric", "best", "worst"), [("accuracy", "LSTM", "GRU"), ("loss", "GRU", "LSTM")])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_better_one_has_the_higher_accuracy_or_the_lower_loss(metric, best, worst, swapped):
    high, low = (lambda seed: ended(1.9, 1.8 + seed / 100)), (lambda seed: ended(0.2, 0.1 + seed / 100))
    results = gathered(metric, of_both(LSTM=low, GRU=high) if swapped else of_both(LSTM=high, GRU=low))
    best, worst = (worst, best) if swapped else (best, worst)
    (pair,) = results["differences"]
    assert (pair["a"], pair["b"], pair["better"]) == ("LSTM", "GRU", best)
    assert (pair["difference"] < 0) == swapped
    assert results["answer"].startswith(f"{best} is better than {worst} by ")
    low_end, high_end = sorted(map(abs, pair["interval"]))
    factor, digits = (100, 2) if metric == "accuracy" else (1, 4)
    assert f"(95 % interval {low_end * factor:.{digits}f} to {high_end * factor:.{digits}f})" in results["answer"]


@pytest.mark.parametrize(("metric", "lower_is_better"), [("accuracy", False), ("loss", True)])
@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_that_are_not_told_apart_the_one_with_the_better_mean_is_ahead(metric, lower_is_better, swapped):
    high, low = (lambda seed: ended(1.9, 0.1 * seed)), (lambda seed: ended(0.1, 1.5))
    results = gathered(metric, of_both(LSTM=low, GRU=high) if swapped else of_both(LSTM=high, GRU=low))
    (pair,) = results["differences"]
    low_end, high_end = pair["interval"]
    assert low_end < 0 < high_end
    assert pair["better"] is None
    in_favour = sorted(-x if swapped else x for x in (low_end, high_end))  # of the one that is ahead
    factor, digits = (100, 2) if metric == "accuracy" else (1, 4)
    interval = " to ".join(f"{x * factor:.{digits}f}" for x in in_favour).replace("-", "−")
    assert f": {'GRU' if swapped != lower_is_better else 'LSTM'} is ahead by " in results["answer"]
    assert f"(95 % interval {interval})" in results["answer"]


def test_each_seed_has_its_own_value_and_one_that_failed_has_none(tmp_path):
    """The values stand by seed, not by place: the first seed failed."""
    cells = of_both(LSTM=lambda seed: ended(seed / 10, seed / 10), GRU=lambda seed: ended(1.0, 0.5))
    cells["LSTM/seed-1"] = {"error": "diverged"}
    results = gathered("loss", cells)
    first, second = results["candidates"]
    assert [run["seed"] for run in first["runs"]] == [1, 2, 3]
    assert [run["value"] for run in first["runs"]] == [None, pytest.approx(0.1), pytest.approx(0.15)]
    assert [run["folder"] for run in first["runs"]] == ["runs/LSTM/seed-1", "runs/LSTM/seed-2", "runs/LSTM/seed-3"]
    assert first["mean"] == pytest.approx(0.125)
    assert [run["value"] for run in second["runs"]] == pytest.approx([0.375] * 3)
    assert [failure["what"] for failure in results["failures"]] == ["LSTM/seed-1"]
    write_results(tmp_path, results)
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row["candidate"], row["seed"], row["value"][:5]) for row in rows[:4]] == [
        ("LSTM", "1", ""), ("LSTM", "2", "0.1"), ("LSTM", "3", "0.15"), ("GRU", "1", "0.375"),
    ]  # fmt: skip
    assert [row["error"] for row in rows[:2]] == ["diverged", ""]
