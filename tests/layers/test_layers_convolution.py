"""The convolution is torch's own; it goes on where it stopped, whatever padding stood between."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.conformance import Reader, check_backbone, laws, made_up
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.convolution import CausalConvolution
from seqkit.layers.memory import KeysValues, LayerMemory


def shaken(dim, taps):
    convolution = CausalConvolution(dim, taps=taps).double()
    torch.nn.init.normal_(convolution.weight)
    return convolution


@pytest.mark.parametrize(("n", "taps"), [(7, 4), (5, 2), (3, 5), (1, 4)])
def test_it_is_conv1d_with_a_channel_a_group(n, taps):
    convolution, x = shaken(11, taps), torch.randn(2, n, 11, dtype=torch.float64, requires_grad=True)
    right = F.conv1d(F.pad(x.mT, (taps - 1, 0)), convolution.weight.flip(0).permute(2, 1, 0), groups=11).mT
    assert_close(convolution(x), right)
    g = torch.randn_like(right)
    ours = torch.autograd.grad(convolution(x), (x, convolution.weight), g)
    theirs = torch.autograd.grad(right, (x, convolution.weight), g)
    assert_close(ours, theirs)
    assert torch.autograd.gradcheck(lambda a, w: _apply(a, w), (x, convolution.weight))


def _apply(x, weight):
    from seqkit.layers.convolution import _Convolve

    return _Convolve.apply(x, weight)


def test_it_starts_as_the_identity():
    x = torch.randn(2, 5, 7)
    assert torch.equal(CausalConvolution(7)(x), x)


def test_chunks_with_padding_between_give_what_one_pass_gives():
    convolution = shaken(7, 4)
    texts = [torch.randn(n, 7, dtype=torch.float64) for n in (9, 6)]
    memory = LayerMemory(KeysValues(1))
    pieces = [[], []]
    for cuts in ([(0, 5), (0, 2)], [(5, 6), (2, 3)], [(6, 9), (3, 6)]):
        longest = max(end - start for start, end in cuts)
        chunk, valid = torch.full((2, longest, 7), 5.0, dtype=torch.float64), torch.zeros(2, longest, dtype=torch.bool)
        for i, (start, end) in enumerate(cuts):
            chunk[i, : end - start], valid[i, : end - start] = texts[i][start:end], True
        y = convolution(chunk, valid, memory)
        for i, (start, end) in enumerate(cuts):
            pieces[i].append(y[i, : end - start])
    for text, got in zip(texts, pieces):
        assert_close(torch.cat(got), convolution(text[None])[0])


def build(dim, causal):
    attention = partial(Attention, convolution=partial(_Shaken, taps=3))
    return Transformer(dim, 2, num_heads=3, causal=causal, block=partial(Block, attention=attention))


class _Shaken(CausalConvolution):
    """All taps at work: a convolution that starts as the identity could leak unseen."""

    def __init__(self, dim, *, taps):
        super().__init__(dim, taps=taps)
        torch.nn.init.normal_(self.weight)


def test_a_transformer_with_convolutions_keeps_the_laws_and_is_causal_only():
    spec_and_examples = made_up()
    for name in ("text", "series"):
        spec, examples = spec_and_examples[name]
        reader = Reader(spec, build(24, True))
        for law in (
            laws.padding_changes_nothing,
            laws.batch_mates_change_nothing,
            laws.padding_may_hold_anything,
            laws.no_token_reads_the_future,
            laws.step_by_step_equals_at_once,
            laws.gradients_reach_every_parameter,
        ):
            law(reader, examples)
    check_backbone(build, causal=[True])
    with pytest.raises(ValueError, match=r"with a convolution cannot .*; leave the convolution out"):
        build(24, False)


def test_a_tail_that_holds_padding_is_noticed(monkeypatch):
    spec, examples = made_up()["text"]
    reader = Reader(spec, build(24, True))
    sound = CausalConvolution.forward
    monkeypatch.setattr(CausalConvolution, "forward", lambda self, x, valid, memory: sound(self, x, None, memory))
    with pytest.raises(AssertionError, match="step by step differs"):
        laws.step_by_step_equals_at_once(reader, examples)


def test_one_tap_is_refused():
    with pytest.raises(ValueError, match="taps=1 reach no earlier token; give 2 or more"):
        CausalConvolution(7, taps=1)
