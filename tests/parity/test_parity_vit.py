"""ViT of Hugging Face and of timm is a Transformer of ours over patches and one row more, the class token.

The row holds zeros and a flag of 1, patches a flag of 0: the flag's column of the linear layer is then the class token
(less the bias), so no module is needed for it. Positions number the rows.

b images · c channels · n rows · f features · p q patch height and width
"""

from functools import partial

import pytest
import timm
import torch
import torch.nn.functional as F
from einops import rearrange
from parity import Reader, assert_equal, linear, linears, shaken
from torch import nn
from transformers import ViTConfig, ViTModel

from seqkit.backbones import Transformer
from seqkit.contract import TokenBatch, Tokens, TokenSpec
from seqkit.layers.block import Block
from seqkit.layers.mlp import MLP
from seqkit.layers.position import Learned
from seqkit.layers.residual import Residual
from seqkit.tokenizers import Patches

DIM, DEPTH, HEADS, PATCH, SIDE = 21, 3, 3, 5, 15
CUT = Patches(PATCH, channels=3, mean=0.0, std=1.0)
ROWS, FEATURES = 1 + (SIDE // PATCH) ** 2, CUT.spec.num_features + 1


def with_class_row(image):
    """Patches [n f], and before them the row that stands for the class token."""
    patches = F.pad(CUT.encode(image).content, [0, 1])
    first = F.one_hot(torch.tensor([FEATURES - 1]), FEATURES).float()
    return Tokens(torch.cat([first, patches]), rearrange(torch.arange(float(ROWS)), "n -> n 1"))


def ours(eps, ratio=4.0, layer_scale=None):
    norm = partial(nn.LayerNorm, eps=eps)
    residual = partial(Residual, layer_scale=layer_scale)
    block = partial(Block, mlp=partial(MLP, ratio=ratio), norm=norm, residual=residual)
    backbone = Transformer(DIM, DEPTH, num_heads=HEADS, block=block, norm=norm)
    return Reader(TokenSpec(num_features=FEATURES), backbone, partial(Learned, sizes=[ROWS]))


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


def test_hidden_vectors_of_hugging_faces_vit(images):
    config = ViTConfig(
        hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=35, image_size=SIDE,
        patch_size=PATCH, attn_implementation="eager",
    )  # fmt: skip
    theirs, reader = shaken(ViTModel(config, add_pooling_layer=False)), ours(config.layer_norm_eps, ratio=35 / DIM)
    first = theirs.embeddings
    mapped = embedding(first.patch_embeddings.projection, first.cls_token, first.position_embeddings)
    for i, layer in enumerate(theirs.layers):
        name, attention = f"backbone.blocks.{i}", layer.attention
        asks = [attention.q_proj, attention.k_proj, attention.v_proj]
        mapped |= linears(asks, f"{name}.attention.qkv") | linear(attention.o_proj, f"{name}.attention.out")
        mapped |= linear(layer.mlp.fc1, f"{name}.mlp.widen") | linear(layer.mlp.fc2, f"{name}.mlp.out")
        mapped |= linear(layer.layernorm_before, f"{name}.attention_norm")
        mapped |= linear(layer.layernorm_after, f"{name}.mlp_norm")
    reader.load_state_dict(mapped | linear(theirs.layernorm, "backbone.norm"))
    with torch.no_grad():
        right = theirs(images).last_hidden_state
        assert_equal(reader(TokenBatch.collate([with_class_row(image) for image in images])), right)


@pytest.mark.parametrize("layer_scale", [None, 0.5])
def test_features_and_scores_of_timms_vit(images, layer_scale):
    theirs = shaken(
        timm.models.VisionTransformer(
            SIDE, PATCH, num_classes=7, embed_dim=DIM, depth=DEPTH, num_heads=HEADS, init_values=layer_scale
        )
    )
    reader = ours(theirs.norm.eps, layer_scale=layer_scale)
    mapped = embedding(theirs.patch_embed.proj, theirs.cls_token, theirs.pos_embed)
    for i, block in enumerate(theirs.blocks):
        name = f"backbone.blocks.{i}"
        mapped |= linear(block.attn.qkv, f"{name}.attention.qkv") | linear(block.attn.proj, f"{name}.attention.out")
        mapped |= linear(block.mlp.fc1, f"{name}.mlp.widen") | linear(block.mlp.fc2, f"{name}.mlp.out")
        mapped |= linear(block.norm1, f"{name}.attention_norm") | linear(block.norm2, f"{name}.mlp_norm")
        if layer_scale is not None:
            mapped[f"{name}.attention_added.scale"] = block.ls1.gamma
            mapped[f"{name}.mlp_added.scale"] = block.ls2.gamma
    reader.load_state_dict(mapped | linear(theirs.norm, "backbone.norm"))
    with torch.no_grad():
        hidden = reader(TokenBatch.collate([with_class_row(image) for image in images]))
        assert_equal(hidden, theirs.forward_features(images))
        assert_equal(theirs.head(hidden[:, 0]), theirs(images))
