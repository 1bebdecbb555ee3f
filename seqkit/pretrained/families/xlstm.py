"""xLSTM of mLSTM layers (transformers 5.23)."""

from __future__ import annotations

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import Family, Head, Settings, depth_of
from seqkit.pretrained.rows import Rows, layers, module, modules, tensor


def _model(config: ConfigFile) -> Settings:
    config.must_be(False, "use_bias")
    config.must_be(True, "add_out_norm")
    config.must_be("single", "weight_mode")
    config.must_be(1.0, "v_dim_factor")
    config.must_be(15.0, "gate_soft_cap")
    config.must_be(1e-6, "norm_eps", "eps")
    dim = config.size("hidden_size", 4096)
    config.must_be(dim, "embedding_dim")
    heads = config.size("num_heads", 8)
    factor = config.positive("qk_dim_factor", 0.5)
    if factor * dim % heads:
        raise config.refused("qk_dim_factor", f"so that {heads} heads have as many channels each")
    multiple = config.size("ffn_round_up_to_multiple_of", 64)
    width = int(config.positive("ffn_proj_factor", 2.667) * dim + multiple - 1)
    norm = {"type": "RMSNorm", "eps": 1e-6}
    mlp = {"type": "GatedMLP", "width": width // multiple * multiple}
    return {
        "position": "NoPosition",
        "dropout": 0.0,
        "backbone": {
            "type": "Transformer",
            "dim": dim,
            "depth": _depth(config),
            "num_heads": heads,
            "causal": True,
            "norm": norm,
            "dropout": 0.0,
            "block": {"type": "PreNormBlock", "norm": norm, "mlp": mlp},
            "mixer": {"type": "MLSTM", "key_factor": factor},
        },
    }


def _depth(config: ConfigFile) -> int:
    depth = depth_of(config, default=32)
    config.must_be(depth, "num_blocks")
    return depth


def _table(config: ConfigFile) -> Rows:
    dim = config.size("hidden_size", 4096)
    keys = int(config.positive("qk_dim_factor", 0.5) * dim)
    inputs = (f"mlstm_layer.{name}" for name in ("q", "k", "v", "ogate_preact"))
    names: dict[str, str | tuple[str, ...]] = {
        "attention_norm": "norm_mlstm",
        "attention.gate_proj": ("mlstm_layer.igate_preact", "mlstm_layer.fgate_preact"),
        "attention.norm": "mlstm_layer.multihead_norm",
        "attention.out_proj": "mlstm_layer.out_proj",
        "mlp_norm": "norm_ffn",
        "mlp.gate_up_proj": ("ffn.proj_up_gate", "ffn.proj_up"),
        "mlp.down_proj": "ffn.proj_down",
    }
    layer = module("attention.in_proj", *inputs, sizes=(keys, keys, dim, dim)) + modules(names)
    return [
        *tensor("embedder.content.weight", "embeddings.weight"),
        *layers(_depth(config), "backbone.blocks.{}.", "blocks.{}.", layer),
        *module("backbone.norm", "out_norm"),
    ]


def _objective(config: ConfigFile) -> Settings:
    # transformers ties no head, whatever the file says
    softcap = config.positive("output_logit_soft_cap", 30.0)
    return {"type": "NextToken", "tied": False, "bias": False, "softcap": softcap}


HEAD = Head(("ForCausalLM",), _objective, lambda _: tensor("head.linear.weight", "lm_head.weight"))
XLSTM = Family(_model, _table, "backbone.", {"NextToken": HEAD})
