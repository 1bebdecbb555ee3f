"""A component that lacks what its interface asks is refused in one line when it is built."""

import pytest
from torch import nn

from seqkit.backbones import Transformer
from seqkit.interfaces import Backbone, TokenSpec
from seqkit.model import check_compatible
from seqkit.nn.attention.context import AttentionFeature
from seqkit.nn.attention.mechanism import DenseScoreAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.position.base import RelativePosition
from seqkit.objectives import Classify


class _Penalty(RelativePosition):
    def bias(self, query_positions, key_positions, num_heads):
        return None


class _Nothing(RelativePosition):
    requires = AttentionFeature.BIAS


class _Dropped(_Penalty):
    requires = AttentionFeature.ROTARY

    def rotary(self, positions, head_dim):
        return None


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (_Penalty, "_Penalty has no attribute `requires`, .* write `requires = AttentionFeature.BIAS` in the class"),
        (_Nothing, "_Nothing requires AttentionFeature.BIAS and has no method `bias`"),
        (_Dropped, "_Dropped writes `bias`, which its `requires` does not name"),
    ],
)
def test_a_relative_position_that_is_not_whole_is_refused(position, message):
    with pytest.raises(ValueError, match=message):
        Transformer(24, 1, num_heads=3, position=position())


def test_a_mechanism_without_supports_is_refused():
    class Plain(DenseScoreAttention):
        def __init__(self, num_heads, head_dim):
            super().__init__()

        def attention_weights(self, q, k, context):
            return q @ k.mT

    with pytest.raises(ValueError, match="`supports`"):
        MultiHeadAttention(24, 3, mechanism=Plain)


def test_a_backbone_without_causal_is_refused():
    class Own(Backbone):
        def __init__(self):
            super().__init__()
            self.dim = 8
            self.layer = nn.Linear(8, 8)

        def forward(self, embedded, cache=None):
            return self.layer(embedded.hidden)

    with pytest.raises(ValueError, match="`causal`"):
        check_compatible(TokenSpec(vocab_size=7), Own(), Classify())
