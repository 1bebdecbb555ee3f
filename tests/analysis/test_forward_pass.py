"""FLOPs of a forward pass."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seqkit.analysis.forward_pass import _FusedAttention


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_values_of_another_width_than_keys_are_counted(device):
    q, k, v = (torch.zeros(1, 2, *sizes, device=device) for sizes in ((5, 4), (7, 4), (7, 6)))
    with FlopCounterMode(display=False) as counter, _FusedAttention(counter) as attention:
        output = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert output.shape == (1, 2, 5, 6)
    assert counter.get_total_flops() + attention.flops == 2 * 2 * 5 * 7 * (4 + 6)
