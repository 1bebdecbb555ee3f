"""Base classes say what a component without a state or a cache cannot do."""

from functools import partial

import pytest

from seqkit.backbones import Transformer
from seqkit.backbones.compatibility import check_compatible
from seqkit.interfaces import Backbone, Stateful, TokenSpec
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.mechanism import DenseScoreAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.base import RelativePosition
from seqkit.objectives import Classify


def test_an_end_without_state_takes_none():
    end = Stateful()
    assert end.state() == {}
    end.load_state({})
    with pytest.raises(ValueError, match=r"Stateful has no fitted state"):
        end.load_state({"scale": 2})


def test_a_backbone_without_a_cache_says_how_to_generate():
    class Plain(Backbone):
        def forward(self, embedded, cache=None):
            return embedded.hidden

    with pytest.raises(ValueError, match="Plain has no cache"):
        Plain().init_cache(3)


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
        (_Penalty, "_Penalty writes `bias`, which its `requires` does not name"),
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

    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=Plain))
    with pytest.raises(ValueError, match="Plain does not support bidirectional attention"):
        Transformer(24, 1, num_heads=3, block=block)


def test_a_backbone_without_causal_is_refused():
    class Own(Backbone):
        def __init__(self):
            super().__init__()
            self.dim = 8

        def forward(self, embedded, cache=None):
            return embedded.hidden

    with pytest.raises(ValueError, match="Own has causal=None"):
        check_compatible(TokenSpec(vocab_size=7), Own(), Classify())
