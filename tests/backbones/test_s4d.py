"""S4D: a block by its formula. What it shares with Mamba is in test_sequence.py, its layer in nn/test_s4d.py."""

import torch.nn.functional as F
from backbones.test_sequence import embedded
from torch.testing import assert_close

from seqkit.backbones import S4D


def test_a_block_is_a_gated_layer_with_a_residual_connection():
    backbone, x = S4D(6, 1, causal=True).double(), embedded([5, 5], 6)
    (block,) = backbone.blocks
    y = F.gelu(block.mixer.ssm(F.layer_norm(x.hidden, (6,), block.norm.weight, block.norm.bias)))
    value, gate = (y @ block.mixer.out_proj.weight.T + block.mixer.out_proj.bias).chunk(2, dim=-1)
    assert_close(backbone(x), backbone.norm(x.hidden + value * gate.sigmoid()))
