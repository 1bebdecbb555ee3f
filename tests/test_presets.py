"""Presets are listed, obey the laws of backbones, and are built by name from a recipe."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from seqkit.configure import instantiate, parse
from seqkit.conformance import check_backbone
from seqkit.contract import Backbone, TokenBatch, Tokens
from seqkit.describe import Whole
from seqkit.presets import PUBLISHED, bert_mini, gpt_nano, llama_nano, palm_mini, vit_tiny
from seqkit.recipe import read_recipe
from seqkit.registry import parts

SMALL = [name for name in PUBLISHED if name.endswith(("_nano", "_mini", "_tiny"))]


def test_all_presets_are_listed_and_all_that_are_listed_are_published():
    assert set(parts("preset")) == set(PUBLISHED)
    for name, part in parts("preset").items():
        assert part.load() is PUBLISHED[name].build


@pytest.mark.parametrize(
    ("preset", "dim", "causal"),
    [
        pytest.param(partial(gpt_nano, dropout=0.0), 48, True, id="gpt_nano"),
        pytest.param(llama_nano, 64, True, id="llama_nano"),
        pytest.param(palm_mini, 256, True, id="palm_mini", marks=pytest.mark.slow),
        pytest.param(partial(bert_mini, dropout=0.0), 256, False, id="bert_mini", marks=pytest.mark.slow),
        pytest.param(partial(vit_tiny, drop_path=0.0), 192, False, id="vit_tiny", marks=pytest.mark.slow),
    ],
)
def test_presets_obey_the_laws_of_backbones(preset, dim, causal):
    """moe_mini is not here: eight experts share the law's twenty tokens, so one may get none, and no gradient."""
    check_backbone(lambda dim, causal: preset(), dim=dim, causal=[causal])


@pytest.mark.parametrize("name", SMALL)
def test_small_presets_read_what_they_were_published_with(name):
    published = PUBLISHED[name]
    whole, spec = Whole(published).eval(), published.spec
    content = torch.randint(spec.vocab_size, (11,)) if spec.ids else torch.randn(11, spec.num_features)
    positions = torch.zeros(11, spec.num_axes)
    positions[:, 0] = torch.arange(11)
    batch = TokenBatch.collate([Tokens(content, positions)])
    if whole.backbone.reads_memory:
        batch = replace(batch, memory=batch)
    prediction = whole(batch)
    assert torch.isfinite(prediction).all()
    assert prediction.std() > 0


def test_a_recipe_takes_a_preset_by_name_and_its_arguments():
    config = parse(
        read_recipe("text/char-lm", "debug"), ["--model.backbone", "gpt_nano", "--model.backbone.dropout", "0"]
    )
    assert config.model.backbone.class_path == "seqkit.presets.gpt_nano"
    backbone = instantiate(config).model.backbone
    assert isinstance(backbone, Backbone)
    assert (backbone.dim, len(backbone.blocks), backbone.causal) == (48, 3, True)
    assert backbone.blocks[0].mlp_added.dropout.p == 0.0
