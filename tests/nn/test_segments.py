"""Packed sequences as rows of their own: which tokens are in a row, and that they find back to their places."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from seqkit.interfaces import Embedded
from seqkit.nn.segments import SegmentRows


@st.composite
def packed(draw):
    """Numbers of sequences, in any order, and which tokens are real: padding anywhere."""
    b, n = draw(st.integers(1, 3)), draw(st.integers(1, 11))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    numbers = torch.randint(-1, 4, (b, n), generator=g)
    valid = torch.rand(b, n, generator=g) < draw(st.sampled_from([0.4, 0.8, 1.0]))
    valid[-1, -1] = True
    return numbers, valid


def of_each_sequence(numbers, valid):
    """Row of the batch and columns of each sequence, by rows and numbers."""
    found = []
    for i, (own, real) in enumerate(zip(numbers, valid)):
        for number in own[real].unique():
            found.append((i, (real & (own == number)).nonzero()[:, 0]))
    return found


@settings(max_examples=60, deadline=None)
@given(packed())
def test_a_row_has_the_tokens_of_one_number_of_one_row_of_the_batch(given):
    numbers, valid = given
    rows = SegmentRows.of(numbers, valid)
    x = torch.arange(1.0, 1 + valid.numel() * 2).reshape(*valid.shape, 2)
    sequences = of_each_sequence(numbers, valid)
    assert rows.batch_row.tolist() == [i for i, _ in sequences]
    for own, real, (i, columns) in zip(rows.split(x), rows.valid, sequences, strict=True):
        assert_close(own[: len(columns)], x[i, columns])
        assert real.tolist() == [j < len(columns) for j in range(len(real))]
        assert not own[len(columns) :].any()
    assert_close(rows.join(rows.split(x)), x * valid[..., None])


@settings(max_examples=60, deadline=None)
@given(packed())
def test_sequences_of_like_length_run_together(given):
    numbers, valid = given
    rows = SegmentRows.of(numbers, valid)
    x = torch.randn(*valid.shape, 2)
    sizes = []

    def run(own):
        sizes.append(own.valid.shape)
        lengths = own.valid.sum(dim=1)
        assert int(lengths.max()) == own.valid.shape[1] < 2 * int(lengths.min())
        return own.split(x).cumsum(dim=1) + own.batch_row[:, None, None]

    got = rows.map(run)
    assert sum(size[0] for size in sizes) == len(rows.valid)
    expected = torch.zeros_like(x)
    for i, columns in of_each_sequence(numbers, valid):
        expected[i, columns] = x[i, columns].cumsum(dim=0) + i
    assert_close(got, expected)


def test_tokens_of_a_batch_are_plain_ones_of_its_sequences():
    numbers = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]])
    valid = torch.tensor([[True, True, True, True], [True, True, False, False]])
    batch = Embedded(torch.randn(2, 4, 3), torch.arange(8.0).reshape(2, 4, 1), valid, causal=True)
    own = SegmentRows.of(numbers, valid).embedded(batch.replace(segments=numbers))
    assert own.segments is None
    assert own.causal
    assert not own.is_padded
    assert_close(
        own.hidden, torch.cat([batch.hidden[0].unflatten(0, (2, 2)), batch.hidden[1:, :2]])
    )
    assert own.positions[..., 0].tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_tensors_without_data_are_one_sequence_a_row():
    numbers = torch.zeros(2, 5, dtype=torch.int64, device="meta")
    rows = SegmentRows.of(numbers, torch.ones(2, 5, dtype=torch.bool, device="meta"))
    x = torch.empty(2, 5, 3, device="meta")
    assert rows.split(x).shape == rows.map(lambda own: own.split(x)).shape == (2, 5, 3)


def test_a_batch_without_real_tokens_is_refused():
    with pytest.raises(ValueError, match="no real token"):
        SegmentRows.of(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.bool))
