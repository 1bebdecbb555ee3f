"""Our Transformer equals Hugging Face's families with attention and MLP side by side: Phi, GPT-NeoX, Falcon.

h heads · c channels of one head
"""

from functools import partial

import pytest
import torch
from einops import rearrange
from parity import randomized
from transformers import (
    FalconConfig,
    FalconForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    PhiConfig,
    PhiForCausalLM,
)
from weights import in_pairs, take
from whole import (
    PADDED_OR_NOT,
    assert_every_value_is_mapped,
    assert_same_generation,
    assert_same_gradients,
    assert_same_logits,
    decoder,
    scattered,
)

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.nn.block import MLP, ParallelBlock, PreNormBlock
from seqkit.nn.heads import TiedHead, TokenHead
from seqkit.nn.position.absolute import NoPosition
from seqkit.nn.position.bias import ALiBi
from seqkit.objectives import NextToken

VOCAB, DIM, INNER, DEPTH, HEADS, HEAD_DIM = 29, 40, 60, 3, 4, 10
SIZES = {
    "vocab_size": VOCAB,
    "bos_token_id": None,
    "eos_token_id": None,
    "attn_implementation": "eager",
}
LLAMAS_NAMES = {
    "hidden_size": DIM, "num_hidden_layers": DEPTH, "num_attention_heads": HEADS, "intermediate_size": INNER,
}  # fmt: skip


def phi():
    return PhiForCausalLM(PhiConfig(**SIZES, **LLAMAS_NAMES, partial_rotary_factor=0.4))


def gpt_neox():
    return GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, **LLAMAS_NAMES, rotary_pct=0.4))


def falcon(**changes):
    config = {
        "hidden_size": DIM,
        "num_hidden_layers": DEPTH,
        "num_attention_heads": HEADS,
        "ffn_hidden_size": INNER,
    }
    return FalconForCausalLM(FalconConfig(**{**SIZES, **config, **changes}))


def by_group(fused, num_kv_heads):
    """Rows in which each key/value head follows its queries, as queries, keys and values one after another."""
    heads = rearrange(fused, "(g r c) ... -> g r c ...", g=num_kv_heads, c=HEAD_DIM)
    parts = heads[:, :-2], heads[:, -2:-1], heads[:, -1:]
    return [rearrange(x, "g r c ... -> (g r c) ...") for x in parts]


def phi_layer(left, i):
    layer, name = f"model.layers.{i}", f"backbone.blocks.{i}"
    pair = partial(in_pairs, head_dim=HEAD_DIM, rotated=4)
    qkv = [f"{layer}.self_attn.{kind}_proj" for kind in "qkv"]
    return (
        both_norms(left, f"{layer}.input_layernorm", name)
        | take(left, qkv, f"{name}.attention.qkv_proj", [pair, pair, None])
        | take(left, [f"{layer}.self_attn.dense"], f"{name}.attention.out_proj")
        | take(left, [f"{layer}.mlp.fc1"], f"{name}.mlp.up_proj")
        | take(left, [f"{layer}.mlp.fc2"], f"{name}.mlp.down_proj")
    )


def gpt_neox_layer(left, i):
    layer, name = f"gpt_neox.layers.{i}", f"backbone.blocks.{i}"

    def sorted_and_paired(fused):
        q, k, v = by_group(fused, HEADS)
        return torch.cat([in_pairs(q, HEAD_DIM, 4), in_pairs(k, HEAD_DIM, 4), v])

    return (
        take(left, [f"{layer}.input_layernorm"], f"{name}.attention_norm")
        | take(left, [f"{layer}.post_attention_layernorm"], f"{name}.mlp_norm")
        | take(
            left,
            [f"{layer}.attention.query_key_value"],
            f"{name}.attention.qkv_proj",
            [sorted_and_paired],
        )
        | take(left, [f"{layer}.attention.dense"], f"{name}.attention.out_proj")
        | take(left, [f"{layer}.mlp.dense_h_to_4h"], f"{name}.mlp.up_proj")
        | take(left, [f"{layer}.mlp.dense_4h_to_h"], f"{name}.mlp.down_proj")
    )


def falcon_layer(left, i, *, num_kv_heads=1, rotary=True):
    layer, name = f"transformer.h.{i}", f"backbone.blocks.{i}"

    def sorted_and_paired(fused):
        q, k, v = by_group(fused, num_kv_heads)
        return torch.cat([in_pairs(q, HEAD_DIM), in_pairs(k, HEAD_DIM), v] if rotary else [q, k, v])

    norms = [
        x
        for x in ("ln_attn", "ln_mlp", "input_layernorm", "post_attention_layernorm")
        if f"{layer}.{x}.weight" in left
    ]
    mapped = (
        take(
            left,
            [f"{layer}.self_attention.query_key_value"],
            f"{name}.attention.qkv_proj",
            [sorted_and_paired],
        )
        | take(left, [f"{layer}.self_attention.dense"], f"{name}.attention.out_proj")
        | take(left, [f"{layer}.mlp.dense_h_to_4h"], f"{name}.mlp.up_proj")
        | take(left, [f"{layer}.mlp.dense_4h_to_h"], f"{name}.mlp.down_proj")
    )
    if len(norms) == 1:
        return mapped | both_norms(left, f"{layer}.{norms[0]}", name)
    ours = ("attention_norm", "mlp_norm")
    first_and_second = (
        norms if norms[0] == "ln_attn" else ["input_layernorm", "post_attention_layernorm"]
    )
    for norm, own in zip(first_and_second, ours, strict=True):
        mapped |= take(left, [f"{layer}.{norm}"], f"{name}.{own}")
    return mapped


def both_norms(left, norm, name):
    """A norm that attention and MLP share."""
    mapped = take(left, [norm], f"{name}.attention_norm")
    return mapped | {
        key.replace(".attention_norm", ".mlp_norm"): value for key, value in mapped.items()
    }


FAMILIES = {
    # theirs, a layer under our names, their table and their last norm
    "Phi": (phi, phi_layer, "model.embed_tokens", "model.final_layernorm"),
    "GPT-NeoX": (gpt_neox, gpt_neox_layer, "gpt_neox.embed_in", "gpt_neox.final_layer_norm"),
    "Falcon": (falcon, falcon_layer, "transformer.word_embeddings", "transformer.ln_f"),
}
LAST_NORMS = {norm for *_, norm in FAMILIES.values()}
PROMPTS = [7, 2, 11]


def weights(name, theirs, **settings):
    """Their weights under our names."""
    _, layer, table, norm = FAMILIES[name]
    left = theirs.state_dict()
    mapped = take(left, [norm], "backbone.norm") | {
        "embedder.content.weight": left.pop(f"{table}.weight")
    }
    if theirs.config.tie_word_embeddings:
        mapped |= {"head.table.weight": left.pop("lm_head.weight")}
    else:
        mapped |= take(left, ["lm_head"], "head.linear")
    for i in range(DEPTH):
        mapped |= layer(left, i, **settings)
    assert not left, f"not mapped: {sorted(left)}"
    return mapped


def ours(name, overrides=None):
    model = decoder(name, VOCAB, tied=name == "Falcon", overrides=overrides)
    if name == "Phi":
        model.head = TokenHead(DIM, VOCAB)
    return model.eval()


def random(theirs, generating=False):
    """generating: sharper attention and little bias, so that the context decides on the next id."""
    theirs = randomized(theirs, std=0.3 if generating else 0.1)
    if generating:
        with torch.no_grad():
            for name, p in theirs.named_parameters():
                p.mul_(
                    0.1
                    if name.endswith("bias")
                    else 5.0
                    if "query" in name or "q_proj" in name
                    else 1.0
                )
        scattered(next(norm for name, norm in theirs.named_modules() if name in LAST_NORMS))
    return theirs


def pair(name, generating=False):
    reference, model = random(FAMILIES[name][0](), generating), ours(name)
    model.load_state_dict(weights(name, reference))
    return reference, model


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
@pytest.mark.parametrize("name", FAMILIES)
def test_logits(name, lengths):
    reference, model = pair(name)
    assert_every_value_is_mapped(model, reference)
    assert_same_logits(model, reference, lengths)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("Phi", {"position.share": 0.6}),
        ("GPT-NeoX", {"position.share": 0.6}),
        ("GPT-NeoX", {"block.type": "PreNormBlock"}),
        ("Falcon", {"position.base": 1000.0}),
    ],
)
def test_the_comparison_notices_another_composition(name, overrides):
    reference, other = random(FAMILIES[name][0]()), ours(name, overrides)
    other.load_state_dict(weights(name, reference))
    with pytest.raises(AssertionError, match="not close"):
        assert_same_logits(other, reference, [13, 13])


@pytest.mark.parametrize("name", FAMILIES)
def test_generation(name):
    reference, model = pair(name, generating=True)
    assert_same_generation(model, reference, [torch.randint(VOCAB, (n,)) for n in PROMPTS])


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_gradients_of_gpt_neox(lengths):
    reference, model = pair("GPT-NeoX")
    assert_same_gradients(model, reference, partial(weights, "GPT-NeoX"), lengths)


# ── other Falcons ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_logits_of_falcon_40b(lengths):
    """Grouped key/value heads, and a norm for each branch."""
    reference = random(falcon(new_decoder_architecture=True, num_kv_heads=2))
    model = ours("Falcon", {"block.shared_norm": False, "block.attention.num_kv_heads": 2})
    model.load_state_dict(weights("Falcon", reference, num_kv_heads=2))
    assert_every_value_is_mapped(model, reference)
    assert_same_logits(model, reference, lengths)


class ScaledALiBi(ALiBi):
    """ALiBi that is divided by sqrt(c) as the scores are."""

    def bias(self, query_positions, key_positions, num_heads):
        """[b h n m]."""
        return super().bias(query_positions, key_positions, num_heads) * HEAD_DIM**-0.5


def falcon_with_alibi(parallel, generating=False):
    """Their SDPA, since their eager attention adds the bias twice; four heads, whose slopes bfloat16 holds exactly."""
    settings = {"alibi": True, "multi_query": False, "bias": True, "parallel_attn": parallel}
    reference = random(falcon(**settings, attn_implementation="sdpa"), generating)
    block = partial(ParallelBlock, shared_norm=True) if parallel else PreNormBlock
    block = partial(block, mlp=partial(MLP, ratio=INNER / DIM))
    backbone = Transformer(
        DIM, DEPTH, num_heads=HEADS, causal=True, block=block, position=ScaledALiBi()
    )
    model = Model(TokenSpec(vocab_size=VOCAB), backbone, NextToken(bias=False), position=NoPosition)
    model.head = TiedHead(model.embedder.table)
    model.eval().load_state_dict(weights("Falcon", reference, num_kv_heads=HEADS, rotary=False))
    return reference, model


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_logits_of_falcon_with_alibi(lengths, parallel):
    reference, model = falcon_with_alibi(parallel)
    assert_every_value_is_mapped(model, reference)
    assert_same_logits(model, reference, lengths)


def test_generation_of_falcon_with_alibi():
    reference, model = falcon_with_alibi(parallel=False, generating=True)
    assert_same_generation(model, reference, [torch.randint(VOCAB, (n,)) for n in PROMPTS])
