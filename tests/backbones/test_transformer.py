"""The Transformer equals torch's encoder, is initialised as GPT-2, and refuses what it does not support."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import LSTM, Transformer
from seqkit.interfaces import Adjacency, Embedded, TokenSpec
from seqkit.interfaces.batch import Padding
from seqkit.nn.block import PreNormBlock
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.position.rotary import Rotary


def embedded(lengths, dim, p=1):
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, dim).masked_fill(~valid[..., None], 0.0)
    positions = torch.arange(float(n)).expand(len(lengths), n)[..., None].expand(-1, -1, p)
    return Embedded(hidden, positions, valid).know(Padding.of(valid))


def as_torch(transformer, dim, num_heads):
    """`nn.TransformerEncoder` with the same weights, in training mode: its fast path rounds differently."""
    layer = nn.TransformerEncoderLayer(
        dim, num_heads, 4 * dim, 0.0, "gelu", batch_first=True, norm_first=True
    )
    stack = nn.TransformerEncoder(
        layer, len(transformer.blocks), transformer.norm, enable_nested_tensor=False
    )
    for theirs, ours in zip(stack.layers, transformer.blocks):
        attention, qkv_proj = theirs.self_attn, ours.attention.qkv_proj
        attention.in_proj_weight, attention.in_proj_bias = qkv_proj.weight, qkv_proj.bias
        theirs.self_attn.out_proj = ours.attention.out_proj
        theirs.linear1, theirs.linear2 = ours.mlp.up_proj, ours.mlp.down_proj
        theirs.norm1, theirs.norm2 = ours.attention_norm, ours.mlp_norm
    return stack


@pytest.mark.parametrize("lengths", [[5, 5], [7, 3, 5]])
@pytest.mark.parametrize("causal", [False, True])
def test_the_transformer_equals_torchs_encoder(lengths, causal):
    transformer = Transformer(21, 3, num_heads=3, causal=causal)
    for p in transformer.parameters():
        nn.init.normal_(p, std=0.3)
    x = embedded(lengths, 21)
    n = max(lengths)
    later = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
    right = as_torch(transformer, 21, 3)(x.hidden, mask=later, src_key_padding_mask=~x.valid)
    got = transformer(x)
    assert_close(got[x.valid], right[x.valid], rtol=1e-4, atol=1e-5)
    assert not got[~x.valid].any()


def test_blocks_that_repeat_have_one_set_of_weights_and_compute_as_copies_do():
    repeated = Transformer(21, 4, num_heads=3, causal=True, repeats=2)
    copies = Transformer(21, 4, num_heads=3, causal=True)
    for p in repeated.parameters():
        nn.init.normal_(p, std=0.3)
    copies.load_state_dict(repeated.state_dict())
    names = {name.split(".")[1] for name, _ in repeated.named_parameters() if "blocks" in name}
    assert names == {"0", "2"}
    x = embedded([7, 3, 5], 21)
    assert_close(repeated(x), copies(x))
    cache = repeated.init_cache(7)
    whole = embedded([7, 7], 21)
    steps = [
        repeated(Embedded(hidden, positions, valid), cache)
        for hidden, positions, valid in zip(
            *(field.split(1, dim=1) for field in (whole.hidden, whole.positions, whole.valid))
        )
    ]
    assert_close(torch.cat(steps, dim=1), repeated(whole), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"repeats": 3}, "repeats=3 does not divide depth=4"),
        ({"repeats": 0}, "repeats=0"),
        ({"repeats": 2, "block": [PreNormBlock] * 4}, "list of 4, which does not divide depth=2"),
        (
            {"repeats": 2, "block": partial(PreNormBlock, mlp=partial(MixtureOfExperts, num_experts=3))},
            "auxiliary loss",
        ),
    ],
)  # fmt: skip
def test_blocks_that_cannot_repeat_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        Transformer(24, 4, num_heads=3, **given)


def test_weights_are_initialised_as_gpt2s():
    transformer = Transformer(64, 8, num_heads=4)
    for block in transformer.blocks:
        for weight, std in [(block.attention.qkv_proj, 0.02), (block.mlp.up_proj, 0.02)]:
            assert float(weight.weight.detach().std()) == pytest.approx(std, rel=0.05)
            assert not weight.bias.any()
        for weight in (block.attention.out_proj, block.mlp.down_proj):
            assert float(weight.weight.detach().std()) == pytest.approx(
                0.02 / math.sqrt(16), rel=0.05
            )
            assert not weight.bias.any()


def test_with_zero_init_only_the_last_norm_changes_the_input():
    transformer = Transformer(
        24, 2, block=lambda dim, heads: PreNormBlock(dim, heads, zero_init=True)
    )
    x = embedded([5, 5], 24)
    assert_close(transformer(x), transformer.norm(x.hidden))


def test_rotary_attention_depends_on_position_differences_only():
    transformer = Transformer(24, 2, num_heads=3, position=Rotary()).double()
    assert transformer.uses_positions
    assert not Transformer(24, 2).uses_positions
    x = embedded([7, 7], 24)
    far = Embedded(x.hidden.double(), x.positions + 11, x.valid)
    near = Embedded(x.hidden.double(), x.positions, x.valid)
    wide = Embedded(x.hidden.double(), x.positions * 3, x.valid)
    assert_close(transformer(far), transformer(near), rtol=0, atol=1e-6)
    assert (transformer(wide) - transformer(near)).abs().max() > 1e-5


@pytest.mark.parametrize("own", [2, nn.Identity()])
def test_positions_are_shared_by_layers_only_if_private_settings_and_parts_are_equal_too(own):
    one, other, plain = Rotary(), Rotary(), Rotary()
    one._own, other._own = own, nn.Identity()
    assert [
        len(Transformer(24, 2, position=[a, b]).positions)
        for a, b in ((one, other), (plain, Rotary()))
    ] == [2, 1]


def test_invalid_arguments_and_unsupported_input_are_refused():
    with pytest.raises(ValueError, match="depth=0"):
        Transformer(24, 0)
    with pytest.raises(ValueError, match=r"dim=23.*num_heads=8"):
        Transformer(23, 1)
    with pytest.raises(ValueError, match="not causal"):
        Transformer(24, 1).init_cache(5)
    with pytest.raises(ValueError, match=r"head_dim of 3 .* 2 axes"):
        Transformer(24, 1, position=Rotary()).check_supported(TokenSpec(num_features=5, num_axes=2))
    with pytest.raises(ValueError, match="StateCache"):
        Transformer(24, 1, causal=True)(embedded([3], 24), LSTM(24, causal=True).init_cache(3))


def test_more_tokens_than_the_cache_was_made_for_are_refused():
    transformer = Transformer(24, 1, causal=True)
    cache = transformer.init_cache(5)
    transformer(embedded([4, 4], 24), cache)
    assert cache.num_tokens == 4
    with pytest.raises(ValueError, match="5 tokens, got 6"):
        transformer(embedded([2, 2], 24), cache)


# ── a bias for each edge type ────────────────────────────────────────────────────────────────────────────────────────


def graph(dim):
    x = embedded([5, 3], dim, p=0)
    return x.replace(
        adjacency=Adjacency(torch.tensor([[1, 0, 6], [0, 2, 5]]), torch.tensor([1, 2, 1]))
    )


def test_the_bias_of_an_edges_type_is_added_to_its_score():
    """As an attention mask by hand in torch's encoder."""
    transformer = Transformer(21, 2, num_heads=3)
    transformer.add_edge_bias(2)
    for p in transformer.parameters():
        nn.init.normal_(p, std=0.3)
    x, table = graph(21), transformer.edge_biases["3"].weight
    mask = torch.full((2, 3, 5, 5), -torch.inf)
    for i in range(5):
        mask[:, :, i, i] = table[0]
    for b, source, target, edge_type in ((0, 1, 0, 1), (0, 0, 2, 2), (1, 1, 0, 1)):
        mask[b, :, target, source] = table[edge_type]
    right = as_torch(transformer, 21, 3)(x.hidden, mask=mask.flatten(0, 1))
    assert_close(transformer(x)[x.valid], right[x.valid], rtol=1e-4, atol=1e-5)


def test_the_bias_of_edge_types_starts_at_zero_and_plain_tokens_get_none():
    transformer = Transformer(24, 2, num_heads=3)
    plain, before = embedded([5, 3], 24), graph(24)
    right = transformer(plain), transformer(before)
    transformer.add_edge_bias(2)
    assert_close((transformer(plain), transformer(before)), right)
    nn.init.normal_(transformer.edge_biases["3"].weight)
    assert_close(transformer(plain), right[0])
    assert (transformer(before) - right[1]).abs().max() > 1e-4


def test_the_norm_of_the_input_comes_before_the_first_block():
    without, normed = (
        Transformer(24, 2, num_heads=3),
        Transformer(24, 2, num_heads=3, input_norm=nn.RMSNorm),
    )
    nn.init.normal_(normed.input_norm.weight)
    normed.load_state_dict(without.state_dict(), strict=False)
    x = embedded([5, 3], 24)
    assert_close(normed(x), without(x.replace(hidden=normed.input_norm(x.hidden))))


def test_layers_of_unlike_heads_have_a_bias_each():
    def of(num_heads):
        return lambda dim, _: PreNormBlock(dim, num_heads)

    transformer = Transformer(24, 4, block=[of(3), of(2)])
    transformer.add_edge_bias(5)
    assert {name: tuple(bias.weight.shape) for name, bias in transformer.edge_biases.items()} == {
        "3": (6, 3), "2": (6, 2)
    }  # fmt: skip
    used = [context.edge_bias for context in transformer.contexts(graph(24)).values()]
    assert all(
        table is transformer.edge_biases[name].weight
        for table, name in zip(used, "32", strict=True)
    )


def test_two_models_share_a_backbones_bias_if_their_edge_types_are_as_many():
    transformer = Transformer(24, 1, num_heads=3)
    transformer.add_edge_bias(2)
    weight = transformer.edge_biases["3"].weight
    transformer.add_edge_bias(2)
    assert transformer.edge_biases["3"].weight is weight
    with pytest.raises(ValueError, match="other edge types"):
        transformer.add_edge_bias(3)


@pytest.mark.parametrize("lengths", [[4, 4], [4, 2]])
def test_a_cache_knows_whether_its_columns_are_padded(lengths):
    transformer = Transformer(24, 1, num_heads=3, causal=True)
    cache, prompts = transformer.init_cache(6), embedded(lengths, 24)
    assert cache.past is None
    transformer(prompts, cache)
    transformer(embedded([2, 2], 24), cache)
    assert cache.past.is_padded == (lengths == [4, 2])
    assert (
        cache.past.valid.tolist()
        == torch.cat([prompts.valid, torch.ones(2, 2).bool()], dim=1).tolist()
    )
    assert cache.past.positions.shape == (2, 6, 1)
