"""Packed sequences of every backbone that takes them, and faults that the law names: a state, a tail or a gradient that
crosses from one sequence of a row to the next."""

import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from conftest import backbones
from laws.combinations import SETTINGS
from torch import nn

from seqkit.backbones import GRU, LSTM, TCN, Mamba, MeanPool, Towers, Transformer
from seqkit.interfaces import Embedded
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.convolution import CausalConvolution
from seqkit.nn.segments import SegmentRows
from seqkit.registry import find
from seqkit.testing import EmbeddedBackbone, synthetic
from seqkit.testing.long_laws import long_texts

DIM = 24
check_packed_equals_separate = sys.modules["seqkit.testing.laws"].packed_equals_separate


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", sorted(backbones()))
def test_packed_sequences_are_as_apart(name, causal):
    backbone = backbones()[name](DIM, causal=causal)
    assert backbone.supports_segments
    for spec, examples in (synthetic()["text"], long_texts()):
        check_packed_equals_separate(EmbeddedBackbone(spec, backbone), examples)


@pytest.mark.parametrize("causal", [False, True])
def test_packed_runs_of_towers_are_as_apart(causal):
    parts = {"text": GRU(DIM, 1, causal=causal), "series": TCN(DIM, 1, causal=causal)}
    spec, examples = synthetic()["joined"]
    check_packed_equals_separate(EmbeddedBackbone(spec, Towers(parts)), examples)


def packed_otherwise(kind, wrong, **settings):
    """A backbone that gives `wrong(self, embedded, right)` of packed rows. right: what is right."""

    class Faulty(kind):
        def forward(self, embedded, cache=None):
            right = super().forward(embedded, cache)
            if embedded.segments is None:
                return right
            return wrong(self, embedded, right) * embedded.valid[..., None]

    return Faulty(DIM, 1, **settings)


def _state_crosses(backbone, embedded, right):
    return backbone(embedded.replace(segments=None))


def _gradient_crosses(backbone, embedded, right):
    whole = backbone(embedded.replace(segments=None))
    return right + whole - whole.detach()


def _padding_is_a_token(backbone, embedded, right):
    """From right to left, a sequence begins in padding, where dt is not zero."""
    rows = SegmentRows.of(embedded.segments, embedded.valid)
    plain = rows.embedded(embedded)
    every = torch.ones_like(plain.valid)
    return rows.join(backbone.run(plain.replace(valid=every), None))


def _rows_share_numbers(backbone, embedded, right):
    numbers, valid = embedded.segments.flatten()[None], embedded.valid.flatten()[None]
    rows = SegmentRows.of(numbers, valid)
    hidden = rows.split(embedded.hidden.flatten(0, 1)[None])
    plain = Embedded(hidden, torch.zeros_like(hidden[..., :1]), rows.valid)
    return rows.join(backbone.run(plain, None)).reshape(right.shape)


def _numbers_are_of_the_first_row(backbone, embedded, right):
    numbers = embedded.segments[:1].expand_as(embedded.segments)
    rows = SegmentRows.of(numbers.contiguous(), embedded.valid)
    return rows.join(backbone.run(rows.embedded(embedded), None))


def _sequences_change_places(backbone, embedded, right):
    rows = SegmentRows.of(embedded.segments, embedded.valid)
    return rows.join(rows.split(right).roll(1, dims=0))


class TailCrosses(GRU):
    """Its states begin anew in each sequence, and the inputs that its convolution keeps do not."""

    def __init__(self):
        super().__init__(DIM, 1, causal=True)
        self.convolution = CausalConvolution(DIM, kernel_size=2)
        nn.init.normal_(self.convolution.weight)

    def forward(self, embedded, cache=None):
        return super().forward(embedded.replace(hidden=self.convolution(embedded.hidden)), cache)


class LosesAGradient(GRU):
    """A parameter of packed sequences has none."""

    def __init__(self):
        super().__init__(DIM, 1, causal=True)
        self.scale = nn.Parameter(torch.ones(DIM))

    def forward(self, embedded, cache=None):
        scale = self.scale if embedded.segments is None else self.scale.detach()
        return super().forward(embedded, cache) * scale


class OneHead(Transformer):
    def __init__(self, dim, depth, **settings):
        super().__init__(dim, depth, num_heads=1, **settings)


def _takes_the_row_for_one(self, q, k, v, context, cache=None):
    return self.run(q, k, v, replace(context, segments=None), cache)


def attention_over_rows(name, causal=True):
    """A Transformer of a mechanism without a mask that does not know of packed sequences."""
    sound = find("mechanism", name).load()
    mechanism = type(name, (sound,), {"forward": _takes_the_row_for_one})
    attention = partial(MultiHeadAttention, mechanism=partial(mechanism, **SETTINGS.get(name, {})))
    block = partial(PreNormBlock, attention=attention)
    return partial(Transformer, DIM, 1, num_heads=3, causal=causal, block=block)


class ConvolutionCrosses(CausalConvolution):
    """Before attention; it takes a row for one sequence."""

    def __init__(self, dim):
        super().__init__(dim)
        nn.init.normal_(self.weight)


class ConvolvesRows(MultiHeadAttention):
    def _convolved(self, convolution, qkv, context, cache):
        return convolution(qkv, context.query_valid, cache)


def convolving():
    attention = partial(ConvolvesRows, convolution=ConvolutionCrosses)
    block = partial(PreNormBlock, attention=attention)
    return Transformer(DIM, 1, num_heads=3, causal=True, block=block)


def planted(kind, wrong, causal=True):
    return partial(packed_otherwise, kind, wrong, causal=causal)


OF_ANOTHER = "a packed sequence changes another one in its row"
GRADIENT_OF_ANOTHER = "a packed sequence changes the gradient of another one in its row"
FAULTS = {
    "a state of an RNN crosses": (planted(LSTM, _state_crosses), OF_ANOTHER),
    "a state of an SSM crosses": (planted(Mamba, _state_crosses), OF_ANOTHER),
    "a state crosses from right to left": (planted(GRU, _state_crosses, False), OF_ANOTHER),
    "a window of a convolution crosses": (planted(TCN, _state_crosses), OF_ANOTHER),
    "a tail of a convolution crosses": (TailCrosses, OF_ANOTHER),
    "a gradient of an RNN crosses": (planted(GRU, _gradient_crosses), GRADIENT_OF_ANOTHER),
    "a gradient of an SSM crosses": (planted(Mamba, _gradient_crosses), GRADIENT_OF_ANOTHER),
    "a gradient of attention crosses": (
        planted(OneHead, _gradient_crosses, False),
        GRADIENT_OF_ANOTHER,
    ),
    "sums of linear attention cross": (attention_over_rows("LinearAttention"), OF_ANOTHER),
    "sums of Performer cross": (attention_over_rows("PerformerAttention", False), OF_ANOTHER),
    "a window of attention crosses": (attention_over_rows("SlidingWindowAttention"), OF_ANOTHER),
    "buckets of keys cross": (attention_over_rows("LSHAttention"), OF_ANOTHER),
    "a projection of keys crosses": (attention_over_rows("LinformerAttention", False), OF_ANOTHER),
    "a convolution before attention crosses": (convolving, OF_ANOTHER),
    "a gradient of a parameter is lost": (LosesAGradient, "give backbone.scale another gradient"),
    "padding is a token": (planted(Mamba, _padding_is_a_token, False), OF_ANOTHER),
    "rows share numbers": (planted(LSTM, _rows_share_numbers), OF_ANOTHER),
    "numbers are of the first row": (planted(LSTM, _numbers_are_of_the_first_row), OF_ANOTHER),
    "sequences change places": (planted(MeanPool, _sequences_change_places), OF_ANOTHER),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_law_names_a_planted_fault(fault):
    build, sentence = FAULTS[fault]
    torch.manual_seed(0)
    spec, examples = synthetic()["text"]
    if "projection" in fault:  # its columns are few
        examples = [x.at(slice(5)) for x in examples[:2]]
    model = EmbeddedBackbone(spec, build())
    with pytest.raises(AssertionError, match=sentence):
        check_packed_equals_separate(model, examples)
