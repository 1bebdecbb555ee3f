"""The linear transformer is the recurrence of Katharopoulos et al. 2020: parallel, in chunks and by a loop."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import LinearTransformer, Transformer
from seqkit.config import builder, complete
from seqkit.interfaces import Embedded, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.linear import CHUNK, LinearAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.embedder import default_position
from seqkit.nn.position.absolute import Sinusoidal
from seqkit.objectives import Masked

DIM, HEADS = 21, 3


def embedded(hidden):
    b, n, _ = hidden.shape
    return Embedded(hidden, torch.zeros(b, n, 1), torch.ones(b, n, dtype=torch.bool))


def phi(x):
    """Equation 7."""
    return torch.nn.functional.elu(x) + 1


def recurrence(backbone, x):
    """One token at a time through all layers, x [n d]: equations 16 to 20, the block around them being pre-norm."""
    c = DIM // HEADS
    sums = [(x.new_zeros(HEADS, c, c), x.new_zeros(HEADS, c)) for _ in backbone.stack.blocks]
    rows = []
    for token in x:
        for layer, block in enumerate(backbone.stack.blocks):
            q, k, v = block.attention.qkv_proj(block.attention_norm(token)).reshape(3, HEADS, c)
            s, z = sums[layer]
            s, z = s + phi(k)[:, :, None] * v[:, None, :], z + phi(k)
            sums[layer] = s, z
            y = torch.stack([phi(q[h]) @ s[h] / (phi(q[h]) @ z[h]) for h in range(HEADS)])
            token = token + block.attention.out_proj(y.flatten())
            token = token + block.mlp(block.mlp_norm(token))
        rows.append(backbone.stack.norm(token))
    return torch.stack(rows)


@pytest.fixture
def backbone():
    made = LinearTransformer(DIM, 2, num_heads=HEADS, causal=True).double().eval()
    with torch.no_grad():
        for p in made.parameters():
            p += 0.3 * torch.randn_like(p)  # initial weights are so small that a fault would hardly show
    return made


@pytest.mark.parametrize("n", [1, 7, CHUNK, CHUNK + 3, 2 * CHUNK + 5])
def test_at_once_equals_the_recurrence(backbone, n):
    x = torch.randn(2, n, DIM, dtype=torch.float64)
    got = backbone(embedded(x))
    assert_close(got, torch.stack([recurrence(backbone, row) for row in x]), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("cuts", [[1] * 11, [5, 1, 5], [2, 9]])
def test_in_chunks_equals_at_once_with_a_cache_that_does_not_grow(backbone, cuts):
    x = torch.randn(2, sum(cuts), DIM, dtype=torch.float64)
    cache = backbone.init_cache(sum(cuts))
    got = torch.cat([backbone(embedded(part), cache) for part in x.split(cuts, dim=1)], dim=1)
    assert_close(got, backbone(embedded(x)), rtol=1e-9, atol=1e-10)
    c = DIM // HEADS
    assert all(layer.self_attention.sums.shape == (2, HEADS, c, c + 1) for layer in cache.layers)


def test_it_is_chosen_by_name_in_a_recipe_and_drops_what_it_does_not_take():
    config = complete("text/char-lm", "debug", ["--model.backbone", "LinearTransformer"])
    keys = {"type": "LinearTransformer", "dim": 32, "depth": 2, "num_heads": 4, "causal": True, "dropout": 0.0}
    assert config["model"]["backbone"] == keys
    backbone = builder.build({"model": config["model"]}).model["backbone"]
    assert isinstance(backbone, LinearTransformer)
    assert all(isinstance(block.attention.mechanism, LinearAttention) for block in backbone.stack.blocks)
    assert not backbone.uses_positions


def test_positions_are_added_and_adjacency_is_refused(backbone):
    assert default_position(backbone, TokenSpec(vocab_size=3)) is Sinusoidal
    assert not backbone.supports_segments
    graph = TokenSpec(num_features=3, num_axes=0, num_edge_types=2)
    with pytest.raises(ValueError, match=r"adjacency.* GIN"):
        Model(graph, LinearTransformer(DIM, 1, num_heads=HEADS), Masked())
    linear = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=LinearAttention))
    with pytest.raises(ValueError, match="ScaledDotProductAttention or GIN"):
        Model(graph, Transformer(DIM, 1, num_heads=HEADS, block=linear), Masked())
