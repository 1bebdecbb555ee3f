"""Our causal Mamba equals Hugging Face's: the same weights give the same hidden states."""

import pytest
import torch
from einops import rearrange
from parity import EmbeddedBackbone, assert_equal, linear, randomized, texts
from transformers import MambaConfig, MambaModel

from seqkit.backbones import Mamba
from seqkit.interfaces import TokenSpec
from seqkit.nn.position.absolute import NoPosition

VOCAB, DIM, DEPTH, STATES, KERNEL = 29, 22, 3, 5, 3


def theirs():
    config = MambaConfig(
        vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=DEPTH, state_size=STATES, conv_kernel=KERNEL,
        time_step_rank=-(-DIM // 16), use_cache=False,
    )  # fmt: skip
    return randomized(MambaModel(config), std=0.2)


def ours():
    backbone = Mamba(DIM, DEPTH, num_states=STATES, kernel_size=KERNEL, causal=True)
    return EmbeddedBackbone(TokenSpec(vocab_size=VOCAB), backbone, NoPosition)


def weights(theirs):
    """Their weights under our names; our convolution counts back from the token, theirs up to it."""
    mapped = {
        "embedder.content.weight": theirs.embeddings.weight,
        "backbone.norm.weight": theirs.norm_f.weight,
    }
    for i, layer in enumerate(theirs.layers):
        name, mixer = f"backbone.blocks.{i}", layer.mixer
        mapped |= {f"{name}.norm.weight": layer.norm.weight}
        mapped |= linear(mixer.in_proj, f"{name}.mixer.in_proj") | linear(
            mixer.out_proj, f"{name}.mixer.out_proj"
        )
        mapped |= linear(mixer.x_proj, f"{name}.mixer.ssm.x_proj") | linear(
            mixer.dt_proj, f"{name}.mixer.ssm.dt_proj"
        )
        mapped |= {
            f"{name}.mixer.ssm.convolution.weight": rearrange(
                mixer.conv1d.weight, "e 1 k -> k 1 e"
            ).flip(0),
            f"{name}.mixer.ssm.convolution_bias": mixer.conv1d.bias,
            f"{name}.mixer.ssm.A_log": rearrange(mixer.A_log, "e s -> (e s)"),
            f"{name}.mixer.ssm.D": mixer.D,
        }
    return mapped


@pytest.fixture
def pair():
    reference, model = theirs(), ours()
    model.load_state_dict(weights(reference))
    return reference, model


@pytest.mark.parametrize("lengths", [[13, 13], [11, 19, 5]])
def test_hidden_states_of_mamba(pair, lengths):
    reference, model = pair
    batch = texts(lengths, VOCAB)
    with torch.no_grad():
        right = reference(batch.content, attention_mask=batch.valid.long()).last_hidden_state
        assert_equal(model(batch), right, batch.valid)


def test_the_comparison_notices_another_order_of_the_kernel(pair):
    reference, model = pair
    convolution = model.backbone.blocks[1].mixer.ssm.convolution
    batch = texts([13, 13], VOCAB)
    with torch.no_grad():
        convolution.weight.copy_(convolution.weight.flip(0))
        with pytest.raises(AssertionError, match="not close"):
            assert_equal(model(batch), reference(batch.content).last_hidden_state)
