"""Stages: all candidates are tuned alike, by the metric of the page, and which runs follow."""

import math
from dataclasses import replace
from itertools import product

import pytest

from seqkit.comparison.candidates import Candidate, Size
from seqkit.comparison.cells import Ended
from seqkit.comparison.scores import METRICS
from seqkit.comparison.settings import Settings
from seqkit.comparison.stages import Plan, train
from seqkit.config import complete


def candidate(name, words=(), **changes):
    config = complete("image/digits", "debug", ["--model.backbone=LSTM", *words])
    return Candidate(**{"name": name, "config": config, "num_steps": 40, **changes})


def plan_of(candidates=None, metric="loss", **changes):
    words = {"lr_trials": 3, "seeds": 2, "backbones": ["LSTM", "GRU"], **changes}
    two = candidates or [candidate("LSTM"), candidate("GRU")]
    return Plan(Settings(recipe="image/digits", **words), two, METRICS[metric])


def rate(cell):
    return cell.config["optimizer"]["lr"]


def trained(plan, loss=lambda cell: 1.0):
    """What a plan trains, and its cells in order. loss: of a trial, or its metrics; None: it fails."""
    cells = []

    def result(cell):
        cells.append(cell)
        if cell.kind == "measure":
            return Ended(costs={})
        found = loss(cell) if cell.kind == "trial" else 1.0
        if found is None:
            return Ended(error="diverged")
        return Ended(metrics=found if isinstance(found, dict) else {"loss": found})

    return train(plan, lambda asked: {cell.id: result(cell) for cell in asked}), cells


def tried(cells, name="GRU", seed=1001):
    trials = [cell for cell in cells if cell.kind == "trial" and cell.candidate == name]
    return [rate(cell) for cell in trials if cell.config["seed"] == seed]


def near(best):
    """A loss that is lowest at this learning rate."""
    return lambda cell: abs(math.log(rate(cell) / best))


def test_all_candidates_get_the_same_factors_of_every_learning_rate():
    _, cells = trained(plan_of(lr_trials=5))
    for name in ("LSTM", "GRU"):
        first = [cell for cell in cells if cell.kind == "trial" and cell.candidate == name][:5]
        assert [rate(cell) for cell in first] == pytest.approx([0.001, 0.00316, 0.01, 0.0316, 0.1])
        nested = [cell.config["optimizer"]["adamw"]["lr"] for cell in first]
        assert nested == pytest.approx([0.0003, 0.000949, 0.003, 0.00949, 0.03], rel=1e-3)


def test_a_trial_is_as_long_as_a_run_and_the_best_rate_trains_whole_runs():
    found, cells = trained(plan_of(), near(0.0316))
    run = next(cell for cell in cells if cell.id == "GRU/seed-2")
    assert (rate(run), run.config["seed"]) == (0.0316, 2)
    assert cells[0].config["trainer"] == run.config["trainer"]
    assert run.config["trainer"]["val_check_interval"] == 5
    assert found.tuned["GRU"].values["optimizer.lr"] == 0.0316


def test_trials_choose_by_the_metric_by_which_the_page_ranks():
    """By accuracy the largest rate is best, by the loss the one in the middle."""

    def metrics(cell):
        return {"accuracy": 1 - abs(rate(cell) - 0.0316), "loss": near(0.01)(cell)}

    found, _ = trained(plan_of(metric="accuracy"), metrics)
    assert found.tuned["GRU"].values["optimizer.lr"] == 0.0316
    found, _ = trained(plan_of(metric="loss"), metrics)
    assert found.tuned["GRU"].values["optimizer.lr"] == 0.01
    alike, _ = trained(
        plan_of(metric="accuracy"), lambda cell: {"accuracy": 1.0, "loss": near(0.01)(cell)}
    )
    assert alike.tuned["GRU"].values["optimizer.lr"] == 0.01, "of equal accuracies the lower loss"
    unknown, _ = trained(plan_of(metric="accuracy"), lambda cell: {"loss": near(0.01)(cell)})
    assert unknown.tuned["GRU"].values["optimizer.lr"] == 0.01, "without the metric the loss"


def test_a_stopped_comparison_has_the_same_seeds_of_each_candidate_and_what_is_measured_is_last():
    _, cells = trained(plan_of())
    ids = [cell.id for cell in cells if cell.kind != "trial"]
    runs = [f"{name}/seed-{seed}" for seed, name in product((1, 2), ("LSTM", "GRU"))]
    assert ids == [*runs, "measure"]


def test_no_reported_run_has_the_seed_of_a_trial_whatever_the_recipe_says():
    _, cells = trained(plan_of([candidate("LSTM", ["--seed=7"])], seeds=3), near(0.01))
    seeds = [(cell.kind, cell.config["seed"]) for cell in cells if cell.kind != "measure"]
    assert seeds == [("trial", 1001)] * 3 + [("trial", 1002)] * 2 + [
        ("run", 1),
        ("run", 2),
        ("run", 3),
    ]


def test_the_number_of_runs_is_known_beforehand_where_no_grid_goes_on():
    deep = Size(depth=8, values={"model.backbone.depth": 8})
    for changes in ({}, {"lr_trials": 0}, {"lr_trials": 1}, {"measure": False}):
        depths = [deep] if "lr_trials" not in changes else []
        plan = plan_of([candidate("LSTM"), candidate("GRU", depths=depths)], **changes)
        assert plan.num_cells == len(trained(plan, near(0.01))[1]), changes


def test_with_one_seed_of_trials_the_best_rate_is_that_of_the_first_seed_and_no_other_is_tried():
    plan = plan_of(tuning_seeds=1)
    found, cells = trained(plan, near(0.01))
    assert len(cells) == plan.num_cells
    assert {cell.config["seed"] for cell in cells if cell.kind == "trial"} == {1001}
    assert found.tuned["GRU"].values["optimizer.lr"] == 0.01
    _, cells = trained(plan, near(0.0316))
    assert tried(cells)[-1] == pytest.approx(0.1), "a grid goes on with one seed, too"


def test_a_grid_goes_on_where_its_best_rate_is_at_an_end_and_not_for_ever():
    _, cells = trained(plan_of(), near(0.001))
    assert tried(cells) == pytest.approx([0.00316, 0.01, 0.0316, 0.001, 0.000316])
    _, cells = trained(plan_of(), rate)
    assert tried(cells) == pytest.approx([0.00316, 0.01, 0.0316, 0.001, 0.000316, 0.0001])
    _, cells = trained(plan_of(lr_trials=1), rate)
    assert tried(cells) == [0.01]


def test_the_better_mean_of_two_seeds_wins_and_a_rate_that_fails_with_the_second_does_not():
    losses = {
        (1001, 0.00316): 3.0,
        (1001, 0.01): 2.0,
        (1001, 0.0316): 1.9,
        (1001, 0.1): 4.0,
        (1002, 0.01): 2.0,
    }
    for second, chosen in ((9.0, 0.01), (None, 0.01), (2.05, 0.0316)):
        known = losses | {(1002, 0.0316): second}
        found, _ = trained(
            plan_of(), lambda cell, known=known: known[cell.config["seed"], rate(cell)]
        )
        assert found.tuned["GRU"].values["optimizer.lr"] == pytest.approx(chosen)


def test_a_grid_goes_on_where_the_mean_of_two_seeds_is_lowest_at_its_last_rate():
    """With the first seed the middle is best, with both the smallest: the next smaller one is tried with both."""
    losses = {
        (1001, 0.00316): 2.0,
        (1001, 0.01): 1.9,
        (1001, 0.0316): 3.0,
        (1002, 0.00316): 1.5,
        (1002, 0.01): 2.0,
    }
    losses |= {(1001, 0.001): 1.8, (1002, 0.001): 1.9}
    found, cells = trained(plan_of(), lambda cell: losses[cell.config["seed"], rate(cell)])
    assert tried(cells) == pytest.approx([0.00316, 0.01, 0.0316, 0.001], rel=1e-3)
    assert tried(cells, seed=1002) == pytest.approx([0.01, 0.00316, 0.001], rel=1e-3)
    # 1.75 beside 1.85 and 1.95
    assert found.tuned["GRU"].values["optimizer.lr"] == pytest.approx(0.00316)


@pytest.mark.parametrize(("second", "depth"), [(2.0, 2), (1.2, 8)])
def test_a_depth_is_chosen_by_the_mean_of_two_seeds_and_runs_and_costs_are_of_that_size(
    second, depth
):
    deep = Size(depth=8, width=8, values={"model.backbone.dim": 8, "model.backbone.depth": 8})
    plan = plan_of(
        [candidate(name, ["--model.backbone.depth=2"], depths=[deep]) for name in ("LSTM", "GRU")]
    )

    def loss(cell):
        is_deep = cell.config["model"]["backbone"]["depth"] == 8
        return near(0.01)(cell) + (
            1.0 if not is_deep else 0.5 if cell.config["seed"] == 1001 else second
        )

    found, cells = trained(plan, loss)
    (run,) = [cell for cell in cells if cell.id == "GRU/seed-1"]
    assert run.config["model"]["backbone"]["depth"] == depth
    assert cells[-1].config["GRU"]["model"]["backbone"]["depth"] == depth
    assert found.tuned["GRU"].size is (deep if depth == 8 else plan.candidates[1].size)
    assert [trial.depth for trial in found.tuned["GRU"].trials if trial.depth] == [8, 8]


@pytest.mark.parametrize(
    ("best", "tried"), [(1, [2, 8, 1]), (2, [2, 8, 1]), (4, [2, 8]), (16, [2, 8, 16])]
)
def test_depths_go_on_while_the_best_is_at_an_end_and_none_is_tried_twice(best, tried):
    """At the best rate, with one seed; from 4, half and double come first."""
    sizes = [Size(depth=d, width=d, values={"model.backbone.depth": d}) for d in (1, 2, 8, 16)]
    words = ["--model.backbone.depth=4"]
    own = Size(depth=4, width=4)
    plan = plan_of([candidate(name, words, size=own, depths=sizes) for name in ("LSTM", "GRU")])

    def loss(cell):
        return near(0.01)(cell) + abs(math.log2(cell.config["model"]["backbone"]["depth"] / best))

    found, cells = trained(plan, loss)
    own_cells = [cell for cell in cells if cell.kind == "trial" and cell.candidate == "GRU"]
    once = [cell for cell in own_cells if cell.config["seed"] == 1001 and "depth" in cell.id]
    assert [cell.config["model"]["backbone"]["depth"] for cell in once] == tried
    assert {rate(cell) for cell in once} == {0.01}
    assert len({cell.id for cell in own_cells}) == len(own_cells)
    assert found.tuned["GRU"].size.depth == best


def test_failed_trials_are_passed_over_and_without_any_the_recipes_rate_stays():
    found, _ = trained(plan_of(), lambda cell: None if rate(cell) > 0.01 else near(0.01)(cell))
    assert found.tuned["GRU"].values["optimizer.lr"] == 0.01
    found, cells = trained(plan_of(), lambda cell: None)
    assert found.tuned["GRU"].values == {}
    assert rate(next(cell for cell in cells if cell.id == "GRU/seed-1")) == 0.01


def test_each_optimizer_has_a_grid_of_its_own_and_the_best_trial_brings_its_optimizer():
    adamw = complete("image/digits", "debug", ["--optimizer=AdamW", "--optimizer.lr=0.003"])[
        "optimizer"
    ]
    two = [candidate(name) for name in ("LSTM", "GRU")]
    two = [replace(one, optimizers=[one.config["optimizer"], adamw]) for one in two]
    found, cells = trained(
        plan_of(two), lambda cell: near(0.003)(cell) + (cell.config["optimizer"]["type"] == "Muon")
    )
    first = [cell.config["optimizer"] for cell in cells if cell.candidate == "LSTM"][:6]
    assert [one["type"] for one in first] == ["Muon"] * 3 + ["AdamW"] * 3
    assert [one["lr"] for one in first] == pytest.approx(
        [0.00316, 0.01, 0.0316, 0.000949, 0.003, 0.00949]
    )
    assert next(cell for cell in cells if cell.id == "GRU/seed-1").config["optimizer"] == adamw
    assert found.tuned["GRU"].values == {"optimizer.type": "AdamW", "optimizer.lr": 0.003}


def test_the_digest_of_a_plan_changes_with_all_that_decides():
    assert plan_of().sha256 == plan_of().sha256
    assert (
        len({one.sha256 for one in (plan_of(), plan_of(metric="accuracy"), plan_of(seeds=5))}) == 3
    )
