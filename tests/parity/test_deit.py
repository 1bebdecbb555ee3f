"""Our Transformer equals Hugging Face's DeiT: as ViT, with a distillation token beside the class token."""

from functools import partial

import pytest
import torch
from einops import rearrange
from families import family
from parity import EmbeddedBackbone, assert_equal, randomized
from transformers import DeiTConfig, DeiTForImageClassificationWithTeacher
from vision import first_layer, image_batch, spec, vit_layer
from weights import take
from whole import assert_every_value_is_mapped

from seqkit.nn.position.absolute import Learned

DIM, DEPTH, PATCH, SIDE = 21, 3, 5, 15
NUM_TOKENS = 2 + (SIDE // PATCH) ** 2


@pytest.fixture
def pair():
    config = DeiTConfig(
        hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=3, intermediate_size=63, image_size=SIDE,
        patch_size=PATCH, num_labels=7, attn_implementation="eager",
    )  # fmt: skip
    theirs = randomized(DeiTForImageClassificationWithTeacher(config), std=0.2)
    ours = EmbeddedBackbone(
        spec(3 * PATCH**2, 2), family("DeiT"), partial(Learned, sizes=[NUM_TOKENS])
    )
    ours.load_state_dict(weights(theirs.deit.state_dict()))
    return theirs, ours


def weights(theirs):
    """Their weights under our names."""
    left = dict(theirs)
    first = "embeddings.patch_embeddings.projection"
    before = [left.pop("embeddings.cls_token"), left.pop("embeddings.distillation_token")]
    mapped = first_layer(left.pop(f"{first}.weight"), left.pop(f"{first}.bias"), before)
    mapped["embedder.position.tables.0"] = rearrange(
        left.pop("embeddings.position_embeddings"), "1 n d -> n d"
    )
    for i in range(DEPTH):
        mapped |= vit_layer(left, f"layers.{i}", f"backbone.blocks.{i}")
    mapped |= take(left, ["layernorm"], "backbone.norm")
    assert not left, f"not mapped: {sorted(left)}"
    return mapped


def test_hidden_states_and_logits_of_deit(pair):
    theirs, ours = pair
    assert_every_value_is_mapped(ours, theirs.deit)
    images = torch.rand(2, 3, SIDE, SIDE)
    with torch.no_grad():
        hidden = ours(image_batch(images, PATCH, 2))
        assert_equal(hidden, theirs.deit(images).last_hidden_state)
        logits = (
            theirs.cls_classifier(hidden[:, 0]) + theirs.distillation_classifier(hidden[:, 1])
        ) / 2
        assert_equal(logits, theirs(images).logits)
