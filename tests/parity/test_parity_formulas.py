"""Rotary positions and ALiBi as their papers write them, number by number.

n tokens · c channels of one head · h heads
"""

import math

import pytest
import torch
from torch.testing import assert_close

from seqkit.layers.attention import Attention, rotate
from seqkit.layers.distance import ALiBi
from seqkit.layers.position import Rotary
from seqkit.layers.reading import Reading


def turned_by_the_matrix(x, position):
    """R x of RoFormer's equation 15: for pair i = 1 ... c / 2, the angle is position * 10000^(-2 (i - 1) / c)."""
    c = len(x)
    matrix = torch.zeros(c, c, dtype=x.dtype)
    for i in range(1, c // 2 + 1):
        angle = position * 10_000 ** (-2 * (i - 1) / c)
        a, b = 2 * i - 2, 2 * i - 1
        matrix[a, a], matrix[a, b] = math.cos(angle), -math.sin(angle)
        matrix[b, a], matrix[b, b] = math.sin(angle), math.cos(angle)
    return matrix @ x


def test_rotary_is_roformers_equation_15():
    heads, channels, where = 3, 10, [0.0, 1.0, 2.0, 7.0, 1023.0]  # the last: an angle known to 6e-5 in single precision
    x = torch.randn(1, heads, len(where), channels)
    positions = torch.tensor(where).reshape(1, -1, 1)
    got = rotate(x, Rotary().rotation(positions, channels))
    for h in range(heads):
        for n, position in enumerate(where):
            assert_close(got[0, h, n].double(), turned_by_the_matrix(x[0, h, n].double(), position), rtol=0, atol=2e-4)


def test_rotary_scores_are_roformers_equation_16():
    """q' R_(n - m) k: what attention computes from turned queries and keys depends on the difference alone."""
    channels, where = 6, [0.0, 1.0, 4.0, 5.0, 11.0]
    q, k = torch.randn(2, 1, 1, len(where), channels, dtype=torch.float64)
    rotation = Rotary().rotation(torch.tensor(where).reshape(1, -1, 1), channels)
    scores = rotate(q, rotation) @ rotate(k, rotation).mT
    for m, reader in enumerate(where):
        for n, read in enumerate(where):
            right = q[0, 0, m] @ turned_by_the_matrix(k[0, 0, n], read - reader)
            assert_close(scores[0, 0, m, n], right, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
        (16, [2 ** (-i / 2) for i in range(1, 17)]),
    ],
)
def test_alibi_has_the_papers_slopes(heads, slopes):
    """Section 3: a geometric sequence that starts at 2^(-8 / n) and uses that as its ratio."""
    positions = torch.arange(5.0).reshape(1, -1, 1)
    got = ALiBi().bias(positions, positions, heads)
    for h, slope in enumerate(slopes):
        for i in range(5):
            for j in range(i + 1):
                assert float(got[0, h, i, j]) == pytest.approx(-slope * (i - j))


def test_attention_with_alibi_is_the_papers_formula():
    """softmax(q_i K' + m [-(i - 1), ..., -2, -1, 0]), the scores scaled by sqrt(c) as in the authors' code."""
    heads, channels, n = 2, 5, 7
    attention = Attention(heads * channels, heads, bias=False)
    x = torch.randn(1, n, heads * channels)
    positions = torch.arange(float(n)).reshape(1, -1, 1)
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    bias = ALiBi().bias(positions, positions, heads).masked_fill(later, -torch.inf)
    with torch.no_grad():
        got = attention(x, Reading(bias))[0]
        q, k, v = attention.qkv(x)[0].split(heads * channels, dim=-1)
        read = torch.zeros(n, heads * channels)
        for h in range(heads):
            mine = slice(h * channels, (h + 1) * channels)
            slope = 2 ** (-8 * (h + 1) / heads)
            for i in range(n):
                scores = torch.tensor(
                    [float(q[i, mine] @ k[j, mine]) / math.sqrt(channels) - slope * (i - j) for j in range(i + 1)]
                )
                read[i, mine] = scores.softmax(dim=0) @ v[: i + 1, mine]
        assert_close(got, attention.out(read), rtol=0, atol=1e-6)
