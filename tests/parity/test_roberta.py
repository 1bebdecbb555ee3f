"""Our Transformer equals Hugging Face's RoBERTa: as BERT, with positions that start behind the padding's id."""

from functools import partial

import pytest
import torch
from families import family
from parity import EmbeddedBackbone, assert_equal, randomized
from test_bert import weights
from transformers import RobertaConfig, RobertaModel
from whole import PADDED_OR_NOT, assert_every_value_is_mapped

from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.nn.position.absolute import Learned

VOCAB, CONTEXT, PADDING_ID = 29, 23, 1


@pytest.fixture
def pair():
    config = RobertaConfig(
        vocab_size=VOCAB, max_position_embeddings=CONTEXT, type_vocab_size=1, pad_token_id=PADDING_ID, hidden_size=21,
        intermediate_size=63, num_hidden_layers=3, num_attention_heads=3, layer_norm_eps=1e-5,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = randomized(RobertaModel(config, add_pooling_layer=False))
    spec = TokenSpec(vocab_size=VOCAB, num_axes=2)
    ours = EmbeddedBackbone(spec, family("RoBERTa"), partial(Learned, sizes=[CONTEXT, 1]))
    ours.load_state_dict(weights(theirs))
    return theirs, ours


def texts(lengths):
    """Random ids but the padding's; positions are (index + padding id + 1, sentence)."""
    examples = []
    for n in lengths:
        index = torch.arange(float(n)) + PADDING_ID + 1
        content = torch.randint(PADDING_ID + 1, VOCAB, (n,))
        examples.append(Tokens(content, torch.stack([index, torch.zeros(n)], dim=1)))
    return TokenBatch.collate(examples)


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_hidden_states_of_roberta(pair, lengths):
    theirs, ours = pair
    assert_every_value_is_mapped(ours, theirs)
    batch = texts(lengths)
    with torch.no_grad():
        right = theirs(batch.content.masked_fill(~batch.valid, PADDING_ID), attention_mask=batch.valid.long())
        assert_equal(ours(batch), right.last_hidden_state, batch.valid)
