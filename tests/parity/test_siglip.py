"""Our Transformer equals the image encoder of Hugging Face's SigLIP: no class token, a head that pools by attention.

b batch · n patches · d width
"""

from functools import partial

import pytest
import torch
from einops import rearrange, repeat
from families import family
from parity import EmbeddedBackbone, assert_equal, randomized
from torch import nn
from transformers import SiglipVisionConfig, SiglipVisionModel
from vision import first_layer, image_batch, spec, vit_layer
from weights import take
from whole import assert_every_value_is_mapped

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.mlp import MLP
from seqkit.nn.position.absolute import Learned

DIM, DEPTH, HEADS, PATCH, SIDE = 21, 3, 3, 5, 15
NUM_PATCHES = (SIDE // PATCH) ** 2


class AttentionPooling(nn.Module):
    """One learned query that attends to all tokens, then an MLP (Zhai et al. 2022, ViT-G, section 3.2)."""

    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(torch.zeros(1, 1, DIM))
        self.attention = MultiHeadAttention(DIM, HEADS).for_cross_attention()
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.mlp = MLP(DIM, ratio=3, activation=partial(nn.GELU, approximate="tanh"))

    def forward(self, hidden, valid):
        """[b d] from hidden [b n d]."""
        query = repeat(self.query, "1 1 d -> b 1 d", b=len(hidden))
        context = AttentionContext(rearrange(valid, "b n -> b 1 1 n"), key_valid=valid)
        pooled = self.attention(query, context, memory=hidden)
        return (pooled + self.mlp(self.norm(pooled)))[:, 0]


@pytest.fixture
def pair():
    config = SiglipVisionConfig(
        hidden_size=DIM, intermediate_size=63, num_hidden_layers=DEPTH, num_attention_heads=HEADS, image_size=SIDE,
        patch_size=PATCH, attn_implementation="eager",
    )  # fmt: skip
    theirs = randomized(SiglipVisionModel(config), std=0.2)
    position = partial(Learned, sizes=[NUM_PATCHES])
    ours = EmbeddedBackbone(spec(3 * PATCH**2, 0), family("SigLIP"), position)
    ours.head = AttentionPooling()
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
    mapped["head.query"] = left.pop("head.probe")
    for kind in ("weight", "bias"):
        joint = left.pop(f"head.attention.in_proj_{kind}")
        mapped[f"head.attention.q_proj.{kind}"], mapped[f"head.attention.kv_proj.{kind}"] = joint.split([DIM, 2 * DIM])
    names = {"attention.out_proj": "attention.out_proj", "norm": "layernorm", "mlp.up_proj": "mlp.fc1"}
    for ours, name in (names | {"mlp.down_proj": "mlp.fc2"}).items():
        mapped |= take(left, [f"head.{name}"], f"head.{ours}")
    assert not left, f"not mapped: {sorted(left)}"
    return mapped


def test_hidden_states_and_pooled_features_of_siglip(pair):
    theirs, ours = pair
    images = torch.rand(2, 3, SIDE, SIDE)
    batch = image_batch(images, PATCH, 0)
    with torch.no_grad():
        hidden, right = ours(batch), theirs(images)
        assert_equal(hidden, right.last_hidden_state)
        assert_equal(ours.head(hidden, batch.valid), right.pooler_output)


def test_every_value_of_siglip_is_mapped(pair):
    theirs, ours = pair
    assert_every_value_is_mapped(ours, theirs)
