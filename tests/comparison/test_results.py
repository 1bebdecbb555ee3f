"""Results of a comparison, gathered from the results of its cells: the value of each seed, and who is better."""

import csv

import numpy as np
import pytest
from published_scores import differences, interval, units

from seqkit.comparison.answers import better
from seqkit.comparison.candidates import Candidate
from seqkit.comparison.plan import Plan
from seqkit.comparison.results import _by_length, differences_of, gather, run_row, write_results, write_sentences
from seqkit.comparison.scores import METRICS
from seqkit.comparison.settings import Settings
from seqkit.comparison.statistics import Scores
from seqkit.config import complete
from seqkit.files import read_mapping
from seqkit.report.comparison import comparison_markdown, comparison_sections
from seqkit.report.latex import latex_table


def ended(*numerators):
    many = list(numerators) * 10
    return ended_with({"numerator": many, "denominator": [2.0] * len(many), "tokens": [7] * len(many)})


def ended_with(scores):
    summary = {"metrics": {}, "steps": 3, "tokens_seen": 5, "wall_seconds": 0.5}
    return {"summary": summary, "curve": [], "scores": scores}


def gathered(metric, cells):
    """Results of two candidates, of which LSTM is the reference. cells: by id."""
    config = complete("image/digits", "debug")
    candidates = [Candidate("LSTM", config), Candidate("GRU", config)]
    settings = Settings(recipe="image/digits", backbones=["LSTM", "GRU"], lr_trials=0, seeds=3, measure=False)
    plan = Plan(settings, candidates, {"LSTM": 40, "GRU": 40}, metric=metric, generates=False)
    assert set(cells) == set(plan.steps(cells))
    return gather(plan, cells, started="")


def of_both(**cells):
    return {f"{name}/seed-{seed}": cells[name](seed) for name in ("LSTM", "GRU") for seed in (1, 2, 3)}


def test_trial_runs_and_candidates_that_are_no_better_than_a_constant_are_named():
    def of(high, steps):
        def cell(seed):
            one = ended(high, high + seed / 100)
            one["summary"] |= {"steps": steps, "baseline": {"loss": 1.25}}
            return one

        return cell

    results = gathered("loss", of_both(LSTM=of(3.0, 49), GRU=of(2.0, 49)))
    assert [row["constant"] for row in results["candidates"]] == [1.25, 1.25]
    trial, worse = results["answers"][0], results["answers"][-1]
    assert trial.startswith("These are trial runs, with 49 optimizer steps")
    assert worse == "LSTM is no better than the best constant prediction (1.2500 nats)."
    assert not results["is_settled"]
    assert "The best constant prediction has 1.2500 nats." in comparison_markdown(results, comparison_sections(results))
    unknown = gathered("loss", of_both(LSTM=lambda _: ended(3.0), GRU=lambda _: ended(2.0)))
    assert not [one for one in unknown["answers"] if "constant" in one]


def test_the_weights_are_those_that_the_runs_kept():
    def kept(weights):
        one = ended(1.0)
        one["summary"] |= {"weights": weights}
        return one

    best = of_both(LSTM=lambda seed: kept(f"best, of step {seed}"), GRU=lambda _: kept("best, of step 9"))
    assert gathered("accuracy", best)["weights"] == "best"
    assert gathered("accuracy", of_both(LSTM=lambda _: kept("last"), GRU=lambda _: kept("last")))["weights"] == "last"
    assert gathered("accuracy", best | {"GRU/seed-1": kept("last")})["weights"] is None


def test_budgets_that_are_not_equal_are_not_said_to_be():
    cells = of_both(LSTM=lambda seed: ended(1.9, 1.8 + seed / 100), GRU=lambda seed: ended(0.2, 0.1 + seed / 100))
    results = gathered("accuracy", cells)
    for row, (parameters, gap) in zip(results["candidates"], ((1000, 0.0), (1136, 0.136))):
        row |= {"parameters": parameters, "budget_gap": gap}
    write_sentences(results)
    assert results["answer"].startswith("LSTM is better than GRU, with 1,000 and 1,136 parameters. ")
    assert "GRU is 13.6 % above the budget" in results["answer"]
    assert "GRU is 13.6 \\% above the budget" in latex_table(results)


@pytest.mark.parametrize(("metric", "best", "worst"), [("accuracy", "LSTM", "GRU"), ("loss", "GRU", "LSTM")])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_better_one_has_the_higher_accuracy_or_the_lower_loss(metric, best, worst, swapped):
    high, low = (lambda seed: ended(1.9, 1.8 + seed / 100)), (lambda seed: ended(0.2, 0.1 + seed / 100))
    results = gathered(metric, of_both(LSTM=low, GRU=high) if swapped else of_both(LSTM=high, GRU=low))
    best, worst = (worst, best) if swapped else (best, worst)
    (pair,) = results["differences"]
    assert (pair["a"], pair["b"], pair["better"]) == ("LSTM", "GRU", best)
    assert (pair["difference"] < 0) == swapped
    assert results["answer"].startswith(
        f"{best} is better than {worst} at an equal number of parameters. Its mean test "
    )
    low_end, high_end = sorted(map(abs, pair["interval"]))
    factor, digits = (100, 2) if metric == "accuracy" else (1, 4)
    interval = f"{low_end * factor:.{digits}f} to {high_end * factor:.{digits}f}"
    assert (
        f"{'higher' if metric == 'accuracy' else 'lower'} (95 % confidence interval {interval}; p" in results["answer"]
    )


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
    ahead = "GRU" if swapped != lower_is_better else "LSTM"
    assert results["answer"].startswith(f"{ahead} and ")
    assert (
        f"do not differ significantly at an equal number of parameters. The mean test {metric} of {ahead} is "
        in (results["answer"])
    )
    assert f"(95 % confidence interval {interval}; p = 0." in results["answer"]


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
    assert [(row["candidate"], row["seed"], f"{float(row['value'] or 'nan'):.3f}") for row in rows[:4]] == [
        ("LSTM", "1", "nan"), ("LSTM", "2", "0.100"), ("LSTM", "3", "0.150"), ("GRU", "1", "0.375"),
    ]  # fmt: skip
    assert [row["error"] for row in rows[:2]] == ["diverged", ""]


def test_flops_of_a_run_and_of_each_point_are_those_of_its_steps():
    result = {**ended(1.0), "curve": [{"step": 2, "train_loss": 0.7}, {"step": 3, "train_loss": 0.5}]}
    row = run_row(1, "runs/a", result, 11)
    assert row["flops"] == 3 * 11
    assert row["curve"] == [{"step": 2, "train_loss": 0.7, "flops": 22}, {"step": 3, "train_loss": 0.5, "flops": 33}]
    unknown = run_row(1, "runs/a", result, None)
    assert [unknown["flops"], *(point["flops"] for point in unknown["curve"])] == [None] * 3


# ── published scores ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reader_with_numpy_and_scipy_gets_every_interval_again(tmp_path):
    rng = np.random.default_rng(0)

    def with_groups(_seed):
        numerator, denominator = rng.gamma(2, size=60).tolist(), rng.integers(1, 9, 60).tolist()
        groups = np.repeat(range(12), 5).tolist()
        return ended_with({"numerator": numerator, "denominator": denominator, "tokens": [7] * 60, "groups": groups})

    results = gathered("loss", of_both(LSTM=with_groups, GRU=with_groups))
    write_results(tmp_path, results)
    with np.load(tmp_path / "scores.npz", allow_pickle=False) as published:
        scores = dict(published)
    assert scores["LSTM/seeds"].tolist() == [1, 2, 3]
    for row in read_mapping(tmp_path / "results.json")["candidates"]:
        assert row["interval"] == pytest.approx(interval(units(scores, row["name"])))
    (pair,) = read_mapping(tmp_path / "results.json")["differences"]
    tables = {name: units(scores, name) for name in ("LSTM", "GRU")}
    assert pair["interval"] == pytest.approx(differences(tables, proportion=False)["LSTM", "GRU"][2])
    assert pair["pairs"] == "12 groups of 60 examples"


# ── several pairs, few seeds ─────────────────────────────────────────────────────────────────────────────────────────


def page(shifts, seeds):
    """Results of candidates whose losses lie so far apart, with as many seeds."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(1, 80))
    tables = {name: common + shift + 0.3 * rng.normal(size=(seeds, 80)) for name, shift in shifts.items()}
    scores = {
        name: Scores.of([(seed, row, np.ones(80)) for seed, row in enumerate(table)]) for name, table in tables.items()
    }
    runs = [{"value": 1.0, "error": None} for _ in range(seeds)]
    rows = [{"name": name, "depth": 2, "runs": list(runs)} for name in shifts]
    return {"candidates": rows, "differences": differences_of(scores, METRICS["loss"])}


def verdicts(results, **settings):
    results["settings"] = settings
    return {(one["a"], one["b"]): better(one, results, METRICS["loss"]) for one in results["differences"]}


def test_better_is_earned_by_the_corrected_p_value_and_of_one_seed_by_nothing():
    shifts = {"A": 0.0, "B": 0.0, "C": 5.0}
    assert verdicts(page(shifts, 5)) == {("A", "B"): None, ("A", "C"): "A", ("B", "C"): "B"}
    assert set(verdicts(page(shifts, 1)).values()) == {None}
    close = page({"A": 0.0, "B": 0.1, "C": 0.1}, 3)
    found = verdicts(close)
    for pair in close["differences"]:
        assert pair["p_holm"] >= pair["p"]
        assert (found[pair["a"], pair["b"]] is not None) == (pair["p_holm"] < 0.05)


def test_a_verdict_that_a_failed_seed_or_an_untried_setting_could_overturn_is_not_given():
    """Seeds that failed are those of the better; a setting at the end of what was tried is one of the worse."""

    def changed(name, **more):
        results = page({"A": 0.0, "C": 5.0}, 5)
        next(row for row in results["candidates"] if row["name"] == name).update(more)
        return verdicts(results)["A", "C"]

    failed = [{"value": 1.0, "error": None}] * 4 + [{"value": None, "error": "it diverged"}]
    rates = {"chosen": {"lr": 0.1}, "trials": [{"values": {"lr": lr}, "loss": lr} for lr in (0.1, 0.3)]}
    depths = {"depth_trials": [{"depth": depth, "loss": 1.0} for depth in (2, 4)]}
    assert [changed("A", runs=failed), changed("C", runs=failed)] == [None, "A"]
    assert [changed("A", **rates), changed("C", **rates)] == ["A", None]
    assert [changed("A", **depths), changed("C", **depths)] == ["A", None]
    assert changed("C", depth=1, depth_trials=[{"depth": depth, "loss": 1.0} for depth in (1, 2)]) == "A"


def test_a_difference_that_does_not_count_makes_nothing_better():
    common = np.random.default_rng(0).normal(size=(3, 80))
    for gap, expected in ((0.0001, None), (0.0003, "A")):  # shown with four digits
        rows = page({"A": 0.0, "B": 0.0}, 3)["candidates"]
        scores = {
            name: Scores.of([(i, row, np.ones(80)) for i, row in enumerate(np.repeat(common[:1], 3, 0) + shift)])
            for name, shift in (("A", 0.0), ("B", gap))
        }
        results = {"candidates": rows, "differences": differences_of(scores, METRICS["loss"])}
        assert verdicts(results)["A", "B"] == expected
        assert verdicts(results, least=0.001)["A", "B"] is None


def test_seeds_that_failed_are_named_in_the_answer():
    def cell(seed):
        return {"error": "the loss is not finite"} if seed == 3 else ended(0.2, 0.1 + seed / 100)

    results = gathered("loss", of_both(LSTM=lambda seed: ended(1.9, 1.8 + seed / 100), GRU=cell))
    assert results["answer"].startswith("GRU is not shown to be better than LSTM")
    reason = "1 of 3 seeds of GRU failed, so its mean leaves out its worst runs."
    assert f"This is not settled: {reason}" in results["answers"]
    assert not results["is_settled"]


# ── shorter trainings ────────────────────────────────────────────────────────────────────────────────────────────────


def test_shorter_runs_are_points_of_a_curve_with_verdicts_of_their_own(tmp_path):
    rng = np.random.default_rng(0)

    def run(loss, steps):
        numerator = (loss + 0.1 * rng.normal(size=50)).tolist()
        found = ended_with({"numerator": numerator, "denominator": [1.0] * 50, "tokens": [7] * 50})
        return {**found, "summary": {**found["summary"], "steps": steps}}

    config = complete("image/digits", "debug")
    candidates = [Candidate("LSTM", config, flops=7), Candidate("GRU", config, flops=14)]
    settings = Settings(
        recipe="image/digits", backbones=["LSTM", "GRU"], lr_trials=0, seeds=3, measure=False, run_shares=[0.25, 0.5]
    )
    plan = Plan(settings, candidates, {"LSTM": 40, "GRU": 40}, metric="loss", generates=False)
    losses = {
        ("LSTM", 10): 3.0,
        ("GRU", 10): 4.0,
        ("LSTM", 20): 2.0,
        ("GRU", 20): 2.0,
        ("LSTM", 40): 1.0,
        ("GRU", 40): 0.5,
    }
    cells = {}
    for step in plan.steps({}).values():
        cells[step.id] = run(losses[step.candidate, round(40 * step.share)], round(40 * step.share))
    results = gather(plan, cells, started="")
    for row in results["candidates"]:
        assert [(point["steps"], point["seeds"]) for point in row["by_steps"]] == [(n, [1, 2, 3]) for n in (10, 20, 40)]
        expected = [losses[row["name"], n] for n in (10, 20, 40)]
        assert [point["mean"] for point in row["by_steps"]] == pytest.approx(expected, abs=0.05)
        assert row["by_steps"][-1]["mean"] == row["mean"]
        assert row["by_steps"][0]["flops"] == 10 * row["training_flops"]
    assert [(one["steps"], one["better"]) for one in results["differences_by_steps"]] == [(10, "LSTM"), (20, None)]
    (crossing,) = results["crossovers"]
    assert (crossing["first"], crossing["then"]) == ("LSTM", "GRU")
    assert crossing["steps"] == pytest.approx(20, rel=0.1)
    (rate,) = results["exchange_rates"]
    assert (rate["worse"], rate["better"], rate["by_unit"]) == ("LSTM", "GRU", {"FLOPs": 0.5})
    assert 1 < rate["low"] <= rate["steps"] <= rate["high"] < 2
    write_results(tmp_path, results)
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["steps"] for line in lines if line["candidate"] == "GRU"] == ["40"] * 3 + ["10"] * 3 + ["20"] * 3
    with np.load(tmp_path / "scores.npz", allow_pickle=False) as published:
        shorter = published["GRU after 10 steps/numerator"]
    assert shorter.mean() == pytest.approx(results["candidates"][1]["by_steps"][0]["mean"])


def test_a_candidate_whose_whole_runs_failed_has_no_curve_and_lends_no_shorter_run_its_place():
    config = complete("image/digits", "debug")
    candidates = [Candidate("LSTM", config), Candidate("GRU", config)]
    settings = Settings(
        recipe="image/digits", backbones=["LSTM", "GRU"], lr_trials=0, seeds=2, measure=False, run_shares=[0.25, 0.5]
    )
    plan = Plan(settings, candidates, {"LSTM": 40, "GRU": 40}, metric="loss", generates=False)
    cells = {step.id: ended(1.0, 2.0) for step in plan.steps({}).values()}
    cells |= {f"GRU/seed-{seed}": {"error": "diverged"} for seed in (1, 2)}
    results = gather(plan, cells, started="")
    lstm, gru = results["candidates"]
    assert (len(lstm["by_steps"]), gru["by_steps"]) == (3, [])
    assert not any(name.startswith("GRU") for name in results["scores"])
    assert results["differences_by_steps"] == results["exchange_rates"] == results["crossovers"] == []


def test_lengths_of_few_examples_share_a_point():
    tokens = [3] * 25 + [4] * 5 + [5] * 16 + [9] * 2
    scores = Scores.of([(1, [float(n == 3) for n in tokens], [1.0] * len(tokens))])
    points = _by_length(scores, tokens, METRICS["accuracy"])
    assert [(point["tokens"], point["lengths"], point["examples"], point["value"]) for point in points] == [
        (3, [3, 3], 25, 1.0),
        (pytest.approx((5 * 4 + 16 * 5 + 2 * 9) / 23), [4, 9], 23, 0.0),
    ]
    assert _by_length(scores.examples(np.arange(20, 48)), tokens[20:], METRICS["accuracy"]) == []
