"""AST, wav2vec 2.0, HuBERT (transformers 5.23)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqkit.pretrained.audio_inputs import sounds
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.encoders import post_norm
from seqkit.pretrained.families.vision import vit_settings, vit_table
from seqkit.pretrained.family import Family, Settings, depth_of
from seqkit.pretrained.rows import Rows, below, layers, module, tensor

YES_OR_NO = {True: True, False: False}


def _pre_norm(found: Settings) -> Settings:
    """Settings of a post-norm encoder as those of a pre-norm one, whose norm of the inputs is that of the outputs."""
    backbone = found["backbone"]
    backbone["norm"], backbone["block"]["type"] = found.pop("embedding_norm"), "PreNormBlock"
    return found


# ── AST ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _spectrogram(config: ConfigFile) -> dict[str, int]:
    return {"num_mels": config.size("num_mel_bins", 128), "num_frames": config.size("max_length", 1024)}


def _patches(config: ConfigFile) -> tuple[int, list[int]]:
    """Side of a patch, and bands and frames from one to the next."""
    return config.size("patch_size", 16), [config.size(f"{name}_stride", 10) for name in ("frequency", "time")]


def _ast(config: ConfigFile) -> Settings:
    p, strides = _patches(config)
    rows, columns = ((size - p) // step + 1 for size, step in zip(_spectrogram(config).values(), strides))
    if min(rows, columns) < 1:
        raise config.refused("patch_size", "a size that fits into the spectrogram")
    return vit_settings(config, 2 + rows * columns)


def _ast_table(config: ConfigFile) -> Rows:
    return vit_table(config, ["cls_token", "distillation_token"], 1, _patches(config)[0])


def _ast_inputs(folder: Path, config: ConfigFile) -> Settings:
    p, strides = _patches(config)
    return {**sounds(folder, "MelPatches", _spectrogram(config)), "patch": p, "stride": strides}


AST = Family(_ast, _ast_table, "audio_spectrogram_transformer.", {}, ("classifier.",), _ast_inputs)
"""Its classes see the mean of the two learned tokens, after a second norm: that head is not read."""

# ── wav2vec 2.0, HuBERT ───────────────────────────────────────────────────────────────────────────────────────────────

UNUSED = (
    "activation_dropout", "adapter_kernel_size", "adapter_stride", "apply_spec_augment", "classifier_proj_size",
    "codevector_dim", "contrastive_logits_temperature", "ctc_loss_reduction", "ctc_zero_infinity",
    "diversity_loss_weight", "feat_extract_dropout", "feat_proj_dropout", "feat_quantizer_dropout", "final_dropout",
    "freeze_feat_extract_train", "hidden_dropout_prob", "layerdrop", "mask_channel_length", "mask_channel_min_space",
    "mask_channel_other", "mask_channel_prob", "mask_channel_selection", "mask_feature_length",
    "mask_feature_min_masks", "mask_feature_prob", "mask_time_length", "mask_time_min_masks", "mask_time_min_space",
    "mask_time_other", "mask_time_prob", "mask_time_selection", "no_mask_channel_overlap", "no_mask_time_overlap",
    "num_adapter_layers", "num_codevector_groups", "num_codevectors_per_group", "num_feat_extract_layers",
    "num_negatives", "output_hidden_size", "proj_codevector_dim", "tdnn_dilation", "tdnn_dim", "tdnn_kernel",
    "use_weighted_layer_sum", "xvector_output_dim",
)  # fmt: skip
"""Keys of training, and of heads and adapters that are not there."""


def _convolutions(config: ConfigFile) -> dict[str, Any]:
    """Settings of `Convolutions`."""
    found: dict[str, Any] = {}
    for ours, theirs, default in (
        ("widths", "conv_dim", [512] * 7),
        ("kernels", "conv_kernel", [10, 3, 3, 3, 3, 2, 2]),
        ("strides", "conv_stride", [5, 2, 2, 2, 2, 2, 2]),
    ):
        found[ours] = config.get(theirs, default)
        if not isinstance(found[ours], list) or not all(type(x) is int and 1 <= x < 1 << 16 for x in found[ours]):
            raise config.refused(theirs, "a list of whole numbers from 1 to 65,535")
    if len({len(sizes) for sizes in found.values()}) > 1 or not found["widths"]:
        raise config.refused("conv_dim", "a number for each of conv_kernel and conv_stride")
    if any(kernel < stride for kernel, stride in zip(found["kernels"], found["strides"])):
        raise config.refused("conv_kernel", "kernels as long as their strides, or longer")
    found["norm"] = config.one_of("feat_extract_norm", {"group": "group", "layer": "layer"}, "group")
    found["bias"] = config.one_of("conv_bias", YES_OR_NO, False)
    is_normed = config.model_type == "wav2vec2" or config.one_of("feat_proj_layer_norm", YES_OR_NO, True)
    return {**found, "norm_eps": config.number("layer_norm_eps", 1e-5) if is_normed else None}


def _is_pre_norm(config: ConfigFile) -> bool:
    return bool(config.one_of("do_stable_layer_norm", YES_OR_NO, False))


def _wav2vec2(config: ConfigFile) -> Settings:
    config.must_be("gelu", "feat_extract_activation")
    config.must_be(False, "conv_pos_batch_norm" if config.model_type == "hubert" else "add_adapter")
    config.must_be(None, "adapter_attn_dim")
    for name in UNUSED:
        config.get(name)
    dim, groups = config.size("hidden_size", 768), config.size("num_conv_pos_embedding_groups", 16)
    if dim % groups:
        raise config.refused("num_conv_pos_embedding_groups", f"a divisor of hidden_size, {dim}")
    found = post_norm(
        config, dim, depth_of(config, default=12), config.size("num_attention_heads", 12),
        config.size("intermediate_size", 3072), config.number("layer_norm_eps", 1e-5),
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
    depth, theirs = len(_convolutions(config)["widths"]), "feature_extractor.conv_layers.{}."
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


HEADS = ("lm_head.", "classifier.", "projector.", "layer_weights", "quantizer.", "project_q.", "project_hid.")
WAV2VEC2 = Family(_wav2vec2, _wav2vec2_table, "wav2vec2.", {}, HEADS, _wav2vec2_inputs)
HUBERT = Family(_wav2vec2, _wav2vec2_table, "hubert.", {}, HEADS, _wav2vec2_inputs)
