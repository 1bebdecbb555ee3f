"""Families of foreign models: their settings as a recipe writes them, and the names of their weights.

A family is a function from `config.json` to the section `model` of a recipe, and a table of names. Sources: the modules
of transformers 5.23; `docs/families.md` has the same backbones with the equations that they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqkit.errors import suggest
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.rows import Row, row

if TYPE_CHECKING:
    from torch import Tensor

Settings = dict[str, Any]
MAX_LAYERS = 1000
TANH = {"type": "GELU", "approximate": "tanh"}
ACTIVATIONS: dict[Any, Any] = {
    "gelu": "GELU", "gelu_new": TANH, "gelu_pytorch_tanh": TANH, "relu": "ReLU", "silu": "SiLU", "swish": "SiLU",
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """How models of one kind are read.

    model: the section `model` of a recipe from `config.json`, with an `objective` where the head is read, too. layers:
    what the names of a layer's weights begin with, with {} for its number. layer: its modules. rest: modules outside
    layers. embeddings: our tables from theirs, which it takes out. prefix: what names begin with in a model that has a
    head. left_out: beginnings of names that are of no use here, such as heads. head: name of the head that predicts the
    next token; None: there is none.
    """

    model: Callable[[ConfigFile], Settings]
    layers: str
    layer: Mapping[str, Row]
    rest: Mapping[str, Row]
    embeddings: Callable[[dict[str, Tensor], ConfigFile], dict[str, Tensor]]
    prefix: str
    left_out: tuple[str, ...] = ()
    head: str | None = None


# ── encoders: BERT and those built alike ──────────────────────────────────────────────────────────────────────────────


def _post_norm(
    config: ConfigFile, dim: int, depth: int, heads: int, inner: int, eps: float, positions: int, names: tuple[str, ...]
) -> Settings:
    """A post-norm encoder with learned positions. names: keys of activation, dropout and dropout of attention."""
    activation, dropout, of_attention = names
    norm = {"type": "LayerNorm", "eps": eps}
    branches, attention = config.number(dropout, 0.1), config.number(of_attention, 0.1)
    return {
        "position": {"type": "Learned", "sizes": [positions]},
        "dropout": branches,
        "backbone": {
            "type": "Transformer", "dim": dim, "depth": depth, "num_heads": heads, "dropout": branches,
            "input_norm": norm, "norm": "Identity",
            "block": {
                "type": "PostNormBlock", "norm": norm,
                "mlp": {"ratio": inner / dim, "activation": config.one_of(activation, ACTIVATIONS, "gelu")},
                "attention": {"mechanism": {"type": "ScaledDotProductAttention", "dropout": attention}},
            },
        },
    }  # fmt: skip


def _bert(config: ConfigFile) -> Settings:
    config.must_be("absolute", "position_embedding_type")
    config.must_be(False, "is_decoder", "add_cross_attention")
    return _post_norm(
        config, config.size("hidden_size", 768), config.size("num_hidden_layers", 12, most=MAX_LAYERS),
        config.size("num_attention_heads", 12), config.size("intermediate_size", 3072),
        config.number("layer_norm_eps", 1e-12), config.size("max_position_embeddings", 512) - _skipped(config),
        ("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    )  # fmt: skip


def _skipped(config: ConfigFile) -> int:
    """Rows at the start of the table of positions that no token has: RoBERTa counts from behind the padding's id."""
    return 0 if config.model_type == "bert" else int(config.get("pad_token_id", 1)) + 1


def _bert_embeddings(weights: dict[str, Tensor], config: ConfigFile) -> dict[str, Tensor]:
    """Tables of BERT; the vector of the first sentence, which every token gets, is added to those of the positions."""
    positions = weights.pop("embeddings.position_embeddings.weight")[_skipped(config) :]
    return {
        "content.weight": weights.pop("embeddings.word_embeddings.weight"),
        "position.tables.0": positions + weights.pop("embeddings.token_type_embeddings.weight")[0],
    }


BERT = Family(
    model=_bert,
    layers="encoder.layer.{}.",
    layer={
        "attention.qkv_proj": row("attention.self.query", "attention.self.key", "attention.self.value"),
        "attention.out_proj": row("attention.output.dense"),
        "attention_norm": row("attention.output.LayerNorm"),
        "mlp.up_proj": row("intermediate.dense"),
        "mlp.down_proj": row("output.dense"),
        "mlp_norm": row("output.LayerNorm"),
    },
    rest={"input_norm": row("embeddings.LayerNorm")},
    embeddings=_bert_embeddings,
    prefix="bert.",
    left_out=("pooler.", "cls.", "lm_head.", "classifier.", "qa_outputs."),
)


def _distilbert(config: ConfigFile) -> Settings:
    config.must_be(False, "sinusoidal_pos_embds")
    dim, inner = config.size("dim", 768), config.size("hidden_dim", 3072)
    return _post_norm(
        config, dim, config.size("n_layers", 6, most=MAX_LAYERS), config.size("n_heads", 12), inner, 1e-12,
        config.size("max_position_embeddings", 512), ("activation", "dropout", "attention_dropout"),
    )  # fmt: skip


DISTILBERT = Family(
    model=_distilbert,
    layers="transformer.layer.{}.",
    layer={
        "attention.qkv_proj": row("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        "attention.out_proj": row("attention.out_lin"),
        "attention_norm": row("sa_layer_norm"),
        "mlp.up_proj": row("ffn.lin1"),
        "mlp.down_proj": row("ffn.lin2"),
        "mlp_norm": row("output_layer_norm"),
    },
    rest={"input_norm": row("embeddings.LayerNorm")},
    embeddings=lambda weights, _: {
        "content.weight": weights.pop("embeddings.word_embeddings.weight"),
        "position.tables.0": weights.pop("embeddings.position_embeddings.weight"),
    },
    prefix="distilbert.",
    left_out=("vocab_", "pre_classifier.", "classifier.", "qa_outputs."),
)

# ── decoders: GPT-2 ───────────────────────────────────────────────────────────────────────────────────────────────────


def _gpt2(config: ConfigFile) -> Settings:
    config.must_be(True, "scale_attn_weights", "tie_word_embeddings")
    config.must_be(False, "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention")
    dim, norm = config.size("n_embd", 768), {"type": "LayerNorm", "eps": config.number("layer_norm_epsilon", 1e-5)}
    inner = config.get("n_inner") or 4 * dim
    attention = {"type": "ScaledDotProductAttention", "dropout": config.number("attn_pdrop", 0.1)}
    return {
        "position": {"type": "Learned", "sizes": [config.size("n_positions", 1024)]},
        "dropout": config.number("embd_pdrop", 0.1),
        "objective": {"type": "NextToken", "tied": True},
        "backbone": {
            "type": "Transformer", "dim": dim, "depth": config.size("n_layer", 12, most=MAX_LAYERS),
            "causal": True, "norm": norm,
            "num_heads": config.size("n_head", 12), "dropout": config.number("resid_pdrop", 0.1),
            "block": {
                "type": "PreNormBlock", "norm": norm, "attention": {"mechanism": attention},
                "mlp": {
                    "ratio": inner / dim,
                    "activation": config.one_of("activation_function", ACTIVATIONS, "gelu_new"),
                },
            },
        },
    }  # fmt: skip


GPT2 = Family(
    model=_gpt2,
    layers="h.{}.",
    layer={
        "attention_norm": row("ln_1"),
        "attention.qkv_proj": row("attn.c_attn", transposed=True),
        "attention.out_proj": row("attn.c_proj", transposed=True),
        "mlp_norm": row("ln_2"),
        "mlp.up_proj": row("mlp.c_fc", transposed=True),
        "mlp.down_proj": row("mlp.c_proj", transposed=True),
    },
    rest={"norm": row("ln_f")},
    embeddings=lambda weights, _: {
        "content.weight": weights.pop("wte.weight"),
        "position.tables.0": weights.pop("wpe.weight"),
    },
    prefix="transformer.",
    head="lm_head",
)

# ── decoders: LLaMA and those built alike ─────────────────────────────────────────────────────────────────────────────


def _llama(config: ConfigFile) -> Settings:
    """LLaMA, Mistral, Qwen2, Qwen3, SmolLM3 and OLMo 2: they differ in norms, windows, biases and positions."""
    kind = config.model_type
    dim, heads = config.size("hidden_size"), config.size("num_attention_heads")
    depth, head_dim = config.size("num_hidden_layers", most=MAX_LAYERS), config.get("head_dim") or dim // heads
    norm = {"type": "RMSNorm", "eps": config.number("rms_norm_eps", 1e-6)}
    has_bias = config.get("attention_bias", False) is True
    config.must_be(False, "mlp_bias")
    config.must_be(None, "clip_qkv")
    config.get("max_position_embeddings")  # rotary positions have no table
    attention: Settings = {
        "num_kv_heads": config.get("num_key_value_heads") or heads, "bias": has_bias, "head_dim": head_dim,
    }  # fmt: skip
    if kind == "qwen2":
        attention |= {"bias": True, "out_bias": False}
    if kind in ("qwen3", "olmo2"):
        attention |= {"qk_norm": norm, "qk_norm_level": "head" if kind == "qwen3" else "all"}
    dropout = config.number("attention_dropout", 0.0)
    block: Settings = {
        "type": "PreNormBlock", "norm": norm,
        "mlp": {
            "type": "GatedMLP", "width": config.size("intermediate_size"),
            "activation": config.one_of("hidden_act", ACTIVATIONS, "silu"),
        },
    }  # fmt: skip
    if kind == "olmo2":  # norms of what the branches give, not of what they get
        block |= {"norm": "Identity", "residual": {"norm": norm}}
    sizes, rotary = _windows(config, depth), _rotary(config)
    blocks = []
    for size in sizes:
        window = {"type": "SlidingWindowAttention", "size": size}
        mechanism = {"type": "ScaledDotProductAttention"} if size is None else window
        blocks.append({**block, "attention": {**attention, "mechanism": {**mechanism, "dropout": dropout}}})
    positions = [rotary if one else None for one in _with_positions(config, depth)]
    return {
        "position": "NoPosition",
        "dropout": 0.0,
        "objective": {"type": "NextToken", "tied": config.get("tie_word_embeddings", False) is True, "bias": False},
        "backbone": {
            "type": "Transformer", "dim": dim, "depth": depth, "num_heads": heads, "causal": True, "norm": norm,
            "dropout": 0.0, "position": positions[0] if _are_alike(positions) else positions,
            "block": blocks[0] if _are_alike(blocks) else blocks,
        },
    }  # fmt: skip


def _rotary(config: ConfigFile) -> Settings:
    """Rotary positions: `rope_parameters` as of transformers 5, or `rope_theta` and `rope_scaling`, as before."""
    base, scaling = config.get("rope_theta", 10_000.0), config.get("rope_scaling")
    given = dict(config.get("rope_parameters") or scaling or {})
    kind = given.pop("rope_type", given.pop("type", "default"))
    given.pop("type", None)
    rotary: Settings = {"type": "Rotary", "base": given.pop("rope_theta", base)}
    if given.pop("partial_rotary_factor", 1.0) != 1.0 or kind not in ("default", "linear", "llama3"):
        raise config.refused(
            "rope_scaling" if scaling else "rope_parameters", "default, linear or llama3, of all channels"
        )
    if kind == "linear":
        rotary["scaling"] = {"type": "LinearScaling", "factor": given.pop("factor")}
    if kind == "llama3":
        names = ("factor", "low_freq_factor", "high_freq_factor")
        most = given.pop("original_max_position_embeddings")
        rotary["scaling"] = {
            "type": "LLaMA3Scaling", "original_max_tokens": most, **{name: given.pop(name) for name in names}
        }  # fmt: skip
    if given:
        raise config.refused("rope_scaling" if scaling else "rope_parameters", f"without {', '.join(sorted(given))}")
    return rotary


def _windows(config: ConfigFile, depth: int) -> list[int | None]:
    """Tokens that each layer attends to; None: all."""
    size, used = config.get("sliding_window"), config.get("use_sliding_window", config.model_type == "mistral")
    first, kinds = config.get("max_window_layers", depth), config.get("layer_types")
    if not used or size is None:
        return [None] * depth
    if kinds is None:
        kinds = [
            "sliding_attention" if i >= first or config.model_type == "mistral" else "full_attention"
            for i in range(depth)
        ]
    if len(kinds) != depth or not {*kinds} <= {"full_attention", "sliding_attention"}:
        raise config.refused("layer_types", "full_attention or sliding_attention for each layer")
    return [size if kind == "sliding_attention" else None for kind in kinds]


def _with_positions(config: ConfigFile, depth: int) -> list[bool]:
    """Whether each layer has positions (SmolLM3 has layers without)."""
    every, given = config.get("no_rope_layer_interval", 4), config.get("no_rope_layers")
    if config.model_type != "smollm3":
        return [True] * depth
    return [bool(one) for one in given] if given else [(i + 1) % every != 0 for i in range(depth)]


def _are_alike(values: list[Any]) -> bool:
    return all(value == values[0] for value in values)


LLAMA = Family(
    model=_llama,
    layers="layers.{}.",
    layer={
        "attention.qkv_proj": row("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", turned=2),
        "attention.query_norm": row("self_attn.q_norm", turned=1),
        "attention.key_norm": row("self_attn.k_norm", turned=1),
        "attention.out_proj": row("self_attn.o_proj"),
        "attention_norm": row("input_layernorm"),
        "mlp_norm": row("post_attention_layernorm"),
        "mlp.gate_up_proj": row("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down_proj": row("mlp.down_proj"),
    },
    rest={"norm": row("norm")},
    embeddings=lambda weights, _: {"content.weight": weights.pop("embed_tokens.weight")},
    prefix="model.",
    head="lm_head",
)
OLMO2 = Family(
    model=_llama,
    layers=LLAMA.layers,
    layer={
        **{name: one for name, one in LLAMA.layer.items() if not name.endswith("_norm") or "." in name},
        "attention_residual.norm": row("post_attention_layernorm"),
        "mlp_residual.norm": row("post_feedforward_layernorm"),
    },
    rest=LLAMA.rest,
    embeddings=LLAMA.embeddings,
    prefix=LLAMA.prefix,
    head=LLAMA.head,
)

ROBERTA = Family(BERT.model, BERT.layers, BERT.layer, BERT.rest, BERT.embeddings, "roberta.", BERT.left_out)

FAMILIES = {
    "bert": BERT, "roberta": ROBERTA, "xlm-roberta": ROBERTA, "distilbert": DISTILBERT, "gpt2": GPT2, "llama": LLAMA,
    "mistral": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA, "smollm3": LLAMA, "olmo2": OLMO2,
}  # fmt: skip
"""Families by the `model_type` of `config.json`."""


def family_of(config: ConfigFile) -> Family:
    """The family of a model. Raises DataError for a model type that is not read, with those that are."""
    found = FAMILIES.get(config.model_type)
    if found is None:
        raise config.refused("model_type", f"{', '.join(FAMILIES)} ({suggest(config.model_type, FAMILIES)})")
    return found
