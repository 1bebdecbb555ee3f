"""Imported models that carry a state: a row is the same padded, in parts, packed and among beams as by itself."""

import pytest
import torch
from foreign_models import DECODERS, OF_STATES, saved
from padded_rows import PADDED, alone, by_ours
from torch.testing import assert_close

import seqkit
from seqkit.interfaces import TokenBatch
from seqkit.pretrained.families.hybrids import HYBRIDS

EACH = pytest.mark.parametrize("name", OF_STATES)
IDS = torch.tensor([3, 7, 11, 2, 5, 19, 23, 4, 8])
LAST = torch.tensor([13])


def ours(folder, name):
    """Our model with their random weights, in float64."""
    saved(folder, name, DECODERS[name], "ForCausalLM", std=0.4)
    return seqkit.load(folder).model.double().eval()


def test_every_hybrid_is_tested():
    assert len(HYBRIDS) == len(OF_STATES) - 4


@EACH
@torch.no_grad()
def test_padding_anywhere_leaves_a_row_as_it_is(tmp_path, name):
    model = ours(tmp_path, name)
    right, next_right = alone(model, IDS, LAST)
    for runs in PADDED.values():
        logits, after = by_ours(model, IDS, runs, LAST)
        assert_close(logits, right, rtol=0, atol=1e-9)
        assert_close(after, next_right, rtol=0, atol=1e-9)


@EACH
@torch.no_grad()
def test_packed_rows_are_each_by_itself(tmp_path, name):
    model = ours(tmp_path, name)
    lengths = [4, 9, 2]
    texts = [IDS[:n] for n in lengths]
    positions = torch.cat([torch.arange(n) for n in lengths])[None, :, None].double()
    numbers = torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)])[None]
    whole = torch.cat(texts)[None]
    valid = torch.ones_like(whole, dtype=torch.bool)
    logits = model(TokenBatch(whole, positions, valid, segments=numbers))[0].split(lengths)
    for text, found in zip(texts, logits):
        right, _ = alone(model, text, LAST)
        assert_close(found, right, rtol=0, atol=1e-9)


@EACH
@torch.no_grad()
def test_rows_of_a_cache_go_on_in_another_order(tmp_path, name):
    """As beams do."""
    model = ours(tmp_path, name)
    texts = torch.stack([IDS, IDS.flip(0)])
    positions = torch.arange(9)[None, :, None].double().expand(2, 9, 1)
    valid = torch.ones(2, 9, dtype=torch.bool)
    cache = model.backbone.init_cache(10)
    model(TokenBatch(texts, positions, valid), cache=cache)
    rows = torch.tensor([1, 1, 0])
    cache.reorder(rows)
    after = TokenBatch(
        LAST.expand(3, 1), torch.full((3, 1, 1), 9.0).double(), torch.ones(3, 1, dtype=torch.bool)
    )
    found = model(after, cache=cache)[:, 0]
    for row, logits in zip(rows, found):
        assert_close(logits, alone(model, texts[row], LAST)[1], rtol=0, atol=1e-9)
