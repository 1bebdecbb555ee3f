"""Weights of Hugging Face's models under our names, shared by the families that are built alike.

A mapping takes weights by their names, and takes each out, so that what is left was not mapped. It is linear: gradients
go the same way.

h heads · c channels of one head · r channel pairs
"""

import torch
from einops import rearrange

LLAMA_NORMS = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
"""Of a pre-norm layer: our names, and theirs."""


def in_pairs(x, head_dim, rotated=None):
    """Rows [(h c) ...] of a projection, bias or norm, whose channels are rotated in pairs (i, i + r), so that the pairs
    are (2 i, 2 i + 1).

    rotated: channels of a head, from the first on, that are rotated at all; None: all.
    """
    heads = rearrange(x, "(h c) ... -> h c ...", c=head_dim)
    rotated = head_dim if rotated is None else rotated
    turned = rearrange(heads[:, :rotated], "h (two r) ... -> h (r two) ...", two=2)
    return rearrange(torch.cat([turned, heads[:, rotated:]], dim=1), "h c ... -> (h c) ...")


def take(theirs, names, name, change=None):
    """One or several layers over the same input, as one under `name`, their outputs side by side: weight, and bias if
    they have one. change: function of the first ones' rows, one or None for each."""
    change = change or [None] * len(names)
    mapped = {}
    for kind in ("weight", "bias"):
        if f"{names[0]}.{kind}" in theirs:
            rows = [theirs.pop(f"{x}.{kind}") for x in names]
            mapped[f"{name}.{kind}"] = torch.cat(
                [x if f is None else f(x) for x, f in zip(rows, change)]
            )
    return mapped


def rotary_attention(theirs, layer, name, head_dim):
    """Attention of `q_proj`, `k_proj`, `v_proj`, `o_proj` whose queries and keys are rotated, with or without norms of
    theirs."""

    def pair(x):
        return in_pairs(x, head_dim)

    qkv = [f"{layer}.{kind}_proj" for kind in "qkv"]
    mapped = take(theirs, qkv, f"{name}.qkv_proj", [pair, pair, None])
    mapped |= take(theirs, [f"{layer}.o_proj"], f"{name}.out_proj")
    mapped |= take(theirs, [f"{layer}.q_norm"], f"{name}.query_norm", [pair])
    return mapped | take(theirs, [f"{layer}.k_norm"], f"{name}.key_norm", [pair])


def gated_mlp(theirs, layer, name):
    """Gate and up as one, and down."""
    mapped = take(theirs, [f"{layer}.gate_proj", f"{layer}.up_proj"], f"{name}.gate_up_proj")
    return mapped | take(theirs, [f"{layer}.down_proj"], f"{name}.down_proj")


def llama_layer(theirs, layer, name, head_dim, norms=LLAMA_NORMS):
    """A layer of LLaMA or one of its like. norms: our names, and theirs."""
    mapped = rotary_attention(theirs, f"{layer}.self_attn", f"{name}.attention", head_dim)
    mapped |= gated_mlp(theirs, f"{layer}.mlp", f"{name}.mlp")
    for ours, norm in norms.items():
        mapped |= take(theirs, [f"{layer}.{norm}"], f"{name}.{ours}")
    return mapped


def llama_like(theirs, head_dim, norms=LLAMA_NORMS):
    """All of a language model like LLaMA, as state dict of our `Model`; a head without weights is tied."""
    left = dict(theirs)
    table = left.pop("model.embed_tokens.weight")
    mapped = {"embedder.content.weight": table}
    mapped |= take(left, ["lm_head"], "head.linear") or {"head.table.weight": table}
    for i in range(num_layers(left)):
        mapped |= llama_layer(left, f"model.layers.{i}", f"backbone.blocks.{i}", head_dim, norms)
    mapped |= take(left, ["model.norm"], "backbone.norm")
    assert not left, f"not mapped: {sorted(left)}"
    return mapped


def num_layers(theirs):
    """How many `model.layers` there are."""
    return 1 + max(int(name.split(".")[2]) for name in theirs if name.startswith("model.layers."))
