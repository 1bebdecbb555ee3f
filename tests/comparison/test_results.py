"""Results of a comparison from the results of its cells: the value of each seed, who is better, and what is said."""

from dataclasses import replace

import numpy as np
import pytest
from published_scores import differences, interval, units

from seqkit.comparison.candidates import Candidate, Size
from seqkit.comparison.cells import Ended
from seqkit.comparison.results import completed, read_results, summarise, write_results
from seqkit.comparison.scores import METRICS, ExampleScores
from seqkit.comparison.settings import Settings
from seqkit.comparison.stages import Plan, Trained, Tuned
from seqkit.comparison.statistics import Scores
from seqkit.comparison.types import CurvePoint, Results, Row, Run, Trial
from seqkit.comparison.unmatched import unmatched
from seqkit.comparison.verdicts import depth_at_edge, untrained, with_verdicts
from seqkit.config import complete, to_yaml
from seqkit.errors import DataError
from seqkit.files import write_json
from seqkit.report.comparison import comparison_markdown, pairs_table, ranking
from seqkit.report.sentences import answers

CONFIG = complete("image/digits", "debug", ["--data.limit=null"])
FAILED = Ended(error="diverged (see failed/error.txt)")


def ended(
    *numerators, steps=4000, seed=1, strong=None, baseline=None, groups=None, denominator=2.0
):
    many = list(numerators) * (10 if len(numerators) < 10 else 1)
    scores = ExampleScores(
        numerator=many, denominator=[denominator] * len(many), tokens=[7] * len(many), groups=groups
    )
    run = Run(seed=seed, folder="", steps=steps, tokens=5, seconds=0.5, baseline=baseline or {})
    return Ended(run=run, scores=scores, strong_baseline=strong)


def summarised(metric, cells):
    """Results and scores of two candidates, of which LSTM is the reference. cells: from name and seed."""
    settings = Settings(recipe="image/digits", backbones=["LSTM", "GRU"], lr_trials=0, seeds=3)
    both = [
        Candidate(name=name, config=CONFIG, num_steps=40, size=Size(parameters=10, flops=7))
        for name in ("LSTM", "GRU")
    ]
    runs = {}
    for one in both:
        found = {seed: cells(one.name, seed) for seed in (1, 2, 3)}
        runs[one.name] = {
            seed: replace(cell, run=cell.run and replace(cell.run, seed=seed))
            for seed, cell in found.items()
        }
    tuned = {one.name: Tuned({}, one.size, []) for one in both}
    trained = Trained(tuned, runs, {}, {one.name: CONFIG for one in both})
    return summarise(Plan(settings, both, METRICS[metric]), trained, started="2026-01-01T00:00:00")


def of(high, low, swapped=False, **changes):
    """Cells of which LSTM has the high scores, or GRU if they are swapped."""

    def cell(name, seed):
        value = high if (name == "LSTM") != swapped else low
        return ended(value, value - 0.1 + seed / 100, **changes)

    return cell


@pytest.mark.parametrize(
    ("metric", "best", "worst"), [("accuracy", "LSTM", "GRU"), ("loss", "GRU", "LSTM")]
)
@pytest.mark.parametrize("swapped", [False, True])
def test_the_better_one_has_the_higher_accuracy_or_the_lower_loss(metric, best, worst, swapped):
    results, _ = summarised(metric, of(1.9, 0.2, swapped))
    best, worst = (worst, best) if swapped else (best, worst)
    (pair,) = results.differences
    assert (pair.a, pair.b, pair.better) == ("LSTM", "GRU", best)
    assert (pair.difference < 0) == swapped
    answer = answers(results)
    assert answer.text.startswith(
        f"{best} is better than {worst} at an equal number of parameters. Its mean test "
    )
    low, high = sorted(map(abs, pair.interval))
    shown = f"{results.metric.number(low)} to {results.metric.number(high)}"
    side = "higher" if metric == "accuracy" else "lower"
    assert f"{side} (95 % confidence interval {shown}; p" in answer.text
    assert answer.is_settled


def test_each_seed_has_its_own_value_and_one_that_failed_has_none(tmp_path):
    """The values stand by seed, not by place: the first seed failed."""

    def cell(name, seed):
        return FAILED if (name, seed) == ("LSTM", 1) else ended(seed / 10, seed / 10)

    results, scores = summarised("loss", cell)
    first = results.candidates[0]
    assert [run.value for run in first.runs] == [None, pytest.approx(0.1), pytest.approx(0.15)]
    assert first.runs[0].error == FAILED.error
    assert first.mean == pytest.approx(0.125)
    write_results(tmp_path, results, scores)
    assert read_results(tmp_path / "results.json") == results
    (tmp_path / "results.json").write_text('{"kind": "comparison", "recipe": 3}', encoding="utf-8")
    with pytest.raises(DataError, match="recipe"):
        read_results(tmp_path / "results.json")
    write_json(tmp_path / "results.json", {"kind": "run"})
    with pytest.raises(DataError, match="'run'"):
        read_results(tmp_path / "results.json")


def test_a_seed_of_the_better_that_failed_is_named_and_settles_nothing():
    better = of(1.9, 0.2)

    def cell(name, seed):
        return FAILED if (name, seed) == ("GRU", 3) else better(name, seed)

    answer = answers(summarised("loss", cell)[0])
    assert answer.text.startswith("GRU is not shown to be better than LSTM")
    (doubt,) = answer.doubts
    assert (
        doubt
        == "This is not settled: 1 of 3 seeds of GRU failed, so its mean leaves out its worst runs."
    )


def test_baselines_stand_beside_the_candidates_with_what_they_were_fit_on():
    strong = {"name": "an SVM", "metrics": {"loss": 1.2}, "num_train": 1257}
    results, _ = summarised("loss", of(3.0, 2.0, strong=strong, baseline={"loss": 1.25}))
    assert (results.strong_baseline.value, results.candidates[0].constant) == (1.2, 1.25)
    told = answers(results).others
    assert (
        "Beside them stands the constant that is best in training, 1.2500 nats. LSTM is no better."
        in told
    )
    assert (
        "Beside them stands an SVM, fit on 1,257 examples, 1.2000 nats. LSTM is no better." in told
    )
    assert "fit on 1,257 examples" in comparison_markdown(results)
    other, _ = summarised("accuracy", of(3.0, 2.0, strong=strong))
    assert other.strong_baseline is None, "it has another metric"


def test_of_trial_runs_nothing_else_is_said():
    answer = answers(summarised("loss", of(3.0, 2.0, steps=49))[0])
    assert answer.text.startswith("These are trial runs, with 49 optimizer steps")
    assert (answer.doubts, answer.others, answer.is_settled) == ([], [], False)


def test_budgets_that_are_not_equal_are_not_said_to_be():
    results, _ = summarised("accuracy", of(1.9, 0.2))
    rows = [
        replace(row, parameters=number, budget_gap=gap)
        for row, number, gap in zip(results.candidates, (1000, 1136), (0.0, 0.136))
    ]
    text = answers(replace(results, candidates=rows)).text
    assert text.startswith("LSTM is better than GRU, with 1,000 and 1,136 parameters. ")
    assert "GRU is 13.6 % above the budget" in text


def test_a_reader_with_numpy_and_scipy_gets_every_interval_again(tmp_path):
    rng = np.random.default_rng(0)
    groups = np.repeat(range(12), 5).tolist()
    pairs = [(name, seed) for name in ("LSTM", "GRU") for seed in (1, 2, 3)]
    cells = {pair: ended(*rng.gamma(2, size=60), groups=groups) for pair in pairs}
    results, scores = summarised("loss", lambda name, seed: cells[name, seed])
    write_results(tmp_path, results, scores)
    with np.load(tmp_path / "scores.npz", allow_pickle=False) as published:
        arrays = dict(published)
    assert arrays["LSTM/seeds"].tolist() == [1, 2, 3]
    tables = {name: units(arrays, name) for name in ("LSTM", "GRU")}
    for row in results.candidates:
        assert row.interval == pytest.approx(interval(tables[row.name]))
    (pair,) = results.differences
    assert pair.interval == pytest.approx(differences(tables, proportion=False)["LSTM", "GRU"][2])
    assert pair.pairs == "12 groups of 60 examples"


# ── several pairs, few seeds ─────────────────────────────────────────────────────────────────────────────────────────


def page(shifts, seeds, noise=0.3, **settings):
    """Results of candidates whose losses lie so far apart, with as many seeds."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(1, 80))
    scores, rows = {}, []
    for name, shift in shifts.items():
        table = common + shift + noise * rng.normal(size=(seeds, 80))
        scores[name] = Scores.of([(seed, row, np.ones(80)) for seed, row in enumerate(table)])
        runs = [
            Run(seed=seed, folder="", value=1.0, steps=4000, tokens=9, seconds=1)
            for seed in range(seeds)
        ]
        rows.append(
            Row(name=name, parameters=1, config=to_yaml(CONFIG), runs=runs, depth=2, mean=1.0)
        )
    return completed(
        Results(recipe="", metric=METRICS["loss"], candidates=rows, settings=settings),
        scores,
    )


def verdicts(results):
    return {(one.a, one.b): one.better for one in results.differences}


def test_better_is_earned_by_the_corrected_p_value_and_of_one_seed_by_nothing():
    shifts = {"A": 0.0, "B": 0.0, "C": 5.0}
    assert verdicts(page(shifts, 5)) == {("A", "B"): None, ("A", "C"): "A", ("B", "C"): "B"}
    assert set(verdicts(page(shifts, 1)).values()) == {None}
    for pair in page({"A": 0.0, "B": 0.1, "C": 0.1}, 3).differences:
        assert pair.p_holm >= pair.p
        assert (pair.better is not None) == (pair.p_holm < 0.05)


def test_a_verdict_that_a_failed_seed_or_an_untried_rate_could_overturn_is_not_given():
    """Seeds that failed are those of the better; a rate at the end of what was tried is one of the worse."""
    results = page({"A": 0.0, "C": 5.0}, 5)

    def changed(name, **more):
        rows = [replace(row, **more) if row.name == name else row for row in results.candidates]
        return verdicts(with_verdicts(replace(results, candidates=rows)))["A", "C"]

    failed = [*results.candidates[0].runs[:4], Run(seed=9, folder="", error="it diverged")]
    trials = [Trial(values={"optimizer.lr": lr}, seed=1001, score=lr, loss=lr) for lr in (0.1, 0.3)]
    edge = {"chosen": {"optimizer.lr": 0.1}, "trials": trials}
    assert [changed("A", runs=failed), changed("C", runs=failed)] == [None, "A"]
    assert [changed("A", **edge), changed("C", **edge)] == ["A", None]


def test_a_difference_that_does_not_count_makes_nothing_better():
    for gap, expected in ((0.0001, None), (0.0003, "A")):  # shown with four digits
        shifts = {"A": 0.0, "B": gap}
        assert verdicts(page(shifts, 3, noise=0.0))["A", "B"] == expected


def test_errors_of_a_small_unit_have_digits_that_tell_them_apart():
    """A difference counts from one in the last digit, in whatever unit the target is."""
    results, scores = summarised("rmse", of(1.9, 0.2))
    assert results.metric.digits == 3
    small = {name: replace(own, numerator=own.numerator * 1e-8) for name, own in scores.items()}
    rows = [replace(row, mean=row.mean * 1e-4) for row in results.candidates]
    results = completed(replace(results, candidates=rows), small)
    assert results.differences[0].better == "GRU"
    assert results.metric.number(results.by_name["GRU"].mean) == "0.0000283"


def deep(depth, tried, depths=()):
    """A candidate that chose a depth of those tried, where the budget allows these depths; none: it is not known."""
    trials = [
        Trial(
            values={"optimizer.lr": lr},
            seed=1001,
            score=0.5,
            loss=0.5,
            depth=None if one == 2 else one,
        )
        for lr, one in [(0.1, 2), (0.3, 2), (1.0, 2), *((0.3, one) for one in tried)]
    ]
    chosen = {"optimizer.lr": 0.3}
    return {
        "depth": depth,
        "trials": trials,
        "chosen": chosen,
        "depths": list(depths),
        "untuned": to_yaml(CONFIG),
    }


@pytest.mark.parametrize(
    ("depth", "tried", "depths", "side"),
    [
        (4, (1, 2, 4), (), "largest of 3 tried (1, 2, 4)"),
        (4, (1, 2, 4), (1, 2, 4, 8), "largest"),
        (2, (2, 4), (1, 2, 4), "least of 2 tried (2, 4)"),
        (4, (1, 2, 4), (1, 2, 4), None),  # no width has the budget at a further one
        (2, (2, 4), (2, 4), None),
        (8, (1, 2, 4, 8), (1, 2, 4, 8), "largest of 4 tried"),  # the search went no further
        (1, (1, 2, 4), (), None),
        (2, (1, 2, 4), (), None),
        (2, (2,), (), None),  # --no-depths
    ],
)
def test_a_depth_at_the_end_of_those_tried_unsettles_where_a_further_one_could_be_had(
    depth, tried, depths, side
):
    results = page({"A": 0.0, "C": 5.0}, 5)
    assert CONFIG["model"]["backbone"]["depth"] == 4
    untuned = to_yaml(complete("image/digits", "debug", ["--model.backbone.depth=2"]))
    ends = deep(depth, tried, depths) | {"untuned": untuned}
    for place, is_worse in ((0, False), (1, True)):
        rows = list(results.candidates)
        rows[place] = replace(rows[place], **ends)
        told = depth_at_edge(rows[place])
        assert (told is None) == (side is None)
        assert side is None or side in told
        found = with_verdicts(replace(results, candidates=rows))
        assert verdicts(found)["A", "C"] == (None if side and is_worse else "A")


def flat(row, losses):
    """The row with these training losses in 100 steps."""
    curve = [CurvePoint(step=1 + 33 * i, train_loss=loss) for i, loss in enumerate(losses)]
    return replace(row, runs=[replace(run, curve=curve) for run in row.runs], constant=None)


@pytest.mark.parametrize(
    ("values", "interval", "constant", "is_untrained"),
    [
        ((0.12, 0.13, 0.17), (0.115, 0.172), 0.125, True),
        ((0.05, 0.06, 0.07), (0.05, 0.07), 0.125, True),
        ((0.15, 0.16, 0.17), (0.145, 0.172), 0.125, False),  # little, but certainly
        ((0.12, 0.13, 0.9), (0.01, 0.9), 0.125, False),  # one seed left chance
        ((0.12, 0.13, 0.17), (0.115, 0.172), None, False),
    ],
)
def test_one_that_never_left_chance_is_called_untrained(values, interval, constant, is_untrained):
    runs = [Run(seed=i, folder="", value=value) for i, value in enumerate(values)]
    row = Row(
        name="A",
        parameters=1,
        config="",
        runs=runs,
        mean=float(np.mean(values)),
        interval=interval,
        constant=constant,
    )
    assert bool(untrained(row, METRICS["accuracy"])) == is_untrained
    error = replace(
        row,
        runs=[replace(run, value=1 - run.value) for run in runs],
        mean=1 - row.mean,
        interval=(1 - interval[1], 1 - interval[0]),
        constant=constant and 1 - constant,
    )
    assert bool(untrained(error, METRICS["token_error"])) == is_untrained


def test_one_that_is_hardly_above_chance_is_not_said_to_be_no_better():
    runs = [Run(seed=i, folder="", value=0.14 + 0.01 * i) for i in range(3)]
    own = {
        "name": "A",
        "parameters": 1,
        "config": "",
        "runs": runs,
        "mean": 0.15,
        "constant": 0.125,
    }
    told = untrained(Row(**own, interval=(0.12, 0.18)), METRICS["accuracy"])
    assert "15.00 % is less than a tenth of the way from the best constant prediction" in told


def test_without_a_constant_a_training_loss_that_never_fell_is_untrained():
    row = page({"A": 0.0, "B": 0.0}, 3).candidates[0]
    assert untrained(flat(row, [2.3, 2.4, 2.3, 2.3]), METRICS["loss"])
    assert not untrained(flat(row, [2.3, 2.4, 2.2, 2.1]), METRICS["loss"])
    assert not untrained(flat(row, [2.3]), METRICS["loss"])


def test_better_than_an_untrained_one_is_said_as_such_wherever_it_is_said():
    baseline = {"accuracy": 0.1}
    results, _ = summarised("accuracy", of(1.9, 0.2, baseline=baseline))
    assert "near chance" in answers(results).text
    assert answers(results).text.startswith("LSTM is better than GRU (near chance) at an equal")
    told = [one for one in answers(results).others if "GRU is near chance: its" in one]
    assert told[0].endswith("no better than the best constant prediction, 10.00 %.")
    assert pairs_table(results).rows[0][0].text.endswith(" − GRU (near chance)")
    assert ranking(results).rows[1][1].small.startswith("near chance")
    trained, _ = summarised("accuracy", of(1.9, 1.2, baseline=baseline))
    assert "near chance" not in comparison_markdown(trained)


def test_candidates_that_compute_the_same_function_are_named():
    """Equal scores alone are none: two candidates may both be right everywhere."""

    def cell(name, seed, loss=0.5):
        made = ended(1.5, 1.2 + seed / 100)
        return replace(made, run=replace(made.run, metrics={"loss": loss + seed}))

    results, _ = summarised("accuracy", cell)
    text = "LSTM and GRU have the same scores to the last bit"
    assert text in answers(results).doubts[0]
    assert text in {
        one.text.partition(",")[0] for one in unmatched(results) if one.kind == "warning"
    }
    for other in (
        lambda name, seed: cell(name, seed, 0.5 + 1e-9 * (name == "GRU")),
        lambda name, seed: ended(1.5, 1.2 + seed / 100, denominator=2.0 + (name == "GRU")),
    ):
        assert not [
            one for one in answers(summarised("accuracy", other)[0]).doubts if "last bit" in one
        ]


def test_of_one_seed_it_is_said_that_it_decides_nothing():
    results = page({"A": 0.0, "C": 5.0}, 1)
    assert results.differences[0].p_holm < 0.05
    text = answers(results).text
    assert text.startswith("One seed decides nothing between A and C")
    assert "interval over test examples alone" in text
    assert pairs_table(results).rows[0][-1].text == "one seed"
