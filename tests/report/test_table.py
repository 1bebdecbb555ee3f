"""Which metric is a run's headline, and the table of results."""

import pytest
from rich.console import Console

from seqkit.report.table import format_metric, headline, result_table


def summary(objective="Classify", metrics=None, baseline=None, **others):
    return {
        "recipe": "audio/spoken-digits", "backbone": "Transformer", "objective": objective,
        "metrics": metrics or {"loss": 0.5, "accuracy": 0.75},
        "baseline": baseline or {"loss": 2.25, "accuracy": 0.125},
        "num_parameters": 1_234_567, "wall_seconds": 101.6,
    } | others  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "metrics", "name"),
    [
        ("Classify", {"loss": 1.0, "accuracy": 0.5}, "accuracy"),
        ("NextToken", {"loss": 1.0, "accuracy": 0.5}, "loss"),
        ("Masked", {"loss": 1.0, "accuracy": 0.5}, "loss"),
        ("Masked", {"loss": 1.0, "explained": 0.5}, "explained"),
        ("Regress", {"loss": 1.0, "mae": 3.0, "rmse": 0.5}, "rmse"),
        ("Yours", {"loss": 1.0, "accuracy": 0.5}, "accuracy"),
        ("Yours", {"f1": 0.5}, "f1"),
    ],
)
def test_each_objective_has_its_headline_and_the_baseline_of_the_same_name(objective, metrics, name):
    found = headline(summary(objective, metrics, {key: value / 2 for key, value in metrics.items()}))
    assert (found.name, found.value, found.baseline) == (name, metrics[name], metrics[name] / 2)


def test_a_run_without_a_baseline_shows_a_dash():
    found = headline(summary(baseline={"mae": 1.0}))
    assert found.baseline is None
    assert format_metric(found.name, found.baseline) == "–"


def test_a_run_without_metrics_is_refused():
    with pytest.raises(ValueError, match="has no metrics"):
        headline(summary() | {"metrics": {}})


def test_the_table_shows_everything_in_80_columns():
    console = Console(width=80, record=True, file=None)
    with console.capture() as captured:
        console.print(result_table([summary(), summary("NextToken")]))
    text = captured.get()
    for part in (
        "audio/spoken-digits", "Transformer", "75.00 %", "12.50 %", "1,234,567", "102", "seconds",
        "loss (nats)", "0.500", "2.250", "baseline",
    ):  # fmt: skip
        assert part in text
    assert "…" not in text


def test_names_in_the_table_are_neither_markup_nor_control_characters():
    console = Console(width=200)  # with rich's markup, as it is by default
    with console.capture() as captured:
        console.print(result_table([summary(recipe="[red]a[/blue]\n\x1b[31m", backbone=":smile: [b]")]))
    assert r"[red]a[/blue]\n\x1b[31m" in captured.get()
    assert ":smile: [b]" in captured.get()
