"""The training module in a real trainer: sums and counts, divergence, evaluation that repeats."""

import math
import warnings
from dataclasses import replace
from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins import MixedPrecision
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import GRU, EncoderDecoder, RNNDecoder, Transformer
from seqkit.data import batching
from seqkit.data.dataset import collate_targets
from seqkit.errors import DivergedError
from seqkit.interfaces import IGNORE, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.block import PreNormBlock
from seqkit.nn.moe import MixtureOfExperts
from seqkit.objectives import Classify, Masked, NextToken, Regress, Seq2Seq
from seqkit.tokenizers import Characters
from seqkit.training import module as training_module_file
from seqkit.training.module import TrainingModule, evaluation_rng
from seqkit.training.optim import AdamW, Constant, Cosine, Muon, OptimizerFactory


class SGD(OptimizerFactory):
    """Plain, so that a wrong scale of gradients is not normalised away as Adam does."""

    def __init__(self, lr=0.5):
        self.lr = lr

    def build(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.lr)


def ragged(*lengths, seed=0):
    g = torch.Generator().manual_seed(seed)
    tokens = [
        Tokens(torch.randint(7, (n,), generator=g), torch.arange(float(n))[:, None])
        for n in lengths
    ]
    return TokenBatch.collate(tokens), None


def training_module(objective=None, **settings):
    """In float64, in which every processor rounds far below what is compared."""
    torch.manual_seed(0)
    objective = objective or NextToken()
    model = Model(
        TokenSpec(vocab_size=7), GRU(12, 1, causal=bool(objective.causal)), objective
    ).double()
    return TrainingModule(model, objective, **{"optimizer": SGD(), **settings})


def trainer(**settings):
    return pl.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **{"max_epochs": 1, "log_every_n_steps": 1, **settings},
    )  # fmt: skip


class BatchLoader:
    """Batches in a row; Lightning takes a plain list for several loaders."""

    def __init__(self, *batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


@pytest.fixture(autouse=True)
def _ignore_advice():
    """Lightning 2.6.6 warns about torch 2.11, and advises on intervals and loaders; neither is ours to mend."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=r".*isinstance\(treespec, LeafSpec\).*", category=FutureWarning
        )
        warnings.filterwarnings("ignore", message=r".*(log_every_n_steps|no `val_dataloader`).*")
        yield


def weights_after(batches, **settings):
    ours = training_module()
    trainer(**settings).fit(ours, BatchLoader(*batches))
    return ours.model.state_dict()


# unequal on purpose; the last step has one micro-batch only
MICRO = [[11, 2], [3, 2], [2], [13, 7, 5], [5]]


def micro_and_whole():
    micro = [ragged(*lengths, seed=i) for i, lengths in enumerate(MICRO)]
    whole = []
    for i in range(0, len(MICRO), 2):
        examples = [
            Tokens(batch.content[row, :n], batch.positions[row, :n])
            for (batch, _), lengths in zip(micro[i : i + 2], MICRO[i : i + 2])
            for row, n in enumerate(lengths)
        ]
        whole.append((TokenBatch.collate(examples), None))
    return micro, whole


@pytest.mark.parametrize("clip", [None, 0.01])
def test_accumulated_micro_batches_give_the_weights_of_one_big_batch(clip):
    micro, whole = micro_and_whole()
    right = weights_after(whole, gradient_clip_val=clip)
    got = weights_after(micro, accumulate_grad_batches=2, gradient_clip_val=clip)
    before = training_module().model.state_dict()
    for name in right:
        assert_close(got[name], right[name], rtol=0, atol=1e-6, msg=name)
    assert max(float((right[name] - before[name]).abs().max()) for name in right) > 1e-3


def test_a_mean_of_means_gives_other_weights(monkeypatch):
    micro, whole = micro_and_whole()
    right = weights_after(whole)

    def means(self, batch, index):
        inputs = self.objective.prepare(*batch)
        output = self.objective.loss(self.model(inputs.batch), inputs.target, training=True)
        return output.loss / output.count

    monkeypatch.setattr(TrainingModule, "training_step", means)
    monkeypatch.setattr(TrainingModule, "on_before_optimizer_step", lambda self, optimizer: None)
    got = weights_after(micro, accumulate_grad_batches=2)
    assert max(float((got[name] - right[name]).abs().max()) for name in right) > 1e-3


def test_one_step_is_the_gradient_of_the_mean_loss():
    batch, _ = ragged(7, 3)
    ours, twin = training_module(), training_module()
    trainer().fit(ours, BatchLoader((batch, None)))
    inputs = twin.objective.prepare(batch, None)
    output = twin.objective.loss(twin.model(inputs.batch), inputs.target, training=True)
    (output.loss / output.count).backward()
    for name, p in twin.model.named_parameters():
        assert_close(ours.model.get_parameter(name), p - 0.5 * p.grad, rtol=0, atol=1e-6, msg=name)
    assert ours.tokens_by_task() == {"": inputs.batch.num_tokens}


def test_gradients_are_clipped_as_by_torch():
    batch, _ = ragged(7, 3)
    ours, twin = training_module(), training_module()
    trainer(gradient_clip_val=0.02).fit(ours, BatchLoader((batch, None)))
    inputs = twin.objective.prepare(batch, None)
    output = twin.objective.loss(twin.model(inputs.batch), inputs.target, training=True)
    (output.loss / output.count).backward()
    before = [p.grad.clone() for p in twin.model.parameters()]
    nn.utils.clip_grad_norm_(twin.model.parameters(), 0.02)
    assert not all(p.grad.equal(gradient) for p, gradient in zip(twin.model.parameters(), before))
    for name, p in twin.model.named_parameters():
        assert_close(ours.model.get_parameter(name), p - 0.5 * p.grad, rtol=0, atol=1e-6, msg=name)
    with pytest.raises(ValueError, match="by norm only"):
        trainer(gradient_clip_val=0.02, gradient_clip_algorithm="value").fit(
            ours, BatchLoader((batch, None))
        )


def test_several_steps_are_those_of_a_plain_loop():
    """Each is of its own batch: neither losses nor counts of the steps before are left in it."""
    batches, ours, twin = (
        [ragged(7, 3), ragged(11, seed=1), ragged(2, seed=2)],
        training_module(),
        training_module(),
    )
    trainer().fit(ours, BatchLoader(*batches))
    optimizer = SGD().build(twin.model)
    for batch, label in batches:
        inputs = twin.objective.prepare(batch, label)
        output = twin.objective.loss(twin.model(inputs.batch), inputs.target, training=True)
        optimizer.zero_grad()
        (output.loss / output.count).backward()
        optimizer.step()
    for name, p in twin.model.named_parameters():
        assert_close(ours.model.get_parameter(name), p, rtol=0, atol=1e-6, msg=name)


def test_real_tokens_of_all_batches_are_counted():
    ours = training_module()
    assert ours.tokens_by_task() == {"": 0}
    trainer(max_epochs=2).fit(ours, BatchLoader(ragged(7, 3), ragged(5)))
    assert ours.tokens_by_task() == {"": 2 * (6 + 3 + 4)}  # the last column is a target alone
    assert isinstance(ours.tokens_by_task()[""], int)


def test_what_was_counted_before_a_resume_counts_on():
    before, after, checkpoint = (
        training_module(skip_nonfinite=3),
        training_module(skip_nonfinite=3),
        {},
    )
    trainer().fit(before, BatchLoader(ragged(7, 3)))
    before.num_skipped = 2
    before.on_save_checkpoint(checkpoint)
    after.on_load_checkpoint(checkpoint)
    trainer().fit(after, BatchLoader(ragged(5)))
    assert (after.num_skipped, after.tokens_by_task()) == (2, {"": 6 + 3 + 4})


def smoothing():
    """Classification whose labels are smoothed."""
    objective = Classify(label_smoothing=0.4)
    objective.fit([0, 1], None)
    torch.manual_seed(0)
    model = Model(TokenSpec(vocab_size=7), GRU(12, 1), objective)
    return TrainingModule(model, objective, optimizer=SGD(lr=0.0))


def test_labels_are_smoothed_in_training_and_not_in_evaluation():
    batch, label = ragged(7, 3)[0], torch.tensor([0, 0])
    runner, ours = trainer(), smoothing()
    with torch.no_grad():
        ours.model.head.linear.bias += torch.tensor([2.0, 0.0])
    logits = ours.model(batch).detach()
    plain, smoothed = (
        nn.functional.cross_entropy(logits, label, label_smoothing=share) for share in (0.0, 0.4)
    )
    assert float((plain - smoothed).abs()) > 0.01
    runner.fit(ours, BatchLoader((batch, label)), BatchLoader((batch, label)))
    assert float(runner.callback_metrics["train/loss"]) == pytest.approx(float(smoothed), rel=1e-5)
    assert float(runner.callback_metrics["valid/loss"]) == pytest.approx(float(plain), rel=1e-5)
    ours.eval()
    with torch.enable_grad():  # an evaluation whose predictions require gradients is one still
        output = ours.objective.loss(ours.model(batch), label)
    assert output.loss.requires_grad
    assert float(output.loss.detach()) == pytest.approx(2 * float(plain), rel=1e-5)


def experts(aux_loss_weight):
    """Two layers of experts, all of whose weights a single step moves."""
    torch.manual_seed(0)
    mlp = partial(MixtureOfExperts, num_experts=3, aux_loss_weight=aux_loss_weight)
    backbone = Transformer(12, 2, num_heads=3, causal=True, block=partial(PreNormBlock, mlp=mlp))
    objective = NextToken()
    return TrainingModule(
        Model(TokenSpec(vocab_size=7), backbone, objective).double(), objective, optimizer=SGD()
    )


def test_the_auxiliary_loss_weighs_as_the_mean_loss():
    batch, _ = ragged(7, 3)
    ours, twin, without = experts(0.7), experts(0.7), experts(0.0)
    trainer().fit(ours, BatchLoader((batch, None)))
    trainer().fit(without, BatchLoader((batch, None)))
    inputs = twin.objective.prepare(batch, None)
    output = twin.objective.loss(twin.model(inputs.batch), inputs.target, training=True)
    aux_loss = sum(block.mlp.aux_loss() for block in twin.model.backbone.blocks)
    (output.loss / output.count + aux_loss).backward()
    for name, p in twin.model.named_parameters():
        assert_close(ours.model.get_parameter(name), p - 0.5 * p.grad, rtol=0, atol=1e-6, msg=name)
    router = "backbone.blocks.0.mlp.router.weight"
    assert (
        ours.model.get_parameter(router) - without.model.get_parameter(router)
    ).abs().max() > 1e-4


def test_statistics_of_several_layers_are_logged_as_their_mean():
    ours, batch = experts(0.7), ragged(7, 3)
    # it is sure, the first is not
    torch.nn.init.normal_(ours.model.backbone.blocks[1].mlp.router.weight, std=3.0)
    trainer().fit(ours, BatchLoader(batch))
    layers = [block.mlp.statistics() for block in ours.model.backbone.blocks]
    assert layers[0]["router_entropy"] > layers[1]["router_entropy"] + 0.1
    for name in ("router_load_max", "router_load_min", "router_entropy", "router_balance"):
        got = ours.statistics[f"train/{name}"]
        assert got == pytest.approx((layers[0][name] + layers[1][name]) / 2)


def test_evaluation_reports_the_loss_without_the_auxiliary_loss():
    one, other = experts(0.7), experts(0.0)
    reported = [
        trainer().validate(x, BatchLoader(ragged(5, 3)), verbose=False)[0] for x in (one, other)
    ]
    assert reported[0] == reported[1]


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_the_weights():
    objective = Regress()
    objective.fit([0.0, 2.0], None)
    model = Model(TokenSpec(num_features=2), GRU(12, 1), objective)
    ours = TrainingModule(model, objective, optimizer=AdamW())
    batch = TokenBatch.collate([Tokens(torch.randn(3, 2), torch.zeros(3, 1))])
    good, bad = (batch, torch.tensor([1.0])), (batch, torch.tensor([math.inf]))
    runner = trainer()
    with pytest.raises(DivergedError, match=r"inf in step 1 \(epoch 0, batch 1\)"):
        runner.fit(ours, BatchLoader(good, bad, good))
    assert runner.global_step == 1
    assert all(bool(p.isfinite().all()) for p in model.parameters())


class Vectors:
    """Examples of which one has a label that is not finite."""

    lengths = [3] * 11

    def __init__(self, bad):
        self.labels = torch.zeros(11).index_fill(0, torch.tensor(bad), math.inf)

    def __len__(self):
        return 11

    def __getitem__(self, key):
        _, indices = key
        examples = [Tokens(torch.ones(3, 2) * i, torch.zeros(3, 1)) for i in indices]
        return TokenBatch.collate(examples), self.labels[indices]

    def name(self, index):
        return f"clip-{index}.wav"


@pytest.mark.parametrize("bad", [0, 5, 10])
def test_a_loss_that_is_not_finite_names_its_own_batch_of_those_of_the_step(bad):
    objective = Regress()
    objective.fit([0.0, 2.0], None)
    ours = TrainingModule(
        Model(TokenSpec(num_features=2), GRU(12, 1), objective), objective, optimizer=SGD()
    )
    loader = batching.BatchLoader(
        Vectors(bad), batching.LengthGroupedBatchSampler([3] * 11, 3, shuffle=True, seed=1)
    )
    with pytest.raises(DivergedError) as stop:
        trainer(accumulate_grad_batches=4).fit(ours, loader)
    batches = loader.epoch_batches.own()
    (index,) = (k for k, batch in enumerate(batches) if bad in batch)
    names = ", ".join(f"clip-{i}.wav" for i in batches[index])
    assert f"the loss is inf in step 0 (epoch 0, batch {index}: {names})" in str(stop.value)


@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("make", [SGD, AdamW, Muon])
def test_steps_that_are_not_finite_are_left_out_within_the_budget_and_change_nothing(where, make):
    """The weights are those of a training that never saw the batch; one more such batch stops it."""
    good, bad, other = ragged(7, 3, seed=1), ragged(6, seed=3), ragged(5, seed=2)

    def trained(batches, budget):
        ours = training_module(optimizer=make(0.1), skip_nonfinite=budget)
        poisoned = []

        class Watch(pl.Callback):
            def on_train_batch_start(self, trainer, module, batch, index):
                poisoned[:] = [batches[index] is bad]

        loss_of = ours.objective.loss

        def loss(*args, **kwargs):
            output = loss_of(*args, **kwargs)
            return (
                replace(output, loss=output.loss * math.nan)
                if poisoned[0] and where == "loss"
                else output
            )

        ours.objective.loss = loss
        parameter = next(ours.model.backbone.parameters())
        parameter.register_hook(
            lambda g: g * math.nan if poisoned[0] and where == "gradient" else g
        )
        trainer(gradient_clip_val=0.5, callbacks=[Watch()]).fit(ours, BatchLoader(*batches))
        return ours

    right, got = trained([good, other], 0), trained([good, bad, other], 1)
    assert got.num_skipped == 1
    for name, value in right.model.state_dict().items():
        assert_close(got.model.state_dict()[name], value, rtol=0, atol=0, msg=name)
    with pytest.raises(
        DivergedError, match=rf"{where} is nan in step 2 \(epoch 0, batch 2\), after 1 steps"
    ):
        trained([good, bad, bad], 1)


@pytest.fixture
def deferred(monkeypatch):
    """The CPU as a device that skips steps by itself: torch's fused AdamW knows `found_inf` there, too."""
    monkeypatch.setattr(TrainingModule, "_device_skips", lambda self, optimizer: True)
    monkeypatch.setattr(training_module_file, "_to_host", lambda x: (x.clone(), None))


@pytest.mark.usefixtures("deferred")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_device_leaves_a_step_out_by_itself_and_the_verdict_comes_a_step_later(accumulate):
    good, bad, other = ragged(7, 3, seed=1), ragged(6, seed=3), ragged(5, seed=2)

    def trained(batches, budget=0):
        batches = [batch for batch in batches for _ in range(accumulate)]
        ours = training_module(
            optimizer=AdamW(0.1), schedule=Cosine(), num_steps=4, skip_nonfinite=budget
        )
        now, rates = [], []

        class Watch(pl.Callback):
            def on_train_batch_start(self, trainer, module, batch, index):
                now[:] = [batches[index]]

            def on_before_optimizer_step(self, trainer, module, optimizer):
                rates.append(optimizer.param_groups[0]["lr"])

        next(ours.model.backbone.parameters()).register_hook(
            lambda g: g * math.nan if now[0] is bad else g
        )
        settings = {
            "accumulate_grad_batches": accumulate,
            "gradient_clip_val": 0.5,
            "log_every_n_steps": 100,
        }
        runner = trainer(callbacks=[Watch()], **settings)
        try:
            runner.fit(ours, BatchLoader(*batches))
        except DivergedError as error:
            return ours, rates, str(error)
        return ours, rates, ""

    right, _, _ = trained([good, other])
    got, rates, _ = trained([good, bad, other], 1)
    assert (got.num_skipped, right.num_skipped) == (1, 0)
    for name, value in right.model.state_dict().items():
        assert_close(got.model.state_dict()[name], value, rtol=0, atol=0, msg=name)
    assert rates == pytest.approx([0.1 * Cosine().factor(step, 4) for step in (0, 1, 1)])
    # the step is named though the next one is on its way, or the epoch ends
    for after in ([], [other]):
        stopped, _, message = trained([good, bad, *after])
        assert f"nan in step 1 (epoch 0, batch {accumulate}" in message
        assert all(bool(p.isfinite().all()) for p in stopped.model.parameters())


def test_float16_overflows_in_no_step_though_the_loss_is_a_sum(monkeypatch):
    """At the first scale, 65,536, the gradient of a sum over 440 tokens is above the largest number of float16."""
    ours = training_module(schedule=Constant())
    ours.float()
    steps = []
    monkeypatch.setattr(
        ours, "lr_scheduler_step", lambda *_: steps.append(float(ours.gradient_norm))
    )
    scaler = torch.amp.GradScaler("cpu")
    runner = trainer(plugins=[MixedPrecision("16-mixed", "cpu", scaler)])
    runner.fit(ours, BatchLoader(*(ragged(*[23] * 20, seed=i) for i in range(3))))
    assert float(scaler.get_scale()) == 2**16
    assert all(map(math.isfinite, steps))
    twin = training_module()
    trainer().fit(twin, BatchLoader(*(ragged(*[23] * 20, seed=i) for i in range(3))))
    for name, p in twin.model.named_parameters():
        assert_close(
            ours.model.get_parameter(name), p, rtol=0, atol=5e-3, check_dtype=False, msg=name
        )


def test_a_step_that_is_left_out_does_not_move_the_schedule():
    ours = training_module(schedule=Cosine(), num_steps=4, skip_nonfinite=2)
    parameter, number = next(ours.model.backbone.parameters()), iter(range(9))
    parameter.register_hook(lambda g: g * math.nan if next(number) < 2 else g)
    rates = []

    class Watch(pl.Callback):
        def on_train_batch_end(self, trainer, module, *_):
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    trainer(callbacks=[Watch()]).fit(ours, BatchLoader(*(ragged(5, seed=i) for i in range(4))))
    assert rates == pytest.approx([0.5 * Cosine().factor(step, 4) for step in (0, 0, 1, 2)])


def test_an_evaluation_restores_the_generator_of_any_device(monkeypatch):
    """Of MPS among others, whose functions take no device."""

    class Generators:
        state = 5

        def get_rng_state(self):
            return self.state

        def set_rng_state(self, state):
            self.state = state

        manual_seed = set_rng_state

    mps, seeded = Generators(), []
    monkeypatch.setattr(torch, "get_device_module", lambda device: mps)
    monkeypatch.setattr(torch.mps, "manual_seed", mps.manual_seed)
    monkeypatch.setattr(torch.mps, "_is_in_bad_fork", lambda: False)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: False)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    with evaluation_rng(3, 4, torch.device("mps")):
        assert mps.state == 3 * 1_000_003 + 4
    assert mps.state == 5
    assert not seeded


def test_evaluation_repeats_exactly_and_leaves_the_random_numbers_alone():
    ours, batches = (
        training_module(Masked(fraction=0.4)),
        BatchLoader(ragged(11, 7, seed=1), ragged(13, seed=2)),
    )
    torch.manual_seed(5)
    after = torch.rand(3)
    torch.manual_seed(5)
    first = trainer().validate(ours, batches, verbose=False)
    assert torch.rand(3).equal(after)
    torch.manual_seed(6)
    assert trainer().validate(ours, batches, verbose=False) == first


def test_every_evaluation_begins_anew():
    ours, runner, batches = (
        training_module(),
        trainer(),
        [BatchLoader(ragged(11, 2, seed=i)) for i in range(2)],
    )
    for evaluate in (runner.validate, runner.test):
        first, second = (evaluate(ours, one, verbose=False) for one in batches)
        assert second == evaluate(training_module(), batches[1], verbose=False) != first


class KeepsMasks(Masked):
    """Keeps what it masked, batch by batch."""

    def __init__(self):
        super().__init__(fraction=0.4)
        self.masked = []

    def prepare(self, batch, label):
        task = super().prepare(batch, label)
        self.masked.append(task.masked.flatten().tolist())
        return task


def test_an_evaluation_masks_other_tokens_in_every_batch_and_with_every_seed():
    """The batches have one shape, so that the same random numbers would mask the same places."""

    def masks(seed):
        ours = training_module(KeepsMasks(), seed=seed)
        trainer().validate(
            ours, BatchLoader(*(ragged(31, 29, seed=i) for i in range(3))), verbose=False
        )
        return ours.objective.masked

    masked = masks(0)
    assert masks(0) == masked
    assert len({tuple(each) for each in [*masked, *masks(1)]}) == 6


def test_evaluation_weighs_every_prediction_alike():
    ours, batches = training_module(), BatchLoader(ragged(11, 2), ragged(3, seed=1))
    (got,) = trainer().test(ours, batches, verbose=False)
    loss = count = right = 0
    ours.eval()
    with torch.no_grad():
        for batch, label in batches:
            inputs = ours.objective.prepare(batch, label)
            output = ours.objective.loss(ours.model(inputs.batch), inputs.target)
            loss, count = loss + float(output.loss), count + int(output.count)
            right += int((output.preds == output.target).sum())
    assert got["test/loss"] == pytest.approx(loss / count, rel=1e-5)
    assert got["test/accuracy"] == pytest.approx(right / count)


def test_a_batch_without_any_target_changes_no_metric():
    objective = Classify()
    objective.fit([0, 1], None)
    ours = TrainingModule(Model(TokenSpec(vocab_size=7), GRU(12, 1), objective), objective)
    (batch, _), nothing = ragged(5, 3), torch.full((2,), IGNORE)
    known = (batch, torch.tensor([0, 1]))
    right = trainer().test(ours, BatchLoader(known), verbose=False)
    assert trainer().test(ours, BatchLoader(known, (batch, nothing)), verbose=False) == right


def test_the_learning_rate_follows_the_schedule_step_by_step():
    ours, rates = (
        training_module(
            optimizer=SGD(0.5), schedule=Cosine(warmup_steps=2, floor=0.2), num_steps=5
        ),
        [],
    )

    class Watch(pl.Callback):
        def on_before_optimizer_step(self, trainer, module, optimizer):
            rates.append(optimizer.param_groups[0]["lr"])

    trainer(callbacks=[Watch()]).fit(ours, BatchLoader(*(ragged(5, seed=i) for i in range(5))))
    assert rates == pytest.approx(
        [0.5 * Cosine(warmup_steps=2, floor=0.2).factor(step, 5) for step in range(5)]
    )


def test_generated_sequences_are_measured():
    letters = Characters("abc")
    objective = Seq2Seq(Characters("xyz"), tied=False)
    objective.fit(["xy", "zzx"], None)
    model = Model(letters.spec, EncoderDecoder(GRU(12, 1), RNNDecoder(12)), objective)
    # never trained, it should not end at once
    model.head.linear.bias.data[objective.start_ids[0] :] = -100.0
    batch = TokenBatch.collate([letters.encode(word) for word in ("cab", "a", "bbc")])
    texts = objective.decode(objective.predict(model.eval(), batch))
    assert list(map(len, texts)) == [3, 3, 3]
    labels = [
        objective.encode_target(label) for label in ([texts[0], "zzzzz"], "x" + texts[1], "y" * 7)
    ]
    ours, data = TrainingModule(model, objective), BatchLoader((batch, collate_targets(labels)))
    (got,) = trainer().test(ours, data, verbose=False)
    assert got["test/sequence_error"] == pytest.approx(2 / 3)
    wrong = 1 + 7 - texts[2].count("y")
    assert got["test/token_error"] == pytest.approx(wrong / (3 + 4 + 7))
    assert {"test/loss", "test/accuracy"} < set(got)


def test_training_without_an_optimizer_is_refused():
    with pytest.raises(ValueError, match="has no optimizer"):
        training_module(optimizer=None).configure_optimizers()
    assert isinstance(training_module(schedule=None).configure_optimizers(), torch.optim.SGD)
    assert set(training_module(schedule=Constant()).configure_optimizers()) == {
        "optimizer",
        "lr_scheduler",
    }


def test_padding_more_changes_no_loss():
    ours, (batch, _) = training_module(), ragged(5, 3)
    wider = replace(
        batch,
        content=torch.nn.functional.pad(batch.content, [0, 4]),
        positions=torch.nn.functional.pad(batch.positions, [0, 0, 0, 4]),
        valid=torch.nn.functional.pad(batch.valid, [0, 4]),
    )
    one, other = (
        trainer().validate(ours, BatchLoader((x, None)), verbose=False)[0] for x in (batch, wider)
    )
    assert one == pytest.approx(other, rel=1e-6)
