"""Our Transformer equals Hugging Face's GPT-2: causal, pre-norm, tanh-approximated GELU, learned positions."""

from functools import partial

import pytest
import torch
from parity import EmbeddedBackbone, assert_equal, linear, randomized, texts, transposed
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.heads import TiedHead
from seqkit.nn.position.absolute import Learned

VOCAB, CONTEXT, DIM, DEPTH, HEADS = 29, 23, 21, 3, 3


def theirs():
    config = GPT2Config(
        vocab_size=VOCAB, n_positions=CONTEXT, n_embd=DIM, n_layer=DEPTH, n_head=HEADS, bos_token_id=0, eos_token_id=0,
        attn_implementation="eager",
    )  # fmt: skip
    return randomized(GPT2LMHeadModel(config))


def ours(approximate="tanh"):
    block = partial(
        PreNormBlock, mlp=partial(MLP, activation=partial(nn.GELU, approximate=approximate))
    )
    backbone = Transformer(DIM, DEPTH, num_heads=HEADS, causal=True, block=block)
    return EmbeddedBackbone(
        TokenSpec(vocab_size=VOCAB), backbone, partial(Learned, sizes=[CONTEXT])
    )


def weights(theirs):
    """Their weights under our names."""
    mapped = {
        "embedder.content.weight": theirs.wte.weight,
        "embedder.position.tables.0": theirs.wpe.weight,
    }
    for i, block in enumerate(theirs.h):
        name = f"backbone.blocks.{i}"
        mapped |= linear(block.ln_1, f"{name}.attention_norm") | linear(
            block.ln_2, f"{name}.mlp_norm"
        )
        mapped |= transposed(block.attn.c_attn, f"{name}.attention.qkv_proj")
        mapped |= transposed(block.attn.c_proj, f"{name}.attention.out_proj")
        mapped |= transposed(block.mlp.c_fc, f"{name}.mlp.up_proj") | transposed(
            block.mlp.c_proj, f"{name}.mlp.down_proj"
        )
    return mapped | linear(theirs.ln_f, "backbone.norm")


@pytest.fixture
def pair():
    reference, model = theirs(), ours()
    model.load_state_dict(weights(reference.transformer))
    return reference, model, TiedHead(model.embedder.content)


@pytest.mark.parametrize("lengths", [[13, 13], [11, 19, 5]])
def test_logits_of_gpt2(pair, lengths):
    reference, model, head = pair
    batch = texts(lengths, VOCAB)
    with torch.no_grad():
        right = reference(batch.content, attention_mask=batch.valid.long()).logits
        assert_equal(head(model(batch), batch.valid), right, batch.valid)


def test_the_comparison_notices_the_other_gelu(pair):
    reference, _, _ = pair
    other = ours(approximate="none")
    other.load_state_dict(weights(reference.transformer))
    batch = texts([13, 13], VOCAB)
    with torch.no_grad(), pytest.raises(AssertionError, match="not close"):
        assert_equal(other(batch), reference.transformer(batch.content).last_hidden_state)


def test_cached_greedy_decoding_step_by_step(pair):
    reference, model, head = pair
    batch, cache, past = texts([7, 7, 7], VOCAB), model.backbone.init_cache(CONTEXT), None
    positions = batch.positions
    with torch.no_grad():
        while cache.num_tokens < CONTEXT:
            step = reference(batch.content, past_key_values=past, use_cache=True)
            past, right = step.past_key_values, step.logits[:, -1]
            got = head(model(batch, cache), batch.valid)[:, -1]
            assert_equal(got, right)
            best = right.argmax(dim=-1, keepdim=True)
            assert torch.equal(got.argmax(dim=-1, keepdim=True), best)
            positions = positions[:, -1:] + 1
            batch = TokenBatch(best, positions, torch.ones_like(best, dtype=torch.bool))
    assert past.get_seq_length() == CONTEXT
