"""Mechanism × position × block × norm × causal × links: every combination keeps the laws, or is refused when built.

The combinations come from what is registered and declared. Each run of the suite goes through every mechanism with
every position, causal and not, with links and without; blocks and norms go round. `-m slow` goes through all of them.
"""

import itertools
import re
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from seqkit.backbones import Transformer
from seqkit.conformance import Reader, check_reader, laws, made_up
from seqkit.contract import Tokens, TokenSpec
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block, ParallelBlock, PostNormBlock
from seqkit.layers.distance import ALiBi, RelativeEmbedding, T5Bias
from seqkit.layers.mechanism import ScaledDotProduct
from seqkit.layers.position import Rotary
from seqkit.layers.reading import FEATURES
from seqkit.registry import find, parts

DIM, HEADS = 24, 3
SETTINGS = {
    "TopK": {"k": 9},
    "Window": {"size": 3},
    "Linformer": {"max_tokens": 16, "rank": 5},
    "Performer": {"num_features": 7},
    "LSH": {"bucket_size": 4, "num_rounds": 2},
}
"""Arguments of mechanisms that cannot do without."""
POSITIONS = {
    "none": lambda: None,
    "Rotary": Rotary,
    "ALiBi": ALiBi,
    "T5Bias": partial(T5Bias, HEADS, num_buckets=8, max_distance=9),
    "RelativeEmbedding": lambda axes=1: RelativeEmbedding(DIM // HEADS, max_distance=4, num_axes=axes),
}
BLOCKS = (Block, PostNormBlock, ParallelBlock)
NORMS = (nn.LayerNorm, nn.RMSNorm)
MODALITIES = ("text", "image", "graph")


def mechanism(name):
    return partial(find("mechanism", name).load(), **SETTINGS.get(name, {}))


def build(name, position, causal, block, norm, num_axes=1, dim=DIM, heads=HEADS):
    return Transformer(
        dim,
        2,
        num_heads=heads,
        causal=causal,
        block=partial(block, attention=partial(Attention, mechanism=mechanism(name)), norm=norm),
        norm=norm,
        position=POSITIONS[position](num_axes) if position == "RelativeEmbedding" else POSITIONS[position](),
    )


def needed(position, causal, modality):
    """What the combination asks of attention, in the words of `FEATURES`."""
    made = POSITIONS[position]()
    asks = {"causal" if causal else "both ways"} | (set() if made is None else made.needs)
    return asks | ({"links"} if modality == "graph" else set())


def holds_or_is_refused(name, position, causal, block, norm, modality):
    """True: the laws hold; False: it is refused when built. There is nothing else."""
    spec, examples = made_up()[modality]
    honours = find("mechanism", name).load().honours
    try:
        backbone = build(name, position, causal, block, norm, max(spec.num_axes, 1))
        backbone.check(spec)
    except ValueError as error:
        refused_rightly(str(error), name, honours, position, causal, modality)
        return False
    assert needed(position, causal, modality) <= honours, "built although it does not declare what is asked"
    check_reader(spec, backbone, examples)
    return True


def refused_rightly(message, name, honours, position, causal, modality):
    """The message says something that cannot be, and what it names instead can do just that."""
    missing = needed(position, causal, modality) - honours
    said = {feature for feature in missing if FEATURES[feature] in message}
    if not said:  # a position that tokens without axes have no use for, or attention along links that are not there
        assert message.endswith("leave it out") or "links" in message, message
        return
    instead = re.search(r"use the mechanism (.+)$", message)
    assert instead or "no mechanism can do all this together" in message, message
    for other in instead[1].split(" or ") if instead else []:
        assert said <= find("mechanism", other).load().honours


CELLS = list(itertools.product(sorted(parts("mechanism")), POSITIONS, (False, True), MODALITIES))


@pytest.mark.parametrize(
    ("cell", "turn"), [(c, i) for i, c in enumerate(CELLS)], ids=["-".join(map(str, c)) for c in CELLS]
)
def test_a_combination_keeps_the_laws_or_is_refused_when_built(turn, cell):
    name, position, causal, modality = cell
    block, norm = list(itertools.product(BLOCKS, NORMS))[turn % 6]
    holds_or_is_refused(name, position, causal, block, norm, modality)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(parts("mechanism")))
def test_all_blocks_and_norms_keep_the_laws_with_a_mechanism(name):
    for position, causal, modality in itertools.product(POSITIONS, (False, True), ("text", "graph")):
        for block, norm in itertools.product(BLOCKS, NORMS):
            holds_or_is_refused(name, position, causal, block, norm, modality)


def test_most_of_the_matrix_works():
    """Refusing everything would keep all laws too."""
    working = sum(needed(p, c, m) <= find("mechanism", n).load().honours for n, p, c, m in CELLS)
    assert working > len(CELLS) / 3
    assert all(
        needed(p, c, m) <= ScaledDotProduct.honours
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


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    examples=sequences(),
    name=st.sampled_from(sorted(parts("mechanism"))),
    position=st.sampled_from(sorted(POSITIONS)),
    causal=st.booleans(),
    seed=st.integers(0, 99),
)
def test_laws_hold_for_any_lengths(examples, name, position, causal, seed):
    torch.manual_seed(seed)
    spec = TokenSpec(vocab_size=7)
    try:
        backbone = build(name, position, causal, Block, nn.LayerNorm)
        backbone.check(spec)
    except ValueError:
        return
    reader = Reader(spec, backbone)
    laws.padding_changes_nothing(reader, examples)
    laws.batch_mates_change_nothing(reader, examples)
    if causal:
        laws.no_token_reads_the_future(reader, examples)
        if backbone.steps:
            laws.step_by_step_equals_at_once(reader, examples)


# ── mechanisms that claim what is not so ─────────────────────────────────────────────────────────────────────────────


class Faulty(ScaledDotProduct):
    """A sound mechanism whose reading was tampered with."""

    change = staticmethod(lambda reading, n, m: reading)

    def forward(self, q, k, v, reading, memory=None):
        return super().forward(q, k, v, self.change(reading, q.shape[2], k.shape[2]), memory)


def _forgets(**fields):
    from dataclasses import replace

    return lambda reading, n, m: replace(reading, **fields)


def _one_ahead(reading, n, m):
    from dataclasses import replace

    ahead = torch.ones(n, m, dtype=torch.bool).tril(m - n + 1)
    return replace(reading, causal=False, attend=ahead[None, None]) if reading.causal else reading


FAULTS = {
    "reads padding": (laws.padding_changes_nothing, "text", False, _forgets(attend=None)),
    "reads batch mates' padding": (laws.batch_mates_change_nothing, "image", False, _forgets(attend=None)),
    "reads one token ahead": (laws.no_token_reads_the_future, "text", True, _one_ahead),
    "forgets links": (laws.nothing_crosses_components, "graph", False, _forgets(attend=None)),
    "forgets links, by gradient": (laws.reads_along_links, "graph", False, _forgets(attend=None)),
    "forgets what may be read, stepwise": (
        laws.step_by_step_equals_at_once, "text", True, _forgets(attend=None, causal=False)
    ),
    "forgets segments": (laws.packed_equals_separate, "text", False, _forgets(attend=None)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_law_notices_a_mechanism_that(fault):
    law, modality, causal, change = FAULTS[fault]

    class Planted(Faulty):
        pass

    Planted.change = staticmethod(change)
    backbone = Transformer(
        DIM, 2, num_heads=HEADS, causal=causal, block=partial(Block, attention=partial(Attention, mechanism=Planted))
    )
    spec, examples = made_up()[modality]
    with pytest.raises(AssertionError):
        law(Reader(spec, backbone), examples)


@settings(max_examples=30, deadline=None)
@given(examples=sequences())
def test_any_lengths_show_a_mechanism_that_reads_padding(examples):
    class Planted(Faulty):
        change = staticmethod(_forgets(attend=None))

    backbone = Transformer(
        DIM, 1, num_heads=HEADS, block=partial(Block, attention=partial(Attention, mechanism=Planted))
    )
    with pytest.raises(AssertionError):
        laws.padding_changes_nothing(Reader(TokenSpec(vocab_size=7), backbone), examples)


def test_what_is_declared_has_a_meaning():
    for part in parts("mechanism").values():
        assert part.load().honours <= set(FEATURES), part.name
