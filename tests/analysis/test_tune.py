"""A learning rate and a batch size are found, and nothing that was given has changed after it."""

import math
import random

import numpy as np
import pytest
import torch

from seqkit.analysis import tune
from seqkit.analysis.tune import BatchTrial, find_batch_size, find_learning_rate, points_of_a_decade, smooth, suggest
from seqkit.config import complete
from seqkit.errors import Interrupted, UsageError, is_out_of_memory
from seqkit.runs.prepare import prepare
from seqkit.training.interrupt import StopSignals
from seqkit.training.module import TrainingModule

SLOW = pytest.mark.slow
RECIPES = [pytest.param("text/char-lm", marks=SLOW), "image/digits", pytest.param("audio/spoken-digits", marks=SLOW),
           "graph/solubility"]  # fmt: skip
SMALL = ["--data.limit", "24", "--data.batch_size", "8", "--trainer.accelerator", "cpu"]
for size in ("dim 16", "depth 1", "num_heads 2"):
    SMALL += f"--model.backbone.{size}".split()
OPTIMIZERS = ["Muon"]
for optimizer in ("AdamW", "{type: torch.optim.SGD, lr: 0.01, momentum: 0.9}", "{type: torch.optim.Adafactor}"):
    OPTIMIZERS.append(pytest.param(optimizer, marks=SLOW))


def prepared(recipe="image/digits", *words):
    return prepare(complete(recipe, "debug", [*SMALL, *words]))


class Unchanged:
    """Everything that a training could change, before and after: weights, an optimizer over them, random numbers."""

    def __init__(self, given):
        self.given = given
        self.optimizer = torch.optim.AdamW(given.model.parameters(), lr=0.0)
        for parameter in given.model.parameters():
            parameter.grad = torch.full_like(parameter, 0.5)
        self.optimizer.step()
        self.before = self._all()

    def _all(self):
        parameters = list(self.given.model.parameters())
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        tensors = [*self.given.model.state_dict().values(), *(p.grad for p in parameters), *moments]
        numpy = np.random.get_state()  # noqa: NPY002
        plain = [random.getstate(), numpy[1].tolist(), numpy[2], [p.requires_grad for p in parameters],
                 [group["lr"] for group in self.optimizer.param_groups], self.given.model.training]  # fmt: skip
        return [tensor.clone() for tensor in (*tensors, torch.get_rng_state())], plain

    def check(self):
        tensors, plain = self._all()
        assert all(torch.equal(one, other) for one, other in zip(tensors, self.before[0], strict=True))
        assert plain == self.before[1]


# ── the rule ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def sweep(low=1e-6, high=10.0, num=100):
    return [low * (high / low) ** (i / (num - 1)) for i in range(num)]


@pytest.mark.parametrize("steepest", [1e-4, 3e-3, 0.1])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_the_rate_of_the_steepest_fall_is_suggested(steepest, noise):
    rates, generator = sweep(), random.Random(0)
    falling = [3 - 2 / (1 + math.exp(-4 * math.log10(rate / steepest))) for rate in rates]
    losses = [
        loss + noise * generator.gauss(0, 1) + max(0.0, math.log10(rate / steepest) - 1.5) ** 3
        for loss, rate in zip(falling, rates)
    ]
    assert suggest(rates, losses) == pytest.approx(steepest, rel=0.6)


def test_the_steepest_fall_may_be_right_at_the_lowest_point():
    rates = [1e-5 * 10 ** (i / 5) for i in range(25)]  # five a decade
    losses = [9 - i**2 / 50 for i in range(20)] + [30.0] * 5
    assert suggest(rates, losses) == rates[17]  # the middle of the last decade before the loss jumps


def test_nothing_is_suggested_where_the_loss_only_rises_or_is_noise():
    rates, generator = sweep(), random.Random(1)
    assert suggest(rates, [2.0 + max(0.0, math.log10(rate) + 2) for rate in rates]) is None
    assert suggest(rates, [2.0 + 0.1 * generator.gauss(0, 1) for _ in rates]) is None
    assert suggest(rates[:9], [2.0 - 0.1 * i for i in range(9)]) is None


def test_smoothing_leaves_a_straight_line_straight():
    assert points_of_a_decade(sweep()) == 15
    assert smooth([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 5)[2:5] == [2.0, 3.0, 4.0]


# ── learning rate ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_modality_gets_a_rate_and_nothing_has_changed(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = prepared(recipe)
    watch = Unchanged(given)
    curve = find_learning_rate(given, num_steps=40)
    watch.check()
    assert list(tmp_path.iterdir()) == []
    assert curve.suggestion is not None
    assert 1e-5 < curve.suggestion < 1


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["image/masked-patches", pytest.param("audio/spoken-digits", marks=SLOW)])
def test_the_same_seed_gives_the_same_curve(recipe):
    """With masks and dropout, and augmented sound: whatever a sweep draws."""
    words = [recipe, "--model.dropout", "0.3"]
    one = find_learning_rate(prepared(*words), num_steps=20)
    torch.manual_seed(11)
    again = find_learning_rate(prepared(*words), num_steps=20)
    assert (again.suggestion, again.initial, again.losses) == (one.suggestion, one.initial, one.losses)
    other = find_learning_rate(prepared(*words, "--seed", "7"), num_steps=20)
    assert other.losses != one.losses


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_gets_a_rate(optimizer):
    given = prepared("image/digits", "--optimizer", optimizer)
    watch = Unchanged(given)
    curve = find_learning_rate(given, num_steps=60)
    watch.check()
    assert curve.suggestion is not None
    assert curve.base == given.built.optimizer.build(given.model).param_groups[0]["lr"]


def test_the_initial_weights_are_measured_on_the_same_batches():
    curve = find_learning_rate(prepared("image/masked-patches"), num_steps=20, low=1e-12, high=1e-11)
    assert curve.losses == pytest.approx(curve.initial, rel=1e-6)
    assert len(set(curve.initial)) > 10
    assert curve.smoothed == pytest.approx([sum(curve.initial) / 20] * 20, rel=1e-6)


@pytest.mark.slow
def test_the_curve_is_a_training_with_these_rates(monkeypatch):
    seen, step = [], torch.optim.AdamW.step

    def noted(self, closure=None):
        seen.append([group["lr"] for group in self.param_groups])
        return step(self, closure)

    monkeypatch.setattr(torch.optim.AdamW, "step", noted)
    words = ["--optimizer", "AdamW", "--schedule.warmup_steps", "30", "--trainer.accumulate_grad_batches", "3"]
    curve = find_learning_rate(prepared("image/digits", *words), num_steps=20, high=1e-3)
    assert len(curve.losses) == 20
    assert seen == [[0.0] * 2] * 20 + [[rate] * 2 for rate in curve.rates]


def test_groups_keep_their_ratio(monkeypatch):
    seen, start = [], tune._Sweep.on_train_batch_end

    def noted(self, trainer, *rest):
        seen.append([group["lr"] for group in trainer.optimizers[0].param_groups])
        start(self, trainer, *rest)

    monkeypatch.setattr(tune._Sweep, "on_train_batch_end", noted)
    words = ["--optimizer", "{type: Muon, lr: 0.02, adamw: {lr: 0.005}}"]
    curve = find_learning_rate(prepared("image/digits", *words), num_steps=20, high=1e-3)
    assert curve.base == 0.02
    for rates, rate in zip(seen[20:], curve.rates, strict=True):
        assert rates == pytest.approx([rate, rate / 4, rate / 4])


@pytest.mark.slow
def test_a_sweep_that_diverges_ends_and_still_suggests():
    words = ["--optimizer", "{type: torch.optim.SGD, lr: 0.01}", "--trainer.gradient_clip_val", "null"]
    curve = find_learning_rate(prepared("image/digits", *words), num_steps=60, high=1e6)
    assert len(curve.losses) < 60
    assert "finite" in curve.ended or "lowest" in curve.ended
    assert curve.suggestion is not None


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        ([], {"low": 1.0, "high": 0.1}, "from 1 to 0.1"),
        ([], {"low": 0.0}, "above 0"),
        ([], {"num_steps": 3}, "20 or more"),
        (["--optimizer", "{type: AdamW, lr: 0.0}"], {}, r"give --optimizer\.lr above 0"),
        (["--trainer.strategy", "fsdp"], {}, r"--trainer\.strategy auto"),
    ],
)
def test_what_cannot_be_swept_is_refused(words, options, message):
    with pytest.raises(UsageError, match=message):
        find_learning_rate(prepared("image/digits", *words), **options)


# ── batch size ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def failing(monkeypatch):
    """Makes the training step of a batch of more than `most` examples raise an error."""
    step = TrainingModule.training_step

    def of(most, error):
        def failing_step(self, batch, index):
            if len(batch[0]) > most:
                raise error
            return step(self, batch, index)

        monkeypatch.setattr(TrainingModule, "training_step", failing_step)

    return of


OUT_OF_MEMORY = [
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    RuntimeError("not enough memory: you tried to allocate 4 bytes"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=str)
def test_every_lack_of_memory_is_known(error):
    assert is_out_of_memory(error)


@pytest.mark.slow
def test_out_of_memory_ends_the_search_and_leaves_everything_as_it_was(failing):
    failing(1, OUT_OF_MEMORY[1])
    given = prepared()
    watch = Unchanged(given)
    found = find_batch_size(given)
    watch.check()
    assert [trial.size for trial in found.trials] == [1]
    assert "batch_size 2" in found.ended
    assert found.suggestion == 1


def test_other_errors_are_not_taken_for_a_lack_of_memory(failing):
    failing(1, RuntimeError("shapes do not match"))
    given = prepared()
    watch = Unchanged(given)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        find_batch_size(given)
    watch.check()
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["audio/spoken-digits", "graph/solubility"])  # augmented; with edges
def test_a_modality_gets_a_batch_size_and_no_file_is_written(recipe, tmp_path, monkeypatch, failing):
    monkeypatch.chdir(tmp_path)
    failing(4, MemoryError())
    given = prepared(recipe)
    watch = Unchanged(given)
    found = find_batch_size(given)
    watch.check()
    assert list(tmp_path.iterdir()) == []
    assert found.suggestion in [trial.size for trial in found.trials]
    peaks = [trial.peak for trial in found.trials]
    assert peaks == sorted(peaks)


def test_where_no_batch_fits_none_is_suggested():
    assert find_batch_size(prepared(), available=1_000).suggestion is None


@pytest.mark.slow
def test_no_batch_is_tried_that_would_not_fit():
    given = prepared()
    peaks = {size: tune._try_batch(given, tune._settings(given), ("batch_size", size), None).peak for size in (8, 16)}
    available = (peaks[8] + peaks[16]) // 2
    found = find_batch_size(given, available=available)
    assert found.trials
    assert found.trials[-1].size <= 8
    assert "would take about" in found.ended or "no faster" in found.ended
    assert all(trial.peak <= available for trial in found.trials)


def test_a_batch_is_tried_on_the_longest_examples():
    given = prepared("graph/solubility")
    lengths = sorted(given.data.train_dataloader().examples.lengths)
    longest, usual = tune._batches(given.data, "batch_size", 5)
    assert sorted(longest[0].valid.sum(dim=1).tolist()) == lengths[-5:]
    assert all(len(tokens) == 5 for tokens, _ in usual)
    assert given.data.batch_size == 8


@pytest.mark.slow
def test_tokens_per_batch_are_doubled_where_they_bound_the_batch(failing):
    failing(11, MemoryError())
    given = prepared("graph/solubility", "--data.tokens_per_batch", "300")
    found = find_batch_size(given)
    longest = max(given.data.train_dataloader().examples.lengths)
    assert found.key == "tokens_per_batch"
    assert len(found.trials) > 1
    assert [trial.size for trial in found.trials] == [longest * 2**i for i in range(len(found.trials))]
    assert (given.data.tokens_per_batch, given.data.batch_size) == (300, 8)


@pytest.mark.parametrize(
    ("seconds", "ends"), [([8, 4, 2], False), ([8, 4, 4.1], False), ([8, 4, 4.1, 3.9], True), ([8, 4, 4.1, 3], False)]
)
def test_the_search_ends_after_two_doublings_that_are_no_faster(seconds, ends):
    trials = [BatchTrial(2**i, 2**i, float(each), 0.0, 0.0, 1) for i, each in enumerate(seconds)]
    assert tune._is_no_faster(trials) is ends


def test_a_signal_ends_it_at_once_and_leaves_nothing_behind(tmp_path, monkeypatch):
    import os
    import signal

    monkeypatch.chdir(tmp_path)
    given, signals = prepared(), StopSignals()
    watch, end = Unchanged(given), tune._Sweep.on_train_batch_end

    def interrupted(self, trainer, *rest):
        end(self, trainer, *rest)
        if trainer.global_step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(tune._Sweep, "on_train_batch_end", interrupted)
    with signals.installed(), pytest.raises(Interrupted, match="SIGINT"):
        find_learning_rate(given, signals=signals)
    watch.check()
    assert list(tmp_path.iterdir()) == []
