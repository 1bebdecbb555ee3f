"""Blocks are torch's own encoder and decoder layers, pre- and post-norm; parallel ones are their formula."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.conformance import check_backbone
from seqkit.contract import Embedded
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block, Blocks, ParallelBlock, PostNormBlock
from seqkit.layers.experts import MixtureOfExperts
from seqkit.layers.mlp import MLP
from seqkit.layers.reading import Reading, Source
from seqkit.layers.residual import Residual

PRE_OR_POST = pytest.mark.parametrize("kind", [Block, PostNormBlock])
ACTIVATION = pytest.mark.parametrize(("activation", "name"), [(nn.GELU, "gelu"), (nn.ReLU, "relu")])
CAUSAL = pytest.mark.parametrize("causal", [False, True])
PADDED = pytest.mark.parametrize("padded", [False, True])


def as_torch(block, name="gelu"):
    """Torch's layer with the block's weights. In training mode: its fast path rounds differently."""
    dim, heads = block.attention.out.in_features, block.attention.num_heads
    kind = nn.TransformerDecoderLayer if block.crosses else nn.TransformerEncoderLayer
    layer = kind(
        dim, heads, 4 * dim, dropout=0.0, activation=name, batch_first=True, norm_first=isinstance(block, Block)
    )
    pairs = [(layer.self_attn, block.attention)]
    layer.linear1, layer.linear2, layer.norm1 = block.mlp.widen, block.mlp.out, block.attention_norm
    if block.crosses:
        pairs.append((layer.multihead_attn, block.cross))
        layer.norm2, layer.norm3 = block.cross_norm, block.mlp_norm
    else:
        layer.norm2 = block.mlp_norm
    for theirs, ours in pairs:
        theirs.in_proj_weight, theirs.in_proj_bias, theirs.out_proj = ours.qkv.weight, ours.qkv.bias, ours.out
    return layer


def shaken(module):
    """Biases and norms too, which start as zeros and ones, where exchanging them would not be seen."""
    for p in module.parameters():
        nn.init.normal_(p, std=0.3)
    return module


def real(n, *lengths):
    return torch.arange(n) < torch.tensor(lengths)[:, None]


def reading_of(valid, causal):
    """Who reads whom, and torch's two masks for it, True = hidden."""
    n = valid.shape[1]
    later = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
    attend = valid[:, None, None] if later is None else valid[:, None, None] & ~later
    return Reading(attend, valid=valid, read_valid=valid), later


@PRE_OR_POST
@ACTIVATION
@CAUSAL
@PADDED
def test_a_block_is_torchs_encoder_layer(kind, activation, name, causal, padded):
    block, x = shaken(kind(21, 3, mlp=partial(MLP, activation=activation))), torch.randn(2, 5, 21)
    valid = real(5, 5, 3 if padded else 5)
    reading, later = reading_of(valid, causal)
    right = as_torch(block, name)(x, src_mask=later, src_key_padding_mask=~valid)
    assert_close(block(x, reading)[valid], right[valid], rtol=1e-5, atol=1e-5)


@PRE_OR_POST
@ACTIVATION
@CAUSAL
@PADDED
def test_a_block_that_crosses_is_torchs_decoder_layer(kind, activation, name, causal, padded):
    block = shaken(kind(21, 3, mlp=partial(MLP, activation=activation), cross=True))
    x, memory = torch.randn(2, 5, 21), torch.randn(2, 7, 21)
    valid, memory_valid = real(5, 5, 3 if padded else 5), real(7, 2 if padded else 7, 7)
    reading, later = reading_of(valid, causal)
    source = Source(memory, Reading(memory_valid[:, None, None], valid=valid, read_valid=memory_valid))
    got = block(x, reading, source=source)
    right = as_torch(block, name)(
        x, memory, tgt_mask=later, tgt_key_padding_mask=~valid, memory_key_padding_mask=~memory_valid
    )
    assert_close(got[valid], right[valid], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cross", [False, True])
def test_a_parallel_block_is_its_formula(cross):
    block = shaken(ParallelBlock(21, 3, cross=cross))
    x, memory = torch.randn(2, 5, 21), torch.randn(2, 7, 21)
    reading, _ = reading_of(real(5, 5, 3), causal=True)
    source = Source(memory, Reading(real(7, 7, 2)[:, None, None])) if cross else None
    right = x + block.attention(block.attention_norm(x), reading) + block.mlp(block.mlp_norm(x))
    if cross:
        right = right + block.cross(block.cross_norm(x), source.reading, None, memory)
    assert_close(block(x, reading, source=source), right)


def test_a_parallel_block_with_one_norm_is_timms():
    """timm's has one norm for both branches, GPT-J's order: ours with the two made equal."""
    from timm.models.vision_transformer import ParallelScalingBlock

    block, x = shaken(ParallelBlock(20, 5)), torch.randn(2, 3, 20)
    theirs = ParallelScalingBlock(20, 5)
    with torch.no_grad():
        for name in ("weight", "bias"):
            block.mlp_norm.get_parameter(name).copy_(block.attention_norm.get_parameter(name))
            theirs.in_norm.get_parameter(name).copy_(block.attention_norm.get_parameter(name))
        block.attention.qkv.bias.zero_()  # theirs has none there
        theirs.in_proj.weight.copy_(torch.cat([block.mlp.widen.weight, block.attention.qkv.weight]))
        theirs.mlp_bias.copy_(block.mlp.widen.bias)
        theirs.attn_out_proj.load_state_dict(block.attention.out.state_dict())
        theirs.mlp_out_proj.load_state_dict(block.mlp.out.state_dict())
    assert_close(block(x, Reading()), theirs(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [Block, PostNormBlock, ParallelBlock])
def test_a_transformer_of_it_keeps_the_laws(kind):
    check_backbone(lambda dim, causal: Transformer(dim, 2, num_heads=3, causal=causal, block=kind))


def test_another_part_takes_the_place_of_the_default():
    block = Block(6, 1, attention=partial(Attention, bias=False), mlp=lambda dim: nn.Identity(), norm=nn.RMSNorm)
    assert isinstance(block.attention_norm, nn.RMSNorm)
    with torch.no_grad():
        block.attention.out.weight.zero_()
        x = torch.randn(2, 3, 6)
        assert_close(block(x, Reading()), x + block.mlp_norm(x))


@pytest.mark.parametrize("kind", [Block, PostNormBlock, ParallelBlock])
def test_every_branch_has_its_own_residual(kind):
    block = kind(6, 1, residual=partial(Residual, dropout=0.5, layer_scale=0.1), cross=True)
    x, source = torch.randn(2, 3, 6), Source(torch.randn(2, 5, 6), Reading())
    scales = [name for name, _ in block.named_parameters() if name.endswith("scale")]
    assert scales == ["attention_added.scale", "cross_added.scale", "mlp_added.scale"]
    assert not torch.equal(block(x, Reading(), source=source), block(x, Reading(), source=source))
    block.eval()
    assert_close(block(x, Reading(), source=source), block(x, Reading(), source=source))


# ── activation checkpointing, as docs/blocks.md has it ───────────────────────────────────────────────────────────────


def stack(kind, mlp, depth=3):
    torch.manual_seed(0)
    residual = partial(Residual, dropout=0.3, drop_path=0.2)
    return Transformer(24, depth, num_heads=3, causal=True, block=partial(kind, mlp=mlp, residual=residual))


def trained(backbone):
    """Output, gradients, and how many numbers were kept for the way back."""
    torch.manual_seed(1)
    valid = real(7, 7, 5)
    hidden = torch.randn(2, 7, 24).masked_fill(~valid[..., None], 0.0)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        out = backbone(Embedded(hidden, torch.zeros(2, 7, 1), valid))
        loss = (out * torch.randn_like(out)).sum()
        loss = loss + sum(m.extra_loss() for m in backbone.modules() if isinstance(m, MixtureOfExperts))
    loss.backward()
    return out, [p.grad for p in backbone.parameters()], sum(kept)


@pytest.mark.parametrize("kind", [Block, PostNormBlock, ParallelBlock])
@pytest.mark.parametrize("mlp", [MLP, partial(MixtureOfExperts, num_experts=3)])
def test_checkpointed_blocks_give_the_same_gradients_from_fewer_tensors(kind, mlp):
    plain, checkpointed = stack(kind, mlp), stack(kind, mlp)
    apply_activation_checkpointing(checkpointed, check_fn=lambda part: isinstance(part, Blocks))
    right, gradients, kept = trained(plain)
    got, same, fewer = trained(checkpointed)
    assert torch.equal(got, right)
    assert_close(same, gradients)
    assert fewer < kept / 5
    assert list(checkpointed.state_dict()) == list(plain.state_dict())


def test_checkpointed_blocks_still_go_on_with_a_cache():
    plain, checkpointed = stack(Block, MLP).eval(), stack(Block, MLP).eval()
    apply_activation_checkpointing(checkpointed, check_fn=lambda part: isinstance(part, Blocks))
    x = Embedded(torch.randn(2, 7, 24), torch.zeros(2, 7, 1), torch.ones(2, 7, dtype=torch.bool))
    cache = checkpointed.init_cache(7)
    with torch.no_grad():
        parts = [
            checkpointed(Embedded(x.hidden[:, at], x.positions[:, at], x.valid[:, at]), cache)
            for at in (slice(0, 3), slice(3, 4), slice(4, 7))
        ]
        assert_close(torch.cat(parts, dim=1), plain(x))
