"""Given vectors: what goes in comes out, whatever holds it; another width or no number is refused with the reason."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.tokenizers import Series


def test_lists_arrays_and_tensors_of_any_numbers_are_alike():
    rows = [[0.5, -1.0, 2.0], [3.0, 0.0, 0.25]]
    for raw in (rows, np.array(rows), np.array(rows, np.float32), torch.tensor(rows, dtype=torch.float64)):
        tokens = Series(3).encode(raw)
        assert_close(tokens.content, torch.tensor(rows))
        assert tokens.positions.tolist() == [[0.0], [1.0]]
        assert_close(Series(3).decode(tokens), torch.tensor(rows))


def test_one_number_a_step_needs_no_second_axis():
    for raw in ([5, 7, 11], [[5], [7], [11]], torch.tensor([5.0, 7.0, 11.0])):
        assert Series().encode(raw).content.tolist() == [[5.0], [7.0], [11.0]]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], r"the series is \[0\] float32.*num_features=3: give \[n 3\], time first"),
        (torch.zeros(0, 3), "no tokens"),
        ([[1.0, 2.0]], r"the series is \[1, 2\] float32"),
        ([1.0, 2.0, 3.0], r"the series is \[3\] float32"),
        ([[1.0, 2.0, float("inf")]], "content of token 0 is not finite"),
        (torch.zeros(2, 3, dtype=torch.bool), "bool; give real numbers"),
        ([[1.0, 2.0, 3.0], [1.0]], "does not hold numbers"),
        ([["a", "b", "c"]], "does not hold numbers"),
        ("1 2 3", "str is not a series"),
    ],
)
def test_what_is_no_series_of_that_width_is_refused(raw, message):
    with pytest.raises(DataError, match=message):
        Series(3).encode(raw)


def test_a_width_of_none_is_refused():
    with pytest.raises(ValueError, match="num_features=0"):
        Series(0)
