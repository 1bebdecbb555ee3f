"""Generation by stacks of mixers: with a cache as without, in a batch as alone, in order and in the order of beams."""

import pytest
import torch
from generation.generating import RAGGED, VOCAB, columns, sharpened

from seqkit.backbones import Transformer
from seqkit.generation import BeamSearch, Sampling, beam_search
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import NextToken
from seqkit.registry import components

MIXERS = {name: component.load() for name, component in components("mixer").items()}
NEXT = dict(zip(MIXERS, [*list(MIXERS)[1:], next(iter(MIXERS))], strict=True))


def generating(name: str) -> Model:
    """A layer of the mixer, one of attention with positions of its own, and one of the next mixer of the list."""
    torch.manual_seed(0)
    mixers = [MIXERS[name], None, MIXERS[NEXT[name]]]
    backbone = Transformer(24, 3, num_heads=3, causal=True, mixer=mixers, position=Rotary())
    model = sharpened(Model(TokenSpec(vocab_size=VOCAB), backbone, NextToken()))
    model.head.linear.weight.data *= 0.3
    return model


EACH = pytest.mark.parametrize("name", MIXERS)


@EACH
@pytest.mark.parametrize("context_length", [pytest.param(None, marks=pytest.mark.slow), 6])
def test_a_cache_changes_no_id(name, context_length):
    """Prompts of different lengths; contexts that are full begin anew."""
    model = generating(name)
    settings = {"context_length": context_length, "sampling": Sampling(temperature=0)}
    found = columns(model, RAGGED, 9, use_cache=True, **settings)
    right = columns(model, RAGGED, 9, use_cache=False, **settings)
    assert torch.equal(found, right)
    for row, prompt in zip(found, RAGGED, strict=True):
        alone = columns(model, [prompt], 9, use_cache=False, **settings)
        assert torch.equal(row, alone[0])


@EACH
def test_beams_take_the_states_of_their_rows_with_them(name):
    model = generating(name)
    found = beam_search(model, RAGGED, 7, beams=BeamSearch(3), use_cache=True)
    right = beam_search(model, RAGGED, 7, beams=BeamSearch(3), use_cache=False)
    for ours, theirs in zip(found, right, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a.ids, b.ids)
            assert a.score == pytest.approx(b.score, abs=1e-6)
