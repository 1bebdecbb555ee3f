"""Images as tokens of features, for the families like ViT: patches, and before them those that are learned; weights.

The tokens before the patches (class, distillation, register) hold a flag each and no pixels; patches share a flag. The
flags' columns of the linear layer are then those tokens and the patches' bias, so no module is needed for them.

n patches · f features of a patch · k tokens before them · d width · c channels · p q patch height and width
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn
from weights import take

from seqkit.interfaces import TokenBatch, Tokens, TokenSpec


def spec(num_features, num_before, *, bias=True, num_axes=1):
    """The spec of the tokens that `with_tokens_before` makes of patches with that many features."""
    width = num_before + bias + num_features
    return TokenSpec(num_features=width, num_axes=num_axes, embedder=lambda dim: nn.Linear(width, dim, bias=False))


def with_tokens_before(patches, num_before, *, bias=True):
    """Content [k+n k+1+f] of patches [n f]. bias: False: patches have no flag."""
    return torch.block_diag(torch.eye(num_before), F.pad(patches, [int(bias), 0], value=1.0))


def image_batch(images, patch, num_before, *, bias=True, positions=None):
    """Images [b c H W] as patches, with that many tokens before them; positions [k+n p]; None: the tokens' numbers."""
    examples = []
    for image in images:
        patches = rearrange(image, "c (y p) (x q) -> (y x) (c p q)", p=patch, q=patch)
        content = with_tokens_before(patches, num_before, bias=bias)
        numbers = rearrange(torch.arange(float(len(content))), "n -> n 1")
        examples.append(Tokens(content, numbers if positions is None else positions))
    return TokenBatch.collate(examples)


def first_layer(kernel, bias=None, before=()):
    """The linear layer over such tokens. kernel: of the patch convolution. before: the learned tokens, [... d] each."""
    flags = [rearrange(x, "... d -> (...) d") for x in (*before, bias) if x is not None]
    columns = [rearrange(x, "k d -> d k") for x in flags]
    return {"embedder.content.weight": torch.cat([*columns, rearrange(kernel, "d c p q -> d (c p q)")], dim=1)}


def vit_layer(
    theirs, layer, name, *, attention="attention", out="o_proj", norms=("layernorm_before", "layernorm_after")
):
    """A layer with `q_proj`, `k_proj`, `v_proj`, `fc1` and `fc2`. attention, out, norms: their names of these."""
    mapped = take(theirs, [f"{layer}.{attention}.{kind}_proj" for kind in "qkv"], f"{name}.attention.qkv_proj")
    names = {"attention.out_proj": f"{attention}.{out}", "mlp.up_proj": "mlp.fc1", "mlp.down_proj": "mlp.fc2"}
    names |= {"attention_norm": norms[0], "mlp_norm": norms[1]}
    for ours, other in names.items():
        mapped |= take(theirs, [f"{layer}.{other}"], f"{name}.{ours}")
    return mapped
