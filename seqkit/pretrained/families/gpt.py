"""GPT-2, GPT-NeoX, OPT, BLOOM and Phi (transformers 5.23): decoders with LayerNorm and MLPs of two layers with biases.

h heads · c channels of one head
"""

from __future__ import annotations

from typing import Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import ACTIVATIONS, TANH, Family, Head, Settings, depth_of, rotary_settings
from seqkit.pretrained.rows import (
    InTurn,
    Pairs,
    Rearranged,
    Rows,
    Transposed,
    alias,
    below,
    layers,
    module,
    tensor,
)


def decoder(
    sizes: tuple[int, int, int, int],
    norm: Settings,
    dropouts: tuple[float, float, float],
    activation: Any,
    attention: Settings | None = None,
    **others: Any,
) -> Settings:
    """Section `model` of a decoder.

    sizes: width, layers, heads and inner width. dropouts: of embeddings, branches and attention. attention: other
    settings of it. others: other settings of the backbone, of which `block` is added to the block's.
    """
    dim, depth, heads, inner = sizes
    embeddings, branches, of_attention = dropouts
    mechanism = {"type": "ScaledDotProductAttention", "dropout": of_attention}
    block = {
        "type": "PreNormBlock", "norm": norm, "attention": {**(attention or {}), "mechanism": mechanism},
        "mlp": {"ratio": inner / dim, "activation": activation}, **others.pop("block", {}),
    }  # fmt: skip
    return {
        "position": "NoPosition",
        "dropout": embeddings,
        "backbone": {
            "type": "Transformer", "dim": dim, "depth": depth, "num_heads": heads, "causal": True, "norm": norm,
            "dropout": branches, "block": block, **others,
        },
    }  # fmt: skip


def _dropouts(config: ConfigFile, default: float, *keys: str) -> tuple[float, float, float]:
    """Dropout of embeddings, branches and attention."""
    embeddings, branches, attention = (config.number(key, default) for key in keys)
    return embeddings, branches, attention


# ── GPT-2 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _gpt2(config: ConfigFile) -> Settings:
    config.must_be(True, "scale_attn_weights", "tie_word_embeddings")
    config.must_be(False, "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention")
    dim, norm = config.size("n_embd", 768), {"type": "LayerNorm", "eps": config.number("layer_norm_epsilon", 1e-5)}
    inner = config.get("n_inner") or 4 * dim
    sizes = (dim, depth_of(config, "n_layer", 12), config.size("n_head", 12), inner)
    activation = config.one_of("activation_function", ACTIVATIONS, "gelu_new")
    position = {"type": "Learned", "sizes": [config.size("n_positions", 1024)]}
    dropouts = _dropouts(config, 0.1, "embd_pdrop", "resid_pdrop", "attn_pdrop")
    return {**decoder(sizes, norm, dropouts, activation), "position": position}


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
    _gpt2, _gpt2_table, "transformer.", {"NextToken": TIED}, ("multiple_choice_head.", "score.", "classifier.")
)

# ── GPT-NeoX and Phi: attention and MLP side by side, part of each head turned ────────────────────────────────────────


def _sizes(config: ConfigFile) -> tuple[int, int, int, int]:
    return (
        config.size("hidden_size"), depth_of(config), config.size("num_attention_heads"),
        config.size("intermediate_size"),
    )  # fmt: skip


def _neox(config: ConfigFile) -> Settings:
    config.get("max_position_embeddings")  # rotary positions have no table
    config.get("rope_scaling")
    norm = {"type": "LayerNorm", "eps": config.number("layer_norm_eps", 1e-5)}
    parallel = config.get("use_parallel_residual", True) is True
    return decoder(
        _sizes(config), norm, _dropouts(config, 0.0, "hidden_dropout", "hidden_dropout", "attention_dropout"),
        config.one_of("hidden_act", ACTIVATIONS, "gelu"), {"bias": config.get("attention_bias", True) is True},
        position=rotary_settings(config, share=0.25), block={"type": "ParallelBlock"} if parallel else {},
    )  # fmt: skip


def _turned(config: ConfigFile, share: float) -> tuple[int, int, int]:
    """Heads, their channels, and how many of these are turned."""
    _, _, heads, _ = _sizes(config)
    head_dim = config.size("hidden_size") // heads
    return heads, head_dim, int(head_dim * rotary_settings(config, share=share).get("share", 1.0))


def _neox_table(config: ConfigFile) -> Rows:
    heads, head_dim, turned = _turned(config, 0.25)
    sort = Rearranged("(h three c) ... -> (three h c) ...", {"h": heads, "three": 3, "c": head_dim})
    layer = [
        *module("attention_norm", "input_layernorm"),
        *module(
            "attention.qkv_proj", "attention.query_key_value", whole=InTurn((sort, Pairs(head_dim, turned, 2 * heads)))
        ),
        *module("attention.out_proj", "attention.dense"),
        *module("mlp_norm", "post_attention_layernorm"),
        *module("mlp.up_proj", "mlp.dense_h_to_4h"),
        *module("mlp.down_proj", "mlp.dense_4h_to_h"),
    ]
    return [
        *tensor("embedder.content.weight", "embed_in.weight"),
        *layers(depth_of(config), "backbone.blocks.{}.", "layers.{}.", layer),
        *module("backbone.norm", "final_layer_norm"),
    ]


def _untied(head: str, *, bias: bool) -> Head:
    """A linear layer of its own. head: its name."""

    def objective(config: ConfigFile) -> Settings:
        config.must_be(False, "tie_word_embeddings")
        return {"type": "NextToken", "tied": False, "bias": bias}

    return Head(("ForCausalLM",), objective, lambda _: module("head.linear", head))


NEOX = Family(
    _neox, _neox_table, "gpt_neox.", {"NextToken": _untied("embed_out", bias=False)},
    ("score.", "embed_out.", "qa_outputs.", "classifier."),
)  # fmt: skip


def _phi(config: ConfigFile) -> Settings:
    config.get("max_position_embeddings")  # rotary positions have no table
    config.get("rope_scaling")
    config.must_be(False, "qk_layernorm")
    norm = {"type": "LayerNorm", "eps": config.number("layer_norm_eps", 1e-5)}
    _, _, heads, _ = _sizes(config)
    return decoder(
        _sizes(config), norm, _dropouts(config, 0.0, "embd_pdrop", "resid_pdrop", "attention_dropout"),
        config.one_of("hidden_act", ACTIVATIONS, "gelu_new"),
        {"num_kv_heads": config.get("num_key_value_heads") or heads}, position=rotary_settings(config, share=0.5),
        block={"type": "ParallelBlock", "shared_norm": True},
    )  # fmt: skip


def _phi_table(config: ConfigFile) -> Rows:
    heads, head_dim, turned = _turned(config, 0.5)
    kv, pairs = (config.get("num_key_value_heads") or heads) * head_dim, Pairs(head_dim, turned)
    layer = [
        *module("attention_norm", "input_layernorm"),
        *module("mlp_norm", "input_layernorm"),
        *module(
            "attention.qkv_proj", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
            sizes=(heads * head_dim, kv, kv), changes=(pairs, pairs, None),
        ),
        *module("attention.out_proj", "self_attn.dense"),
        *module("mlp.up_proj", "mlp.fc1"),
        *module("mlp.down_proj", "mlp.fc2"),
    ]  # fmt: skip
    return [
        *tensor("embedder.content.weight", "embed_tokens.weight"),
        *layers(depth_of(config), "backbone.blocks.{}.", "layers.{}.", layer),
        *module("backbone.norm", "final_layernorm"),
    ]


PHI = Family(_phi, _phi_table, "model.", {"NextToken": _untied("lm_head", bias=True)}, ("score.", "lm_head."))

# ── OPT ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

OPT_FIRST = 2
"""Row of the first token in the table of positions."""


def _opt(config: ConfigFile) -> Settings:
    config.must_be(True, "do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine", "tie_word_embeddings")
    config.must_be(False, "_remove_final_layer_norm")
    config.must_be(0.0, "layerdrop", "activation_dropout")
    config.get("init_std")
    dim, branches = config.size("hidden_size", 768), config.number("dropout", 0.1)
    config.must_be(dim, "word_embed_proj_dim")
    sizes = (dim, depth_of(config, default=12), config.size("num_attention_heads", 12), config.size("ffn_dim", 3072))
    norm = {"type": "LayerNorm", "eps": 1e-5}
    # theirs has no dropout of the embeddings, and none within the MLP
    found = decoder(
        sizes, norm, (0.0, branches, config.number("attention_dropout", 0.0)),
        config.one_of("activation_function", ACTIVATIONS, "relu"),
    )  # fmt: skip
    rows = config.size("max_position_embeddings", 2048) + OPT_FIRST
    return {**found, "position": {"type": "Learned", "sizes": [rows], "first": OPT_FIRST}}


def _opt_table(config: ConfigFile) -> Rows:
    layer = [
        *module("attention_norm", "self_attn_layer_norm"),
        *module("attention.qkv_proj", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        *module("attention.out_proj", "self_attn.out_proj"),
        *module("mlp_norm", "final_layer_norm"),
        *module("mlp.up_proj", "fc1"),
        *module("mlp.down_proj", "fc2"),
    ]
    rows = [
        *tensor("embedder.content.weight", "embed_tokens.weight"),
        *tensor("embedder.position.tables.0", "embed_positions.weight"),
        *layers(depth_of(config, default=12), "backbone.blocks.{}.", "layers.{}.", layer),
        *module("backbone.norm", "final_layer_norm"),
    ]
    return below(rows, "", "decoder.")


OPT = Family(_opt, _opt_table, "model.", {"NextToken": TIED}, ("score.", "qa_outputs."))

# ── BLOOM ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _bloom(config: ConfigFile) -> Settings:
    config.must_be(False, "apply_residual_connection_post_layernorm", "slow_but_exact")
    config.must_be(True, "tie_word_embeddings")
    for unused in (
        "seq_length",
        "offset_alibi",
        "masked_softmax_fusion",
        "bias_dropout_fusion",
        "attention_softmax_in_fp32",
        "skip_bias_add",
        "skip_bias_add_qkv",
        "unk_token_id",
        "n_inner",
    ):
        config.get(unused)  # of the code that trained it
    dim, norm = _bloom_dim(config), {"type": "LayerNorm", "eps": config.number("layer_norm_epsilon", 1e-5)}
    branches = config.number("hidden_dropout", 0.0)
    return decoder(
        (dim, _bloom_depth(config), _bloom_heads(config), 4 * dim), norm,
        (0.0, branches, config.number("attention_dropout", 0.0)), TANH, position="ALiBi", input_norm=norm,
    )  # fmt: skip


def _bloom_dim(config: ConfigFile) -> int:
    """Width; older files have another name for it, and for the numbers of layers and heads."""
    return config.size("n_embed", 64) if config.get("hidden_size") is None else config.size("hidden_size")


def _bloom_depth(config: ConfigFile) -> int:
    return depth_of(config, "n_layer", 2) if config.get("num_hidden_layers") is None else depth_of(config)


def _bloom_heads(config: ConfigFile) -> int:
    key = "n_head" if config.get("num_attention_heads") is None else "num_attention_heads"
    return config.size(key, 8)


def _bloom_table(config: ConfigFile) -> Rows:
    heads = _bloom_heads(config)
    sort = Rearranged("(h three c) ... -> (three h c) ...", {"h": heads, "three": 3, "c": _bloom_dim(config) // heads})
    layer = [
        *module("attention_norm", "input_layernorm"),
        *module("attention.qkv_proj", "self_attention.query_key_value", whole=sort),
        *module("attention.out_proj", "self_attention.dense"),
        *module("mlp_norm", "post_attention_layernorm"),
        *module("mlp.up_proj", "mlp.dense_h_to_4h"),
        *module("mlp.down_proj", "mlp.dense_4h_to_h"),
    ]
    return [
        *tensor("embedder.content.weight", "word_embeddings.weight"),
        *module("backbone.input_norm", "word_embeddings_layernorm"),
        *layers(_bloom_depth(config), "backbone.blocks.{}.", "h.{}.", layer),
        *module("backbone.norm", "ln_f"),
    ]


BLOOM = Family(_bloom, _bloom_table, "transformer.", {"NextToken": TIED}, ("score.", "classifier.", "qa_outputs."))
