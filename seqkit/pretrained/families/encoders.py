"""BERT, and encoders that differ from it by names and a few settings (transformers 5.23)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model where the file does not say them."""

    dim: int = 768
    inner: int = 3072
    depth: int = 12
    heads: int = 12
    positions: int = 512


def post_norm(
    config: ConfigFile, eps: float, keys: Mapping[str, str], sizes: Sizes = Sizes()
) -> Settings:
    """A post-norm encoder. eps, sizes: by default. keys: other names of settings, by those of BERT."""

    def key(name: str) -> str:
        return keys.get(name, name)

    dim = config.size(key("hidden_size"), sizes.dim)
    norm = layer_norm(config, eps, key("layer_norm_eps"))
    branches = config.number(key("hidden_dropout_prob"), 0.1)
    inner = config.size(key("intermediate_size"), sizes.inner)
    activation = config.one_of(key("hidden_act"), ACTIVATIONS, "gelu")
    mlp = {"ratio": inner / dim, "activation": activation}
    weights = config.number(key("attention_probs_dropout_prob"), 0.1)
    return {
        "dropout": branches,
        "embedding_norm": norm,
        "backbone": {
            "type": "Transformer",
            "dim": dim,
            "depth": depth_of(config, key("num_hidden_layers"), sizes.depth),
            "num_heads": config.size(key("num_attention_heads"), sizes.heads),
            "dropout": branches,
            "norm": "Identity",
            "block": block("PostNormBlock", norm, mlp, weights),
        },
    }


def masked_rows(dense: str, norm: str, decoder: str, bias: str) -> Rows:
    """Rows of the head of a masked language model.

    decoder: the output layer, whose weight is tied, and in some files stands there again.
    """
    again = [] if bias == f"{decoder}.bias" else alias("head.bias", f"{decoder}.bias")
    return [
        *modules({"head.transform.linear": dense, "head.transform.norm": norm}),
        *tensor("head.bias", bias),
        *alias("embedder.content.weight", f"{decoder}.weight"),
        *again,
    ]


TAGS = "Classify token"
TAGGER = Head(
    ("ForTokenClassification",),
    lambda _: {"type": "Classify", "level": "token"},
    lambda _: module("head.linear", "classifier"),
    class_names,
    has_classes("ForTokenClassification"),
)

LAYER = (
    *("attention.self.query", "attention.self.key", "attention.self.value"),
    *("attention.output.dense", "attention.output.LayerNorm"),
    *("intermediate.dense", "output.dense", "output.LayerNorm"),
)
"""Names in a layer of BERT: queries, keys, values, output and norm of attention; both layers and norm of the MLP."""
OF_BERT = (
    *("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
    *("cls.predictions.decoder", "cls.predictions.bias"),
)
OF_ROBERTA = ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias")
"""Names in the head of a masked language model, as `masked_rows` takes them."""
LEFT_OUT = (
    *("pooler.", "classifier.", "qa_outputs.", "cls.", "lm_head.", "vocab_", "pre_classifier."),
    *("generator_", "discriminator_predictions."),
)
"""Beginnings of the names of heads."""


@dataclass(frozen=True)
class Encoder:
    """How encoders of one model type differ from BERT.

    prefix: of their names in a model with a head. sizes, eps, num_types: by default; num_types 0: no token types.
    keys: as of `post_norm`. first: row of position 0; None: that behind the row of the padding's id.
    layer, place: names in a layer, and what they begin with. norm: name of the norm of the last output, where norms
    stand before the branches; empty: they stand behind. embedding_norm: name of that of the embeddings, or empty.
    projection: name of the layer from the width of the embeddings to that of the others; empty: there is none.
    masked, activation: names in the head of a masked language model, and its activation, None: that of the layers.
    classes, squash: names of the two layers of a classifier's head, and the activation between.
    """

    prefix: str = "bert."
    sizes: Sizes = Sizes()
    eps: float = 1e-12
    num_types: int = 2
    keys: Mapping[str, str] = field(default_factory=dict)
    first: int | None = 0
    layer: tuple[str, ...] = LAYER
    place: str = "encoder.layer.{}."
    norm: str = ""
    has_embedding_norm: bool = True
    projection: str = ""
    masked: tuple[str, ...] = OF_BERT
    activation: Any = None
    classes: tuple[str, str] = ("bert.pooler.dense", "classifier")
    squash: Any = "Tanh"

    def model(self, config: ConfigFile) -> Settings:
        """Section `model`."""
        config.must_be("absolute", "position_embedding_type")
        config.must_be(False, "is_decoder", "add_cross_attention", "use_task_id")
        found = post_norm(config, self.eps, self.keys, self.sizes)
        backbone = found["backbone"]
        if self.norm:
            backbone["norm"] = found["embedding_norm"]
            backbone["block"]["type"] = "PreNormBlock"
        if not self.has_embedding_norm:
            found.pop("embedding_norm")
        width = config.size("embedding_size", 128) if self.projection else backbone["dim"]
        if width != backbone["dim"]:
            found["embedding_dim"] = width
        sizes = [config.size("max_position_embeddings", self.sizes.positions)]
        if self.num_types:
            sizes.append(config.size("type_vocab_size", self.num_types))
        first = self.first
        if first is None:
            first = int(config.get("pad_token_id", 1)) + 1
        position = {"type": "Learned", "sizes": sizes, "first": first}
        return {"position": position, **found}

    def table(self, config: ConfigFile) -> Rows:
        """Names of the weights."""
        *qkv, out, attention_norm, up, down, mlp_norm = self.layer
        layer = modules(
            {
                "attention.qkv_proj": tuple(qkv),
                "attention.out_proj": out,
                "attention_norm": attention_norm,
                "mlp.up_proj": up,
                "mlp.down_proj": down,
                "mlp_norm": mlp_norm,
            }
        )
        around = {
            "embedder.norm": "embeddings.LayerNorm",
            "embedder.projection": self.projection,
            "backbone.norm": self.norm,
        }
        types = "embeddings.token_type_embeddings.weight"
        depth = self.model(config)["backbone"]["depth"]
        return [
            *tensor("embedder.content.weight", "embeddings.word_embeddings.weight"),
            *tensor("embedder.position.tables.0", "embeddings.position_embeddings.weight"),
            *tensor("embedder.position.tables.1", types, may_miss=True),
            *modules(around),
            *layers(depth, "backbone.blocks.{}.", self.place, layer),
        ]

    def masked_objective(self, config: ConfigFile) -> Settings:
        """Objective of a masked language model, whose output layer is the embedding table."""
        config.must_be(True, "tie_word_embeddings")
        model = self.model(config)
        layer = model["backbone"]["block"]
        transform = {
            "width": model.get("embedding_dim"),
            "activation": self.activation or layer["mlp"]["activation"],
            "norm": layer["norm"],
        }
        return {"type": "Masked", "tied": True, "transform": transform}

    def family(self) -> Family:
        """Its family."""
        kind = "ForSequenceClassification"
        head = {"type": "Classify", "pool": "first", "transform": {"activation": self.squash}}
        dense, out = self.classes
        classes = modules({"head.transform.linear": dense, "head.linear": out})
        masked = masked_rows(*self.masked)
        heads = {
            "Masked": Head(("ForMaskedLM",), self.masked_objective, lambda _: masked),
            "Classify": Head(
                (kind,), lambda _: head, lambda _: classes, class_names, has_classes(kind)
            ),
            TAGS: TAGGER,
        }
        return Family(self.model, self.table, self.prefix, heads, LEFT_OUT)


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────────────

BERT = Encoder().family()
ERNIE = Encoder("ernie.", classes=("ernie.pooler.dense", "classifier")).family()

AS_ROBERTA = Encoder(
    "roberta.",
    first=None,
    masked=OF_ROBERTA,
    activation="GELU",
    classes=("classifier.dense", "classifier.out_proj"),
)
ROBERTA = AS_ROBERTA.family()
DATA2VEC_TEXT = replace(AS_ROBERTA, prefix="data2vec_text.").family()


def _pre_norm(attention: str, mlp: str) -> tuple[str, ...]:
    """Names in a layer of BERT, but for the norms."""
    return (*LAYER[:4], attention, *LAYER[5:7], mlp)


ROBERTA_PRE_NORM = replace(
    AS_ROBERTA,
    prefix="roberta_prelayernorm.",
    layer=_pre_norm("attention.LayerNorm", "intermediate.LayerNorm"),
    norm="LayerNorm",
).family()
XLM_ROBERTA_XL = replace(
    AS_ROBERTA,
    sizes=Sizes(2560, 10240, 36, 32, 514),
    eps=1e-5,
    num_types=1,
    layer=_pre_norm("attention.self_attn_layer_norm", "LayerNorm"),
    norm="encoder.LayerNorm",
    has_embedding_norm=False,
).family()

DISTILBERT = Encoder(
    "distilbert.",
    Sizes(depth=6),
    num_types=0,
    keys={
        "hidden_size": "dim",
        "intermediate_size": "hidden_dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "",  # it is not written
    },
    layer=(
        *("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
        *("sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
    ),
    place="transformer.layer.{}.",
    masked=("vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"),
    classes=("pre_classifier", "classifier"),
    squash="ReLU",
).family()

ELECTRA = replace(
    AS_ROBERTA,
    prefix="electra.",
    sizes=Sizes(256, 1024, heads=4),
    first=0,
    projection="embeddings_project",
    masked=(
        *("generator_predictions.dense", "generator_predictions.LayerNorm"),
        *("generator_lm_head", "generator_lm_head.bias"),
    ),
    squash="GELU",
).family()


AS_MPNET = replace(
    AS_ROBERTA,
    prefix="mpnet.",
    num_types=0,
    first=2,
    layer=(
        *("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o"),
        *("attention.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"),
    ),
)


def _mpnet(config: ConfigFile) -> Settings:
    """With one table of distances, of which the first 32 rows are used."""
    config.must_be(32, "relative_attention_num_buckets")
    found = AS_MPNET.model(config)
    found["backbone"]["position"] = {"type": "T5Bias", "num_heads": found["backbone"]["num_heads"]}
    return found


def _mpnet_table(config: ConfigFile) -> Rows:
    distances = "encoder.relative_attention_bias.weight"
    return [*AS_MPNET.table(config), *tensor("backbone.positions.0.table", distances)]


MPNET = replace(AS_MPNET.family(), model=_mpnet, table=_mpnet_table)

ENCODERS = {
    "bert": BERT,
    "ernie": ERNIE,
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), ROBERTA),
    "data2vec-text": DATA2VEC_TEXT,
    "roberta-prelayernorm": ROBERTA_PRE_NORM,
    "xlm-roberta-xl": XLM_ROBERTA_XL,
    "distilbert": DISTILBERT,
    "electra": ELECTRA,
    "mpnet": MPNET,
}
"""Families by model type."""
