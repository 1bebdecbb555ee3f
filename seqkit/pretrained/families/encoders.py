"""BERT, RoBERTa and XLM-R (transformers 5.23)."""

from __future__ import annotations

from typing import Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import (
    ACTIVATIONS,
    Family,
    Head,
    Settings,
    class_names,
    depth_of,
    has_classes,
)
from seqkit.pretrained.rows import Rows, alias, layers, module, tensor


def post_norm(
    config: ConfigFile,
    dim: int,
    depth: int,
    heads: int,
    inner: int,
    eps: float,
    names: tuple[str, ...],
) -> Settings:
    """A post-norm encoder. names: keys of activation, dropout and dropout of attention."""
    activation, dropout, of_attention = names
    norm = {"type": "LayerNorm", "eps": eps}
    branches = config.number(dropout, 0.1)
    attention = config.number(of_attention, 0.1)
    return {
        "dropout": branches,
        "embedding_norm": norm,
        "backbone": {
            "type": "Transformer", "dim": dim, "depth": depth, "num_heads": heads, "dropout": branches,
            "norm": "Identity",
            "block": {
                "type": "PostNormBlock", "norm": norm,
                "mlp": {"ratio": inner / dim, "activation": config.one_of(activation, ACTIVATIONS, "gelu")},
                "attention": {"mechanism": {"type": "ScaledDotProductAttention", "dropout": attention}},
            },
        },
    }  # fmt: skip


def tied(config: ConfigFile, activation: Any, eps: float) -> Settings:
    """A masked language model's objective, whose output layer is the embedding table."""
    config.must_be(True, "tie_word_embeddings")
    norm = {"type": "LayerNorm", "eps": eps}
    return {"type": "Masked", "tied": True, "transform": {"activation": activation, "norm": norm}}


def masked_rows(dense: str, norm: str, decoder: str, bias: str) -> Rows:
    """Rows of such a head. decoder: the output layer, whose weight is tied, and in some files stands there again."""
    again = [] if bias == f"{decoder}.bias" else alias("head.bias", f"{decoder}.bias")
    return [
        *module("head.transform.linear", dense),
        *module("head.transform.norm", norm),
        *tensor("head.bias", bias),
        *alias("embedder.content.weight", f"{decoder}.weight"),
        *again,
    ]


def classifier(activation: str, dense: str, out: str) -> Head:
    """The head of two layers on the first token. dense, out: names of the layers."""
    return Head(
        ("ForSequenceClassification",),
        lambda _: {"type": "Classify", "pool": "first", "transform": {"activation": activation}},
        lambda _: [*module("head.transform.linear", dense), *module("head.linear", out)],
        class_names,
        has_classes("ForSequenceClassification"),
    )


TAGS = "Classify token"
TAGGER = Head(
    ("ForTokenClassification",),
    lambda _: {"type": "Classify", "level": "token"},
    lambda _: module("head.linear", "classifier"),
    class_names,
    has_classes("ForTokenClassification"),
)


def _bert(config: ConfigFile) -> Settings:
    config.must_be("absolute", "position_embedding_type")
    config.must_be(False, "is_decoder", "add_cross_attention")
    found = post_norm(
        config, config.size("hidden_size", 768), depth_of(config, default=12),
        config.size("num_attention_heads", 12), config.size("intermediate_size", 3072), _eps(config),
        ("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    )  # fmt: skip
    sizes = [config.size("max_position_embeddings", 512), config.size("type_vocab_size", 2)]
    first = {"first": row} if (row := _first(config)) else {}
    return {"position": {"type": "Learned", "sizes": sizes, **first}, **found}


def _eps(config: ConfigFile) -> float:
    return config.positive("layer_norm_eps", 1e-12)


def _first(config: ConfigFile) -> int:
    """Row of the first token in the table of positions: RoBERTa counts from behind the padding's id."""
    if config.model_type == "bert":
        return 0
    return int(config.get("pad_token_id", 1)) + 1


def _bert_table(config: ConfigFile) -> Rows:
    layer = [
        *module(
            "attention.qkv_proj",
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
        ),
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
        *module("embedder.norm", "embeddings.LayerNorm"),
        *layers(depth_of(config, default=12), "backbone.blocks.{}.", "encoder.layer.{}.", layer),
    ]


BERT_MASKED = Head(
    ("ForMaskedLM",),
    lambda config: tied(config, config.one_of("hidden_act", ACTIVATIONS, "gelu"), _eps(config)),
    lambda _: masked_rows(
        "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder",
        "cls.predictions.bias",
    ),
)  # fmt: skip
ROBERTA_MASKED = Head(
    ("ForMaskedLM",),
    lambda config: tied(config, "GELU", _eps(config)),
    lambda _: masked_rows("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"),
)
TWO_LAYERS = ("classifier.dense", "classifier.out_proj")
LEFT_OUT = ("pooler.", "classifier.", "qa_outputs.")
BERT = Family(
    _bert, _bert_table, "bert.",
    {"Masked": BERT_MASKED, "Classify": classifier("Tanh", "bert.pooler.dense", "classifier"), TAGS: TAGGER},
    (*LEFT_OUT, "cls."),
)  # fmt: skip
ROBERTA = Family(
    _bert, _bert_table, "roberta.",
    {"Masked": ROBERTA_MASKED, "Classify": classifier("Tanh", *TWO_LAYERS), TAGS: TAGGER}, (*LEFT_OUT, "lm_head."),
)  # fmt: skip
