"""wav2vec 2.0, HuBERT, UniSpeech and WavLM (transformers 5.23)."""

from __future__ import annotations

from pathlib import Path

from seqkit.pretrained.audio_inputs import sounds
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.encoders import post_norm
from seqkit.pretrained.family import Family, Settings, depth_of, distances
from seqkit.pretrained.rows import Rearranged, Rows, below, layers, module, modules, tensor


def _convolutions(config: ConfigFile) -> Settings:
    """Settings of `Convolutions`."""
    found: Settings = {}
    for ours, theirs, default in (
        ("widths", "conv_dim", [512] * 7),
        ("kernels", "conv_kernel", [10, 3, 3, 3, 3, 2, 2]),
        ("strides", "conv_stride", [5, 2, 2, 2, 2, 2, 2]),
    ):
        sizes = config.get(theirs, default)
        if not isinstance(sizes, list) or not all(
            type(x) is int and 1 <= x < 1 << 16 for x in sizes
        ):
            raise config.refused(theirs, "a list of whole numbers from 1 to 65,535")
        found[ours] = sizes
    if len({len(sizes) for sizes in found.values()}) > 1 or not found["widths"]:
        raise config.refused("conv_dim", "a number for each of conv_kernel and conv_stride")
    if any(kernel < stride for kernel, stride in zip(found["kernels"], found["strides"])):
        raise config.refused("conv_kernel", "kernels as long as their strides, or longer")
    norms = {"group": "group", "layer": "layer"}
    found["norm"] = config.one_of("feat_extract_norm", norms, "group")
    found["bias"] = config.flag("conv_bias", False)
    found["norm_eps"] = None
    if config.model_type != "hubert" or config.flag("feat_proj_layer_norm", True):
        found["norm_eps"] = config.positive("layer_norm_eps", 1e-5)
    return found


KEYS = {
    "hidden_dropout_prob": "hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
"""Names of settings by those of BERT."""


def _is_pre_norm(config: ConfigFile) -> bool:
    return config.flag("do_stable_layer_norm", False)


def _is_wavlm(config: ConfigFile) -> bool:
    return config.model_type == "wavlm"


def _wav2vec2(config: ConfigFile) -> Settings:
    config.must_be("gelu", "feat_extract_activation")
    config.must_be(False, "conv_pos_batch_norm", "add_adapter")
    config.must_be(None, "adapter_attn_dim")
    found = post_norm(config, 1e-5, KEYS)
    backbone = found["backbone"]
    groups = config.size("num_conv_pos_embedding_groups", 16)
    if backbone["dim"] % groups:
        known = f"a divisor of hidden_size, {backbone['dim']}"
        raise config.refused("num_conv_pos_embedding_groups", known)
    if _is_pre_norm(config):  # the norm of the inputs is there that of the outputs
        backbone["norm"] = found.pop("embedding_norm")
        backbone["block"]["type"] = "PreNormBlock"
    if _is_wavlm(config):
        backbone["block"]["attention"]["gated_bias"] = True
        sizes = (("num_buckets", 320), ("max_bucket_distance", 800))
        backbone["position"] = distances(config, backbone["num_heads"], *sizes)
    kernel = config.size("num_conv_pos_embeddings", 128)
    position = {"type": "ConvolutionalPosition", "kernel_size": kernel, "num_groups": groups}
    return {"position": position, **found}


def _wav2vec2_table(config: ConfigFile) -> Rows:
    layer = modules(
        {
            "attention.qkv_proj": ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
            "attention.out_proj": "attention.out_proj",
            "attention_norm": "layer_norm",
            "mlp.up_proj": "feed_forward.intermediate_dense",
            "mlp.down_proj": "feed_forward.output_dense",
            "mlp_norm": "final_layer_norm",
        }
    )
    of_wavlm: Rows = []
    if _is_wavlm(config):
        layer += module("attention.bias_gate.linear", "attention.gru_rel_pos_linear")
        one_axis = Rearranged("1 h 1 1 -> h", {})
        layer += tensor("attention.bias_gate.scale", "attention.gru_rel_pos_const", whole=one_axis)
        table = "encoder.layers.0.attention.rel_attn_embed.weight"
        of_wavlm = tensor("backbone.positions.0.table", table)
    convolution = modules({"conv": "conv", "norm": "layer_norm"})
    depth = len(_convolutions(config)["widths"])
    theirs = "feature_extractor.conv_layers.{}."
    norms = [f"parametrizations.weight.original{i}" for i in range(2)]
    around = [row for name in ("bias", *norms) for row in tensor(name, name)]
    around_all = "backbone.norm" if _is_pre_norm(config) else "embedder.norm"
    return [
        *of_wavlm,
        *layers(depth, "embedder.content.layers.{}.", theirs, convolution),
        *modules(
            {
                "embedder.content.norm": "feature_projection.layer_norm",
                "embedder.content.projection": "feature_projection.projection",
                around_all: "encoder.layer_norm",
            }
        ),
        *tensor("embedder.mask_token", "masked_spec_embed", may_miss=True),
        *below(around, "embedder.position.conv.", "encoder.pos_conv_embed.conv."),
        *layers(depth_of(config, default=12), "backbone.blocks.{}.", "encoder.layers.{}.", layer),
    ]


def _wav2vec2_inputs(folder: Path, config: ConfigFile) -> Settings:
    return {**sounds(folder, "SampleWindows", {}), "convolutions": _convolutions(config)}


LEFT_OUT = (
    "lm_head.",
    "classifier.",
    "projector.",
    "layer_weights",
    "quantizer.",
    "project_q.",
    "project_hid.",
    "ctc_proj.",
    "speaker_proj.",
    "label_embeddings_concat",
    "layer_norm_for_extract.",
)
WAVES: dict[str, Family] = {
    kind: Family(
        _wav2vec2,
        _wav2vec2_table,
        f"{kind.replace('-', '_')}.",
        left_out=LEFT_OUT,
        inputs=_wav2vec2_inputs,
    )
    for kind in ("wav2vec2", "hubert", "unispeech", "unispeech-sat", "wavlm")
}
