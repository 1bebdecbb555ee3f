"""BERT, RoBERTa and XLM-R (transformers 5.23)."""

from __future__ import annotations

from typing import Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import (
    ACTIVATIONS,
    Family,
    Head,
    Settings,
    block,
    class_names,
    depth_of,
    has_classes,
    layer_norm,
)
from seqkit.pretrained.rows import Rows, alias, layers, module, modules, tensor


def post_norm(config: ConfigFile, eps: float, dropout: str, attention_dropout: str) -> Settings:
    """A post-norm encoder. eps: by default. dropout, attention_dropout: their keys."""
    dim = config.size("hidden_size", 768)
    norm = layer_norm(config, eps)
    branches = config.number(dropout, 0.1)
    mlp = {"ratio": config.size("intermediate_size", 3072) / dim, "activation": _activation(config)}
    return {
        "dropout": branches,
        "embedding_norm": norm,
        "backbone": {
            "type": "Transformer",
            "dim": dim,
            "depth": depth_of(config, default=12),
            "num_heads": config.size("num_attention_heads", 12),
            "dropout": branches,
            "norm": "Identity",
            "block": block("PostNormBlock", norm, mlp, config.number(attention_dropout, 0.1)),
        },
    }


def _activation(config: ConfigFile) -> Any:
    return config.one_of("hidden_act", ACTIVATIONS, "gelu")


def tied(config: ConfigFile, activation: Any) -> Settings:
    """A masked language model's objective, whose output layer is the embedding table."""
    config.must_be(True, "tie_word_embeddings")
    transform = {"activation": activation, "norm": layer_norm(config, EPS)}
    return {"type": "Masked", "tied": True, "transform": transform}


def masked_rows(dense: str, norm: str, decoder: str, bias: str) -> Rows:
    """Rows of such a head. decoder: the output layer, whose weight is tied, and in some files stands there again."""
    again = [] if bias == f"{decoder}.bias" else alias("head.bias", f"{decoder}.bias")
    return [
        *modules({"head.transform.linear": dense, "head.transform.norm": norm}),
        *tensor("head.bias", bias),
        *alias("embedder.content.weight", f"{decoder}.weight"),
        *again,
    ]


def classifier(dense: str, out: str) -> Head:
    """The head of two layers on the first token. dense, out: names of the layers."""
    return Head(
        ("ForSequenceClassification",),
        lambda _: {"type": "Classify", "pool": "first", "transform": {"activation": "Tanh"}},
        lambda _: modules({"head.transform.linear": dense, "head.linear": out}),
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
EPS = 1e-12


def _bert(config: ConfigFile) -> Settings:
    config.must_be("absolute", "position_embedding_type")
    config.must_be(False, "is_decoder", "add_cross_attention")
    found = post_norm(config, EPS, "hidden_dropout_prob", "attention_probs_dropout_prob")
    sizes = [config.size("max_position_embeddings", 512), config.size("type_vocab_size", 2)]
    position: Settings = {"type": "Learned", "sizes": sizes}
    if config.model_type != "bert":  # RoBERTa counts from behind the padding's id
        position["first"] = int(config.get("pad_token_id", 1)) + 1
    return {"position": position, **found}


def _bert_table(config: ConfigFile) -> Rows:
    qkv = ("attention.self.query", "attention.self.key", "attention.self.value")
    layer = modules(
        {
            "attention.qkv_proj": qkv,
            "attention.out_proj": "attention.output.dense",
            "attention_norm": "attention.output.LayerNorm",
            "mlp.up_proj": "intermediate.dense",
            "mlp.down_proj": "output.dense",
            "mlp_norm": "output.LayerNorm",
        }
    )
    return [
        *tensor("embedder.content.weight", "embeddings.word_embeddings.weight"),
        *tensor("embedder.position.tables.0", "embeddings.position_embeddings.weight"),
        *tensor("embedder.position.tables.1", "embeddings.token_type_embeddings.weight"),
        *module("embedder.norm", "embeddings.LayerNorm"),
        *layers(depth_of(config, default=12), "backbone.blocks.{}.", "encoder.layer.{}.", layer),
    ]


def _family(prefix: str, masked: Head, classify: Head, left_out: str) -> Family:
    heads = {"Masked": masked, "Classify": classify, TAGS: TAGGER}
    others = ("pooler.", "classifier.", "qa_outputs.", left_out)
    return Family(_bert, _bert_table, prefix, heads, others)


_OF_BERT = "cls.predictions."
BERT_MASKED = Head(
    ("ForMaskedLM",),
    lambda config: tied(config, _activation(config)),
    lambda _: masked_rows(
        f"{_OF_BERT}transform.dense",
        f"{_OF_BERT}transform.LayerNorm",
        f"{_OF_BERT}decoder",
        f"{_OF_BERT}bias",
    ),
)
ROBERTA_MASKED = Head(
    ("ForMaskedLM",),
    lambda config: tied(config, "GELU"),
    lambda _: masked_rows("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"),
)
BERT = _family("bert.", BERT_MASKED, classifier("bert.pooler.dense", "classifier"), "cls.")
ROBERTA = _family(
    "roberta.", ROBERTA_MASKED, classifier("classifier.dense", "classifier.out_proj"), "lm_head."
)
