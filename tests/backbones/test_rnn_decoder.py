"""The recurrent decoder against its equations, step by step; dropout; what it refuses.

The laws of encoder–decoders are in test_encoder_decoder.py; what it shares with AttentionDecoder is in test_decoder.py.
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import RNNDecoder
from seqkit.interfaces import Embedded
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.mechanism import AttentionMechanism
from seqkit.nn.attention.multi_head import MultiHeadAttention

DIM = 7
ADDITIVE = partial(MultiHeadAttention, mechanism=AdditiveAttention)


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
    for block in decoder.blocks:
        cell = cls(block.cell.input_size, DIM)
        cell.load_state_dict(
            {name.removesuffix("_l0"): weight for name, weight in block.cell.state_dict().items()}
        )
        made.append(cell)
    return made


def bahdanau_attention(attention, query, memory):
    """softmax(v . tanh(W s + U h)) h of one head, an example at a time (Bahdanau et al. 2015, appendix A.1.2)."""
    w, (u, values) = attention.q_proj.weight, attention.kv_proj.weight.chunk(2)
    bias_w, (bias_u, bias_values) = attention.q_proj.bias, attention.kv_proj.bias.chunk(2)
    scores = (
        torch.tanh(w @ query + bias_w + memory @ u.T + bias_u) @ attention.mechanism.score_weight[0]
    )
    return attention.out_proj(scores.softmax(dim=0) @ (memory @ values.T + bias_values))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("name", ["GRU", "LSTM"])
@pytest.mark.parametrize("attention", [None, ADDITIVE], ids=["summary", "attention"])
def test_it_equals_its_equations(name, depth, attention):
    decoder, x = RNNDecoder(DIM, depth, cell=name, attention=attention), pair()
    got = decoder(x)
    layers = cells(decoder, {"GRU": nn.GRUCell, "LSTM": nn.LSTMCell}[name])
    for i in range(2):
        memory = x.memory.hidden[i, x.memory.valid[i]]
        c = torch.tanh(decoder.summary(torch.cat([memory[0], memory[-1]])))
        states = list(torch.tanh(decoder.start(c)).split(DIM))
        cell_states = [torch.zeros(DIM) for _ in states]
        for t in range(int(x.valid[i].sum())):
            attended = (
                c
                if attention is None
                else bahdanau_attention(decoder.attention, states[-1], memory)
            )
            y = x.hidden[i, t]
            out = torch.cat([y, attended])
            for k, cell in enumerate(layers):
                if name == "GRU":
                    states[k] = cell(out, states[k])
                else:
                    states[k], cell_states[k] = cell(out, (states[k], cell_states[k]))
                out = states[k]
            assert_close(got[i, t], torch.tanh(decoder.out(torch.cat([out, attended, y]))))


@pytest.mark.parametrize("depth", [1, 2])  # of one layer it is the output's alone
def test_dropout_acts_while_training(depth):
    decoder, x = RNNDecoder(DIM, depth, dropout=0.5), pair()
    assert not torch.equal(decoder(x), decoder(x))
    decoder.eval()
    assert_close(decoder(x), decoder(x))


class SelfAttentionOnly(AttentionMechanism):
    """Does not support cross-attention."""

    supports = AttentionFeature.CAUSAL

    def __init__(self, num_heads, head_dim):
        super().__init__()

    def forward(self, q, k, v, context, cache=None):
        return v

    def attention_weights(self, q, k, context):
        raise ValueError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 0}, "depth=0"),
        ({"cell": "RNN"}, "'RNN'"),
        (
            {"attention": partial(MultiHeadAttention, mechanism=SelfAttentionOnly)},
            "cross-attention",
        ),
        ({"attention": MultiHeadAttention, "num_heads": 2}, "dim=7.*num_heads=2"),
    ],
)
def test_invalid_arguments_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        RNNDecoder(DIM, **settings)


@pytest.mark.parametrize("attention", [None, ADDITIVE], ids=["summary", "attention"])
@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_an_example_without_targets_leaves_the_others_as_they_are(name, attention):
    decoder = RNNDecoder(DIM, cell=name, attention=attention)
    got = decoder(pair(targets=(3, 0)))
    assert_close(got[0], decoder(pair(targets=(3, 1)))[0])
    assert not got[1].any()
