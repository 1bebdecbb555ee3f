"""Attention with a gate equals Qwen3-Next's, attention with sinks that of gpt-oss: outputs and gradients.

h heads · r rotated channel pairs · p positions
"""

from functools import partial

import pytest
import torch
from einops import rearrange
from parity import SLACK, assert_equal, randomized
from transformers import GptOssConfig, Qwen3NextConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.norm import ZeroCenteredRMSNorm

DIM, HEADS, KV_HEADS, C, N = 30, 6, 2, 8, 7
SIZES = {
    "hidden_size": DIM,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": C,
    "attention_bias": True,
    "attn_implementation": "eager",
}
ours_of = partial(MultiHeadAttention, DIM, HEADS, num_kv_heads=KV_HEADS, head_dim=C)


def in_pairs(rows, num_rotated):
    """Channels of a head [c ...]: theirs rotate i with i + r, ours 2 i with 2 i + 1, of the first `num_rotated`."""
    rotated, others = rows[:num_rotated], rows[num_rotated:]
    return torch.cat([rearrange(rotated, "(two r) ... -> (r two) ...", two=2), others])


def heads_in_pairs(rows, num_rotated):
    """Rows [(h c) ...] of the queries' or keys' projection."""
    return torch.cat([in_pairs(head, num_rotated) for head in rows.split(C)])


def qwen3_next(of):
    """Entries under our names. of: maps a parameter of theirs to what is compared, itself or its gradient."""

    def mapped(theirs):
        found = {}
        for kind in ("weight", "bias"):
            q, k, v, o = (of(theirs.get_submodule(f"{x}_proj").get_parameter(kind)) for x in "qkvo")
            query, gate = rearrange(q, "(h two c) ... -> two (h c) ...", two=2, c=C)
            rows = [heads_in_pairs(query, C // 2), heads_in_pairs(k, C // 2), v]
            found[f"qkv_proj.{kind}"] = torch.cat(rows)
            found[f"gate_proj.{kind}"] = gate
            found[f"out_proj.{kind}"] = o
        for name, norm in (("query_norm", theirs.q_norm), ("key_norm", theirs.k_norm)):
            found[f"{name}.weight"] = in_pairs(of(norm.weight), C // 2)
        return found

    return mapped


def gpt_oss(of):
    """As `qwen3_next`."""

    def mapped(theirs):
        found = {"mechanism.sinks": of(theirs.sinks)}
        for kind in ("weight", "bias"):
            q, k, v, o = (of(theirs.get_submodule(f"{x}_proj").get_parameter(kind)) for x in "qkvo")
            found[f"qkv_proj.{kind}"] = torch.cat([heads_in_pairs(q, C), heads_in_pairs(k, C), v])
            found[f"out_proj.{kind}"] = o
        return found

    return mapped


def pair_of(name):
    """Their layer, ours with its weights, the mapping of names, and the number of rotated channels."""
    if name == "Qwen3-Next":
        config = Qwen3NextConfig(**SIZES)
        theirs = Qwen3NextAttention(config, 0)
        norm = partial(ZeroCenteredRMSNorm, eps=config.rms_norm_eps)
        ours = ours_of(output_gate="elementwise", qk_norm=norm)
        mapping, num_rotated = qwen3_next, C // 2
    else:
        theirs = GptOssAttention(GptOssConfig(**SIZES), 0)
        torch.nn.init.normal_(theirs.sinks)
        ours = ours_of(mechanism=partial(ScaledDotProductAttention, sinks="learned"))
        mapping, num_rotated = gpt_oss, C
    theirs = randomized(theirs, std=0.3)
    ours.load_state_dict(mapping(torch.Tensor.detach)(theirs))
    return theirs, ours.eval(), mapping, num_rotated


@pytest.mark.parametrize("name", ["Qwen3-Next", "gpt-oss"])
@pytest.mark.parametrize("causal", [True, False])
def test_outputs_and_gradients_are_theirs(name, causal):
    theirs, ours, mapping, num_rotated = pair_of(name)
    r = num_rotated // 2
    angles = torch.arange(N)[:, None] * 100.0 ** (-torch.arange(r) / r)
    # gpt-oss has one angle of each pair, Qwen one of each channel
    of_theirs = angles if name == "gpt-oss" else torch.cat([angles, angles], dim=-1)
    cos_sin = (of_theirs.cos()[None], of_theirs.sin()[None])
    x = torch.randn(2, N, DIM, requires_grad=True)
    again = x.detach().clone().requires_grad_()
    may_attend = torch.ones(N, N, dtype=torch.bool)
    if causal:
        may_attend = may_attend.tril()
    mask = torch.zeros(1, 1, N, N).masked_fill(~may_attend, torch.finfo(torch.float64).min)
    right, their_weights = theirs(x, cos_sin, mask)
    rotary = torch.polar(torch.ones(N, r), angles)[None, None]
    seen = []
    ours.mechanism.register_forward_hook(lambda _module, args, _output: seen.append(args))
    got = ours(again, AttentionContext(is_causal=causal, rotary=rotary))
    assert_equal(got.detach(), right.detach())
    q, k, _, context = seen[0][:4]
    weights = ours.mechanism.attention_weights(q, k, context)
    assert_equal(weights.detach(), their_weights.detach())
    chosen = torch.randn(2, N, DIM)
    (right * chosen).sum().backward()
    (got * chosen).sum().backward()
    gradients = mapping(lambda p: p.grad)(theirs)
    assert set(gradients) == {parameter for parameter, _ in ours.named_parameters()}
    gradients["x"] = x.grad
    own = {parameter: p.grad for parameter, p in ours.named_parameters()} | {"x": again.grad}
    for parameter, gradient in gradients.items():
        largest = float(gradient.abs().max())
        torch.testing.assert_close(own[parameter], gradient, rtol=0, atol=SLACK * largest)
