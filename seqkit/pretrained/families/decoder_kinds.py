"""Decoders of one sequence, as differences from LLaMA (transformers 5.23)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from seqkit.pretrained.family import Settings
from seqkit.pretrained.rows import Change, Rearranged, Transposed


@dataclass(frozen=True)
class Experts:
    """Experts of a model type, in place of MLPs.

    prefix: what their names begin with. router: name of what chooses among them. names: of the weights of one: gate,
    up and down. stacks: in their place, by ours, weights of all experts as one tensor, and how they differ. width: key
    of their width. normalize: whether gates are normalised; None: `norm_topk_prob` says it.
    """

    prefix: str = "mlp."
    router: str = "gate"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    stacks: Mapping[str, tuple[str, Change | None]] = field(default_factory=dict)
    width: str = "intermediate_size"
    normalize: bool | None = None


@dataclass(frozen=True)
class Kind:
    """Differences of a model type from LLaMA.

    keys: their keys of `config.json` by LLaMA's. defaults: values of LLaMA's keys where the file does not say them.
    With `partial_rotary_factor` among them, a part of each head may be turned.
    names: parts of the names of their weights by LLaMA's. qkv: whether queries, keys and values are weights of their
    own, one, or one in which each head has its three in turn. mlp: gate and up, both as one, or up where there is no
    gate. transposed: whether layers stand as [i o].
    position: how tokens know theirs. first: row of position 0 in a learned table. rotary: which layers have rotary
    positions: "all", "local" ones, or with a base of their own in local ones: "both". pairs_neighbours: whether these
    turn channels (2 i, 2 i + 1), not (i, i + r).
    norm: settings of the norm. norms: "before" a branch, "after" it, "both", or "shared": one before attention and MLP,
    which are then parallel. parallel: whether they may be, with a norm each. input_norm: whether embeddings have one.
    qk_norm: norm of queries and keys, of each "head" or of "all" together. activation: key of the activation. experts:
    None: there are none. windows: whether layers are local without `use_sliding_window`. every: which layers are not
    local, such as each fourth, where the file does not say it; None: none. bias: whether queries, keys and values have
    one; None: `attention_bias` says it. head_bias: whether the head has. embedding_scale: whether embeddings are
    multiplied by sqrt(d).
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    qkv: Literal["apart", "joined", "by_head"] = "apart"
    mlp: tuple[str, ...] = ("gate_proj", "up_proj")
    transposed: bool = False
    pairs_neighbours: bool = False
    position: Literal["rotary", "learned", "alibi"] = "rotary"
    first: int = 0
    rotary: Literal["all", "local", "both"] = "all"
    norm: Settings = field(default_factory=lambda: {"type": "RMSNorm"})
    norms: Literal["before", "after", "both", "shared"] = "before"
    parallel: bool = False
    input_norm: bool = False
    qk_norm: Literal["head", "all"] | None = None
    activation: str = "hidden_act"
    experts: Experts | None = None
    windows: bool = False
    every: int | None = None
    bias: bool | None = None
    head_bias: bool = False
    embedding_scale: bool = False

    @property
    def is_gated(self) -> bool:
        """Whether the MLP has a gate."""
        return self.mlp != ("up_proj",)


def _like(
    kind: Kind, defaults: Mapping[str, Any], keys: Mapping[str, str] | None = None, **changes: Any
) -> Kind:
    """A kind with further defaults, keys and differences."""
    merged = {**kind.keys, **(keys or {})}
    return replace(kind, keys=merged, defaults={**kind.defaults, **defaults}, **changes)


LAYER_NORM = Kind(
    keys={"rms_norm_eps": "layer_norm_eps"},
    defaults={"rms_norm_eps": 1e-5},
    norm={"type": "LayerNorm"},
)
GEMMA = Kind(
    defaults={"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "head_dim": 256},
    norm={"type": "ZeroCenteredRMSNorm"},
    embedding_scale=True,
)
GEMMA2 = _like(
    GEMMA,
    {
        "hidden_activation": "gelu_pytorch_tanh",
        "num_key_value_heads": 4,
        "sliding_window": 4096,
    },
    norms="both",
    activation="hidden_activation",
    windows=True,
    every=2,
)
MISTRAL = Kind(defaults={"num_key_value_heads": 8, "sliding_window": 4096}, windows=True)
OLMO2 = Kind(defaults={"rms_norm_eps": 1e-5}, norms="after", qk_norm="all")
COHERE = _like(
    LAYER_NORM,
    {"logit_scale": 0.0625, "tie_word_embeddings": True, "rope_theta": 5e5},
    norm={"type": "LayerNorm", "bias": False},
    norms="shared",
    pairs_neighbours=True,
)
GLM = Kind(
    defaults={
        "attention_bias": True,
        "attention_out_bias": False,
        "rms_norm_eps": 1.5625e-07,
        "head_dim": 128,
        "num_key_value_heads": 2,
        "partial_rotary_factor": 0.5,
    },
    mlp=("gate_up_proj",),
    pairs_neighbours=True,
)
QWEN3_5 = Kind(
    defaults={"head_dim": 256, "num_key_value_heads": 4, "partial_rotary_factor": 0.25},
    norm={"type": "ZeroCenteredRMSNorm"},
    qk_norm="head",
)
FALCON_H1 = Kind(
    defaults={"rms_norm_eps": 1e-5, "num_key_value_heads": 8},
    names={
        "post_attention_layernorm": "pre_ff_layernorm",
        "mlp": "feed_forward",
        "norm": "final_layernorm",
    },
)
PLAIN = _like(
    LAYER_NORM, {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}, mlp=("up_proj",)
)
MEGATRON = {
    "qkv_proj": "query_key_value",
    "o_proj": "dense",
    "up_proj": "dense_h_to_4h",
    "down_proj": "dense_4h_to_h",
}
KINDS = {
    "llama": Kind(),
    "mistral": MISTRAL,
    "ministral": MISTRAL,
    "mixtral": Kind(
        defaults={
            "rms_norm_eps": 1e-5,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "rope_theta": 1e6,
            "num_key_value_heads": 8,
        },
        windows=True,
        experts=Experts("block_sparse_moe.", names=("w1", "w3", "w2"), normalize=True),
    ),
    "phi": _like(
        PLAIN,
        {"hidden_act": "gelu_new", "partial_rotary_factor": 0.5},
        {"embedding_dropout": "embd_pdrop", "hidden_dropout": "resid_pdrop"},
        names={"o_proj": "dense", "up_proj": "fc1", "down_proj": "fc2", "norm": "final_layernorm"},
        norms="shared",
        bias=True,
        head_bias=True,
    ),
    "phi3": Kind(
        keys={"hidden_dropout": "resid_pdrop"},
        defaults={
            "rms_norm_eps": 1e-5,
            "partial_rotary_factor": 1.0,
            "max_position_embeddings": 4096,
            "original_max_position_embeddings": 4096,
        },
        windows=True,
        qkv="joined",
        mlp=("gate_up_proj",),
    ),
    "qwen2": Kind(
        defaults={"attention_out_bias": False, "sliding_window": 4096},
        bias=True,
    ),
    "qwen3": Kind(defaults={"head_dim": 128, "sliding_window": 4096}, qk_norm="head"),
    "qwen3_moe": Kind(
        defaults={
            "num_local_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "num_key_value_heads": 4,
            "sliding_window": 4096,
        },
        qk_norm="head",
        experts=Experts(width="moe_intermediate_size"),
    ),
    "smollm3": Kind(
        defaults={"tie_word_embeddings": True, "rope_theta": 2e6, "num_key_value_heads": 4}
    ),
    "olmo": Kind(norm={"type": "LayerNorm", "elementwise_affine": False, "eps": 1e-5}),
    "olmo2": OLMO2,
    "olmo3": _like(
        OLMO2, {"sliding_window": 4096, "rope_theta": 5e5}, windows=True, every=4, rotary="both"
    ),
    "olmoe": Kind(
        defaults={
            "rms_norm_eps": 1e-5,
            "num_local_experts": 64,
            "num_experts_per_tok": 8,
            "router_aux_loss_coef": 0.01,
        },
        qk_norm="all",
        experts=Experts(),
    ),
    "granite": Kind(),
    "granitemoe": Kind(
        defaults={"num_local_experts": 8, "num_experts_per_tok": 2},
        experts=Experts(
            "block_sparse_moe.",
            "router.layer",
            stacks={
                "gate_up_proj.weight": ("input_linear.weight", None),
                "down_proj.weight": ("output_linear.weight", None),
            },
            normalize=True,
        ),
    ),
    "gpt_oss": Kind(
        defaults={
            "attention_bias": True,
            "mlp_bias": True,
            "rms_norm_eps": 1e-5,
            "head_dim": 64,
            "num_key_value_heads": 8,
            "sliding_window": 128,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "rope_theta": 150_000.0,
            "rope": {
                "rope_type": "yarn",
                "factor": 32.0,
                "truncate": False,
                "original_max_position_embeddings": 4096,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
            },
        },
        windows=True,
        every=2,
        experts=Experts(
            router="router",
            stacks={
                "gate_up_proj.weight": (
                    "experts.gate_up_proj",
                    Rearranged("d (w two) -> (two w) d", {"two": 2}),
                ),
                "gate_up_proj.bias": (
                    "experts.gate_up_proj_bias",
                    Rearranged("(w two) -> (two w)", {"two": 2}),
                ),
                "down_proj.weight": ("experts.down_proj", Transposed()),
                "down_proj.bias": ("experts.down_proj_bias", None),
            },
            normalize=True,
        ),
    ),
    "stablelm": _like(
        LAYER_NORM,
        {"attention_out_bias": False, "partial_rotary_factor": 0.25},
        {"attention_bias": "use_qkv_bias"},
    ),
    "starcoder2": _like(
        PLAIN,
        {
            "hidden_act": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
            "num_key_value_heads": 2,
        },
        {
            "rms_norm_eps": "norm_epsilon",
            "attention_bias": "use_bias",
            "mlp_bias": "use_bias",
            "hidden_dropout": "residual_dropout",
        },
        names={"up_proj": "c_fc", "down_proj": "c_proj"},
        windows=True,
    ),
    "arcee": Kind(defaults={"hidden_act": "relu2", "rms_norm_eps": 1e-5}, mlp=("up_proj",)),
    "cohere": COHERE,
    "cohere2": _like(
        COHERE,
        {"rope_theta": 1e4, "sliding_window": 4096},
        windows=True,
        every=4,
        rotary="local",
    ),
    "ernie4_5": Kind(
        keys={"attention_bias": "use_bias", "mlp_bias": "use_bias"},
        defaults={
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "head_dim": 128,
            "num_key_value_heads": 2,
            "rope_theta": 5e5,
        },
        pairs_neighbours=True,
    ),
    "exaone4": Kind(
        defaults={"rms_norm_eps": 1e-5, "num_key_value_heads": 32, "sliding_window": 4096},
        norms="after",
        qk_norm="head",
        windows=True,
        every=4,
        rotary="local",
    ),
    "glm": GLM,
    "glm4": replace(
        GLM,
        norms="both",
        names={
            "post_attention_layernorm": "post_self_attn_layernorm",
            "pre_feedforward_layernorm": "post_attention_layernorm",
            "post_feedforward_layernorm": "post_mlp_layernorm",
        },
    ),
    "helium": Kind(
        defaults={
            "attention_out_bias": False,
            "rms_norm_eps": 1e-8,
            "head_dim": 128,
            "num_key_value_heads": 20,
            "rope_theta": 1e5,
        },
        pairs_neighbours=True,
    ),
    "seed_oss": Kind(
        keys={"hidden_dropout": "residual_dropout"},
        defaults={
            "attention_bias": True,
            "attention_out_bias": False,
            "hidden_dropout": 0.1,
            "attention_dropout": 0.1,
            "head_dim": 128,
            "num_key_value_heads": 8,
        },
    ),
    "gemma": GEMMA,
    "gemma2": _like(
        GEMMA2,
        {
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "query_pre_attn_scalar": 256,
        },
    ),
    "gemma3_text": _like(
        GEMMA2,
        {"rope_theta": 1e6, "query_pre_attn_scalar": 256},
        qk_norm="head",
        every=6,
        rotary="both",
    ),
    "gpt_neox": _like(
        PLAIN,
        {"partial_rotary_factor": 0.25},
        {
            "embedding_dropout": "hidden_dropout",
            "rope_theta": "rotary_emb_base",
            "partial_rotary_factor": "rotary_pct",
        },
        names={
            "embed_tokens": "embed_in",
            "self_attn": "attention",
            **MEGATRON,
            "norm": "final_layer_norm",
            "lm_head": "embed_out",
        },
        qkv="by_head",
        parallel=True,
    ),
    "gpt2": _like(
        PLAIN,
        {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": None,
            "max_position_embeddings": 1024,
            "hidden_act": "gelu_new",
            "embedding_dropout": 0.1,
            "hidden_dropout": 0.1,
            "attention_dropout": 0.1,
            "tie_word_embeddings": True,
        },
        {
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "intermediate_size": "n_inner",
            "max_position_embeddings": "n_positions",
            "hidden_act": "activation_function",
            "rms_norm_eps": "layer_norm_epsilon",
            "embedding_dropout": "embd_pdrop",
            "hidden_dropout": "resid_pdrop",
            "attention_dropout": "attn_pdrop",
        },
        names={
            "embed_tokens": "wte",
            "embed_positions": "wpe",
            "layers": "h",
            "input_layernorm": "ln_1",
            "post_attention_layernorm": "ln_2",
            "self_attn": "attn",
            "qkv_proj": "c_attn",
            "o_proj": "c_proj",
            "up_proj": "c_fc",
            "down_proj": "c_proj",
            "norm": "ln_f",
        },
        qkv="joined",
        transposed=True,
        position="learned",
    ),
    "opt": _like(
        PLAIN,
        {
            "max_position_embeddings": 2048,
            "hidden_act": "relu",
            "hidden_dropout": 0.1,
            "tie_word_embeddings": True,
        },
        {
            "intermediate_size": "ffn_dim",
            "hidden_act": "activation_function",
            "hidden_dropout": "dropout",
        },
        names={
            "embed_tokens": "decoder.embed_tokens",
            "embed_positions": "decoder.embed_positions",
            "layers": "decoder.layers",
            "input_layernorm": "self_attn_layer_norm",
            "post_attention_layernorm": "final_layer_norm",
            "o_proj": "out_proj",
            "mlp": "",
            "up_proj": "fc1",
            "down_proj": "fc2",
            "norm": "decoder.final_layer_norm",
        },
        position="learned",
        first=2,
    ),
    "bloom": _like(
        PLAIN,
        {
            "intermediate_size": None,
            "hidden_act": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
        },
        {
            "hidden_size": "n_embed",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "rms_norm_eps": "layer_norm_epsilon",
        },
        names={
            "embed_tokens": "word_embeddings",
            "input_norm": "word_embeddings_layernorm",
            "layers": "h",
            "self_attn": "self_attention",
            **MEGATRON,
            "norm": "ln_f",
        },
        qkv="by_head",
        position="alibi",
        input_norm=True,
    ),
    "qwen3_next": _like(
        QWEN3_5,
        {
            "num_key_value_heads": 2,
            "num_local_experts": 512,
            "num_experts_per_tok": 10,
            "moe_intermediate_size": 512,
            "norm_topk_prob": True,
        },
        experts=Experts(width="moe_intermediate_size"),
    ),
    "qwen3_5_text": QWEN3_5,
    "olmo_hybrid": _like(
        OLMO2,
        {"rms_norm_eps": 1e-6},
        names={"post_attention_layernorm": "feedforward_layer_norm"},
    ),
    "lfm2": Kind(
        keys={"rms_norm_eps": "norm_eps"},
        defaults={
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "num_key_value_heads": 8,
            "rope_theta": 1e6,
        },
        names={
            "input_layernorm": "operator_norm",
            "post_attention_layernorm": "ffn_norm",
            "q_norm": "q_layernorm",
            "k_norm": "k_layernorm",
            "o_proj": "out_proj",
            "mlp": "feed_forward",
            "gate_proj": "w1",
            "up_proj": "w3",
            "down_proj": "w2",
            "norm": "embedding_norm",
        },
        qk_norm="head",
    ),
    "bamba": _like(FALCON_H1, {"partial_rotary_factor": 0.5}),
    "falcon_h1": FALCON_H1,
    "recurrent_gemma": Kind(
        defaults={
            "tie_word_embeddings": True,
            "partial_rotary_factor": 0.5,
            "sliding_window": 4096,
        },
        names={
            "self_attn": "temporal_block",
            "mlp": "mlp_block",
            "input_layernorm": "temporal_pre_norm",
            "post_attention_layernorm": "channel_pre_norm",
            "norm": "final_norm",
        },
        norm={"type": "ZeroCenteredRMSNorm"},
        activation="hidden_activation",
        windows=True,
    ),
    "granitemoehybrid": Kind(
        mlp=("gate_up_proj",),
        names={"mlp": "shared_mlp", "gate_up_proj": "input_linear", "down_proj": "output_linear"},
    ),
}
