"""A backbone's dropout reaches residuals and attention weights, unless a component has its own."""

import inspect
from functools import partial

import pytest
import torch

from seqkit.backbones import Transformer
from seqkit.interfaces import Embedded
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import ParallelBlock, PostNormBlock, PreNormBlock, Residual
from seqkit.nn.dropout import InheritedDropout, check_probability
from seqkit.registry import components

SETTINGS = {"size": 3}
"""What a mechanism with dropout is built with where its constructor requires it, by the parameter's name."""


def mechanisms_with_dropout():
    """Those of the registry, each with the settings that it requires."""
    for name, component in sorted(components("mechanism").items()):
        mechanism = component.load()
        parameters = inspect.signature(mechanism).parameters
        if "dropout" in parameters:
            yield (
                name,
                partial(
                    mechanism,
                    **{key: value for key, value in SETTINGS.items() if key in parameters},
                ),
            )


MECHANISMS = dict(mechanisms_with_dropout())
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def transformer(
    dropout,
    *,
    mechanism=ScaledDotProductAttention,
    residual=Residual,
    block=PreNormBlock,
    cross=False,
):
    attention = partial(MultiHeadAttention, mechanism=mechanism)
    block = partial(block, attention=attention, residual=residual, cross_attention=cross)
    return Transformer(24, 2, num_heads=3, block=block, dropout=dropout)


def dropouts(backbone, kind):
    return [module.dropout for module in backbone.modules() if isinstance(module, kind)]


def test_several_mechanisms_have_dropout():
    assert {"EdgeAttention", "ScaledDotProductAttention", "SlidingWindowAttention"} <= set(
        MECHANISMS
    )


@every_mechanism
def test_without_a_backbone_there_is_no_dropout(mechanism):
    assert dropouts(mechanism(3, 8), InheritedDropout) == [0.0]
    assert Residual(7).dropout == 0.0


@every_mechanism
def test_the_backbones_dropout_reaches_the_attention_weights_of(mechanism):
    backbone = transformer(0.3, mechanism=mechanism)
    assert [dropouts(block.attention, InheritedDropout) for block in backbone.blocks] == [
        [0.3],
        [0.3],
    ]


@every_mechanism
@pytest.mark.parametrize("own", [0.0, 0.1])
def test_a_mechanism_keeps_its_own_dropout(mechanism, own):
    backbone = transformer(0.3, mechanism=partial(mechanism, dropout=own))
    assert [dropouts(block.attention, InheritedDropout) for block in backbone.blocks] == [
        [own],
        [own],
    ]
    assert set(dropouts(backbone, Residual)) == {0.3}


@pytest.mark.parametrize("block", [PreNormBlock, PostNormBlock, ParallelBlock])
@pytest.mark.parametrize("cross", [False, True])
def test_the_backbones_dropout_reaches_every_residual(block, cross):
    assert dropouts(transformer(0.3, block=block, cross=cross), Residual) == [0.3] * (
        6 if cross else 4
    )


@pytest.mark.parametrize("own", [0.0, 0.1])
def test_a_residual_keeps_its_own_dropout(own):
    backbone = transformer(0.3, residual=partial(Residual, dropout=own))
    assert dropouts(backbone, Residual) == [own] * 4
    assert dropouts(backbone, ScaledDotProductAttention) == [0.3] * 2


def test_a_backbone_without_dropout_leaves_components_without_any():
    assert set(dropouts(transformer(0.0), InheritedDropout)) == {0.0}


@pytest.mark.parametrize("without", ["attention", "residual"])
def test_inherited_dropout_acts_while_training_only(without):
    """In attention weights alone, and in residuals alone."""
    mechanism = (
        partial(ScaledDotProductAttention, dropout=0.0)
        if without == "attention"
        else ScaledDotProductAttention
    )
    residual = partial(Residual, dropout=0.0) if without == "residual" else Residual
    backbone = transformer(0.3, mechanism=mechanism, residual=residual)
    x = Embedded(torch.randn(2, 5, 24), torch.zeros(2, 5, 1), torch.ones(2, 5, dtype=torch.bool))
    assert not torch.equal(backbone(x), backbone(x))
    backbone.eval()
    torch.testing.assert_close(backbone(x), backbone(x))


@pytest.mark.parametrize("probability", [-0.1, 1.0, float("nan")])
def test_a_dropout_that_is_no_probability_is_refused(probability):
    message = f"dropout={probability}"
    for call in (InheritedDropout, transformer, partial(check_probability, "dropout")):
        with pytest.raises(ValueError, match=message):
            call(probability)
