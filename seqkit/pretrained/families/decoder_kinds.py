"""Decoders with rotary positions, as differences from LLaMA (transformers 5.23)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from seqkit.pretrained.family import Settings


@dataclass(frozen=True)
class Experts:
    """Experts of a model type, in place of MLPs.

    prefix: what their names begin with. num, top_k: how many there are, and how many a token gets, where the file does
    not say them. names: of the weights of one: gate, up and down. width: key of their width, and its value where the
    file does not say it. normalize: whether gates are normalised; None: `norm_topk_prob` says it. aux_loss: weight of
    the load-balancing loss where the file does not say it.
    """

    prefix: str
    num: int
    top_k: int
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    width: tuple[str, int | None] = ("intermediate_size", None)
    normalize: bool | None = None
    aux_loss: float = 0.001


@dataclass(frozen=True)
class Kind:
    """Differences of a model type from LLaMA.

    Weights: names: theirs for parts of LLaMA's names. qkv: whether queries, keys and values are weights of their own,
    one, or one in which each head has its three in turn. joins_gate_up: whether gate and up are one weight.
    pairs_neighbours: whether rotary positions turn channels (2 i, 2 i + 1), not (i, i + r).
    Layers: norm: settings of the norm, with the epsilon below `eps_key`; empty: it is not written. norms: "before" a
    branch, "after" it, "both", or "shared": one before attention and MLP, which are then parallel. parallel: whether
    they are, with a norm each, where `use_parallel_residual` is not written. gated: whether the MLP is. activation: key
    of the activation. qk_norm: norm of queries and keys, of each "head" or of "all" together. windows: whether layers
    are local without `use_sliding_window`. window, every: tokens that a local layer attends to, and which layers are
    not local, such as each fourth, where the file does not say them. rotary: which layers have rotary positions: "all",
    "local" ones, or with a base of their own in local ones: "both". embedding_scale: whether embeddings are multiplied
    by sqrt(d). logit_scale: factor of logits where the file does not say it; 1: there is none.
    Biases: keys, or whether there always are: bias: of attention. out_bias: of its output; None: as the others.
    mlp_bias: of the MLP. biased: where the file does not write `bias`. head_bias: of the head.
    dropouts: keys of those of embeddings and of branches. dropout: of branches and attention, where it is not written.
    tied, head_dim, kv_heads, base, rotary_share: values where the file does not say them, of the head, the channels of
    a head, the heads of keys and values and the rotary positions; rotary_share None: heads are turned whole.
    experts: None: there are none.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    qkv: Literal["apart", "joined", "by_head"] = "apart"
    joins_gate_up: bool = False
    pairs_neighbours: bool = False
    norm: Settings = field(default_factory=lambda: {"type": "RMSNorm"})
    norms: Literal["before", "after", "both", "shared"] = "before"
    eps_key: str = "rms_norm_eps"
    eps: float = 1e-6
    parallel: bool = False
    gated: bool = True
    activation: str = "hidden_act"
    default_activation: str = "silu"
    qk_norm: Literal["head", "all"] | None = None
    windows: bool = False
    window: int | None = 4096
    every: int | None = None
    rotary: Literal["all", "local", "both"] = "all"
    embedding_scale: bool = False
    logit_scale: float = 1.0
    bias: str | bool = "attention_bias"
    out_bias: str | bool | None = None
    mlp_bias: str | bool = "mlp_bias"
    biased: bool = False
    head_bias: bool = False
    dropouts: tuple[str, str] = ("embedding_dropout", "hidden_dropout")
    dropout: float = 0.0
    tied: bool = False
    head_dim: int | None = None
    kv_heads: int | None = None
    base: float = 10_000.0
    rotary_share: float | None = None
    experts: Experts | None = None


LAYER_NORM = Kind(norm={"type": "LayerNorm"}, eps_key="layer_norm_eps", eps=1e-5)
GEMMA = Kind(
    norm={"type": "ZeroCenteredRMSNorm"},
    default_activation="gelu_pytorch_tanh",
    embedding_scale=True,
    tied=True,
    head_dim=256,
)
GEMMA2 = replace(
    GEMMA,
    norms="both",
    activation="hidden_activation",
    windows=True,
    every=2,
    kv_heads=4,
)
OLMO2 = Kind(norms="after", qk_norm="all", eps=1e-5)
COHERE = replace(
    LAYER_NORM,
    norm={"type": "LayerNorm", "bias": False},
    norms="shared",
    pairs_neighbours=True,
    logit_scale=0.0625,
    tied=True,
    base=5e5,
)
GLM = Kind(
    joins_gate_up=True,
    pairs_neighbours=True,
    biased=True,
    out_bias=False,
    eps=1.5625e-07,
    head_dim=128,
    kv_heads=2,
    rotary_share=0.5,
)
QWEN3_5 = Kind(
    norm={"type": "ZeroCenteredRMSNorm"},
    qk_norm="head",
    head_dim=256,
    kv_heads=4,
    rotary_share=0.25,
)
FALCON_H1 = Kind(
    names={
        "post_attention_layernorm": "pre_ff_layernorm",
        "mlp": "feed_forward",
        "norm": "final_layernorm",
    },
    eps=1e-5,
    kv_heads=8,
)
KINDS = {
    "llama": Kind(),
    "mistral": Kind(windows=True, kv_heads=8),
    "ministral": Kind(windows=True, kv_heads=8),
    "mixtral": Kind(
        eps=1e-5,
        windows=True,
        window=None,
        experts=Experts("block_sparse_moe.", 8, 2, ("w1", "w3", "w2"), normalize=True),
        base=1e6,
        kv_heads=8,
    ),
    "phi": replace(
        LAYER_NORM,
        names={"o_proj": "dense", "up_proj": "fc1", "down_proj": "fc2", "norm": "final_layernorm"},
        norms="shared",
        gated=False,
        default_activation="gelu_new",
        bias=True,
        mlp_bias=True,
        head_bias=True,
        dropouts=("embd_pdrop", "resid_pdrop"),
        rotary_share=0.5,
    ),
    "phi3": Kind(eps=1e-5, windows=True, window=None, qkv="joined", joins_gate_up=True),
    "qwen2": Kind(bias=True, out_bias=False),
    "qwen3": Kind(qk_norm="head", head_dim=128),
    "qwen3_moe": Kind(
        qk_norm="head",
        experts=Experts("mlp.", 128, 8, width=("moe_intermediate_size", 768)),
        kv_heads=4,
    ),
    "smollm3": Kind(tied=True, base=2e6, kv_heads=4, window=None),
    "olmo": replace(
        LAYER_NORM, norm={"type": "LayerNorm", "elementwise_affine": False}, eps_key=""
    ),
    "olmo2": OLMO2,
    "olmo3": replace(OLMO2, windows=True, every=4, rotary="both", base=5e5),
    "olmoe": Kind(qk_norm="all", eps=1e-5, experts=Experts("mlp.", 64, 8, aux_loss=0.01)),
    "granite": Kind(),
    "stablelm": replace(LAYER_NORM, bias="use_qkv_bias", out_bias=False, rotary_share=0.25),
    "starcoder2": replace(
        LAYER_NORM,
        names={"up_proj": "c_fc", "down_proj": "c_proj"},
        eps_key="norm_epsilon",
        gated=False,
        default_activation="gelu_pytorch_tanh",
        windows=True,
        window=None,
        bias="use_bias",
        mlp_bias="use_bias",
        biased=True,
        dropouts=("embedding_dropout", "residual_dropout"),
        tied=True,
        kv_heads=2,
    ),
    "arcee": Kind(gated=False, default_activation="relu2", eps=1e-5),
    "cohere": COHERE,
    "cohere2": replace(COHERE, windows=True, every=4, rotary="local", base=10_000.0),
    "ernie4_5": Kind(
        pairs_neighbours=True,
        bias="use_bias",
        mlp_bias="use_bias",
        eps=1e-5,
        tied=True,
        head_dim=128,
        kv_heads=2,
        base=5e5,
    ),
    "exaone4": Kind(
        norms="after",
        qk_norm="head",
        windows=True,
        every=4,
        rotary="local",
        bias=False,
        eps=1e-5,
        kv_heads=32,
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
        pairs_neighbours=True, out_bias=False, eps=1e-8, head_dim=128, kv_heads=20, base=1e5
    ),
    "seed_oss": Kind(
        biased=True,
        out_bias="attention_out_bias",
        dropouts=("embedding_dropout", "residual_dropout"),
        dropout=0.1,
        head_dim=128,
        kv_heads=8,
    ),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": replace(GEMMA2, qk_norm="head", every=6, rotary="both", base=1e6),
    "qwen3_next": replace(
        QWEN3_5,
        experts=Experts("mlp.", 512, 10, width=("moe_intermediate_size", 512)),
        kv_heads=2,
    ),
    "qwen3_5_text": QWEN3_5,
    "olmo_hybrid": replace(
        OLMO2, eps=1e-6, names={"post_attention_layernorm": "feedforward_layer_norm"}
    ),
    "lfm2": Kind(
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
        eps_key="norm_eps",
        eps=1e-5,
        qk_norm="head",
        tied=True,
        kv_heads=8,
        base=1e6,
    ),
    "bamba": replace(FALCON_H1, rotary_share=0.5),
    "falcon_h1": FALCON_H1,
    "recurrent_gemma": Kind(
        names={
            "self_attn": "temporal_block",
            "mlp": "mlp_block",
            "input_layernorm": "temporal_pre_norm",
            "post_attention_layernorm": "channel_pre_norm",
            "norm": "final_norm",
        },
        norm={"type": "ZeroCenteredRMSNorm"},
        activation="hidden_activation",
        default_activation="gelu_pytorch_tanh",
        windows=True,
        tied=True,
        rotary_share=0.5,
    ),
    "granitemoehybrid": Kind(
        joins_gate_up=True,
        names={"mlp": "shared_mlp", "gate_up_proj": "input_linear", "down_proj": "output_linear"},
    ),
}
