"""Our Transformer equals Hugging Face's DINOv2 with registers: layer scale, MLP or SwiGLU, tokens without position."""

from functools import partial

import pytest
import torch
from einops import rearrange
from families import family
from parity import EmbeddedBackbone, assert_equal, randomized
from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel
from vision import first_layer, image_batch, spec, vit_layer
from weights import gated_mlp, take
from whole import assert_every_value_is_mapped

from seqkit.nn.embedder import Embedder
from seqkit.nn.position.absolute import Learned

DIM, DEPTH, PATCH, SIDE, REGISTERS = 21, 3, 5, 15, 4
NUM_PATCHES = (SIDE // PATCH) ** 2
SWIGLU = {"block.mlp": {"type": "GatedMLP", "width": 56, "bias": True}}


@pytest.fixture(params=[False, True])
def pair(request):
    config = Dinov2WithRegistersConfig(
        hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=3, image_size=SIDE, patch_size=PATCH,
        num_register_tokens=REGISTERS, use_swiglu_ffn=request.param, attn_implementation="eager",
    )  # fmt: skip
    theirs = randomized(Dinov2WithRegistersModel(config))
    position = partial(Learned, sizes=[1 + NUM_PATCHES], num_registers=REGISTERS)
    tokens = spec(3 * PATCH**2, 1 + REGISTERS)
    ours = EmbeddedBackbone(tokens, family("DINOv2", SWIGLU if request.param else None), position)
    ours.embedder = Embedder(tokens, DIM, position=position, uses_mask_token=True)
    ours.load_state_dict(weights(theirs.state_dict()))
    return theirs, ours.eval()


def weights(theirs):
    """Their weights under our names."""
    left = dict(theirs)
    first = "embeddings.patch_embeddings.projection"
    positions = rearrange(left.pop("embeddings.position_embeddings"), "1 n d -> n d")
    before = [left.pop("embeddings.cls_token"), left.pop("embeddings.register_tokens")]
    mapped = first_layer(left.pop(f"{first}.weight"), left.pop(f"{first}.bias"), before)
    mapped["embedder.position.tables.0"] = positions
    mapped["embedder.mask_token"] = rearrange(left.pop("embeddings.mask_token"), "1 d -> d")
    for i in range(DEPTH):
        layer, name = f"encoder.layer.{i}", f"backbone.blocks.{i}"
        mapped |= (
            gated_mlp(left, f"{layer}.mlp", f"{name}.mlp")
            if f"{layer}.mlp.gate_proj.weight" in left
            else {}
        )
        mapped |= vit_layer(left, layer, name, norms=("norm1", "norm2"))
        mapped[f"{name}.attention_residual.scale"] = left.pop(f"{layer}.layer_scale1.lambda1")
        mapped[f"{name}.mlp_residual.scale"] = left.pop(f"{layer}.layer_scale2.lambda1")
    mapped |= take(left, ["layernorm"], "backbone.norm")
    assert not left, f"not mapped: {sorted(left)}"
    return mapped


@pytest.mark.parametrize("share_masked", [0.0, 0.5])
def test_hidden_states_of_dinov2_with_registers(pair, share_masked):
    theirs, ours = pair
    assert_every_value_is_mapped(ours, theirs)
    images, masked = torch.rand(2, 3, SIDE, SIDE), torch.rand(2, NUM_PATCHES) < share_masked
    batch = image_batch(images, PATCH, 1 + REGISTERS)
    none_before = torch.zeros(2, 1 + REGISTERS, dtype=torch.bool)
    with torch.no_grad():
        hidden = ours.backbone(ours.embedder(batch, torch.cat([none_before, masked], dim=1)))
        assert_equal(hidden, theirs(images, bool_masked_pos=masked).last_hidden_state)
