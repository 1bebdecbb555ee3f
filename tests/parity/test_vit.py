"""Our Transformer equals the ViT of Hugging Face and of timm, over patches and one row more, the class token.

That row holds zeros and a flag of 1, patches a flag of 0: the flag's column of the linear layer is then the class token
(less the bias), so no module is needed for it. Positions number the rows.

b images · c channels · n rows · f features · p q patch height and width
"""

from functools import partial

import pytest
import timm
import torch
import torch.nn.functional as F
from einops import rearrange
from parity import EmbeddedBackbone, assert_equal, linear, linears, randomized
from torch import nn
from transformers import ViTConfig, ViTModel

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.nn.block import PreNormBlock
from seqkit.nn.mlp import MLP
from seqkit.nn.position.absolute import Learned
from seqkit.nn.residual import Residual
from seqkit.tokenizers import Patches

DIM, DEPTH, HEADS, PATCH, SIDE = 21, 3, 3, 5, 15
PATCHES = Patches(PATCH, channels=3, mean=0.0, std=1.0)
ROWS, FEATURES = 1 + (SIDE // PATCH) ** 2, PATCHES.spec.num_features + 1


def with_class_row(image):
    """Patches [n f], and before them the row of the class token."""
    patches = F.pad(PATCHES.encode(image).content, [0, 1])
    first = F.one_hot(torch.tensor([FEATURES - 1]), FEATURES).float()
    return Tokens(torch.cat([first, patches]), rearrange(torch.arange(float(ROWS)), "n -> n 1"))


def ours(eps, ratio=4.0, layer_scale=None):
    norm = partial(nn.LayerNorm, eps=eps)
    residual = partial(Residual, layer_scale=layer_scale)
    block = partial(PreNormBlock, mlp=partial(MLP, ratio=ratio), norm=norm, residual=residual)
    backbone = Transformer(DIM, DEPTH, num_heads=HEADS, block=block, norm=norm)
    return EmbeddedBackbone(TokenSpec(num_features=FEATURES), backbone, partial(Learned, sizes=[ROWS]))


def embedding(convolution, class_token, positions):
    """The first layer: a patch convolution and a class token as one linear layer over [patch, flag]."""
    kernel, bias = rearrange(convolution.weight, "d c p q -> d (c p q)"), convolution.bias
    flag = rearrange(class_token, "1 1 d -> d 1") - rearrange(bias, "d -> d 1")
    return {
        "embedder.content.weight": torch.cat([kernel, flag], dim=1),
        "embedder.content.bias": bias,
        "embedder.position.tables.0": rearrange(positions, "1 n d -> n d"),
    }


@pytest.fixture
def images():
    return torch.rand(2, 3, SIDE, SIDE)


def test_hidden_states_of_hugging_faces_vit(images):
    config = ViTConfig(
        hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=35, image_size=SIDE,
        patch_size=PATCH, attn_implementation="eager",
    )  # fmt: skip
    theirs, model = randomized(ViTModel(config, add_pooling_layer=False)), ours(config.layer_norm_eps, ratio=35 / DIM)
    first = theirs.embeddings
    mapped = embedding(first.patch_embeddings.projection, first.cls_token, first.position_embeddings)
    for i, layer in enumerate(theirs.layers):
        name, attention = f"backbone.blocks.{i}", layer.attention
        qkv = [attention.q_proj, attention.k_proj, attention.v_proj]
        mapped |= linears(qkv, f"{name}.attention.qkv_proj") | linear(attention.o_proj, f"{name}.attention.out_proj")
        mapped |= linear(layer.mlp.fc1, f"{name}.mlp.up_proj") | linear(layer.mlp.fc2, f"{name}.mlp.down_proj")
        mapped |= linear(layer.layernorm_before, f"{name}.attention_norm")
        mapped |= linear(layer.layernorm_after, f"{name}.mlp_norm")
    model.load_state_dict(mapped | linear(theirs.layernorm, "backbone.norm"))
    with torch.no_grad():
        right = theirs(images).last_hidden_state
        assert_equal(model(TokenBatch.collate([with_class_row(image) for image in images])), right)


@pytest.mark.parametrize("layer_scale", [None, 0.5])
def test_features_and_logits_of_timms_vit(images, layer_scale):
    theirs = randomized(
        timm.models.VisionTransformer(
            SIDE, PATCH, num_classes=7, embed_dim=DIM, depth=DEPTH, num_heads=HEADS, init_values=layer_scale
        )
    )
    model = ours(theirs.norm.eps, layer_scale=layer_scale)
    mapped = embedding(theirs.patch_embed.proj, theirs.cls_token, theirs.pos_embed)
    for i, block in enumerate(theirs.blocks):
        name = f"backbone.blocks.{i}"
        mapped |= linear(block.attn.qkv, f"{name}.attention.qkv_proj") | linear(
            block.attn.proj, f"{name}.attention.out_proj"
        )
        mapped |= linear(block.mlp.fc1, f"{name}.mlp.up_proj") | linear(block.mlp.fc2, f"{name}.mlp.down_proj")
        mapped |= linear(block.norm1, f"{name}.attention_norm") | linear(block.norm2, f"{name}.mlp_norm")
        if layer_scale is not None:
            mapped[f"{name}.attention_residual.scale"] = block.ls1.gamma
            mapped[f"{name}.mlp_residual.scale"] = block.ls2.gamma
    model.load_state_dict(mapped | linear(theirs.norm, "backbone.norm"))
    with torch.no_grad():
        hidden = model(TokenBatch.collate([with_class_row(image) for image in images]))
        assert_equal(hidden, theirs.forward_features(images))
        assert_equal(theirs.head(hidden[:, 0]), theirs(images))
