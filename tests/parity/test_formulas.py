"""Rotary positions and ALiBi as their papers write them, number by number.

n tokens · c channels of one head · h heads
"""

import math

import pytest
import torch
from torch.testing import assert_close

from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention, apply_rotary
from seqkit.nn.position.bias import ALiBi
from seqkit.nn.position.rotary import Rotary


def rotated_by_the_matrix(x, position):
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
    # the last: an angle known to 6e-5 in single precision
    heads, head_dim, where = 3, 10, [0.0, 1.0, 2.0, 7.0, 1023.0]
    x = torch.randn(1, heads, len(where), head_dim)
    positions = torch.tensor(where).reshape(1, -1, 1)
    got = apply_rotary(x, Rotary().rotary(positions, head_dim))
    for h in range(heads):
        for n, position in enumerate(where):
            assert_close(
                got[0, h, n].double(),
                rotated_by_the_matrix(x[0, h, n].double(), position),
                rtol=0,
                atol=2e-4,
            )


def test_rotary_scores_are_roformers_equation_16():
    """q' R_(n - m) k: the score of rotated queries and keys depends on the difference alone."""
    head_dim, where = 6, [0.0, 1.0, 4.0, 5.0, 11.0]
    q, k = torch.randn(2, 1, 1, len(where), head_dim, dtype=torch.float64)
    rotary = Rotary().rotary(torch.tensor(where).reshape(1, -1, 1), head_dim)
    scores = apply_rotary(q, rotary) @ apply_rotary(k, rotary).mT
    for m, query_position in enumerate(where):
        for n, key_position in enumerate(where):
            right = q[0, 0, m] @ rotated_by_the_matrix(k[0, 0, n], key_position - query_position)
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
    heads, head_dim, n = 2, 5, 7
    attention = MultiHeadAttention(heads * head_dim, heads, bias=False)
    x = torch.randn(1, n, heads * head_dim)
    positions = torch.arange(float(n)).reshape(1, -1, 1)
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    bias = ALiBi().bias(positions, positions, heads).masked_fill(later, -torch.inf)
    with torch.no_grad():
        got = attention(x, AttentionContext(bias))[0]
        q, k, v = attention.qkv_proj(x)[0].split(heads * head_dim, dim=-1)
        output = torch.zeros(n, heads * head_dim)
        for h in range(heads):
            head = slice(h * head_dim, (h + 1) * head_dim)
            slope = 2 ** (-8 * (h + 1) / heads)
            for i in range(n):
                scores = torch.tensor(
                    [
                        float(q[i, head] @ k[j, head]) / math.sqrt(head_dim) - slope * (i - j)
                        for j in range(i + 1)
                    ]
                )
                output[i, head] = scores.softmax(dim=0) @ v[: i + 1, head]
        assert_close(got, attention.out_proj(output), rtol=0, atol=1e-6)
