"""The learner in a real trainer: sums and counts, divergence, evaluation that repeats."""

import math
import warnings
from dataclasses import replace
from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from torch.testing import assert_close

from seqkit.backbones import GRU, RecurrentDecoder, Seq2Seq, Transformer
from seqkit.contract import IGNORE, TokenBatch, Tokens, TokenSpec
from seqkit.data.batches import collate_labels
from seqkit.layers.block import Block
from seqkit.layers.experts import MixtureOfExperts
from seqkit.learner import DivergedError, Learner
from seqkit.model import Model
from seqkit.objectives import Classify, Masked, NextToken, Regress, Translate
from seqkit.optim import AdamW, Constant, Cosine, OptimizerPart
from seqkit.tokenizers import Characters


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


def experts(balance):
    """A learner of two layers of experts, all of whose weights a single step moves."""
    torch.manual_seed(0)
    mlp = partial(MixtureOfExperts, num_experts=3, balance=balance)
    backbone = Transformer(12, 2, num_heads=3, causal=True, block=partial(Block, mlp=mlp))
    objective = NextToken()
    return Learner(Model(TokenSpec(vocab_size=7), backbone, objective), objective, optimizer=SGD())


def test_what_experts_add_to_the_loss_weighs_as_its_mean():
    batch, _ = texts(7, 3)
    ours, twin, without = experts(0.7), experts(0.7), experts(0.0)
    trainer().fit(ours, Loader((batch, None)))
    trainer().fit(without, Loader((batch, None)))
    task = twin.objective.prepare(batch, None)
    score = twin.objective.score(twin.model(task.batch), task.target)
    extra = sum(block.mlp.extra_loss() for block in twin.model.backbone.blocks)
    (score.loss / score.count + extra).backward()
    for name, p in twin.model.named_parameters():
        assert_close(ours.model.get_parameter(name), p - 0.5 * p.grad, rtol=0, atol=1e-6, msg=name)
    router = "backbone.blocks.0.mlp.router.weight"
    assert (ours.model.get_parameter(router) - without.model.get_parameter(router)).abs().max() > 1e-4


def test_figures_of_several_layers_are_logged_as_their_mean():
    ours, batch = experts(0.7), texts(7, 3)
    runner = trainer()
    runner.fit(ours, Loader(batch))
    layers = [block.mlp.statistics() for block in ours.model.backbone.blocks]
    assert layers[0] != layers[1]
    for name in ("router_load_max", "router_load_min", "router_entropy", "router_balance"):
        got = float(runner.callback_metrics[f"train/{name}"])
        assert got == pytest.approx((layers[0][name] + layers[1][name]) / 2)


def test_evaluation_reports_the_objective_without_what_experts_add():
    one, other = experts(0.7), experts(0.0)
    reported = [trainer().validate(x, Loader(texts(5, 3)), verbose=False)[0] for x in (one, other)]
    assert reported[0] == reported[1]


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


def test_what_is_written_freely_is_measured_and_answered():
    letters = Characters("abc")
    objective = Translate(Characters("xyz"), tied=False)
    objective.fit(["xy", "zzx"], None)
    model = Model(letters.spec, Seq2Seq(GRU(12, 1), RecurrentDecoder(12)), objective)
    model.head.linear.bias.data[objective.begin :] = -100.0  # it was never trained, and should say something
    batch = TokenBatch.collate([letters.encode(word) for word in ("cab", "a", "bbc")])
    written = objective.predict(model.eval(), batch)
    said = objective.answer(written)
    assert list(map(len, said)) == [3, 3, 3]
    labels = [objective.encode_label(label) for label in ([said[0], "zzzzz"], "x" + said[1], "y" * 7)]
    ours, data = Learner(model, objective), Loader((batch, collate_labels(labels)))
    (got,) = trainer().test(ours, data, verbose=False)
    assert got["test/sequence_error"] == pytest.approx(2 / 3)
    wrong = 1 + 7 - said[2].count("y")
    assert got["test/token_error"] == pytest.approx(wrong / (3 + 4 + 7))
    assert {"test/loss", "test/accuracy"} < set(got)
    assert trainer().predict(ours, data) == [said]


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
