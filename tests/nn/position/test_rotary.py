"""Rotary positions are RoFormer's complex factors, axis by axis, and scores depend on differences only."""

import cmath

import pytest
import torch
from torch.testing import assert_close

from seqkit.nn.attention.multi_head import apply_rotary
from seqkit.nn.position.base import RelativePosition
from seqkit.nn.position.rotary import Rotary


def test_rotary_is_the_papers_complex_factor():
    positions = torch.randn(2, 3, 2) * 10
    got = Rotary(base=50.0).rotary(positions, 13)  # six pairs, three per axis, one channel left over
    assert got.shape == (2, 1, 3, 6)
    for b in range(2):
        for n in range(3):
            for axis in range(2):
                for i in range(3):
                    right = cmath.exp(1j * float(positions[b, n, axis]) * 50.0 ** (-i / 3))
                    assert abs(complex(got[b, 0, n, axis * 3 + i]) - right) < 1e-4


@pytest.mark.parametrize("num_axes", [1, 2])
def test_scores_of_rotated_queries_and_keys_depend_on_differences_only(num_axes):
    q, k = torch.randn(2, 1, 1, 5, 8).double()
    positions, shift = torch.randn(1, 5, num_axes) * 3, torch.randn(num_axes) * 20

    def scores(positions):
        rotary = Rotary().rotary(positions, 8)
        return apply_rotary(q, rotary) @ apply_rotary(k, rotary).mT

    assert_close(scores(positions + shift), scores(positions), rtol=1e-4, atol=1e-4)
    assert (scores(positions * 2) - scores(positions)).abs().max() > 0.1


def test_channels_without_a_pair_are_not_rotated():
    x, rotary = torch.randn(2, 3, 5, 7), Rotary().rotary(torch.randn(2, 5, 1), 7)
    rotated = apply_rotary(x, rotary)
    assert rotated.shape == x.shape
    assert_close(rotated[..., 6], x[..., 6])
    assert_close(rotated.norm(dim=-1), x.norm(dim=-1))  # a rotation keeps lengths


def test_without_axes_nothing_is_rotated():
    assert Rotary().rotary(torch.zeros(2, 3, 0), 8) is None


def test_a_relative_position_does_nothing_by_default():
    positions, nothing = torch.zeros(2, 3, 1), RelativePosition()
    assert nothing.rotary(positions, 8) is None
    assert nothing.bias(positions, positions, 2) is None
    assert nothing.relative(positions, positions) is None


def test_heads_too_narrow_for_the_axes_are_refused():
    for call in (lambda: Rotary().rotary(torch.zeros(1, 1, 2), 3), lambda: Rotary().check_axes(2, 3)):
        with pytest.raises(ValueError, match="a head_dim of 3 has no channel pair for each of 2 axes; use wider heads"):
            call()
    with pytest.raises(ValueError, match="base=0 should be positive"):
        Rotary(base=0)
