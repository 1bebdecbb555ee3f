"""Our Transformer equals Hugging Face's ALBERT: one block for all layers, embeddings narrower than they are."""

from functools import partial

import pytest
import torch
from families import settings
from parity import EmbeddedBackbone, assert_equal, randomized, texts
from transformers import AlbertConfig, AlbertModel
from weights import take
from whole import PADDED_OR_NOT, assert_every_value_is_mapped

from seqkit.interfaces import TokenSpec
from seqkit.nn.embedder import Embedder
from seqkit.nn.position.absolute import Learned

VOCAB, CONTEXT, DIM, EMBEDDING_DIM, DEPTH = 29, 23, 21, 14, 3
SPEC = TokenSpec(vocab_size=VOCAB, num_axes=2)
POSITION = partial(Learned, sizes=[CONTEXT, 2])
LAYER = "encoder.albert_layer_groups.0.albert_layers.0"


@pytest.fixture
def pair():
    config = AlbertConfig(
        vocab_size=VOCAB, embedding_size=EMBEDDING_DIM, max_position_embeddings=CONTEXT, hidden_size=DIM,
        intermediate_size=63, num_hidden_layers=DEPTH, num_attention_heads=3, attn_implementation="eager",
    )  # fmt: skip
    theirs = randomized(AlbertModel(config, add_pooling_layer=False))
    lines = settings("ALBERT")
    ours = EmbeddedBackbone(SPEC, lines["backbone"], POSITION)
    ours.embedder = Embedder(SPEC, DIM, position=POSITION, embedding=lines["embedding"])
    ours.load_state_dict(weights(theirs.state_dict()))
    return theirs, ours.eval()


def weights(theirs):
    """Their weights under our names."""
    left = dict(theirs)
    mapped = take(left, ["embeddings.word_embeddings"], "embedder.content")
    mapped["embedder.position.tables.0"] = left.pop("embeddings.position_embeddings.weight")
    mapped["embedder.position.tables.1"] = left.pop("embeddings.token_type_embeddings.weight")
    mapped |= take(left, ["embeddings.LayerNorm"], "embedder.norm")
    mapped |= take(left, ["encoder.embedding_hidden_mapping_in"], "embedder.projection")
    names = {
        "attention.out_proj": "attention.dense",
        "attention_norm": "attention.LayerNorm",
        "mlp.up_proj": "ffn",
    }
    names |= {"mlp.down_proj": "ffn_output", "mlp_norm": "full_layer_layer_norm"}
    block = take(
        left, [f"{LAYER}.attention.{x}" for x in ("query", "key", "value")], "attention.qkv_proj"
    )
    for ours, name in names.items():
        block |= take(left, [f"{LAYER}.{name}"], ours)
    assert not left, f"not mapped: {sorted(left)}"
    return mapped | {
        f"backbone.blocks.{i}.{name}": x for i in range(DEPTH) for name, x in block.items()
    }


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_hidden_states_of_albert(pair, lengths):
    theirs, ours = pair
    assert_every_value_is_mapped(ours, theirs)
    batch = texts(lengths, VOCAB, num_axes=2)
    with torch.no_grad():
        right = theirs(
            batch.content,
            attention_mask=batch.valid.long(),
            token_type_ids=batch.positions[..., 1].long(),
        ).last_hidden_state
        assert_equal(ours(batch), right, batch.valid)
