"""Adapters that bring models of transformers and timm to `check`: their forward pass and cache.

b batch · n tokens · d width
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from seqkit.errors import suggest
from seqkit.testing.checks import NotCheckedError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

SMALL = {
    None: "q_lora_rank",
    0: "pad_token_id",
    1: "bos_token_id n_groups mamba_n_groups mamba_ngroups num_mem_blocks",
    2: "eos_token_id num_hidden_layers num_blocks num_key_value_heads num_experts_per_tok num_experts_per_token "
    "linear_num_key_heads attn_layer_period expert_layer_period",
    4: "num_attention_heads num_experts num_local_experts n_routed_experts linear_num_value_heads linear_num_heads "
    "mamba_dt_rank adapter_rank",
    8: "state_size ssm_state_size mamba_d_state num_heads mamba_n_heads mamba_num_heads n_mamba_heads",
    16: "head_dim mamba_d_head mamba_headdim mamba_head_dim chunk_size mamba_chunk_size block_size "
    "linear_key_head_dim linear_value_head_dim linear_head_dim v_head_dim qk_rope_head_dim qk_nope_head_dim "
    "block_multiple_of",
    32: "kv_lora_rank moe_intermediate_size shared_expert_intermediate_size attention_head_dim qk_head_dim",
    37: "vocab_size",
    64: "hidden_size lru_width attention_hidden_size embedding_dim embedding_size",
    96: "intermediate_size shared_intermediate_size block_ff_dim",
    128: "mamba_d_ssm",
    256: "max_position_embeddings",
}
"""Small settings of configurations that fit together, with their names."""

LAYERS: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_offset": 1},
    "kimi_linear": {"num_key_value_heads": 4},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "minimax": {"layer_types": ["linear_attention", "full_attention"]},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "xlstm": {"hidden_size": 128, "embedding_dim": 128, "num_heads": 4},
    "zamba": {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "n_mamba_heads": 2,
        "attention_hidden_size": 128,
    },
    "zamba2": {
        "num_hidden_layers": 3,
        "layers_block_type": ["mamba", "mamba", "hybrid"],
        "hybrid_layer_ids": [2],
        "attention_hidden_size": 128,
    },
    "zaya": {"num_experts_per_tok": 1},
}
"""Settings of types whose layers `small_config` cannot choose from their defaults."""


def small_config(kind: str, **changes: Any) -> PreTrainedConfig:
    """A configuration of transformers at small size, with each kind of its layers once.

    kind: a model type, such as "llama". changes: settings of it. Raises ValueError for a type that there is not.
    """
    from transformers import AutoConfig

    known = AutoConfig.for_model(kind)
    depth = getattr(known, "num_hidden_layers", 0)
    given: dict[str, Any] = {}
    for value, names in SMALL.items():
        given |= {name: value for name in names.split() if _can_be_set(known, name)}
    patterns = {
        name: value
        for name, value in known.to_dict().items()
        if isinstance(value, list) and len(value) == depth and isinstance(value[0], str)
    }
    layers = [str(layer) for layer in zip(*patterns.values(), strict=True)]
    if len(layers) > 1:
        kinds = sorted({layers.index(layer) for layer in layers})
        chosen = kinds if len(kinds) > 1 else [0, 1]
        given["num_hidden_layers"] = len(chosen)
        given |= {name: [every[i] for i in chosen] for name, every in patterns.items()}
    return AutoConfig.for_model(kind, **(given | LAYERS.get(kind, {}) | changes))


def _can_be_set(config: PreTrainedConfig, name: str) -> bool:
    found = getattr(type(config), name, None)
    return hasattr(config, name) and not (isinstance(found, property) and found.fset is None)


def from_transformers(source: str, **changes: Any) -> PreTrainedModel:
    """A model of transformers in evaluation mode, with its head if it is causal.

    source: a folder with config.json, whose safetensors are loaded if it has any; or a type, such as "llama", at small
    size with random weights. changes: settings of the configuration. No code of a folder is run, nothing is fetched.
    Raises ValueError for what is no folder and no type, or does not map vectors [b n d] to vectors.
    """
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModel, AutoModelForCausalLM

    folder = Path(source)
    safe = {"trust_remote_code": False}
    if folder.is_dir():
        config = AutoConfig.from_pretrained(folder, local_files_only=True, **safe, **changes)
    elif source in CONFIG_MAPPING:
        config = small_config(source, **changes)
    else:
        near = suggest(source, CONFIG_MAPPING)
        raise ValueError(f"{source} is no folder and no model type of transformers; {near}")
    config._attn_implementation = None  # a file may name a kernel that would be fetched
    config._experts_implementation = "eager"  # the grouped one has no float64
    factory = AutoModelForCausalLM if is_causal(config) else AutoModel
    if any(folder.glob("*.safetensors")):
        local = {"local_files_only": True, "use_safetensors": True, "dtype": torch.float32}
        model = factory.from_pretrained(folder, config=config, **local, **safe)
    else:
        model = factory.from_config(config, dtype=torch.float32, **safe)
        for parameter in model.parameters():  # larger, so that it matters what a state holds
            parameter.data.mul_(3 if parameter.dim() > 1 else 1)
    if config.is_encoder_decoder or "inputs_embeds" not in _arguments(model):
        raise ValueError(f"{type(model).__name__} does not map vectors [b n d] to vectors")
    model.get_input_embeddings().requires_grad_(False)  # vectors pass it by
    return model.eval()


def is_causal(config: PreTrainedConfig) -> bool:
    """Whether tokens attend to earlier ones alone: of types that also fill masks, those that are decoders."""
    from transformers.models.auto import modeling_auto as types

    if config.model_type in types.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return bool(getattr(config, "is_decoder", False))
    return config.model_type in types.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


class State(NamedTuple):
    """Mask [b n] of the columns so far, and the model's cache after them."""

    valid: Tensor
    past: Any


def transformers_doors(model: PreTrainedModel) -> dict[str, Any]:
    """Settings of `check` for `model.base_model`: dim, causal and call, and step and reorder if it has a cache."""
    causal = is_causal(model.config)
    doors = {"dim": model.config.hidden_size, "causal": causal, "call": call}
    if causal and _cache_name(model.base_model):
        doors |= {"step": step, "reorder": reorder}
    return doors


def call(model: nn.Module, x: Tensor, valid: Tensor) -> Tensor:
    """Hidden states [b n d] of vectors [b n d] and a mask [b n], without a cache."""
    hidden: Tensor = _forward(model, x, valid, valid, use_cache=False).last_hidden_state
    return hidden


def step(model: nn.Module, x: Tensor, valid: Tensor, state: State | None) -> tuple[Tensor, State]:
    """Hidden states of the columns that follow those of `state`, which stays as it is; and the state after them."""
    name = _cache_name(model)
    seen = valid if state is None else torch.cat([state.valid, valid], dim=1)
    past = _new_cache(model) if state is None else copy.deepcopy(state.past)
    with torch.no_grad():
        out = _forward(model, x, valid, seen, use_cache=True, **{name: past})
    return out.last_hidden_state, State(seen, getattr(out, name, past))


def _new_cache(model: nn.Module) -> Any:
    """The cache that `generate` would make; None: the model makes its own."""
    from transformers import DynamicCache
    from transformers.generation import GenerationMixin

    kind = str(model.config.model_type)  # type: ignore[union-attr]
    stands_for = type(kind, (GenerationMixin,), {})
    is_known = stands_for._supports_default_dynamic_cache()  # type: ignore[attr-defined]
    if _cache_name(model) != "past_key_values" or not is_known:
        return None
    return DynamicCache(config=model.config)  # type: ignore[arg-type]


def reorder(state: State, rows: Tensor) -> State:
    """The state with rows of the batch chosen anew."""
    past = copy.deepcopy(state.past)
    if not hasattr(past, "reorder_cache"):
        raise NotCheckedError(f"{type(past).__name__} cannot be reordered")
    past.reorder_cache(rows)
    return State(state.valid[rows], past)


def _forward(model: nn.Module, x: Tensor, valid: Tensor, seen: Tensor, **settings: Any) -> Any:
    names = _arguments(model)
    if "position_ids" in names:
        settings["position_ids"] = (seen.cumsum(1) - 1).clamp(min=0)[:, -x.shape[1] :]
    if "attention_mask" in names:  # one whose cache is all state takes the mask of these columns
        settings["attention_mask"] = (valid if "cache_params" in names else seen).long()
    return model(inputs_embeds=x, **settings)


def _arguments(model: nn.Module) -> Collection[str]:
    return inspect.signature(model.forward).parameters


def _cache_name(model: nn.Module) -> str:
    """The argument that takes its cache; empty: it has none."""
    caches = {"past_key_values", "cache_params", "state"}
    return next((name for name in _arguments(model) if name in caches), "")


def from_timm(name: str, **settings: Any) -> nn.Sequential:
    """The blocks of a vision transformer of timm with random weights, in evaluation mode; they map vectors [b n d].

    Raises ValueError for a name that there is not, or a model without such blocks.
    """
    import timm

    if not timm.is_model(name):
        raise ValueError(f"timm has no model {name}; {suggest(name, timm.list_models())}")
    model = timm.create_model(name, pretrained=False, **settings).eval()
    blocks = getattr(model, "blocks", [])
    if not all(hasattr(block, "attn") for block in blocks) or not len(blocks):
        raise ValueError(f"{name} has no blocks of attention; give a vision transformer")
    return nn.Sequential(*blocks)


def timm_doors(blocks: nn.Sequential) -> dict[str, Any]:
    """Settings of `check` for those blocks: dim and call."""
    return {"dim": len(next(blocks.parameters())), "call": call_blocks}


def call_blocks(blocks: nn.Sequential, x: Tensor, valid: Tensor) -> Tensor:
    """Vectors [b n d] after all blocks; the mask [b n] becomes one of attention, [b 1 1 n]."""
    for block in blocks:
        x = block(x, attn_mask=valid[:, None, None, :])
    return x
