"""Blocks are torch's own encoder and decoder layers, pre- and post-norm; parallel ones are their formula."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.interfaces import Embedded
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import MLP, BaseBlock, ParallelBlock, PostNormBlock, PreNormBlock, Residual
from seqkit.nn.moe import MixtureOfExperts
from seqkit.testing import check_backbone

PRE_OR_POST = pytest.mark.parametrize("kind", [PreNormBlock, PostNormBlock])
ACTIVATION = pytest.mark.parametrize(("activation", "name"), [(nn.GELU, "gelu"), (nn.ReLU, "relu")])
CAUSAL = pytest.mark.parametrize("causal", [False, True])
PADDED = pytest.mark.parametrize("padded", [False, True])


def as_torch(block, name="gelu"):
    """Torch's layer with the block's weights. In training mode: its fast path rounds differently."""
    dim, heads = block.attention.out_proj.in_features, block.attention.num_heads
    kind = nn.TransformerDecoderLayer if block.has_cross_attention else nn.TransformerEncoderLayer
    layer = kind(
        dim,
        heads,
        4 * dim,
        dropout=0.0,
        activation=name,
        batch_first=True,
        norm_first=isinstance(block, PreNormBlock),
    )
    pairs = [(layer.self_attn, block.attention)]
    layer.linear1, layer.linear2, layer.norm1 = (
        block.mlp.up_proj,
        block.mlp.down_proj,
        block.attention_norm,
    )
    if block.has_cross_attention:
        pairs.append((layer.multihead_attn, block.cross_attention))
        layer.norm2, layer.norm3 = block.cross_norm, block.mlp_norm
    else:
        layer.norm2 = block.mlp_norm
    for theirs, ours in pairs:
        projections = [ours.qkv_proj] if ours.qkv_proj is not None else [ours.q_proj, ours.kv_proj]
        theirs.in_proj_weight = nn.Parameter(torch.cat([each.weight for each in projections]))
        theirs.in_proj_bias = nn.Parameter(torch.cat([each.bias for each in projections]))
        theirs.out_proj = ours.out_proj
    return layer


def shaken(module):
    """Biases and norms too, which start as zeros and ones, where swapping them would not be noticed."""
    for p in module.parameters():
        nn.init.normal_(p, std=0.3)
    return module


def real(n, *lengths):
    return torch.arange(n) < torch.tensor(lengths)[:, None]


def context_of(valid, causal):
    """The context, and torch's mask of later tokens for it, True = masked."""
    n = valid.shape[1]
    later = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
    attn_mask = valid[:, None, None] if later is None else valid[:, None, None] & ~later
    return AttentionContext(attn_mask, query_valid=valid, key_valid=valid), later


@PRE_OR_POST
@ACTIVATION
@CAUSAL
@PADDED
def test_a_block_is_torchs_encoder_layer(kind, activation, name, causal, padded):
    block, x = shaken(kind(21, 3, mlp=partial(MLP, activation=activation))), torch.randn(2, 5, 21)
    valid = real(5, 5, 3 if padded else 5)
    context, later = context_of(valid, causal)
    right = as_torch(block, name)(x, src_mask=later, src_key_padding_mask=~valid)
    assert_close(block(x, context)[valid], right[valid], rtol=1e-5, atol=1e-5)


@PRE_OR_POST
@ACTIVATION
@CAUSAL
@PADDED
def test_a_block_with_cross_attention_is_torchs_decoder_layer(
    kind, activation, name, causal, padded
):
    block = shaken(kind(21, 3, mlp=partial(MLP, activation=activation), cross_attention=True))
    x, hidden = torch.randn(2, 5, 21), torch.randn(2, 7, 21)
    valid, memory_valid = real(5, 5, 3 if padded else 5), real(7, 2 if padded else 7, 7)
    context, later = context_of(valid, causal)
    cross = AttentionContext(
        memory_valid[:, None, None], query_valid=valid, key_valid=memory_valid, memory=hidden
    )
    got = block(x, replace(context, cross=cross))
    right = as_torch(block, name)(
        x,
        hidden,
        tgt_mask=later,
        tgt_key_padding_mask=~valid,
        memory_key_padding_mask=~memory_valid,
    )
    assert_close(got[valid], right[valid], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cross_attention", [False, True])
@pytest.mark.parametrize("shared_norm", [False, True])
def test_a_parallel_block_is_its_formula(cross_attention, shared_norm):
    block = shaken(ParallelBlock(21, 3, cross_attention=cross_attention, shared_norm=shared_norm))
    x, hidden = torch.randn(2, 5, 21), torch.randn(2, 7, 21)
    context, _ = context_of(real(5, 5, 3), causal=True)
    cross = (
        AttentionContext(real(7, 7, 2)[:, None, None], memory=hidden) if cross_attention else None
    )
    right = x + block.attention(block.attention_norm(x), context) + block.mlp(block.mlp_norm(x))
    if cross_attention:
        right = right + block.cross_attention(block.cross_norm(x), cross)
    assert_close(block(x, replace(context, cross=cross)), right)


@pytest.mark.parametrize("cross_attention", [False, True])
def test_a_shared_norm_is_one_module_that_runs_once(cross_attention):
    calls = []
    block = ParallelBlock(6, 1, shared_norm=True, cross_attention=cross_attention)
    norms = [module for module in block.modules() if isinstance(module, nn.LayerNorm)]
    assert norms == [block.attention_norm]
    assert block.mlp_norm is block.attention_norm
    block.attention_norm.register_forward_hook(lambda *_: calls.append(1))
    cross = AttentionContext(memory=torch.randn(2, 5, 6)) if cross_attention else None
    block(torch.randn(2, 3, 6), AttentionContext(cross=cross))
    assert len(calls) == 1
    separate = ParallelBlock(6, 1, cross_attention=cross_attention)
    fewer = sum(p.numel() for p in separate.parameters()) - sum(
        p.numel() for p in block.parameters()
    )
    assert fewer == 2 * 6 * (2 if cross_attention else 1)
    assert set(block.state_dict()) == set(separate.state_dict())
    block.load_state_dict(block.state_dict())


def test_a_parallel_block_with_one_norm_is_timms():
    """timm's has one norm for both branches, GPT-J's order."""
    from timm.models.vision_transformer import ParallelScalingBlock

    block, x = (
        shaken(ParallelBlock(20, 5, shared_norm=True)).double(),
        torch.randn(2, 3, 20).double(),
    )
    theirs = ParallelScalingBlock(20, 5).double()
    theirs.in_norm.eps = block.attention_norm.eps
    with torch.no_grad():
        for name in ("weight", "bias"):
            theirs.in_norm.get_parameter(name).copy_(block.attention_norm.get_parameter(name))
        block.attention.qkv_proj.bias.zero_()  # theirs has none there
        theirs.in_proj.weight.copy_(
            torch.cat([block.mlp.up_proj.weight, block.attention.qkv_proj.weight])
        )
        theirs.mlp_bias.copy_(block.mlp.up_proj.bias)
        theirs.attn_out_proj.load_state_dict(block.attention.out_proj.state_dict())
        theirs.mlp_out_proj.load_state_dict(block.mlp.down_proj.state_dict())
    assert_close(block(x, AttentionContext()), theirs(x))


@pytest.mark.parametrize(
    "kind", [PreNormBlock, PostNormBlock, ParallelBlock, partial(ParallelBlock, shared_norm=True)]
)
def test_a_transformer_of_it_keeps_the_laws(kind):
    check_backbone(
        lambda dim, causal: Transformer(dim, 2, num_heads=3, causal=causal, block=kind),
        kinds=["text"],
        quick=True,
    )


def test_a_component_that_is_passed_in_replaces_the_default():
    block = PreNormBlock(
        6,
        1,
        attention=partial(MultiHeadAttention, bias=False),
        mlp=lambda dim: nn.Identity(),
        norm=nn.RMSNorm,
    )
    assert isinstance(block.attention_norm, nn.RMSNorm)
    another = PreNormBlock(6, 1, norm=nn.RMSNorm, attention_norm=nn.Identity)
    assert (type(another.attention_norm), type(another.mlp_norm)) == (nn.Identity, nn.RMSNorm)
    with torch.no_grad():
        block.attention.out_proj.weight.zero_()
        x = torch.randn(2, 3, 6)
        assert_close(block(x, AttentionContext()), x + block.mlp_norm(x))


@pytest.mark.parametrize("kind", [PreNormBlock, PostNormBlock, ParallelBlock])
def test_every_branch_has_its_own_residual(kind):
    block = kind(
        6, 1, residual=partial(Residual, dropout=0.5, layer_scale=0.1), cross_attention=True
    )
    x = torch.randn(2, 3, 6)
    context = AttentionContext(cross=AttentionContext(memory=torch.randn(2, 5, 6)))
    scales = [name for name, _ in block.named_parameters() if name.endswith("scale")]
    assert scales == ["attention_residual.scale", "cross_residual.scale", "mlp_residual.scale"]
    assert not torch.equal(block(x, context), block(x, context))
    block.eval()
    assert_close(block(x, context), block(x, context))


# ── activation checkpointing, as docs/blocks.md has it ───────────────────────────────────────────────────────────────


def stack(kind, mlp, depth=3):
    torch.manual_seed(0)
    residual = partial(Residual, dropout=0.3, drop_path=0.2)
    return Transformer(
        24, depth, num_heads=3, causal=True, block=partial(kind, mlp=mlp, residual=residual)
    )


def trained(backbone):
    """Output, gradients, and how many elements were saved for the backward pass."""
    torch.manual_seed(1)
    valid = real(7, 7, 5)
    hidden = torch.randn(2, 7, 24).masked_fill(~valid[..., None], 0.0)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: saved.append(x.numel()) or x, lambda x: x
    ):
        out = backbone(Embedded(hidden, torch.zeros(2, 7, 1), valid))
        loss = (out * torch.randn_like(out)).sum()
        loss = loss + sum(
            m.aux_loss() for m in backbone.modules() if isinstance(m, MixtureOfExperts)
        )
    loss.backward()
    return out, [p.grad for p in backbone.parameters()], sum(saved)


@pytest.mark.parametrize("kind", [PreNormBlock, PostNormBlock, ParallelBlock])
@pytest.mark.parametrize("mlp", [MLP, partial(MixtureOfExperts, num_experts=3)])
def test_checkpointed_blocks_give_the_same_gradients_from_fewer_tensors(kind, mlp):
    plain, checkpointed = stack(kind, mlp), stack(kind, mlp)
    apply_activation_checkpointing(
        checkpointed, check_fn=lambda module: isinstance(module, BaseBlock)
    )
    right, gradients, saved = trained(plain)
    got, same, fewer = trained(checkpointed)
    assert_close(got, right)
    assert_close(same, gradients)
    assert fewer < saved / 5
    assert list(checkpointed.state_dict()) == list(plain.state_dict())


def test_checkpointed_blocks_support_a_cache():
    plain, checkpointed = stack(PreNormBlock, MLP).eval(), stack(PreNormBlock, MLP).eval()
    apply_activation_checkpointing(
        checkpointed, check_fn=lambda module: isinstance(module, BaseBlock)
    )
    x = Embedded(torch.randn(2, 7, 24), torch.zeros(2, 7, 1), torch.ones(2, 7, dtype=torch.bool))
    cache = checkpointed.init_cache(7)
    with torch.no_grad():
        steps = [
            checkpointed(Embedded(x.hidden[:, at], x.positions[:, at], x.valid[:, at]), cache)
            for at in (slice(0, 3), slice(3, 4), slice(4, 7))
        ]
        assert_close(torch.cat(steps, dim=1), plain(x))


@pytest.mark.parametrize("block", [PreNormBlock, PostNormBlock])
def test_a_block_without_an_mlp_is_its_attention_with_norm_and_residual(block):
    torch.manual_seed(0)
    alone = block(8, 2, mlp=None)
    x, context = torch.randn(2, 5, 8), AttentionContext(is_causal=True)
    y = alone.attention(alone.attention_norm(x) if block is PreNormBlock else x, context)
    right = x + y if block is PreNormBlock else alone.attention_norm(x + y)
    assert_close(alone(x, context), right)
    assert not [name for name, _ in alone.named_parameters() if name.startswith("mlp")]
