"""Our EncoderDecoder equals Hugging Face's Whisper: two convolutions on log-mel frames, pre-norm, cross-attention.

b examples · n tokens of the encoder · f mel bands · d width
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from parity import assert_equal, attention, linear, randomized, texts
from torch import nn
from transformers import WhisperConfig, WhisperForConditionalGeneration
from whole import assert_every_value_is_mapped, assert_same_generation, encoder_decoder, scattered

from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.nn.heads import TiedHead
from seqkit.nn.position.absolute import Learned

VOCAB, CONTEXT, DIM, MELS = 29, 41, 24, 7


class Stem(nn.Module):
    """Whisper's convolutions. The second halves the rate, so a token is two frames: [b n (2 f)] to [b n d]."""

    def __init__(self, dim):
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, dim, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(dim, dim, kernel_size=3, stride=2, padding=1)

    def forward(self, x):
        frames = rearrange(x, "b n (two f) -> b f (n two)", two=2)
        return rearrange(F.gelu(self.conv2(F.gelu(self.conv1(frames)))), "b d n -> b n d")


def theirs(std=0.1):
    config = WhisperConfig(
        vocab_size=VOCAB, num_mel_bins=MELS, d_model=DIM, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=3, encoder_ffn_dim=36, decoder_ffn_dim=48, max_source_positions=CONTEXT,
        max_target_positions=CONTEXT, decoder_start_token_id=VOCAB - 2, pad_token_id=0, bos_token_id=0, eos_token_id=0,
        attn_implementation="eager",
    )  # fmt: skip
    return randomized(WhisperForConditionalGeneration(config), std)


def whisper_attention(theirs, name):
    key = nn.Linear(DIM, DIM)
    # theirs has no bias
    key.weight, key.bias = theirs.k_proj.weight, nn.Parameter(torch.zeros(DIM))
    return attention(theirs.q_proj, key, theirs.v_proj, theirs.out_proj, name)


def weights(theirs):
    """Their weights under our names."""
    encoder, decoder = theirs.model.encoder, theirs.model.decoder
    mapped = {
        f"{name}.weight": decoder.embed_tokens.weight for name in ("embedder.content", "head.table")
    }
    mapped |= linear(encoder.conv1, "source_embedder.content.conv1")
    mapped |= linear(encoder.conv2, "source_embedder.content.conv2")
    for embedder, side, stack in (
        ("source_embedder", "backbone.encoder", encoder),
        ("embedder", "backbone.decoder", decoder),
    ):
        mapped[f"{embedder}.position.tables.0"] = stack.embed_positions.weight
        mapped |= linear(stack.layer_norm, f"{side}.norm")
        for i, layer in enumerate(stack.layers):
            name = f"{side}.blocks.{i}"
            mapped |= whisper_attention(layer.self_attn, f"{name}.attention")
            mapped |= linear(layer.self_attn_layer_norm, f"{name}.attention_norm")
            if stack is decoder:
                mapped |= whisper_attention(layer.encoder_attn, f"{name}.cross_attention")
                mapped |= linear(layer.encoder_attn_layer_norm, f"{name}.cross_norm")
            mapped |= linear(layer.fc1, f"{name}.mlp.up_proj") | linear(
                layer.fc2, f"{name}.mlp.down_proj"
            )
            mapped |= linear(layer.final_layer_norm, f"{name}.mlp_norm")
    return mapped


def pair(std=0.1, generating=False):
    reference = theirs(std)
    if generating:
        scattered(reference.model.decoder.layer_norm)
        nn.init.normal_(reference.model.decoder.embed_positions.weight, std=4.0)
    model = encoder_decoder(
        "Whisper",
        TokenSpec(num_features=2 * MELS, embedder=Stem),
        VOCAB,
        head=lambda embedder: TiedHead(embedder.table),
        position=partial(Learned, sizes=[CONTEXT]),
    )
    model.load_state_dict(weights(reference))
    return reference, model


def recordings(count):
    """Log-mel frames as theirs takes them, [b f frames], and as our tokens. All are as long as it takes them."""
    frames = torch.randn(count, MELS, 2 * CONTEXT)
    index = rearrange(torch.arange(float(CONTEXT)), "n -> n 1")
    tokens = rearrange(frames, "b f (n two) -> b n (two f)", two=2)
    return frames, TokenBatch.collate([Tokens(content, index) for content in tokens])


@pytest.mark.parametrize("lengths", [[13, 13], [7, 17, 3]])
def test_logits_of_whisper(lengths):
    reference, model = pair()
    num_attentions = len(reference.model.encoder.layers) + 2 * len(reference.model.decoder.layers)
    assert_every_value_is_mapped(model, reference, added=[torch.zeros(num_attentions * DIM)])
    frames, source = recordings(len(lengths))
    batch = replace(texts(lengths, VOCAB), source=source)
    with torch.no_grad():
        right = reference(
            frames, decoder_input_ids=batch.content, decoder_attention_mask=batch.valid.long()
        ).logits
        assert_equal(model(batch), right, batch.valid)


def test_generation_of_whisper():
    reference, model = pair(std=0.2, generating=True)
    frames, source = recordings(3)
    prompts = [torch.tensor([VOCAB - 2, *ids]) for ids in ([], [3, 1, 4], [1, 5])]
    inputs = [{"input_features": one[None]} for one in frames]
    assert_same_generation(model, reference, prompts, source=source, inputs=inputs)
