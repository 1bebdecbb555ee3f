"""A block is torch's own pre-norm encoder layer; its parts can be exchanged."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.mlp import MLP
from seqkit.layers.reading import Reading
from seqkit.layers.residual import Residual


def as_torch(block, dim, num_heads, activation):
    """`nn.TransformerEncoderLayer` with the block's weights. In training mode: its fast path rounds differently."""
    layer = nn.TransformerEncoderLayer(
        dim, num_heads, 4 * dim, dropout=0.0, activation=activation, batch_first=True, norm_first=True
    )
    layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias = block.attention.qkv.weight, block.attention.qkv.bias
    layer.self_attn.out_proj = block.attention.out
    layer.linear1, layer.linear2 = block.mlp.widen, block.mlp.out
    layer.norm1, layer.norm2 = block.attention_norm, block.mlp_norm
    return layer


def shaken(module):
    """Biases and norms too, which start as zeros and ones, where exchanging them would not be seen."""
    for p in module.parameters():
        nn.init.normal_(p, std=0.3)
    return module


@pytest.mark.parametrize(("activation", "name"), [(nn.GELU, "gelu"), (nn.ReLU, "relu")])
@pytest.mark.parametrize("causal", [False, True])
def test_a_block_is_torchs_pre_norm_encoder_layer(activation, name, causal):
    block = shaken(Block(21, 3, mlp=partial(MLP, activation=activation)))
    x = torch.randn(2, 5, 21)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    assert_close(block(x, Reading(causal=causal)), as_torch(block, 21, 3, name)(x, src_mask=hidden))


def test_a_block_is_torchs_with_padding():
    block, x = shaken(Block(21, 3)), torch.randn(2, 5, 21)
    valid = torch.arange(5) < torch.tensor([[5], [3]])
    right = as_torch(block, 21, 3, "gelu")(x, src_key_padding_mask=~valid)
    assert_close(block(x, Reading(valid[:, None, None]))[valid], right[valid])


def test_another_part_takes_the_place_of_the_default():
    block = Block(6, 1, attention=partial(Attention, bias=False), mlp=lambda dim: nn.Identity(), norm=nn.RMSNorm)
    assert isinstance(block.attention_norm, nn.RMSNorm)
    with torch.no_grad():
        block.attention.out.weight.zero_()
        x = torch.randn(2, 3, 6)
        assert_close(block(x, Reading()), x + block.mlp_norm(x))


def test_dropout_of_branches_acts_while_training_only():
    block, x = Block(6, 1, residual=partial(Residual, dropout=0.5)), torch.randn(2, 3, 6)
    assert not torch.equal(block(x, Reading()), block(x, Reading()))
    block.eval()
    assert_close(block(x, Reading()), block(x, Reading()))
