"""Blocks that are computed again give the same gradients to the bit, and take less memory."""

from functools import partial

import pytest
import torch

from seqkit.analysis.peak_memory import peak_bytes
from seqkit.backbones import (
    GRU,
    LSTM,
    TCN,
    AttentionDecoder,
    EncoderDecoder,
    Mamba,
    MeanPool,
    Transformer,
)
from seqkit.backbones.reversible import Reversible
from seqkit.errors import UsageError
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.block import PreNormBlock
from seqkit.nn.moe import MixtureOfExperts
from seqkit.objectives import NextToken
from seqkit.registry import components
from seqkit.training.recompute import activation_checkpointing, blocks_of

MIXERS = [mixer.load() for mixer in components("mixer").values()]
BACKBONES = {
    "Transformer": lambda: Transformer(12, 3, num_heads=2, causal=True, dropout=0.3),
    "experts": lambda: Transformer(
        12,
        2,
        num_heads=2,
        causal=True,
        block=partial(PreNormBlock, mlp=partial(MixtureOfExperts, num_experts=3)),
    ),
    "repeats": lambda: Transformer(12, 4, num_heads=2, causal=True, dropout=0.3, repeats=2),
    "TCN": lambda: TCN(12, 2, causal=True, dropout=0.3),
    "Mamba": lambda: Mamba(12, 2, causal=True),
    "LSTM": lambda: LSTM(12, 3, causal=True, dropout=0.3),
    "mixers": lambda: Transformer(12, len(MIXERS), num_heads=2, causal=True, mixer=MIXERS),
}


def model_and_input(backbone, num_tokens=(5, 11), vocab_size=7):
    torch.manual_seed(0)
    model = Model(TokenSpec(vocab_size=vocab_size), backbone, NextToken())
    tokens = [
        Tokens(torch.randint(vocab_size, (n,)), torch.arange(float(n))[:, None]) for n in num_tokens
    ]
    return model, NextToken().prepare(TokenBatch.collate(tokens), None)


def gradients(model, inputs):
    """Of the loss, and of the auxiliary losses of what has one."""
    torch.manual_seed(1)
    model.zero_grad()
    loss = NextToken().loss(model(inputs.batch, inputs.masked), inputs.target).loss
    loss = loss + sum(m.aux_loss() for m in model.modules() if isinstance(m, MixtureOfExperts))
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("name", BACKBONES)
def test_gradients_are_equal_to_the_bit_with_dropout_and_with_experts(name):
    model, inputs = model_and_input(BACKBONES[name]())
    kept = gradients(model, inputs)
    with activation_checkpointing(model):
        recomputed = gradients(model, inputs)
    assert kept.keys() == recomputed.keys()
    assert all(torch.equal(kept[one], recomputed[one]) for one in kept)


def test_each_block_is_computed_twice_a_step_and_once_after_the_context():
    model, inputs = model_and_input(BACKBONES["Transformer"]())
    calls = []
    for block in blocks_of(model):
        block.attention_norm.register_forward_hook(lambda *_: calls.append(1))
    with activation_checkpointing(model):
        gradients(model, inputs)
    assert len(calls) == 2 * 3
    gradients(model, inputs)
    assert len(calls) == 3 * 3


def test_a_deep_transformer_takes_less_than_half_of_the_memory():
    model, inputs = model_and_input(
        Transformer(24, 12, num_heads=2, causal=True), num_tokens=(61, 61, 61)
    )

    def step():
        NextToken().loss(model(inputs.batch, inputs.masked), inputs.target).loss.backward()
        model.zero_grad()

    kept = peak_bytes(step, model.parameters())
    with activation_checkpointing(model):
        assert peak_bytes(step, model.parameters()) < kept / 2


def test_blocks_are_those_of_encoder_and_decoder():
    decoder = Transformer(
        12, 3, num_heads=2, causal=True, block=partial(PreNormBlock, cross_attention=True)
    )
    assert len(blocks_of(EncoderDecoder(Transformer(12, 2, num_heads=2), decoder))) == 5
    assert (
        len(blocks_of(EncoderDecoder(GRU(12, 2), AttentionDecoder(TCN(12, 3, causal=True))))) == 5
    )


@pytest.mark.parametrize(
    ("backbone", "why"),
    [
        (lambda: MeanPool(12, causal=True), "MeanPool"),
        (lambda: Reversible(12, 2, num_heads=2, causal=True), "Reversible"),
    ],
)
def test_what_has_no_blocks_or_does_it_itself_is_refused(backbone, why):
    model, _ = model_and_input(backbone())
    with pytest.raises(UsageError, match=why), activation_checkpointing(model):
        pass
