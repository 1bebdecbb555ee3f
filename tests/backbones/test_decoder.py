"""RNNDecoder and AttentionDecoder in what they share: the encoder's output, their cache, what is refused.

The laws of encoder–decoders are in test_encoder_decoder.py.
"""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqkit.analysis.attention_maps import record_attention_maps
from seqkit.backbones import GRU, TCN, AttentionDecoder, RNNDecoder, Transformer
from seqkit.interfaces import Adjacency, Embedded
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention

DIM = 7
DECODERS = {
    "RNNDecoder": lambda: RNNDecoder(
        DIM, attention=partial(MultiHeadAttention, mechanism=AdditiveAttention)
    ),
    "AttentionDecoder": lambda: AttentionDecoder(TCN(DIM, 1, causal=True)),
}
BOTH = pytest.mark.parametrize("name", DECODERS)


def embedded(lengths, memory=None, seed=0):
    g = torch.Generator().manual_seed(seed)
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, DIM, generator=g).masked_fill(~valid[..., None], 0.0)
    return Embedded(hidden, torch.zeros(len(lengths), n, 1), valid, memory=memory)


def pair():
    return embedded((3, 5), embedded((5, 2), seed=1))


@BOTH
def test_an_attention_map_has_one_row_a_step_and_no_weight_on_padding(name):
    decoder = DECODERS[name]()
    with torch.no_grad(), record_attention_maps(decoder) as maps:
        decoder(pair())
    (attention_map,) = maps
    assert attention_map.is_cross
    assert attention_map.weights.shape == (2, 1, 5, 5)
    assert_close(attention_map.weights.sum(dim=-1), torch.ones(2, 1, 5))
    assert not attention_map.weights[1, :, :, 2:].any()


@BOTH
def test_keys_of_the_memory_are_computed_once(name):
    decoder = DECODERS[name]()
    cache = decoder.init_cache(9)
    decoder(pair(), cache)
    keys, _ = cache.attention.cross_attention
    decoder(embedded((1, 1)), cache)
    assert cache.attention.cross_attention[0] is keys
    assert keys.shape == (2, 1, 5, DIM)


@BOTH
def test_reordered_examples_take_their_memory_along(name):
    decoder, x, rows = DECODERS[name](), pair(), torch.tensor([1, 0, 1])
    cache, more = decoder.init_cache(9), embedded((1, 1, 1), seed=2)
    decoder(x, cache)
    cache.reorder(rows)
    got = decoder(more, cache)
    assert cache.num_tokens == 6
    for i, row in enumerate(rows.tolist()):
        n, m = int(x.valid[row].sum()), int(x.memory.valid[row].sum())
        hidden = torch.cat([x.hidden[row, :n], more.hidden[i]])[None]
        memory = Embedded(
            x.memory.hidden[row, None, :m], torch.zeros(1, m, 1), torch.ones(1, m, dtype=torch.bool)
        )
        valid = torch.ones(1, n + 1, dtype=torch.bool)
        assert_close(
            got[i, 0],
            decoder(Embedded(hidden, torch.zeros(1, n + 1, 1), valid, memory=memory))[0, n],
        )


ADJACENCY = Adjacency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))


@BOTH
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adjacency": ADJACENCY}, "does not support adjacency"),
        ({"memory": None}, "no source"),
    ],
)
def test_unsupported_input_is_refused(name, change, message):
    with pytest.raises(ValueError, match=message.format(name=name)):
        DECODERS[name]()(pair().replace(**change))


@BOTH
def test_packed_targets_are_refused_with_a_cache(name):
    decoder = DECODERS[name]()
    x = pair().replace(segments=torch.zeros(2, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match=f"{name} has no cache of packed targets"):
        decoder(x, decoder.init_cache(5))


@BOTH
@pytest.mark.parametrize(
    "other", [GRU(8, causal=True), Transformer(8, 1, causal=True)], ids=["GRU", "Transformer"]
)
def test_a_cache_of_another_backbone_is_refused(name, other):
    with pytest.raises(ValueError, match=name):
        DECODERS[name]()(pair(), other.init_cache(3))


def test_a_cache_of_a_decoder_of_another_kind_is_refused():
    other = AttentionDecoder(Transformer(DIM, 1, num_heads=1, causal=True))
    with pytest.raises(ValueError, match="DecoderCache"):
        DECODERS["RNNDecoder"]()(pair(), other.init_cache(3))
