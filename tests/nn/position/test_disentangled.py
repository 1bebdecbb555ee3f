"""Vectors of distances have Hugging Face's buckets, and are compared as their definition says."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.disentangled import DisentangledPosition
from seqkit.testing import check_backbone


def row(n):
    return torch.arange(float(n))[None, :, None]


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(256, 512), (8, 23), (6, 97), (64, 35)])
def test_buckets_equal_hugging_faces(num_buckets, max_distance):
    from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

    n = 601
    x = torch.zeros(1, n, 1)
    right = build_relative_position(x, x, num_buckets, max_distance) + num_buckets
    ours = DisentangledPosition(6, num_buckets=num_buckets, max_distance=max_distance)
    found = ours.distances(row(n), row(n))
    assert found.of_pairs.equal(right.clamp(0, 2 * num_buckets - 1))
    assert_close(found.vectors[0], ours.norm(ours.table))


def test_scores_are_products_with_the_vector_of_each_distance():
    torch.manual_seed(3)
    places = row(5).expand(2, -1, -1)
    found = DisentangledPosition(6, num_buckets=4, max_distance=9).distances(places, places)
    q, k = torch.randn(2, 2, 3, 5, 7).unbind()
    of_q, of_k = torch.randn(2, 1, 3, 8, 7).unbind()
    got = found.scores(q, k, of_q, of_k)
    for b, h, i, j in ((0, 1, 2, 4), (1, 2, 4, 0), (1, 0, 3, 3)):
        r = int(found.of_pairs[b, i, j])
        right = q[b, h, i] @ of_k[0, h, r] + k[b, h, j] @ of_q[0, h, r]
        assert_close(got[b, h, i, j], right / 21**0.5)


def test_it_keeps_the_laws_of_backbones():
    def build(dim, causal):
        position = DisentangledPosition(dim, num_buckets=4, max_distance=9)
        block = partial(PreNormBlock, attention=partial(MultiHeadAttention, num_kv_heads=1))
        return Transformer(dim, 2, num_heads=3, causal=causal, block=block, position=position)

    checked = check_backbone(build, causal=[False], kinds=["text"], quick=True)
    assert "packed_equals_separate" in {law.__name__ for law in checked}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_buckets": 2}, "num_buckets=2"),
        ({"num_buckets": 8, "max_distance": 5}, "max_distance=5"),
    ],
)
def test_settings_that_make_no_buckets_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        DisentangledPosition(6, **given)


def test_what_it_cannot_do_is_refused():
    position = DisentangledPosition(16, num_buckets=4, max_distance=9)
    with pytest.raises(ValueError, match="1 axis, not of 2"):
        position.check_axes(2, 8)
    decoder = Transformer(16, 2, num_heads=2, causal=True, position=position)
    with pytest.raises(ValueError, match="no cache"):
        decoder.init_cache(3)
