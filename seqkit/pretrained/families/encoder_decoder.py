"""Ids that BART, Marian, Pegasus, T5 and Whisper write with, and layers that several of them have alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from seqkit.files import MAX_JSON_BYTES, decoded, read_small
from seqkit.pretrained.config_file import TOKENIZER, ConfigFile, tokenizer_file
from seqkit.pretrained.family import ACTIVATIONS, Settings, block, class_of, depth_of
from seqkit.pretrained.generation_config import Generation
from seqkit.pretrained.rows import Rows, alias, layers, module, modules, tensor

SIDES = ("encoder", "decoder")
LAYER_NORM = {"type": "LayerNorm", "eps": 1e-5}

# ── ids ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def writes(
    config: ConfigFile, start: list[int], eos: int, num_ids: int, first: Sequence[int] = ()
) -> Settings:
    """Section `objective` of a model that writes texts.

    start: first inputs of the decoder; behind a single one stands the id that the file forces, if any.
    eos, num_ids: last id and number of ids, where the file does not say them.
    first: ids that are not generated first, likewise.
    """
    held = Generation(config)
    if len(start) == 1:
        start = [*start, *held.forced_first()]
    target = {
        "type": "FromFile",
        "path": str(config.path.parent / TOKENIZER),
        "special_tokens": False,
        "num_ids": config.size("vocab_size", num_ids),
    }
    return {
        "type": "Seq2Seq",
        "target": target,
        "start": start,
        "eos": held.one_id("eos_token_id", eos),
        "suppress": held.never() or None,
        "suppress_first": held.ids("begin_suppress_tokens", list(first)) or None,
    }


def written_state(longest: Callable[[ConfigFile], int]) -> Callable[[ConfigFile], Settings]:
    """State of `Seq2Seq`: the target tokenizer's, and how many tokens are written at most."""

    def state(config: ConfigFile) -> Settings:
        path = tokenizer_file(config.path.parent)
        return {
            "target": {TOKENIZER: decoded(read_small(path, MAX_JSON_BYTES))},
            "longest": longest(config),
        }

    return state


def lacks_decoder(config: ConfigFile) -> str:
    """The part that a run of the encoder alone does not hold; empty: the model has no decoder."""
    if class_of(config).endswith(ALONE):
        return ""
    return "a decoder"


ALONE = ("EncoderModel", "ForAudioClassification", "ForTokenClassification")
"""Ends of the names of classes of an encoder alone."""

# ── stacks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Kind:
    """Layers of one model type. dim, depth, num_heads, inner, dropout, attention_dropout, activation: by default.

    encoder_depth: of the encoder by default; None: depth. is_pre_norm: whether norms stand before attention and MLP,
    and one at the end. has_key_bias: whether keys have one.
    """

    dim: int = 1024
    depth: int = 12
    num_heads: int = 16
    inner: int = 4096
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: str = "gelu"
    encoder_depth: int | None = None
    is_pre_norm: bool = False
    has_key_bias: bool = True

    def dim_of(self, config: ConfigFile) -> int:
        """Width of a model."""
        return config.size("d_model", self.dim)

    def dropout_of(self, config: ConfigFile) -> float:
        """Dropout of embeddings and branches."""
        return config.number("dropout", self.dropout)

    def settings(self, config: ConfigFile, side: str) -> Settings:
        """The backbone of a side, encoder or decoder."""
        dim = self.dim_of(config)
        is_decoder = side == "decoder"
        mlp = {
            "ratio": config.size(f"{side}_ffn_dim", self.inner) / dim,
            "activation": config.one_of("activation_function", ACTIVATIONS, self.activation),
        }
        kind = "PreNormBlock" if self.is_pre_norm else "PostNormBlock"
        weights = config.number("attention_dropout", self.attention_dropout)
        layer = block(kind, LAYER_NORM, mlp, weights)
        return {
            "type": "Transformer",
            "dim": dim,
            "depth": self._depth(config, side),
            "causal": is_decoder,
            "num_heads": config.size(f"{side}_attention_heads", self.num_heads),
            "dropout": self.dropout_of(config),
            "norm": LAYER_NORM if self.is_pre_norm else "Identity",
            "block": {**layer, "cross_attention": is_decoder},
        }

    def _depth(self, config: ConfigFile, side: str) -> int:
        depth = self.encoder_depth if side == "encoder" else None
        return depth_of(config, f"{side}_layers", depth or self.depth)

    def rows(self, config: ConfigFile, side: str, ours: str) -> Rows:
        """Rows of a side. ours: what our names begin with."""
        attention = partial(
            attention_rows,
            names=("q_proj", "k_proj", "v_proj", "out_proj"),
            dim=self.dim_of(config),
            has_key_bias=self.has_key_bias,
        )
        layer = attention("attention", "self_attn")
        layer += modules(
            {
                "attention_norm": "self_attn_layer_norm",
                "mlp.up_proj": "fc1",
                "mlp.down_proj": "fc2",
                "mlp_norm": "final_layer_norm",
            }
        )
        if side == "decoder":
            layer += attention("cross_attention", "encoder_attn")
            layer += module("cross_norm", "encoder_attn_layer_norm")
        depth = self._depth(config, side)
        rows = layers(depth, f"{ours}.blocks.{{}}.", f"{side}.layers.{{}}.", layer)
        if self.is_pre_norm:
            rows += module(f"{ours}.norm", f"{side}.layer_norm")
        return rows


def attention_rows(
    ours: str,
    theirs: str,
    *,
    names: tuple[str, str, str, str],
    dim: int | None = None,
    has_key_bias: bool = True,
) -> Rows:
    """Rows of an attention layer; one that is called `cross_attention` has the projection of queries apart.

    names: theirs, of queries, keys, values and output. dim: rows of each; None: equal ones.
    """
    query, key, value, out = (f"{theirs}.{name}" for name in names)
    if ours == "cross_attention":
        projections = {"q_proj": [query], "kv_proj": [key, value]}
    else:
        projections = {"qkv_proj": [query, key, value]}
    rows = module(f"{ours}.out_proj", out)
    for name, parts in projections.items():
        sizes = None if dim is None else (dim,) * len(parts)
        without_bias = () if has_key_bias else (key,)
        rows += module(f"{ours}.{name}", *parts, sizes=sizes, without_bias=without_bias)
    return rows


def shared_table(ours: str) -> Rows:
    """Rows of one table of ids for both sides, which may stand in a file under the name of each, too."""
    again = [row for side in SIDES for row in alias(ours, f"{side}.embed_tokens.weight")]
    return [*tensor(ours, "shared.weight"), *again]
