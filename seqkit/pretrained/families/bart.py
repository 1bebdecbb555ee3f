"""BART and models like it (transformers 5.23): one table of ids for encoder, decoder and output layer."""

from __future__ import annotations

from dataclasses import dataclass

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.encoder_decoder import (
    LAYER_NORM,
    SIDES,
    Generation,
    Kind,
    lacks_decoder,
    shared_table,
    writes,
    written_state,
)
from seqkit.pretrained.family import Family, Head, Settings, learned
from seqkit.pretrained.rows import Rearranged, Row, Rows, alias, module, tensor


@dataclass(frozen=True)
class Bart:
    """How models of one type differ.

    layers: their layers. num_ids, start, eos: number of ids, and the first and the last of a target, by default.
    num_positions, is_scaled: number of positions, and whether embeddings are scaled, by default.
    has_norm, has_bias: whether embeddings have a norm, and outputs a bias.
    first: row of position 0 in the tables; None: positions are sinusoids, which no file holds. is_behind_padding:
    whether these begin behind the padding's id, in the series of Tensor2Tensor.
    """

    layers: Kind
    num_ids: int = 50265
    start: int = 0
    eos: int = 1
    has_norm: bool = False
    first: int | None = 0
    num_positions: int = 1024
    is_scaled: bool = False
    has_bias: bool = True
    is_behind_padding: bool = False

    def encoder(self, config: ConfigFile) -> Settings:
        """Section `model` of the encoder alone."""
        config.must_be(True, "share_encoder_decoder_embeddings")
        config.must_be(config.get("vocab_size", self.num_ids), "decoder_vocab_size")
        num_tokens = config.size("max_position_embeddings", self.num_positions)
        if self.first is None:
            position: Settings = {"type": "Sinusoidal", "interleaved": False}
            if self.is_behind_padding:
                position |= {"endpoint": True, "first": int(config.get("pad_token_id", 1)) + 1}
        else:
            position = {**learned(num_tokens + self.first), "first": self.first}
        found: Settings = {
            "position": position,
            "dropout": self.layers.dropout_of(config),
            "embedding_scale": self._scale(config),
            "backbone": self.layers.settings(config, "encoder"),
        }
        if self.has_norm:
            found["embedding_norm"] = LAYER_NORM
        self.layers.settings(config, "decoder")  # its keys are read, though nothing is made of them
        return found

    def _scale(self, config: ConfigFile) -> float:
        """Factor of the embeddings."""
        if config.flag("scale_embedding", self.is_scaled):
            return float(self.layers.dim_of(config) ** 0.5)
        return 1.0

    def whole(self, config: ConfigFile) -> Settings:
        """Section `model` of encoder and decoder."""
        config.must_be(True, "tie_word_embeddings")
        sides = {side: self.layers.settings(config, side) for side in SIDES}
        backbone = {"type": "EncoderDecoder", **sides}
        return {**self.encoder(config), "share_embeddings": True, "backbone": backbone}

    def _rows(self, config: ConfigFile, side: str, embedder: str, backbone: str) -> Rows:
        rows = self.layers.rows(config, side, backbone)
        if self.first is not None:
            rows += tensor(f"{embedder}.position.tables.0", f"{side}.embed_positions.weight")
        if self.has_norm:
            rows += module(f"{embedder}.norm", f"{side}.layernorm_embedding")
        return rows

    def encoder_table(self, config: ConfigFile) -> Rows:
        """Rows of the encoder alone."""
        return [
            *shared_table("embedder.content.weight"),
            *self._rows(config, "encoder", "embedder", "backbone"),
        ]

    def whole_table(self, config: ConfigFile) -> Rows:
        """Rows of encoder and decoder."""
        return [
            *shared_table(TABLE),
            *self._rows(config, "encoder", "source_embedder", "backbone.encoder"),
            *self._rows(config, "decoder", "embedder", "backbone.decoder"),
        ]

    def objective(self, config: ConfigFile) -> Settings:
        """Section `objective`. A tied head over sinusoids is scaled down by itself, as far as embeddings are up."""
        start = [Generation(config).one_id("decoder_start_token_id", self.start)]
        dim = self.layers.dim_of(config)
        scale = dim**0.5 / self._scale(config) if self.first is None else 1.0
        return {
            **writes(config, start, self.eos, self.num_ids),
            "tied": True,
            "bias": self.has_bias,
            "logit_scale": scale,
        }

    def head_table(self, config: ConfigFile) -> Rows:
        """Rows of the output layer, whose weight is the table. Files without a head have no bias: it is zero."""
        tied = alias(TABLE, "lm_head.weight")
        if not self.has_bias:
            return tied
        flat = Rearranged("one v -> (one v)", {"one": 1})
        num_ids = config.size("vocab_size", self.num_ids)
        return [*tied, Row("head.bias", ("final_logits_bias",), whole=flat, zeros=num_ids)]

    def longest(self, config: ConfigFile) -> int:
        """Tokens of a target at most, beside those that it starts with."""
        num_tokens = config.size("max_position_embeddings", self.num_positions)
        return max(1, num_tokens - 1 - len(Generation(config).forced_first()))

    def families(self) -> tuple[Family, Family]:
        """The encoder alone, and encoder and decoder."""
        head = Head(
            ("ForConditionalGeneration", "MTModel"),
            self.objective,
            self.head_table,
            written_state(self.longest),
        )
        of_no_use: tuple[str, ...] = ()
        if self.first is None:
            of_no_use = ("encoder.embed_positions.", "decoder.embed_positions.")
        others = (*HEADS, "decoder.", *of_no_use)
        return (
            Family(
                self.encoder, self.encoder_table, "model.", left_out=others, lacks=lacks_decoder
            ),
            Family(self.whole, self.whole_table, "model.", {"Seq2Seq": head}, of_no_use),
        )


TABLE = "source_embedder.content.weight"
"""Our first name of the table of ids."""

HEADS = ("lm_head.", "final_logits_bias", "classification_head.", "qa_outputs.")

ALIKE = {
    "bart": Bart(Kind(), start=2, eos=2, has_norm=True, first=2),
    "marian": Bart(Kind(), num_ids=58101, start=58100, eos=0, first=None),
    "pegasus": Bart(Kind(is_pre_norm=True)),
    "mbart": Bart(Kind(is_pre_norm=True), eos=2, has_norm=True, first=2),
    "m2m_100": Bart(
        Kind(activation="relu", attention_dropout=0.1, is_pre_norm=True),
        num_ids=128112,
        start=2,
        eos=2,
        first=None,
        is_scaled=True,
        has_bias=False,
        is_behind_padding=True,
    ),
    "plbart": Bart(
        Kind(dim=768, depth=6, num_heads=12, inner=3072, attention_dropout=0.1),
        num_ids=50005,
        eos=2,
        has_norm=True,
        first=2,
        is_scaled=True,
    ),
    "blenderbot": Bart(
        Kind(2560, 24, 32, 10240, encoder_depth=2, is_pre_norm=True),
        num_ids=8008,
        start=1,
        eos=2,
        num_positions=128,
    ),
}
BARTS = {name: one.families() for name, one in ALIKE.items()}
"""The encoder alone, and encoder and decoder, by model type."""
