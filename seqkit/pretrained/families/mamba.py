"""Mamba, Falcon Mamba and Mamba-2 (transformers 5.23).

e channels of the inner width · s states of a channel · k tokens of the convolution
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from einops import rearrange

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.gpt import TIED
from seqkit.pretrained.family import Family, Head, Settings, depth_of
from seqkit.pretrained.rows import Rearranged, Rows, alias, below, layers, module, modules, tensor

if TYPE_CHECKING:
    from torch import Tensor


def _model(config: ConfigFile) -> Settings:
    dim = config.size("hidden_size", 768)
    config.must_be(False, "use_bias", "rescale_prenorm_residual")
    config.must_be(True, "use_conv_bias", "tie_word_embeddings")
    config.must_be("silu", "hidden_act")
    config.must_be(1e-5, "layer_norm_epsilon")
    rank = -(-dim // 16)
    if config.get("time_step_rank", "auto") not in ("auto", rank):
        raise config.refused("time_step_rank", f"{rank}, which is hidden_size / 16")
    expand = config.number("expand", 2)
    if expand != int(expand) or config.get("intermediate_size", expand * dim) != expand * dim:
        raise config.refused("intermediate_size", "a multiple of hidden_size")
    return {
        "position": "NoPosition",
        "dropout": 0.0,
        "backbone": {
            "type": "Mamba",
            "dim": dim,
            "depth": depth_of(config, default=32),
            "expand": int(expand),
            "causal": True,
            "num_states": config.size("state_size", 16),
            "kernel_size": config.size("conv_kernel", 4),
            "dropout": 0.0,
        },
    }


class Kernel:
    """The convolution: ours counts back from the token, theirs up to it."""

    def read(self, x: Tensor, /) -> Tensor:
        """[k 1 e] of [e 1 k]."""
        return rearrange(x, "e 1 k -> k 1 e").flip(0)

    def write(self, x: Tensor, /) -> Tensor:
        """[e 1 k] of [k 1 e]."""
        return rearrange(x.flip(0), "k 1 e -> e 1 k")


def mamba_table(config: ConfigFile) -> Rows:
    """Rows of a `MambaMixer`."""
    flat = Rearranged("e s -> (e s)", {"s": config.size("state_size", 16)})
    of_ssm = [
        *modules({name: name for name in ("x_proj", "dt_proj")}),
        *_convolution(),
        *tensor("A_log", "A_log", whole=flat),
        *tensor("D", "D"),
    ]
    return [*modules({name: name for name in ("in_proj", "out_proj")}), *below(of_ssm, "ssm.", "")]


def mamba2_table(_: ConfigFile) -> Rows:
    """Rows of a `Mamba2Mixer`."""
    return [
        *modules({name: name for name in ("in_proj", "out_proj")}),
        *_convolution(),
        *(row for name in ("A_log", "dt_bias", "D") for row in tensor(name, name)),
        *tensor("norm_weight", "norm.weight", may_miss=True),
    ]


def _convolution() -> Rows:
    return [
        *tensor("convolution.weight", "conv1d.weight", whole=Kernel()),
        *tensor("convolution_bias", "conv1d.bias"),
    ]


def _stack(config: ConfigFile, mixer: str, rows: Rows) -> Rows:
    """Rows of a stack of mixers. mixer: its name in a layer; its norm's begins with it. rows: of the mixer."""
    norm = "norm" if mixer == "mixer" else f"{mixer}_norm"
    layer = module(norm, "norm") + below(rows, f"{mixer}.", "mixer.")
    return [
        *tensor("embedder.content.weight", "embeddings.weight"),
        *layers(depth_of(config, default=32), "backbone.blocks.{}.", "layers.{}.", layer),
        *module("backbone.norm", "norm_f"),
    ]


MAMBA = Family(
    _model,
    lambda config: _stack(config, "mixer", mamba_table(config)),
    "backbone.",
    {"NextToken": TIED},
)


# ── stacks of mixers in blocks without MLP ────────────────────────────────────────────────────────────────────────────


def _falcon_mamba(config: ConfigFile) -> Settings:
    """The mixer of Falcon Mamba."""
    dim = config.size("hidden_size")
    width = config.number("intermediate_size", config.number("expand", 2) * dim)
    if width % dim:
        raise config.refused("intermediate_size", "a multiple of hidden_size")
    eps = config.positive("mixer_rms_eps", 1e-6)
    rank = -(-dim // 16)
    if config.get("time_step_rank", "auto") != "auto":
        rank = config.size("time_step_rank")
    return {
        "type": "Mamba",
        "num_states": config.size("state_size", 16),
        "expand": int(width) // dim,
        "rank": rank,
        "dt_norm": {"type": "RMSNorm", "eps": eps, "elementwise_affine": False},
    }


def _mamba2(config: ConfigFile) -> Settings:
    """The mixer of Mamba-2."""
    heads = config.size("num_heads", 128)
    width = heads * config.size("head_dim", 64)
    if config.number("expand", 2) * config.size("hidden_size") != width:
        raise config.refused("expand", "num_heads * head_dim / hidden_size")
    check_unlimited(config)
    return {
        "type": "Mamba2",
        "num_states": config.size("state_size", 128),
        "width": width,
        "num_groups": config.size("n_groups", 8),
        "num_mixer_heads": heads,
        "eps": config.positive("layer_norm_epsilon", 1e-5),
    }


def check_unlimited(config: ConfigFile) -> None:
    """Raise DataError for bounds of the time steps, which transformers ignores where it generates."""
    given: Any = config.get("time_step_limit") or [0.0, inf]
    if [*given] not in ([0.0, inf], [0.0, {"__float__": "Infinity"}]):
        raise config.refused("time_step_limit", "from 0 to infinity")


def language_head(tied: bool) -> Head:
    """A head without bias. tied: whether it is, where the file does not say it."""

    def is_tied(config: ConfigFile) -> bool:
        return config.flag("tie_word_embeddings", tied)

    def objective(config: ConfigFile) -> Settings:
        return {"type": "NextToken", "tied": is_tied(config), "bias": False}

    def head(config: ConfigFile) -> Rows:
        if is_tied(config):
            return alias("embedder.content.weight", "lm_head.weight")
        return tensor("head.linear.weight", "lm_head.weight")

    return Head(("ForCausalLM",), objective, head)


def _stack_of(
    mixer: Callable[[ConfigFile], Settings], table: Callable[[ConfigFile], Rows], *, tied: bool
) -> Family:
    """A family of such stacks. tied: whether the head is, where the file does not say it."""

    def model(config: ConfigFile) -> Settings:
        config.must_be(False, "use_bias", "rescale_prenorm_residual")
        config.must_be(True, "use_conv_bias")
        config.must_be("silu", "hidden_act")
        norm = {"type": "RMSNorm", "eps": config.positive("layer_norm_epsilon", 1e-5)}
        return {
            "position": "NoPosition",
            "dropout": 0.0,
            "backbone": {
                "type": "Transformer",
                "dim": config.size("hidden_size"),
                "depth": depth_of(config),
                "num_heads": 1,
                "causal": True,
                "norm": norm,
                "dropout": 0.0,
                "block": {"type": "PreNormBlock", "norm": norm, "mlp": None},
                "mixer": {**mixer(config), "kernel_size": config.size("conv_kernel", 4)},
            },
        }

    return Family(
        model,
        lambda config: _stack(config, "attention", table(config)),
        "backbone.",
        {"NextToken": language_head(tied)},
    )


FALCON_MAMBA = _stack_of(_falcon_mamba, mamba_table, tied=True)
MAMBA2 = _stack_of(_mamba2, mamba2_table, tied=False)
