"""BERT, and encoders that differ from it by names and a few settings (transformers 5.23)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import (
    ACTIVATIONS,
    Family,
    Head,
    Settings,
    block,
    classifier,
    depth_of,
    layer_norm,
)
from seqkit.pretrained.rows import Row, Rows, alias, below, module, modules, tensor


@dataclass(frozen=True)
class Sizes:
    """Sizes, activation and dropout of a model where the file does not say them."""

    dim: int = 768
    inner: int = 3072
    depth: int = 12
    heads: int = 12
    positions: int = 512
    activation: str = "gelu"
    dropout: float = 0.1


def post_norm(
    config: ConfigFile, eps: float, keys: Mapping[str, str], sizes: Sizes = Sizes()
) -> Settings:
    """A post-norm encoder. eps, sizes: by default. keys: other names of settings, by those of BERT."""

    def key(name: str) -> str:
        return keys.get(name, name)

    dim = config.size(key("hidden_size"), sizes.dim)
    norm = layer_norm(config, eps, key("layer_norm_eps"))
    branches = config.number(key("hidden_dropout_prob"), sizes.dropout)
    inner = config.size(key("intermediate_size"), sizes.inner)
    activation = config.one_of(key("hidden_act"), ACTIVATIONS, sizes.activation)
    mlp = {"ratio": inner / dim, "activation": activation}
    weights = config.number(key("attention_probs_dropout_prob"), sizes.dropout)
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
TAGGER = classifier(
    "ForTokenClassification",
    lambda _: {"type": "Classify", "level": "token"},
    module("head.linear", "classifier"),
)

LAYER = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
"""Names in a layer of BERT: queries, keys, values, output and norm of attention; both layers and norm of the MLP."""
OF_BERT = (
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.decoder",
    "cls.predictions.bias",
)
OF_ROBERTA = ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias")
"""Names in the head of a masked language model, as `masked_rows` takes them."""
LEFT_OUT = (
    "pooler.",
    "classifier.",
    "qa_outputs.",
    "cls.",
    "lm_head.",
    "vocab_",
    "pre_classifier.",
    "generator_",
    "discriminator_predictions.",
    "predictions.",
    "sop_classifier.",
    "lm_predictions.",
    "mask_predictions.",
    "embeddings.position_embeddings.",
)
"""Beginnings of the names of heads, and of positions that the settings leave out."""


@dataclass(frozen=True)
class Encoder:
    """How encoders of one model type differ from BERT.

    prefix: of their names in a model with a head. sizes, eps, num_types: by default; num_types 0: no token types.
    keys: as of `post_norm`. first: row of position 0; None: that behind the row of the padding's id.
    layer, place: names in a layer, and what they begin with. norm: name of the norm of the last output, where norms
    stand before the branches; empty: they stand behind. has_embedding_norm: whether the embeddings have one.
    projection: name of the layer from the width of the embeddings to that of the others; empty: there is none.
    masked, activation: names in the head of a masked language model, and its activation, None: that of the layers.
    classes, squash: names of the two layers of a classifier's head, and the activation between, None: as the file says.
    changes: made to the settings. others: rows beside these.
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
    changes: Callable[[ConfigFile, Settings], None] = lambda *_: None
    others: Sequence[Row] = ()

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
        found["position"] = {"type": "Learned", "sizes": sizes, "first": first}
        self.changes(config, found)
        return found

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
        model = self.model(config)
        backbone = model["backbone"]
        repeats = backbone.get("repeats", 1)
        places = tensor("embedder.position.tables.0", "embeddings.position_embeddings.weight")
        return [
            *tensor("embedder.content.weight", "embeddings.word_embeddings.weight"),
            *(places if isinstance(model["position"], dict) else []),
            *tensor("embedder.position.tables.1", types, may_miss=True),
            *modules(around),
            *[
                row
                for i in range(backbone["depth"] // repeats)
                for row in below(layer, f"backbone.blocks.{i * repeats}.", self.place.format(i))
            ],
            *self.others,
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

    def classes_objective(self, config: ConfigFile) -> Settings:
        """Objective of a classifier, whose head is on the first token."""
        squash = self.squash or config.one_of("pooler_hidden_act", ACTIVATIONS, "gelu")
        return {"type": "Classify", "pool": "first", "transform": {"activation": squash}}

    def family(self) -> Family:
        """Its family."""
        dense, out = self.classes
        classes = modules({"head.transform.linear": dense, "head.linear": out})
        masked = masked_rows(*self.masked)
        heads = {
            "Masked": Head(("ForMaskedLM",), self.masked_objective, lambda _: masked),
            "Classify": classifier("ForSequenceClassification", self.classes_objective, classes),
            TAGS: TAGGER,
        }
        return Family(self.model, self.table, self.prefix, heads, LEFT_OUT)


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────────────

AS_ROBERTA = Encoder(
    "roberta.",
    first=None,
    masked=OF_ROBERTA,
    activation="GELU",
    classes=("classifier.dense", "classifier.out_proj"),
)


def _pre_norm(attention: str, mlp: str) -> tuple[str, ...]:
    """Names in a layer of BERT, but for the norms."""
    return (*LAYER[:4], attention, *LAYER[5:7], mlp)


def _repeats(config: ConfigFile, found: Settings) -> None:
    """Layers that are one, all or those of a group."""
    config.must_be(1, "inner_group_num")
    if "embedding_dim" not in found:
        raise config.refused("embedding_size", "another width than hidden_size")
    groups = config.size("num_hidden_groups", 1)
    depth = found["backbone"]["depth"]
    if depth % groups:
        raise config.refused("num_hidden_groups", f"a divisor of {depth} layers")
    found["backbone"]["repeats"] = depth // groups


def _distances(config: ConfigFile, found: Settings) -> None:
    """One table of distances, of which theirs reads 32 rows."""
    config.must_be(32, "relative_attention_num_buckets")
    backbone = found["backbone"]
    backbone["position"] = {"type": "T5Bias", "num_heads": backbone["num_heads"]}


TYPES = {
    "bert": Encoder(),
    "ernie": Encoder("ernie.", classes=("ernie.pooler.dense", "classifier")),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), AS_ROBERTA),
    "data2vec-text": replace(AS_ROBERTA, prefix="data2vec_text."),
    "roberta-prelayernorm": replace(
        AS_ROBERTA,
        prefix="roberta_prelayernorm.",
        layer=_pre_norm("attention.LayerNorm", "intermediate.LayerNorm"),
        norm="LayerNorm",
    ),
    "xlm-roberta-xl": replace(
        AS_ROBERTA,
        sizes=Sizes(2560, 10240, 36, 32, 514),
        eps=1e-5,
        num_types=1,
        layer=_pre_norm("attention.self_attn_layer_norm", "LayerNorm"),
        norm="encoder.LayerNorm",
        has_embedding_norm=False,
    ),
    "distilbert": Encoder(
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
            "attention.q_lin",
            "attention.k_lin",
            "attention.v_lin",
            "attention.out_lin",
            "sa_layer_norm",
            "ffn.lin1",
            "ffn.lin2",
            "output_layer_norm",
        ),
        place="transformer.layer.{}.",
        masked=("vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"),
        classes=("pre_classifier", "classifier"),
        squash="ReLU",
    ),
    "electra": replace(
        AS_ROBERTA,
        prefix="electra.",
        sizes=Sizes(256, 1024, heads=4),
        first=0,
        projection="embeddings_project",
        masked=(
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            "generator_lm_head",
            "generator_lm_head.bias",
        ),
        squash="GELU",
    ),
    "albert": Encoder(
        "albert.",
        Sizes(4096, 16384, heads=64, activation="gelu_new", dropout=0.0),
        layer=(
            "attention.query",
            "attention.key",
            "attention.value",
            "attention.dense",
            "attention.LayerNorm",
            "ffn",
            "ffn_output",
            "full_layer_layer_norm",
        ),
        place="encoder.albert_layer_groups.{}.albert_layers.0.",
        projection="encoder.embedding_hidden_mapping_in",
        masked=(
            "predictions.dense",
            "predictions.LayerNorm",
            "predictions.decoder",
            "predictions.bias",
        ),
        classes=("albert.pooler", "classifier"),
        changes=_repeats,
    ),
    "mpnet": replace(
        AS_ROBERTA,
        prefix="mpnet.",
        num_types=0,
        first=2,
        layer=(
            "attention.attn.q",
            "attention.attn.k",
            "attention.attn.v",
            "attention.attn.o",
            "attention.LayerNorm",
            *LAYER[5:],
        ),
        changes=_distances,
        others=tensor("backbone.positions.0.table", "encoder.relative_attention_bias.weight"),
    ),
}
ENCODERS = {name: one.family() for name, one in TYPES.items()}
"""Families by model type."""
