"""Length extrapolation: which positions generalise beyond the training length (docs/attention.md has the table)."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from seqkit.interfaces import Embedded

path = Path(__file__).parents[1] / "benchmarks" / "extrapolation.py"
module_spec = importlib.util.spec_from_file_location("extrapolation", path)
extrapolation = importlib.util.module_from_spec(module_spec)
module_spec.loader.exec_module(extrapolation)

RELATIVE = [name for name, (_, relative) in extrapolation.POSITIONS.items() if relative is not None]
ABSOLUTE = ["sinusoidal, added", "sinusoidal, concatenated"]


@pytest.fixture(scope="module")
def plays():
    return extrapolation.characters()


def loss_increase(position, plays):
    """By how many nats the loss of the same characters rises in windows of 128 instead of the 32 of training."""
    train, test, vocab_size = plays
    torch.manual_seed(0)
    model = extrapolation.build(position, vocab_size)
    extrapolation.train(model, train, steps=120, seed=0, batch=16)
    short, long = (extrapolation.loss(model, test, length, num_windows=64) for length in (32, 128))
    assert short < 2.8  # it has learned: predicting by frequency costs 3.3
    return long - short


@pytest.mark.slow
def test_alibi_extrapolates_where_sinusoids_do_not(plays):
    assert abs(loss_increase("ALiBi", plays)) < 0.03
    assert loss_increase("sinusoidal, added", plays) > 0.08


def test_a_learned_table_refuses_positions_beyond_its_size():
    model = extrapolation.build("learned", 7)
    ids = torch.randint(7, (200,))
    batch = extrapolation.windows(ids, torch.tensor([0]), 33)
    with pytest.raises(ValueError, match="table of 32"):
        model(batch)
    model(extrapolation.windows(ids, torch.tensor([0]), 31))


def hidden_states(name, ids, start):
    """Of a text whose first character has position `start`."""
    torch.manual_seed(0)
    model = extrapolation.build(name, 7).double().eval()
    batch = extrapolation.windows(ids, torch.tensor([0]), 40)
    embedded = model.embedder(batch)
    positions = batch.positions.double() + start
    hidden = (
        embedded.hidden
        - model.embedder.position(batch.positions)
        + model.embedder.position(positions)
    )
    return model.backbone(Embedded(hidden.double(), positions, batch.valid))


@pytest.mark.parametrize("name", RELATIVE)
def test_relative_positions_are_invariant_to_where_a_text_starts(name):
    ids = torch.randint(7, (200,))
    assert_close(hidden_states(name, ids, 997), hidden_states(name, ids, 0), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ABSOLUTE)
def test_absolute_positions_are_not(name):
    ids = torch.randint(7, (200,))
    assert (hidden_states(name, ids, 997) - hidden_states(name, ids, 0)).abs().max() > 0.1
