"""Our Model equals the ViT of Hugging Face and of timm, from the raw image to the logits.

The image goes through our tokenizer here, and through their image processor or transform there.
"""

from functools import partial

import numpy as np
import pytest
import timm
import torch
from einops import rearrange
from parity import assert_equal, linear, randomized
from PIL import Image
from timm.data import create_transform
from torch import nn
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil
from vision import first_layer, vit_layer

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.nn.block import MLP, PreNormBlock, Residual
from seqkit.nn.position.absolute import Learned
from seqkit.objectives import Classify
from seqkit.tokenizers import Patches
from seqkit.tokenizers.resize import Resize

DIM, DEPTH, HEADS, PATCH, SIDE, NUM_CLASSES = 21, 3, 3, 5, 15, 7
NUM_TOKENS = 1 + (SIDE // PATCH) ** 2


def patches(resize):
    return Patches(PATCH, channels=3, resize=resize, num_prefix_tokens=1, positions="index")


def model(tokenizer, eps, ratio=4.0, layer_scale=None):
    """A classifier by the class token."""
    objective = Classify(pool="first")
    objective.fit([*range(NUM_CLASSES)], None)
    norm = partial(nn.LayerNorm, eps=eps)
    residual = partial(Residual, layer_scale=layer_scale)
    block = partial(PreNormBlock, mlp=partial(MLP, ratio=ratio), norm=norm, residual=residual)
    backbone = Transformer(DIM, DEPTH, num_heads=HEADS, block=block, norm=norm)
    return Model(
        tokenizer.spec, backbone, objective, position=partial(Learned, sizes=[NUM_TOKENS])
    ).eval()


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    shapes = [(17, 23, 3), (31, 19, 3), (15, 15, 3), (53, 67, 3)]
    return [Image.fromarray(rng.integers(0, 256, shape, np.uint8)) for shape in shapes]


def test_logits_of_hugging_faces_vit(images):
    config = ViTConfig(
        hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=35, image_size=SIDE,
        patch_size=PATCH, num_labels=NUM_CLASSES, attn_implementation="eager",
    )  # fmt: skip
    theirs, tokenizer = (
        randomized(ViTForImageClassification(config), std=0.2),
        patches((SIDE, SIDE)),
    )
    ours = model(tokenizer, config.layer_norm_eps, ratio=35 / DIM)
    left = theirs.state_dict()
    first = "vit.embeddings.patch_embeddings.projection"
    before = [left.pop("vit.embeddings.cls_token")]
    mapped = first_layer(left.pop(f"{first}.weight"), left.pop(f"{first}.bias"), before)
    mapped["embedder.position.tables.0"] = rearrange(
        left.pop("vit.embeddings.position_embeddings"), "1 n d -> n d"
    )
    for i in range(DEPTH):
        mapped |= vit_layer(left, f"vit.layers.{i}", f"backbone.blocks.{i}")
    mapped |= linear(theirs.vit.layernorm, "backbone.norm") | linear(
        theirs.classifier, "head.linear"
    )
    ours.load_state_dict(mapped)
    processor = ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})
    with torch.no_grad():
        got = ours(TokenBatch.collate([tokenizer.encode(image) for image in images]))
        assert_equal(got, theirs(torch.from_numpy(np.stack(processor(images).pixel_values))).logits)


@pytest.mark.parametrize("layer_scale", [None, 0.5])
def test_logits_of_timms_vit(images, layer_scale):
    theirs = randomized(
        timm.models.VisionTransformer(
            SIDE,
            PATCH,
            num_classes=NUM_CLASSES,
            embed_dim=DIM,
            depth=DEPTH,
            num_heads=HEADS,
            init_values=layer_scale,
        )
    )
    tokenizer = patches(Resize(16, (SIDE, SIDE), "bicubic", "round"))
    ours = model(tokenizer, theirs.norm.eps, layer_scale=layer_scale)
    mapped = first_layer(
        theirs.patch_embed.proj.weight, theirs.patch_embed.proj.bias, [theirs.cls_token]
    )
    mapped["embedder.position.tables.0"] = rearrange(theirs.pos_embed, "1 n d -> n d")
    for i, block in enumerate(theirs.blocks):
        name = f"backbone.blocks.{i}"
        mapped |= linear(block.attn.qkv, f"{name}.attention.qkv_proj")
        mapped |= linear(block.attn.proj, f"{name}.attention.out_proj")
        mapped |= linear(block.mlp.fc1, f"{name}.mlp.up_proj") | linear(
            block.mlp.fc2, f"{name}.mlp.down_proj"
        )
        mapped |= linear(block.norm1, f"{name}.attention_norm") | linear(
            block.norm2, f"{name}.mlp_norm"
        )
        if layer_scale is not None:
            mapped[f"{name}.attention_residual.scale"] = block.ls1.gamma
            mapped[f"{name}.mlp_residual.scale"] = block.ls2.gamma
    ours.load_state_dict(
        mapped | linear(theirs.norm, "backbone.norm") | linear(theirs.head, "head.linear")
    )
    halves = (0.5, 0.5, 0.5)
    transform = create_transform(
        (3, SIDE, SIDE), interpolation="bicubic", crop_pct=0.9, mean=halves, std=halves
    )
    with torch.no_grad():
        got = ours(TokenBatch.collate([tokenizer.encode(image) for image in images]))
        assert_equal(got, theirs(torch.stack([transform(image) for image in images])))
