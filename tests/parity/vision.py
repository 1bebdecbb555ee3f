"""Images as tokens of features, for the families like ViT: patches, and before them those that are learned; weights.

n patches · f features of a patch · k tokens before them · d width · c channels · p q patch height and width
"""

import torch
from einops import rearrange
from weights import take

from seqkit.interfaces import TokenBatch, Tokens, TokenSpec


def spec(num_features, num_before, *, num_axes=1):
    """The spec of the tokens that `with_tokens_before` makes of patches with that many features."""
    return TokenSpec(
        num_features=num_before + num_features, num_axes=num_axes, num_prefix_tokens=num_before
    )


def with_tokens_before(patches, num_before):
    """Content [k+n k+f] of patches [n f]."""
    return torch.block_diag(torch.eye(num_before), patches)


def image_batch(images, patch, num_before, *, positions=None):
    """Images [b c H W] as patches, with that many tokens before them; positions [k+n p]; None: the tokens' numbers."""
    examples = []
    for image in images:
        patches = rearrange(image, "c (y p) (x q) -> (y x) (c p q)", p=patch, q=patch)
        content = with_tokens_before(patches, num_before)
        numbers = rearrange(torch.arange(float(len(content))), "n -> n 1")
        examples.append(Tokens(content, numbers if positions is None else positions))
    return TokenBatch.collate(examples)


def first_layer(kernel, bias=None, before=()):
    """Weights of the first layer. kernel, bias: of the patch convolution. before: the learned tokens, [... d] each."""
    name = "embedder.content.projection" if before else "embedder.content"
    mapped = {f"{name}.weight": rearrange(kernel, "d c p q -> d (c p q)")}
    mapped[f"{name}.bias"] = torch.zeros(len(kernel)) if bias is None else bias
    if before:
        mapped["embedder.content.prefix"] = torch.cat(
            [rearrange(x, "... d -> (...) d") for x in before]
        )
    return mapped


def vit_layer(
    theirs,
    layer,
    name,
    *,
    attention="attention",
    out="o_proj",
    norms=("layernorm_before", "layernorm_after"),
):
    """A layer with `q_proj`, `k_proj`, `v_proj`, `fc1` and `fc2`. attention, out, norms: their names of these."""
    mapped = take(
        theirs, [f"{layer}.{attention}.{kind}_proj" for kind in "qkv"], f"{name}.attention.qkv_proj"
    )
    names = {
        "attention.out_proj": f"{attention}.{out}",
        "mlp.up_proj": "mlp.fc1",
        "mlp.down_proj": "mlp.fc2",
    }
    names |= {"attention_norm": norms[0], "mlp_norm": norms[1]}
    for ours, other in names.items():
        mapped |= take(theirs, [f"{layer}.{other}"], f"{name}.{ours}")
    return mapped
