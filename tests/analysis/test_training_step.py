"""A measured step is the step of training, on batches that the loader gives."""

from functools import partial

import pytest
import torch
from candidates import DIM, VOCAB, batch_of, language_model

from seqkit.analysis.speed import measure
from seqkit.analysis.training_step import Candidate, StepShares
from seqkit.backbones import GRU, Transformer
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.nn.block import PreNormBlock
from seqkit.nn.mlp import MLP
from seqkit.nn.moe import MixtureOfExperts
from seqkit.objectives import NextToken
from seqkit.training.module import TrainingModule
from seqkit.training.optim import OptimizerFactory
from seqkit.training.silence import silence_lightning


class SGD(OptimizerFactory):
    """Descent, which unlike Adam's takes the scale of a gradient; keeps the models that it is built for."""

    def __init__(self):
        self.models = []

    def build(self, model):
        self.models.append(model)
        return torch.optim.SGD(model.parameters(), lr=0.5)


@pytest.mark.parametrize("clip", [0.1, None])
def test_a_step_is_that_of_training(clip):
    """After as many steps on the same batch, the weights are those that Lightning's training gives."""
    import pytorch_lightning as pl

    expert = partial(MixtureOfExperts, num_experts=3, expert=partial(MLP, ratio=1.0), aux_loss_weight=0.5)
    backbone = Transformer(DIM, 1, num_heads=2, causal=True, block=partial(PreNormBlock, mlp=expert))
    objective, batch = NextToken(tied=False), (batch_of(7, 5), None)
    model = Model(TokenSpec(vocab_size=VOCAB), backbone, objective)
    optimizer = SGD()
    measure({"one": Candidate(model, objective, optimizer, [batch], clip=clip)}, seconds=1e-6)
    num_steps = 1 + 3 * 2  # one goes before; a round is a step on each batch, and one that is taken apart
    trainer = pl.Trainer(
        max_steps=num_steps, gradient_clip_val=clip, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    module = TrainingModule(model, objective, optimizer=SGD())
    loader = torch.utils.data.DataLoader([batch] * num_steps, batch_size=None)
    with silence_lightning():
        trainer.fit(module, loader)
    for name, weight in optimizer.models[0].named_parameters():
        torch.testing.assert_close(weight, model.get_parameter(name), msg=name)


@pytest.mark.usefixtures("ticks")
def test_the_loader_is_read_epoch_after_epoch():
    read = []

    class Loader:
        def __iter__(self):
            for length in (3, 5):
                read.append(length)
                yield batch_of(length), None

    cost = measure({"one": language_model(GRU(DIM, 1, causal=True), loader=Loader())}, seconds=1e-6)["one"]
    assert read == [3, 5, 3, 5]
    assert cost.shares.load > 0


def test_the_mean_of_shares_is_taken_part_by_part():
    one, other = StepShares(0.5, 0.25, 0.125, 0.125, 0.0), StepShares(0.0, 0.25, 0.125, 0.375, 0.25)
    assert StepShares.mean([one, other]) == StepShares(0.25, 0.25, 0.125, 0.25, 0.125)
