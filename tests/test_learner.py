"""The learner in a real trainer: sums and counts, divergence, evaluation that repeats."""

import math
import warnings
from dataclasses import replace

import pytest
import pytorch_lightning as pl
import torch
from torch.testing import assert_close

from seqkit.backbones import GRU
from seqkit.contract import IGNORE, TokenBatch, Tokens, TokenSpec
from seqkit.learner import DivergedError, Learner
from seqkit.model import Model
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.optim import AdamW, Constant, Cosine, OptimizerPart


class SGD(OptimizerPart):
    """Plain, so that a wrong scale of gradients is not normalised away as Adam does."""

    def __init__(self, lr=0.5):
        self.lr = lr

    def build(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.lr)


def texts(*lengths, seed=0):
    g = torch.Generator().manual_seed(seed)
    tokens = [Tokens(torch.randint(7, (n,), generator=g), torch.arange(float(n))[:, None]) for n in lengths]
    return TokenBatch.collate(tokens), None


def learner(objective=None, **settings):
    torch.manual_seed(0)
    objective = objective or NextToken()
    model = Model(TokenSpec(vocab_size=7), GRU(12, 1, causal=bool(objective.causal)), objective)
    return Learner(model, objective, **{"optimizer": SGD(), **settings})


def trainer(**settings):
    return pl.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_epochs": 1, **settings},
    )


class Loader:
    """Batches in a row; Lightning takes a plain list for several loaders."""

    def __init__(self, *batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


@pytest.fixture(autouse=True)
def _quiet():
    """What Lightning 2.6.6 says about torch 2.11, and its advice on intervals and loaders, is no fault of ours."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*", category=FutureWarning)
        warnings.filterwarnings("ignore", message=r".*(log_every_n_steps|no `val_dataloader`).*")
        yield


def weights_after(batches, **settings):
    ours = learner()
    trainer(**settings).fit(ours, Loader(*batches))
    return ours.model.state_dict()


MICRO = [[11, 2], [3, 2], [2], [13, 7, 5], [5]]  # unequal on purpose; the last step has one micro-batch only


def micro_and_whole():
    micro = [texts(*lengths, seed=i) for i, lengths in enumerate(MICRO)]
    whole = []
    for i in range(0, len(MICRO), 2):
        parts = [
            Tokens(batch.content[row, :n], batch.positions[row, :n])
            for (batch, _), lengths in zip(micro[i : i + 2], MICRO[i : i + 2])
            for row, n in enumerate(lengths)
        ]
        whole.append((TokenBatch.collate(parts), None))
    return micro, whole


@pytest.mark.parametrize("clip", [None, 0.01])
def test_accumulated_micro_batches_give_the_weights_of_one_big_batch(clip):
    micro, whole = micro_and_whole()
    right = weights_after(whole, gradient_clip_val=clip)
    got = weights_after(micro, accumulate_grad_batches=2, gradient_clip_val=clip)
    before = learner().model.state_dict()
    for name in right:
        assert_close(got[name], right[name], rtol=0, atol=1e-6, msg=name)
    assert max(float((right[name] - before[name]).abs().max()) for name in right) > 1e-3


def test_a_mean_of_means_would_be_noticed(monkeypatch):
    micro, whole = micro_and_whole()
    right = weights_after(whole)

    def means(self, batch, index):
        task = self.objective.prepare(*batch)
        score = self.objective.score(self.model(task.batch), task.target)
        return score.loss / score.count

    monkeypatch.setattr(Learner, "training_step", means)
    monkeypatch.setattr(Learner, "on_before_optimizer_step", lambda self, optimizer: None)
    got = weights_after(micro, accumulate_grad_batches=2)
    assert max(float((got[name] - right[name]).abs().max()) for name in right) > 1e-3


def test_one_step_is_the_gradient_of_the_mean_loss():
    batch, _ = texts(7, 3)
    ours, twin = learner(), learner()
    trainer().fit(ours, Loader((batch, None)))
    task = twin.objective.prepare(batch, None)
    score = twin.objective.score(twin.model(task.batch), task.target)
    (score.loss / score.count).backward()
    for name, p in twin.model.named_parameters():
        assert_close(ours.model.get_parameter(name), p - 0.5 * p.grad, rtol=0, atol=1e-6, msg=name)
    assert ours.tokens_seen == task.batch.num_tokens


def test_a_loss_that_is_no_number_stops_the_run_and_leaves_the_weights():
    objective = Regress()
    objective.fit([0.0, 2.0], None)
    model = Model(TokenSpec(num_features=2), GRU(12, 1), objective)
    ours = Learner(model, objective, optimizer=AdamW())
    batch = TokenBatch.collate([Tokens(torch.randn(3, 2), torch.zeros(3, 1))])
    good, bad = (batch, torch.tensor([1.0])), (batch, torch.tensor([math.inf]))
    runner = trainer()
    with pytest.raises(DivergedError, match=r"the loss is inf in step 1 \(batch 1 of epoch 0\); lower"):
        runner.fit(ours, Loader(good, bad, good))
    assert runner.global_step == 1
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_evaluation_repeats_exactly_and_leaves_the_random_numbers_alone():
    ours, batches = learner(Masked(fraction=0.4)), Loader(texts(11, 7, seed=1), texts(13, seed=2))
    torch.manual_seed(5)
    after = torch.rand(3)
    torch.manual_seed(5)
    first = trainer().validate(ours, batches, verbose=False)
    assert torch.rand(3).equal(after)
    torch.manual_seed(6)
    assert trainer().validate(ours, batches, verbose=False) == first
    other = Learner(ours.model, ours.objective, seed=1)
    assert trainer().validate(other, batches, verbose=False) != first


def test_evaluation_weighs_every_prediction_alike():
    ours, batches = learner(), Loader(texts(11, 2), texts(3, seed=1))
    (got,) = trainer().test(ours, batches, verbose=False)
    loss = count = right = 0
    ours.eval()
    with torch.no_grad():
        for batch, label in batches:
            task = ours.objective.prepare(batch, label)
            score = ours.objective.score(ours.model(task.batch), task.target)
            loss, count = loss + float(score.loss), count + int(score.count)
            right += int((score.predicted == score.truth).sum())
    assert got["test/loss"] == pytest.approx(loss / count, rel=1e-5)
    assert got["test/accuracy"] == pytest.approx(right / count)


def test_a_batch_without_any_target_changes_no_measure():
    objective = Classify()
    objective.fit([0, 1], None)
    ours = Learner(Model(TokenSpec(vocab_size=7), GRU(12, 1), objective), objective)
    (batch, _), nothing = texts(5, 3), torch.full((2,), IGNORE)
    known = (batch, torch.tensor([0, 1]))
    right = trainer().test(ours, Loader(known), verbose=False)
    assert trainer().test(ours, Loader(known, (batch, nothing)), verbose=False) == right


def test_the_rate_follows_the_schedule_step_by_step():
    ours, rates = learner(optimizer=SGD(0.5), schedule=Cosine(warmup_steps=2, floor=0.2), num_steps=5), []

    class Watch(pl.Callback):
        def on_before_optimizer_step(self, trainer, module, optimizer):
            rates.append(optimizer.param_groups[0]["lr"])

    trainer(callbacks=[Watch()]).fit(ours, Loader(*(texts(5, seed=i) for i in range(5))))
    assert rates == pytest.approx([0.5 * Cosine(warmup_steps=2, floor=0.2).factor(step, 5) for step in range(5)])


def test_answers_are_in_the_users_words():
    objective = Classify()
    objective.fit([0, 1], ["no", "yes"])
    ours = Learner(Model(TokenSpec(vocab_size=7), GRU(12, 1), objective), objective)
    (got,) = trainer().predict(ours, Loader(texts(5, 3)))
    ours.eval()
    assert got == objective.answer(ours.model(texts(5, 3)[0]).detach())
    assert set(got) <= {"no", "yes"}


def test_training_without_an_optimiser_is_refused():
    with pytest.raises(ValueError, match="built without an optimizer, for evaluation only"):
        learner(optimizer=None).configure_optimizers()
    assert isinstance(learner(schedule=None).configure_optimizers(), torch.optim.SGD)
    assert set(learner(schedule=Constant()).configure_optimizers()) == {"optimizer", "lr_scheduler"}


def test_padding_more_changes_no_loss():
    ours, (batch, _) = learner(), texts(5, 3)
    wider = replace(
        batch,
        content=torch.nn.functional.pad(batch.content, [0, 4]),
        positions=torch.nn.functional.pad(batch.positions, [0, 0, 0, 4]),
        valid=torch.nn.functional.pad(batch.valid, [0, 4]),
    )
    one, other = (trainer().validate(ours, Loader((x, None)), verbose=False)[0] for x in (batch, wider))
    assert one == pytest.approx(other, rel=1e-6)
