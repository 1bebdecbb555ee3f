"""Any causal backbone as a decoder: Luong's equation, the laws of encoder–decoders, what is refused.

The laws and the faults that they notice are in test_encoder_decoder.py; what it shares with RNNDecoder is in
test_decoder.py.
"""

import inspect
from functools import partial

import pytest
import torch
from backbones.test_encoder_decoder import DIM, FAULTS, EmbeddedPair
from torch.testing import assert_close

from seqkit.backbones import (
    GIN,
    GRU,
    LSTM,
    TCN,
    AttentionDecoder,
    EncoderDecoder,
    MeanPool,
    Reversible,
    Transformer,
)
from seqkit.config import builder, complete
from seqkit.interfaces import Embedded
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.linear import LinearAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary


def mechanism(cls):
    return partial(MultiHeadAttention, mechanism=cls)


@pytest.mark.parametrize("check_law", FAULTS, ids=lambda law: law.__name__)
def test_every_registered_backbone_keeps_the_law_as_a_decoder(check_law, build):
    heads = {"num_heads": 3} if "num_heads" in inspect.signature(build).parameters else {}
    backbone = build(DIM, causal=True, **heads)
    pair = EmbeddedPair(EncoderDecoder(GRU(DIM, 1), AttentionDecoder(backbone)))
    if isinstance(backbone, Reversible) and check_law.__name__ in WITH_CACHE:
        with pytest.raises(ValueError, match="Reversible has no cache"):
            check_law(pair)
        return
    check_law(pair)


WITH_CACHE = ("step_by_step_equals_at_once", "a_reordered_cache_continues_the_chosen_examples")
PAIRS = {
    "TCN + TCN": lambda: (TCN(DIM, 2), TCN(DIM, 2, causal=True), {}),
    "LSTM + LSTM, additive, 3 heads": lambda: (
        LSTM(DIM, 1), LSTM(DIM, 2, causal=True), {"attention": mechanism(AdditiveAttention), "num_heads": 3}
    ),
    "Transformer + GRU, linear": lambda: (
        Transformer(DIM, 1, num_heads=3), GRU(DIM, 1, causal=True), {"attention": mechanism(LinearAttention)}
    ),
    "MeanPool + rotary Transformer": lambda: (
        MeanPool(DIM), Transformer(DIM, 2, num_heads=3, causal=True, position=Rotary()), {"num_heads": 2}
    ),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("check_law", FAULTS, ids=lambda law: law.__name__)
def test_a_pair_keeps_the_law(check_law, pair):
    encoder, inner, settings = PAIRS[pair]()
    check_law(EmbeddedPair(EncoderDecoder(encoder, AttentionDecoder(inner, **settings))))


def embedded(lengths, memory=None):
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, DIM).masked_fill(~valid[..., None], 0.0)
    return Embedded(hidden, torch.zeros(len(lengths), n, 1), valid, memory=memory)


def test_it_equals_luongs_equations():
    """c_t = softmax(s_t W_q (h W_k)^T / sqrt(d)) h W_v W_o; out_t = tanh(W [c_t, s_t]), an example at a time."""
    decoder = AttentionDecoder(GRU(DIM, 1, causal=True, residual=False))
    x = embedded((3, 5), embedded((5, 2)))
    got, attention = decoder(x), decoder.attention
    w_q, b_q = attention.q_proj.weight, attention.q_proj.bias
    (w_k, w_v), (b_k, b_v) = attention.kv_proj.weight.chunk(2), attention.kv_proj.bias.chunk(2)
    for i, n in enumerate((3, 5)):
        states, _ = decoder.backbone.blocks[0].cell(x.hidden[i, :n])
        h = x.memory.hidden[i, x.memory.valid[i]]
        for t in range(n):
            scores = (w_q @ states[t] + b_q) @ (h @ w_k.T + b_k).T / DIM**0.5
            c = attention.out_proj(scores.softmax(dim=0) @ (h @ w_v.T + b_v))
            assert_close(got[i, t], torch.tanh(decoder.out(torch.cat([c, states[t]]))))


def test_it_can_be_written_in_a_recipe():
    inner = {"type": "GRU", "dim": 8, "depth": 1, "causal": True}
    overrides = {
        "model.backbone.encoder": {"type": "TCN", "dim": 8, "depth": 2},
        "model.backbone.decoder": {"type": "AttentionDecoder", "backbone": inner, "num_heads": 2},
    }
    config = complete("text/translate", "debug", overrides)
    backbone = builder.build({"model": config["model"]}).model["backbone"]
    assert isinstance(backbone.decoder, AttentionDecoder)
    assert isinstance(backbone.decoder.backbone, GRU)
    assert (backbone.dim, backbone.decoder.attention.num_heads) == (8, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AttentionDecoder(GRU(DIM)), "GRU.* causal"),
        (lambda: AttentionDecoder(GIN(DIM)), "GIN.* causal"),
        (
            lambda: AttentionDecoder(
                Transformer(
                    DIM,
                    1,
                    num_heads=3,
                    causal=True,
                    block=partial(PreNormBlock, cross_attention=True),
                )
            ),
            "Transformer.* without cross-attention",
        ),
        (lambda: AttentionDecoder(GRU(DIM, causal=True), num_heads=5), "dim=12.*num_heads=5"),
    ],
)
def test_invalid_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
