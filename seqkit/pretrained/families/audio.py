"""wav2vec 2.0 and HuBERT (transformers 5.23)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqkit.pretrained.audio_inputs import sounds
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.encoders import post_norm
from seqkit.pretrained.family import Family, Settings, depth_of
from seqkit.pretrained.rows import Rows, below, layers, module, tensor

YES_OR_NO = {True: True, False: False}


def _pre_norm(found: Settings) -> Settings:
    """Settings of a post-norm encoder as those of a pre-norm one, whose norm of the inputs is that of the outputs."""
    backbone = found["backbone"]
    backbone["norm"] = found.pop("embedding_norm")
    backbone["block"]["type"] = "PreNormBlock"
    return found


def _convolutions(config: ConfigFile) -> dict[str, Any]:
    """Settings of `Convolutions`."""
    found: dict[str, Any] = {}
    for ours, theirs, default in (
        ("widths", "conv_dim", [512] * 7),
        ("kernels", "conv_kernel", [10, 3, 3, 3, 3, 2, 2]),
        ("strides", "conv_stride", [5, 2, 2, 2, 2, 2, 2]),
    ):
        found[ours] = config.get(theirs, default)
        if not isinstance(found[ours], list) or not all(
            type(x) is int and 1 <= x < 1 << 16 for x in found[ours]
        ):
            raise config.refused(theirs, "a list of whole numbers from 1 to 65,535")
    if len({len(sizes) for sizes in found.values()}) > 1 or not found["widths"]:
        raise config.refused("conv_dim", "a number for each of conv_kernel and conv_stride")
    if any(kernel < stride for kernel, stride in zip(found["kernels"], found["strides"])):
        raise config.refused("conv_kernel", "kernels as long as their strides, or longer")
    found["norm"] = config.one_of(
        "feat_extract_norm", {"group": "group", "layer": "layer"}, "group"
    )
    found["bias"] = config.one_of("conv_bias", YES_OR_NO, False)
    is_normed = config.model_type == "wav2vec2" or config.one_of(
        "feat_proj_layer_norm", YES_OR_NO, True
    )
    return {**found, "norm_eps": config.positive("layer_norm_eps", 1e-5) if is_normed else None}


def _is_pre_norm(config: ConfigFile) -> bool:
    return bool(config.one_of("do_stable_layer_norm", YES_OR_NO, False))


def _wav2vec2(config: ConfigFile) -> Settings:
    config.must_be("gelu", "feat_extract_activation")
    config.must_be(False, "conv_pos_batch_norm" if config.model_type == "hubert" else "add_adapter")
    config.must_be(None, "adapter_attn_dim")
    dim = config.size("hidden_size", 768)
    groups = config.size("num_conv_pos_embedding_groups", 16)
    if dim % groups:
        raise config.refused("num_conv_pos_embedding_groups", f"a divisor of hidden_size, {dim}")
    found = post_norm(
        config, dim, depth_of(config, default=12), config.size("num_attention_heads", 12),
        config.size("intermediate_size", 3072), config.positive("layer_norm_eps", 1e-5),
        ("hidden_act", "hidden_dropout", "attention_dropout"),
    )  # fmt: skip
    kernel = config.size("num_conv_pos_embeddings", 128)
    position = {"type": "ConvolutionalPosition", "kernel_size": kernel, "num_groups": groups}
    return {"position": position, **(_pre_norm(found) if _is_pre_norm(config) else found)}


def _wav2vec2_table(config: ConfigFile) -> Rows:
    layer = [
        *module("attention.qkv_proj", "attention.q_proj", "attention.k_proj", "attention.v_proj"),
        *module("attention.out_proj", "attention.out_proj"),
        *module("attention_norm", "layer_norm"),
        *module("mlp.up_proj", "feed_forward.intermediate_dense"),
        *module("mlp.down_proj", "feed_forward.output_dense"),
        *module("mlp_norm", "final_layer_norm"),
    ]
    convolution = [*module("conv", "conv"), *module("norm", "layer_norm")]
    depth = len(_convolutions(config)["widths"])
    theirs = "feature_extractor.conv_layers.{}."
    norms = [f"parametrizations.weight.original{i}" for i in range(2)]
    around = [row for name in ("bias", *norms) for row in tensor(name, name)]
    return [
        *layers(depth, "embedder.content.layers.{}.", theirs, convolution),
        *module("embedder.content.norm", "feature_projection.layer_norm"),
        *module("embedder.content.projection", "feature_projection.projection"),
        *tensor("embedder.mask_token", "masked_spec_embed", may_miss=True),
        *below(around, "embedder.position.conv.", "encoder.pos_conv_embed.conv."),
        *module("backbone.norm" if _is_pre_norm(config) else "embedder.norm", "encoder.layer_norm"),
        *layers(depth_of(config, default=12), "backbone.blocks.{}.", "encoder.layers.{}.", layer),
    ]


def _wav2vec2_inputs(folder: Path, config: ConfigFile) -> Settings:
    return {**sounds(folder, "SampleWindows", {}), "convolutions": _convolutions(config)}


HEADS = (
    "lm_head.",
    "classifier.",
    "projector.",
    "layer_weights",
    "quantizer.",
    "project_q.",
    "project_hid.",
)
WAV2VEC2 = Family(_wav2vec2, _wav2vec2_table, "wav2vec2.", {}, HEADS, _wav2vec2_inputs)
HUBERT = Family(_wav2vec2, _wav2vec2_table, "hubert.", {}, HEADS, _wav2vec2_inputs)
