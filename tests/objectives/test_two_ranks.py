"""What two processes compute together equals what one computes from all of their examples."""

import copy
from types import SimpleNamespace

import pytest
import torch
from objectives.contrastive_steps import RAWS, SHARES, batch_of, built, step_of_two
from objectives.test_metrics import NAMES, computed, outputs
from objectives.two_ranks import TwoRanks
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken
from seqkit.training.module import TrainingModule


def assert_are_of_the_whole_batch(loss, count, gradients):
    model, objective = built()
    whole = objective.step(
        model, (batch_of([RAWS[i] for share in SHARES for i in share]), None), training=True
    )
    whole.loss.backward()
    assert_close(loss, whole.loss.detach())
    assert int(count) == int(whole.count)
    for ours, p in zip(gradients, model.parameters(), strict=True):
        assert_close(ours, p.grad)
    alone = [
        objective.step(model, (batch_of([RAWS[i] for i in share]), None), training=True).loss
        for share in SHARES
    ]
    assert float(loss) > float(sum(alone).detach()) + 0.1, "negatives of the other process count"


def test_negatives_of_the_other_process_count_with_their_gradients(monkeypatch):
    ranks, models = TwoRanks(), [built() for _ in range(2)]

    def step(rank):
        model, objective = models[rank]
        output = objective.step(
            model, (batch_of([RAWS[i] for i in SHARES[rank]]), None), training=True
        )
        output.loss.backward()
        return [output.loss.detach(), output.count, *(p.grad for p in model.parameters())]

    with monkeypatch.context() as patch:
        patch.setattr("seqkit.objectives.contrastive.distributed", ranks)
        loss, count, *gradients = [one + other for one, other in zip(*ranks.run(step), strict=True)]
    assert_are_of_the_whole_batch(loss, count, gradients)


@pytest.mark.slow
def test_real_processes_have_the_loss_and_the_gradients_of_one_with_the_whole_batch(tmp_path):
    torch.multiprocessing.spawn(step_of_two, (str(tmp_path),), nprocs=2)
    loss, count, *gradients = torch.load(tmp_path / "sums.pt", weights_only=True)
    assert_are_of_the_whole_batch(loss, count, gradients)


def test_metrics_of_two_processes_are_those_of_all_batches():
    ranks, batches = TwoRanks(), list(outputs())

    def connected(metric):
        metric.dist_sync_fn, metric.distributed_available_fn = ranks.exchanged, lambda: True

    first, second = ranks.run(lambda rank: computed(NAMES, batches[rank::2], connected))
    assert first == pytest.approx(computed(NAMES, batches), abs=1e-6)
    assert second == first


def text(*ids):
    return Tokens(torch.tensor(ids), torch.arange(float(len(ids)))[:, None])


def test_a_step_of_two_processes_is_that_of_one_with_both_batches_whatever_their_counts():
    """The gradient of the mean over all predictions: 7 of the one process and 2 of the other."""
    shares = [[text(1, 2, 3, 4, 0), text(3, 3, 1, 0)], [text(0, 4, 2)]]
    model = Model(
        TokenSpec(vocab_size=5), Transformer(12, 1, num_heads=2, causal=True), NextToken()
    ).double()
    ranks = TwoRanks()

    def trainer(world_size):
        def reduced(x, reduce_op):
            return sum(ranks.exchanged(x)) if world_size > 1 else x

        strategy = SimpleNamespace(reduce=reduced)
        return SimpleNamespace(
            world_size=world_size,
            accumulate_grad_batches=1,
            strategy=strategy,
            global_step=0,
            current_epoch=0,
            log_every_n_steps=0,
            precision_plugin=None,
        )

    def stepped(module, examples, world_size):
        module.trainer = trainer(world_size)
        module.training_step((TokenBatch.collate(examples), None), 0).backward()
        parameters = list(module.parameters())
        for p in parameters if world_size > 1 else []:  # as DistributedDataParallel averages
            p.grad = sum(ranks.exchanged(p.grad)) / world_size
        module.on_before_optimizer_step(None)
        return [float(module.step_loss), *(p.grad for p in parameters)]

    modules = [TrainingModule(copy.deepcopy(model), NextToken()) for _ in range(3)]
    right = stepped(modules[2], [x for share in shares for x in share], 1)
    for got in ranks.run(lambda rank: stepped(modules[rank], shares[rank], 2)):
        assert got[0] == pytest.approx(right[0], rel=1e-5)
        assert_close(got[1:], right[1:])
