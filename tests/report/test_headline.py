"""Which metric is a run's headline, and the table of results."""

import pytest
from rich.console import Console

from seqkit.report.headline import ResultTable, cautions, format_metric, headline, network_alone


def summary(objective="Classify", metrics=None, baseline=None, **others):
    main = {"Classify": {"main_metric": "accuracy"}, "Regress": {"main_metric": "rmse"}}.get(
        objective, {}
    )
    return {
        "recipe": "audio/spoken-digits", "backbone": "Transformer", "objective": objective,
        "metrics": metrics or {"loss": 0.5, "accuracy": 0.75},
        "baseline": baseline or {"loss": 2.25, "accuracy": 0.125},
        "num_parameters": 1_234_567, "wall_seconds": 101.6, **main,
    } | others  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "metrics", "name"),
    [
        ("Classify", {"loss": 1.0, "accuracy": 0.5}, "accuracy"),
        ("NextToken", {"loss": 1.0, "accuracy": 0.5}, "loss"),
        ("Masked", {"loss": 1.0, "accuracy": 0.5}, "loss"),
        ("Masked", {"loss": 1.0, "explained": 0.5}, "explained"),
        ("Regress", {"loss": 1.0, "mae": 3.0, "rmse": 0.5}, "rmse"),
        ("Seq2Seq", {"loss": 1.0, "sequence_error": 0.5}, "sequence_error"),
        ("Yours", {"f1": 0.5}, "f1"),
    ],
)
def test_each_objective_has_its_headline_and_the_baseline_of_the_same_name(
    objective, metrics, name
):
    found = headline(
        summary(objective, metrics, {key: value / 2 for key, value in metrics.items()})
    )
    assert (found.name, found.value, found.baseline) == (name, metrics[name], metrics[name] / 2)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_an_objectives_own_metric_says_whether_more_of_it_is_better(mode):
    own = {"main_metric": "off_by_one", "main_metric_mode": mode}
    found = headline(
        summary("Yours", {"accuracy": 0.5, "off_by_one": 0.25}, {"off_by_one": 0.125}, **own)
    )
    assert found.name == "off_by_one"
    assert found.is_no_better_than_constant == (mode == "min")


def test_a_run_without_a_baseline_shows_a_dash():
    found = headline(summary(baseline={"mae": 1.0}))
    assert found.baseline is None
    assert found.text(found.baseline) == "–"


def test_a_run_without_metrics_is_refused():
    with pytest.raises(ValueError, match="no metrics"):
        headline(summary() | {"metrics": {}})


def test_the_table_shows_everything_in_80_columns():
    console = Console(width=80, record=True, file=None)
    with console.capture() as captured:
        console.print(ResultTable([summary(), summary("NextToken")]))
    text = captured.get()
    for part in (
        "audio/spoken-digits", "Transformer", "75.00 %", "12.50 %", "1,234,567", "102", "seconds",
        "loss (nats)", "0.500", "2.250", "baseline",
    ):  # fmt: skip
        assert part in text
    assert "…" not in text


def test_no_name_is_broken_in_80_columns():
    run = summary(
        recipe="multimodal/table", main_metric="balanced_accuracy", num_parameters=1_152_642
    )
    run |= {"metrics": {"balanced_accuracy": 0.7713, "accuracy": 0.9}, "backbone": "Transformer"}
    for one in (run, {**run, "main_metric": "accuracy", "main_interval": [0.9398, 1.0]}):
        console = Console(width=80)
        with console.capture() as captured:
            console.print(ResultTable([one]))
        words = captured.get().split()
        for part in ("multimodal/table", "Transformer", "accuracy", "parameters", "1,152,642"):
            assert part in words
    long = summary(recipe="a/recipe-of-a-user-with-a-name-of-sixty-characters-or-some-more")
    console = Console(width=80)
    with console.capture() as captured:
        console.print(ResultTable([long]))
    assert "75.00 %" in captured.get(), "a long name still goes on in the next line"


def test_names_in_the_table_are_neither_markup_nor_control_characters():
    console = Console(width=200)  # with rich's markup, as it is by default
    with console.capture() as captured:
        console.print(
            ResultTable([summary(recipe="[red]a[/blue]\n\x1b[31m", backbone=":smile: [b]")])
        )
    assert r"[red]a[/blue]\n\x1b[31m" in captured.get()
    assert ":smile: [b]" in captured.get()


@pytest.mark.parametrize(
    ("objective", "metrics", "baseline", "is_said"),
    [
        ("Classify", {"accuracy": 0.1}, {"accuracy": 0.2}, True),
        ("Classify", {"accuracy": 0.2}, {"accuracy": 0.2}, True),
        ("Classify", {"accuracy": 0.3}, {"accuracy": 0.2}, False),
        ("Regress", {"rmse": 2.0}, {"rmse": 1.0}, True),
        ("Regress", {"rmse": 1.0}, {"rmse": 2.0}, False),
        ("Seq2Seq", {"sequence_error": 1.0}, {"loss": 1.0}, False),
    ],
)
def test_a_run_no_better_than_the_constant_prediction_says_so_below_the_table(
    objective, metrics, baseline, is_said
):
    console = Console(width=300)
    with console.capture() as captured:
        console.print(ResultTable([summary(objective, metrics, baseline, steps=5000)]))
    assert ("no better than the constant that is best in training" in captured.get()) == is_said


def test_a_run_whose_interval_holds_the_constant_prediction_is_not_shown_to_be_better():
    found = [summary(main_interval=[low, 0.9], steps=5000) for low in (0.1, 0.2)]
    baseline = headline(found[0]).baseline
    assert 0.1 < baseline < 0.2
    said = ["".join(cautions(one)) for one in found]
    assert ["not shown to be better than the constant" in one for one in said] == [True, False]
    assert not any("no better than" in one for one in said)


def test_a_training_of_few_steps_or_few_examples_is_said():
    assert "2 steps" in cautions(summary(steps=2))[0]
    assert "at most 37 examples" in cautions(summary(steps=5000, limit=37))[0]
    assert cautions(summary(steps=5000, limit=5000)) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (87853.914, "87,854"), (297488.531, "297,489"), (4570.26, "4,570.3"), (457.026, "457.03"), (99.9996, "100.00"),
        (45.7026, "45.703"), (0.4571, "0.457"), (-87853.914, "-87,854"),
    ],
)  # fmt: skip
def test_large_metrics_have_their_thousands_apart_and_five_digits(value, text):
    assert format_metric("rmse", value) == text


def test_metrics_that_were_asked_for_are_shown_with_the_class_and_both_baselines():
    strong = {
        "name": "a forest",
        "metrics": {"accuracy": 0.6, "auroc": 0.775},
        "num_train": 10,
        "seconds": 1.0,
    }
    run = summary(
        metrics={"accuracy": 0.75, "loss": 0.470, "auroc": 0.684, "calibration_error": 0.084},
        baseline={"accuracy": 0.5, "loss": 0.438, "auroc": 0.5, "calibration_error": 0.0405},
        steps=5000, strong_baseline=strong, positive="yes",
    )  # fmt: skip
    console = Console(width=200)
    with console.capture() as captured:
        console.print(ResultTable([run]))
    assert "AUROC: 0.684 (baseline 0.500, beside it 0.775)" in captured.get()
    assert "calibration error of yes: 8.40 % (baseline 4.05 %, beside it –)" in captured.get()


def beside(value, difference=None, **more):
    found = {
        "name": "an RBF-SVM on pixels",
        "metrics": {"accuracy": value, "rmse": value},
        "num_train": 40,
        **more,
    }
    return {**found, "seconds": 1.0} | ({} if difference is None else {"difference": difference})


@pytest.mark.parametrize(
    ("metric", "value", "difference", "verdict"),
    [
        (
            "accuracy",
            0.625,
            [0.125, 0.02, 0.23],
            " is better by 12.50 percentage points [2.00, 23.00]",
        ),
        (
            "accuracy",
            0.75,
            [0.0, -0.1, 0.1],
            ", equal in the mean [-10.00, 10.00], is not told apart from it",
        ),
        (
            "accuracy",
            0.80,
            [-0.05, -0.1, 0.002],
            ", worse by 5.00 percentage points [-0.20, 10.00], is not told apart from it",
        ),
        (
            "accuracy",
            0.80,
            [-0.05, -0.09, -0.01],
            " is worse by 5.00 percentage points [1.00, 9.00]",
        ),
        ("rmse", 0.80, [-0.05, -0.09, -0.01], " is better by 0.050 [0.010, 0.090]"),
        ("rmse", 0.70, [0.05, 0.01, 0.09], " is worse by 0.050 [0.010, 0.090]"),
    ],
)
def test_a_run_is_better_or_worse_than_a_specialist_only_where_the_interval_excludes_zero(
    metric, value, difference, verdict
):
    run = summary(metrics={metric: 0.75}, main_metric=metric, steps=5000)
    run["strong_baseline"] = beside(value, difference)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(ResultTable([run]))
    assert f"an RBF-SVM on pixels (fit on 40 examples); the run{verdict}" in captured.get()
    said = cautions(run)
    assert len(said) == ("is worse" in verdict)
    assert all("an RBF-SVM on pixels" in line and verdict in line for line in said)
    run["strong_baseline"]["setting"] = "--preset gcn did better"  # of an older run, on other data
    assert not any("did better" in line for line in cautions(run))


def test_a_specialist_without_a_known_interval_is_compared_in_this_seed_alone():
    (said,) = cautions(summary(steps=5000, strong_baseline=beside(0.8)))
    assert "75.00 % against 80.00 %; with this seed" in said
    assert cautions(summary(steps=5000, strong_baseline=beside(0.7))) == []


def test_an_accuracy_has_its_interval_below_it_in_the_table():
    console = Console(width=80)
    with console.capture() as captured:
        console.print(ResultTable([summary(main_interval=[0.7112, 0.7848])]))
    words = captured.get().split()
    assert words.index("78.48]") > words.index("[71.12,"), "at most at its blank it is broken"
    assert "…" not in captured.get()


def test_a_table_says_whose_its_predictions_are():
    """The weights of network and method, and what the network has alone."""
    method = {"name": "a random forest", "network_weight": 0.625, "classical_weight": 1.5}
    alone = {"metrics": {"accuracy": 0.7}, "difference": (0.05, 0.01, 0.09)}
    console = Console(width=200)
    with console.capture() as captured:
        console.print(ResultTable([summary(steps=500, joined=method | alone)]))
    lines = captured.get().splitlines()
    assert (
        "the network alone: 70.00 %; the run is better by 5.00 percentage points [1.00, 9.00]"
        in lines
    )
    made = "the run predicts with network and classical method (weights 0.62 and 1.50 of their log-probabilities)"
    assert made in lines
    small = {"metrics": {"loss": 0.001, "accuracy": 0.9}, "baseline": {"loss": 0.7}}
    far = network_alone(
        summary("Yours", **small, joined=method | {"metrics": {"accuracy": 0.1, "loss": 0.4}})
    )
    assert "hardly possible" not in far.compared, (
        "a rival's score is doubted, the network's own is not"
    )
    assert network_alone(summary(joined=method)) is None, "it is not tested"
    assert network_alone(summary()) is None
