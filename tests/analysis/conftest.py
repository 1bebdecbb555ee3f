"""What the tests of measurements share."""

import itertools

import pytest


@pytest.fixture
def ticks(monkeypatch):
    """A clock that goes on by a second whenever it is looked at: what lies between two looks takes some time."""
    clock = itertools.count()
    monkeypatch.setattr("seqkit.analysis.speed.Training.now", lambda self: float(next(clock)))
