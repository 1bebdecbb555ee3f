"""Our mLSTM equals Hugging Face's xLSTM: the same weights give the same hidden states, gradients and next steps."""

from functools import partial

import pytest
import torch
from parity import SLACK, EmbeddedBackbone, assert_equal, linear, linears, randomized, texts
from torch import nn
from torch.testing import assert_close
from transformers import xLSTMConfig, xLSTMModel
from transformers.models.xlstm import modeling_xlstm

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.nn.block import PreNormBlock
from seqkit.nn.mixers.mlstm import MLSTM
from seqkit.nn.mlp import GatedMLP
from seqkit.nn.position.absolute import NoPosition

# their cache wants a multiple of 64 channels for all keys together
VOCAB, DIM, INNER, DEPTH, HEADS, CHUNK = 29, 128, 40, 2, 4, 8

pytestmark = pytest.mark.skipif(
    modeling_xlstm.external_xlstm,
    reason="with the package xlstm, transformers takes its kernels, which want a GPU",
)


def theirs():
    config = xLSTMConfig(
        vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=DEPTH, num_heads=HEADS, chunk_size=CHUNK,
        ffn_proj_factor=INNER / DIM, ffn_round_up_to_multiple_of=1, norm_reduction_force_float32=False,
    )  # fmt: skip
    return randomized(xLSTMModel(config))


def ours():
    norm = partial(nn.RMSNorm, eps=1e-6)
    block = partial(PreNormBlock, mlp=partial(GatedMLP, width=INNER), norm=norm)
    backbone = Transformer(
        DIM, DEPTH, num_heads=HEADS, causal=True, block=block, mixer=MLSTM, norm=norm
    )
    return EmbeddedBackbone(TokenSpec(vocab_size=VOCAB), backbone, NoPosition)


def weights(theirs):
    """Their weights under our names."""
    mapped = {
        "embedder.content.weight": theirs.embeddings.weight,
        "backbone.norm.weight": theirs.out_norm.weight,
    }
    for i, layer in enumerate(theirs.blocks):
        name, mixer, mlp = f"backbone.blocks.{i}", layer.mlstm_layer, layer.ffn
        mapped |= {
            f"{name}.attention_norm.weight": layer.norm_mlstm.weight,
            f"{name}.attention.norm.weight": mixer.multihead_norm.weight,
            f"{name}.mlp_norm.weight": layer.norm_ffn.weight,
        }
        inputs = [mixer.q, mixer.k, mixer.v, mixer.ogate_preact]
        mapped |= linears(inputs, f"{name}.attention.in_proj")
        gates = [mixer.igate_preact, mixer.fgate_preact]
        mapped |= linears(gates, f"{name}.attention.gate_proj")
        mapped |= linear(mixer.out_proj, f"{name}.attention.out_proj")
        mapped |= linears([mlp.proj_up_gate, mlp.proj_up], f"{name}.mlp.gate_up_proj")
        mapped |= linear(mlp.proj_down, f"{name}.mlp.down_proj")
    return mapped


@pytest.fixture
def pair():
    reference, model = theirs(), ours()
    with torch.no_grad():
        for layer in reference.blocks:  # it begins at -10, where the memory stays near empty
            layer.mlstm_layer.igate_preact.bias += torch.linspace(6.0, 14.0, HEADS)
    model.load_state_dict(weights(reference))
    return reference, model


@pytest.mark.parametrize("n", [7, 16, 43])
def test_hidden_states_and_gradients_of_xlstm(pair, n):
    reference, model = pair
    batch = texts([n, n], VOCAB)
    right = reference(batch.content, use_cache=False).last_hidden_state
    got = model(batch)
    assert_equal(got.detach(), right.detach())
    g = torch.randn_like(right)
    right.backward(g)
    got.backward(g)
    with torch.no_grad():
        for p in reference.parameters():  # the mapping is linear
            p.copy_(p.grad)
        gradients = weights(reference)
        for name, p in model.named_parameters():
            largest = float(gradients[name].abs().max())
            assert largest > 0, name
            assert_close(p.grad, gradients[name].detach(), rtol=0, atol=SLACK * largest)


def test_next_steps_of_xlstm(pair):
    reference, model = pair
    batch = texts([43, 43], VOCAB)
    cache = model.backbone.init_cache(43)
    state = None
    begin = 0
    with torch.no_grad():
        for end in (19, 20, 21, 40, 43):
            ids = batch.content[:, begin:end]
            right = reference(ids, cache_params=state, use_cache=True)
            state = right.cache_params
            part = TokenBatch(ids, batch.positions[:, begin:end], batch.valid[:, begin:end])
            assert_equal(model(part, cache), right.last_hidden_state)
            begin = end


def test_the_comparison_notices_gates_that_are_exchanged(pair):
    reference, model = pair
    batch = texts([19, 19], VOCAB)
    with torch.no_grad():
        bias = model.backbone.blocks[1].attention.gate_proj.bias
        bias.copy_(bias.roll(HEADS))
        with pytest.raises(AssertionError, match="not close"):
            assert_equal(model(batch), reference(batch.content).last_hidden_state)
