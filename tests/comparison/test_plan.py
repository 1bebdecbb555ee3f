"""The plan: which cells there are, what each needs, and that all candidates are tuned alike."""

import math

import pytest

from seqkit.comparison.candidates import Candidate, Depth
from seqkit.comparison.duration import Estimate, minutes
from seqkit.comparison.plan import Plan
from seqkit.comparison.settings import Settings
from seqkit.config import complete
from seqkit.errors import UsageError


def plan_of(candidates=None, **changes):
    settings = Settings(
        **{
            "recipe": "image/digits",
            "backbones": ["LSTM", "GRU"],
            "lr_trials": 3,
            "seeds": 2,
            "trial_share": 0.25,
            **changes,
        }
    )
    if candidates is None:
        config = complete("image/digits", "debug", ["--model.backbone=LSTM"])
        candidates = [Candidate("LSTM", config), Candidate("GRU", complete("image/digits", "debug"))]
    return Plan(settings, candidates, {c.name: 40 for c in candidates}, metric="accuracy", generates=False)


def ended(plan, kinds=("trial",), loss=1.0):
    return {key: {"metrics": {"loss": loss}} for key, step in plan.steps({}).items() if step.kind in kinds}


def run_to_the_end(plan, loss=lambda cell: 1.0):
    """Results of all cells, in an order in which they became ready. loss: validation loss of a trial."""
    results = {}
    while ready := plan.ready(results):
        for step in ready:
            cell = plan.cell(step, results)
            found = loss(cell) if step.kind == "trial" else 1.0
            results[step.id] = {"error": "diverged"} if found is None else {"metrics": {"loss": found}, "costs": {}}
    assert set(results) == set(plan.steps(results))
    return results


def rates_tried(plan, results, name):
    """Learning rates of a candidate's trials, and the rate of its final runs."""
    steps = plan.steps(results).values()
    tried = [plan.values(s, results)["optimizer.lr"] for s in steps if s.candidate == name and s.what == "lr"]
    return tried, plan.values(plan.steps(results)[f"{name}/seed-1"], results).get("optimizer.lr")


@pytest.mark.parametrize("match", ["parameters", "time"])
def test_every_step_becomes_ready_after_what_it_needs(match):
    plan = plan_of(match=match, dropout_trials=2)
    order = list(run_to_the_end(plan))
    assert order.index("LSTM/lr-3") < order.index("LSTM/dropout-1") < order.index("LSTM/seed-1")
    assert (order[0] == "measure") == (match == "time")
    assert (order[-1] == "measure") == (match == "parameters")


def test_a_stopped_comparison_has_the_same_seeds_of_each_candidate():
    order = list(run_to_the_end(plan_of(run_shares=[0.5], measure=False)))
    first = next(i for i, key in enumerate(order) if "seed" in key)
    assert order[first:] == [
        *("LSTM/seed-1", "GRU/seed-1", "LSTM/seed-2", "GRU/seed-2"),
        *("LSTM/share-0.5-seed-1", "GRU/share-0.5-seed-1", "LSTM/share-0.5-seed-2", "GRU/share-0.5-seed-2"),
    ]


def test_the_minutes_that_are_left_follow_the_seconds_that_cells_took():
    plan = plan_of(measure=False)
    estimates = dict.fromkeys(("LSTM", "GRU"), Estimate(40, step_seconds=1.0, valid_seconds=0.5, test_seconds=2.0))
    trial, seed = 10 * 1.0 + 8 * 0.5 + 1.5, 40 * 1.0 + 8 * 0.5 + 2.0 + 1.5
    done = {key: {**result, "seconds": 3 * trial} for key, result in ended(plan).items()}
    left = [step for step in plan.steps(done).values() if step.id not in done]
    seconds = sum(seed if step.kind == "seed" else trial for step in left)
    assert {step.kind for step in left} == {"seed", "trial"}
    assert minutes(plan, estimates, done, jobs=2) == pytest.approx((6.0 + 3 * seconds / 2) / 60)


def test_all_candidates_get_the_same_factors_of_their_learning_rate():
    plan = plan_of(lr_trials=5)
    for name in ("LSTM", "GRU"):
        rates = [plan.values(plan.steps({})[f"{name}/lr-{i}"], {})["optimizer.lr"] for i in range(1, 6)]
        assert rates == pytest.approx([0.001, 0.00316, 0.01, 0.0316, 0.1])
        nested = [plan.values(plan.steps({})[f"{name}/lr-{i}"], {})["optimizer.adamw.lr"] for i in range(1, 6)]
        assert nested == pytest.approx([0.0003, 0.000949, 0.003, 0.00949, 0.03], rel=1e-3)


def test_a_trial_is_short_has_one_seed_and_its_rate_and_the_best_one_trains():
    plan = plan_of()
    cell = plan.cell(plan.steps({})["LSTM/lr-1"], {})
    assert cell.kind == "trial"
    assert cell.config["trainer"]["max_steps"] == 10
    assert cell.config["optimizer"]["lr"] == pytest.approx(0.00316)
    results = ended(plan)
    results["GRU/lr-3"] = {"metrics": {"loss": 0.5}}
    final = plan.cell(plan.steps({})["GRU/seed-2"], results)
    assert final.config["optimizer"]["lr"] == pytest.approx(0.0316)
    assert final.config["seed"] == 2
    assert final.config["trainer"]["val_check_interval"] == 5
    assert cell.config["trainer"]["val_check_interval"] == 1  # weights are chosen as a run chooses them


def test_no_reported_run_has_the_seed_of_a_trial_whatever_the_recipe_says():
    config = complete("image/digits", "debug", {"seed": 7})
    plan = plan_of([Candidate("LSTM", config), Candidate("GRU", config)], dropout_trials=2, seeds=3)
    results = run_to_the_end(plan, lambda cell: abs(cell.config["optimizer"]["lr"] - 0.01))
    seeds = {}
    for step in plan.steps(results).values():
        if step.kind != "measure":
            seeds.setdefault(step.what or step.kind, []).append(plan.cell(step, results).config["seed"])
    assert seeds == {
        "lr": [1001] * 6,
        "again": [1002] * 4,
        "dropout": [1001, 1001, 1002, 1002] * 2,
        "seed": [1, 2, 3] * 2,
    }


def test_shorter_runs_have_the_rate_of_the_whole_ones_and_a_schedule_of_their_own():
    config = complete("image/digits", "debug", {"schedule.warmup_steps": 8})
    plan = plan_of([Candidate("LSTM", config), Candidate("GRU", config)], run_shares=[0.25, 0.5])
    results = run_to_the_end(plan, lambda cell: abs(math.log(cell.config["optimizer"]["lr"] / 0.0316)))
    parts = [step for step in plan.steps(results).values() if step.kind == "part" and step.candidate == "GRU"]
    cells = [plan.cell(step, results).config for step in parts]
    assert [(cell["seed"], cell["trainer"]["max_steps"]) for cell in cells] == [(1, 10), (2, 10), (1, 20), (2, 20)]
    assert [cell["schedule"]["warmup_steps"] for cell in cells] == [2, 2, 4, 4]
    whole = plan.cell(plan.steps(results)["GRU/seed-1"], results).config
    assert {cell["optimizer"]["lr"] for cell in cells} == {whole["optimizer"]["lr"]}
    order = list(results)
    assert all(order.index("GRU/lr-1") < order.index(step.id) < order.index("measure") for step in parts)


def test_shares_of_so_few_steps_that_two_are_alike_are_refused():
    with pytest.raises(UsageError, match=r"\[1, 2, 1, 40\]"):
        plan_of(run_shares=[0.01, 0.05, 0.02])


# ── the grid ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("optimum", "tried"),
    [
        (0.01, [0.00316, 0.01, 0.0316]),
        (0.0316, [0.00316, 0.01, 0.0316, 0.1]),
        (0.001, [0.00316, 0.01, 0.0316, 0.001, 0.000316]),
        (50.0, [0.00316, 0.01, 0.0316, 0.1, 0.316, 1.0]),  # three beyond, and no more
    ],
)
def test_a_grid_goes_on_where_its_best_rate_is_its_last(optimum, tried):
    plan = plan_of()
    results = run_to_the_end(plan, lambda cell: abs(math.log(cell.config["optimizer"]["lr"] / optimum)))
    for name in ("LSTM", "GRU"):
        found, chosen = rates_tried(plan, results, name)
        assert found == pytest.approx(tried, rel=1e-3)
        assert chosen == pytest.approx(min(tried, key=lambda rate: abs(math.log(rate / optimum))), rel=1e-3)


def test_a_rate_that_fails_ends_a_grid_as_one_that_is_worse_does():
    def loss(cell):
        rate = cell.config["optimizer"]["lr"]
        return None if rate > 0.05 else 1 / rate

    plan = plan_of()
    tried, chosen = rates_tried(plan, run_to_the_end(plan, loss), "GRU")
    assert tried == pytest.approx([0.00316, 0.01, 0.0316, 0.1], rel=1e-3)
    assert chosen == pytest.approx(0.0316)
    tried, chosen = rates_tried(plan, run_to_the_end(plan, lambda cell: None), "GRU")
    assert (len(tried), chosen) == (3, None)  # the recipe's


def test_of_the_best_two_rates_the_one_with_the_lower_mean_over_two_seeds_is_chosen():
    """With the first seed the largest rate is best; with the second one it fails, as on an unstable edge."""
    losses = {(1001, 0.00316): 3.0, (1001, 0.01): 2.0, (1001, 0.0316): 1.9, (1001, 0.1): 4.0, (1002, 0.01): 2.2}

    def loss(second):
        return lambda cell: (losses | {(1002, 0.0316): second})[cell.config["seed"], cell.config["optimizer"]["lr"]]

    plan = plan_of()
    assert rates_tried(plan, run_to_the_end(plan, loss(9.0)), "GRU")[1] == pytest.approx(0.01)
    assert rates_tried(plan, run_to_the_end(plan, loss(None)), "GRU")[1] == pytest.approx(0.01)
    assert rates_tried(plan, run_to_the_end(plan, loss(2.1)), "GRU")[1] == pytest.approx(0.0316)


def test_a_grid_goes_on_where_the_mean_of_two_seeds_is_lowest_at_its_last_rate():
    """With the first seed the middle is best, with both the smallest: the next smaller one is tried with both."""
    losses = {(1001, 0.00316): 2.0, (1001, 0.01): 1.9, (1001, 0.0316): 3.0, (1002, 0.00316): 1.5, (1002, 0.01): 2.0}

    def loss(cell):
        key = cell.config["seed"], cell.config["optimizer"]["lr"]
        return (losses | {(1001, 0.001): 1.8, (1002, 0.001): 1.9})[key]

    plan = plan_of()
    results = run_to_the_end(plan, loss)
    tried, chosen = rates_tried(plan, results, "GRU")
    assert tried == pytest.approx([0.00316, 0.01, 0.0316, 0.001], rel=1e-3)
    assert chosen == pytest.approx(0.00316)  # 1.75 beside 1.85 and 1.95
    again = [
        plan.values(s, results)["optimizer.lr"] for s in plan.steps(results).values() if s.id.startswith("GRU/again")
    ]
    assert again == pytest.approx([0.01, 0.00316, 0.001], rel=1e-3)


def test_a_depth_that_is_better_with_one_seed_and_not_by_the_mean_of_two_is_not_chosen():
    config = complete("image/digits", "debug", ["--model.backbone=LSTM"])
    deep = Depth({"model.backbone.dim": 8, "model.backbone.depth": 8}, 8, 8, 100, 7, 0.01, None, None)
    plan = plan_of([Candidate("LSTM", config, depths=[deep]), Candidate("GRU", config)])

    def loss(second):
        def of(cell):
            is_deep = cell.config["model"]["backbone"]["depth"] == 8
            rate = abs(math.log(cell.config["optimizer"]["lr"] / 0.01))
            return rate + (1.0 if not is_deep else 0.5 if cell.config["seed"] == 1001 else second)

        return of

    for second, depth in ((2.0, config["model"]["backbone"]["depth"]), (1.2, 8)):
        results = run_to_the_end(plan, loss(second))
        assert plan.cell(plan.steps(results)["LSTM/seed-1"], results).config["model"]["backbone"]["depth"] == depth


def test_a_depth_is_chosen_if_it_is_better_than_the_recipes_at_the_same_rate_and_runs_are_of_that_size():
    config = complete("image/digits", "debug", ["--model.backbone=LSTM"])
    depths = [
        Depth({"model.backbone.dim": 8 * d, "model.backbone.depth": d}, 8 * d, d, 100 + d, 7, 0.01, None, None)
        for d in (1, 8)
    ]
    plan = plan_of([Candidate("LSTM", config, depths=depths), Candidate("GRU", config, depths=depths)])

    def loss(best):
        def of(cell):
            model = cell.config["model"]["backbone"]
            return abs(math.log(cell.config["optimizer"]["lr"] / 0.01)) + (model["depth"] != best)

        return of

    results = run_to_the_end(plan, loss(8))
    final = plan.cell(plan.steps(results)["GRU/seed-1"], results).config["model"]["backbone"]
    assert (final["dim"], final["depth"]) == (64, 8)
    measured = plan.cell(plan.steps(results)["measure"], results).config["GRU"]["model"]["backbone"]
    assert (measured["dim"], measured["depth"]) == (64, 8)
    results = run_to_the_end(plan, loss(config["model"]["backbone"]["depth"]))
    assert plan.cell(plan.steps(results)["GRU/seed-1"], results).config["model"] == config["model"]


def test_warm_up_keeps_its_share_of_a_shorter_training():
    config = complete("image/digits", "debug", {"schedule.warmup_steps": 20})
    plan = plan_of([Candidate("LSTM", config), Candidate("GRU", config)])
    assert plan.cell(plan.steps({})["GRU/lr-1"], {}).config["schedule"]["warmup_steps"] == 5
    results = run_to_the_end(plan)
    assert plan.cell(plan.steps(results)["GRU/seed-1"], results).config["schedule"]["warmup_steps"] == 20


# ── what is chosen ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_failed_trials_are_passed_over_and_without_any_the_recipes_rate_stays():
    plan = plan_of()
    results = ended(plan)
    results["GRU/lr-3"] = {"error": "diverged"}
    assert plan.values(plan.steps({})["GRU/seed-1"], results)["optimizer.lr"] == pytest.approx(0.00316)
    everything = {key: {"error": "diverged"} for key in plan.steps({})}
    assert plan.values(plan.steps({})["GRU/seed-1"], everything) == {}


def test_dropout_is_tried_at_the_best_learning_rate_for_every_candidate_that_has_one():
    plan = plan_of(dropout_trials=2)
    results = ended(plan)
    results["LSTM/lr-2"] = {"metrics": {"loss": 0.5}}
    values = plan.values(plan.steps({})["LSTM/dropout-2"], results)
    assert values["optimizer.lr"] == pytest.approx(0.01)
    assert values["model.dropout"] == values["model.backbone.dropout"] == 0.1


@pytest.mark.parametrize(("loss", "chosen"), [(9.0, None), (0.1, 0.0)])
def test_a_dropout_that_is_worse_than_the_recipes_is_not_chosen(loss, chosen):
    plan = plan_of(dropout_trials=1)
    results = ended(plan)
    for key in [key for key in results if "/lr-" in key or "/again-" in key]:
        results[key] = {"metrics": {"loss": 2.0}}
    for key in [key for key in results if "/dropout-" in key]:
        results[key] = {"metrics": {"loss": loss}}
    assert plan.values(plan.steps({})["LSTM/seed-1"], results).get("model.dropout") == chosen


def test_at_matched_time_a_slower_candidate_takes_fewer_steps():
    plan = plan_of(match="time")
    results = {"measure": {"costs": {"LSTM": {"step_seconds": 0.1}, "GRU": {"step_seconds": 0.4}}}}
    assert plan.cell(plan.steps({})["GRU/lr-1"], results).config["trainer"]["max_steps"] == round(10 * 0.25)
    results |= ended(plan)
    final = plan.cell(plan.steps({})["GRU/seed-1"], results)
    assert final.config["trainer"]["max_steps"] == 10
    assert plan.cell(plan.steps({})["LSTM/seed-1"], results).config["trainer"]["max_epochs"] == 1


def test_two_candidates_never_share_a_folder():
    config = complete("image/digits", "debug")
    with pytest.raises(UsageError, match="share a folder"):
        plan_of([Candidate("a b", config), Candidate("a-b", config)])


def test_each_optimizer_has_a_grid_of_its_own_and_the_best_trial_brings_its_optimizer():
    config = complete("image/digits", "debug", ["--model.backbone=LSTM"])
    adamw = complete("image/digits", "debug", ["--optimizer=AdamW", "--optimizer.lr=0.003"])["optimizer"]
    both = [Candidate(name, config, optimizers=[config["optimizer"], adamw]) for name in ("LSTM", "GRU")]
    plan = plan_of(both)
    tried = [plan.values(plan.steps({})[f"LSTM/lr-{i}"], {}) for i in range(1, 7)]
    assert [values["optimizer.type"] for values in tried] == ["Muon"] * 3 + ["AdamW"] * 3
    assert [values["optimizer.lr"] for values in tried] == pytest.approx(
        [0.00316, 0.01, 0.0316, 0.000949, 0.003, 0.00949]
    )
    cell = plan.cell(plan.steps({})["LSTM/lr-6"], {})
    assert cell.config["optimizer"] == {**adamw, "lr": 0.00949}
    results = ended(plan)
    results["GRU/lr-4"] = {"metrics": {"loss": 0.5}}
    final = plan.cell(plan.steps({})["GRU/seed-1"], results)
    assert final.config["optimizer"] == {**adamw, "lr": 0.000949}
    assert plan.cell(plan.steps({})["LSTM/seed-1"], results).config["optimizer"]["type"] == "Muon"
