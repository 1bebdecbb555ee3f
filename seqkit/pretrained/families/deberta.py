"""DeBERTa-v2 and v3 (transformers 5.23): queries and keys are compared with vectors of distances, too."""

from __future__ import annotations

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.encoders import LAYER, Encoder, Sizes
from seqkit.pretrained.family import Settings
from seqkit.pretrained.rows import module, tensor


def _changes(config: ConfigFile, found: Settings) -> None:
    backbone = found["backbone"]
    dim = backbone["dim"]
    config.must_be(0, "type_vocab_size", "conv_kernel_size")
    config.must_be(True, "legacy")
    config.must_be(dim, "embedding_size", "pooler_hidden_size")
    config.must_be(dim // backbone["num_heads"], "attention_head_size")
    if not config.flag("position_biased_input", True):
        found["position"] = "NoPosition"
    compared = config.get("pos_att_type") or []
    if isinstance(compared, str):
        compared = compared.split("|")
    is_relative = config.flag("relative_attention", False)
    if {name.strip().lower() for name in compared} != ({"c2p", "p2c"} if is_relative else set()):
        raise config.refused("pos_att_type", "c2p and p2c, or none without relative_attention")
    if is_relative:
        backbone["position"] = _distances(config, found["embedding_norm"], dim)
        temperature = (3 * dim / backbone["num_heads"]) ** 0.5
        backbone["block"]["attention"]["mechanism"]["temperature"] = temperature


def _distances(config: ConfigFile, norm: Settings, dim: int) -> Settings:
    """Settings of the vectors of distances. norm: that of the layers."""
    if not config.flag("share_att_key", False):
        raise config.refused("share_att_key", "true")
    num = config.size("position_buckets", least=4)
    longest = "max_relative_positions"
    if config.get(longest, -1) < 1:
        longest = "max_position_embeddings"
    return {
        "type": "DisentangledPosition",
        "dim": dim,
        "num_buckets": num,
        "max_distance": config.size(longest, 512, least=num // 2 + 2),
        "norm": config.one_of("norm_rel_ebd", {"none": "Identity", "layer_norm": norm}, "none"),
    }


DEBERTA = Encoder(
    "deberta.",
    Sizes(1536, 6144, 24, 24),
    eps=1e-7,
    num_types=0,
    layer=(
        "attention.self.query_proj",
        "attention.self.key_proj",
        "attention.self.value_proj",
        *LAYER[3:],
    ),
    classes=("pooler.dense", "classifier"),
    squash=None,
    changes=_changes,
    others=[
        *tensor("backbone.positions.0.table", "encoder.rel_embeddings.weight", may_miss=True),
        *module("backbone.positions.0.norm", "encoder.LayerNorm"),
    ],
).family()
