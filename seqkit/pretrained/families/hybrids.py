"""Decoders of which layers carry a state, in place of attention or beside it: LLaMA's, with mixers (transformers 5.23).

c channels of a key · e of a value
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families.llama import LLAMA
from seqkit.pretrained.families.mamba import Kernel, check_unlimited, mamba2_table
from seqkit.pretrained.family import Family, Settings, depth_of
from seqkit.pretrained.rows import (
    Half,
    Negated,
    Pairs,
    Permuted,
    Rearranged,
    Row,
    Rows,
    below,
    module,
    modules,
    tensor,
)

if TYPE_CHECKING:
    from torch import Tensor

Layers = Callable[[ConfigFile, int], list[bool]]
"""Whether each of so many layers has a mixer."""


def _as_it_is(config: ConfigFile, block: Settings) -> None:
    """No change of a block."""


def _without_attention(row: Row, has_mixer: bool) -> Rows:
    """A row of LLaMA's, but for attention where a mixer stands."""
    return [] if has_mixer and ".attention." in row.ours else [row]


@dataclass(frozen=True)
class Hybrid:
    """Differences of a model type from the decoder that `decoder_kinds` describes.

    mixer: its settings, of the epsilon of norms. table: names of its weights, below `place`. mixes: which layers have
    it. change: of a block, before a mixer takes the place of its attention. rows: what stands for a row of LLaMA's.
    beside: factors of attention and mixer, for types that have both in a layer. is_rotary: whether positions turn
    queries and keys. head: further settings of it. activation: the one that a type has, and its key. embedding_scale:
    factor of embeddings. old_names: as in `Family`.
    """

    mixer: Callable[[ConfigFile, float], Settings]
    table: Callable[[ConfigFile], Rows]
    mixes: Layers
    place: str = "linear_attn."
    change: Callable[[ConfigFile, Settings], None] = _as_it_is
    rows: Callable[[Row, bool], Rows] = _without_attention
    beside: Callable[[ConfigFile], Settings] | None = None
    is_rotary: Callable[[ConfigFile], bool] = lambda _: True
    head: Callable[[ConfigFile], Settings] = lambda _: {}
    activation: tuple[str, str] = ("silu", "hidden_act")
    embedding_scale: Callable[[ConfigFile], float] | None = None
    old_names: Mapping[str, str] = field(default_factory=dict)


def _family(kind: Hybrid) -> Family:
    head = LLAMA.heads["NextToken"]

    def objective(config: ConfigFile) -> Settings:
        return {**head.objective(config), **kind.head(config)}

    return replace(
        LLAMA,
        model=lambda config: _model(config, kind),
        table=lambda config: _table(config, kind),
        heads={"NextToken": replace(head, objective=objective)},
        left_out=(*LLAMA.left_out, "mtp."),
        old_names=kind.old_names,
    )


def _model(config: ConfigFile, kind: Hybrid) -> Settings:
    config.must_be(*kind.activation)
    found = LLAMA.model(config)
    if kind.embedding_scale is not None:
        found["embedding_scale"] = kind.embedding_scale(config)
    backbone = found["backbone"]
    depth = backbone["depth"]
    given, positions = (_each(backbone[key], depth) for key in ("block", "position"))
    if not kind.is_rotary(config):
        positions = [None] * depth
    blocks = []
    mixers: list[Settings | None] = []
    for i, has_mixer in enumerate(kind.mixes(config, depth)):
        block = {
            key: {**part} if isinstance(part, dict) else part for key, part in given[i].items()
        }
        kind.change(config, block)
        mixer = None
        if has_mixer:
            mixer = kind.mixer(config, backbone["norm"]["eps"])
            attention = block.pop("attention")
            if kind.beside is None:
                positions[i] = None
            else:
                mixer = {"attention": attention, "beside": mixer, **kind.beside(config)}
        if has_mixer and block["norm"] == "Identity":
            block["norm"] = block.pop("residual")["norm"]
        blocks.append(block)
        mixers.append(mixer)
    backbone |= {"block": blocks, "mixer": mixers, "position": positions}
    return found


def _each(value: Any, depth: int) -> list[Any]:
    """The value of each layer."""
    return [*value] if isinstance(value, list) else [value] * depth


def _table(config: ConfigFile, kind: Hybrid) -> Rows:
    mixes = kind.mixes(config, depth_of(config))
    rows: Rows = []
    for row in LLAMA.table(config):
        layer = re.match(r"backbone\.blocks\.(\d+)\.", row.ours)
        rows += kind.rows(row, layer is not None and mixes[int(layer[1])])
    place = "attention." if kind.beside is None else "attention.beside."
    for i, has_mixer in enumerate(mixes):
        if has_mixer:
            ours = f"backbone.blocks.{i}.{place}"
            rows += below(kind.table(config), ours, f"layers.{i}.{kind.place}")
    return rows


def _by_type(usual: Layers, mixer: str = "linear_attention") -> Layers:
    """Layers by `layer_types`, which calls theirs `mixer`. usual: where the file does not say them."""
    # the second of each is an older name
    known = {mixer: True, "mamba": True, "full_attention": False, "attention": False}

    def mixes(config: ConfigFile, depth: int) -> list[bool]:
        kinds = config.get("layer_types")
        if kinds is None:
            return usual(config, depth)
        if len(kinds) != depth or not {*kinds} <= {*known}:
            raise config.refused("layer_types", " or ".join(known) + " for each layer")
        return [known[kind] for kind in kinds]

    return mixes


# ── gated DeltaNet ────────────────────────────────────────────────────────────────────────────────────────────────────


def _delta(config: ConfigFile, eps: float) -> Settings:
    c, heads, e, value_heads = _delta_sizes(config)
    return {
        "type": "GatedDeltaNet",
        "head_dim": c,
        "num_mixer_heads": heads,
        "value_dim": e,
        "num_value_heads": value_heads,
        "kernel_size": config.size("linear_conv_kernel_dim", 4),
        "eps": eps,
    }


def _olmo_delta(config: ConfigFile, _: float) -> Settings:
    negative = config.flag("linear_allow_neg_eigval", True)
    return {**_delta(config, 1e-5), "negative_eigenvalues": negative}


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


def _delta_table(in_proj: Rows, kernels: tuple[str, ...], norm: str, out_proj: str) -> Rows:
    return [
        *in_proj,
        *tensor("convolution.weight", *kernels, whole=Kernel()),
        *(row for name in ("A_log", "dt_bias") for row in tensor(name, name)),
        *modules({"norm": norm, "out_proj": out_proj}),
    ]


QWEN = (("conv1d.weight",), "norm", "out_proj")
"""Names of the kernels, of the norm and of the output projection."""


def _qwen3_next_table(config: ConfigFile) -> Rows:
    import torch

    c, heads, e, value_heads = _delta_sizes(config)
    each = value_heads // heads

    def by_part(*sizes: int) -> list[Tensor]:
        """Rows of each part, where those of a head stand side by side."""
        rows = torch.arange(heads * sum(sizes)).unflatten(0, (heads, -1))
        return [part.flatten() for part in rows.split(sizes, dim=1)]

    b, a = by_part(each, each)
    orders = (torch.cat(by_part(c, c, each * e, each * e)), torch.cat([a, b]))
    in_proj = module(
        "in_proj",
        "in_proj_qkvz",
        "in_proj_ba",
        sizes=tuple(map(len, orders)),
        changes=tuple(map(Permuted, orders)),
    )
    return _delta_table(in_proj, *QWEN)


def _qwen3_5_table(config: ConfigFile) -> Rows:
    c, heads, e, value_heads = _delta_sizes(config)
    sizes = (2 * heads * c + value_heads * e, value_heads * e, value_heads, value_heads)
    names = ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b")
    return _delta_table(module("in_proj", *names, sizes=sizes), *QWEN)


def _olmo_table(config: ConfigFile) -> Rows:
    c, heads, e, value_heads = _delta_sizes(config)
    values = value_heads * e
    sizes = (heads * c, heads * c, values, values, value_heads, value_heads)
    names = (f"{name}_proj" for name in "qkvgab")
    kernels = tuple(f"{name}_conv1d.weight" for name in "qkv")
    return _delta_table(module("in_proj", *names, sizes=sizes), kernels, "o_norm", "o_proj")


def _but_every(config: ConfigFile, depth: int) -> list[bool]:
    every = config.size("full_attention_interval", 4)
    return [(i + 1) % every != 0 for i in range(depth)]


def _olmo_is_rotary(config: ConfigFile) -> bool:
    given = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10_000.0)}
    return given.get("rope_theta", 10_000.0) is not None


def _qwen_block(config: ConfigFile, block: Settings) -> None:
    block["attention"]["output_gate"] = "elementwise"
    mlp = block["mlp"]
    if mlp["type"] == "MixtureOfExperts":
        width = config.size("shared_expert_intermediate_size", 512)
        mlp["shared_expert"] = {**mlp["expert"], "width": width}
        mlp["shared_gate"] = True


def _qwen_rows(row: Row, has_mixer: bool) -> Rows:
    if ".attention.qkv_proj" in row.ours and not has_mixer:
        query, *others = row.changes
        assert isinstance(query, Pairs)
        c = query.head_dim
        gate = row.ours.replace("qkv_proj", "gate_proj")
        return [
            replace(row, changes=(Half(0, c, query), *others)),
            replace(row, ours=gate, theirs=row.theirs[:1], sizes=None, changes=(Half(1, c),)),
        ]
    if row.ours.endswith("mlp.router.weight"):
        shared = module("gate_up_proj", "gate_proj", "up_proj") + module("down_proj", "down_proj")
        shared = below(shared, "shared_expert.", "shared_expert.")
        shared += module("shared_gate", "shared_expert_gate")
        theirs = row.theirs[0].removesuffix("gate.weight")
        return [row, *below(shared, row.ours.removesuffix("router.weight"), theirs)]
    return _without_attention(row, has_mixer)


def _olmo_rows(row: Row, has_mixer: bool) -> Rows:
    """Norms of layers with attention are behind the branches, the others before."""
    if not has_mixer or not row.ours.endswith("_residual.norm.weight"):
        return _without_attention(row, has_mixer)
    is_first = ".attention_" in row.ours
    name = "attention_layer_norm" if is_first else "feedforward_layer_norm"
    theirs = ".".join([*row.theirs[0].split(".")[:2], name, "weight"])
    return [replace(row, ours=row.ours.replace("_residual.norm", "_norm"), theirs=(theirs,))]


# ── Mamba-2 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _mamba2(config: ConfigFile, eps: float) -> Settings:
    width = config.number("mamba_expand", 2) * config.size("hidden_size")
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
        "eps": eps,
    }


def _bamba_layers(config: ConfigFile, depth: int) -> list[bool]:
    config.must_be(0.5, "partial_rotary_factor")
    attends = config.get("attn_layer_indices") or []
    return [i not in attends for i in range(depth)]


def _falcon_mamba2(config: ConfigFile, eps: float) -> Settings:
    norm = "before" if config.flag("mamba_norm_before_gate", True) else "after"
    scales: Any = config.get("ssm_multipliers") or [1.0] * 5
    return {
        **_mamba2(config, eps),
        "norm": norm if config.flag("mamba_rms_norm", False) else None,
        "scales": [config.number("ssm_in_multiplier", 1.0) * scale for scale in scales],
    }


def _falcon_beside(config: ConfigFile) -> Settings:
    config.must_be(False, "attention_bias", "projectors_bias")
    scale = config.number("attention_in_multiplier", 1.0)
    return {
        "type": "ParallelMixer",
        "attention_scale": scale * config.number("attention_out_multiplier", 1.0),
        "beside_scale": config.number("ssm_out_multiplier", 1.0),
    }


def _falcon_block(config: ConfigFile, block: Settings) -> None:
    attention = block["attention"]
    scale = config.number("key_multiplier", 1.0)
    scale *= config.number("attention_in_multiplier", 1.0) ** 2
    temperature = attention["head_dim"] ** 0.5 / scale
    attention["mechanism"] = {**attention["mechanism"], "temperature": temperature}
    block["mlp"]["scales"] = config.get("mlp_multipliers") or [1.0, 1.0]


def _granite_block(config: ConfigFile, block: Settings) -> None:
    config.must_be(0, "num_local_experts")
    block["mlp"]["width"] = config.size("shared_intermediate_size", 1024)


BAMBA = Hybrid(_mamba2, mamba2_table, _bamba_layers, place="mamba.")


# ── LFM2 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _short(config: ConfigFile, _: float) -> Settings:
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


def _short_block(config: ConfigFile, block: Settings) -> None:
    """The width of an MLP, which a file may have as what it is computed from."""
    config.must_be(True, "tie_embedding")
    key = "intermediate_size" if config.get("block_ff_dim") is None else "block_ff_dim"
    width = config.size(key)
    if config.flag("block_auto_adjust_ff_dim", True):
        width = int(2 * width / 3)
        if config.get("block_ffn_dim_multiplier", 1.0) is not None:
            multiple = config.size("block_multiple_of", 256)
            width = int(config.number("block_ffn_dim_multiplier", 1.0) * width)
            width = multiple * -(-width // multiple)
    block["mlp"]["width"] = width


# ── Griffin ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _griffin(config: ConfigFile, _: float) -> Settings:
    return {
        "type": "RGLRU",
        "width": _griffin_width(config),
        "kernel_size": config.size("conv1d_width", 4),
        "unscaled_first": True,
    }


def _griffin_width(config: ConfigFile) -> int:
    key = "hidden_size" if config.get("lru_width") is None else "lru_width"
    return config.size(key)


def _griffin_table(config: ConfigFile) -> Rows:
    o = _griffin_width(config) // config.size("num_attention_heads")
    gates = ("rg_lru.recurrent_gate", "rg_lru.input_gate")
    weight = Rearranged("(two h) c o -> h c (two o)", {"two": 2})
    bias = Rearranged("(two h) o -> (h two o)", {"two": 2, "o": o})
    recurrence = [
        *tensor("convolution.weight", "conv_1d.weight", whole=Kernel()),
        *tensor("convolution_bias", "conv_1d.bias"),
        *tensor("gate_weight", *(f"{gate}_weight" for gate in gates), whole=weight),
        *tensor("gate_bias", *(f"{gate}_bias" for gate in gates), whole=bias),
        *tensor("Lambda", "rg_lru.recurrent_param", whole=Negated()),
    ]
    return [
        *modules({"in_proj": ("linear_x", "linear_y"), "out_proj": "linear_out"}),
        *below(recurrence, "recurrence.", ""),
    ]


def _griffin_layers(config: ConfigFile, depth: int) -> list[bool]:
    known = {"recurrent": True, "attention": False}
    kinds = config.get("block_types") or ["recurrent", "recurrent", "attention"]
    if not {*kinds} <= {*known}:
        raise config.refused("block_types", " or ".join(known))
    return [known[kinds[i % len(kinds)]] for i in range(depth)]


def _griffin_block(config: ConfigFile, block: Settings) -> None:
    size = config.size("attention_window_size", 2048, least=2)
    attention = block["attention"]
    attention["out_bias"] = True
    attention["mechanism"] = {**attention["mechanism"], "size": size}
    block["mlp"] |= {"bias": True, "width": config.size("intermediate_size") // 2}


def _griffin_scale(config: ConfigFile) -> float:
    import torch

    return float(torch.tensor(config.size("hidden_size") ** 0.5, dtype=torch.bfloat16))


KINDS = {
    "recurrent_gemma": Hybrid(
        _griffin,
        _griffin_table,
        _griffin_layers,
        place="temporal_block.",
        change=_griffin_block,
        head=lambda config: {"softcap": config.positive("logits_soft_cap", 30.0)},
        activation=("gelu_pytorch_tanh", "hidden_activation"),
        embedding_scale=_griffin_scale,
    ),
    "qwen3_next": Hybrid(
        _delta, _qwen3_next_table, _by_type(_but_every), change=_qwen_block, rows=_qwen_rows
    ),
    "qwen3_5_text": Hybrid(
        _delta, _qwen3_5_table, _by_type(_but_every), change=_qwen_block, rows=_qwen_rows
    ),
    "olmo_hybrid": Hybrid(
        _olmo_delta,
        _olmo_table,
        _by_type(_but_every),
        rows=_olmo_rows,
        is_rotary=_olmo_is_rotary,
        # transformers writes the others
        old_names={
            ".input_layernorm.weight": ".attention_layer_norm.weight",
            ".post_attention_layernorm.weight": ".feedforward_layer_norm.weight",
        },
    ),
    "bamba": BAMBA,
    "falcon_h1": replace(
        BAMBA,
        mixer=_falcon_mamba2,
        mixes=lambda _, depth: [True] * depth,
        change=_falcon_block,
        rows=lambda row, _: [
            replace(row, ours=row.ours.replace(".attention.", ".attention.attention."))
        ],
        beside=_falcon_beside,
        head=lambda config: {"logit_scale": config.number("lm_head_multiplier", 1.0)},
    ),
    "granitemoehybrid": replace(
        BAMBA,
        mixes=_by_type(lambda _, depth: [True] * depth),
        change=_granite_block,
        is_rotary=lambda config: config.get("position_embedding_type") == "rope",
    ),
    "lfm2": Hybrid(
        _short, _short_table, _by_type(_short_layers, "conv"), place="conv.", change=_short_block
    ),
}
HYBRIDS = {name: _family(kind) for name, kind in KINDS.items()}
