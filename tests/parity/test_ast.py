"""Our Transformer equals Hugging Face's AST: ViT over overlapping patches of a spectrogram, after two learned tokens.

f mel bands · t frames · n patches
"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from families import family
from parity import EmbeddedBackbone, assert_equal, randomized
from test_deit import weights
from transformers import ASTConfig, ASTModel
from vision import spec, with_tokens_before
from whole import assert_every_value_is_mapped

from seqkit.interfaces import TokenBatch, Tokens
from seqkit.nn.position.absolute import Learned

DIM, PATCH, STRIDES, BANDS, FRAMES = 21, 5, (3, 2), 17, 23
NUM_TOKENS = 2 + 5 * 10


@pytest.fixture
def pair():
    config = ASTConfig(
        hidden_size=DIM, num_hidden_layers=3, num_attention_heads=3, intermediate_size=63, patch_size=PATCH,
        frequency_stride=STRIDES[0], time_stride=STRIDES[1], max_length=FRAMES, num_mel_bins=BANDS,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = randomized(ASTModel(config))
    ours = EmbeddedBackbone(spec(PATCH**2, 2), family("AST"), partial(Learned, sizes=[NUM_TOKENS]))
    ours.load_state_dict(weights(theirs.state_dict()))
    return theirs, ours


def tokens(spectrogram):
    """Overlapping patches of a spectrogram [t f], band by band, and the two tokens before them."""
    bands = rearrange(spectrogram, "t f -> 1 1 f t")
    patches = rearrange(F.unfold(bands, PATCH, stride=STRIDES), "1 pixels n -> n pixels")
    content = with_tokens_before(patches, 2)
    return Tokens(content, rearrange(torch.arange(float(len(content))), "n -> n 1"))


def test_hidden_states_of_ast(pair):
    theirs, ours = pair
    assert_every_value_is_mapped(ours, theirs)
    spectrograms = torch.randn(2, FRAMES, BANDS)
    with torch.no_grad():
        hidden, right = ours(TokenBatch.collate([tokens(x) for x in spectrograms])), theirs(spectrograms)
        assert_equal(hidden, right.last_hidden_state)
        assert_equal(hidden[:, :2].mean(dim=1), right.pooler_output)
