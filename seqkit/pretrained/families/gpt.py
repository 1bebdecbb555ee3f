"""GPT-2 (transformers 5.23)."""

from __future__ import annotations

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import (
    ACTIVATIONS,
    Family,
    Head,
    Settings,
    block,
    depth_of,
    layer_norm,
    learned,
)
from seqkit.pretrained.rows import Rows, Transposed, alias, layers, module, modules, tensor


def _gpt2(config: ConfigFile) -> Settings:
    config.must_be(True, "scale_attn_weights", "tie_word_embeddings")
    config.must_be(
        False, "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"
    )
    dim = config.size("n_embd", 768)
    norm = layer_norm(config, 1e-5, "layer_norm_epsilon")
    mlp = {
        "ratio": (config.get("n_inner") or 4 * dim) / dim,
        "activation": config.one_of("activation_function", ACTIVATIONS, "gelu_new"),
    }
    return {
        "position": learned(config.size("n_positions", 1024)),
        "dropout": config.number("embd_pdrop", 0.1),
        "backbone": {
            "type": "Transformer",
            "dim": dim,
            "depth": depth_of(config, "n_layer", 12),
            "num_heads": config.size("n_head", 12),
            "causal": True,
            "norm": norm,
            "dropout": config.number("resid_pdrop", 0.1),
            "block": block("PreNormBlock", norm, mlp, config.number("attn_pdrop", 0.1)),
        },
    }


def _gpt2_table(config: ConfigFile) -> Rows:
    layer = modules({"attention_norm": "ln_1", "mlp_norm": "ln_2"})
    for ours, theirs in (
        ("attention.qkv_proj", "attn.c_attn"),
        ("attention.out_proj", "attn.c_proj"),
        ("mlp.up_proj", "mlp.c_fc"),
        ("mlp.down_proj", "mlp.c_proj"),
    ):
        layer += module(ours, theirs, whole=Transposed())
    return [
        *tensor("embedder.content.weight", "wte.weight"),
        *tensor("embedder.position.tables.0", "wpe.weight"),
        *layers(depth_of(config, "n_layer", 12), "backbone.blocks.{}.", "h.{}.", layer),
        *module("backbone.norm", "ln_f"),
    ]


TIED = Head(
    ("LMHeadModel", "DoubleHeadsModel", "ForCausalLM"),
    lambda _: {"type": "NextToken", "tied": True},
    lambda _: alias("embedder.content.weight", "lm_head.weight"),
)
GPT2 = Family(
    _gpt2,
    _gpt2_table,
    "transformer.",
    {"NextToken": TIED},
    ("multiple_choice_head.", "score.", "classifier."),
)
