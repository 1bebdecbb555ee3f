"""Attention with sinks equals its formula written out, with gradients, and stays in torch's fused kernel."""

from functools import partial

import pytest
import torch
from heads import random_heads
from torch import nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from seqkit.backbones import Transformer
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.attention.sliding_window import SlidingWindowAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary
from seqkit.testing import check_backbone, check_mechanism
from seqkit.training.optim import AdamW, Muon

KINDS = pytest.mark.parametrize("sinks", ["learned", "zero"])


def with_sinks(sinks="learned", **settings):
    """Four heads of three channels in float64; learned logits differ between heads."""
    mechanism = ScaledDotProductAttention(4, 3, sinks=sinks, **settings).double()
    if mechanism.sinks is not None:
        nn.init.normal_(mechanism.sinks, std=2.0)
    return mechanism


def written_out(mechanism, q, k, v, bias):
    """Token by token: exp(score) / (exp(sink) + sum of exp(scores)), the mean of values with these weights.

    bias: [b h n m], added to the scores.
    """
    heads = []
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            g = h * k.shape[1] // q.shape[1]
            sink = torch.zeros(()).double() if mechanism.sinks is None else mechanism.sinks[h]
            for i in range(q.shape[2]):
                total = sink.exp()
                output = torch.zeros(v.shape[-1]).double()
                for j in range(k.shape[2]):
                    score = q[b, h, i] @ k[b, g, j] / mechanism.temperature
                    if mechanism.softcap is not None:
                        score = mechanism.softcap * (score / mechanism.softcap).tanh()
                    weight = (score + bias[b, h, i, j]).exp()
                    total = total + weight
                    output = output + weight * v[b, g, j]
                heads.append(output / total)
    return torch.stack(heads).reshape(*q.shape[:3], -1)


def masks(name):
    """A context, and its mask as a bias [b h n m]; one query of the random masks has nothing to attend to."""
    if name == "none":
        return AttentionContext(), torch.zeros(2, 4, 5, 5)
    if name == "causal":
        later = torch.ones(5, 5).triu(1).bool()
        bias = torch.zeros(2, 4, 5, 5).masked_fill(later, -torch.inf)
        return AttentionContext(is_causal=True), bias
    allowed = torch.rand(2, 4, 5, 5) < 0.6
    allowed[1, 2, 3] = False
    if name == "mask":
        return AttentionContext(allowed), torch.zeros(2, 4, 5, 5).masked_fill(~allowed, -torch.inf)
    bias = torch.randn(2, 4, 5, 5).masked_fill(~allowed, -torch.inf).double()
    return AttentionContext(bias), bias


@KINDS
@pytest.mark.parametrize("name", ["none", "causal", "mask", "bias"])
@pytest.mark.parametrize(
    ("num_kv_heads", "settings"),
    [(4, {}), (2, {"temperature": 0.7}), (1, {"softcap": 1.3})],
)
def test_outputs_and_gradients_are_the_formulas(num_kv_heads, settings, name, sinks):
    mechanism = with_sinks(sinks, **settings)
    inputs = [x.double().requires_grad_() for x in random_heads(4, num_kv_heads, n=5, m=5)]
    context, bias = masks(name)
    got = mechanism(*inputs, context)
    right = written_out(mechanism, *inputs, bias.double())
    assert_close(got, right)
    q, k, v = inputs
    weights = mechanism.attention_weights(q, k, context)
    assert_close(weights @ v.repeat_interleave(4 // num_kv_heads, dim=1), right)
    assert weights.sum(dim=-1).max() < 1
    chosen = torch.randn_like(got)
    inputs += mechanism.parameters()
    found, expected = (torch.autograd.grad((x * chosen).sum(), inputs) for x in (got, right))
    assert_close(found, expected)
    assert all(x.isfinite().all() for x in found)
    if name in ("mask", "bias"):
        assert not got[1, 2, 3].any(), "a query that may attend to nothing"


def test_sinks_of_zero_are_torchs_zero_attention():
    """`add_zero_attn` of torch adds a key and a value of zeros."""
    attention = MultiHeadAttention(
        21, 3, mechanism=partial(ScaledDotProductAttention, sinks="zero")
    )
    theirs = nn.MultiheadAttention(21, 3, batch_first=True, add_zero_attn=True)
    theirs.in_proj_weight = attention.qkv_proj.weight
    theirs.in_proj_bias = attention.qkv_proj.bias
    theirs.out_proj = attention.out_proj
    x = torch.randn(2, 5, 21)
    right, weights = theirs(x, x, x, average_attn_weights=False)
    assert_close(attention(x, AttentionContext()), right)
    seen = []
    attention.mechanism.register_forward_hook(lambda _module, args, _output: seen.append(args))
    attention(x, AttentionContext())
    q, k, _, context = seen[0][:4]
    assert_close(attention.mechanism.attention_weights(q, k, context), weights[..., :-1])


def test_a_sink_of_a_very_low_logit_gets_nothing():
    inputs = [x.double() for x in random_heads(4, 4)]
    mechanism = with_sinks()
    nn.init.constant_(mechanism.sinks, -1e4)
    plain = ScaledDotProductAttention(4, 3)
    context = AttentionContext()
    assert_close(mechanism(*inputs, context), plain(*inputs, context))
    nn.init.constant_(mechanism.sinks, 1e4)
    assert not mechanism(*inputs, context).any()


def test_only_learned_sinks_are_parameters_and_they_do_not_decay():
    assert list(ScaledDotProductAttention(4, 3).state_dict()) == []
    assert list(with_sinks("zero").state_dict()) == []
    assert list(with_sinks().state_dict()) == ["sinks"]
    assert_close(ScaledDotProductAttention(4, 3, sinks="learned").sinks.data, torch.zeros(4))
    model = stack(ScaledDotProductAttention)(24, causal=True)
    sinks = {id(p) for name, p in model.named_parameters() if name.endswith("sinks")}
    assert len(sinks) == 2
    for factory in (AdamW(), Muon()):
        groups = [
            group
            for group in factory.build(model).param_groups
            if sinks & {id(p) for p in group["params"]}
        ]
        assert [group["weight_decay"] for group in groups] == [0.0]


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["none", "causal", "mask"])
def test_the_kernel_stays_fused_while_training(name):
    mechanism = with_sinks()
    inputs = [x.double().requires_grad_() for x in random_heads(4, 4, n=5, m=5)]
    context, _ = masks(name)
    with Operations() as operations:
        mechanism(*inputs, context).sum().backward()
    kernel = "aten._scaled_dot_product_flash_attention_for_cpu"
    assert {f"{kernel}.default", f"{kernel}_backward.default"} <= operations.names
    assert not any("softmax" in one for one in operations.names)


@KINDS
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_with_a_cache_each_step_is_that_of_the_whole(softcap, sinks):
    q, k, v = (x.double() for x in random_heads(4, 2, n=7, m=7))
    mechanism = with_sinks(sinks, softcap=softcap)
    whole = mechanism(q, k, v, AttentionContext(is_causal=True))
    cache = mechanism.init_cache(7)
    steps = [
        mechanism(q[:, :, :4], k[:, :, :4], v[:, :, :4], AttentionContext(is_causal=True), cache)
    ]
    for i in range(4, 7):
        steps.append(mechanism(*(x[:, :, i : i + 1] for x in (q, k, v)), AttentionContext(), cache))
    assert_close(torch.cat(steps, dim=2), whole)


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_dropout_zeroes_weights_and_keeps_the_sink(softcap):
    q, k, _ = (x.double() for x in random_heads(4, 4))
    mechanism = with_sinks(dropout=0.25, softcap=softcap)
    weights = mechanism.attention_weights(q, k, AttentionContext())
    values = torch.eye(7).double().expand(2, 4, 7, 7)
    got = mechanism(q, k, values, AttentionContext())
    assert_close(got, torch.where(got > 0, weights / 0.75, 0.0))
    assert 0.1 < float((got == 0).double().mean()) < 0.4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_dtype_is_kept(dtype):
    inputs = [x.to(dtype) for x in random_heads(4, 2)]
    mechanism = with_sinks()
    right = mechanism(*(x.double() for x in inputs), AttentionContext())
    got = mechanism(*inputs, AttentionContext())
    assert got.dtype == mechanism.attention_weights(*inputs[:2], AttentionContext()).dtype == dtype
    assert_close(got.double(), right, atol=0.05, rtol=0.05)


@KINDS
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [5, 41])
def test_a_sliding_window_has_the_sinks_of_its_heads(n, causal, sinks):
    window = SlidingWindowAttention(4, 3, size=3, num_global=1, sinks=sinks).double()
    for p in window.parameters():
        nn.init.normal_(p)
    q, k, v = (x.double() for x in random_heads(4, 2, n=n, m=n))
    context = AttentionContext(is_causal=causal)
    i, j = torch.arange(n)[:, None], torch.arange(n)
    allowed = ((i - j).abs() < 3) | (i < 1) | (j < 1)
    if causal:
        allowed = allowed & (j <= i)
    dense = AttentionContext(allowed[None, None])
    assert_close(window(q, k, v, context), window.attend(q, k, v, dense))
    assert_close(
        window.attention_weights(q, k, context), window.attend.attention_weights(q, k, dense)
    )


@pytest.mark.parametrize(
    "mechanism",
    [ScaledDotProductAttention, partial(SlidingWindowAttention, size=3)],
)
def test_other_sinks_are_refused(mechanism):
    with pytest.raises(ValueError, match=r"sinks='softmax1'; it is one of 'learned', 'zero'"):
        mechanism(4, 3, sinks="softmax1")


def stack(mechanism, sinks="learned"):
    """`(dim, causal=...) -> Transformer` with sinks."""
    attention = partial(
        MultiHeadAttention, num_kv_heads=1, mechanism=partial(mechanism, sinks=sinks)
    )
    block = partial(PreNormBlock, attention=attention)
    return partial(Transformer, depth=2, num_heads=3, block=block, position=Rotary())


@pytest.mark.slow
def test_a_transformer_with_sinks_keeps_the_laws():
    check_backbone(stack(ScaledDotProductAttention), dim=24, kinds=["text"], quick=True)


@pytest.mark.slow
@KINDS
def test_it_keeps_all_laws_on_all_kinds_of_tokens(sinks):
    check_backbone(stack(ScaledDotProductAttention, sinks), dim=24)
    check_mechanism(partial(ScaledDotProductAttention, sinks=sinks))
    check_mechanism(partial(SlidingWindowAttention, size=3, num_global=1, sinks=sinks))
