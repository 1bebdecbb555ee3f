"""Our Transformer equals the image encoder of Hugging Face's SigLIP: no class token, a head that pools by attention."""

from functools import partial

import pytest
import torch
from einops import rearrange
from families import family
from parity import EmbeddedBackbone, assert_equal, randomized
from torch import nn
from transformers import SiglipVisionConfig, SiglipVisionModel
from vision import first_layer, image_batch, spec, vit_layer
from weights import take
from whole import assert_every_value_is_mapped

from seqkit.nn.block import MLP
from seqkit.nn.position.absolute import Learned
from seqkit.nn.projection import AttentionPooling

DIM, DEPTH, HEADS, PATCH, SIDE = 21, 3, 3, 5, 15
NUM_PATCHES = (SIDE // PATCH) ** 2


@pytest.fixture
def pair():
    config = SiglipVisionConfig(
        hidden_size=DIM, intermediate_size=63, num_hidden_layers=DEPTH, num_attention_heads=HEADS, image_size=SIDE,
        patch_size=PATCH, attn_implementation="eager",
    )  # fmt: skip
    theirs = randomized(SiglipVisionModel(config), std=0.2)
    position = partial(Learned, sizes=[NUM_PATCHES])
    ours = EmbeddedBackbone(spec(3 * PATCH**2, 0), family("SigLIP"), position)
    mlp = partial(MLP, ratio=3, activation=partial(nn.GELU, approximate="tanh"))
    ours.head = AttentionPooling(
        DIM, DIM, num_heads=HEADS, mlp=mlp, norm=partial(nn.LayerNorm, eps=1e-6)
    )
    ours.load_state_dict(weights(theirs.state_dict()))
    return theirs, ours


def weights(theirs):
    """Their weights under our names."""
    left = dict(theirs)
    first = "embeddings.patch_embedding"
    mapped = first_layer(left.pop(f"{first}.weight"), left.pop(f"{first}.bias"))
    mapped["embedder.position.tables.0"] = left.pop("embeddings.position_embedding.weight")
    names = {"attention": "self_attn", "out": "out_proj", "norms": ("layer_norm1", "layer_norm2")}
    for i in range(DEPTH):
        mapped |= vit_layer(left, f"encoder.layers.{i}", f"backbone.blocks.{i}", **names)
    mapped |= take(left, ["post_layernorm"], "backbone.norm")
    mapped["head.query"] = rearrange(left.pop("head.probe"), "1 1 d -> d")
    for kind in ("weight", "bias"):
        mapped[f"head.qkv_proj.{kind}"] = left.pop(f"head.attention.in_proj_{kind}")
    names = {"out_proj": "attention.out_proj", "norm": "layernorm", "mlp.up_proj": "mlp.fc1"}
    for ours, name in (names | {"mlp.down_proj": "mlp.fc2"}).items():
        mapped |= take(left, [f"head.{name}"], f"head.{ours}")
    assert not left, f"not mapped: {sorted(left)}"
    return mapped


def test_hidden_states_and_pooled_features_of_siglip(pair):
    theirs, ours = pair
    assert_every_value_is_mapped(ours, theirs)
    images = torch.rand(2, 3, SIDE, SIDE)
    batch = image_batch(images, PATCH, 0)
    with torch.no_grad():
        hidden, right = ours(batch), theirs(images)
        assert_equal(hidden, right.last_hidden_state)
        assert_equal(ours.head(hidden, batch.valid), right.pooler_output)
