"""Positions equal their formulas, axis by axis."""

import cmath
import math

import pytest
import torch
from torch.testing import assert_close

from seqkit.layers.attention import rotate
from seqkit.layers.position import AttentionPosition, Learned, NoPosition, Rotary, Sinusoidal, SinusoidalConcat


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


def test_positions_of_whole_tokens_are_the_original_transformers():
    got = Sinusoidal(6, 1)(torch.arange(3.0)[None, :, None])[0]
    assert_close(got[0], torch.tensor([0.0, 1.0] * 3))
    assert_close(got[2, 2:4], torch.tensor([math.sin(2 / 10_000 ** (2 / 6)), math.cos(2 / 10_000 ** (2 / 6))]))


@pytest.mark.parametrize(("dim", "num_axes", "multiple"), [(7, 1, 2), (18, 2, 4), (8, 3, 6)])
def test_a_width_that_the_axes_cannot_share_is_refused(dim, num_axes, multiple):
    with pytest.raises(
        ValueError, match=f"dim={dim} does not hold .* of {num_axes} axes equally; .* multiple of {multiple}"
    ):
        Sinusoidal(dim, num_axes)


@pytest.mark.parametrize(("channels", "num_axes"), [(14, 1), (8, 2)])
def test_concatenated_sinusoids_leave_content_alone(channels, num_axes):
    positions = torch.randn(2, 5, num_axes)
    beside = SinusoidalConcat(17, num_axes, channels=channels, max_wavelength=100.0)
    got = beside(positions)
    assert got.shape == (2, 5, 17)
    assert not got[..., : 17 - channels].any()
    assert_close(got[..., 17 - channels :], Sinusoidal(channels, num_axes, max_wavelength=100.0)(positions))
    assert beside.own_channels == channels


@pytest.mark.parametrize(
    ("channels", "message"),
    [(0, "channels=0 of dim=12 should leave"), (12, "channels=12 of dim=12 should leave"), (6, "dim=6 does not hold")],
)
def test_channels_that_cannot_be_shared_with_content_are_refused(channels, message):
    with pytest.raises(ValueError, match=message):
        SinusoidalConcat(12, 2, channels=channels)


@pytest.mark.parametrize(
    "position", [Sinusoidal(6, 0), SinusoidalConcat(6, 0, channels=2), NoPosition(6, 0), NoPosition(6, 2)]
)
def test_tokens_without_order_get_nothing_added(position):
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
        ([[0.5, 1.0]], "Learned takes whole positions; for fractions use Sinusoidal"),
        ([[3.0, 1.0]], "position 3 on axis 0 is outside the learned table of 3"),
        ([[0.0, -1.0]], "position -1 on axis 1 is outside the learned table of 7"),
    ],
)
def test_a_position_that_the_table_has_not_is_refused(positions, message):
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


def test_rotation_is_the_papers_complex_factor():
    positions = torch.randn(2, 3, 2) * 10
    got = Rotary(base=50.0).rotation(positions, 13)  # six pairs, three an axis, one channel over
    assert got.shape == (2, 1, 3, 6)
    for b in range(2):
        for n in range(3):
            for axis in range(2):
                for i in range(3):
                    right = cmath.exp(1j * float(positions[b, n, axis]) * 50.0 ** (-i / 3))
                    assert abs(complex(got[b, 0, n, axis * 3 + i]) - right) < 1e-4


@pytest.mark.parametrize("num_axes", [1, 2])
def test_rotated_scores_see_differences_only(num_axes):
    q, k = torch.randn(2, 1, 1, 5, 8).double()
    positions, shift = torch.randn(1, 5, num_axes) * 3, torch.randn(num_axes) * 20

    def scores(at):
        turn = Rotary().rotation(at, 8)
        return rotate(q, turn) @ rotate(k, turn).mT

    assert_close(scores(positions + shift), scores(positions), rtol=1e-4, atol=1e-4)
    assert (scores(positions * 2) - scores(positions)).abs().max() > 0.1


def test_channels_without_a_pair_are_not_turned():
    x, turn = torch.randn(2, 3, 5, 7), Rotary().rotation(torch.randn(2, 5, 1), 7)
    turned = rotate(x, turn)
    assert turned.shape == x.shape
    assert_close(turned[..., 6], x[..., 6])
    assert_close(turned.norm(dim=-1), x.norm(dim=-1))  # turning keeps lengths


def test_without_axes_nothing_is_turned():
    assert Rotary().rotation(torch.zeros(2, 3, 0), 8) is None
    silent = AttentionPosition()
    assert silent.rotation(torch.zeros(2, 3, 1), 8) is None
    assert silent.bias(torch.zeros(2, 3, 1), torch.zeros(2, 3, 1), 2) is None


def test_heads_too_narrow_to_turn_are_refused():
    for ask in (lambda: Rotary().rotation(torch.zeros(1, 1, 2), 3), lambda: Rotary().check_axes(2, 3)):
        with pytest.raises(ValueError, match="heads of 3 channels hold no pair for each of 2 axes"):
            ask()
    with pytest.raises(ValueError, match="base=0 should be positive"):
        Rotary(base=0)
