"""Relative position embeddings equal the paper's equations, on any axes."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.position.relative import RelativeEmbedding
from seqkit.testing import check_backbone, synthetic


def row(n, start=0):
    return torch.arange(start, start + n).double()[None, :, None]


def test_relative_embeddings_are_looked_up_by_clipped_signed_distance():
    shaw = RelativeEmbedding(5, max_distance=2)
    got = shaw.relative(row(4, start=3), row(7))
    for i in range(4):
        for j in range(7):
            assert_close(got[0, i, j], shaw.table[max(-2, min(2, j - (i + 3))) + 2])


def test_relative_embeddings_on_two_axes_have_no_side():
    shaw = RelativeEmbedding(5, max_distance=3, num_axes=2)
    keys = torch.tensor([[[0, 0], [-1, 0], [0, 1], [1.5, 2], [30, 40]]])
    assert_close(shaw.relative(torch.zeros(1, 1, 2), keys)[0, 0], shaw.table[[0, 1, 1, 2, 3]])


def test_distances_on_two_axes_are_rounded():
    shaw = RelativeEmbedding(5, max_distance=4, num_axes=2)
    keys = torch.tensor([[[0.4, 0], [0.6, 0], [-2, 2], [-1.2, -2.6], [0, 4.4]]])  # 0.4, 0.6, 2.8, 2.9 and 4.4 away
    assert_close(shaw.relative(torch.zeros(1, 1, 2), keys)[0, 0], shaw.table[[0, 1, 3, 3, 4]])


def test_attention_with_relative_embeddings_equals_equation_4():
    attention, shaw, x = MultiHeadAttention(14, 2), RelativeEmbedding(7, max_distance=1), torch.randn(1, 5, 14)
    got = attention(x, AttentionContext(relative=shaw.relative(row(5), row(5))))
    q, k, v = ((x[0] @ attention.qkv_proj.weight.T + attention.qkv_proj.bias).split(14, dim=-1)[i] for i in range(3))
    output = torch.zeros(5, 14)
    for h in (slice(0, 7), slice(7, 14)):
        for i in range(5):
            keys = torch.stack([k[j, h] + shaw.table[max(-1, min(1, j - i)) + 1] for j in range(5)])
            output[i, h] = (q[i, h] @ keys.T / 7**0.5).softmax(0) @ v[:, h]
    assert_close(got[0], output @ attention.out_proj.weight.T + attention.out_proj.bias)


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="max_distance=0"):
        RelativeEmbedding(5, max_distance=0)


@pytest.mark.parametrize(("num_axes", "kind"), [(1, "series"), (2, "image")])
def test_a_backbone_with_relative_embeddings_keeps_the_laws(num_axes, kind):
    position = partial(RelativeEmbedding, 8, max_distance=2, num_axes=num_axes)
    check_backbone(
        lambda dim, causal: Transformer(dim, 2, num_heads=3, causal=causal, position=position()),
        kinds=[kind],
        quick=True,
    )


def test_relative_embeddings_depend_on_differences_only():
    position = RelativeEmbedding(3, max_distance=4)

    def relative(positions):
        return position.relative(positions, positions)

    assert_close(relative(row(7) + 1000), relative(row(7)))
    assert (relative(row(7) * 2) - relative(row(7))).abs().max() > 0.01


def test_heads_of_another_width_are_refused_when_a_backbone_is_built():
    with pytest.raises(ValueError, match=r"head_dim=7.*8"):
        Transformer(24, 2, num_heads=3, position=RelativeEmbedding(7, max_distance=2))


@pytest.mark.parametrize(
    ("modality", "message"),
    [
        ("graph", "0 axes"),
        ("image", "num_axes=2"),
    ],
)
def test_tokens_with_another_number_of_axes_are_refused(modality, message):
    spec, _ = synthetic()[modality]
    with pytest.raises(ValueError, match=message):
        Transformer(24, 2, num_heads=3, position=RelativeEmbedding(8, max_distance=2)).check_supported(spec)
