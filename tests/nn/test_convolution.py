"""The convolution is torch's own; with a cache it continues after the last real token, whatever padding follows."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import seqkit.nn.convolution as module
from seqkit.backbones import Transformer
from seqkit.nn.attention.kv_cache import KVCache, LayerCache
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.convolution import CausalConvolution
from seqkit.testing import EmbeddedBackbone, check_backbone, long_laws, synthetic
from seqkit.testing.laws import step_by_step_equals_at_once


def shaken(dim, kernel_size):
    convolution = CausalConvolution(dim, kernel_size=kernel_size).double()
    torch.nn.init.normal_(convolution.weight)
    return convolution


@pytest.mark.parametrize("examples_at_once", [1, 2, 9])
@pytest.mark.parametrize(("n", "kernel_size"), [(7, 4), (5, 2), (3, 5), (1, 4)])
def test_it_is_depthwise_conv1d(n, kernel_size, examples_at_once, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", examples_at_once * n * 11)
    convolution, x = (
        shaken(11, kernel_size),
        torch.randn(3, n, 11, dtype=torch.float64, requires_grad=True),
    )
    right = F.conv1d(
        F.pad(x.mT, (kernel_size - 1, 0)), convolution.weight.flip(0).permute(2, 1, 0), groups=11
    ).mT
    assert_close(convolution(x), right)
    g = torch.randn_like(right)
    ours = torch.autograd.grad(convolution(x), (x, convolution.weight), g)
    theirs = torch.autograd.grad(right, (x, convolution.weight), g)
    assert_close(ours, theirs)
    assert torch.autograd.gradcheck(lambda a, w: _apply(a, w), (x, convolution.weight))


def _apply(x, weight):
    from seqkit.nn.convolution import _Convolve

    return _Convolve.apply(x, weight)


def test_it_starts_as_the_identity():
    x = torch.randn(2, 5, 7)
    assert torch.equal(CausalConvolution(7)(x), x)


def test_steps_with_padding_between_equal_one_pass():
    convolution = shaken(7, 4)
    sequences = [torch.randn(n, 7, dtype=torch.float64) for n in (9, 6)]
    cache = LayerCache(KVCache(1))
    outputs = [[], []]
    for cuts in ([(0, 5), (0, 2)], [(5, 6), (2, 3)], [(6, 9), (3, 6)]):
        longest = max(end - start for start, end in cuts)
        chunk, valid = (
            torch.full((2, longest, 7), 5.0, dtype=torch.float64),
            torch.zeros(2, longest, dtype=torch.bool),
        )
        for i, (start, end) in enumerate(cuts):
            chunk[i, : end - start], valid[i, : end - start] = sequences[i][start:end], True
        y = convolution(chunk, valid, cache)
        for i, (start, end) in enumerate(cuts):
            outputs[i].append(y[i, : end - start])
    for sequence, got in zip(sequences, outputs):
        assert_close(torch.cat(got), convolution(sequence[None])[0])


def build(dim, causal):
    attention = partial(MultiHeadAttention, convolution=partial(_Shaken, kernel_size=3))
    return Transformer(
        dim, 2, num_heads=3, causal=causal, block=partial(PreNormBlock, attention=attention)
    )


class _Shaken(CausalConvolution):
    """No weight is zero: a convolution that starts as the identity could leak unnoticed."""

    def __init__(self, dim, *, kernel_size):
        super().__init__(dim, kernel_size=kernel_size)
        torch.nn.init.normal_(self.weight)


def test_a_transformer_with_convolutions_keeps_the_laws_and_is_causal_only():
    check_backbone(build, causal=[True], kinds=["text"], quick=True)
    spec, examples = long_laws.long_texts()
    long_laws.reorder_keeps_the_rows(EmbeddedBackbone(spec, build(24, True)), examples)
    with pytest.raises(ValueError, match="bidirectional"):
        build(24, False)


def test_a_law_notices_padding_in_the_cache_of_the_convolution(monkeypatch):
    spec, examples = synthetic()["text"]
    model = EmbeddedBackbone(spec, build(24, True))
    sound = CausalConvolution.forward
    monkeypatch.setattr(
        CausalConvolution, "forward", lambda self, x, valid, cache: sound(self, x, None, cache)
    )
    with pytest.raises(AssertionError, match="step by step differs"):
        step_by_step_equals_at_once(model, examples)


def test_a_kernel_size_of_1_is_refused():
    with pytest.raises(ValueError, match="kernel_size=1"):
        CausalConvolution(7, kernel_size=1)
