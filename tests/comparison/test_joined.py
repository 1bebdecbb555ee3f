"""Comparisons over joined recipes: widths of all that has one, what a backbone cannot take from the batch, examples."""

import json

import numpy as np
import pytest

from seqkit import compare
from seqkit.comparison.candidates import NEARLY, candidates
from seqkit.comparison.settings import Settings
from tests.comparison.conftest import SMALL

SIZES = "dim: 64, depth: 1"


def found(recipe, *words, backbones=("Transformer", "GRU")):
    words = [*words, "--data.limit=20"]
    settings = Settings(
        recipe=recipe, preset="debug", overrides=words, backbones=backbones, depths=False
    )
    return candidates(settings)


@pytest.mark.slow
def test_the_encoder_of_a_part_has_the_width_of_each_backbone():
    words = f"--model.encoders={{text: {{type: LSTM, {SIZES}}}}}"
    reference, other = found("multimodal/clip", words)
    assert other.size.width != reference.size.width
    for one in (reference, other):
        encoder, backbone = one.config["model"]["encoders"]["text"], one.config["model"]["backbone"]
        assert encoder["dim"] == backbone["dim"] == one.size.width
        assert abs(one.size.budget_gap) <= NEARLY


@pytest.mark.slow
def test_towers_get_the_backbone_in_every_tower():
    parts = f"{{image: {{type: Transformer, {SIZES}, num_heads: 4}}, text: {{type: Transformer, {SIZES}}}}}"
    reference, other = found(
        "multimodal/clip", f"--model.backbone={{type: Towers, parts: {parts}}}"
    )
    towers = other.config["model"]["backbone"]["parts"]
    assert {tower["type"] for tower in towers.values()} == {"GRU"}
    assert {tower["dim"] for tower in towers.values()} == {other.size.width}
    assert abs(other.size.parameters / reference.size.parameters - 1) <= NEARLY


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "causal"),
    [("multimodal/caption", True), pytest.param("multimodal/table", False, marks=pytest.mark.slow)],
)
def test_a_backbone_that_cannot_take_causality_from_the_batch_gets_what_the_objective_needs(
    recipe, causal
):
    reference, other = found(recipe, "--model.backbone.causal=null")
    assert reference.config["model"]["backbone"]["causal"] is None
    assert other.config["model"]["backbone"]["causal"] is causal


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_two_backbones_over_images_and_texts_are_compared_by_the_recall_of_each_example(tmp_path):
    words = {
        "data.limit": 30,
        "trainer.max_steps": 2,
        "trainer.max_epochs": None,
        "optimizer": "AdamW",
    }
    results = compare(
        "multimodal/clip",
        ["Transformer", "GRU"],
        out=tmp_path / "c",
        **SMALL | {"overrides": words},
    )
    assert results.metric.name == "recall@1"
    with np.load(tmp_path / "c" / "scores.npz") as arrays:
        shapes = [array.shape for name, array in arrays.items() if name.endswith("numerator")]
    assert len(shapes) == 2
    for row in results.candidates:
        summary = json.loads(
            (tmp_path / "c" / "runs" / row.name / "seed-1" / "summary.json").read_bytes()
        )
        assert row.mean == pytest.approx(summary["metrics"]["recall@1"])
        assert set(shapes) == {(1, summary["num_test"])}, (
            "each test example is a unit, not each batch"
        )
