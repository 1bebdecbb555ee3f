"""Short trainings are the recipe's own; their figures are what a formula says."""

import csv
import math

import pytest
import torch
from torch.testing import assert_close

from seqkit.config import complete
from seqkit.doctor import trials as module
from seqkit.doctor.trials import Trials, rates_in
from seqkit.runs.run import run

PLAIN = ["--schedule", "{type: Constant, warmup_steps: 0}", "--optimizer", "{type: AdamW, lr: 0.003}"]
QUIET = ["--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"]


@pytest.mark.slow
def test_a_short_training_is_how_fit_begins(subject, tmp_path):
    words = [*PLAIN, *QUIET, "--trainer.max_epochs", "1", "--trainer.log_every_n_steps", "1"]
    words += ["--data.batch_size", "13", "--data.augment", "null"]
    run(complete("image/digits", "debug", words), tmp_path / "run")
    with (tmp_path / "run" / "metrics.csv").open() as file:
        theirs = [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]
    ours = Trials(subject("image/digits", *words[:-2])).short.losses
    assert len(theirs) >= 12
    assert_close(ours[:12], theirs[:12], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_nothing_that_is_tried_changes_the_model(subject):
    made = subject("mechanism/copy")
    before = {name: p.clone() for name, p in made.model.named_parameters()}
    trials = Trials(made)
    assert trials.short.losses
    assert trials.overfit.factor == 1.0
    assert trials.update_ratios
    for name, p in made.model.named_parameters():
        assert torch.equal(p, before[name])
        assert p.grad is None


def test_a_short_training_repeats_bit_for_bit(subject):
    made = subject("mechanism/copy", "--model.backbone.dropout", "0.3")
    first = Trials(made).short.losses
    torch.rand(7)
    assert Trials(made).short.losses == first


@pytest.mark.parametrize(
    ("schedule", "peak", "warmup"),
    [
        ("{type: Constant, warmup_steps: 0}", 0.002, 0),
        ("{type: Constant, warmup_steps: 7}", 0.002, 7),
        ("{type: Cosine, warmup_steps: 5}", 0.002, 5),
        ("{type: torch.optim.lr_scheduler.OneCycleLR, max_lr: 0.5, total_steps: 60}", 0.5, 15),
    ],
)
def test_the_plan_is_the_schedules_peak_and_when_it_comes(subject, schedule, peak, warmup):
    words = ["--optimizer", "{type: AdamW, lr: 0.002}", "--schedule", schedule, "--trainer.max_epochs", "60"]
    plan = Trials(subject("mechanism/copy", *words)).plan
    assert plan.peaks == pytest.approx([peak] * 2, rel=1e-3)
    assert plan.warmup_steps == warmup


def test_the_first_update_of_adam_is_its_learning_rate_in_every_place(subject):
    trials = Trials(subject("mechanism/parity", *PLAIN, "--optimizer.weight_decay", "0"))
    ((rate, ratio),) = trials.update_ratios  # of the group of matrices; the other has none
    matrices = [p.detach() for p in trials.subject.model.parameters() if p.ndim >= 2]
    shares = [rate * math.sqrt(p.numel()) / float(p.norm()) for p in matrices]
    assert 0.8 * min(shares) < ratio < max(shares)  # where gradients are tiny, Adam's epsilon makes it less


def test_branches_that_start_at_zero_have_updates_too(subject):
    ratios = [ratio for _, ratio in Trials(subject("text/char-lm")).update_ratios]
    assert len(ratios) == 2
    assert 0.01 < min(ratios) <= max(ratios) < 0.2


@pytest.mark.slow
def test_a_training_that_diverges_ends_at_once(subject):
    trials = Trials(subject("mechanism/copy", "--optimizer", "{type: torch.optim.SGD, lr: 1.0e+30}"))
    assert not trials.short.is_finite
    assert len(trials.short.losses) < 10


@pytest.mark.parametrize(("warmup", "reached"), [(0, 0), (7, 6), (1000, -1)])
def test_a_long_warm_up_is_shortened_to_the_training(subject, monkeypatch, warmup, reached):
    rates = []
    step = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: (rates.append(self.param_groups[0]["lr"]), step(self)))
    schedule = f"{{type: Constant, warmup_steps: {warmup}}}"
    trials = Trials(subject("mechanism/copy", "--schedule", schedule, "--trainer.max_epochs", "1200"))
    assert trials.plan.peaks[0] == pytest.approx(0.003, rel=1e-3)
    rates.clear()
    assert trials.short.losses
    assert rates.index(max(rates)) == pytest.approx(reached % module.NUM_BATCHES, abs=1)
    assert max(rates) == pytest.approx(0.003, rel=1e-3)


def test_every_learning_rate_of_an_optimizer_has_its_key():
    config = complete("image/digits")["optimizer"]
    assert rates_in(config) == [("optimizer.lr", 0.01), ("optimizer.adamw.lr", 0.003)]
