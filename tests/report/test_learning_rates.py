"""Trials: every one is shown, the chosen is marked, and a choice on the edge is called out."""

from itertools import product
from statistics import fmean

import pytest
from synthetic_results import candidate, comparison

from seqkit.report.learning_rates import depth_lines, edge_remarks, expected_lines, rate_lines, trial_table
from seqkit.report.ranking import ranked


def rows(trials, chosen):
    results = comparison(1)
    results["candidates"][0] |= {"trials": trials, "chosen": chosen}
    return ranked(results)[0].rows


def remarks(found):
    return [remark for row in found for remark in edge_remarks(row.result)]


def trial(loss, error=None, **values):
    return {"values": {f"optimizer.{key}": value for key, value in values.items()}, "loss": loss, "error": error}


THREE = [trial(0.5, lr=0.001), trial(0.25, lr=0.003), trial(0.75, lr=0.01)]


def test_every_trial_has_its_cell_and_the_chosen_one_is_marked():
    table = trial_table(rows([*THREE, trial(None, "NaN", lr=0.03)], {"optimizer.lr": 0.003}))
    assert table.columns == ["0.001", "0.003", "0.01", "0.03"]
    ((_, seed, cells),) = table.rows
    assert seed is None  # trials that have none
    assert [cell.text for cell in cells] == ["0.5000", "0.2500", "0.7500", "failed"]
    assert [cell.shade for cell in cells] == [0.5, 0.0, 1.0, None]
    assert [cell.is_chosen for cell in cells] == [False, True, False, False]
    assert cells[3].error == "NaN"


def test_candidates_with_other_grids_share_the_columns():
    results = comparison(2)
    results["candidates"][0] |= {"trials": THREE[:1]}
    results["candidates"][1] |= {"trials": [trial(0.125, lr=0.1, dropout=0.2)]}
    table = trial_table(ranked(results)[0].rows)
    assert table.keys == ["optimizer.lr", "optimizer.dropout"]
    assert table.columns == ["0.001, –", "0.1, 0.2"]
    assert [[cell.text for cell in cells] for _, _, cells in table.rows] == [["0.5000", ""], ["", "0.1250"]]


@pytest.mark.parametrize(("lr", "side"), [(0.001, "smallest"), (0.01, "largest")])
def test_a_choice_on_the_edge_is_called_out(lr, side):
    (remark,) = remarks(rows(THREE, {"optimizer.lr": lr}))
    assert remark == (
        f"Transformer chose optimizer.lr {lr}, the {side} of 3 values tried (0.001 to 0.01). "
        "A better one may lie beyond."
    )


@pytest.mark.parametrize(
    ("trials", "chosen"),
    [
        (THREE, {"optimizer.lr": 0.003}),
        (THREE, {}),
        ([*THREE, trial(None, "NaN", lr=0.03)], {"optimizer.lr": 0.01}),  # beyond it the trial failed
        ([trial(0.1, dropout=0.0), trial(0.2, dropout=0.1)], {"optimizer.dropout": 0.0}),  # nothing is below
        ([], {"optimizer.lr": 0.003}),
    ],
)
def test_a_choice_within_is_not(trials, chosen):
    assert remarks(rows(trials, chosen)) == []


def test_rates_that_were_changed_together_are_called_out_once():
    together = [trial(lr, lr=lr, momentum=lr / 2) for lr in (0.001, 0.003, 0.01)]
    assert len(remarks(rows(together, {"optimizer.lr": 0.001, "optimizer.momentum": 0.0005}))) == 1
    apart = [trial(lr, lr=lr, momentum=m) for lr, m in ((0.001, 0.9), (0.003, 0.5), (0.01, 0.7))]
    assert len(remarks(rows(apart, {"optimizer.lr": 0.001, "optimizer.momentum": 0.9}))) == 2


def test_a_single_trial_is_called_out():
    (remark,) = remarks(rows(THREE[:1], {"optimizer.lr": 0.001}))
    assert remark == "Transformer tried only one value of optimizer.lr, 0.001."


def test_the_line_goes_through_the_best_loss_of_each_rate_and_rings_the_chosen():
    (line,) = rate_lines(rows([*THREE, trial(0.625, lr=0.01, dropout=0.1)], {"optimizer.lr": 0.003}))
    assert (line.x, line.y, line.ringed) == ([0.001, 0.003, 0.01], [0.5, 0.25, 0.625], (0.003, 0.25))


def test_rates_of_two_optimizers_are_two_lines():
    def of(kind, one):
        return {**one, "values": {"optimizer.type": kind, **one["values"]}}

    trials = [of("Muon", one) for one in THREE] + [of("AdamW", trial(0.3, lr=0.003)), of("AdamW", trial(0.2, lr=0.01))]
    one, two = rate_lines(rows(trials, {"optimizer.type": "AdamW", "optimizer.lr": 0.01}))
    assert (one.x, one.y, one.ringed) == ([0.001, 0.003, 0.01], [0.5, 0.25, 0.75], None)
    assert (two.x, two.y, two.ringed) == ([0.003, 0.01], [0.3, 0.2], (0.01, 0.2))
    assert one.mark.line != two.mark.line


def test_without_trials_there_is_no_table_and_no_line():
    assert trial_table(rows([], {})) is None
    assert rate_lines(rows([], {})) == []
    assert candidate(0)["trials"], "the synthetic candidates have trials"


def test_trials_of_two_seeds_have_a_line_each_and_what_a_seed_did_not_try_is_empty():
    again = [{**trial(0.75, lr=0.003), "seed": 2}, {**trial(None, "NaN", lr=0.01), "seed": 2}]
    table = trial_table(rows([*({**one, "seed": 1} for one in THREE), *again], {"optimizer.lr": 0.003}))
    assert [(seed, [cell.text for cell in cells]) for _, seed, cells in table.rows] == [
        (1, ["0.5000", "0.2500", "0.7500"]),
        (2, ["", "0.7500", "failed"]),
    ]


def test_a_line_of_rates_goes_through_the_mean_of_two_seeds_and_leaves_out_a_rate_that_failed():
    twice = [*THREE, trial(0.75, lr=0.003), trial(None, "NaN", lr=0.01)]
    (line,) = rate_lines(rows(twice, {"optimizer.lr": 0.003}))
    assert (line.x, line.y) == ([0.001, 0.003], [0.5, 0.5])


def test_the_expected_best_of_k_trials_is_the_mean_of_all_ways_to_draw_them():
    trials = [*THREE, trial(None, "NaN", lr=0.03)]
    (line,) = expected_lines(rows(trials, {}))
    losses = [0.5, 0.25, 0.75, 0.75]  # one that failed counts as the worst
    for k, value in zip(line.x, line.y):
        assert value == pytest.approx(fmean(min(draw) for draw in product(losses, repeat=k)))
    assert line.x == [1, 2, 3, 4]
    assert expected_lines(rows(THREE[:1], {})) == []


def test_depths_are_listed_with_their_widths_and_the_chosen_one_is_marked():
    (row,) = rows(THREE, {"optimizer.lr": 0.003})
    row.result["depth_trials"] = [
        {"width": 90, "depth": 1, "loss": 0.5, "is_chosen": False},
        {"width": 64, "depth": 2, "loss": 0.25, "is_chosen": True},
        {"width": 46, "depth": 4, "loss": None, "is_chosen": False},
    ]
    tried = (
        "0.5000 with 1 layer of width 90, 0.2500 with 2 layers of width 64 (chosen), failed with 4 layers of width 46."
    )
    assert depth_lines([row]) == [f"{row.label}: {tried}"]
