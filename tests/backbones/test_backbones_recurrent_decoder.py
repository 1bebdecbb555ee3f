"""The recurrent decoder against its equations, step by step; its alignments; what it refuses.

The laws of writing from another sequence are in test_backbones_seq2seq.py.
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import GRU, RecurrentDecoder, Transformer
from seqkit.contract import Embedded, Links
from seqkit.layers.attention import Attention
from seqkit.layers.mechanism import Mechanism
from seqkit.layers.scores import Additive
from seqkit.maps import taking_maps

DIM = 7
ADDITIVE = partial(Attention, mechanism=Additive)


def embedded(lengths, memory=None, seed=0):
    g = torch.Generator().manual_seed(seed)
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, DIM, generator=g).masked_fill(~valid[..., None], 0.0)
    return Embedded(hidden, torch.zeros(len(lengths), n, 1), valid, memory=memory)


def pair(targets=(3, 5), sources=(5, 2)):
    return embedded(targets, embedded(sources, seed=1))


def cells(decoder, cls):
    """One cell a layer with the decoder's weights."""
    made = []
    for layer in range(decoder.depth):
        cell = cls(2 * DIM if layer == 0 else DIM, DIM)
        state = decoder.layers.state_dict()
        cell.load_state_dict({name: state[f"{name}_l{layer}"] for name in cell.state_dict()})
        made.append(cell)
    return made


def bahdanaus(attention, asking, source):
    """softmax(v . tanh(W s + U h)) h of one head, an example at a time (Bahdanau et al. 2015, appendix A.1.2)."""
    w, u, values = attention.qkv.weight.chunk(3)
    bias_w, bias_u, bias_values = attention.qkv.bias.chunk(3)
    scores = torch.tanh(w @ asking + bias_w + source @ u.T + bias_u) @ attention.mechanism.weigh[0]
    return attention.out(scores.softmax(dim=0) @ (source @ values.T + bias_values))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("name", ["GRU", "LSTM"])
@pytest.mark.parametrize("attention", [None, ADDITIVE], ids=["summary", "attention"])
def test_it_is_its_equations(name, depth, attention):
    decoder, x = RecurrentDecoder(DIM, depth, cell=name, attention=attention), pair()
    got = decoder(x)
    layers = cells(decoder, {"GRU": nn.GRUCell, "LSTM": nn.LSTMCell}[name])
    for i in range(2):
        source = x.memory.hidden[i, x.memory.valid[i]]
        c = torch.tanh(decoder.summary(torch.cat([source[0], source[-1]])))
        states = list(torch.tanh(decoder.start(c)).split(DIM))
        memories = [torch.zeros(DIM) for _ in states]
        for t in range(int(x.valid[i].sum())):
            read = c if attention is None else bahdanaus(decoder.attention, states[-1], source)
            y = x.hidden[i, t]
            out = torch.cat([y, read])
            for k, cell in enumerate(layers):
                if name == "GRU":
                    states[k] = cell(out, states[k])
                else:
                    states[k], memories[k] = cell(out, (states[k], memories[k]))
                out = states[k]
            assert_close(got[i, t], torch.tanh(decoder.out(torch.cat([out, read, y]))))


def test_alignments_are_seen_one_row_a_step():
    decoder, x = RecurrentDecoder(DIM, attention=ADDITIVE), pair()
    with torch.no_grad(), taking_maps(decoder) as maps:
        decoder(x)
    (alignment,) = maps
    assert alignment.across
    assert alignment.weights.shape == (2, 1, 5, 5)
    assert_close(alignment.weights.sum(dim=-1), torch.ones(2, 1, 5))
    assert not alignment.weights[1, :, :, 2:].any()


def test_keys_of_the_source_are_made_once():
    decoder, x = RecurrentDecoder(DIM, attention=ADDITIVE), pair()
    cache = decoder.init_cache(9)
    decoder(x, cache)
    keys, _ = cache.keys.source
    decoder(embedded((1, 1)), cache)
    assert cache.keys.source[0] is keys
    assert keys.shape == (2, 1, 5, DIM)


def test_dropout_acts_while_training():
    decoder, x = RecurrentDecoder(DIM, 2, dropout=0.5), pair()
    assert not torch.equal(decoder(x), decoder(x))
    decoder.eval()
    assert_close(decoder(x), decoder(x))


class Deaf(Mechanism):
    """Cannot read another sequence."""

    honours = frozenset({"causal"})

    def __init__(self, num_heads, channels):
        super().__init__()

    def forward(self, q, k, v, reading, memory=None):
        return v

    def weights(self, q, k, reading):
        raise ValueError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 0}, "depth=0; a recurrent network needs at least one unit and one layer"),
        ({"cell": "RNN"}, "cell='RNN'; choose 'GRU' or 'LSTM'"),
        ({"attention": partial(Attention, mechanism=Deaf)}, r"Deaf cannot read another sequence \(cross-attention\)"),
        ({"attention": Attention, "num_heads": 2}, "dim=7 does not split into num_heads=2"),
    ],
)
def test_what_cannot_be_is_refused_when_built(settings, message):
    with pytest.raises(ValueError, match=message):
        RecurrentDecoder(DIM, **settings)


def test_what_cannot_be_read_is_refused():
    decoder, x = RecurrentDecoder(DIM), pair()
    links = Links(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="cannot honour links or segments"):
        decoder(Embedded(x.hidden, x.positions, x.valid, links, memory=x.memory))
    with pytest.raises(ValueError, match="reads another sequence, and was given none"):
        decoder(embedded((3, 2)))
    for other in (GRU(8, causal=True), Transformer(8, 1, causal=True)):
        with pytest.raises(ValueError, match=r"was given a \w+; make its cache with init_cache"):
            decoder(x, other.init_cache(3))
    with pytest.raises(ValueError, match="an example has no real token"):
        decoder(pair(targets=(3, 0)))
