"""Stacks of unlike layers: every ordered pair of mechanisms, positions and blocks keeps the laws or is refused.

The reference: a stack of two equals the stack of its first layer followed by that of its second, which the matrix
proves.
"""

import itertools
from dataclasses import replace
from functools import partial

import pytest
import torch
from laws.combinations import DIM, HEADS, POSITIONS, SETTINGS
from torch import nn

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import ParallelBlock, PostNormBlock, PreNormBlock
from seqkit.registry import components, find
from seqkit.testing import EmbeddedBackbone, check_embedded_backbone, laws_for, synthetic
from seqkit.testing.laws import step_by_step_equals_at_once

NAMES = sorted(components("mechanism"))
PAIRS = [(first, second) for first, second in itertools.product(NAMES, NAMES) if first != second]
NEXT = dict(zip(NAMES, NAMES[1:] + NAMES[:1], strict=True))
"""The mechanism that follows each in the pairs of the fast tier: each is once the first layer and once the second."""
ORDERS = [PreNormBlock, PostNormBlock, ParallelBlock]


def block_of(name, order=PreNormBlock):
    mechanism = partial(find("mechanism", name).load(), **SETTINGS.get(name, {}))
    return partial(order, attention=partial(MultiHeadAttention, mechanism=mechanism))


def stack(blocks, causal, positions=None):
    return Transformer(
        DIM,
        len(blocks),
        num_heads=HEADS,
        causal=causal,
        block=blocks,
        norm=nn.Identity,
        position=positions,
    )


def supports_together(names, causal, modality):
    """What every mechanism of the stack supports decides."""
    required = AttentionFeature.CAUSAL if causal else AttentionFeature.BIDIRECTIONAL
    required |= AttentionFeature.ADJACENCY if modality == "graph" else AttentionFeature(0)
    kinds = [find("mechanism", name).load() for name in names]
    missing_adjacency = modality != "graph" and any(kind.needs_adjacency for kind in kinds)
    return all(required in kind.supports for kind in kinds) and not missing_adjacency


def is_its_layers_one_after_the_other(mixed, spec, examples):
    """Outputs of the mixed stack beside those of two stacks of one layer each with the same weights."""
    model = EmbeddedBackbone(spec, mixed)
    parts = []
    for i, block in enumerate(mixed.blocks):
        position = mixed.position_of(mixed.kinds[i])
        part = stack(
            [lambda *_, block=block: block], mixed.causal, None if position is None else [position]
        )
        part.blocks[0], part.edge_biases = block, mixed.edge_biases
        parts.append(part.double().eval())
    batches = [TokenBatch.collate(examples), TokenBatch.collate(examples).pad(3)]
    if mixed.supports_segments and examples[0].adjacency is None:
        segments = (torch.arange(batches[0].valid.shape[1]) > 2).long().expand_as(batches[0].valid)
        batches.append(replace(batches[0], segments=segments))
    for batch in batches:
        embedded = model.embed(batch)
        first = parts[0](embedded)
        right = parts[1](replace(embedded, hidden=first))
        torch.testing.assert_close(model.backbone(embedded), right, atol=1e-10, rtol=0)


@pytest.mark.parametrize("modality", ["text", "graph"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(
            pair, marks=() if pair[1] == NEXT[pair[0]] else pytest.mark.slow, id="-".join(pair)
        )
        for pair in PAIRS
    ],
)
def test_a_pair_of_mechanisms_keeps_the_laws_or_is_refused(pair, causal, modality):
    spec, examples = synthetic()[modality]
    try:
        mixed = stack([block_of(name) for name in pair], causal)
        mixed.check_supported(spec)
    except ValueError:
        supported = supports_together(pair, causal, modality)
        if supported:
            raise
        return
    assert supports_together(pair, causal, modality), (
        "built, although one of its layers does not support this"
    )
    torch.manual_seed(0)
    is_its_layers_one_after_the_other(mixed, spec, examples)
    # so that it keeps what each layer keeps, but for the cache: the laws are checked there, and elsewhere in turn
    turn = [(False, "text"), (False, "graph"), (True, "graph")][PAIRS.index(pair) % 3]
    if (causal, modality) in ((True, "text"), turn):
        checked = check_embedded_backbone(spec, mixed, examples)
        assert (step_by_step_equals_at_once in checked) == (
            causal and modality == "text" and mixed.supports_cache
        )


@pytest.mark.parametrize("pair", list(itertools.permutations(POSITIONS, 2)), ids="-".join)
def test_a_position_for_each_layer_keeps_the_laws(pair):
    """Causal in one order of the two, bidirectional in the other."""
    causal = pair[0] < pair[1]
    spec, examples = synthetic()["text"]
    torch.manual_seed(0)
    mixed = stack([PreNormBlock, PreNormBlock], causal, [POSITIONS[name]() for name in pair])
    is_its_layers_one_after_the_other(mixed, spec, examples)
    if causal:  # so that it keeps what each layer keeps, but for the cache
        check_embedded_backbone(spec, mixed, examples)


@pytest.mark.parametrize(
    "orders", list(itertools.permutations(ORDERS, 2)), ids=lambda o: "-".join(c.__name__ for c in o)
)
def test_blocks_of_unlike_order_keep_the_laws(orders):
    spec, examples = synthetic()["text"]
    mixed = stack([block_of("ScaledDotProductAttention", order) for order in orders], True)
    is_its_layers_one_after_the_other(mixed, spec, examples)
    check_embedded_backbone(spec, mixed, examples)


def test_equal_positions_share_one_context():
    rotary = [POSITIONS["Rotary"](), POSITIONS["Rotary"](), POSITIONS["Rotary"]()]
    assert len(set(stack([PreNormBlock] * 3, True, rotary).kinds)) == 1
    rotary[1] = type(rotary[1])(base=7.0)
    assert [kind.position for kind in stack([PreNormBlock] * 3, True, rotary).kinds] == [0, 1, 0]
    learned = [POSITIONS["T5Bias"](), POSITIONS["T5Bias"]()]  # each has parameters of its own
    assert [kind.position for kind in stack([PreNormBlock] * 2, True, learned).kinds] == [0, 1]


def test_heads_may_differ_from_layer_to_layer():
    spec, examples = synthetic()["text"]
    wide = partial(PreNormBlock, attention=lambda dim, _: MultiHeadAttention(dim, 2))
    mixed = stack([wide, PreNormBlock], True, [POSITIONS["Rotary"](), POSITIONS["ALiBi"]()])
    assert [kind.num_heads for kind in mixed.kinds] == [2, HEADS]
    is_its_layers_one_after_the_other(mixed, spec, examples)
    check_embedded_backbone(spec, mixed, examples)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("pair", "modality"),
    [
        (("SlidingWindowAttention", "ScaledDotProductAttention"), "text"),
        (("LinearAttention", "AdditiveAttention"), "text"),
        (("EdgeAttention", "ScaledDotProductAttention"), "graph"),
    ],
)
def test_the_laws_notice_a_stack_that_takes_everything_from_its_first_layer(
    pair, causal, modality, monkeypatch
):
    """As it once was: padding, cache or edges of the second layer were then wrong without a word."""
    spec, examples = synthetic()[modality]
    right = Transformer.contexts
    monkeypatch.setattr(Transformer, "contexts", lambda *args: [right(*args)[0]] * 2)
    torch.manual_seed(0)
    mixed = stack([block_of(name) for name in pair], causal)
    with pytest.raises(AssertionError):
        check_embedded_backbone(spec, mixed, examples)


@pytest.mark.parametrize(
    ("given", "depth"), [([], 2), ([PreNormBlock] * 3, 4), ([PreNormBlock] * 4, 2)]
)
def test_a_list_that_does_not_divide_the_depth_is_refused(given, depth):
    with pytest.raises(ValueError, match=f"list of {len(given)}"):
        Transformer(DIM, depth, num_heads=HEADS, block=given)


def test_a_stack_with_cross_attention_in_some_layers_is_a_decoder():
    mixed = stack([PreNormBlock, partial(PreNormBlock, cross_attention=True)], True)
    assert mixed.is_encoder_decoder
    spec, examples = synthetic()["text"]
    model = EmbeddedBackbone(spec, mixed)
    embedded = model.embed(TokenBatch.collate(examples[:2]))
    source = model.embed(TokenBatch.collate(examples[1:]))
    hidden = mixed(replace(embedded, source=source))
    alone = stack([PreNormBlock], True).double().eval()
    alone.blocks[0] = mixed.blocks[0]
    cross = stack([partial(PreNormBlock, cross_attention=True)], True).double().eval()
    cross.blocks[0] = mixed.blocks[1]
    torch.testing.assert_close(
        hidden, cross(replace(embedded, hidden=alone(embedded), source=source))
    )


def test_a_law_is_bound_by_what_all_layers_support():
    spec, examples = synthetic()["text"]
    mixed = stack([block_of("ScaledDotProductAttention"), block_of("LSHAttention")], True)
    assert not mixed.supports_cache
    model = EmbeddedBackbone(spec, mixed)
    assert step_by_step_equals_at_once not in laws_for(model, examples)
