"""Every registered mixer, and every pattern of two, keeps the laws of backbones, or is refused when built.

The lists come from the registry, so that a mixer is checked from the day on which it is registered.
"""

import itertools
from dataclasses import replace
from functools import partial

import pytest
import torch
from conftest import SAMPLES
from laws.combinations import DIM, HEADS, POSITIONS
from torch import nn

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.kv_cache import StateCache
from seqkit.nn.block import ParallelBlock, PostNormBlock, PreNormBlock
from seqkit.nn.mixers import base
from seqkit.nn.mixers.base import StateMixer
from seqkit.objectives import CTC, Classify, Masked, NextToken, Regress, Seq2Seq
from seqkit.registry import components, find
from seqkit.testing import (
    BrokenLawsError,
    EmbeddedBackbone,
    check_backbone,
    check_embedded_backbone,
    objective_cases,
    synthetic,
)
from seqkit.testing import check as check_any
from seqkit.testing import objectives as objective_laws
from seqkit.testing.embedded_backbone import leave_zero
from seqkit.tokenizers import Characters

ATTENTION = "MultiHeadAttention"
NAMES = sorted(components("mixer"))  # now: tests of other files register more
CARRY_STATE = [name for name in NAMES if find("mixer", name).load().carries_state]
PAIRS = list(itertools.permutations(NAMES, 2))
NEXT = dict(zip(NAMES, NAMES[1:] + NAMES[:1], strict=True))
"""The mixer that follows each in the pairs of the fast tier: each is once the first layer and once the second."""
BLOCKS = (PreNormBlock, PostNormBlock, ParallelBlock)
CAUSAL = pytest.mark.parametrize(
    "causal",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["bidirectional", "causal"],
)
EACH = pytest.mark.parametrize("name", NAMES)


def stack(names, causal=True, dim=DIM, **settings):
    """A Transformer with those mixers, one a layer."""
    mixers = [find("mixer", name).load() for name in names]
    return Transformer(dim, len(names), num_heads=HEADS, causal=causal, mixer=mixers, **settings)


def model_of(names, causal=True, modality="text", **settings):
    """Behind an embedder, with the examples; weights are the same every time."""
    spec, examples = synthetic()[modality]
    torch.manual_seed(0)
    model = EmbeddedBackbone(spec, stack(names, causal, **settings))
    leave_zero(model.backbone)
    return model, examples


def check(names, causal=True, modality="text", **settings):
    """Checks the laws of a stack; returns the names of those that were."""
    model, examples = model_of(names, causal, modality, **settings)
    return {law.__name__ for law in check_embedded_backbone(model.spec, model.backbone, examples)}


# ── one mixer ────────────────────────────────────────────────────────────────────────────────────────────────────────


@EACH
@CAUSAL
def test_a_mixer_keeps_the_laws_of_texts(name, causal):
    """Padding, the future, caches of ragged prompts, packed rows, gradients, weights and their files."""
    build = partial(stack, [name] * 2)
    checked = check_backbone(
        lambda dim, causal: build(causal, dim), causal=[causal], kinds=["text"], quick=True
    )
    found = {law.__name__ for law in checked}
    assert "packed_equals_separate" in found
    assert ("step_by_step_equals_at_once" in found) == causal


@EACH
@CAUSAL
@pytest.mark.parametrize("modality", ["image", "series", "fields", "joined"])
@pytest.mark.slow
def test_a_mixer_keeps_the_laws_of_other_tokens(name, causal, modality):
    """Patches with two positions each, numbers, fields and parts of an example."""
    assert "packed_equals_separate" in check([name] * 2, causal, modality)


@pytest.mark.slow
@EACH
@CAUSAL
def test_a_mixer_keeps_the_dear_laws(name, causal):
    """Rows of a cache in another order, texts of 300 tokens, gradients by finite differences."""
    build = partial(stack, [name] * 2)
    check_backbone(lambda dim, causal: build(causal, dim), causal=[causal], kinds=["text", "image"])


@pytest.mark.slow
@EACH
@CAUSAL
@pytest.mark.parametrize("tokenizer", ["Bytes", "Patches", "SpectrogramPatches", "LogMel", "Cells"])
def test_a_mixer_keeps_the_laws_on_a_tokenizers_tokens(name, causal, tokenizer):
    fitted, examples = SAMPLES[tokenizer]().encoded()
    torch.manual_seed(0)
    check_embedded_backbone(fitted.spec, stack([name] * 2, causal), examples)


# ── patterns ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_its_layers_one_after_the_other(mixed, spec, examples):
    """Outputs of a stack beside those of stacks of one layer each with the same weights."""
    model = EmbeddedBackbone(spec, mixed)
    batches = [TokenBatch.collate(examples), TokenBatch.collate(examples).pad(3)]
    segments = (torch.arange(batches[0].valid.shape[1]) > 2).long().expand_as(batches[0].valid)
    batches.append(replace(batches[0], segments=segments))
    for batch in batches:
        embedded = model.embed(batch)
        hidden = embedded.hidden
        for block, kind in zip(mixed.blocks, mixed.kinds, strict=True):
            one = Transformer(
                DIM,
                1,
                num_heads=HEADS,
                causal=mixed.causal,
                block=lambda *_, block=block: block,
                norm=nn.Identity,
                position=mixed.position_of(kind),
            )
            one.blocks[0] = block
            hidden = one.double().eval()(replace(embedded, hidden=hidden))
        torch.testing.assert_close(model.backbone(embedded), hidden, atol=1e-10, rtol=0)


@CAUSAL
@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(
            pair, marks=() if pair[1] == NEXT[pair[0]] else pytest.mark.slow, id="-".join(pair)
        )
        for pair in PAIRS
    ],
)
def test_a_pair_of_mixers_keeps_the_laws(pair, causal):
    """Also where attention has a position of its own, which the other does not read."""
    position = None
    if ATTENTION in pair:
        position = POSITIONS["ALiBi" if causal else "Rotary"]()
    spec, examples = synthetic()["text"]
    torch.manual_seed(0)
    mixed = stack(pair, causal, norm=nn.Identity, position=position)
    is_its_layers_one_after_the_other(mixed, spec, examples)
    found = check(pair, causal, position=position)
    assert "packed_equals_separate" in found
    assert ("step_by_step_equals_at_once" in found) == causal


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.slow
def test_attention_may_stand_anywhere_in_a_pattern_of_four(place, position):
    """A mixer a layer in turn, so that each is beside attention somewhere."""
    names = list(itertools.islice(itertools.cycle(CARRY_STATE), place, place + 4))
    names[place] = ATTENTION
    found = check(names, position=POSITIONS[position]())
    assert {"packed_equals_separate", "step_by_step_equals_at_once"} <= found


@EACH
@CAUSAL
@pytest.mark.parametrize("block", BLOCKS[1:], ids=lambda block: block.__name__)
@pytest.mark.slow
def test_a_mixer_stands_in_every_block(name, causal, block):
    check([name, ATTENTION], causal, block=block)


def test_a_block_takes_a_mixer_as_its_attention():
    """The other way to the same model."""
    torch.manual_seed(0)
    one = stack(["GRU"] * 2)
    torch.manual_seed(0)
    block = partial(PreNormBlock, attention=find("mixer", "GRU").load())
    other = Transformer(DIM, 2, num_heads=HEADS, causal=True, block=block)
    for (name, weight), (other_name, right) in zip(
        one.named_parameters(), other.named_parameters(), strict=True
    ):
        assert name == other_name
        assert torch.equal(weight, right)


def test_null_and_the_name_of_attention_are_the_same_layer():
    torch.manual_seed(0)
    named = stack(["GRU", ATTENTION])
    torch.manual_seed(0)
    null = Transformer(
        DIM, 2, num_heads=HEADS, causal=True, mixer=[find("mixer", "GRU").load(), None]
    )
    assert [*map(type, named.modules())] == [*map(type, null.modules())]
    for weight, right in zip(named.parameters(), null.parameters(), strict=True):
        assert torch.equal(weight, right)


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", CARRY_STATE)
def test_what_a_mixer_cannot_do_is_refused_when_built(name):
    graph, _ = synthetic()["graph"]
    for names in ([name] * 2, [ATTENTION, name], [name, ATTENTION]):
        with pytest.raises(ValueError, match=r"set causal to true or false$"):
            stack(names, causal=None)
        for causal in (False, True):
            with pytest.raises(ValueError, match="adjacency"):
                stack(names, causal).check_supported(graph)
        with pytest.raises(ValueError, match="causal=True"):
            stack(names, causal=False).init_cache(8)
    with pytest.raises(ValueError, match="position"):
        stack([name] * 2, position=POSITIONS["Rotary"]())


@pytest.mark.parametrize("name", CARRY_STATE)
def test_a_set_is_refused_by_a_mixer_that_knows_the_order_of_its_columns(name):
    spec = TokenSpec(num_features=3, num_axes=0, is_set=True)
    objective = Regress()
    objective.fit([1.0, 3.0], None)
    for names in ([name] * 2, [ATTENTION, name]):
        with pytest.raises(ValueError, match="set"):
            Model(spec, stack(names, causal=False), objective)
    Model(spec, stack([ATTENTION] * 2, causal=False), objective)


@pytest.mark.parametrize(("count", "depth"), [(0, 2), (3, 4), (4, 2)])
def test_a_pattern_that_does_not_divide_the_depth_is_refused(count, depth):
    said = f"mixer is a list of {count}, which does not divide depth={depth}"
    with pytest.raises(ValueError, match=said):
        Transformer(DIM, depth, num_heads=HEADS, mixer=[None] * count)


# ── planted faults ───────────────────────────────────────────────────────────────────────────────────────────────────


def state_over_a_border(patch):
    """Packed sequences are one row to the mixer."""
    forward = StateMixer.forward
    patch.setattr(
        StateMixer,
        "forward",
        lambda self, x, context, cache=None: forward(
            self, x, replace(context, segments=None), cache
        ),
    )


def convolution_tail_over_a_border(patch):
    """The state begins anew in each sequence, and a convolution before it does not."""
    forward = StateMixer.forward

    def leaking(self, x, context, cache=None):
        y = forward(self, x, context, cache)
        if context.segments is None:
            return y
        own = forward(self, convolved(x), context, cache)
        rows = context.segments
        apart = rows.join(convolved(rows.split(x)))
        return y + own - forward(self, apart, context, cache)

    patch.setattr(StateMixer, "forward", leaking)


def convolved(x):
    return x + nn.functional.pad(x, [0, 0, 1, 0])[:, :-1]


def decay_in_padding(patch):
    """The columns behind a shorter prompt count as tokens: a state decays there, as with a dt that is not 0."""
    for cls in {type(mixer_of(name)) for name in CARRY_STATE}:
        step = cls.step
        patch.setattr(
            cls, "step", lambda self, x, valid, state, step=step: step(self, x, None, state)
        )


def cache_of_another_layer(patch):
    made = Transformer.init_cache

    def wrong(self, max_tokens):
        cache = made(self, max_tokens)
        cache.layers[1] = cache.layers[0]
        return cache

    patch.setattr(Transformer, "init_cache", wrong)


def reorder_forgets_the_state(patch):
    patch.setattr(StateCache, "reorder", lambda self, rows: None)


def backwards_from_the_padding(patch):
    patch.setattr(base, "reversed_rows", lambda x, valid: x.flip(1))


def second_chunk_without_the_state(patch):
    """As once in Jamba: a chunk of several tokens begins anew."""
    for cls in {type(mixer_of(name)) for name in CARRY_STATE}:
        step = cls.step

        def anew(self, x, valid, state, step=step):
            return step(self, x, valid, state if x.shape[1] == 1 else None)

        patch.setattr(cls, "step", anew)


def mixer_of(name):
    return find("mixer", name).load()(DIM, HEADS)


FAULTS = {
    state_over_a_border: ("packed_equals_separate", True),
    convolution_tail_over_a_border: ("packed_equals_separate", True),
    decay_in_padding: ("step_by_step_equals_at_once", True),
    cache_of_another_layer: ("step_by_step_equals_at_once", True),
    reorder_forgets_the_state: ("reorder_keeps_the_rows", True),
    backwards_from_the_padding: ("padding_changes_nothing", False),
    second_chunk_without_the_state: ("step_by_step_equals_at_once", True),
}
"""Each with the law that names it, and whether the stack is causal."""


def broken_laws(name, law, causal):
    """Names of the laws that a stack of two layers breaks, that law alone being checked."""
    try:
        check_backbone(
            lambda dim, causal: stack([name] * 2, causal, dim),
            causal=[causal],
            kinds=["text"],
            only=[law],
        )
    except BrokenLawsError as error:
        return [fault.law for fault in error.checked.broken]
    return []


CELLS = ("GRU", "LSTM", "RNN")
"""Mixers whose state leaves zero where inputs are zero, so that it matters whether they begin at the padding."""


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        pytest.param(
            fault,
            name,
            marks=() if name in ("GRU", "GatedDeltaNet") else pytest.mark.slow,
            id=f"{fault.__name__}-{name}",
        )
        for fault in FAULTS
        for name in (CELLS if fault is backwards_from_the_padding else CARRY_STATE)
    ],
)
def test_a_law_names_a_fault_of_a_mixer(fault, name, monkeypatch):
    law, causal = FAULTS[fault]
    assert broken_laws(name, law, causal) == []
    with monkeypatch.context() as patch:
        fault(patch)
        assert broken_laws(name, law, causal) == [law]


# ── a mixer of one's own ─────────────────────────────────────────────────────────────────────────────────────────────


class RunningSum(StateMixer):
    """Sound: padding adds zero."""

    def __init__(self, dim, num_heads=1):
        super().__init__(dim, num_heads)
        self.out_proj = nn.Linear(dim, dim)

    def step(self, x, valid, state):
        total = x.cumsum(dim=1) + (0 if state is None else state[:, None])
        return self.out_proj(total / 9), total[:, -1]


class Forgetful(RunningSum):
    """Its state is that of the last column, padding or not."""

    def step(self, x, valid, state):
        y, _ = super().step(x, valid, state)
        return y, x[:, -1]


class Ahead(RunningSum):
    """All tokens at once see the next one."""

    def mix(self, x, valid):
        return super().mix(x, valid) + nn.functional.pad(x, [0, 0, 0, 1])[:, 1:]


@pytest.mark.parametrize(
    ("cls", "broken"),
    [
        (RunningSum, set()),
        (Forgetful, {"step_by_step_equals_at_once", "step_by_step_goes_on"}),
        (Ahead, {"no_token_attends_to_the_future", "step_by_step_equals_at_once"}),
    ],
)
@pytest.mark.slow
def test_a_mixer_of_ones_own_is_checked_by_its_class(cls, broken):
    try:
        checked = check_any(cls, quick=True)
    except BrokenLawsError as error:
        checked = error.checked
    assert broken <= {fault.law for fault in checked.broken}
    assert bool(checked.broken) == bool(broken)


# ── objectives ───────────────────────────────────────────────────────────────────────────────────────────────────────


OBJECTIVES = {
    "NextToken": NextToken,
    "Masked": Masked,
    "Classify": Classify,
    "Regress": Regress,
    "CTC": lambda: CTC(Characters(), beam_width=2),
    "Seq2Seq": lambda: Seq2Seq(Characters()),
}


def hybrid(dim, depth, *, mixer, **settings):
    """The Transformer of a case, with a layer of the mixer before each of attention."""
    return Transformer(dim, 2 * depth, mixer=[mixer, None], **settings)


@pytest.mark.parametrize(
    ("objective", "name"),
    [
        pytest.param(objective, name, marks=() if i % len(CARRY_STATE) == j else pytest.mark.slow)
        for i, objective in enumerate(OBJECTIVES)
        for j, name in enumerate(CARRY_STATE)
    ],
)
def test_a_hybrid_keeps_the_laws_of_an_objective(objective, name, monkeypatch):
    mixer = find("mixer", name).load()
    monkeypatch.setattr(objective_cases, "Transformer", partial(hybrid, mixer=mixer))
    # a loss bends within the steps that float32 needs: float64 takes shorter ones
    checked = check_any(OBJECTIVES[objective](), ignore={"gradients_are_right": "below"})
    found = {law.__name__ for law in checked}
    assert {"loss_is_a_finite_number", "order_of_examples_changes_nothing"} <= found
    case = objective_cases.find_case(OBJECTIVES[objective](), None, None, ())
    case.model.double()
    monkeypatch.setattr(objective_laws, "STEPS", (1e-3, 3e-4))
    objective_laws.gradients_are_right(case)
