"""Our Mamba-2 mixer equals Hugging Face's: the same weights give the same outputs, gradients and cache.

Without padding: with it, a cache of theirs keeps the last inputs of the convolution whether they are real or not.
"""

import pytest
import torch
from einops import rearrange
from mixers import assert_notices, assert_same, assert_same_in_parts, in_float64
from parity import assert_equal, randomized
from transformers import DynamicCache, Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer as Theirs

from seqkit.nn.mixers.mamba2 import Mamba2Mixer

DIM, HEADS, STATES, KERNEL = 22, 4, 5, 3


def weights(theirs):
    """Their weights under our names; our convolution counts back from the token, theirs up to it."""
    return {
        "in_proj.weight": theirs.in_proj.weight,
        "convolution.weight": rearrange(theirs.conv1d.weight, "w 1 k -> k 1 w").flip(0),
        "convolution_bias": theirs.conv1d.bias,
        "A_log": theirs.A_log,
        "dt_bias": theirs.dt_bias,
        "D": theirs.D,
        "norm_weight": theirs.norm.weight,
        "out_proj.weight": theirs.out_proj.weight,
    }


@pytest.fixture(params=[1, 2], ids=["a group", "two groups"])
def pair(request, monkeypatch):
    in_float64(monkeypatch)
    config = Mamba2Config(
        hidden_size=DIM, num_heads=HEADS, head_dim=2 * DIM // HEADS, state_size=STATES,
        n_groups=request.param, conv_kernel=KERNEL, chunk_size=16, num_hidden_layers=1,
    )  # fmt: skip
    reference = randomized(Theirs(config, layer_idx=0), std=0.5)
    mixer = Mamba2Mixer(DIM, HEADS, num_states=STATES, num_groups=request.param, kernel_size=KERNEL)
    mixer.load_state_dict(weights(reference))
    return reference, mixer, DynamicCache(config=config)


@pytest.mark.parametrize("n", [1, 70])
def test_outputs_and_gradients(pair, n):
    reference, mixer, _ = pair
    assert_same(reference, mixer, weights, torch.randn(2, n, DIM))


def test_a_prompt_and_then_tokens(pair):
    reference, mixer, cache = pair
    _, hidden = assert_same_in_parts(reference, mixer, cache, torch.randn(2, 12, DIM))
    theirs = rearrange(cache.get_recurrent_state(0, state_idx=0), "b h e s -> b h s e")
    assert_equal(hidden, theirs)


def test_the_comparison_notices_another_order_of_the_kernel(pair):
    reference, mixer, _ = pair

    def flip(mixer):
        mixer.convolution.weight.copy_(mixer.convolution.weight.flip(0))

    assert_notices(reference, mixer, flip, torch.randn(2, 12, DIM))
