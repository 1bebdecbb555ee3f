"""Types of hybrid decoders as one table: what each has in place of attention, and how it differs from LLaMA beside it.

h heads · c channels of a key · e of a value · w channels of a convolution
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.mamba import (
    Kernel,
    check_unlimited,
    mamba2_table,
    mamba_table,
    rank_of,
)
from seqkit.pretrained.family import Settings
from seqkit.pretrained.rows import ByHead, Rows, module, modules, tensor

Layers = Callable[[ConfigFile, int], list[bool]]
"""Whether each of so many layers has something."""
Names = Mapping[str, str | tuple[str, ...]]
NAMES: Names = {
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "attention_residual.norm": "post_attention_layernorm",
    "mlp_residual.norm": "post_feedforward_layernorm",
    "query_norm": "q_norm",
    "key_norm": "k_norm",
    "out_proj": "o_proj",
    "gate_up_proj": ("gate_proj", "up_proj"),
    "down_proj": "down_proj",
    "norm": "norm",
}
"""Modules of a layer, and the last norm, by our names: as most types call them."""


@dataclass(frozen=True)
class Experts:
    """Experts in place of MLPs. num, top_k: how many, and those of a token, where the file does not say them.

    layers: which have them. router: its name. width: of an expert by default, and of the one that all tokens share;
    None: that of an MLP, and there is no shared one. normalized: whether gates of a token may add up to 1.
    """

    layers: Layers
    num: int
    top_k: int
    router: str
    width: int | None = None
    normalized: bool = False


@dataclass(frozen=True)
class Hybrid:
    """A type. eps, tied, head_dim, kv_heads, base, share, window, softcap: where the file does not say them.

    mixer: its settings. table: names of its weights below `place`. mixes: layers that have it. beside: makes one mixer
    of attention and that one, for types that have both in a layer. names: that differ from `NAMES`; places of
    attention and MLP. norm: component of the norms. norms_behind: whether layers with attention have them behind the
    branches. gate: whether attention has a gate. qk_norm: norm of queries and keys, of each "head" or of "all"
    together. is_rotary: whether positions turn them. base, share: of rotary positions; has_axes: whether a file says
    how several axes share the channels. activation, its key, and width: of the MLP. biased: whether MLPs and outputs of
    attention have biases. score_scale: factor of scores, from the usual one. mlp_scales: factors of its gate and
    output. multiplies: whether residual branches and logits have factors. tied_key: an older name.
    old_names: as in `Family`.
    """

    mixer: Callable[[ConfigFile], Settings]
    table: Callable[[ConfigFile], Rows]
    mixes: Layers
    place: str = "linear_attn."
    beside: Callable[[ConfigFile, Settings, Settings], Settings] | None = None
    names: Names = field(default_factory=dict)
    attention_place: str = "self_attn."
    mlp_place: str = "mlp."
    norm: str = "RMSNorm"
    eps: float = 1e-6
    eps_key: str = "rms_norm_eps"
    norms_behind: bool = False
    gate: bool = False
    qk_norm: Literal["head", "all"] | None = None
    is_rotary: Callable[[ConfigFile], bool] = lambda _: True
    base: float = 10_000.0
    share: float | None = None
    has_axes: bool = False
    tied: bool = False
    tied_key: str = "tie_word_embeddings"
    head_dim: int | None = None
    kv_heads: int | None = None
    window: tuple[str, int] | None = None
    activation: str = "silu"
    activation_key: str = "hidden_act"
    width: Callable[[ConfigFile], int] = lambda config: config.size("intermediate_size")
    biased: bool = False
    experts: Experts | None = None
    embedding_scale: Callable[[ConfigFile], float] | None = None
    score_scale: Callable[[ConfigFile, float], float] | None = None
    mlp_scales: Callable[[ConfigFile], list[float]] | None = None
    multiplies: bool = False
    softcap: tuple[str, float] | None = None
    old_names: Mapping[str, str] = field(default_factory=dict)

    def name(self, ours: str) -> str | tuple[str, ...]:
        """Their name of a module."""
        return self.names.get(ours, NAMES[ours])


def _by_type(usual: Layers, mixer: str = "linear_attention") -> Layers:
    """Layers by `layer_types`, which calls theirs `mixer`. usual: where the file does not say them."""
    known = {mixer: True, "full_attention": False}
    if mixer == "linear_attention":
        known |= {"mamba": True, "attention": False}  # older names

    def mixes(config: ConfigFile, depth: int) -> list[bool]:
        kinds = config.get("layer_types")
        if kinds is None:
            return usual(config, depth)
        if len(kinds) != depth or not {*kinds} <= {*known}:
            raise config.refused("layer_types", " or ".join(known) + " for each layer")
        return [known[kind] for kind in kinds]

    return mixes


def _all(_: ConfigFile, depth: int) -> list[bool]:
    return [True] * depth


# ── gated DeltaNet ────────────────────────────────────────────────────────────────────────────────────────────────────


def _delta(config: ConfigFile) -> Settings:
    c, heads, e, value_heads = _delta_sizes(config)
    return {
        "type": "GatedDeltaNet",
        "head_dim": c,
        "num_mixer_heads": heads,
        "value_dim": e,
        "num_value_heads": value_heads,
        "kernel_size": config.size("linear_conv_kernel_dim", 4),
        "eps": config.positive("rms_norm_eps", 1e-6),
    }


def _olmo_delta(config: ConfigFile) -> Settings:
    negative = config.flag("linear_allow_neg_eigval", True)
    return {**_delta(config), "eps": 1e-5, "negative_eigenvalues": negative}


def _delta_sizes(config: ConfigFile) -> tuple[int, int, int, int]:
    """Channels of a key, heads, channels of a value, and value heads."""

    def size(key: str, usual: int) -> int:
        return usual if config.get(key) is None else config.size(key)

    if config.model_type != "olmo_hybrid":
        c = size("linear_key_head_dim", 128)
        e = size("linear_value_head_dim", 128)
        return c, size("linear_num_key_heads", 16), e, size("linear_num_value_heads", 32)
    usual = config.size("num_attention_heads")
    heads = size("linear_num_key_heads", usual)
    c = size("linear_key_head_dim", int(0.75 * config.size("hidden_size") / heads))
    return c, heads, size("linear_value_head_dim", 2 * c), size("linear_num_value_heads", usual)


def _delta_table(in_proj: Rows) -> Rows:
    return [
        *in_proj,
        *tensor("convolution.weight", "conv1d.weight", whole=Kernel()),
        *(row for name in ("A_log", "dt_bias") for row in tensor(name, name)),
        *modules({name: name for name in ("norm", "out_proj")}),
    ]


def _by_head_table(config: ConfigFile) -> Rows:
    c, heads, e, value_heads = _delta_sizes(config)
    each = value_heads // heads
    changes = (
        ByHead(heads, (c, c, each * e, each * e), (0, 1, 2, 3)),
        ByHead(heads, (each, each), (1, 0)),
    )
    sizes = (2 * heads * (c + each * e), 2 * value_heads)
    return _delta_table(
        module("in_proj", "in_proj_qkvz", "in_proj_ba", sizes=sizes, changes=changes)
    )


def _apart_table(config: ConfigFile) -> Rows:
    c, heads, e, value_heads = _delta_sizes(config)
    sizes = (2 * heads * c + value_heads * e, value_heads * e, value_heads, value_heads)
    names = ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b")
    return _delta_table(module("in_proj", *names, sizes=sizes))


def _olmo_table(config: ConfigFile) -> Rows:
    c, heads, e, value_heads = _delta_sizes(config)
    values = value_heads * e
    sizes = (heads * c, heads * c, values, values, value_heads, value_heads)
    kernels = [f"{name}_conv1d.weight" for name in "qkv"]
    return [
        *module("in_proj", *(f"{name}_proj" for name in "qkvgab"), sizes=sizes),
        *tensor("convolution.weight", *kernels, whole=Kernel()),
        *(row for name in ("A_log", "dt_bias") for row in tensor(name, name)),
        *modules({"norm": "o_norm", "out_proj": "o_proj"}),
    ]


def _but_every(config: ConfigFile, depth: int) -> list[bool]:
    every = config.size("full_attention_interval", 4)
    return [(i + 1) % every != 0 for i in range(depth)]


def _olmo_layers(_: ConfigFile, depth: int) -> list[bool]:
    return [(i + 1) % 4 != 0 and (i < depth - 1 or depth > 3) for i in range(depth)]


def _olmo_is_rotary(config: ConfigFile) -> bool:
    given = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10_000.0)}
    return given.get("rope_theta", 10_000.0) is not None


def _sparse(config: ConfigFile, depth: int) -> list[bool]:
    """Layers of Qwen3-Next with experts."""
    every = config.size("decoder_sparse_step", 1)
    dense = config.get("mlp_only_layers") or []
    return [i not in dense and (i + 1) % every == 0 for i in range(depth)]


QWEN3_5 = Hybrid(
    _delta,
    _apart_table,
    _by_type(_but_every),
    norm="ZeroCenteredRMSNorm",
    gate=True,
    qk_norm="head",
    share=0.25,
    has_axes=True,
    head_dim=256,
    kv_heads=4,
)
QWEN3_NEXT = replace(
    QWEN3_5,
    table=_by_head_table,
    experts=Experts(_sparse, 512, 10, "gate", 512, normalized=True),
    has_axes=False,
    kv_heads=2,
)


# ── Mamba ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _mamba2(config: ConfigFile) -> Settings:
    dim = config.size("hidden_size")
    width = config.number("mamba_expand", 2) * dim
    if config.model_type == "falcon_h1" and config.get("mamba_d_ssm", 1024) is not None:
        width = config.size("mamba_d_ssm", 1024)
    heads = config.size("mamba_n_heads", 128)
    if config.get("mamba_d_head", "auto") not in ("auto", width // heads):
        raise config.refused("mamba_d_head", f"{width // heads:g}, so that heads fill the width")
    config.must_be(True, "mamba_conv_bias")
    config.must_be(False, "mamba_proj_bias")
    check_unlimited(config)
    return {
        "type": "Mamba2",
        "num_states": config.size("mamba_d_state", 256),
        "width": int(width),
        "num_groups": config.size("mamba_n_groups", 1),
        "num_mixer_heads": heads,
        "kernel_size": config.size("mamba_d_conv", 4),
        "eps": config.positive("rms_norm_eps", 1e-5),
    }


def _mamba(config: ConfigFile) -> Settings:
    """The mixer of Jamba."""
    config.must_be(True, "mamba_conv_bias")
    config.must_be(False, "mamba_proj_bias")
    return {
        "type": "Mamba",
        "num_states": config.size("mamba_d_state", 16),
        "expand": config.size("mamba_expand", 2),
        "kernel_size": config.size("mamba_d_conv", 4),
        "rank": rank_of(config, "mamba_dt_rank"),
        "dt_norm": {"type": "RMSNorm", "eps": config.positive("rms_norm_eps", 1e-6)},
    }


def _jamba_table(config: ConfigFile) -> Rows:
    names = {f"ssm.{name}_norm": f"{name.lower()}_layernorm" for name in ("dt", "B", "C")}
    return mamba_table(config, "mamba_d_state") + modules(names)


def _every(period: tuple[str, int], offset: tuple[str, int], found: bool) -> Layers:
    """Layers of Jamba: `found` where their number is the offset modulo the period. Both: a key, and by default."""

    def layers(config: ConfigFile, depth: int) -> list[bool]:
        first = config.get(*offset)
        return [(i % config.size(*period) == first) == found for i in range(depth)]

    return layers


def _bamba_layers(config: ConfigFile, depth: int) -> list[bool]:
    config.must_be(0.5, "partial_rotary_factor")
    attends = config.get("attn_layer_indices") or []
    return [i not in attends for i in range(depth)]


def _falcon_mamba2(config: ConfigFile) -> Settings:
    norm = "before" if config.flag("mamba_norm_before_gate", True) else "after"
    scales: Any = config.get("ssm_multipliers") or [1.0] * 5
    return {
        **_mamba2(config),
        "norm": norm if config.flag("mamba_rms_norm", False) else None,
        "scales": [config.number("ssm_in_multiplier", 1.0) * scale for scale in scales],
    }


def _falcon_beside(config: ConfigFile, attention: Settings, mixer: Settings) -> Settings:
    config.must_be(False, "attention_bias", "projectors_bias")
    scale = config.number("attention_in_multiplier", 1.0)
    return {
        "type": "ParallelMixer",
        "attention": attention,
        "beside": mixer,
        "attention_scale": scale * config.number("attention_out_multiplier", 1.0),
        "beside_scale": config.number("ssm_out_multiplier", 1.0),
    }


def _falcon_score_scale(config: ConfigFile, usual: float) -> float:
    scale = config.number("attention_in_multiplier", 1.0)
    return usual * config.number("key_multiplier", 1.0) * scale**2


def _granite_width(config: ConfigFile) -> int:
    config.must_be(0, "num_local_experts")
    return config.size("shared_intermediate_size", 1024)


BAMBA = Hybrid(
    _mamba2,
    mamba2_table,
    _bamba_layers,
    place="mamba.",
    names={"mlp_norm": "pre_ff_layernorm", "norm": "final_layernorm"},
    mlp_place="feed_forward.",
    eps=1e-5,
    share=0.5,
    kv_heads=8,
)
FALCON_H1 = replace(
    BAMBA,
    mixer=_falcon_mamba2,
    mixes=_all,
    beside=_falcon_beside,
    share=None,
    embedding_scale=lambda config: config.number("embedding_multiplier", 1.0),
    score_scale=_falcon_score_scale,
    mlp_scales=lambda config: config.get("mlp_multipliers") or [1.0, 1.0],
    multiplies=True,
)
GRANITE = Hybrid(
    _mamba2,
    mamba2_table,
    _by_type(_all),
    place="mamba.",
    names={"gate_up_proj": "input_linear", "down_proj": "output_linear"},
    mlp_place="shared_mlp.",
    is_rotary=lambda config: config.get("position_embedding_type") == "rope",
    width=_granite_width,
    embedding_scale=lambda config: config.number("embedding_multiplier", 1.0),
    score_scale=lambda config, _: config.number("attention_multiplier", 1.0),
    multiplies=True,
)
JAMBA = replace(
    BAMBA,
    mixer=_mamba,
    table=_jamba_table,
    mixes=_every(("attn_layer_period", 8), ("attn_layer_offset", 4), found=False),
    eps=1e-6,
    is_rotary=lambda _: False,
    experts=Experts(
        _every(("expert_layer_period", 2), ("expert_layer_offset", 1), found=True), 16, 2, "router"
    ),
)


# ── others ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _short(config: ConfigFile) -> Settings:
    """The mixer of LFM2."""
    return {
        "type": "ShortConvolution",
        "kernel_size": config.size("conv_L_cache", 3),
        "bias": config.flag("conv_bias", False),
    }


def _short_table(_: ConfigFile) -> Rows:
    return [
        *modules({name: name for name in ("in_proj", "out_proj")}),
        *tensor("convolution.weight", "conv.weight", whole=Kernel()),
        *tensor("convolution_bias", "conv.bias", may_miss=True),
    ]


def _short_layers(config: ConfigFile, depth: int) -> list[bool]:
    attends = config.get("full_attn_idxs")
    return [attends is not None and i not in attends for i in range(depth)]


def _short_width(config: ConfigFile) -> int:
    key = "intermediate_size" if config.get("block_ff_dim") is None else "block_ff_dim"
    width = config.size(key, 12_288)
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    if config.get("block_ffn_dim_multiplier", 1.0) is None:
        return width
    multiple = config.size("block_multiple_of", 256)
    width = int(config.number("block_ffn_dim_multiplier", 1.0) * width)
    return multiple * -(-width // multiple)


HYBRIDS = {
    "qwen3_next": QWEN3_NEXT,
    "qwen3_5_text": QWEN3_5,
    "olmo_hybrid": Hybrid(
        _olmo_delta,
        _olmo_table,
        _by_type(_olmo_layers),
        names={
            "attention_norm": "attention_layer_norm",
            "mlp_norm": "feedforward_layer_norm",
            "attention_residual.norm": "feedforward_layer_norm",
        },
        norms_behind=True,
        qk_norm="all",
        is_rotary=_olmo_is_rotary,
        # transformers writes the others
        old_names={
            ".input_layernorm.weight": ".attention_layer_norm.weight",
            ".post_attention_layernorm.weight": ".feedforward_layer_norm.weight",
        },
    ),
    "bamba": BAMBA,
    "falcon_h1": FALCON_H1,
    "granitemoehybrid": GRANITE,
    "jamba": JAMBA,
    "lfm2": Hybrid(
        _short,
        _short_table,
        _by_type(_short_layers, "conv"),
        place="conv.",
        names={
            "attention_norm": "operator_norm",
            "mlp_norm": "ffn_norm",
            "query_norm": "q_layernorm",
            "key_norm": "k_layernorm",
            "out_proj": "out_proj",
            "gate_up_proj": ("w1", "w3"),
            "down_proj": "w2",
            "norm": "embedding_norm",
        },
        mlp_place="feed_forward.",
        eps=1e-5,
        eps_key="norm_eps",
        qk_norm="head",
        base=1e6,
        tied=True,
        tied_key="tie_embedding",
        kv_heads=8,
        width=_short_width,
    ),
}
