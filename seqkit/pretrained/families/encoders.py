"""BERT, RoBERTa, XLM-R and DistilBERT (transformers 5.23)."""

from __future__ import annotations

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import ACTIVATIONS, Family, Settings, depth_of
from seqkit.pretrained.rows import Rows, layers, module, tensor


def post_norm(
    config: ConfigFile, dim: int, depth: int, heads: int, inner: int, eps: float, names: tuple[str, ...]
) -> Settings:
    """A post-norm encoder. names: keys of activation, dropout and dropout of attention."""
    activation, dropout, of_attention = names
    norm = {"type": "LayerNorm", "eps": eps}
    branches, attention = config.number(dropout, 0.1), config.number(of_attention, 0.1)
    return {
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


# ── BERT, RoBERTa, XLM-R ──────────────────────────────────────────────────────────────────────────────────────────────


def _bert(config: ConfigFile) -> Settings:
    config.must_be("absolute", "position_embedding_type")
    config.must_be(False, "is_decoder", "add_cross_attention")
    found = post_norm(
        config, config.size("hidden_size", 768), depth_of(config, default=12), config.size("num_attention_heads", 12),
        config.size("intermediate_size", 3072), config.number("layer_norm_eps", 1e-12),
        ("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    )  # fmt: skip
    sizes = [config.size("max_position_embeddings", 512), config.size("type_vocab_size", 2)]
    first = {"first": row} if (row := _first(config)) else {}
    return {"position": {"type": "Learned", "sizes": sizes, **first}, **found}


def _first(config: ConfigFile) -> int:
    """Row of the first token in the table of positions: RoBERTa counts from behind the padding's id."""
    return 0 if config.model_type == "bert" else int(config.get("pad_token_id", 1)) + 1


def _bert_table(config: ConfigFile) -> Rows:
    layer = [
        *module("attention.qkv_proj", "attention.self.query", "attention.self.key", "attention.self.value"),
        *module("attention.out_proj", "attention.output.dense"),
        *module("attention_norm", "attention.output.LayerNorm"),
        *module("mlp.up_proj", "intermediate.dense"),
        *module("mlp.down_proj", "output.dense"),
        *module("mlp_norm", "output.LayerNorm"),
    ]
    return [
        *tensor("embedder.content.weight", "embeddings.word_embeddings.weight"),
        *tensor("embedder.position.tables.0", "embeddings.position_embeddings.weight"),
        *tensor("embedder.position.tables.1", "embeddings.token_type_embeddings.weight"),
        *module("backbone.input_norm", "embeddings.LayerNorm"),
        *layers(depth_of(config, default=12), "backbone.blocks.{}.", "encoder.layer.{}.", layer),
    ]


BERT = Family(_bert, _bert_table, "bert.", {}, ("pooler.", "cls.", "classifier.", "qa_outputs."))
ROBERTA = Family(_bert, _bert_table, "roberta.", {}, ("pooler.", "lm_head.", "classifier.", "qa_outputs."))

# ── DistilBERT ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _distilbert(config: ConfigFile) -> Settings:
    config.must_be(False, "sinusoidal_pos_embds")
    found = post_norm(
        config, config.size("dim", 768), depth_of(config, "n_layers", 6), config.size("n_heads", 12),
        config.size("hidden_dim", 3072), 1e-12, ("activation", "dropout", "attention_dropout"),
    )  # fmt: skip
    return {"position": {"type": "Learned", "sizes": [config.size("max_position_embeddings", 512)]}, **found}


def _distilbert_table(config: ConfigFile) -> Rows:
    layer = [
        *module("attention.qkv_proj", "attention.q_lin", "attention.k_lin", "attention.v_lin"),
        *module("attention.out_proj", "attention.out_lin"),
        *module("attention_norm", "sa_layer_norm"),
        *module("mlp.up_proj", "ffn.lin1"),
        *module("mlp.down_proj", "ffn.lin2"),
        *module("mlp_norm", "output_layer_norm"),
    ]
    return [
        *tensor("embedder.content.weight", "embeddings.word_embeddings.weight"),
        *tensor("embedder.position.tables.0", "embeddings.position_embeddings.weight"),
        *module("backbone.input_norm", "embeddings.LayerNorm"),
        *layers(depth_of(config, "n_layers", 6), "backbone.blocks.{}.", "transformer.layer.{}.", layer),
    ]


DISTILBERT = Family(
    _distilbert, _distilbert_table, "distilbert.", {}, ("vocab_", "pre_classifier.", "classifier.", "qa_outputs.")
)
