"""Who begins changes from round to round, and a spread is what is left of the rounds."""

import pytest

from seqkit.analysis.turns import Spread, rotated


def test_a_spread_is_median_and_quartiles():
    assert Spread.of([3.0, 1.0, 2.0, 5.0, 4.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)
    with pytest.raises(ValueError, match="no values"):
        Spread.of([])


def test_each_begins_in_turn_and_all_are_asked_in_every_round():
    rounds = ["".join(rotated(list("abc"), count)) for count in range(4)]
    assert rounds == ["abc", "bca", "cab", "abc"]
