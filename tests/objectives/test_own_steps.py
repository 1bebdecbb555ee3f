"""Objectives with a step of their own, as plug-ins of a few lines: they fit, test, resume, and are scored rightly."""

import json
import os
import signal
import sys

import pytest

from seqkit.cli.main import main
from seqkit.comparison.scores import example_scores, metric_of
from seqkit.config import complete
from seqkit.registry.plugins import import_plugins
from seqkit.runs.prepare import prepare
from seqkit.training.module import TrainingModule

OWN = """
import torch
import torch.nn.functional as F
from torch import nn
from seqkit.interfaces import IGNORE, LossOutput, ModelInput, Objective, PredictionObjective, TokenBatch
from seqkit.nn.pooling import SequenceHead
from seqkit.nn.heads import TokenHead
from seqkit.registry import register


@register("objective")
class Contrast(Objective):
    needs_labels = True
    def head(self, embedder):
        head = SequenceHead(embedder.dim, 8)
        head.log_scale = nn.Parameter(torch.tensor(1.0))
        return head
    def step(self, model, batch, *, training=False):
        tokens, label = batch
        z = F.normalize(model(tokens), dim=1)
        scores = (z @ z.T * model.head.log_scale.exp()).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        same = (label[:, None] == label).fill_diagonal_(False).float()
        loss = -(scores.log_softmax(1) * same).sum(1) / same.sum(1).clamp(min=1)
        return LossOutput(loss.sum(), torch.tensor(len(z)))


@register("objective")
class Forecast(PredictionObjective):
    causal = True
    def head(self, embedder):
        return TokenHead(embedder.dim, embedder.spec.num_features)
    def prepare(self, batch, label):
        return ModelInput(batch.columns(slice(-1)), None, batch.content[:, 1:])
    def loss(self, prediction, target, *, training=False):
        known = target.abs().sum(-1, keepdim=True) > 0
        return LossOutput(((prediction - target).square() * known).sum(), known.sum())


@register("objective")
class Alignments(Objective):
    needs_labels = separable = True
    def encode_target(self, label):
        return torch.tensor([label + 1])
    def head(self, embedder):
        return TokenHead(embedder.dim, 12)
    def step(self, model, batch, *, training=False):
        tokens, label = batch
        scores, known = model(tokens).float().log_softmax(-1).transpose(0, 1), label != IGNORE
        lengths = tokens.valid.sum(1), known.sum(1)
        return LossOutput(F.ctc_loss(scores, label.clamp(min=0), *lengths, reduction="sum"), known.sum())


@register("objective")
class TwoViews(Objective):
    def head(self, embedder):
        return SequenceHead(embedder.dim, 8)
    def step(self, model, batch, *, training=False):
        a, b = (F.normalize(model(batch[0], torch.rand(batch[0].valid.shape) < 0.3), dim=1) for _ in range(2))
        loss = F.cross_entropy(a @ b.T / 0.2, torch.arange(len(a)), reduction="sum")
        return LossOutput(loss, torch.tensor(len(a)))
    uses_mask_token = True
"""
RECIPES = {
    "Contrast": ["image/digits"],
    "Forecast": ["image/digits", "--model.backbone.causal", "true"],
    "Alignments": ["image/digits"],
    "TwoViews": ["image/digits"],
}
SMALL = ["--preset", "debug", "--model.backbone.dim", "16", "--model.backbone.depth", "1", "--data.batch_size", "16",
         "--model.backbone.num_heads", "2", "--data.limit", "60", "--trainer.accelerator", "cpu"]  # fmt: skip


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    path = tmp_path / "own_steps.py"
    path.write_text(OWN, encoding="utf-8")
    yield path
    sys.modules.pop(path.stem, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_an_own_step_fits_tests_and_resumes(plugin, name, tmp_path, capsys, monkeypatch):
    recipe, *words = RECIPES[name]
    fit = ["fit", recipe, "--plugin", str(plugin), f"--model.objective={name}", *words, *SMALL]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    fit += ["--trainer.max_epochs", "3"]
    assert main([*fit, "--out", str(whole)]) == 0, capsys.readouterr().err
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["state"] == "finished"
    assert summary["metrics"]["loss"] > 0
    step = TrainingModule.training_step

    def stopped_in_the_second_epoch(self, batch, index):
        if self.trainer.global_step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingModule, "training_step", stopped_in_the_second_epoch)
        assert main([*fit, "--out", str(stopped)]) == 128 + signal.SIGTERM
    assert main(["fit", "--resume", str(stopped), "--plugin", str(plugin)]) == 0, (
        capsys.readouterr().err
    )
    assert json.loads((stopped / "summary.json").read_text())["metrics"] == summary["metrics"]
    assert main(["evaluate", str(whole), "--plugin", str(plugin)]) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert f"{summary['metrics']['loss']:.4g}"[:4] in printed


@pytest.mark.slow
def test_models_with_an_own_step_are_compared(plugin, tmp_path, capsys):
    words = [
        "image/digits",
        "--model.objective=Contrast",
        "--trainer.max_epochs",
        "1",
        "--vary",
        "model.backbone.depth=1,2",
        "--match",
        "none",
        "--no-measure",
        "--seeds",
        "2",
    ]
    words += ["--lr-trials", "1", *SMALL, "--out", str(tmp_path / "c")]
    assert main(["compare", *words, "--plugin", str(plugin)]) == 0, capsys.readouterr().err
    assert "test loss" in capsys.readouterr().out
    results = json.loads((tmp_path / "c" / "results.json").read_text())
    assert len(results["candidates"]) == 2


@pytest.mark.parametrize("name", RECIPES)
def test_scores_of_an_own_step_add_up_to_its_loss(plugin, name):
    import_plugins([plugin])
    recipe, *words = RECIPES[name]
    prepared = prepare(complete(recipe, "debug", [f"--model.objective={name}", *words, *SMALL[2:]]))
    data, model = prepared.data, prepared.model.eval()
    found = example_scores(model, data, metric_of(data.objective), seed=prepared.seed)
    (metrics,) = _tested(prepared)
    assert sum(found.numerator) / sum(found.denominator) == pytest.approx(
        metrics["test/loss"], rel=1e-4
    )
    is_by_example = len(found.numerator) == len(data.splits().test)
    assert is_by_example is data.objective.separable


def _tested(prepared):
    from seqkit.training.trainer import make_trainer, silence_lightning

    settings = {"accelerator": "cpu", "devices": 1, "enable_progress_bar": False}
    with silence_lightning():
        return make_trainer(settings, logger=False, callbacks=[]).test(
            prepared.training_module(1), prepared.data.test_dataloader(), verbose=False
        )
