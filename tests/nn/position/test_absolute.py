"""Positional encodings equal their formulas, axis by axis."""

import math

import pytest
import torch
from torch.testing import assert_close

from seqkit.nn.position.absolute import Learned, NoPosition, Sinusoidal, SinusoidalConcat


@pytest.mark.parametrize(("dim", "num_axes"), [(14, 1), (20, 2), (18, 3)])
def test_sinusoids_equal_the_formula_by_axis(dim, num_axes):
    positions = torch.randn(2, 5, num_axes) * 50
    got = Sinusoidal(dim, num_axes, max_wavelength=1_000.0)(positions)
    share = dim // num_axes
    for b in range(2):
        for n in range(5):
            right = []
            for axis in range(num_axes):
                for i in range(share // 2):
                    angle = float(positions[b, n, axis]) / 1_000.0 ** (2 * i / share)
                    right += [math.sin(angle), math.cos(angle)]
            assert_close(got[b, n], torch.tensor(right), rtol=1e-4, atol=1e-4)


def test_integer_positions_give_the_original_transformers_encoding():
    got = Sinusoidal(6, 1)(torch.arange(3.0)[None, :, None])[0]
    assert_close(got[0], torch.tensor([0.0, 1.0] * 3))
    assert_close(got[2, 2:4], torch.tensor([math.sin(2 / 10_000 ** (2 / 6)), math.cos(2 / 10_000 ** (2 / 6))]))


@pytest.mark.parametrize(("dim", "num_axes", "multiple"), [(7, 1, 2), (18, 2, 4), (8, 3, 6)])
def test_a_width_that_does_not_split_between_the_axes_is_refused(dim, num_axes, multiple):
    with pytest.raises(
        ValueError, match=f"dim={dim} does not split into .* of {num_axes} axes equally; .* multiple of {multiple}"
    ):
        Sinusoidal(dim, num_axes)


@pytest.mark.parametrize(("channels", "num_axes"), [(14, 1), (8, 2)])
def test_concatenated_sinusoids_leave_the_channels_of_content_at_zero(channels, num_axes):
    positions = torch.randn(2, 5, num_axes)
    concat = SinusoidalConcat(17, num_axes, channels=channels, max_wavelength=100.0)
    got = concat(positions)
    assert got.shape == (2, 5, 17)
    assert not got[..., : 17 - channels].any()
    assert_close(got[..., 17 - channels :], Sinusoidal(channels, num_axes, max_wavelength=100.0)(positions))
    assert concat.num_position_channels == channels


@pytest.mark.parametrize(
    ("channels", "message"),
    [(0, "channels=0 of dim=12 should leave"), (12, "channels=12 of dim=12 should leave"), (6, "dim=6 does not split")],
)
def test_channels_that_leave_content_nothing_or_do_not_split_are_refused(channels, message):
    with pytest.raises(ValueError, match=message):
        SinusoidalConcat(12, 2, channels=channels)


@pytest.mark.parametrize(
    "position", [Sinusoidal(6, 0), SinusoidalConcat(6, 0, channels=2), NoPosition(6, 0), NoPosition(6, 2)]
)
def test_without_axes_nothing_is_added(position):
    hidden = torch.randn(2, 3, 6)
    assert_close(hidden + position(torch.randn(2, 3, position.num_axes)), hidden)


def test_learned_positions_are_looked_up_and_summed_over_axes():
    learned = Learned(5, 2, sizes=[3, 7])
    positions = torch.tensor([[[0.0, 6.0], [2.0, 1.0]]])
    rows, columns = learned.tables
    assert_close(learned(positions), torch.stack([rows[0] + columns[6], rows[2] + columns[1]])[None])


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([[0.5, 1.0]], "Learned takes integer positions; for fractions use Sinusoidal"),
        ([[3.0, 1.0]], "position 3 on axis 0 is outside the learned table of 3"),
        ([[0.0, -1.0]], "position -1 on axis 1 is outside the learned table of 7"),
    ],
)
def test_a_position_outside_the_table_is_refused(positions, message):
    with pytest.raises(ValueError, match=message):
        Learned(5, 2, sizes=[3, 7])(torch.tensor([positions]))


@pytest.mark.parametrize(("num_axes", "sizes"), [(2, [3]), (0, [])])
def test_a_table_that_does_not_fit_the_axes_is_refused(num_axes, sizes):
    with pytest.raises(ValueError, match=f"the tokens have {num_axes}; give one size each"):
        Learned(5, num_axes, sizes=sizes)


def test_a_table_without_entries_is_refused():
    with pytest.raises(ValueError, match=r"sizes=\[0\]\) counts entries of tables; make each 1 or more"):
        Learned(5, 1, sizes=[0])


def test_resampling_to_the_same_size_is_the_identity_and_keeps_the_ends_otherwise():
    learned = Learned(5, 2, sizes=[3, 7])
    for old, same, new in zip(learned.tables, learned.resampled([3, 7]).tables, learned.resampled([5, 11]).tables):
        assert_close(same, old)
        assert_close(new[[0, -1]], old[[0, -1]])
    rows = learned.resampled([5, 7]).tables[0]
    assert_close(rows[1], (learned.tables[0][0] + learned.tables[0][1]) / 2)  # half-way between two of three
    assert rows.requires_grad
