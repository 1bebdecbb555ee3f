"""A gate multiplies the attention output of every mechanism by sigmoids of the layer's input, and nothing else."""

from functools import partial

import pytest
import torch
from laws.combinations import SETTINGS
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary
from seqkit.registry import components, find
from seqkit.testing import EmbeddedBackbone, check_backbone, synthetic

GATES = pytest.mark.parametrize("output_gate", ["elementwise", "headwise"])


def written_out(attention, x, memory):
    """Token by token and head by head: o_proj of (softmax(q k / sqrt(c)) v) * sigmoid(x W + b)."""
    c = attention.head_dim
    tokens = []
    for i in range(x.shape[0]):
        heads = []
        gate = attention.gate_proj.weight @ x[i] + attention.gate_proj.bias
        for h in range(attention.num_heads):
            g = h * attention.num_kv_heads // attention.num_heads
            query = part(attention.q_proj, h, c) @ with_one(x[i])
            keys = [part(attention.kv_proj, g, c) @ with_one(y) for y in memory]
            values = [
                part(attention.kv_proj, attention.num_kv_heads + g, c) @ with_one(y) for y in memory
            ]
            weights = torch.stack([query @ key / c**0.5 for key in keys]).softmax(dim=0)
            output = sum(w * value for w, value in zip(weights, values, strict=True))
            own = gate[h * c : (h + 1) * c] if len(gate) > attention.num_heads else gate[h]
            heads.append(output / (1 + (-own).exp()))
        tokens.append(attention.out_proj.weight @ torch.cat(heads) + attention.out_proj.bias)
    return torch.stack(tokens)


def part(linear, head, c):
    """Rows of a head, with the bias as last column."""
    at = slice(head * c, (head + 1) * c)
    return torch.cat([linear.weight[at], linear.bias[at, None]], dim=1)


def with_one(x):
    return torch.cat([x, x.new_ones(1)])


@GATES
def test_cross_attention_with_a_gate_equals_its_formula(output_gate):
    attention = MultiHeadAttention(15, 6, head_dim=4, num_kv_heads=2, output_gate=output_gate)
    attention.for_cross_attention().double()
    for p in attention.parameters():
        nn.init.normal_(p)
    x = torch.randn(1, 5, 15, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(1, 7, 15, dtype=torch.float64, requires_grad=True)
    got = attention(x, AttentionContext(memory=memory))
    right = written_out(attention, x[0], memory[0])[None]
    assert_close(got, right)
    chosen = torch.randn_like(got)
    inputs = [x, memory, *attention.parameters()]
    assert_close(*(torch.autograd.grad((y * chosen).sum(), inputs) for y in (got, right)))


@GATES
@pytest.mark.parametrize("name", sorted(components("mechanism")))
def test_the_gate_is_between_every_mechanism_and_the_output_projection(name, output_gate):
    mechanism = partial(find("mechanism", name).load(), **SETTINGS.get(name, {}))
    attention = partial(MultiHeadAttention, mechanism=mechanism, output_gate=output_gate)
    spec, examples = synthetic()["graph" if mechanism.func.needs_adjacency else "text"]
    backbone = Transformer(24, 1, num_heads=3, block=partial(PreNormBlock, attention=attention))
    layer = backbone.blocks[0].attention
    nn.init.normal_(layer.gate_proj.weight)
    nn.init.normal_(layer.gate_proj.bias)
    seen = {}
    for part_name in ("mechanism", "gate_proj", "out_proj"):
        layer.get_submodule(part_name).register_forward_hook(partial(record, seen, part_name))
    layer.register_forward_hook(partial(record, seen, "layer"))
    EmbeddedBackbone(spec, backbone).eval()(TokenBatch.collate(examples))
    gate = seen["gate_proj"][1]
    assert_close(seen["gate_proj"][0], seen["layer"][0])
    if output_gate == "headwise":
        gate = gate.repeat_interleave(8, dim=-1)
    heads = seen["mechanism"][1].transpose(1, 2).flatten(2)
    assert_close(seen["out_proj"][0], heads / (1 + (-gate).exp()))


def record(seen, name, _module, args, output):
    """The first input of a module, and its output."""
    seen[name] = args[0], output


@GATES
def test_gates_start_near_one_half(output_gate):
    """Where the norm before has made the input's channels of size 1, as in all of our blocks."""
    attention = partial(MultiHeadAttention, output_gate=output_gate)
    backbone = Transformer(512, 2, num_heads=8, block=partial(PreNormBlock, attention=attention))
    gate_proj = backbone.blocks[1].attention.gate_proj
    assert not gate_proj.bias.any()
    with torch.no_grad():
        gates = gate_proj(torch.randn(200, 512)).sigmoid()
    assert abs(float(gates.mean()) - 0.5) < 0.02
    assert 0.08 < float(gates.std()) < 0.12, "logits of size 0.02 * sqrt(512), a quarter of that"


def test_without_a_gate_there_is_none():
    layer = MultiHeadAttention(24, 3)
    assert layer.gate_proj is None
    with_gate = MultiHeadAttention(24, 3, output_gate="headwise", bias=False)
    assert set(with_gate.state_dict()) == {
        "qkv_proj.weight",
        "gate_proj.weight",
        "out_proj.weight",
    }
    assert with_gate.gate_proj.weight.shape == (3, 24)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@GATES
def test_under_autocast_the_gate_has_its_dtype(output_gate, dtype):
    layer = MultiHeadAttention(24, 3, output_gate=output_gate)
    x = torch.randn(2, 5, 24)
    right = layer(x, AttentionContext())
    with torch.autocast("cpu", dtype):
        got = layer(x, AttentionContext())
    assert got.dtype == dtype
    assert_close(got.float(), right, atol=0.02, rtol=0.02)


def stack(output_gate):
    """`(dim, causal=...) -> Transformer` with gates."""
    attention = partial(MultiHeadAttention, num_kv_heads=1, output_gate=output_gate)
    block = partial(PreNormBlock, attention=attention)
    return partial(Transformer, depth=2, num_heads=3, block=block, position=Rotary())


@GATES
def test_a_transformer_with_gates_keeps_the_laws(output_gate):
    check_backbone(stack(output_gate), dim=24, kinds=["text"], quick=True)


@pytest.mark.slow
@GATES
def test_it_keeps_all_laws_on_all_kinds_of_tokens(output_gate):
    check_backbone(stack(output_gate), dim=24)
