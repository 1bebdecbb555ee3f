"""Every recipe trains in bfloat16, and every kind of optimizer, clipped; the loss stays in float32."""

import pytest
import torch
from single_recipes import single_recipes

from seqkit.config import complete
from seqkit.errors import DataError
from seqkit.runs.prepare import prepare
from seqkit.training.module import TrainingModule
from seqkit.training.optim import AdamW, Muon, TorchOptimizer
from seqkit.training.trainer import make_trainer, silence_lightning, train

OPTIMIZERS = [AdamW(1e-3), Muon(1e-3), TorchOptimizer(torch.optim.SGD, lr=1e-3)]
PRECISIONS = {"bf16-mixed": torch.float32, "bf16-true": torch.bfloat16}
"""And the type of the weights."""
RECIPES = list(single_recipes())


QUICK = {"graph/karate", "image/digits", "mechanism/tasks", "multimodal/clip", "text/char-lm"}
"""Recipes of different tokens, backbones and objectives; a few more operations are in the others."""


@pytest.mark.parametrize(
    ("index", "recipe"),
    [
        pytest.param(i, recipe, marks=() if recipe in QUICK else pytest.mark.slow, id=recipe)
        for i, recipe in enumerate(RECIPES)
    ],
)
def test_every_recipe_trains_in_bfloat16(index, recipe):
    """With both precisions. An operation that lacks the type is the model's or the optimizer's, not of a pair of them:
    each recipe takes the next optimizers."""
    try:
        prepared = prepare(
            complete(recipe, "debug", {"trainer.accelerator": "cpu", "data.batch_size": 4})
        )
    except DataError as error:
        if "package" in str(error):
            pytest.skip(str(error))
        raise
    settings = {
        **prepared.built.trainer,
        "max_steps": 1,
        "max_epochs": None,
        "log_every_n_steps": 1,
    }
    settings |= {"gradient_clip_val": 0.5, "enable_progress_bar": False}
    for i, (precision, dtype) in enumerate(PRECISIONS.items()):
        optimizer = OPTIMIZERS[(index + i) % len(OPTIMIZERS)]
        module = TrainingModule(prepared.model, prepared.data.objective, optimizer=optimizer)
        with silence_lightning():
            trainer = make_trainer(settings | {"precision": precision}, logger=False)
            train(trainer, module, prepared.data.train_dataloader(), None)
        assert bool(torch.isfinite(module.step_loss))
        assert module.step_loss.dtype == torch.float32
        assert {weight.dtype for weight in module.model.parameters()} == {dtype}
