"""Linformer is its formula, exact attention when it mixes nothing, and blind to padding."""

import math
from functools import partial

import pytest
import torch
from einops import einsum
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.conformance import check_backbone
from seqkit.contract import Embedded
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.linformer import Linformer
from seqkit.layers.mechanism import ScaledDotProduct
from seqkit.layers.position import Rotary
from seqkit.layers.reading import Reading


def queries_keys_values(n, m, groups=3, c=5):
    return (torch.randn(2, h, t, c, dtype=torch.float64) for h, t in ((3, n), (groups, m), (groups, m)))


def read_by(lengths, m):
    valid = torch.arange(m) < torch.tensor(lengths)[:, None]
    return Reading(valid=valid, read_valid=valid)


def stack(position=None, **settings):
    mechanism = partial(Linformer, **{"max_tokens": 13, "rank": 5, **settings})
    block = partial(Block, attention=partial(Attention, mechanism=mechanism))
    return Transformer(24, 2, num_heads=3, block=block, position=position)


def embedded(lengths, n, shift=0.0):
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, 24).masked_fill(~valid[..., None], 0.0)
    return Embedded(hidden, torch.arange(float(n)).expand(len(lengths), n)[..., None] + shift, valid)


@pytest.mark.parametrize("groups", [1, 3])
def test_linformer_equals_its_formula(groups):
    """Wang et al. 2020, equation 7, head by head: softmax(q (E^T k)^T / sqrt(c)) (F^T v)."""
    linformer = Linformer(3, 5, max_tokens=11, rank=2).double()
    q, k, v = queries_keys_values(3, 7, groups)
    got = linformer(q, k, v, read_by([7, 4], 7))
    for b, length in enumerate([7, 4]):
        for h in range(3):
            keys, values = (x[b, h * groups // 3, :length] for x in (k, v))
            mixed = linformer.mix_keys[:length].T @ keys
            scores = q[b, h] @ mixed.T / math.sqrt(5)
            assert_close(got[b, h], scores.softmax(dim=-1) @ (linformer.mix_values[:length].T @ values))


def test_mixing_nothing_is_exact_attention():
    linformer = Linformer(3, 5, max_tokens=7, rank=7).double()
    for mix in (linformer.mix_keys, linformer.mix_values):
        nn.init.eye_(mix)
    q, k, v = queries_keys_values(7, 7)
    assert_close(linformer(q, k, v, Reading()), ScaledDotProduct(3, 5)(q, k, v, Reading()))


@pytest.mark.parametrize("columns", [7, 11, 17])
def test_weights_times_values_are_what_is_read_whatever_the_padding(columns):
    """17 columns are more than it has weights for, but those behind the 7th are padding."""
    linformer = Linformer(3, 5, max_tokens=11, rank=2).double()
    q, k, v = queries_keys_values(columns, columns)
    who = read_by([7, 4], columns)
    weights = linformer.weights(q, k, who)
    assert weights.shape == (2, 3, columns, columns)
    assert_close(linformer(q, k, v, who), einsum(weights, v, "b h n m, b h m c -> b h n c"))
    assert not weights[0, :, :, 7:].any()
    assert not weights[1, :, :, 4:].any()
    cut = linformer(q[:, :, :7], k[:, :, :7], v[:, :, :7], read_by([7, 4], 7))
    assert_close(linformer(q, k, v, who)[:, :, :7], cut)


def test_an_example_without_tokens_reads_zero():
    linformer = Linformer(3, 5, max_tokens=11, rank=2).double()
    read = linformer(*queries_keys_values(3, 3), read_by([3, 0], 3))
    assert read[0].any()
    assert not read[1].any()


def test_mixtures_of_a_full_row_start_as_large_as_what_they_mix():
    linformer = Linformer(1, 1, max_tokens=509, rank=251)
    k = torch.randn(509, 101)
    for mix in (linformer.mix_keys, linformer.mix_values):
        assert float((mix.detach().T @ k).std()) == pytest.approx(1, rel=0.03)


def test_only_differences_of_turned_positions_matter():
    backbone = stack(position=Rotary()).double()
    x = embedded([7, 5], 7)
    near, far, wide = (
        Embedded(x.hidden.double(), x.positions * times + shift, x.valid) for times, shift in ((1, 0), (1, 11), (3, 0))
    )
    assert_close(backbone(far), backbone(near), rtol=0, atol=1e-6)
    assert (backbone(wide) - backbone(near)).abs().max() > 1e-5


def test_a_transformer_with_it_keeps_the_laws():
    def build(dim, causal):
        block = partial(Block, attention=partial(Attention, mechanism=partial(Linformer, max_tokens=9, rank=5)))
        return Transformer(dim, 2, num_heads=3, causal=causal, block=block)

    check_backbone(build, causal=[False])


def test_what_cannot_be_is_refused():
    backbone = stack()
    with pytest.raises(ValueError, match=r"a sequence has 14 tokens, and Linformer weights for max_tokens=13; shorten"):
        backbone(embedded([14, 3], 17))
    with pytest.raises(ValueError, match="max_tokens=0, rank=5; both count something"):
        stack(max_tokens=0)
    mechanism = partial(Linformer, max_tokens=13, rank=5)
    with pytest.raises(
        ValueError, match=r"Linformer cannot keep from reading tokens after its own \(causal=True\); use"
    ):
        Transformer(24, 1, causal=True, block=partial(Block, attention=partial(Attention, mechanism=mechanism)))
