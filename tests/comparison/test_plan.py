"""The plan: which cells there are, what each needs, and that all candidates are tuned alike."""

import pytest

from seqkit.comparison.candidates import Candidate
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
    return {key: {"metrics": {"loss": loss}} for key, step in plan.steps.items() if step.kind in kinds}


def run_to_the_end(plan):
    """Ids in an order in which they became ready."""
    results, order = {}, []
    while ready := plan.ready(results):
        order += [step.id for step in ready]
        for step in ready:
            plan.cell(step, results)
            results[step.id] = {"metrics": {"loss": 1.0}, "costs": {}}
    return order


@pytest.mark.parametrize("match", ["parameters", "time"])
def test_every_step_becomes_ready_after_what_it_needs(match):
    plan = plan_of(match=match, dropout_trials=2)
    order = run_to_the_end(plan)
    assert sorted(order) == sorted(plan.steps)
    assert order.index("LSTM/lr-3") < order.index("LSTM/dropout-1") < order.index("LSTM/seed-1")
    assert (order[0] == "measure") == (match == "time")
    assert (order[-1] == "measure") == (match == "parameters")


def test_all_candidates_get_the_same_factors_of_their_learning_rate():
    plan = plan_of(lr_trials=5)
    for name in ("LSTM", "GRU"):
        rates = [plan.values(plan.steps[f"{name}/lr-{i}"], {})["optimizer.lr"] for i in range(1, 6)]
        assert rates == pytest.approx([0.001, 0.00316, 0.01, 0.0316, 0.1])
        nested = [plan.values(plan.steps[f"{name}/lr-{i}"], {})["optimizer.adamw.lr"] for i in range(1, 6)]
        assert nested == pytest.approx([0.0003, 0.000949, 0.003, 0.00949, 0.03], rel=1e-3)


def test_a_trial_is_short_has_one_seed_and_its_rate_and_the_best_one_trains():
    plan = plan_of()
    cell = plan.cell(plan.steps["LSTM/lr-1"], {})
    assert cell.kind == "trial"
    assert cell.config["trainer"]["max_steps"] == 10
    assert cell.config["optimizer"]["lr"] == pytest.approx(0.00316)
    results = ended(plan)
    results["GRU/lr-3"] = {"metrics": {"loss": 0.5}}
    final = plan.cell(plan.steps["GRU/seed-2"], results)
    assert final.config["optimizer"]["lr"] == pytest.approx(0.0316)
    assert final.config["seed"] == 2
    assert final.config["trainer"]["val_check_interval"] == 5


def test_every_trial_has_the_first_seed_and_each_run_its_own_whatever_the_recipe_says():
    config = complete("image/digits", "debug", {"seed": 7})
    plan = plan_of([Candidate("LSTM", config), Candidate("GRU", config)], dropout_trials=2, seeds=3)
    results = ended(plan)
    seeds = {kind: [plan.cell(s, results).config["seed"] for s in plan.steps.values() if s.kind == kind]
             for kind in ("trial", "seed")}  # fmt: skip
    assert seeds == {"trial": [1] * 10, "seed": [1, 2, 3] * 2}


def test_failed_trials_are_passed_over_and_without_any_the_recipes_rate_stays():
    plan = plan_of()
    results = ended(plan)
    results["GRU/lr-3"] = {"error": "diverged"}
    assert plan.values(plan.steps["GRU/seed-1"], results)["optimizer.lr"] == pytest.approx(0.00316)
    everything = {key: {"error": "diverged"} for key in plan.steps}
    assert plan.values(plan.steps["GRU/seed-1"], everything) == {}


def test_dropout_is_tried_at_the_best_learning_rate_for_every_candidate_that_has_one():
    plan = plan_of(dropout_trials=2)
    results = ended(plan)
    results["LSTM/lr-2"] = {"metrics": {"loss": 0.5}}
    values = plan.values(plan.steps["LSTM/dropout-2"], results)
    assert values["optimizer.lr"] == pytest.approx(0.01)
    assert values["model.dropout"] == values["model.backbone.dropout"] == 0.1


def test_at_matched_time_a_slower_candidate_takes_fewer_steps():
    plan = plan_of(match="time")
    results = {"measure": {"costs": {"LSTM": {"step_seconds": 0.1}, "GRU": {"step_seconds": 0.4}}}}
    assert plan.cell(plan.steps["GRU/lr-1"], results).config["trainer"]["max_steps"] == round(10 * 0.25)
    results |= ended(plan)
    final = plan.cell(plan.steps["GRU/seed-1"], results)
    assert final.config["trainer"]["max_steps"] == 10
    assert plan.cell(plan.steps["LSTM/seed-1"], results).config["trainer"]["max_epochs"] == 1


def test_two_candidates_never_share_a_folder():
    config = complete("image/digits", "debug")
    with pytest.raises(UsageError, match="share a folder"):
        plan_of([Candidate("a b", config), Candidate("a-b", config)])


def test_each_optimizer_has_a_grid_of_its_own_and_the_best_trial_brings_its_optimizer():
    config = complete("image/digits", "debug", ["--model.backbone=LSTM"])
    adamw = complete("image/digits", "debug", ["--optimizer=AdamW", "--optimizer.lr=0.003"])["optimizer"]
    both = [Candidate(name, config, optimizers=[config["optimizer"], adamw]) for name in ("LSTM", "GRU")]
    plan = plan_of(both)
    tried = [plan.values(plan.steps[f"LSTM/lr-{i}"], {}) for i in range(1, 7)]
    assert [values["optimizer.type"] for values in tried] == ["Muon"] * 3 + ["AdamW"] * 3
    assert [values["optimizer.lr"] for values in tried] == pytest.approx(
        [0.00316, 0.01, 0.0316, 0.000949, 0.003, 0.00949]
    )
    cell = plan.cell(plan.steps["LSTM/lr-6"], {})
    assert cell.config["optimizer"] == {**adamw, "lr": 0.00949}
    results = ended(plan)
    results["GRU/lr-4"] = {"metrics": {"loss": 0.5}}
    final = plan.cell(plan.steps["GRU/seed-1"], results)
    assert final.config["optimizer"] == {**adamw, "lr": 0.000949}
    assert plan.cell(plan.steps["LSTM/seed-1"], results).config["optimizer"]["type"] == "Muon"
