"""Our EncoderDecoder equals Hugging Face's T5: RMSNorm, no biases, unscaled scores, T5Bias in every layer."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from parity import EmbeddedBackbone, assert_equal, attention, linear, linears, randomized, texts
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration
from whole import assert_same_logits_from_a_source

from seqkit.backbones import EncoderDecoder, Transformer
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.heads import TiedHead, TokenHead
from seqkit.nn.mlp import GatedMLP
from seqkit.nn.position.absolute import NoPosition
from seqkit.nn.position.bias import T5Bias

VOCAB, DIM, INNER, HEADS, BUCKETS, FAR = 29, 21, 34, 3, 8, 11


def theirs(gated, tied):
    config = T5Config(
        vocab_size=VOCAB, d_model=DIM, d_kv=DIM // HEADS, d_ff=INNER, num_layers=2, num_decoder_layers=3,
        num_heads=HEADS, relative_attention_num_buckets=BUCKETS, relative_attention_max_distance=FAR,
        feed_forward_proj="gated-gelu" if gated else "relu", tie_word_embeddings=tied, scale_decoder_outputs=tied,
        attn_implementation="eager",
    )  # fmt: skip
    reference = randomized(T5ForConditionalGeneration(config))
    # their configuration ties the table whatever it is told, so the head gets a parameter of its own
    if not tied:
        reference.lm_head.weight = nn.Parameter(torch.randn(VOCAB, DIM) * DIM**-0.5)
        assert reference.lm_head.weight is not reference.shared.weight
    return reference


class Translator(nn.Module):
    """Our embedder, EncoderDecoder and head; one lookup table embeds both sequences."""

    def __init__(self, gated, tied):
        super().__init__()
        norm = partial(nn.RMSNorm, eps=1e-6)
        mlp = (
            partial(GatedMLP, activation=partial(nn.GELU, approximate="tanh"), width=INNER)
            if gated
            else partial(MLP, activation=nn.ReLU, ratio=INNER / DIM, bias=False)
        )

        def stack(depth, causal):
            attention = partial(
                MultiHeadAttention,
                mechanism=partial(ScaledDotProductAttention, temperature=1.0),
                bias=False,
            )
            block = partial(
                PreNormBlock, attention=attention, mlp=mlp, norm=norm, cross_attention=causal
            )
            position = T5Bias(HEADS, num_buckets=BUCKETS, max_distance=FAR, causal=causal)
            return Transformer(
                DIM,
                depth,
                num_heads=HEADS,
                causal=causal,
                block=block,
                norm=norm,
                position=position,
            )

        self.spec = TokenSpec(vocab_size=VOCAB)
        self.model = EmbeddedBackbone(
            self.spec, EncoderDecoder(stack(2, False), stack(3, True)), NoPosition
        )
        # with table entries of about 1 the logits are divided by sqrt(d), as in T5
        table = self.model.embedder.content
        self.head = TiedHead(table, scale=DIM**-0.5) if tied else TokenHead(DIM, VOCAB, bias=False)
        self.eval()

    def forward(self, batch, cache=None):
        embed = self.model.embedder
        source = None if batch.source is None else embed(batch.source)
        embedded = replace(embed(batch), source=source)
        return self.head(self.model.backbone(embedded, cache), embedded)


def weights(theirs, gated, tied):
    """Their weights under our names."""
    table = theirs.shared.weight
    mapped = {"model.embedder.content.weight": table}
    mapped |= {"head.table.weight": table} if tied else linear(theirs.lm_head, "head.linear")
    for side, stack in (("encoder", theirs.encoder), ("decoder", theirs.decoder)):
        backbone = f"model.backbone.{side}"
        # the table of the first layer serves all, theirs as ours
        first = stack.block[0].layer[0].SelfAttention.relative_attention_bias
        mapped |= {f"{backbone}.positions.0.table": first.weight} | linear(
            stack.final_layer_norm, f"{backbone}.norm"
        )
        for i, block in enumerate(stack.block):
            name, (self_attention, *cross_attention, feed_forward) = (
                f"{backbone}.blocks.{i}",
                block.layer,
            )
            mapped |= t5_attention(self_attention.SelfAttention, f"{name}.attention")
            mapped |= linear(self_attention.layer_norm, f"{name}.attention_norm") | linear(
                feed_forward.layer_norm, f"{name}.mlp_norm"
            )
            for layer in cross_attention:
                mapped |= t5_attention(layer.EncDecAttention, f"{name}.cross_attention")
                mapped |= linear(layer.layer_norm, f"{name}.cross_norm")
            mlp = feed_forward.DenseReluDense
            mapped |= linears(
                [mlp.wi_0, mlp.wi_1] if gated else [mlp.wi],
                f"{name}.mlp.gate_up_proj" if gated else f"{name}.mlp.up_proj",
            )
            mapped |= linear(mlp.wo, f"{name}.mlp.down_proj")
    return mapped


def t5_attention(theirs, name):
    return attention(theirs.q, theirs.k, theirs.v, theirs.o, name)


@pytest.fixture(params=[(False, True), (True, False)], ids=["relu, tied", "gated, untied"])
def pair(request):
    reference, ours = theirs(*request.param), Translator(*request.param)
    ours.load_state_dict(weights(reference, *request.param))
    return reference, ours


@pytest.mark.parametrize(
    ("source_lengths", "target_lengths"), [([17, 17], [13, 13]), ([19, 5, 11], [7, 17, 3])]
)
def test_logits_of_t5(pair, source_lengths, target_lengths):
    reference, ours = pair
    assert_same_logits_from_a_source(ours, reference, source_lengths, target_lengths)


def test_cached_greedy_decoding_step_by_step(pair):
    reference, ours = pair
    source = texts([19, 5, 11], VOCAB)
    with torch.no_grad():
        encoded = reference.encoder(input_ids=source.content, attention_mask=source.valid.long())
        cache, past = ours.model.backbone.init_cache(17), None
        batch = replace(texts([1, 1, 1], VOCAB), source=source)
        while cache.num_tokens < 17:
            step = reference(
                encoder_outputs=encoded, attention_mask=source.valid.long(), decoder_input_ids=batch.content,
                past_key_values=past, use_cache=True,
            )  # fmt: skip
            past, right = step.past_key_values, step.logits
            got = ours(batch, cache)
            assert_equal(got, right)
            best = right.argmax(dim=-1)
            assert torch.equal(got.argmax(dim=-1), best)
            batch = TokenBatch(best, batch.positions + 1, batch.valid)
