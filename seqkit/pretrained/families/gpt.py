"""GPT-2 (transformers 5.23)."""

from __future__ import annotations

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import ACTIVATIONS, Family, Head, Settings, depth_of
from seqkit.pretrained.rows import Rows, Transposed, alias, layers, module, tensor


def _gpt2(config: ConfigFile) -> Settings:
    config.must_be(True, "scale_attn_weights", "tie_word_embeddings")
    config.must_be(
        False, "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"
    )
    dim = config.size("n_embd", 768)
    norm = {"type": "LayerNorm", "eps": config.positive("layer_norm_epsilon", 1e-5)}
    embeddings, branches, attention = (
        config.number(f"{name}_pdrop", 0.1) for name in ("embd", "resid", "attn")
    )
    inner = config.get("n_inner") or 4 * dim
    block = {
        "type": "PreNormBlock", "norm": norm,
        "attention": {"mechanism": {"type": "ScaledDotProductAttention", "dropout": attention}},
        "mlp": {"ratio": inner / dim, "activation": config.one_of("activation_function", ACTIVATIONS, "gelu_new")},
    }  # fmt: skip
    return {
        "position": {"type": "Learned", "sizes": [config.size("n_positions", 1024)]},
        "dropout": embeddings,
        "backbone": {
            "type": "Transformer", "dim": dim, "depth": depth_of(config, "n_layer", 12),
            "num_heads": config.size("n_head", 12), "causal": True, "norm": norm, "dropout": branches, "block": block,
        },
    }  # fmt: skip


def _gpt2_table(config: ConfigFile) -> Rows:
    layer = [
        *module("attention_norm", "ln_1"),
        *module("attention.qkv_proj", "attn.c_attn", whole=Transposed()),
        *module("attention.out_proj", "attn.c_proj", whole=Transposed()),
        *module("mlp_norm", "ln_2"),
        *module("mlp.up_proj", "mlp.c_fc", whole=Transposed()),
        *module("mlp.down_proj", "mlp.c_proj", whole=Transposed()),
    ]
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
