"""Mechanism × position × block × norm × causal × adjacency: every combination keeps the laws or is refused when built.

The combinations come from the registry. Each run of the suite has every mechanism with every position, causal and
bidirectional, with and without adjacency, and takes blocks and norms in turn. `-m slow` has each mechanism with each
block and norm, and each pair of block, norm and position.
"""

import itertools
import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws.combinations import BLOCKS, DIM, HEADS, NORMS, POSITIONS, build, required, supports
from torch import nn

from seqkit.backbones import Transformer, transformer
from seqkit.interfaces import Tokens, TokenSpec, batch
from seqkit.nn.attention.features import ALL_FEATURES, WORDING, AttentionFeature
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import PreNormBlock
from seqkit.registry import components
from seqkit.testing import EmbeddedBackbone, check_embedded_backbone, synthetic
from seqkit.testing.laws import (
    attends_along_edges,
    batch_mates_change_nothing,
    no_token_attends_to_the_future,
    nothing_crosses_components,
    packed_equals_separate,
    padding_changes_nothing,
    step_by_step_equals_at_once,
)

MODALITIES = ("text", "image", "graph")


def check_laws_or_refusal(name, position, causal, block, norm, modality):
    """True: the laws hold; False: it is refused when built. Anything else raises."""
    spec, examples = synthetic()[modality]
    try:
        backbone = build(name, position, causal, block, norm, max(spec.num_axes, 1))
        backbone.check_supported(spec)
    except ValueError as error:
        check_refusal(str(error), required(position, causal, modality) & ~supports(name))
        return False
    assert required(position, causal, modality) in supports(name), (
        "built, although a required feature is unsupported"
    )
    check_embedded_backbone(spec, backbone, examples)
    return True


def check_refusal(message, missing):
    """The message names an unsupported feature, and the mechanism that it names instead supports that."""
    named = [feature for feature in missing if WORDING[feature] in message]
    # a position for other axes than the tokens have, or attention along edges of tokens without
    if not named:
        assert message.endswith("leave it out") or "have no adjacency" in message, message
        return
    instead = re.search(r"use the mechanism (\w+)$", message)
    assert instead, message
    assert all(feature in supports(instead[1]) for feature in named)


CELLS = list(
    itertools.product(sorted(components("mechanism")), POSITIONS, (False, True), MODALITIES)
)


@pytest.mark.parametrize(
    ("cell", "index"),
    [
        pytest.param(
            cell,
            i,
            id="-".join(map(str, cell)),
            marks=pytest.mark.slow
            if cell[3] == "image" and cell[0] != "ScaledDotProductAttention"
            else (),
        )
        for i, cell in enumerate(CELLS)
    ],
)
def test_a_combination_keeps_the_laws_or_is_refused_when_built(cell, index):
    name, position, causal, modality = cell
    block, norm = list(itertools.product(BLOCKS, NORMS))[index % 6]
    check_laws_or_refusal(name, position, causal, block, norm, modality)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("modality", sorted(synthetic()))
def test_laws_hold_of_layers_that_get_the_real_tokens_alone(modality, causal, monkeypatch):
    rows, pack = [], transformer.packing_of
    monkeypatch.setattr(
        transformer, "is_worth_packing", lambda x: x.padding.most_real < x.valid.numel()
    )
    monkeypatch.setattr(transformer, "packing_of", lambda x: (rows.append(x.valid), pack(x))[1])
    monkeypatch.setattr(batch, "rounded_up", lambda count: count)
    name = "EdgeAttention" if modality == "graph" else "ScaledDotProductAttention"
    assert check_laws_or_refusal(name, "none", causal, PreNormBlock, nn.LayerNorm, modality)
    assert rows


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(components("mechanism")))
def test_all_blocks_and_norms_keep_the_laws_with_a_mechanism(name):
    """Each block with each norm; torch's own attention has each block with each position, too.

    A position acts inside of attention, and blocks and norms around it: each pair of them is enough, and so is one
    mechanism for blocks with positions. Where one causality is refused, the other is taken; the test above has every
    refusal.
    """
    positions = POSITIONS if name == "ScaledDotProductAttention" else ()
    pairs, kept = list(enumerate(itertools.product(BLOCKS, positions))), set()
    cells = [(position, i // 2 % 2, block, NORMS[i % 2], "text") for i, (block, position) in pairs]
    blocks = list(enumerate(itertools.product(BLOCKS, NORMS)))
    cells += [("none", (i + i // 2) % 2, block, norm, "graph") for i, (block, norm) in blocks]
    for position, first, block, norm, modality in cells:
        ways = (bool(first), not first)
        if any(
            check_laws_or_refusal(name, position, causal, block, norm, modality) for causal in ways
        ):
            kept.add((block, norm))
    for block, norm in {pair for _, pair in blocks} - kept:  # it takes no graph
        if any(
            check_laws_or_refusal(name, "none", causal, block, norm, "text")
            for causal in (False, True)
        ):
            kept.add((block, norm))
    assert len(kept) == len(BLOCKS) * len(NORMS)


def test_most_of_the_matrix_works():
    """Refusing every combination would pass the test above too."""
    working = sum(required(p, c, m) in supports(n) for n, p, c, m in CELLS)
    assert working > len(CELLS) / 3
    assert all(
        required(p, c, m) in ScaledDotProductAttention.supports
        for p, c, m in itertools.product(POSITIONS, (False, True), MODALITIES)
    )


# ── any sizes ────────────────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def sequences(draw):
    """Two or three texts of different lengths, over a vocabulary of 7."""
    lengths = draw(st.lists(st.integers(2, 13), min_size=2, max_size=3, unique=True))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    positions = [torch.arange(float(n)).reshape(n, 1) for n in lengths]
    return [Tokens(torch.randint(7, (n,), generator=g), p) for n, p in zip(lengths, positions)]


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    examples=sequences(),
    name=st.sampled_from(sorted(components("mechanism"))),
    position=st.sampled_from(sorted(POSITIONS)),
    causal=st.booleans(),
    seed=st.integers(0, 99),
)
@pytest.mark.slow
def test_laws_hold_for_any_lengths(examples, name, position, causal, seed):
    torch.manual_seed(seed)
    spec = TokenSpec(vocab_size=7)
    try:
        backbone = build(name, position, causal, PreNormBlock, nn.LayerNorm)
        backbone.check_supported(spec)
    except ValueError:
        return
    model = EmbeddedBackbone(spec, backbone)
    padding_changes_nothing(model, examples)
    batch_mates_change_nothing(model, examples)
    if causal:
        no_token_attends_to_the_future(model, examples)
        if backbone.supports_cache:
            step_by_step_equals_at_once(model, examples)


# ── planted faults ───────────────────────────────────────────────────────────────────────────────────────────────────


class Faulty(ScaledDotProductAttention):
    """A sound mechanism with a wrong attention context."""

    change = staticmethod(lambda context, n, m: context)

    def forward(self, q, k, v, context, cache=None):
        return super().forward(q, k, v, self.change(context, q.shape[2], k.shape[2]), cache)


def _overwrites(**fields):
    return lambda context, n, m: replace(context, **fields)


def _one_ahead(context, n, m):
    ahead = torch.ones(n, m, dtype=torch.bool).tril(m - n + 1)
    return (
        replace(context, is_causal=False, attn_mask=ahead[None, None])
        if context.is_causal
        else context
    )


FAULTS = {
    "attends to padding": (padding_changes_nothing, "text", False, _overwrites(attn_mask=None)),
    "attends to the padding of a batch": (batch_mates_change_nothing, "image", False, _overwrites(attn_mask=None)),
    "attends one token ahead": (no_token_attends_to_the_future, "text", True, _one_ahead),
    "ignores adjacency": (nothing_crosses_components, "graph", False, _overwrites(attn_mask=None)),
    "ignores adjacency, by gradient": (attends_along_edges, "graph", False, _overwrites(attn_mask=None)),
    "ignores the mask, step by step": (
        step_by_step_equals_at_once, "text", True, _overwrites(attn_mask=None, is_causal=False)
    ),
    "ignores segments": (packed_equals_separate, "text", False, _overwrites(attn_mask=None)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_law_notices_a_mechanism_that(fault):
    law, modality, causal, change = FAULTS[fault]

    class Planted(Faulty):
        pass

    Planted.change = staticmethod(change)
    backbone = Transformer(
        DIM,
        2,
        num_heads=HEADS,
        causal=causal,
        block=partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=Planted)),
    )
    spec, examples = synthetic()[modality]
    with pytest.raises(AssertionError):
        law(EmbeddedBackbone(spec, backbone), examples)


@settings(max_examples=30, deadline=None)
@given(examples=sequences())
def test_any_lengths_show_a_mechanism_that_attends_to_padding(examples):
    class Planted(Faulty):
        change = staticmethod(_overwrites(attn_mask=None))

    backbone = Transformer(
        DIM,
        1,
        num_heads=HEADS,
        block=partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=Planted)),
    )
    with pytest.raises(AssertionError):
        padding_changes_nothing(EmbeddedBackbone(TokenSpec(vocab_size=7), backbone), examples)


def test_mechanisms_declare_features_that_have_a_wording():
    assert set(WORDING) == set(AttentionFeature)
    for name in components("mechanism"):
        assert isinstance(supports(name), AttentionFeature), name
        assert supports(name) in ALL_FEATURES, name
