"""Our GatedDeltaNet equals that of Qwen3-Next: the same weights give the same outputs, gradients and cache."""

import pytest
import torch
from einops import rearrange
from mixers import assert_notices, assert_same, assert_same_in_parts, in_float64
from parity import assert_equal, randomized
from transformers import DynamicCache, Qwen3NextConfig
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

from seqkit.nn.mixers.delta import GatedDeltaNet

DIM, HEADS, KEYS, VALUES, KERNEL = 22, 3, 5, 10, 3


def weights(theirs):
    """Their weights under our names: theirs come by head, ours by kind, and our convolution counts back."""
    values = theirs.num_v_heads // HEADS * VALUES
    by_head = rearrange(theirs.in_proj_qkvz.weight, "(h c) d -> h c d", h=HEADS)
    b, a = rearrange(theirs.in_proj_ba.weight, "(h c) d -> h c d", h=HEADS).chunk(2, dim=1)
    kinds = (*by_head.split([KEYS, KEYS, values, values], dim=1), a, b)
    return {
        "in_proj.weight": torch.cat([rearrange(kind, "h c d -> (h c) d") for kind in kinds]),
        "convolution.weight": rearrange(theirs.conv1d.weight, "w 1 k -> k 1 w").flip(0),
        "A_log": theirs.A_log,
        "dt_bias": theirs.dt_bias,
        "norm.weight": theirs.norm.weight,
        "out_proj.weight": theirs.out_proj.weight,
    }


@pytest.fixture(params=[1, 2], ids=["a value head", "two value heads"])
def pair(request, monkeypatch):
    in_float64(monkeypatch)
    values = HEADS * request.param
    config = Qwen3NextConfig(
        hidden_size=DIM, linear_num_key_heads=HEADS, linear_num_value_heads=values,
        linear_key_head_dim=KEYS, linear_value_head_dim=VALUES, linear_conv_kernel_dim=KERNEL,
        rms_norm_eps=1e-5, num_hidden_layers=1, layer_types=["linear_attention"],
    )  # fmt: skip
    reference = randomized(Qwen3NextGatedDeltaNet(config, layer_idx=0), std=0.5)
    mixer = GatedDeltaNet(DIM, HEADS, head_dim=KEYS, num_value_heads=values, kernel_size=KERNEL)
    mixer.load_state_dict(weights(reference))
    return reference, mixer, DynamicCache(config=config)


@pytest.mark.parametrize("n", [1, 70])
def test_outputs_and_gradients(pair, n):
    reference, mixer, _ = pair
    assert_same(reference, mixer, weights, torch.randn(2, n, DIM))


def test_a_prompt_and_then_tokens(pair):
    reference, mixer, cache = pair
    _, matrix = assert_same_in_parts(reference, mixer, cache, torch.randn(2, 12, DIM))
    assert_equal(matrix, cache.get_recurrent_state(0, state_idx=0))


def test_the_comparison_notices_another_order_of_the_kernel(pair):
    reference, mixer, _ = pair

    def flip(mixer):
        mixer.convolution.weight.copy_(mixer.convolution.weight.flip(0))

    assert_notices(reference, mixer, flip, torch.randn(2, 12, DIM))
