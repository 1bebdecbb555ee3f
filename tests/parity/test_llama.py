"""Our Transformer equals Hugging Face's LLaMA: RMSNorm, SwiGLU, rotary positions, grouped-query attention.

h heads · c channels of one head · r channel pairs · d width
"""

from functools import partial

import pytest
import torch
from einops import rearrange
from parity import EmbeddedBackbone, assert_equal, linear, linears, randomized, texts
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenSpec
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.heads import TokenHead
from seqkit.nn.mlp import GatedMLP
from seqkit.nn.position.absolute import NoPosition
from seqkit.nn.position.rotary import Rotary

VOCAB, DIM, INNER, DEPTH, HEADS, EPS = 29, 30, 43, 3, 3, 1e-6


def theirs(num_kv_heads):
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=DIM, intermediate_size=INNER, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        num_key_value_heads=num_kv_heads, rms_norm_eps=EPS, attn_implementation="eager",
    )  # fmt: skip
    return randomized(LlamaForCausalLM(config))


def ours(num_kv_heads):
    norm = partial(nn.RMSNorm, eps=EPS)
    block = partial(
        PreNormBlock,
        attention=partial(MultiHeadAttention, num_kv_heads=num_kv_heads, bias=False),
        mlp=partial(GatedMLP, width=INNER),
        norm=norm,
    )
    backbone = Transformer(
        DIM, DEPTH, num_heads=HEADS, causal=True, block=block, norm=norm, position=Rotary()
    )
    return EmbeddedBackbone(TokenSpec(vocab_size=VOCAB), backbone, NoPosition), TokenHead(
        DIM, VOCAB, bias=False
    )


def paired(projection):
    """A projection whose channels are rotated in pairs (i, i + r), as one whose pairs are (2 i, 2 i + 1)."""
    out = nn.Linear(projection.in_features, projection.out_features, bias=False)
    weight = rearrange(projection.weight, "(h two r) d -> (h r two) d", two=2, r=DIM // HEADS // 2)
    out.load_state_dict({"weight": weight})
    return out


def weights(theirs):
    """Their weights under our names."""
    mapped = {"embedder.content.weight": theirs.embed_tokens.weight}
    for i, layer in enumerate(theirs.layers):
        name, attention, mlp = f"backbone.blocks.{i}", layer.self_attn, layer.mlp
        qkv = [paired(attention.q_proj), paired(attention.k_proj), attention.v_proj]
        mapped |= linears(qkv, f"{name}.attention.qkv_proj") | linear(
            attention.o_proj, f"{name}.attention.out_proj"
        )
        mapped |= linears([mlp.gate_proj, mlp.up_proj], f"{name}.mlp.gate_up_proj") | linear(
            mlp.down_proj, f"{name}.mlp.down_proj"
        )
        mapped |= linear(layer.input_layernorm, f"{name}.attention_norm")
        mapped |= linear(layer.post_attention_layernorm, f"{name}.mlp_norm")
    return mapped | linear(theirs.norm, "backbone.norm")


@pytest.mark.parametrize("lengths", [[13, 13], [11, 19, 5]])
@pytest.mark.parametrize("num_kv_heads", [3, 1])
def test_logits_of_llama(num_kv_heads, lengths):
    reference, (model, head) = theirs(num_kv_heads), ours(num_kv_heads)
    model.load_state_dict(weights(reference.model))
    head.load_state_dict(linear(reference.lm_head, "linear"))
    batch = texts(lengths, VOCAB)
    with torch.no_grad():
        right = reference(batch.content, attention_mask=batch.valid.long()).logits
        assert_equal(head(model(batch), batch.valid), right, batch.valid)
