"""Mamba (transformers 5.23).

e channels of the inner width · s states of a channel · k tokens of the convolution
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from einops import rearrange

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.gpt import TIED
from seqkit.pretrained.family import Family, Settings, depth_of
from seqkit.pretrained.rows import Rearranged, Rows, layers, module, modules, tensor

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


def _table(config: ConfigFile) -> Rows:
    flat = Rearranged("e s -> (e s)", {"s": config.size("state_size", 16)})
    names = {
        "norm": "norm",
        "mixer.in_proj": "mixer.in_proj",
        "mixer.out_proj": "mixer.out_proj",
        "mixer.ssm.x_proj": "mixer.x_proj",
        "mixer.ssm.dt_proj": "mixer.dt_proj",
    }
    layer = [
        *modules(names),
        *tensor("mixer.ssm.convolution.weight", "mixer.conv1d.weight", whole=Kernel()),
        *tensor("mixer.ssm.convolution_bias", "mixer.conv1d.bias"),
        *tensor("mixer.ssm.A_log", "mixer.A_log", whole=flat),
        *tensor("mixer.ssm.D", "mixer.D"),
    ]
    return [
        *tensor("embedder.content.weight", "embeddings.weight"),
        *layers(depth_of(config, default=32), "backbone.blocks.{}.", "layers.{}.", layer),
        *module("backbone.norm", "norm_f"),
    ]


MAMBA = Family(_model, _table, "backbone.", {"NextToken": TIED})
