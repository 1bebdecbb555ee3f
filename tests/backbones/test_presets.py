"""Presets are registered, keep the laws of backbones, and are built by name from a recipe."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from seqkit.analysis.cost import PresetModel
from seqkit.backbones import presets
from seqkit.backbones.presets import PUBLISHED
from seqkit.config import build, complete
from seqkit.interfaces import Backbone, TokenBatch, Tokens
from seqkit.registry import components
from seqkit.testing import check_backbone

SMALL = [name for name in PUBLISHED if name.endswith(("_nano", "_mini", "_tiny"))]


def test_the_registered_presets_are_those_in_published():
    assert set(components("preset")) == set(PUBLISHED)
    for name, component in components("preset").items():
        assert component.load() is PUBLISHED[name].build


@pytest.mark.parametrize(
    ("composition", "kind", "causal"),
    [
        pytest.param(partial(presets._gpt, 24, 2, 2, 0.0), "text", True, id="gpt"),
        pytest.param(
            partial(presets._llama, 24, 2, num_heads=4, num_kv_heads=2, multiple_of=8),
            "text",
            True,
            id="llama",
        ),
        pytest.param(partial(presets._bert, 24, 2, 2, 0.0), "text", False, id="bert"),
        pytest.param(partial(presets._vit, 24, 3, 0.0), "image", False, id="vit"),
    ],
)
def test_compositions_of_the_presets_keep_the_laws_of_backbones(composition, kind, causal):
    check_backbone(
        lambda dim, causal: composition(), dim=24, causal=[causal], kinds=[kind], quick=True
    )


@pytest.mark.parametrize("name", SMALL)
def test_small_presets_run_with_their_published_embedder_and_head(name):
    published = PUBLISHED[name]
    model, spec = PresetModel(published).eval(), published.spec
    content = (
        torch.randint(spec.vocab_size, (11,)) if spec.ids else torch.randn(11, spec.num_features)
    )
    positions = torch.zeros(11, spec.num_axes)
    positions[:, 0] = torch.arange(11)
    batch = TokenBatch.collate([Tokens(content, positions)])
    if model.backbone.is_encoder_decoder:
        batch = replace(batch, source=batch)
    prediction = model(batch)
    assert torch.isfinite(prediction).all()
    assert prediction.std() > 0


def test_a_recipe_takes_a_preset_by_name_and_its_arguments():
    overrides = {"model.backbone": "gpt_nano", "model.backbone.dropout": 0.0}
    backbone = build(complete("text/char-lm", "debug", overrides)).model["backbone"]
    assert isinstance(backbone, Backbone)
    assert (backbone.dim, len(backbone.blocks), backbone.causal) == (48, 3, True)
    assert backbone.blocks[0].mlp_residual.dropout == 0.0
