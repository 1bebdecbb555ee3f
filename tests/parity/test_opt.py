"""Our Transformer equals Hugging Face's OPT: pre-norm, ReLU, learned positions that start in row 2."""

from functools import partial

import pytest
import torch
from parity import linear, linears, randomized, texts
from transformers import OPTConfig, OPTForCausalLM
from whole import (
    NEW_TOKENS,
    PADDED_OR_NOT,
    assert_every_value_is_mapped,
    assert_same_generation,
    assert_same_logits,
    decoder,
    scattered,
)

from seqkit.nn.position.absolute import Learned

VOCAB, CONTEXT, DIM, INNER, DEPTH, HEADS = 29, 41, 24, 36, 3, 4
OFFSET = 2
"""Position 0 has row 2 of their table: row 1 is padding's, and row 0 nobody's."""


def theirs(std=0.1):
    config = OPTConfig(
        vocab_size=VOCAB, max_position_embeddings=CONTEXT, hidden_size=DIM, word_embed_proj_dim=DIM, ffn_dim=INNER,
        num_hidden_layers=DEPTH, num_attention_heads=HEADS, attn_implementation="eager",
    )  # fmt: skip
    return randomized(OPTForCausalLM(config), std)


def weights(theirs):
    """Their weights under our names."""
    model = theirs.model.decoder
    mapped = {f"{name}.weight": model.embed_tokens.weight for name in ("embedder.content", "head.table")}
    mapped["embedder.position.tables.0"] = model.embed_positions.weight[OFFSET:]
    mapped |= linear(model.final_layer_norm, "backbone.norm")
    for i, layer in enumerate(model.layers):
        name, attention = f"backbone.blocks.{i}", layer.self_attn
        qkv = [attention.q_proj, attention.k_proj, attention.v_proj]
        mapped |= linears(qkv, f"{name}.attention.qkv_proj") | linear(attention.out_proj, f"{name}.attention.out_proj")
        mapped |= linear(layer.fc1, f"{name}.mlp.up_proj") | linear(layer.fc2, f"{name}.mlp.down_proj")
        mapped |= linear(layer.self_attn_layer_norm, f"{name}.attention_norm")
        mapped |= linear(layer.final_layer_norm, f"{name}.mlp_norm")
    return mapped


def pair(std=0.1, generating=False):
    reference, model = theirs(std), decoder("OPT", VOCAB, tied=True, position=partial(Learned, sizes=[CONTEXT]))
    if generating:
        scattered(reference.model.decoder.final_layer_norm)
    model.load_state_dict(weights(reference))
    return reference, model


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_logits_of_opt(lengths):
    reference, model = pair()
    assert_every_value_is_mapped(model, reference, unused=[reference.model.decoder.embed_positions.weight[:OFFSET]])
    assert_same_logits(model, reference, lengths)


def test_generation_of_opt():
    reference, model = pair(std=0.3, generating=True)
    assert_same_generation(model, reference, [torch.randint(VOCAB, (n,)) for n in (5, 1, CONTEXT - NEW_TOKENS)])


def test_logits_of_opt_in_bfloat16_are_as_near_to_float32_as_theirs():
    reference, model = pair()
    batch = texts([37] * 16, VOCAB)
    with torch.no_grad():
        exact = reference(batch.content).logits
        right = reference.to(torch.bfloat16)(batch.content).logits
        got = model.to(torch.bfloat16)(batch)
    assert got.dtype == right.dtype == torch.bfloat16
    assert (got - exact).abs().mean() <= 1.25 * (right - exact).abs().mean()
