"""LLaMA of Hugging Face is a Transformer of ours: RMSNorm, SwiGLU, rotary positions, shared heads of keys and values.

h heads · c channels of one head · r channel pairs · d width
"""

from functools import partial

import pytest
import torch
from einops import rearrange
from parity import Reader, assert_equal, linear, linears, shaken, texts
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from seqkit.backbones import Transformer
from seqkit.contract import TokenSpec
from seqkit.heads import PerToken
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.mlp import GatedMLP
from seqkit.layers.position import NoPosition, Rotary

VOCAB, DIM, INNER, DEPTH, HEADS, EPS = 29, 30, 43, 3, 3, 1e-6


def theirs(num_kv_heads):
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=DIM, intermediate_size=INNER, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        num_key_value_heads=num_kv_heads, rms_norm_eps=EPS, attn_implementation="eager",
    )  # fmt: skip
    return shaken(LlamaForCausalLM(config))


def ours(num_kv_heads):
    norm = partial(nn.RMSNorm, eps=EPS)
    block = partial(
        Block,
        attention=partial(Attention, num_kv_heads=num_kv_heads, bias=False),
        mlp=partial(GatedMLP, width=INNER),
        norm=norm,
    )
    backbone = Transformer(DIM, DEPTH, num_heads=HEADS, causal=True, block=block, norm=norm, position=Rotary())
    return Reader(TokenSpec(vocab_size=VOCAB), backbone, NoPosition), PerToken(DIM, VOCAB, bias=False)


def paired(projection):
    """A projection whose channels are turned in pairs (i, i + r), as one whose pairs are (2 i, 2 i + 1)."""
    out = nn.Linear(projection.in_features, projection.out_features, bias=False)
    weight = rearrange(projection.weight, "(h two r) d -> (h r two) d", two=2, r=DIM // HEADS // 2)
    out.load_state_dict({"weight": weight})
    return out


def weights(theirs):
    """Their weights under our names."""
    mapped = {"embedder.content.weight": theirs.embed_tokens.weight}
    for i, layer in enumerate(theirs.layers):
        name, attention, mlp = f"backbone.blocks.{i}", layer.self_attn, layer.mlp
        asks = [paired(attention.q_proj), paired(attention.k_proj), attention.v_proj]
        mapped |= linears(asks, f"{name}.attention.qkv") | linear(attention.o_proj, f"{name}.attention.out")
        mapped |= linears([mlp.gate_proj, mlp.up_proj], f"{name}.mlp.widen") | linear(mlp.down_proj, f"{name}.mlp.out")
        mapped |= linear(layer.input_layernorm, f"{name}.attention_norm")
        mapped |= linear(layer.post_attention_layernorm, f"{name}.mlp_norm")
    return mapped | linear(theirs.norm, "backbone.norm")


@pytest.mark.parametrize("lengths", [[13, 13], [11, 19, 5]])
@pytest.mark.parametrize("num_kv_heads", [3, 1])
def test_scores_of_llama(num_kv_heads, lengths):
    source, (reader, head) = theirs(num_kv_heads), ours(num_kv_heads)
    reader.load_state_dict(weights(source.model))
    head.load_state_dict(linear(source.lm_head, "linear"))
    batch = texts(lengths, VOCAB)
    with torch.no_grad():
        right = source(batch.content, attention_mask=batch.valid.long()).logits
        assert_equal(head(reader(batch), batch.valid), right, batch.valid)
