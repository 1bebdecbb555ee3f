"""Our Transformer equals Hugging Face's CLIP: its causal text encoder, and its image encoder with normed embeddings."""

from functools import partial

import pytest
import torch
from einops import rearrange
from families import family
from parity import EmbeddedBackbone, assert_equal, randomized, texts
from transformers import CLIPTextConfig, CLIPTextModel, CLIPVisionConfig, CLIPVisionModel
from vision import first_layer, image_batch, spec, vit_layer
from weights import take
from whole import PADDED_OR_NOT, assert_every_value_is_mapped

from seqkit.interfaces import TokenSpec
from seqkit.nn.position.absolute import Learned

VOCAB, CONTEXT, DIM, DEPTH, PATCH, SIDE = 29, 23, 21, 3, 5, 15
NUM_TOKENS = 1 + (SIDE // PATCH) ** 2
SIZES = {
    "hidden_size": DIM, "intermediate_size": 63, "num_hidden_layers": DEPTH, "num_attention_heads": 3,
    "attn_implementation": "eager",
}  # fmt: skip


def layers(theirs):
    """The layers of either encoder, under our names."""
    mapped = {}
    for i in range(DEPTH):
        names = {
            "attention": "self_attn",
            "out": "out_proj",
            "norms": ("layer_norm1", "layer_norm2"),
        }
        mapped |= vit_layer(theirs, f"encoder.layers.{i}", f"backbone.blocks.{i}", **names)
    return mapped


@pytest.fixture
def text_pair():
    config = CLIPTextConfig(
        vocab_size=VOCAB, max_position_embeddings=CONTEXT, eos_token_id=VOCAB - 1, **SIZES
    )
    theirs = randomized(CLIPTextModel(config), std=0.2)
    ours = EmbeddedBackbone(
        TokenSpec(vocab_size=VOCAB), family("CLIP"), partial(Learned, sizes=[CONTEXT])
    )
    left = theirs.state_dict()
    mapped = take(left, ["embeddings.token_embedding"], "embedder.content")
    mapped["embedder.position.tables.0"] = left.pop("embeddings.position_embedding.weight")
    ours.load_state_dict(mapped | layers(left) | take(left, ["final_layer_norm"], "backbone.norm"))
    assert not left, f"not mapped: {sorted(left)}"
    return theirs, ours


@pytest.fixture
def vision_pair():
    theirs = randomized(
        CLIPVisionModel(CLIPVisionConfig(image_size=SIDE, patch_size=PATCH, **SIZES)), std=0.2
    )
    backbone = family("CLIP", {"causal": False, "input_norm": "LayerNorm"})
    position = partial(Learned, sizes=[NUM_TOKENS])
    ours = EmbeddedBackbone(spec(3 * PATCH**2, 1), backbone, position)
    left = theirs.state_dict()
    kernel = left.pop("embeddings.patch_embedding.weight")
    mapped = first_layer(
        kernel, before=[rearrange(left.pop("embeddings.class_embedding"), "d -> 1 d")]
    )
    mapped["embedder.position.tables.0"] = left.pop("embeddings.position_embedding.weight")
    mapped |= layers(left) | take(left, ["pre_layrnorm"], "backbone.input_norm")
    ours.load_state_dict(mapped | take(left, ["post_layernorm"], "backbone.norm"))
    assert not left, f"not mapped: {sorted(left)}"
    return theirs, ours


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_hidden_states_of_clips_text_encoder(text_pair, lengths):
    theirs, ours = text_pair
    batch = texts(lengths, VOCAB)
    with torch.no_grad():
        right = theirs(batch.content, attention_mask=batch.valid.long()).last_hidden_state
        assert_equal(ours(batch), right, batch.valid)


def test_hidden_states_of_clips_image_encoder(vision_pair):
    theirs, ours = vision_pair
    images = torch.rand(2, 3, SIDE, SIDE)
    with torch.no_grad():
        hidden, right = ours(image_batch(images, PATCH, 1)), theirs(images)
        assert_equal(hidden, theirs.post_layernorm(right.last_hidden_state))
        assert_equal(hidden[:, 0], right.pooler_output)


@pytest.mark.parametrize("encoder", ["text_pair", "vision_pair"])
def test_every_value_of_clip_is_mapped(encoder, request):
    theirs, ours = request.getfixturevalue(encoder)
    # theirs have no bias
    patches = [ours.embedder.content.projection.bias] if encoder == "vision_pair" else []
    assert_every_value_is_mapped(ours, theirs, added=patches)
