"""Candidates in their order, differences in either direction, and the table of the terminal."""

import pytest
from rich.console import Console
from synthetic_results import HOSTILE, comparison, hostile, without_values

from seqkit.report.ranking import comparison_table, difference_of, ranked, ranking_sentences


def text_of(results, width=100):
    console = Console(width=width, record=True)
    with console.capture() as captured:
        console.print(comparison_table(results))
    return captured.get()


@pytest.fixture
def results():
    return comparison(4, failed=(1,))


@pytest.mark.parametrize("higher", [True, False])
def test_the_best_comes_first_and_what_failed_last(results, higher):
    results["metric"]["higher_is_better"] = higher
    (group,) = ranked(results)
    means = [row.result["mean"] for row in group.rows[:-1]]
    assert means == sorted(means, reverse=higher)
    assert [row.rank for row in group.rows] == [1, 2, 3, None]
    assert group.rows[-1].error == "no seed finished: loss is NaN at step 12"


def test_a_difference_read_backwards_is_turned_round(results):
    results["differences"] = [
        {"a": "GRU", "b": "Transformer", "difference": 0.008, "interval": [0.001, 0.014], "better": "GRU", "pairs": ""}
    ]
    assert difference_of(results, "GRU", "Transformer")["interval"] == [0.001, 0.014]
    turned = difference_of(results, "Transformer", "GRU")
    assert (turned["difference"], turned["interval"], turned["better"]) == (-0.008, [-0.014, -0.001], "GRU")
    assert difference_of(results, "GRU", "Mamba") is None


def test_speed_is_relative_to_the_reference(results):
    speeds = {row.label: row.speed for row in ranked(results)[0].rows}
    assert speeds["Transformer"] == 1
    assert speeds["GRU"] == pytest.approx(1 / 1.6)  # a third candidate takes 1 + 2 * 0.3 times as long
    assert speeds["LSTM"] is None


def test_groups_are_ranked_apart_and_say_whether_the_order_changed():
    results = comparison(3, group="masked pretraining")
    first, second = ranked(results)
    assert (first.title, second.title) == ("without pretraining", "masked pretraining")
    assert first.order == second.order == ["Transformer", "LSTM", "GRU"]
    assert [row.rank for row in second.rows] == [1, 2, 3]
    (sentence,) = ranking_sentences([first, second])
    assert sentence.startswith("The ranking by means is the same")
    results["candidates"][-1]["mean"] = 1.0
    (sentence,) = ranking_sentences(ranked(results))
    assert sentence == (
        "The ranking by means changes with masked pretraining: GRU, Transformer, LSTM; "
        "without pretraining it is Transformer, LSTM, GRU."
    )


def test_the_terminal_shows_ranks_values_differences_and_failures(results):
    results["candidates"][2] |= {"mean": 0.995, "std": 0.002, "interval": [0.991, 0.999]}
    results["differences"] = [
        {"a": "GRU", "b": "Transformer", "difference": 0.008, "interval": [0.001, 0.014], "better": "GRU", "pairs": ""}
    ]
    text = text_of(results, 80)
    for part in ("99.50 ± 0.20", "[99.10, 99.90]", "+0.80", "[+0.10, +1.40]", "0.62 ×", "reference", "203,914"):
        assert part in text
    rows = [line.split() for line in text.splitlines()]
    assert [row[:2] for row in rows if row and row[0] in ("1", "2", "3", "–")] == [
        ["1", "GRU"], ["2", "Transformer"], ["3", "Mamba"], ["–", "LSTM"],
    ]  # fmt: skip
    assert "LSTM failed: no seed finished: loss is NaN at step 12" in text


@pytest.mark.parametrize("make", [lambda: comparison(0), without_values, lambda: comparison(1, seeds=(7,))])
def test_the_terminal_bears_what_is_missing(make):
    assert "nan" not in text_of(make()).lower()


def test_names_are_no_markup_in_the_terminal():
    text = text_of(hostile(), 240)
    assert HOSTILE in text


def test_names_are_no_control_characters_in_the_terminal():
    results = comparison(2)
    results["candidates"][0]["name"] = "a\x1b[31m\nb"
    text = text_of(results, 240)
    assert "\x1b[31m" not in text
    assert r"a\x1b[31m\nb" in text
