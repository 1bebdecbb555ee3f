"""Our RG-LRU mixer equals the recurrent block of Hugging Face's RecurrentGemma with the same weights.

Its positions begin at 1: where they are 0, the block forgets its state and does not multiply by the square root.
"""

import pytest
import torch
from einops import rearrange
from parity import randomized
from torch import nn
from torch.testing import assert_close
from transformers import RecurrentGemmaConfig
from transformers.models.recurrent_gemma.modeling_recurrent_gemma import (
    RecurrentGemmaRecurrentBlock,
)

from seqkit.nn.mixers.rg_lru import RGLRU

DIM, WIDTH, BLOCKS, KERNEL = 10, 21, 3, 4


def theirs():
    config = RecurrentGemmaConfig(
        hidden_size=DIM, lru_width=WIDTH, num_attention_heads=BLOCKS, conv1d_width=KERNEL, num_hidden_layers=1,
    )  # fmt: skip
    block = RecurrentGemmaRecurrentBlock(config, 0)
    # the model alone fills its parameters
    for p in block.rg_lru.parameters():
        nn.init.zeros_(p)
    return randomized(block, std=0.5)


def ours():
    return RGLRU(DIM, BLOCKS, width=WIDTH, kernel_size=KERNEL)


def under_our_names(of):
    """What `of` gives for each of their parameters, in our shapes; our convolution counts back from the token."""
    return {
        "in_proj.weight": torch.cat([of["linear_x.weight"], of["linear_y.weight"]]),
        "in_proj.bias": torch.cat([of["linear_x.bias"], of["linear_y.bias"]]),
        "out_proj.weight": of["linear_out.weight"],
        "out_proj.bias": of["linear_out.bias"],
        "recurrence.convolution.weight": rearrange(of["conv_1d.weight"], "e 1 k -> k 1 e").flip(0),
        "recurrence.convolution_bias": of["conv_1d.bias"],
        "recurrence.gate_weight": torch.cat(
            [of["rg_lru.recurrent_gate_weight"], of["rg_lru.input_gate_weight"]], dim=-1
        ),
        "recurrence.gate_bias": torch.cat(
            [of["rg_lru.recurrent_gate_bias"], of["rg_lru.input_gate_bias"]], dim=-1
        ).flatten(),
        "recurrence.Lambda": -of["rg_lru.recurrent_param"],
    }


def run(reference, x):
    positions = torch.arange(1, 1 + x.shape[1]).expand(x.shape[:2])
    return reference(x, positions, None, use_cache=False)[0]


@pytest.fixture
def pair():
    reference, mixer = theirs(), ours()
    mixer.load_state_dict(under_our_names(dict(reference.named_parameters())))
    return reference, mixer


def test_outputs_and_gradients(pair):
    reference, mixer = pair
    x = torch.randn(2, 23, DIM, requires_grad=True)
    right = run(reference, x)
    got = mixer.mix(x, None)
    # theirs keeps its states in float32
    assert_close(got, right, rtol=1e-5, atol=1e-5)
    g = torch.randn_like(right)
    names = list(dict(reference.named_parameters()))
    to_x, *found = torch.autograd.grad(right, [x, *reference.parameters()], g)
    expected = under_our_names(dict(zip(names, found)))
    names = [name for name, _ in mixer.named_parameters()]
    got_x, *found = torch.autograd.grad(got, [x, *mixer.parameters()], g)
    assert_close(got_x, to_x, rtol=1e-5, atol=1e-5)
    assert_close(dict(zip(names, found)), {n: expected[n] for n in names}, rtol=1e-5, atol=1e-5)


def test_step_by_step_is_their_whole_sequence(pair):
    reference, mixer = pair
    x, state, outputs = torch.randn(2, 11, DIM), None, []
    with torch.no_grad():
        for t in range(11):
            y, state = mixer.step(x[:, t : t + 1], None, state)
            outputs.append(y)
        assert_close(torch.cat(outputs, dim=1), run(reference, x), rtol=1e-5, atol=1e-5)


def test_the_comparison_notices_exchanged_gates(pair):
    reference, mixer = pair
    x = torch.randn(2, 11, DIM)
    with torch.no_grad():
        mixer.recurrence.gate_bias.copy_(mixer.recurrence.gate_bias.roll(WIDTH // BLOCKS))
        with pytest.raises(AssertionError, match="not close"):
            assert_close(mixer.mix(x, None), run(reference, x), rtol=1e-5, atol=1e-5)
