"""Faults of a training's first steps are found, each by its own check."""

import pytest

from seqkit.config import complete
from seqkit.doctor import training
from seqkit.doctor.training import (
    check_attention,
    check_gradients,
    check_learning_rate,
    check_overfitting,
    check_stability,
    check_start,
    check_trained_parameters,
    check_warmup,
)
from seqkit.doctor.trials import MIN_RATIO, Trials, rates_in

TEMPERATURE = "--model.backbone.block.attention.mechanism.temperature"
SLOW = ["--schedule.warmup_steps", "0"]
POST_NORM = ["--model.backbone.block", "PostNormBlock"]


@pytest.mark.parametrize(
    ("recipe", "words", "check", "problem", "fix"),
    [
        ("mechanism/copy", ["--optimizer.lr", "0.3"], check_learning_rate, "1561", "--optimizer.lr 0.001"),
        pytest.param(
            "mechanism/copy",
            [*SLOW, "--optimizer.lr", "0.00003"],
            check_learning_rate,
            "1 steps are planned",
            "--optimizer.lr 0.001",
            marks=pytest.mark.slow,
        ),
        ("image/digits", [*POST_NORM, "--schedule.warmup_steps", "0"], check_warmup, "4 post-norm", "warmup_steps 2"),
        ("image/digits", [TEMPERATURE, "0.001"], check_attention, "0.00", f"{TEMPERATURE} null (now 0.001)"),
        ("image/digits", [TEMPERATURE, "4000"], check_attention, "plain mean", f"{TEMPERATURE} null (now 4000)"),
        ("image/digits", ["--model.backbone", "FreezesALayer"], check_trained_parameters, "blocks.1", "FreezesALayer"),
        ("image/digits", ["--model.backbone", "DetachesALayer"], check_trained_parameters, "no gradient", "Detaches"),
        ("image/digits", ["--optimizer", "ForgetsALayer"], check_trained_parameters, "did not change", "ForgetsALayer"),
        (
            "image/digits",
            ["--model.backbone", "{type: Vanishes, dim: 64, depth: 8}", "--model.backbone.depth", "8"],
            check_gradients,
            "backbone.layers.0",
            "PreNormBlock",
        ),
        ("image/digits", ["--model.backbone", "Explodes"], check_gradients, "median norm", "--optimizer.lr"),
        ("image/digits", ["--model.backbone", "Explodes"], check_start, "the initial loss", "--model.backbone.norm"),
    ],
)
def test_a_fault_of_training_is_found(subject, recipe, words, check, problem, fix):
    result = check(Trials(subject(recipe, *words)))
    assert problem in result.finding.problem
    assert fix in result.finding.fix


@pytest.mark.slow
def test_a_learning_rate_a_hundred_times_too_low_is_found(subject):
    rates = rates_in(complete("graph/karate", "debug")["optimizer"])
    words = [word for key, rate in rates for word in (f"--{key}", f"{rate / 100:g}")]
    trials = Trials(subject("graph/karate", *words))
    assert "too low" in check_learning_rate(trials).finding.cause
    assert check_overfitting(trials).finding is None


@pytest.mark.slow
def test_a_low_learning_rate_is_enough_for_a_long_training(subject):
    words = ["--optimizer.lr", "0.00003", *SLOW, "--trainer.max_epochs", "100000"]
    assert not Trials(subject("graph/karate", *words)).is_timid


@pytest.mark.slow
def test_a_rate_that_is_low_for_other_optimizers_is_not_called_low_if_a_higher_one_learns_no_better(subject):
    words = ["--optimizer", "{type: torch.optim.SGD, lr: 0.05}", *SLOW]
    trials = Trials(subject("graph/karate", *words))
    assert max(ratio for _, ratio in trials.update_ratios) < MIN_RATIO
    assert check_learning_rate(trials).finding is None


@pytest.mark.slow
def test_examples_that_cannot_be_told_apart_are_not_overfitted(subject, monkeypatch):
    monkeypatch.setattr("seqkit.doctor.trials.FACTORS", (1.0,))
    finding = check_overfitting(Trials(subject("image/digits", "--tokenizer", "Constant"))).finding
    assert "cannot be learned" in finding.problem
    assert "--tokenizer" in finding.fix


def test_a_loss_that_rises_is_found(subject):
    trials = Trials(subject("mechanism/copy"))
    trials.short.losses[-8:] = [8.0] * 8
    assert "rises" in check_stability(trials).finding.problem


@pytest.mark.parametrize(("spikes", "found"), [([8], False), ([8, 11, 14, 17], True)])
def test_a_loss_that_jumps_again_and_again_is_found(subject, spikes, found):
    trials = Trials(subject("mechanism/copy"))
    trials.short.losses[:] = [2.3 - 0.02 * step for step in range(20)]  # a steeper fall hides the later jumps
    for step in spikes:
        trials.short.losses[step] = 9.0
    result = check_stability(trials)
    assert f"{len(spikes)} spikes" in result.measured
    assert (result.finding is not None) is found
    if found:
        assert "jumps 4 times, first in step 8" in result.finding.problem
        assert "--schedule.warmup_steps" in result.finding.fix
        assert "gradient_clip_val" not in result.finding.fix  # it is set


def test_a_loss_or_gradient_that_is_not_finite_is_found(subject):
    trials = Trials(subject("mechanism/copy"))
    trials.short.losses[-1] = float("nan")
    assert "not finite" in check_stability(trials).finding.problem
    trials.short.norms[-1] = float("inf")
    assert check_gradients(trials).finding is not None


def test_a_loss_that_starts_too_low_is_found(subject, monkeypatch):
    trials = Trials(subject("mechanism/copy"))
    monkeypatch.setattr(training, "evaluate", lambda *_: 0.1)
    assert "part of the input" in check_start(trials).finding.cause


def test_what_a_wild_learning_rate_does_is_not_blamed_on_the_model(subject):
    trials = Trials(subject("image/digits", "--optimizer.lr", "1.0", "--optimizer.adamw.lr", "0.3"))
    assert check_learning_rate(trials).finding is not None
    assert check_stability(trials).finding is None
    assert check_attention(trials).finding is None


def test_warm_up_of_a_hundredth_is_enough_for_post_norm(subject):
    words = [*POST_NORM, "--schedule.warmup_steps", "3", "--trainer.max_epochs", "null"]
    assert check_warmup(Trials(subject("image/digits", *words, "--trainer.max_steps", "300"))).finding is None
    finding = check_warmup(Trials(subject("image/digits", *words, "--trainer.max_steps", "1000"))).finding
    assert "--schedule.warmup_steps 40" in finding.fix


@pytest.mark.slow
def test_a_model_whose_steps_cost_too_much_is_not_trained(subject, monkeypatch):
    monkeypatch.setattr("seqkit.doctor.trials.STEP_FLOPS", 1e3)
    trials = Trials(subject("mechanism/copy"))
    for check in (check_trained_parameters, check_learning_rate, check_overfitting, check_gradients, check_stability):
        result = check(trials)
        assert (result.finding, result.applies) == (None, False)


def test_a_recurrent_network_has_no_attention(subject):
    assert not check_attention(Trials(subject("mechanism/parity"))).applies
