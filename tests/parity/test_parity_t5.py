"""T5 of Hugging Face is a Seq2Seq of ours: RMSNorm, no biases, unscaled scores, bucketed distances in every layer."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from parity import Reader, assert_equal, linear, linears, shaken, texts
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

from seqkit.backbones import Seq2Seq, Transformer
from seqkit.contract import TokenBatch, TokenSpec
from seqkit.heads import PerToken, Tied
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.distance import T5Bias
from seqkit.layers.mechanism import ScaledDotProduct
from seqkit.layers.mlp import MLP, GatedMLP
from seqkit.layers.position import NoPosition

VOCAB, DIM, INNER, HEADS, BUCKETS, FAR = 29, 21, 34, 3, 8, 11


def theirs(gated, tied):
    config = T5Config(
        vocab_size=VOCAB, d_model=DIM, d_kv=DIM // HEADS, d_ff=INNER, num_layers=2, num_decoder_layers=3,
        num_heads=HEADS, relative_attention_num_buckets=BUCKETS, relative_attention_max_distance=FAR,
        feed_forward_proj="gated-gelu" if gated else "relu", tie_word_embeddings=tied, scale_decoder_outputs=tied,
        attn_implementation="eager",
    )  # fmt: skip
    source = shaken(T5ForConditionalGeneration(config))
    with torch.no_grad():
        if not tied:
            source.lm_head.weight.mul_(DIM**-0.5)  # it starts at 1, which makes scores of about 5: so of about 1
    return source


class Translator(nn.Module):
    """Embedder, Seq2Seq and head of ours; one table embeds both sequences."""

    def __init__(self, gated, tied):
        super().__init__()
        norm = partial(nn.RMSNorm, eps=1e-6)
        mlp = (
            partial(GatedMLP, activation=partial(nn.GELU, approximate="tanh"), width=INNER)
            if gated
            else partial(MLP, activation=nn.ReLU, ratio=INNER / DIM, bias=False)
        )

        def stack(depth, causal):
            attention = partial(Attention, mechanism=partial(ScaledDotProduct, temperature=1.0), bias=False)
            block = partial(Block, attention=attention, mlp=mlp, norm=norm, cross=causal)
            position = T5Bias(HEADS, num_buckets=BUCKETS, max_distance=FAR, causal=causal)
            return Transformer(DIM, depth, num_heads=HEADS, causal=causal, block=block, norm=norm, position=position)

        self.reader = Reader(TokenSpec(vocab_size=VOCAB), Seq2Seq(stack(2, False), stack(3, True)), NoPosition)
        # a table whose entries are about 1 has its scores divided by sqrt(d), as in T5
        self.head = Tied(self.reader.embedder.content, std=1.0) if tied else PerToken(DIM, VOCAB, bias=False)
        self.eval()

    def forward(self, batch, cache=None):
        embed = self.reader.embedder
        memory = None if batch.memory is None else embed(batch.memory)
        hidden = self.reader.backbone(replace(embed(batch), memory=memory), cache)
        return self.head(hidden, batch.valid)


def weights(theirs, gated, tied):
    """Their weights under our names."""
    table = theirs.shared.weight
    mapped = {"reader.embedder.content.weight": table}
    mapped |= {"head.table.weight": table} if tied else linear(theirs.lm_head, "head.linear")
    for side, stack in (("encoder", theirs.encoder), ("decoder", theirs.decoder)):
        backbone = f"reader.backbone.{side}"
        # the table of the first layer serves all, theirs as ours
        first = stack.block[0].layer[0].SelfAttention.relative_attention_bias
        mapped |= {f"{backbone}.position.table": first.weight} | linear(stack.final_layer_norm, f"{backbone}.norm")
        for i, block in enumerate(stack.block):
            name, (own, *cross, think) = f"{backbone}.blocks.{i}", block.layer
            mapped |= attention(own.SelfAttention, f"{name}.attention")
            mapped |= linear(own.layer_norm, f"{name}.attention_norm") | linear(think.layer_norm, f"{name}.mlp_norm")
            for layer in cross:
                mapped |= attention(layer.EncDecAttention, f"{name}.cross")
                mapped |= linear(layer.layer_norm, f"{name}.cross_norm")
            mlp = think.DenseReluDense
            mapped |= linears([mlp.wi_0, mlp.wi_1] if gated else [mlp.wi], f"{name}.mlp.widen")
            mapped |= linear(mlp.wo, f"{name}.mlp.out")
    return mapped


def attention(theirs, name):
    return linears([theirs.q, theirs.k, theirs.v], f"{name}.qkv") | linear(theirs.o, f"{name}.out")


@pytest.fixture(params=[(False, True), (True, False)], ids=["relu, tied", "gated, untied"])
def pair(request):
    source, ours = theirs(*request.param), Translator(*request.param)
    ours.load_state_dict(weights(source, *request.param))
    return source, ours


@pytest.mark.parametrize(("read", "written"), [([17, 17], [13, 13]), ([19, 5, 11], [7, 17, 3])])
def test_scores_of_t5(pair, read, written):
    source, ours = pair
    batch = replace(texts(written, VOCAB), memory=texts(read, VOCAB))
    with torch.no_grad():
        right = source(
            input_ids=batch.memory.content,
            attention_mask=batch.memory.valid.long(),
            decoder_input_ids=batch.content,
            decoder_attention_mask=batch.valid.long(),
        ).logits
        assert_equal(ours(batch), right, batch.valid)


def test_cached_greedy_decoding_step_by_step(pair):
    source, ours = pair
    memory = texts([19, 5, 11], VOCAB)
    with torch.no_grad():
        encoded = source.encoder(input_ids=memory.content, attention_mask=memory.valid.long())
        cache, past = ours.reader.backbone.init_cache(17), None
        batch = replace(texts([1, 1, 1], VOCAB), memory=memory)
        while cache.num_tokens < 17:
            step = source(
                encoder_outputs=encoded, attention_mask=memory.valid.long(), decoder_input_ids=batch.content,
                past_key_values=past, use_cache=True,
            )  # fmt: skip
            past, right = step.past_key_values, step.logits
            got = ours(batch, cache)
            assert_equal(got, right)
            best = right.argmax(dim=-1)
            assert torch.equal(got.argmax(dim=-1), best)
            batch = TokenBatch(best, batch.positions + 1, batch.valid)
