"""Our Transformer equals Hugging Face's BEiT: layer scale, and a relative position bias that knows the class token.

b batch · n queries · m keys · h heads · d width
"""

import pytest
import torch
from einops import rearrange
from families import family
from parity import EmbeddedBackbone, assert_equal, randomized
from torch import nn
from transformers import BeitConfig, BeitModel
from vision import first_layer, image_batch, spec, vit_layer
from weights import take
from whole import assert_every_value_is_mapped

from seqkit.backbones import Transformer
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.embedder import Embedder
from seqkit.nn.position.absolute import NoPosition
from seqkit.nn.position.base import RelativePosition

DIM, DEPTH, HEADS, PATCH, SIDE = 21, 3, 3, 5, 20
GRID = SIDE // PATCH
CELLS = torch.cartesian_prod(torch.arange(float(GRID)), torch.arange(float(GRID)))
# (row, column); the class token stands outside
POSITIONS = torch.cat([torch.tensor([[-1.0, -1.0]]), CELLS])


class GridBias(RelativePosition):
    """A learned bias per head for each offset of two cells, and three with the class token, at negative positions."""

    requires = AttentionFeature.BIAS

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros((2 * GRID - 1) ** 2 + 3, HEADS))

    def bias(self, query_positions, key_positions, num_heads):
        query, key = (
            rearrange(query_positions, "b n p -> b n 1 p"),
            rearrange(key_positions, "b m p -> b 1 m p"),
        )
        row, column = (query - key + GRID - 1).long().unbind(dim=-1)
        from_class, to_class = query[..., 0] < 0, key[..., 0] < 0
        index = torch.where(from_class, len(self.table) - 3, row * (2 * GRID - 1) + column)
        index = torch.where(to_class, len(self.table) - 2 + from_class.long(), index)
        return rearrange(self.table[index], "b n m h -> b h n m")


@pytest.fixture(params=["shared", "by layer"])
def pair(request):
    shared = request.param == "shared"
    config = BeitConfig(
        hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=63, image_size=SIDE,
        patch_size=PATCH, use_mask_token=True, use_mean_pooling=False, use_shared_relative_position_bias=shared,
        use_relative_position_bias=not shared, attn_implementation="eager",
    )  # fmt: skip
    theirs = randomized(BeitModel(config, add_pooling_layer=False), std=0.2)
    lines, position = family("BEiT"), [GridBias() for _ in range(1 if shared else DEPTH)]
    blocks = [lambda *_, block=block: block for block in lines.blocks]
    backbone = Transformer(
        DIM,
        DEPTH,
        num_heads=HEADS,
        block=blocks,
        norm=lambda _: lines.norm,
        position=position * (DEPTH // len(position)),
    )
    tokens = spec(3 * PATCH**2, 1, num_axes=2)
    ours = EmbeddedBackbone(tokens, backbone, NoPosition)
    ours.embedder = Embedder(tokens, DIM, position=NoPosition, uses_mask_token=True)
    ours.load_state_dict(weights(theirs.state_dict()))
    return theirs, ours.eval()


def weights(theirs):
    """Their weights under our names. Their keys have no bias: zeros, which softmax would ignore whatever they were."""
    left = dict(theirs)
    first = "embeddings.patch_embeddings.projection"
    mapped = first_layer(
        left.pop(f"{first}.weight"), left.pop(f"{first}.bias"), [left.pop("embeddings.cls_token")]
    )
    mapped["embedder.mask_token"] = rearrange(left.pop("embeddings.mask_token"), "1 1 d -> d")
    for i in range(DEPTH):
        layer, name = f"layers.{i}", f"backbone.blocks.{i}"
        left[f"{layer}.attention.k_proj.bias"] = torch.zeros(DIM)
        mapped |= vit_layer(left, layer, name)
        mapped[f"{name}.attention_residual.scale"] = left.pop(f"{layer}.lambda_1")
        mapped[f"{name}.mlp_residual.scale"] = left.pop(f"{layer}.lambda_2")
    tables = [name for name in left if name.endswith("relative_position_bias_table")]
    mapped |= {f"backbone.positions.{i}.table": left.pop(name) for i, name in enumerate(tables)}
    mapped |= take(left, ["layernorm"], "backbone.norm")
    assert not left, f"not mapped: {sorted(left)}"
    return mapped


@pytest.mark.parametrize("share_masked", [0.0, 0.5])
def test_hidden_states_of_beit(pair, share_masked):
    theirs, ours = pair
    key_biases = [block.attention.qkv_proj.bias[DIM : 2 * DIM] for block in ours.backbone.blocks]
    assert_every_value_is_mapped(ours, theirs, added=key_biases)
    images, masked = torch.rand(2, 3, SIDE, SIDE), torch.rand(2, len(CELLS)) < share_masked
    batch = image_batch(images, PATCH, 1, positions=POSITIONS)
    with torch.no_grad():
        hidden = ours.backbone(
            ours.embedder(batch, torch.cat([torch.zeros(2, 1, dtype=torch.bool), masked], dim=1))
        )
        assert_equal(hidden, theirs(images, bool_masked_pos=masked).last_hidden_state)
